// GET /api/metrics: series of a metric by exact name, as it is stored or as OTLP named it; without a name, the list of
// names.
#include <algorithm>
#include <limits>

#include "analysis/metric_series.h"
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
  const std::string name = request.http.parameter("name");
  if (name.empty()) {
    const Result<std::vector<std::string>> names =
        context.metrics.label_values("__name__", {}, *from / 1'000'000, *to / 1'000'000);
    if (!names.ok()) return error_answer(500, names.error());
    json.begin_object().key("names").begin_array();
    for (const std::string& one : *names) json.string(one);
    return list_answer(json, names->size(), names->size());
  }
  const std::vector<MetricMetadata> known = context.metrics.metadata();
  size_t total = 0, shown = 0;
  json.begin_object().key("series").begin_array();
  for (const std::string& stored : stored_names(known, name)) {
    // A histogram's parts are told of under its own name.
    const auto reported = std::find_if(known.begin(), known.end(), [&](const MetricMetadata& one) {
      const std::string_view part = std::string_view(stored).substr(std::min(one.name.size(), stored.size()));
      return stored.starts_with(one.name) && (part.empty() || part == "_bucket" || part == "_sum" || part == "_count");
    });
    size_t here = 0;
    for (const NamedSeries& series :
         series_named(context.metrics, stored, *from, *to, static_cast<size_t>(*limit) - shown, &here)) {
      ++shown;
      json.begin_object().field("name", series.name).key("labels").begin_object();
      for (const auto& [label, value] : series.labels) json.field(label, value);
      json.end_object().field("kind", reported == known.end() ? "" : reported->type);
      json.field("unit", reported == known.end() ? "" : reported->unit).key("points").begin_array();
      for (const NamedSample& sample : series.samples)
        json.begin_array().number(sample.time_unix_ns).number(sample.value).end_array();
      json.end_array().end_object();
    }
    total += here;
  }
  return list_answer(json, total, shown);
}

}  // namespace lockstep
