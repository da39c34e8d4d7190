// /prometheus/api/v1/admin/tsdb: deleting series and copying everything, where the server allows it.
#include "api/endpoints.h"
#include "api/prometheus/prometheus_answer.h"

namespace lockstep {
namespace {

HttpResponse not_allowed() {
  return prometheus_error("unavailable", "admin APIs disabled: start the server with --admin-api");
}

HttpResponse done() {
  HttpResponse response;
  response.status = 204;
  return response;
}

}  // namespace

HttpResponse prometheus_delete_series(const ApiContext& context, const ApiRequest& request) {
  if (context.metric_admin == nullptr) return not_allowed();
  const Result<PrometheusForm> form = PrometheusForm::read(request.http);
  if (!form.ok()) return prometheus_error("bad_data", form.error());
  const Result<std::vector<std::vector<LabelMatcher>>> any = prometheus_matchers(*form);
  if (!any.ok()) return prometheus_error("bad_data", any.error());
  if (any->empty()) return prometheus_error("bad_data", "no match[] parameter provided");
  const Result<int64_t> from = prometheus_time(*form, "start", kPrometheusEarliestMs);
  if (!from.ok()) return prometheus_error("bad_data", from.error());
  const Result<int64_t> to = prometheus_time(*form, "end", kPrometheusLatestMs);
  if (!to.ok()) return prometheus_error("bad_data", to.error());
  for (const std::vector<LabelMatcher>& matchers : *any) {
    if (Result<void> removed = context.metric_admin->remove(matchers, *from, *to); !removed.ok())
      return prometheus_error("unavailable", removed.error());
  }
  return done();
}

HttpResponse prometheus_clean_tombstones(const ApiContext& context, const ApiRequest&) {
  if (context.metric_admin == nullptr) return not_allowed();
  if (Result<void> cleaned = context.metric_admin->clean(); !cleaned.ok())
    return prometheus_error("internal", cleaned.error());
  return done();
}

HttpResponse prometheus_snapshot(const ApiContext& context, const ApiRequest&) {
  if (context.metric_admin == nullptr) return not_allowed();
  const Result<std::string> name = context.metric_admin->snapshot();
  if (!name.ok()) return prometheus_error("unavailable", name.error());
  return prometheus_answer([&](JsonWriter& json) { json.begin_object().field("name", *name).end_object(); });
}

}  // namespace lockstep
