// The terminal form of an answer of GET /api/jobs/{job}/why: the verdict first, on 80 columns, no colour needed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli/answer_json.h"

namespace lockstep::cli {

// server_url: of the page on its cause; empty: the path alone.
void print_verdict(const Json& verdict, std::string_view server_url = {});
// What the ranks of a hang or a crash have left on the server, one line each; nothing where there is nothing.
void print_files(const Json& verdict, size_t indent);
// One sentence each, with what to do, and how many more there are; nothing where there is none. Of GET /api/warnings or
// .../why.
void print_warnings(const Json& answer, size_t most = SIZE_MAX);

// Where the time of a step goes: "compute 62 %", one each. Empty where nobody knows.
std::vector<std::string> time_parts(const Json& why);

struct WhyView {
  std::string_view server_url = {};  // of the link to the page; empty: none
  std::string_view cost_json = {};   // the answer of /cost; empty: not shown
  bool history = false;              // what is over in full, else one line each
};
void print_why(std::string_view why_json, const WhyView& view);

}  // namespace lockstep::cli
