// GET /tempo/api/echo, /tempo/ready, /tempo/api/status/buildinfo: what a client asks to see that somebody is there.
#include "api/answer.h"
#include "api/endpoints.h"
#include "api/tempo/tempo_answer.h"

namespace lockstep {

HttpResponse get_tempo_echo(const ApiContext&, const ApiRequest&) {
  return text_answer(200, "text/plain; charset=utf-8", "echo");
}

HttpResponse get_tempo_ready(const ApiContext&, const ApiRequest&) {
  return text_answer(200, "text/plain; charset=utf-8", "ready\n");
}

// Our own version: below Tempo's, so that no client expects of us what came there later (streaming over gRPC).
HttpResponse get_tempo_buildinfo(const ApiContext&, const ApiRequest&) {
  JsonWriter json;
  json.begin_object()
      .field("version", LOCKSTEP_VERSION)
      .field("revision", "")
      .field("branch", "")
      .field("buildDate", "")
      .field("buildUser", "")
      .field("goVersion", "")
      .field("application", "lockstep")
      .end_object();
  return json_answer(json);
}

HttpResponse get_tempo_metrics(const ApiContext&, const ApiRequest&) {
  return tempo_error(501,
                     "metrics from spans (rate(), count_over_time(), ...) are not served here; search with "
                     "/api/search, or ask the Prometheus API for metrics of jobs");
}

}  // namespace lockstep
