#include "api/prometheus/prometheus_answer.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "api/answer.h"
#include "base/duration.h"
#include "base/text.h"
#include "base/utc_time.h"
#include "net/server_request.h"
#include "query/promql/lexer.h"
#include "query/promql/parser.h"
#include "query/traceql/span_text.h"

namespace lockstep {

Result<PrometheusForm> PrometheusForm::read(const ServerRequest& request) {
  PrometheusForm form;
  const auto add = [&](std::string_view text) {
    for (std::string_view pair : split(text, '&')) {
      if (pair.empty()) continue;
      const size_t equals = pair.find('=');
      const std::optional<std::string> name = percent_decode(pair.substr(0, equals), true);
      const std::optional<std::string> value =
          equals == std::string_view::npos ? std::string() : percent_decode(pair.substr(equals + 1), true);
      if (!name || !value) return false;
      form.fields_.emplace_back(*name, *value);
    }
    return true;
  };
  const std::string_view type = request.header("content-type");
  const bool has_form = request.method == "POST" && type.starts_with("application/x-www-form-urlencoded");
  if ((has_form && !add(request.body)) || !add(request.query))
    return Error{"error parsing form values: invalid URL escape"};
  return form;
}

std::string PrometheusForm::value(std::string_view name) const {
  for (const auto& [key, text] : fields_) {
    if (key == name) return text;
  }
  return {};
}

std::vector<std::string> PrometheusForm::values(std::string_view name) const {
  std::vector<std::string> out;
  for (const auto& [key, text] : fields_) {
    if (key == name) out.push_back(text);
  }
  return out;
}

Result<int64_t> prometheus_time(const PrometheusForm& form, std::string_view name, int64_t fallback_ms) {
  const std::string text = form.value(name);
  if (text.empty()) return fallback_ms;
  const auto bad = [&] {
    return Error{format("invalid parameter \"%s\": cannot parse \"%.80s\" to a valid timestamp",
                        std::string(name).c_str(), as_one_line(text).c_str())};
  };
  if (const std::optional<double> seconds = parse_double(text)) {
    if (std::isnan(*seconds) || std::fabs(*seconds) > static_cast<double>(kPrometheusLatestMs) / 1000) return bad();
    return static_cast<int64_t>(std::llround(*seconds * 1000));
  }
  const Result<int64_t> ns = unix_ns_from_rfc3339(text);
  if (!ns.ok()) return bad();
  return *ns / 1'000'000;
}

Result<int64_t> prometheus_duration(std::string_view text) {
  const auto bad = [&] {
    return Error{format("cannot parse \"%.80s\" to a valid duration", as_one_line(text).c_str())};
  };
  if (const std::optional<double> seconds = parse_double(text)) {
    if (std::isnan(*seconds) || std::fabs(*seconds) > 9223372036.0) return bad();
    return static_cast<int64_t>(*seconds * 1000);
  }
  int64_t ms = 0;
  if (!parse_duration_ms(text, &ms).empty()) return bad();
  return ms;
}

Result<int64_t> prometheus_timeout(const PrometheusForm& form) {
  const std::string text = form.value("timeout");
  if (text.empty()) return kPrometheusTimeoutMs;
  const Result<int64_t> given = prometheus_duration(text);
  if (!given.ok()) return prefixed(given.failure(), "invalid parameter \"timeout\": ");
  return std::clamp<int64_t>(*given, 0, kPrometheusTimeoutMs);
}

Result<uint64_t> prometheus_limit(const PrometheusForm& form, std::string_view name) {
  const std::string text = form.value(name);
  if (text.empty()) return uint64_t{0};
  const std::optional<int64_t> limit = parse_int(text);
  if (!limit || *limit < 0)
    return Error{format("invalid parameter \"%s\": \"%.40s\" is not a number from 0", std::string(name).c_str(),
                        as_one_line(text).c_str())};
  return static_cast<uint64_t>(*limit);
}

HttpResponse prometheus_answer(const std::function<void(JsonWriter&)>& write_data, const PrometheusNotes& notes) {
  JsonWriter json;
  json.begin_object().field("status", "success").key("data");
  write_data(json);
  for (const auto& [name, list] : {std::pair{"warnings", &notes.warnings}, std::pair{"infos", &notes.infos}}) {
    if (list->empty()) continue;
    json.key(name).begin_array();
    for (const std::string& line : *list) json.string(line);
    json.end_array();
  }
  json.end_object();
  return json_answer(json);
}

HttpResponse prometheus_no_memory() {
  HttpResponse refused = prometheus_error("unavailable", kMemorySpent);
  refused.headers.emplace_back("retry-after", "1");
  return refused;
}

HttpResponse prometheus_error(std::string_view type, std::string_view line) {
  int status = 500;
  if (type == "bad_data") status = 400;
  if (type == "execution") status = 422;
  if (type == "canceled") status = 499;
  if (type == "timeout" || type == "unavailable") status = 503;
  if (type == "not_found") status = 404;
  JsonWriter json;
  json.begin_object().field("status", "error").field("errorType", type).field("error", line).end_object();
  return text_answer(status, "application/json", json.take());
}

void write_prometheus_time(JsonWriter& json, int64_t time_ms) {
  const bool negative = time_ms < 0;
  const uint64_t ms = negative ? 0 - static_cast<uint64_t>(time_ms) : static_cast<uint64_t>(time_ms);
  std::string text = format("%s%llu", negative ? "-" : "", static_cast<unsigned long long>(ms / 1000));
  if (ms % 1000 != 0) text += format(".%03llu", static_cast<unsigned long long>(ms % 1000));
  json.raw(text);
}

std::string prometheus_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Inf" : "+Inf";
  const double size = std::fabs(value);
  const bool plain = size == 0 || (size >= 1e-6 && size < 1e21);
  char buffer[400];
  const std::to_chars_result result = std::to_chars(buffer, buffer + sizeof buffer, value,
                                                    plain ? std::chars_format::fixed : std::chars_format::scientific);
  return std::string(buffer, result.ptr);
}

const char* prometheus_type(promql::ValueType type) {
  switch (type) {
    case promql::ValueType::kScalar:
      return "scalar";
    case promql::ValueType::kVector:
      return "vector";
    case promql::ValueType::kMatrix:
      return "matrix";
    case promql::ValueType::kString:
      return "string";
    default:
      return "none";
  }
}

std::string prometheus_moment(int64_t unix_ns) {
  if (unix_ns <= 0) return "0001-01-01T00:00:00Z";
  return utc_time(unix_ns / 1'000'000);
}

void write_prometheus_labels(JsonWriter& json, const std::vector<std::pair<std::string, std::string>>& labels) {
  json.begin_object();
  for (const auto& [name, value] : labels) json.field(name, std::string_view(value));
  json.end_object();
}

Result<std::vector<std::vector<LabelMatcher>>> prometheus_matchers(const PrometheusForm& form) {
  std::vector<std::vector<LabelMatcher>> any;
  for (const std::string& text : form.values("match[]")) {
    Result<std::vector<LabelMatcher>> matchers = promql::parse_selector(text);
    if (!matchers.ok()) return prefixed(matchers.failure(), "invalid parameter \"match[]\": ");
    any.push_back(std::move(*matchers));
  }
  return any;
}

}  // namespace lockstep
