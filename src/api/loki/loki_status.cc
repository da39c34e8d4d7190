// /loki/api/v1/status/buildinfo and format_query; and what a client that asks for more is told.
#include "api/answer.h"
#include "api/endpoints.h"
#include "api/loki/loki_answer.h"

namespace lockstep {

// Our own version: below Loki's, so that no client expects of us what came there later.
HttpResponse loki_buildinfo(const ApiContext&, const ApiRequest&) {
  JsonWriter json;
  json.begin_object()
      .field("version", LOCKSTEP_VERSION)
      .field("revision", "")
      .field("branch", "")
      .field("buildUser", "")
      .field("buildDate", "")
      .field("goVersion", "")
      .end_object();
  return json_answer(json);
}

HttpResponse loki_format_query(const ApiContext&, const ApiRequest& request) {
  const Result<PrometheusForm> form = PrometheusForm::read(request.http);
  if (!form.ok()) return loki_error(400, form.error());
  const Result<logql::Expression> expression = logql::parse(form->value("query"));
  if (!expression.ok()) return loki_error(400, expression.error());
  return prometheus_answer([&](JsonWriter& json) { json.string(logql::to_text(*expression)); });
}

}  // namespace lockstep
