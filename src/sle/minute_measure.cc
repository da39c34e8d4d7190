#include "sle/minute_measure.h"

#include <algorithm>
#include <cmath>

#include "analysis/cost/step_flops.h"

namespace lockstep::sle {

void add_step(RankMinute& to, const StepSummary& summary, int64_t from_unix_ns, int64_t to_unix_ns, bool is_repeated) {
  const int64_t end_unix_ns = summary.start_unix_ns + summary.duration_ns;
  const int64_t here_ns = std::min(end_unix_ns, to_unix_ns) - std::max(summary.start_unix_ns, from_unix_ns);
  if (here_ns <= 0) return;
  const auto here_s = static_cast<float>(static_cast<double>(here_ns) / 1e9);
  const double part = static_cast<double>(here_ns) / static_cast<double>(summary.duration_ns);
  const auto seconds = [part](int64_t ns) { return static_cast<float>(part * static_cast<double>(ns) / 1e9); };
  to.flags |= RankMinute::kStep;
  to.covered_s += here_s;
  to.step_s2 += here_s * static_cast<float>(static_cast<double>(summary.duration_ns) / 1e9);
  if (summary.records_lost > 0) to.flags |= RankMinute::kLost;
  if (summary.gpu_time_known() && summary.self_ns > 0) {
    to.own_s += seconds(summary.self_ns);
    to.own_of_s += here_s;
  }
  const int64_t phases_input = summary.phase_ns[static_cast<size_t>(Phase::kInput)];
  const int64_t input_ns = summary.split_known ? summary.split_ns[static_cast<size_t>(TimePart::kInput)] : phases_input;
  if (summary.split_known || phases_input > 0) to.flags |= RankMinute::kInputKnown;
  to.input_s += seconds(input_ns);
  if (is_repeated) to.repeated_s += here_s;
  to.reported_s += seconds(summary.phase_ns[static_cast<size_t>(Phase::kCheckpoint)] +
                           summary.phase_ns[static_cast<size_t>(Phase::kEval)]);
  if (const double flops = step_flops(summary).flops; flops > 0) {
    to.flops += static_cast<float>(part * flops);
    to.flops_of_s += here_s;
  }
  for (const FlowStep& flow : summary.flows) {
    if (!flow.send || flow.wire_ns <= 0) continue;
    to.wire_s += seconds(flow.wire_ns);
    to.wire_bytes += static_cast<float>(part * static_cast<double>(flow.bytes));
  }
  for (const StepScalar& scalar : summary.scalars) {
    if (scalar.name != "loss" && scalar.name != "grad_norm") continue;
    to.flags |= RankMinute::kLoss;
    if (!std::isfinite(scalar.value)) to.flags |= RankMinute::kLossBad;
  }
}

}  // namespace lockstep::sle
