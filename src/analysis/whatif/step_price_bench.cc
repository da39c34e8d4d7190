// What pricing a step of a very large job costs. Shape: 100,000 ranks as 1,562 data-parallel ranks of 8 stages x 8
// tensor-parallel ranks, each in four communicators; ten suspects.
#include <benchmark/benchmark.h>

#include "analysis/whatif/step_price.h"

namespace lockstep {
namespace {

constexpr int kTensor = 8, kStages = 8, kRanks = 100'000 / (kTensor * kStages) * (kTensor * kStages);

std::vector<StepSummary> large_step() {
  std::vector<StepSummary> rows(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    StepSummary& row = rows[static_cast<size_t>(rank)];
    const int tensor = rank % kTensor, stage = rank / kTensor % kStages, data = rank / (kTensor * kStages);
    row.duration_ns = 5'000'000'000;
    row.self_ns = 3'000'000'000 + static_cast<int64_t>(static_cast<uint32_t>(rank) * 2654435761u % 10'000'000);
    if (rank % 10'007 == 5) row.self_ns += 600'000'000;
    row.comm_ns = row.duration_ns - row.self_ns;
    const auto add = [&](uint64_t id, int size, bool p2p, int64_t gpu_ns) {
      row.comms.push_back({.comm_id = id, .size = size, .p2p = p2p, .count = 16, .bytes = 1 << 20, .gpu_ns = gpu_ns});
    };
    add(1'000'000u + static_cast<uint64_t>(rank / kTensor), kTensor, false, 400'000'000);
    add(2'000'000u + static_cast<uint64_t>(data * kTensor + tensor), kStages, true, 700'000'000);
    add(3'000'000u + static_cast<uint64_t>(stage * kTensor + tensor), kRanks / (kTensor * kStages), false, 300'000'000);
    add(4'000'000u, kRanks, false, row.comm_ns - 1'400'000'000);
  }
  return rows;
}

void BM_StepGraph(benchmark::State& state) {
  const std::vector<StepSummary> summaries = large_step();
  std::vector<SummarizedRank> rows;
  for (int rank = 0; rank < kRanks; ++rank)
    rows.push_back({.rank = rank, .summary = &summaries[static_cast<size_t>(rank)]});
  for (auto _ : state) {
    const StepGraph graph = step_graph_of(rows);
    if (graph.chains != kRanks / kStages) state.SkipWithError("chains are wrong");
    benchmark::DoNotOptimize(graph.step_ns);
  }
  state.counters["ranks"] = kRanks;
}
BENCHMARK(BM_StepGraph)->Unit(benchmark::kMillisecond);

void BM_PriceTenSuspects(benchmark::State& state) {
  const std::vector<StepSummary> summaries = large_step();
  std::vector<SummarizedRank> rows;
  for (int rank = 0; rank < kRanks; ++rank)
    rows.push_back({.rank = rank, .summary = &summaries[static_cast<size_t>(rank)]});
  const StepGraph graph = step_graph_of(rows);
  std::vector<Suspect> suspects;
  for (int rank = 5; rank < kRanks; rank += 10'007) suspects.push_back({.ranks = {rank}});
  for (auto _ : state) {
    const StepPrice found = price(graph, suspects, 4'400'000'000);
    if (found.joint_ns < 500'000'000) state.SkipWithError("the slow ranks are not found");
    benchmark::DoNotOptimize(found.joint_ns);
  }
  state.counters["ranks"] = kRanks;
}
BENCHMARK(BM_PriceTenSuspects)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace lockstep
