// GET /api/verdicts: verdicts of all jobs, newest first.
#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"
#include "base/text.h"

namespace lockstep {

HttpResponse get_verdicts(const ApiContext& context, const ApiRequest& request) {
  std::string state = request.http.parameter("state");
  if (state.empty()) state = "open";
  if (state != "open" && state != "cleared" && state != "all")
    return error_answer(400, format("state is \"%.40s\"; it must be open, cleared or all", state.c_str()));
  Result<int64_t> limit = int_parameter(request.http, "limit", 200, 1, 10'000);
  if (!limit.ok()) return error_answer(400, limit.error());
  uint64_t total = 0;
  uint64_t shown = 0;
  JsonWriter json;
  json.begin_object().key("verdicts").begin_array();
  // Those of earlier runs are never open.
  for (VerdictView& verdict : state == "open" ? live_verdicts(context) : all_verdicts(context)) {
    if (state != "all" && verdict.is_open != (state == "open")) continue;
    if (total++ >= static_cast<uint64_t>(*limit)) continue;
    json.raw(shown_json(context, std::move(verdict)));
    ++shown;
  }
  json.end_array().field("total", total).field("shown", shown).end_object();
  return json_answer(json);
}

}  // namespace lockstep
