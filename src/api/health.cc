// GET /healthz: alive. GET /readyz: every door is open and recovery is done.
#include "api/answer.h"
#include "api/endpoints.h"

namespace lockstep {

HttpResponse get_healthz(const ApiContext&, const ApiRequest&) {
  return text_answer(200, "text/plain; charset=utf-8", "ok\n");
}

HttpResponse get_readyz(const ApiContext& context, const ApiRequest&) {
  return context.ready
             ? text_answer(200, "text/plain; charset=utf-8", "ok\n")
             : text_answer(503, "text/plain; charset=utf-8", "starting: the durable log is being read back\n");
}

}  // namespace lockstep
