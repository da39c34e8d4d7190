// What the endpoints of the Prometheus query API share: forms, times, envelopes, numbers as Prometheus writes them.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/context.h"
#include "api/routes.h"
#include "base/json_writer.h"
#include "base/result.h"
#include "query/promql/query.h"
#include "store/metric_reader.h"

namespace lockstep {

// Parameters of the query string and, on POST, of the form in the body; a name may come more than once.
class PrometheusForm {
 public:
  static Result<PrometheusForm> read(const ServerRequest& request);
  std::string value(std::string_view name) const;  // the first; empty where absent
  std::vector<std::string> values(std::string_view name) const;

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

inline constexpr int64_t kPrometheusEarliestMs = -(int64_t{1} << 53);
inline constexpr int64_t kPrometheusLatestMs = int64_t{1} << 53;

// Seconds since 1970 with a fraction, or RFC 3339; absent: the fallback.
Result<int64_t> prometheus_time(const PrometheusForm& form, std::string_view name, int64_t fallback_ms);
// Seconds with a fraction, or 1h30m.
Result<int64_t> prometheus_duration(std::string_view text);
// timeout=30s: how long a query may take, its wait included; absent, or more: kPrometheusTimeoutMs.
inline constexpr int64_t kPrometheusTimeoutMs = 2 * 60 * 1000;
Result<int64_t> prometheus_timeout(const PrometheusForm& form);
Result<uint64_t> prometheus_limit(const PrometheusForm& form, std::string_view name = "limit");  // 0: none

struct PrometheusNotes {
  std::vector<std::string> warnings, infos;
};

// {"status":"success","data":...}
HttpResponse prometheus_answer(const std::function<void(JsonWriter&)>& write_data, const PrometheusNotes& notes = {});
// errorType: bad_data execution timeout canceled internal unavailable not_found; the HTTP status follows from it.
HttpResponse prometheus_error(std::string_view type, std::string_view line);
// 503 with Retry-After: there is no memory for it now.
HttpResponse prometheus_no_memory();

void write_prometheus_time(JsonWriter& json, int64_t time_ms);  // seconds with three decimals where needed
std::string prometheus_number(double value);
const char* prometheus_type(promql::ValueType type);  // "vector"
std::string prometheus_moment(int64_t unix_ns);  // "2026-06-10T10:15:30.123Z"; 0: Go's zero time, which means never
void write_prometheus_labels(JsonWriter& json, const std::vector<std::pair<std::string, std::string>>& labels);

// match[]=...: each a list of matchers.
Result<std::vector<std::vector<LabelMatcher>>> prometheus_matchers(const PrometheusForm& form);

}  // namespace lockstep
