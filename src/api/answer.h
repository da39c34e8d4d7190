// Small helpers every endpoint uses: answers, checked parameters, numbers as the API writes them.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "base/result.h"
#include "model/ids.h"
#include "model/telemetry.h"
#include "net/http_server.h"

namespace lockstep {

HttpResponse json_answer(JsonWriter& json);
HttpResponse text_answer(int status, std::string_view content_type, std::string body);
HttpResponse error_answer(int status, std::string_view line);

// A page of somebody else's must not make a visitor's browser ask for something in the visitor's name.
bool from_another_site(const ServerRequest& request);

// A whole number; absent or empty: the fallback. The error says what is allowed.
Result<int64_t> int_parameter(const ServerRequest& request, std::string_view name, int64_t fallback, int64_t minimum,
                              int64_t maximum);

// The window of steps a request asks for: ?last=K (default last_default) up to last_step, or ?from=A&to=B; at most
// kStepsShownMax steps.
struct StepRange {
  StepNumber from;
  StepNumber to;
};
inline constexpr int64_t kStepsShownMax = 500;
Result<StepRange> step_range(const ServerRequest& request, StepNumber last_step, int64_t last_default);

// The end of a list and of the answer around it: how many there are, and how many of them are in it.
HttpResponse list_answer(JsonWriter& json, size_t total, size_t shown);

// The {step} of a path: a whole number, or "latest".
Result<StepNumber> step_of_path(const std::string& text, StepNumber latest);

// Shares as the API writes them: rounded to a hundredth of a percent each, and together what they were together (what
// rounding leaves over goes to the largest).
std::vector<double> rounded_shares(std::vector<double> shares);

// Three decimals: what a person can use, and a third of the bytes. NaN stays NaN (null).
double rounded(double value);
void write_number(JsonWriter& json, std::string_view name, double value);
void write_attributes(JsonWriter& json, std::string_view name, const Attributes& attributes);

}  // namespace lockstep
