// Decoding, the hot part of ingest, with libprotobuf's DynamicMessage as the peer in the same run. The logs request is
// what an agent sends: 100 train.step events, each with 4 communicators and 4 flows. The metrics request is one scrape
// of 8 GPUs: 60 gauges and counters each, two attributes a point.
#include <benchmark/benchmark.h>

#include "wire/otlp.h"
#include "wire/otlp_oracle.h"
#include "wire/test_batches.h"

namespace lockstep {
namespace {

Batch steps_batch() {
  Batch batch;
  batch.groups.resize(1);
  batch.groups[0].resource = to_resource({"llama-70b", 0, 5_rank, 64, 5, "node-17", "GPU-6cbdbcb1"});
  batch.groups[0].scope_name = "lockstep-agent";
  for (StepNumber step = 0_step; step < 100_step; ++step)
    batch.groups[0].logs.push_back(to_record(test::step_summary(step)));
  return batch;
}

Batch gpus_batch() {
  Batch batch;
  batch.signal = Signal::kMetrics;
  batch.groups.resize(1);
  batch.groups[0].resource = {{"host.name", "node-17"}};
  for (int metric = 0; metric < 60; ++metric) {
    for (int gpu = 0; gpu < 8; ++gpu) {
      MetricPoint& point = batch.groups[0].points.emplace_back();
      point.name = "lockstep.gpu.metric_" + std::to_string(metric);
      point.unit = "W";
      point.kind = metric % 2 == 0 ? MetricKind::kGauge : MetricKind::kSum;
      point.attributes = {{"gpu_uuid", "GPU-6cbdbcb1-" + std::to_string(gpu)}, {"host", "node-17"}};
      point.time_unix_ns = test::kTime;
      point.value = gpu * 1.5 + metric;
    }
  }
  return batch;
}

void decode(benchmark::State& state, const Batch& batch) {
  std::string bytes = otlp::encode(batch);
  // Fast and wrong fails.
  Result<Batch> check = otlp::decode(batch.signal, bytes);
  if (!check.ok() || *check != batch) return state.SkipWithError("decoded something else");
  for (auto _ : state) benchmark::DoNotOptimize(otlp::decode(batch.signal, bytes));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes.size()));
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * batch.record_count()));
}

void decode_by_libprotobuf(benchmark::State& state, const Batch& batch) {
  std::string bytes = otlp::encode(batch);
  otlp::Oracle oracle;
  if (oracle.parse(batch.signal, bytes) == nullptr) return state.SkipWithError("libprotobuf refuses the request");
  for (auto _ : state) benchmark::DoNotOptimize(oracle.parse(batch.signal, bytes));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes.size()));
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * batch.record_count()));
}

void encode(benchmark::State& state, const Batch& batch) {
  size_t bytes = otlp::encode(batch).size();
  for (auto _ : state) benchmark::DoNotOptimize(otlp::encode(batch));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes));
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * batch.record_count()));
}

BENCHMARK_CAPTURE(decode, 100_steps, steps_batch());
BENCHMARK_CAPTURE(decode_by_libprotobuf, 100_steps, steps_batch());
BENCHMARK_CAPTURE(encode, 100_steps, steps_batch());
BENCHMARK_CAPTURE(decode, 480_gpu_points, gpus_batch());
BENCHMARK_CAPTURE(decode_by_libprotobuf, 480_gpu_points, gpus_batch());
BENCHMARK_CAPTURE(encode, 480_gpu_points, gpus_batch());

}  // namespace
}  // namespace lockstep
