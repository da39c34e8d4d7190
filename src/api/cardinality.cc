// GET /api/cardinality: how many series there are, who made the most of them, and what was refused.
#include "api/answer.h"
#include "api/endpoints.h"

namespace lockstep {

HttpResponse get_cardinality(const ApiContext& context, const ApiRequest& request) {
  Result<int64_t> limit = int_parameter(request.http, "limit", 20, 1, 1000);
  if (!limit.ok()) return error_answer(400, limit.error());
  if (!context.cardinality) return error_answer(503, "metrics are not stored here");
  const CardinalityReport report = context.cardinality(static_cast<size_t>(*limit));
  JsonWriter json;
  json.begin_object().field("series", static_cast<int64_t>(report.series));
  json.key("limits")
      .begin_object()
      .field("series", static_cast<int64_t>(report.limits.series_max))
      .field("metric", static_cast<int64_t>(report.limits.series_per_metric_max))
      .field("job", static_cast<int64_t>(report.limits.series_per_job_max))
      .field("tenant", static_cast<int64_t>(report.limits.series_per_tenant_max))
      .field("stream", static_cast<int64_t>(report.limits.series_per_stream_max))
      .end_object();
  auto creators = [&](const char* key, const std::vector<metrics::Creator>& list) {
    json.key(key).begin_array();
    for (const metrics::Creator& one : list)
      json.begin_object().field("name", one.name).field("series", static_cast<int64_t>(one.series)).end_object();
    json.end_array();
  };
  creators("metrics", report.metrics);
  creators("jobs", report.jobs);
  creators("tenants", report.tenants);
  creators("streams", report.streams);
  json.key("refused_samples").begin_object();
  for (const auto& [reason, samples] : report.refused) json.field(reason, samples);
  json.end_object().end_object();
  return json_answer(json);
}

}  // namespace lockstep
