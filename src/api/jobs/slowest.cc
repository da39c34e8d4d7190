// GET /api/jobs/{job}/slowest: the ranks with most own time beyond their peers over a window of steps.
#include <algorithm>
#include <cmath>

#include "analysis/step/comm_roles.h"
#include "analysis/step/slowest_ranks.h"
#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"
#include "api/jobs/step_window.h"
#include "base/text.h"

namespace lockstep {

HttpResponse get_slowest(const ApiContext& context, const ApiRequest& request) {
  const std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  Result<StepRange> range = step_range(request.http, job->last_step, 50);
  if (!range.ok()) return error_answer(400, range.error());
  range->from = std::max(range->from, range->to - steps_within(*job, 1'000'000, kWordRowsMax) + 1);
  const Result<int64_t> limit = int_parameter(request.http, "limit", 20, 1, 4096);
  if (!limit.ok()) return error_answer(400, limit.error());

  const SlowestRanks slowest = slowest_ranks(context.steps, job->job_id, range->from, range->to);
  const CommRoles roles = comm_roles(context.steps, *job);
  const size_t shown = std::min(slowest.ranks.size(), static_cast<size_t>(*limit));
  JsonWriter json;
  json.begin_object()
      .field("job_id", job->job_id)
      .field("from_step", slowest.from_step.value())
      .field("to_step", slowest.to_step.value())
      .field("steps", slowest.steps);
  write_number(json, "step_ms", slowest.steps > 0 ? slowest.step_ns / 1e6 : std::nan(""));
  json.key("ranks").begin_array();
  for (size_t i = 0; i < shown; ++i) {
    const SlowRank& rank = slowest.ranks[i];
    const double none = std::nan("");
    json.begin_object()
        .field("rank", rank.rank.value())
        .field("host", rank.host)
        .field("steps", rank.steps)
        .field("unknown", rank.unknown);
    write_number(json, "own_ms", rank.steps > 0 ? rank.own_ns / 1e6 : none);
    write_number(json, "excess_ms", rank.steps > 0 ? rank.excess_ns / 1e6 : none);
    write_number(json, "worst_excess_ms", rank.steps > 0 ? rank.worst_excess_ns / 1e6 : none);
    json.field("worst_step", rank.worst_step.value()).field("last", rank.last).field("meetings", rank.meetings);
    write_number(json, "made_wait_ms", rank.steps > 0 ? rank.made_wait_ns / 1e6 : none);
    const CommRole* role = rank.last > 0 ? roles.find(rank.last_comm_id) : nullptr;
    json.key("last_in");
    role != nullptr ? json.string(role->label()) : json.null();
    json.end_object();
  }
  return list_answer(json, slowest.ranks.size(), shown);
}

}  // namespace lockstep
