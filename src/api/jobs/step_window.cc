#include "api/jobs/step_window.h"

#include <algorithm>
#include <limits>

#include "base/wrapping.h"

namespace lockstep {
namespace {

// What a peer sends may be negative or absurd; an answer never is.
double milliseconds(int64_t ns) {
  return ns > 0 ? static_cast<double>(ns) / 1e6 : 0;
}

RankParts parts_of(const StepSummary& summary) {
  RankParts parts;
  if (summary.split_known) {
    auto part = [&](TimePart which) { return milliseconds(summary.split_ns[static_cast<size_t>(which)]); };
    parts.reported = true;
    parts.compute_ms = part(TimePart::kCompute);
    parts.communication_ms = part(TimePart::kCommunication);
    parts.input_ms = part(TimePart::kInput);
    parts.host_ms = part(TimePart::kHost);
    parts.checkpoint_ms = part(TimePart::kCheckpoint);
    parts.idle_ms = part(TimePart::kIdle);
    return parts;
  }
  parts.input_ms = milliseconds(summary.phase_ns[static_cast<size_t>(Phase::kInput)]);
  parts.checkpoint_ms = milliseconds(summary.phase_ns[static_cast<size_t>(Phase::kCheckpoint)]);
  parts.compute_ms = std::max(0.0, milliseconds(summary.self_ns) - parts.input_ms - parts.checkpoint_ms);
  parts.communication_ms = milliseconds(summary.comm_ns);
  parts.other_ms = std::max(0.0, milliseconds(summary.duration_ns) - parts.compute_ms - parts.communication_ms -
                                     parts.input_ms - parts.checkpoint_ms);
  return parts;
}

StepParts finish(StepNumber step, std::vector<StepCell>& cells, std::vector<double>& scratch) {
  scratch.clear();
  for (const StepCell& cell : cells)
    if (cell.gpu_time_known) scratch.push_back(cell.self_ms);
  const bool any_known = !scratch.empty();
  double count = static_cast<double>(any_known ? scratch.size() : cells.size());
  double self_median_ms = median_of(scratch);
  scratch.clear();
  auto counts = [&](const StepCell& cell) { return cell.gpu_time_known || !any_known; };
  double shortest_comm_ms = std::numeric_limits<double>::infinity();
  for (StepCell& cell : cells) {
    cell.excess_ms = cell.gpu_time_known ? cell.self_ms - self_median_ms : std::numeric_limits<double>::quiet_NaN();
    if (counts(cell)) shortest_comm_ms = std::min(shortest_comm_ms, cell.parts.communication_ms);
    scratch.push_back(cell.duration_ms);
  }
  StepParts parts;
  parts.step = step;
  parts.step_ms = median_of(scratch);
  for (const StepCell& cell : cells) {
    if (!counts(cell)) continue;
    parts.compute_ms += cell.parts.compute_ms / count;
    parts.waiting_ms += (cell.parts.communication_ms - shortest_comm_ms) / count;
    parts.input_ms += cell.parts.input_ms / count;
    parts.host_ms += cell.parts.host_ms / count;
    parts.checkpoint_ms += cell.parts.checkpoint_ms / count;
    parts.idle_ms += cell.parts.idle_ms / count;
    parts.other_ms += cell.parts.other_ms / count;
  }
  parts.communication_ms = shortest_comm_ms;
  return parts;
}

// The newest of these steps that a rank, or by_all every rank, had begun by then, by halving: steps are in the order of
// time.
StepNumber newest_begun(const StepStore& steps, const JobInfo& job, StepRange of, int64_t time_unix_ns, bool by_all) {
  int64_t low = of.from.value(), high = of.to.value();
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    std::optional<int64_t> start;
    steps.visit_steps(job.job_id, StepNumber{middle}, StepNumber{middle},
                      [&](const Identity&, const StepSummary& step) {
                        if (!start || (step.start_unix_ns > *start) == by_all) start = step.start_unix_ns;
                      });
    // One that is not there is older than what is kept.
    (!start || *start <= time_unix_ns) ? low = middle : high = middle - 1;
  }
  return StepNumber{low};
}

}  // namespace

StepRange steps_between(const StepStore& steps, const JobInfo& job, int64_t from_unix_ns, int64_t to_unix_ns,
                        int64_t most) {
  StepRange range{0_step, job.last_step};
  if (job.last_seen_unix_ns > to_unix_ns) range.to = newest_begun(steps, job, range, to_unix_ns, false);
  range.from = std::max(0_step, range.to - most + 1);
  // Who has begun this one has ended the one before.
  if (job.first_seen_unix_ns < from_unix_ns) range.from = newest_begun(steps, job, range, from_unix_ns, true);
  return range;
}

int64_t steps_within(const JobInfo& job, int64_t wanted, size_t rows_max) {
  constexpr int64_t kStepsMin = 3;
  const auto fit = static_cast<int64_t>(rows_max / std::max<size_t>(1, job.ranks.size()));
  return std::min(wanted, std::max(kStepsMin, fit));
}

void visit_window(const StepStore& steps, const JobInfo& job, StepNumber from_step, StepNumber to_step,
                  const std::function<void(const StepParts&, std::span<const StepCell>)>& visit) {
  std::vector<StepCell> cells;
  std::vector<double> scratch;
  StepNumber step;
  size_t rank_index = 0;
  auto flush = [&] {
    if (!cells.empty()) visit(finish(step, cells, scratch), cells);
    cells.clear();
    rank_index = 0;
  };
  steps.visit_steps(job.job_id, from_step, to_step, [&](const Identity& identity, const StepSummary& summary) {
    if (summary.step != step) flush();
    step = summary.step;
    while (rank_index < job.ranks.size() && job.ranks[rank_index].identity.rank < identity.rank)
      ++rank_index;  // rows come by rank
    if (rank_index == job.ranks.size() || job.ranks[rank_index].identity.rank != identity.rank) return;
    StepCell cell;
    cell.rank_index = rank_index;
    cell.gpu_time_known = summary.gpu_time_known();
    cell.end_unix_ns = plus(summary.start_unix_ns, summary.duration_ns);
    cell.duration_ms = milliseconds(summary.duration_ns);
    cell.self_ms = milliseconds(summary.self_ns);
    cell.comm_ms = milliseconds(summary.comm_ns);
    cell.input_ms = milliseconds(summary.phase_ns[static_cast<size_t>(Phase::kInput)]);
    cell.parts = parts_of(summary);
    cells.push_back(cell);
  });
  flush();
}

}  // namespace lockstep
