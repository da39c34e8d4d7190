// GET /api/jobs/{job}/ranks: one row per rank over a window of steps, worst first.
#include <algorithm>
#include <limits>
#include <numeric>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"
#include "api/jobs/step_window.h"

namespace lockstep {
namespace {

struct Means {
  int64_t steps = 0;
  int64_t steps_known = 0;  // of these steps its GPU times are known
  double duration_ms = 0;
  double self_ms = 0;
  double comm_ms = 0;
  double input_ms = 0;
  double excess_ms = 0;
  int64_t steps_split = 0;  // of these steps the agent could tell the parts
  RankParts parts;          // sums over them
  double of(double sum) const { return mean(sum, steps); }
  double of_known(double sum) const { return mean(sum, steps_known); }
  double of_split(double sum) const { return mean(sum, steps_split); }

  void add(const StepCell& cell) {
    ++steps;
    duration_ms += cell.duration_ms;
    input_ms += cell.input_ms;
    if (!cell.gpu_time_known) return;
    ++steps_known;
    self_ms += cell.self_ms;
    comm_ms += cell.comm_ms;
    excess_ms += cell.excess_ms;
    if (!cell.parts.reported) return;
    ++steps_split;
    parts.compute_ms += cell.parts.compute_ms;
    parts.communication_ms += cell.parts.communication_ms;
    parts.host_ms += cell.parts.host_ms;
    parts.checkpoint_ms += cell.parts.checkpoint_ms;
    parts.idle_ms += cell.parts.idle_ms;
  }

 private:
  static double mean(double sum, int64_t count) {
    return count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
  }
};

// Worst first: ranks that told nothing in the window lead, because nobody knows how they do; then by excess.
std::vector<size_t> worst_first(const std::vector<Means>& means) {
  std::vector<size_t> order(means.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if ((means[a].steps_known == 0) != (means[b].steps_known == 0)) return means[a].steps_known == 0;
    return means[a].steps_known > 0 && means[a].of_known(means[a].excess_ms) > means[b].of_known(means[b].excess_ms);
  });
  return order;
}

void write_rank(JsonWriter& json, const RankInfo& rank, const Means& mean, int64_t now_ns) {
  json.begin_object()
      .field("rank", rank.identity.rank.value())
      .field("host", rank.identity.host)
      .field("local_rank", rank.identity.local_rank)
      .field("gpu_uuid", rank.identity.gpu_uuid)
      .field("steps", mean.steps);
  write_number(json, "step_ms", mean.of(mean.duration_ms));
  write_number(json, "self_ms", mean.of_known(mean.self_ms));
  write_number(json, "excess_ms", mean.of_known(mean.excess_ms));
  write_number(json, "comm_ms", mean.of_known(mean.comm_ms));
  write_number(json, "input_ms", mean.of(mean.input_ms));
  write_number(json, "compute_ms", mean.of_split(mean.parts.compute_ms));
  write_number(json, "exposed_ms", mean.of_split(mean.parts.communication_ms));
  write_number(json, "host_ms", mean.of_split(mean.parts.host_ms));
  write_number(json, "checkpoint_ms", mean.of_split(mean.parts.checkpoint_ms));
  write_number(json, "idle_ms", mean.of_split(mean.parts.idle_ms));
  json.field("records_lost", rank.records_lost)
      .field("last_seen_unix_ns", rank.last_seen_unix_ns)
      .field("status", rank_state(rank, now_ns))
      .end_object();
}

}  // namespace

HttpResponse get_ranks(const ApiContext& context, const ApiRequest& request) {
  std::optional<JobInfo> job = find_job(context, request.job);
  if (!job) return unknown_job(context, request.job);
  Result<int64_t> last = int_parameter(request.http, "last", 50, 1, 500);
  if (!last.ok()) return error_answer(400, last.error());
  Result<int64_t> limit = int_parameter(request.http, "limit", 4096, 1, 100'000);
  if (!limit.ok()) return error_answer(400, limit.error());

  StepNumber from_step = std::max(0_step, job->last_step - steps_within(*job, *last, kPictureRowsMax) + 1);
  std::vector<Means> means(job->ranks.size());
  visit_window(context.steps, *job, from_step, job->last_step, [&](const StepParts&, std::span<const StepCell> cells) {
    for (const StepCell& cell : cells) means[cell.rank_index].add(cell);
  });
  const std::vector<size_t> order = worst_first(means);
  size_t shown = std::min(order.size(), static_cast<size_t>(*limit));
  int64_t now = context.clock.unix_ns();

  JsonWriter json;
  json.begin_object()
      .field("job_id", job->job_id)
      .field("from_step", from_step.value())
      .field("to_step", job->last_step.value())
      .key("ranks")
      .begin_array();
  for (size_t i = 0; i < shown; ++i) write_rank(json, job->ranks[order[i]], means[order[i]], now);
  return list_answer(json, order.size(), shown);
}

}  // namespace lockstep
