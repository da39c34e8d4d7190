// GET /healthz: alive. GET /readyz: every receiver is open, recovery is done and every check of readiness.h is well.
#include "api/health.h"

#include "access/role.h"
#include "api/answer.h"
#include "api/endpoints.h"

namespace lockstep {

HttpResponse get_healthz(const ApiContext&, const ApiRequest&) {
  return text_answer(200, "text/plain; charset=utf-8", "ok\n");
}

HttpResponse get_readyz(const ApiContext& context, const ApiRequest& request) {
  Readiness::State state;
  if (!context.ready) {  // nothing else is asked: it may not be there yet
    state.is_ready = false;
    state.rows.push_back({"starting", "the durable log is being read back"});
  } else if (context.readiness != nullptr) {
    state = context.readiness->ask();
    if (!request.http.caller.is_operator() || !may(request.http.caller.roles, Role::kRead))
      std::erase_if(state.rows, [](const Readiness::Row& row) { return row.is_private; });
  }
  return readyz_answer(state, request.http.parameter("format") == "json");
}

HttpResponse readyz_answer(const Readiness::State& state, bool as_json) {
  HttpResponse answer;
  if (as_json) {
    JsonWriter json;
    json.begin_object().field("ready", state.is_ready).key("checks").begin_array();
    for (const Readiness::Row& row : state.rows) {
      json.begin_object().field("name", row.name).field("ok", !row.problem.has_value());
      if (row.problem) json.field("problem", *row.problem).field("warning", row.is_warning);
      json.end_object();
    }
    json.end_array().end_object();
    answer = json_answer(json);
    answer.status = state.is_ready ? 200 : 503;
  } else {
    std::string text = state.is_ready ? "ok\n" : "";
    for (const Readiness::Row& row : state.rows) {
      if (!row.problem || (!state.is_ready && row.is_warning)) continue;
      text += (row.is_warning ? "warning: " : "") + row.name + ": " + *row.problem + "\n";
    }
    answer = text_answer(state.is_ready ? 200 : 503, "text/plain; charset=utf-8", std::move(text));
  }
  if (!state.is_ready) answer.headers.emplace_back("retry-after", "1");
  return answer;
}

}  // namespace lockstep
