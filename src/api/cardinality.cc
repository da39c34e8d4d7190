// GET /api/cardinality: how many series there are, who made the most of them, and what was refused.
#include "api/answer.h"
#include "api/endpoints.h"
#include "base/text.h"
#include "ingest/otlp/metric_mapping.h"
#include "model/metric_stream.h"

namespace lockstep {
namespace {

constexpr size_t kNameBytesMax = 200;

// "OTLP from node-17, lockstep-agent, job llama-70b, rank 43". A stream's own name has the bytes by which the store knows
// it again; a person needs who it is.
std::string sender_name(std::string_view stream) {
  std::string name;
  const auto add = [&](const char* word, std::string_view value) {
    if (!value.empty()) name.append(name.empty() ? "" : ", ").append(word).append(utf8_prefix(value, kNameBytesMax));
  };
  if (stream.starts_with('O') && stream.find('\0') != std::string_view::npos) {
    const Attributes resource = MetricMapping::resource_of(stream);
    add("OTLP from ", find_string(resource, "host.name"));
    add(name.empty() ? "OTLP from " : "", find_string(resource, "service.name"));
    add("job ", find_string(resource, "lockstep.job_id"));
    if (const int64_t rank = find_int(resource, "lockstep.rank", -1); rank >= 0) {
      add("rank ", std::to_string(rank));
    } else {
      add("", find_string(resource, "lockstep.gpu_uuid"));
    }
    return as_one_line(name.empty() ? "OTLP, without a name" : name);
  }
  const std::vector<std::string_view> parts = split(stream, '\0');
  if (parts.size() > 1 && parts[0] == "scrape") return as_one_line("scraped from " + std::string(parts[1]));
  if (parts.size() > 3 && parts[0] == kRemoteWriteReceiver) {
    add("remote write of ", parts[3].empty() ? std::string_view("somebody") : parts[3]);
    add("job ", parts[2]);
    add("tenant ", parts[1]);
    return as_one_line(name);
  }
  return as_one_line(utf8_prefix(stream, kNameBytesMax));
}

}  // namespace

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
  std::vector<metrics::Creator> senders = report.streams;
  for (metrics::Creator& one : senders) one.name = sender_name(one.name);
  creators("streams", senders);
  json.key("refused_samples").begin_object();
  for (const auto& [reason, samples] : report.refused) json.field(reason, samples);
  json.end_object().end_object();
  return json_answer(json);
}

}  // namespace lockstep
