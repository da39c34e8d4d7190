// What a point costs the book: one that nobody listens to, and those of a GPU as its agent sends them. And an answer of
// explain() in a fleet of 1,024 GPUs.
#include <benchmark/benchmark.h>

#include <cmath>

#include "diagnosis/signals/explain.h"
#include "diagnosis/signals/testing/made_up_fleet.h"

namespace lockstep {
namespace {

using testing::kBegin;
using testing::kSecond;
using testing::MadeUpFleet;

std::vector<MetricPoint> points_of(std::span<const testing::Quantity> quantities, const std::string& gpu) {
  std::vector<MetricPoint> points;
  for (const testing::Quantity& quantity : quantities) {
    MetricPoint point;
    std::string spec = quantity.spec;
    size_t brace = spec.find('{');
    point.name = spec.substr(0, brace);
    point.kind = quantity.counter ? MetricKind::kSum : MetricKind::kGauge;
    point.monotonic = quantity.counter;
    point.value = quantity.healthy;
    point.attributes.push_back({"gpu_uuid", gpu});
    if (brace != std::string::npos) {
      std::string inside = spec.substr(brace + 1, spec.size() - brace - 2);
      for (std::string_view part : split(inside, ',')) {
        size_t equals = part.find('=');
        point.attributes.push_back({std::string(part.substr(0, equals)), std::string(part.substr(equals + 1))});
      }
    }
    points.push_back(std::move(point));
  }
  return points;
}

void points(benchmark::State& state, bool wanted) {
  constexpr int kHosts = 200;
  SignalStore book;
  std::vector<std::vector<MetricPoint>> batches;
  std::vector<Attributes> resources;
  for (int host = 0; host < kHosts; ++host) {
    for (int gpu = 0; gpu < 8; ++gpu) {
      batches.push_back(points_of(testing::kGpuQuantities, MadeUpFleet::gpu_name(host, gpu)));
      if (!wanted) {
        for (MetricPoint& point : batches.back()) point.name += "_of_somebody_else";
      }
      resources.push_back({{"service.name", "lockstep-agent"}, {"host.name", MadeUpFleet::host_name(host)}});
    }
  }
  int64_t now = kBegin;
  int64_t reported = 0;
  size_t at = 0;
  for (auto _ : state) {
    if (at == 0) now += 5 * kSecond;
    for (MetricPoint& point : batches[at]) {
      point.time_unix_ns = now;
      if (point.monotonic) point.value += 0.001 * point.value;
      if (!point.monotonic && point.value != std::floor(point.value))
        point.value *= now / kSecond % 2 == 0 ? 1.01 : 0.99;
    }
    book.on_metrics(resources[at], batches[at], now);
    reported += static_cast<int64_t>(batches[at].size());
    at = (at + 1) % batches.size();
  }
  state.SetItemsProcessed(reported);
}

void BM_PointsNobodyListensTo(benchmark::State& state) {
  points(state, false);
}
BENCHMARK(BM_PointsNobodyListensTo);

void BM_PointsOfAGpu(benchmark::State& state) {
  points(state, true);
}
BENCHMARK(BM_PointsOfAGpu);

void BM_Explain(benchmark::State& state) {
  MadeUpFleet fleet(128);
  fleet.run(60);
  fleet.set(3, 3, "lockstep_gpu_throttle_seconds_total{reason=hw_thermal}", 0.6);
  int64_t since = fleet.now();
  fleet.run(20);
  Question question = fleet.question({27_rank}, kGpuBehind, since);
  CausePriors priors;
  for (auto _ : state) {
    Explanation reported = explain(fleet.book, priors, question);
    if (reported.cause != Cause::kThrottleThermal) state.SkipWithError("wrong cause");
  }
}
BENCHMARK(BM_Explain)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lockstep
