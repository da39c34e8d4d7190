#include "analysis/whatif/step_price.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "analysis/whatif/pipeline_testing.h"
#include "analysis/whatif/pipeline_trace.h"
#include "analysis/whatif/replay.h"

namespace lockstep {
namespace {

using testing::PipelineJob;

StepGraph graph_of(const std::vector<StepSummary>& summaries) {
  std::vector<SummarizedRank> rows;
  for (size_t rank = 0; rank < summaries.size(); ++rank)
    rows.push_back({.rank = static_cast<int32_t>(rank), .summary = &summaries[rank]});
  return step_graph_of(rows);
}

// A data-parallel job: own time, then one sum over all of `transfer`.
std::vector<StepSummary> data_parallel(const std::vector<int64_t>& own_ns, int64_t transfer_ns) {
  const int64_t last = *std::max_element(own_ns.begin(), own_ns.end());
  std::vector<StepSummary> rows;
  for (size_t rank = 0; rank < own_ns.size(); ++rank) {
    StepSummary row;
    row.duration_ns = last + transfer_ns;
    row.self_ns = own_ns[rank];
    row.comm_ns = row.duration_ns - row.self_ns;
    row.comms.push_back({.comm_id = 7, .size = static_cast<int32_t>(own_ns.size()), .count = 1, .gpu_ns = row.comm_ns});
    rows.push_back(row);
  }
  return rows;
}

TEST(StepPrice, ASlowRankCostsWhatItIsBehindItsPeers) {
  const std::vector<StepSummary> rows = data_parallel({100, 100, 160, 100}, 20);
  const StepGraph graph = graph_of(rows);
  EXPECT_EQ(graph.step_ns, 180);
  EXPECT_EQ(graph.groups[0].transfer_ns, 20);
  EXPECT_EQ(graph.busy_ns, (std::vector<int64_t>{120, 120, 180, 120}));
  const std::vector<Suspect> suspects = {{.ranks = {2}}};
  const StepPrice found = price(graph, suspects, 120);
  EXPECT_EQ(found.recovered_ns, std::vector<int64_t>{60});
  EXPECT_EQ(found.joint_ns, 60);
  EXPECT_DOUBLE_EQ(found.shares[0], 1);
  EXPECT_DOUBLE_EQ(found.unexplained, 0);
}

TEST(StepPrice, ABehindRankHidesAnotherAndBothAreNeededForTheWhole) {
  const StepGraph graph = graph_of(data_parallel({100, 150, 160, 100, 100}, 20));
  const std::vector<Suspect> suspects = {{.ranks = {1}}, {.ranks = {2}}, {.ranks = {4}}};
  const StepPrice found = price(graph, suspects, 120);
  EXPECT_EQ(found.recovered_ns, (std::vector<int64_t>{0, 10, 0}));
  EXPECT_EQ(found.joint_ns, 60);
  double sum = found.unexplained;
  for (const double share : found.shares) sum += share;
  EXPECT_DOUBLE_EQ(sum, 1);
  EXPECT_EQ(found.shares[2], 0);  // as fast as its peers
}

TEST(StepPrice, TwoEquallySlowRanksShareWhatNeitherCostsAlone) {
  const StepGraph graph = graph_of(data_parallel({100, 160, 160, 100, 100}, 20));
  const std::vector<Suspect> suspects = {{.ranks = {1}}, {.ranks = {2}}};
  const StepPrice found = price(graph, suspects, 120);
  EXPECT_EQ(found.recovered_ns, (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(found.joint_ns, 60);
  EXPECT_DOUBLE_EQ(found.shares[0], 0.5);
  EXPECT_DOUBLE_EQ(found.shares[1], 0.5);
}

TEST(StepPrice, WhatNoSuspectExplainsIsSaid) {
  const StepGraph graph = graph_of(data_parallel({100, 100, 130, 100}, 60));
  const std::vector<Suspect> suspects = {{.ranks = {2}}};
  const StepPrice found = price(graph, suspects, 120);  // 190 now: 30 are the rank's, 40 the transfer's
  EXPECT_NEAR(found.shares[0], 30.0 / 70, 1e-9);
  EXPECT_NEAR(found.unexplained, 40.0 / 70, 1e-9);
  const StepPrice nothing_lost = price(graph, suspects, 200);
  EXPECT_EQ(nothing_lost.shares[0], 0);
  EXPECT_EQ(nothing_lost.unexplained, 0);
}

TEST(StepPrice, ASlowTransferIsPricedAgainstGroupsThatDoTheSame) {
  // Four groups of two; the last takes 50 where others take 20. Everybody then meets once more.
  std::vector<StepSummary> rows;
  for (int rank = 0; rank < 8; ++rank) {
    StepSummary row;
    const int64_t transfer = rank / 2 == 3 ? 50 : 20;
    row.duration_ns = 160;
    row.self_ns = 100;
    row.comm_ns = 60;
    row.comms.push_back({.comm_id = 10u + static_cast<uint64_t>(rank / 2), .size = 2, .count = 1, .gpu_ns = transfer});
    row.comms.push_back({.comm_id = 99, .size = 8, .count = 1, .gpu_ns = 60 - transfer});
    rows.push_back(row);
  }
  const StepGraph graph = graph_of(rows);
  const std::vector<Suspect> suspects = {{.kind = Suspect::Kind::kTransfer, .comm_id = 13}};
  const StepPrice found = price(graph, suspects, 130);
  EXPECT_EQ(found.recovered_ns, std::vector<int64_t>{30});
  EXPECT_DOUBLE_EQ(found.shares[0], 1);
  const std::vector<Suspect> told = {{.kind = Suspect::Kind::kTransfer, .comm_id = 13, .usual_ns = 40}};
  EXPECT_EQ(price(graph, told, 130).recovered_ns, std::vector<int64_t>{10});
  const std::vector<Suspect> absent = {{.kind = Suspect::Kind::kTransfer, .comm_id = 12345}, {.ranks = {77}}};
  EXPECT_EQ(price(graph, absent, 130).joint_ns, 0);
}

TEST(StepPrice, RanksWithoutGpuTimesAreLeftOut) {
  std::vector<StepSummary> rows = data_parallel({100, 100, 160, 100}, 20);
  rows[2].unseen = 1;
  const StepGraph graph = graph_of(rows);
  EXPECT_EQ(graph.rank, (std::vector<int32_t>{0, 1, 3}));
  EXPECT_EQ(graph.unknown, 1u);
  EXPECT_EQ(price(StepGraph{}, std::vector<Suspect>{{.ranks = {1}}}, 10).recovered_ns, std::vector<int64_t>{0});
}

// The exact answer: a replay with the suspects' computations at the mean of the others in their stage.
double exact_without(const PipelineJob& job, const std::vector<int32_t>& suspects) {
  PipelineJob fixed = job;
  const auto suspected = [suspects, job](int dp, int stage) {
    return std::find(suspects.begin(), suspects.end(), dp * job.stages + stage) != suspects.end();
  };
  const auto others = [suspected, job](const auto& of, int step, int stage, int batch) {
    double sum = 0, count = 0;
    for (const bool same_stage : {true, false}) {
      for (int dp = 0; dp < job.dp_ranks; ++dp) {
        for (int other = 0; other < job.stages; ++other) {
          if (suspected(dp, other) || (same_stage && other != stage)) continue;
          sum += of(step, dp, other, batch);
          ++count;
        }
      }
      if (count > 0) return sum / count;
    }
    return 0.0;
  };
  fixed.forward = [=](int step, int dp, int stage, int batch) {
    return suspected(dp, stage) ? others(job.forward, step, stage, batch) : job.forward(step, dp, stage, batch);
  };
  fixed.backward = [=](int step, int dp, int stage, int batch) {
    return suspected(dp, stage) ? others(job.backward, step, stage, batch) : job.backward(step, dp, stage, batch);
  };
  std::vector<std::string> notes;
  const Result<OpGraph> graph = graph_of_pipeline_trace(fixed.table(), {}, notes);
  EXPECT_TRUE(graph.ok()) << graph.error();
  return Replayer(*graph).mean_step_s(graph->length_s);
}

TEST(StepPrice, AgreesWithTheReplayOfWholePipelines) {
  double worst = 0;
  for (const int stages : {2, 4, 8}) {
    for (const int batches : {4, 8, 16}) {
      for (const double excess : {0.1, 0.3, 1.0}) {
        for (const int slow_stage : {0, stages / 2, stages - 1, -1}) {  // -1: the whole last stage
          PipelineJob job{.dp_ranks = 4, .stages = stages, .batches = batches};
          std::vector<int32_t> suspects;
          if (slow_stage >= 0) {
            suspects.push_back(2 * stages + slow_stage);
          } else {
            for (int dp = 0; dp < 4; ++dp) suspects.push_back(dp * stages + stages - 1);
          }
          const auto slow = [=](int dp, int stage) {
            const bool hit = slow_stage >= 0 ? dp == 2 && stage == slow_stage : stage == stages - 1;
            return 1 + (hit ? excess : 0) + 0.002 * ((dp * 7 + stage * 3) % 5);
          };
          job.forward = [slow](int, int dp, int stage, int) { return slow(dp, stage); };
          job.backward = [slow](int, int dp, int stage, int) { return 2 * slow(dp, stage); };
          const double with = job.step_s(0), exact = with - exact_without(job, suspects);
          const std::vector<StepSummary> rows = job.summaries(0);
          const StepPrice found = price(graph_of(rows), std::vector<Suspect>{{.ranks = suspects}}, 0);
          const double estimate = static_cast<double>(found.recovered_ns[0]) / 1e9;
          const double error = std::abs(estimate - exact) / exact;
          worst = std::max(worst, error);
          EXPECT_LT(error, 0.05) << stages << " stages, " << batches << " micro-batches, excess " << excess << ", slow "
                                 << slow_stage << ": " << estimate << " s, replayed " << exact << " s";
        }
      }
    }
  }
  std::printf("worst error of what is recovered: %.1f %%\n", worst * 100);
}

TEST(StepPrice, TensorParallelPeersOfASlowRankDoNotHideIt) {
  // Two replicas of two stages of two tensor-parallel ranks. Everybody works 12 and a pipeline takes 15; one rank of
  // the second replica's first stage works 18, so its replica takes 21. Its peer waits for it between layers, the
  // second stage in receives, the first replica at the end.
  std::vector<StepSummary> rows;
  for (int replica = 0; replica < 2; ++replica) {
    for (int stage = 0; stage < 2; ++stage) {
      for (int tensor = 0; tensor < 2; ++tensor) {
        const bool hit = replica == 1, slow = hit && stage == 0 && tensor == 0;
        const int64_t own = slow ? 18 : 12, layers = hit && stage == 0 && !slow ? 6 : 0;
        const int64_t messages = hit && stage == 1 ? 9 : 3, end = hit ? 0 : 6;
        StepSummary row;
        row.duration_ns = 21;
        row.self_ns = own;
        row.comm_ns = 21 - own;
        const auto add = [&](int id, int size, bool p2p, int64_t count, int64_t gpu_ns) {
          row.comms.push_back(
              {.comm_id = static_cast<uint64_t>(id), .size = size, .p2p = p2p, .count = count, .gpu_ns = gpu_ns});
        };
        add(10 + replica * 2 + stage, 2, false, 64, layers);
        add(20 + replica * 2 + tensor, 2, true, 8, messages);
        add(30 + stage * 2 + tensor, 2, false, 1, end);
        rows.push_back(row);
      }
    }
  }
  const StepPrice found = price(graph_of(rows), std::vector<Suspect>{{.ranks = {4}}}, 15);
  EXPECT_EQ(found.recovered_ns, std::vector<int64_t>{6});
  EXPECT_DOUBLE_EQ(found.shares[0], 1);
}

TEST(StepPrice, AHealthyPipelineHasNobodyToPay) {
  const std::vector<StepSummary> rows = PipelineJob{.dp_ranks = 4, .stages = 4, .batches = 8}.summaries(0);
  const StepGraph graph = graph_of(rows);
  EXPECT_EQ(graph.chains, 4u);
  for (int32_t rank = 0; rank < 16; ++rank)
    EXPECT_LT(price(graph, std::vector<Suspect>{{.ranks = {rank}}}, 0).recovered_ns[0], graph.step_ns / 1000);
}

}  // namespace
}  // namespace lockstep
