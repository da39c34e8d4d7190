// GET /api/jobs/{job}/clocks: how far each rank's clock is off, how it drifts, and how well that is known.
#include <algorithm>
#include <cmath>

#include "analysis/clocks/clock_alignment.h"
#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"
#include "model/rank_text.h"

namespace lockstep {

HttpResponse get_clocks(const ApiContext& context, const ApiRequest& request) {
  const std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  const Result<int64_t> step = int_parameter(request.http, "step", job->last_step.value(), 0, INT64_MAX);
  if (!step.ok()) return error_answer(400, step.error());
  const Result<int64_t> limit = int_parameter(request.http, "limit", 4096, 1, 131'072);
  if (!limit.ok()) return error_answer(400, limit.error());

  const std::shared_ptr<const StepTrace> trace =
      context.traces.get(job->job_id, job->attempt, StepNumber{std::max<int64_t>(0, *step)});
  std::vector<RankClock> clocks = trace->clocks.clocks();
  size_t known = 0, groups = 0;
  std::vector<double> errors;
  for (const RankClock& clock : clocks) {
    known += clock.known;
    groups = std::max(groups, static_cast<size_t>(clock.group + 1));
    if (clock.known) errors.push_back(clock.error_ns);
  }
  std::sort(errors.begin(), errors.end());
  std::vector<Rank> unknown;
  for (const RankInfo& rank : job->ranks) {
    const RankClock* clock = trace->clocks.clock(rank.identity.rank);
    if (clock == nullptr || !clock->known) unknown.push_back(rank.identity.rank);
  }
  // Worst known first: these are what an order of events fails on.
  std::stable_sort(clocks.begin(), clocks.end(),
                   [](const RankClock& a, const RankClock& b) { return a.error_ns > b.error_ns; });
  const size_t shown = std::min(clocks.size(), static_cast<size_t>(*limit));

  JsonWriter json;
  json.begin_object()
      .field("job_id", job->job_id)
      .field("step", *step)
      .field("reference_unix_ns", trace->clocks.reference_unix_ns())
      .field("known", static_cast<uint64_t>(known))
      .field("groups", static_cast<uint64_t>(groups))
      .field("ranks_unknown", ranks_text(unknown));
  write_number(json, "error_us", trace->clocks.error_ns() / 1e3);
  write_number(json, "error_us_p50", errors.empty() ? std::nan("") : errors[errors.size() / 2] / 1e3);
  json.key("clocks").begin_array();
  for (size_t i = 0; i < shown; ++i) {
    const RankClock& clock = clocks[i];
    json.begin_object().field("rank", clock.rank.value()).field("known", clock.known);
    json.key("group");
    clock.group >= 0 ? json.number(clock.group) : json.null();
    const double none = std::nan("");
    write_number(json, "offset_us", clock.known ? clock.offset_ns / 1e3 : none);
    write_number(json, "drift_ppm", clock.known ? clock.drift_ppm : none);
    write_number(json, "error_us", clock.known ? clock.error_ns / 1e3 : none);
    json.field("barriers", static_cast<uint64_t>(clock.barriers)).end_object();
  }
  return list_answer(json, clocks.size(), shown);
}

}  // namespace lockstep
