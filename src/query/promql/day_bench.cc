// What questions about a whole day cost where the day lies in blocks (the reference load, sealed every two hours): by
// the heads of chunks where they suffice, and by reading every sample.
//
//   LOCKSTEP_BENCH_NODES=4     nodes of 784 series, 8,640 samples each
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "query/promql/query.h"
#include "query/promql/testing/samples_only.h"
#include "store/metrics/engine_world.h"
#include "store/metrics/reference_load.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep::promql {
namespace {

using metrics::ReferenceLoad;

constexpr size_t kTicks = 8'640;

struct Day {
  testing::FakeClock clock{metrics::kStartNs};
  testing::TemporaryFolder folder;
  Counters counters{kStoreCounters};
  std::unique_ptr<MetricEngine> engine;
  ReferenceLoad load;
  int64_t end_ms = 0;

  Day() {
    const char* text = std::getenv("LOCKSTEP_BENCH_NODES");
    const size_t nodes = text == nullptr ? 4 : static_cast<size_t>(std::atoll(text));
    MetricEngineOptions options;
    options.folder = folder.path();
    options.background = false;
    Result<std::unique_ptr<MetricEngine>> opened = MetricEngine::open(options, clock, counters);
    if (!opened.ok()) std::abort();
    engine = std::move(*opened);
    std::vector<double> states(nodes * ReferenceLoad::kPerNode);
    for (size_t i = 0; i < states.size(); ++i) states[i] = load.start(i % ReferenceLoad::kPerGpu, i);
    std::vector<double> values(ReferenceLoad::kPerNode);
    std::vector<PushedSeries> push(ReferenceLoad::kPerNode);
    std::vector<std::string> names(states.size());
    for (size_t i = 0; i < names.size(); ++i) names[i] = std::to_string(i);
    for (size_t tick = 0; tick < kTicks; ++tick) {
      for (uint64_t node = 0; node < nodes; ++node) {
        const int64_t time_ms = load.time_ms(node, tick);
        end_ms = std::max(end_ms, time_ms);
        clock.advance_to(end_ms * 1'000'000);
        for (size_t k = 0; k < ReferenceLoad::kPerNode; ++k) {
          const uint64_t id = node * ReferenceLoad::kPerNode + k;
          const size_t kind = k % ReferenceLoad::kPerGpu;
          states[id] = load.next(kind, id, tick, states[id]);
          values[k] = load.shown(kind, id, tick, states[id]);
          push[k] = {names[id], {&time_ms, 1}, {&values[k], 1}, {}, {}};
        }
        Result<PushOutcome> outcome = engine->push("node " + std::to_string(node), push, [&](size_t k) {
          return Result<Labels>(ReferenceLoad::labels(node, k));
        });
        if (!outcome.ok() || outcome->stored != ReferenceLoad::kPerNode) std::abort();
      }
      if ((tick + 1) % 720 == 0 && !engine->seal().ok()) std::abort();
    }
  }
};

void ask(benchmark::State& state, const char* query, int64_t step_ms) {
  static const Day day;
  const SamplesOnly samples(*day.engine);
  const MetricReader& reader = state.range(0) != 0 ? static_cast<const MetricReader&>(*day.engine) : samples;
  const QueryTimes times{step_ms == 0 ? day.end_ms : day.end_ms - 20 * 3'600'000, day.end_ms, step_ms};
  uint64_t read = 0;
  for (auto _ : state) {
    const QueryResult result = run_query(query, reader, times, {});
    if (!result.ok() || result.series.empty()) std::abort();
    read = result.samples_read;
  }
  state.counters["read"] = static_cast<double>(read);
}
void BM_MaxPowerOfADay(benchmark::State& state) {
  ask(state, "max by (host) (max_over_time(lockstep_reference_metric_2[24h]))", 0);
}
void BM_MeanUtilisationOfADay(benchmark::State& state) {
  ask(state, "avg by (host) (avg_over_time(lockstep_reference_metric_5[24h]))", 0);
}
void BM_MeanPowerOfADay(benchmark::State& state) {
  ask(state, "avg by (host) (avg_over_time(lockstep_reference_metric_2[24h]))", 0);
}
void BM_RateOfLinksOverADay(benchmark::State& state) {
  ask(state, "sum by (host) (rate(lockstep_reference_metric_40[24h]))", 0);
}
void BM_RateOfLinksEveryHour(benchmark::State& state) {
  ask(state, "sum by (host) (rate(lockstep_reference_metric_40[4h]))", 3'600'000);
}
// 0: by reading every sample.
BENCHMARK(BM_MaxPowerOfADay)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_MeanUtilisationOfADay)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_MeanPowerOfADay)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_RateOfLinksOverADay)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_RateOfLinksEveryHour)->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lockstep::promql
