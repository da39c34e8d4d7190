// From the bytes of an OTLP metrics request to what the store is given and diagnosis hears, without either: one report
// of 8 GPUs, 60 gauges and counters each, two attributes a point. Of the metrics diagnosis hears a third.
#include <benchmark/benchmark.h>

#include "ingest/counters_table.h"
#include "ingest/otlp/metric_mapping.h"
#include "wire/otlp.h"

namespace lockstep {
namespace {

class CountingWriter final : public MetricWriter {
 public:
  Result<PushOutcome> push(std::string_view, std::span<const PushedSeries> series,
                           const std::function<Result<Labels>(size_t k)>&) override {
    samples += series.size();
    PushOutcome outcome;
    outcome.stored = series.size();
    return outcome;
  }
  void set_metadata(std::string_view, std::string_view, std::string_view, std::string_view) override {}
  uint64_t samples = 0;
};

std::string report() {
  Batch batch;
  batch.signal = Signal::kMetrics;
  batch.groups.resize(1);
  batch.groups[0].resource = {{"service.name", "lockstep-agent"}, {"host.name", "node-17"}};
  for (int metric = 0; metric < 60; ++metric) {
    for (int gpu = 0; gpu < 8; ++gpu) {
      MetricPoint& point = batch.groups[0].points.emplace_back();
      point.name = (metric % 3 == 0 ? "heard." : "lockstep.gpu.metric_") + std::to_string(metric);
      point.unit = "W";
      point.kind = metric % 2 == 0 ? MetricKind::kGauge : MetricKind::kSum;
      point.attributes = {{"gpu_uuid", "GPU-6cbdbcb1-" + std::to_string(gpu)}, {"host", "node-17"}};
      point.time_unix_ns = 1'700'000'000'000'000'000;
      point.value = gpu * 1.5 + metric;
    }
  }
  return otlp::encode(batch);
}

void bytes_to_samples_and_points(benchmark::State& state) {
  const std::string bytes = report();
  SystemClock clock;
  Counters counters(kServerCounters);
  CountingWriter writer;
  MetricIntake intake(writer, clock, counters);
  MetricMapping mapping(intake, clock);
  for (auto _ : state) {
    const Result<otlp::MetricsRequest> request = otlp::decode_metrics(bytes);
    if (!request.ok() || !mapping.push("otlp_samples", *request, 1).ok()) return state.SkipWithError("not taken");
    benchmark::DoNotOptimize(
        otlp::to_batch(*request, [](std::string_view name) { return name.starts_with("heard."); }));
  }
  if (writer.samples != state.iterations() * 480) state.SkipWithError("points are missing");
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * 480));
}

BENCHMARK(bytes_to_samples_and_points);

}  // namespace
}  // namespace lockstep
