// GET /metrics: Lockstep's own metrics, Prometheus text.
#include "api/answer.h"
#include "api/endpoints.h"

namespace lockstep {

HttpResponse get_own_metrics(const ApiContext& context, const ApiRequest&) {
  return text_answer(200, "text/plain; version=0.0.4; charset=utf-8", context.counters.prometheus_text());
}

}  // namespace lockstep
