#include "analysis/whatif/replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "analysis/whatif/pipeline_testing.h"
#include "analysis/whatif/pipeline_trace.h"
#include "analysis/whatif/shares.h"
#include "analysis/whatif/what_if.h"

namespace lockstep {
namespace {

using testing::PipelineJob;

OpGraph graph_of(const PipelineJob& job) {
  std::vector<std::string> notes;
  Result<OpGraph> graph = graph_of_pipeline_trace(job.table(), {}, notes);
  EXPECT_TRUE(graph.ok()) << graph.error();
  EXPECT_TRUE(notes.empty());
  return std::move(graph).value();
}

// Two workers compute 2 s and 5 s, then meet for 1 s, then each computes 1 s.
GraphBuilder two_that_meet() {
  GraphBuilder builder;
  builder.types = {{"compute", "compute", false}, {"sum", "sum", true}};
  builder.workers = {{0_rank}, {1_rank}};
  builder.steps = {7_step};
  for (int worker = 0; worker < 2; ++worker) {
    const double own = worker == 0 ? 2 : 5;
    const uint32_t first = builder.add({.type = 0, .worker = worker, .end_s = own});
    const uint32_t meet = builder.add({.type = 1, .equals = 1, .worker = worker, .start_s = own, .end_s = 6});
    const uint32_t last = builder.add({.type = 0, .equals = 2, .worker = worker, .start_s = 6, .end_s = 7});
    builder.add_edge(first, meet);
    builder.add_edge(meet, last);
  }
  builder.add_meeting(std::vector<uint32_t>{1, 4});
  return builder;
}

TEST(Replay, WaitsForTheLastAndCountsItsTransferAlone) {
  Result<OpGraph> graph = two_that_meet().finish();
  ASSERT_TRUE(graph.ok()) << graph.error();
  EXPECT_EQ(graph->length_s, (std::vector<double>{2, 1, 1, 5, 1, 1}));  // not the 4 s that worker 0 stood in the sum
  Replayer replayer(*graph);
  EXPECT_EQ(replayer.run(graph->length_s), std::vector<double>{7});
  EXPECT_EQ(replayer.starts()[1], 2);
  EXPECT_EQ(replayer.ends()[1], 6);
  std::vector<double> changed = graph->length_s;
  changed[3] = 1;  // worker 1 is faster: now worker 0 is the last
  EXPECT_EQ(replayer.run(changed), std::vector<double>{4});
}

TEST(Replay, TheIdealIsTheMeanOfComputingAndTheMedianOfTransfers) {
  GraphBuilder builder;
  builder.types = {{"compute", "compute", false}, {"sum", "sum", true}};
  builder.workers = {{0_rank}};
  builder.steps = {1_step};
  for (const double length : {1.0, 2.0, 9.0}) builder.add({.type = 0, .end_s = length});
  for (const double length : {1.0, 2.0, 9.0}) {
    const uint32_t op = builder.add({.type = 1, .equals = 1, .end_s = length});
    builder.add_meeting(std::vector<uint32_t>{op});
  }
  Result<OpGraph> graph = std::move(builder).finish();
  ASSERT_TRUE(graph.ok()) << graph.error();
  EXPECT_EQ(ideal_lengths(*graph), (std::vector<double>{4, 4, 4, 2, 2, 2}));
}

TEST(Replay, SaysWhatWaitsForItself) {
  GraphBuilder circle = two_that_meet();
  circle.add_edge(2, 0);
  const Result<OpGraph> refused = std::move(circle).finish();
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().find("wait in a circle"), std::string::npos);
  EXPECT_NE(refused.error().find("in step 7"), std::string::npos);
  GraphBuilder twice = two_that_meet();
  twice.add_meeting(std::vector<uint32_t>{1});
  EXPECT_FALSE(std::move(twice).finish().ok());
  EXPECT_FALSE(GraphBuilder().finish().ok());
}

TEST(Replay, AnEvenPipelineTakesBatchesAndStagesLessOne) {
  for (const auto& [stages, batches] : {std::make_pair(2, 2), std::make_pair(4, 8), std::make_pair(3, 1)}) {
    const OpGraph graph = graph_of({.dp_ranks = 2, .stages = stages, .batches = batches});
    Replayer replayer(graph);
    EXPECT_DOUBLE_EQ(replayer.mean_step_s(graph.length_s), (batches + stages - 1) * 3.0);
    const WhatIf result = what_if(graph);
    EXPECT_DOUBLE_EQ(result.slowdown, 1);
    EXPECT_DOUBLE_EQ(result.replay_error, 0);
    EXPECT_TRUE(std::isnan(result.worst_workers_share));  // no loss to divide
    EXPECT_EQ(result.causes_unexplained, 0);
    EXPECT_NE(sentence_of(result).find("nothing to win"), std::string::npos);
  }
}

// Two data-parallel ranks of two stages, two micro-batches; forward 1 s, backward 2 s, stage 0 of the second rank half
// as fast. By hand: that rank takes 13 s; at the means (1.25 s, 2.5 s) all take 11.25 s; with the slow worker alone at
// the means 9.75 s.
PipelineJob one_slow_worker() {
  const auto slow = [](int dp, int stage) { return dp == 1 && stage == 0 ? 2.0 : 1.0; };
  PipelineJob job{.dp_ranks = 2, .stages = 2, .batches = 2, .steps = 3};
  job.forward = [slow](int, int dp, int stage, int) { return slow(dp, stage); };
  job.backward = [slow](int, int dp, int stage, int) { return 2 * slow(dp, stage); };
  return job;
}

TEST(WhatIf, OneSlowWorkerByHand) {
  const OpGraph graph = graph_of(one_slow_worker());
  const WhatIf result = what_if(graph);
  EXPECT_EQ(result.steps, 3u);
  EXPECT_DOUBLE_EQ(result.recorded_s, 13);
  EXPECT_DOUBLE_EQ(result.replayed_s, 13);
  EXPECT_DOUBLE_EQ(result.ideal_s, 11.25);
  EXPECT_DOUBLE_EQ(result.slowdown, 13 / 11.25);
  ASSERT_EQ(result.worst_ranks, std::vector<Rank>{2_rank});
  EXPECT_NEAR(result.worst_workers_share, 3.25 / 1.75, 1e-9);
  EXPECT_EQ(result.workers.front().worker.rank, 2_rank);
  EXPECT_EQ(result.workers.front().worker.dp, 1);
  EXPECT_EQ(result.workers.front().worker.stage, 0);
  // Everything else ideal, so longer than 13: stage 1 takes 3.75 s for a micro-batch here.
  EXPECT_NEAR(result.workers.front().slowdown, 13.75 / 11.25, 1e-9);
  EXPECT_GE(result.workers.front().slowdown, result.workers.front().estimate);
  EXPECT_DOUBLE_EQ(result.lost_gpu_s_per_step(), 4 * 1.75);
  EXPECT_NEAR(result.causes.front().share, 1, 1e-9);
  EXPECT_NE(sentence_of(result).find("worst worker (rank 2)"), std::string::npos) << sentence_of(result);
}

TEST(WhatIf, ASlowLastStageIsTheStageAndNotItsWorkers) {
  PipelineJob job{.dp_ranks = 4, .stages = 4, .batches = 8, .steps = 2};
  job.forward = [](int, int, int stage, int) { return stage == 3 ? 1.6 : 1.0; };
  job.backward = [](int, int, int stage, int) { return stage == 3 ? 3.2 : 2.0; };
  const WhatIf result = what_if(graph_of(job));
  EXPECT_GT(result.last_stage_share, 0.9);
  EXPECT_LT(result.worst_workers_share, 0.1);  // the other three still hold everybody up
  EXPECT_GT(result.stage_slowdown[3], 1.2);
  EXPECT_NEAR(result.dp_slowdown[0], result.slowdown, 1e-9);
  EXPECT_NE(sentence_of(result).find("last stage (3)"), std::string::npos) << sentence_of(result);
}

TEST(WhatIf, UnevenMicroBatchesAreTheWorkAndNobodysFault) {
  PipelineJob job{.dp_ranks = 8, .stages = 2, .batches = 6, .steps = 6};
  // Any length from 0.5 to 1.5, the same in both stages and directions, as sequence lengths make it.
  const auto length = [](int step, int dp, int batch) {
    const auto mixed = static_cast<uint32_t>(step * 7919 + dp * 104729 + batch * 1299709) * 2654435761u;
    return 0.5 + (mixed >> 8) % 1000 / 1000.0;
  };
  job.forward = [length](int step, int dp, int, int batch) { return length(step, dp, batch); };
  job.backward = [length](int step, int dp, int, int batch) { return 2 * length(step, dp, batch); };
  const WhatIf result = what_if(graph_of(job));
  EXPECT_GT(result.slowdown, 1.1);
  EXPECT_GT(result.forward_backward_correlation, 0.99);
  const auto uneven = std::max_element(result.causes.begin(), result.causes.end(),
                                       [](const Part& a, const Part& b) { return a.share < b.share; });
  EXPECT_EQ(uneven->name, "uneven micro-batches");
  EXPECT_NE(sentence_of(result).find("sequence lengths"), std::string::npos) << sentence_of(result);
}

TEST(WhatIf, SharesAddToTheWholeWithWhatIsUnexplained) {
  PipelineJob job = one_slow_worker();
  job.gap_s = 0.05;  // the host, seen by nobody
  const OpGraph graph = graph_of(job);
  const WhatIf result = what_if(graph);
  EXPECT_GT(result.replay_error, 0.01);
  for (const auto* parts : {&result.types, &result.causes}) {
    double sum = parts == &result.types ? result.types_unexplained : result.causes_unexplained;
    EXPECT_NEAR(sum, (result.recorded_s - result.replayed_s) / (result.recorded_s - result.ideal_s), 1e-9);
    for (const Part& part : *parts) {
      EXPECT_GE(part.share, 0);
      sum += part.share;
    }
    EXPECT_NEAR(sum, 1, 1e-9);
  }
  // With the gaps the replay is the record.
  Replayer replayer(graph);
  EXPECT_NEAR(replayer.mean_step_s(graph.length_s, true), result.recorded_s, 1e-9);
}

TEST(Shares, SplitWhatAllRecoverTogetherByWhatEachDoesAlone) {
  std::vector<double> shares(3);
  EXPECT_DOUBLE_EQ(split_shares(10, 8, std::vector<double>{6, 2, -1}, shares), 0.2);
  EXPECT_EQ(shares, (std::vector<double>{0.6000000000000001, 0.2, 0}));
  EXPECT_DOUBLE_EQ(split_shares(10, 12, std::vector<double>{6, 6, 0}, shares), 0);
  EXPECT_EQ(shares, (std::vector<double>{0.5, 0.5, 0}));
  EXPECT_DOUBLE_EQ(split_shares(10, 3, std::vector<double>{0, 0, 0}, shares), 1);
  EXPECT_DOUBLE_EQ(split_shares(0, 3, std::vector<double>{1, 1, 1}, shares), 0);
  EXPECT_EQ(shares, (std::vector<double>{0, 0, 0}));
}

}  // namespace
}  // namespace lockstep
