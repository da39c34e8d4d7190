// POST /api/jobs/{job}/steps/{step}/detail: the agents are asked for a step of these ranks, as long as they have it.
#include <algorithm>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"
#include "base/text.h"
#include "model/events.h"
#include "model/step_detail.h"

namespace lockstep {

HttpResponse post_step_detail(const ApiContext& context, const ApiRequest& request) {
  // A page of somebody else's must not make a visitor's browser ask in the visitor's name.
  const std::string_view from = request.http.header("sec-fetch-site");
  if (!from.empty() && from != "same-origin" && from != "none")
    return error_answer(403, "asked from a page of another site");
  if (!context.ask_detail) return error_answer(501, "this server asks no agents");
  std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  const std::optional<int64_t> step = parse_int(request.step);
  if (!step || *step < 0 || *step > job->last_step)
    return error_answer(400, format("step is \"%.40s\"; it must be a number from 0 to %lld", request.step.c_str(),
                                    static_cast<long long>(job->last_step)));
  DetailRequest wanted{.job_id = job->job_id, .attempt = job->attempt, .from_step = *step, .to_step = *step};
  if (const std::string ranks = request.http.parameter("ranks"); !ranks.empty()) {
    Result<std::vector<int32_t>> list = ranks_from_text(ranks, kDetailRanksMax);
    if (!list.ok()) return error_answer(400, "ranks: " + list.error());
    wanted.ranks = std::move(*list);
    std::sort(wanted.ranks.begin(), wanted.ranks.end());
    wanted.ranks.erase(std::unique(wanted.ranks.begin(), wanted.ranks.end()), wanted.ranks.end());
  }
  const DetailAsked asked = context.ask_detail(*job, wanted);
  if (asked.hosts == 0 && asked.ranks_refused > 0) {
    HttpResponse later = error_answer(429, "these hosts are asked for too much already; try again in a minute");
    later.headers.emplace_back("retry-after", "60");
    return later;
  }
  JsonWriter json;
  json.begin_object()
      .field("job_id", job->job_id)
      .field("attempt", job->attempt)
      .field("step", *step)
      .field("trace_id", to_hex(step_trace_id(job->job_id, job->attempt, *step)))
      .field("hosts_asked", asked.hosts)
      .field("ranks_asked", asked.ranks)
      .field("ranks_refused", asked.ranks_refused)
      .field("ranks_unknown", asked.ranks_unknown)
      .end_object();
  HttpResponse answer = json_answer(json);
  answer.status = 202;  // what the agents still have arrives within seconds
  return answer;
}

}  // namespace lockstep
