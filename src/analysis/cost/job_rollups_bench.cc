// What a rank's step costs the job series, folding included, in a job of 98,304 ranks.
#include <benchmark/benchmark.h>

#include "analysis/cost/job_rollups.h"
#include "store/store_counters.h"
#include "store/testing/memory_metric_reader.h"

namespace lockstep {
namespace {

void step_of_a_rank(benchmark::State& state) {
  Counters counters{kStoreCounters};
  const MemoryMetricReader nothing;
  JobRollups rollups([](auto, auto, const auto&) { return Result<PushOutcome>(PushOutcome{}); }, nothing, counters, 0);
  const auto ranks = static_cast<int32_t>(state.range(0));
  Identity identity{"llama-70b", 0, 0_rank, ranks, 0, "node-0", "GPU-0"};
  StepSummary summary;
  summary.start_unix_ns = 1'800'000'000'000'000'000;
  summary.duration_ns = 1'000'000'000;
  summary.split_known = true;
  summary.scalars = {{"flops", 4e14}, {"loss", 2.0}, {"peak_flops", 1e15}, {"tokens", 8192}};
  for (auto _ : state) {
    summary.self_ns = 800'000'000 + (identity.rank.value() * 7919) % 10'000'000;
    summary.duration_ns = 1'000'000'000 + (identity.rank.value() * 104'729) % 1'000'000;
    rollups.on_step(identity, summary, 0);
    if (++identity.rank < Rank{ranks}) continue;
    identity.rank = 0_rank;
    ++summary.step;
    summary.start_unix_ns += 1'001'000'000;
    rollups.write();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(step_of_a_rank)->Arg(1024)->Arg(98'304);

}  // namespace
}  // namespace lockstep
