// The terminal form of an answer of GET /api/jobs/{job}/why: the verdict first, on 80 columns, no colour needed.
#pragma once

#include <string_view>

namespace lockstep::cli {

// cost_json: the answer of /cost; empty: not shown.
void print_why(std::string_view why_json, std::string_view server_url, std::string_view cost_json = "");

}  // namespace lockstep::cli
