// GET /metrics: Lockstep's own metrics, Prometheus text. What they say of all tenants is the operator's.
#include "api/answer.h"
#include "api/endpoints.h"

namespace lockstep {

HttpResponse get_own_metrics(const ApiContext& context, const ApiRequest& request) {
  std::string text = context.counters.prometheus_text();
  if (context.of_tenants != nullptr && request.http.caller.is_operator()) text += context.of_tenants->prometheus_text();
  return text_answer(200, "text/plain; version=0.0.4; charset=utf-8", std::move(text));
}

}  // namespace lockstep
