#include "api/answer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/text.h"

namespace lockstep {

HttpResponse list_answer(JsonWriter& json, size_t total, size_t shown) {
  json.end_array()
      .field("total", static_cast<uint64_t>(total))
      .field("shown", static_cast<uint64_t>(shown))
      .end_object();
  return json_answer(json);
}

Result<StepNumber> step_of_path(const std::string& text, StepNumber latest) {
  if (text == "latest") return latest;
  const std::optional<int64_t> number = parse_int(text);
  if (!number || *number < 0)
    return Error{format("\"%.40s\" is not a step; a step is a whole number, or latest", as_one_line(text).c_str())};
  return StepNumber{*number};
}

HttpResponse text_answer(int status, std::string_view content_type, std::string body) {
  HttpResponse response;
  response.status = status;
  response.headers = {{"content-type", std::string(content_type)},
                      {"x-content-type-options", "nosniff"},
                      {"cache-control", "no-store"}};
  response.body = std::move(body);
  return response;
}

HttpResponse json_answer(JsonWriter& json) {
  return text_answer(200, "application/json", json.take());
}

HttpResponse error_answer(int status, std::string_view line) {
  JsonWriter json;
  json.begin_object().field("error", line).end_object();
  return text_answer(status, "application/json", json.take());
}

bool from_another_site(const ServerRequest& request) {
  const std::string_view from = request.header("sec-fetch-site");
  return !from.empty() && from != "same-origin" && from != "none";
}

Result<int64_t> int_parameter(const ServerRequest& request, std::string_view name, int64_t fallback, int64_t minimum,
                              int64_t maximum) {
  std::string text = request.parameter(name);
  if (text.empty()) return fallback;
  std::optional<int64_t> value = parse_int(text);
  if (!value || *value < minimum || *value > maximum) {
    return Error{format("%.*s is \"%.40s\"; it must be a whole number from %lld to %lld", static_cast<int>(name.size()),
                        name.data(), text.c_str(), static_cast<long long>(minimum), static_cast<long long>(maximum))};
  }
  return *value;
}

std::vector<double> rounded_shares(std::vector<double> shares) {
  constexpr double kUnit = 1e4;
  if (shares.empty()) return shares;
  double left = std::round(std::accumulate(shares.begin(), shares.end(), 0.0) * kUnit);
  const auto largest = std::max_element(shares.begin(), shares.end());
  for (auto share = shares.begin(); share != shares.end(); ++share) {
    if (share == largest) continue;
    const double whole = std::round(*share * kUnit);
    left -= whole;
    *share = whole / kUnit;
  }
  *largest = left / kUnit;
  return shares;
}

double rounded(double value) {
  return std::round(value * 1000) / 1000;
}

void write_number(JsonWriter& json, std::string_view name, double value) {
  json.field(name, rounded(value));
}

void write_attributes(JsonWriter& json, std::string_view name, const Attributes& attributes) {
  json.key(name).raw(to_text(Value(attributes)));
}

Result<StepRange> step_range(const ServerRequest& request, StepNumber last_step, int64_t last_default) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  bool has_from = !request.parameter("from").empty();
  bool has_to = !request.parameter("to").empty();
  if (has_from != has_to) return Error{"from and to come together: ?from=100&to=299"};
  if (!has_from) {
    int64_t last = LOCKSTEP_TRY(int_parameter(request, "last", last_default, 1, kStepsShownMax));
    return StepRange{std::max(0_step, last_step - last + 1), last_step};
  }
  if (!request.parameter("last").empty()) return Error{"give last, or from and to, not both"};
  int64_t from = LOCKSTEP_TRY(int_parameter(request, "from", 0, 0, kLargest));
  int64_t to = LOCKSTEP_TRY(int_parameter(request, "to", 0, 0, kLargest));
  if (to < from || to - from >= kStepsShownMax) {
    return Error{format("from %lld to %lld is not a window of 1 to %lld steps", static_cast<long long>(from),
                        static_cast<long long>(to), static_cast<long long>(kStepsShownMax))};
  }
  return StepRange{StepNumber{from}, StepNumber{to}};
}

}  // namespace lockstep
