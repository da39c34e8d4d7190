// POST /api/jobs/{job}/steps/{step}/detail: the agents are asked for a step of these ranks, as long as they have it.
#include <algorithm>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/asked.h"
#include "api/jobs/job_view.h"
#include "base/text.h"
#include "model/events.h"
#include "model/rank_text.h"
#include "model/step_detail.h"

namespace lockstep {

HttpResponse post_step_detail(const ApiContext& context, const ApiRequest& request) {
  if (from_another_site(request.http)) return error_answer(403, "asked from a page of another site");
  if (!context.ask_detail) return error_answer(501, "this server asks no agents");
  std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  const std::optional<int64_t> step = parse_int(request.step);
  if (!step || *step < 0 || StepNumber{*step} > job->last_step)
    return error_answer(400, format("step is \"%.40s\"; it must be a number from 0 to %lld", request.step.c_str(),
                                    static_cast<long long>(job->last_step.value())));
  DetailRequest wanted{
      .job_id = job->job_id, .attempt = job->attempt, .from_step = StepNumber{*step}, .to_step = StepNumber{*step}};
  if (const std::string ranks = request.http.parameter("ranks"); !ranks.empty()) {
    Result<std::vector<Rank>> list = ranks_from_text(ranks, kDetailRanksMax);
    if (!list.ok()) return error_answer(400, "ranks: " + list.error());
    wanted.ranks = std::move(*list);
    std::sort(wanted.ranks.begin(), wanted.ranks.end());
    wanted.ranks.erase(std::unique(wanted.ranks.begin(), wanted.ranks.end()), wanted.ranks.end());
  }
  const DetailAsked asked = context.ask_detail(*job, wanted);
  if (std::optional<HttpResponse> later = refuse_asked(asked)) return std::move(*later);
  JsonWriter json;
  json.begin_object()
      .field("job_id", job->job_id)
      .field("attempt", job->attempt)
      .field("step", *step)
      .field("trace_id", to_hex(step_trace_id(job->job_id, job->attempt, StepNumber{*step})));
  return asked_answer(json, asked);
}

}  // namespace lockstep
