// GET /api/metrics: series of a metric by exact name; without a name, the list of names.
#include <limits>

#include "api/answer.h"
#include "api/endpoints.h"

namespace lockstep {

HttpResponse get_metrics(const ApiContext& context, const ApiRequest& request) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  Result<int64_t> from = int_parameter(request.http, "from", 0, 0, kLargest);
  if (!from.ok()) return error_answer(400, from.error());
  Result<int64_t> to = int_parameter(request.http, "to", kLargest, 0, kLargest);
  if (!to.ok()) return error_answer(400, to.error());
  Result<int64_t> limit = int_parameter(request.http, "limit", 100, 1, 1000);
  if (!limit.ok()) return error_answer(400, limit.error());

  JsonWriter json;
  std::string name = request.http.parameter("name");
  if (name.empty()) {
    std::vector<std::string> names = context.metrics.names();
    json.begin_object().key("names").begin_array();
    for (const std::string& one : names) json.string(one);
    return list_answer(json, names.size(), names.size());
  }
  size_t total = 0;
  std::vector<Series> list = context.metrics.select(name, *from, *to, static_cast<size_t>(*limit), &total);
  json.begin_object().key("series").begin_array();
  for (const Series& series : list) {
    json.begin_object().field("name", series.name).key("labels").begin_object();
    for (const auto& [label, value] : series.labels) json.field(label, value);
    json.end_object().field("kind", series.kind).field("unit", series.unit).key("points").begin_array();
    for (const Sample& sample : series.samples)
      json.begin_array().number(sample.time_unix_ns).number(sample.value).end_array();
    json.end_array().end_object();
  }
  return list_answer(json, total, list.size());
}

}  // namespace lockstep
