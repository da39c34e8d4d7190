#include "analysis/whatif/rank_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "analysis/whatif/replay.h"
#include "analysis/whatif/what_if.h"

namespace lockstep {
namespace {

// Four ranks: own work, a sum over all that takes 0.1 s from the last one's arrival, own work, another sum, a rest.
std::vector<TracedRank> four_ranks(Rank slow, double excess_s) {
  std::vector<TracedRank> ranks(4);
  double arrived = 0;
  for (Rank rank : all_ranks(4)) arrived = std::max(arrived, 1.0 + (rank == slow ? excess_s : 0));
  for (Rank rank : all_ranks(4)) {
    TracedRank& one = ranks[index_of(rank)];
    one.rank = rank;
    const double own = 1.0 + (rank == slow ? excess_s : 0);
    one.ops.push_back(
        {.comm_id = CommId{5}, .ordinal = 10, .function = "AllReduce", .start_s = own, .end_s = arrived + 0.1});
    one.ops.push_back({.comm_id = CommId{5},
                       .ordinal = 11,
                       .function = "AllGather",
                       .start_s = arrived + 0.3,
                       .end_s = arrived + 0.4});
    one.end_s = arrived + 0.5;
  }
  return ranks;
}

TEST(RankTrace, ReplaysAStepAndFindsTheSlowRank) {
  std::vector<std::string> notes;
  const Result<OpGraph> graph = graph_of_traced_ranks(four_ranks(2_rank, 0.8), 41_step, notes);
  ASSERT_TRUE(graph.ok()) << graph.error();
  EXPECT_TRUE(notes.empty());
  EXPECT_EQ(graph->steps, std::vector<StepNumber>{41_step});
  const WhatIf result = what_if(*graph);
  EXPECT_NEAR(result.recorded_s, 2.3, 1e-9);
  EXPECT_NEAR(result.replayed_s, 2.3, 1e-9);
  EXPECT_NEAR(result.ideal_s, 1.7, 1e-9);  // everybody works 1.2 s first
  EXPECT_EQ(result.worst_ranks, std::vector<Rank>{2_rank});
  EXPECT_EQ(result.workers.front().worker.rank, 2_rank);
  EXPECT_NEAR(result.worst_workers_share, 1, 1e-9);
  EXPECT_TRUE(std::isnan(result.last_stage_share));
  EXPECT_NEAR(result.causes.front().share, 1, 1e-9);
}

TEST(RankTrace, CommunicationUnderComputingHoldsUpNobodyWhoDoesNotWaitForIt) {
  // The first sum runs from 1 s to 3 s while the rank computes on; the second starts at 2 s, before the first has
  // ended.
  std::vector<TracedRank> ranks(2);
  for (Rank rank : all_ranks(2)) {
    ranks[index_of(rank)] = {rank, 0, 4, {}};
    ranks[index_of(rank)].ops = {
        {.comm_id = CommId{1}, .ordinal = 1, .function = "AllReduce", .start_s = 1, .end_s = 3},
        {.comm_id = CommId{2}, .ordinal = 1, .function = "AllReduce", .start_s = 2, .end_s = 2.5}};
  }
  std::vector<std::string> notes;
  const Result<OpGraph> graph = graph_of_traced_ranks(ranks, 1_step, notes);
  ASSERT_TRUE(graph.ok()) << graph.error();
  Replayer replayer(*graph);
  EXPECT_NEAR(replayer.mean_step_s(graph->length_s), 4, 1e-9);
  std::vector<double> shorter = graph->length_s;
  for (size_t op = 0; op < shorter.size(); ++op) {
    if (graph->types[graph->type[op]].communication && shorter[op] > 1) shorter[op] = 0.5;  // the long one
  }
  // Half a second less is all that the step gains: the second sum still ends at 2.5 s.
  EXPECT_NEAR(replayer.mean_step_s(shorter), 3.5, 1e-9);
}

TEST(RankTrace, PairsSendsWithReceivesAndSaysWhatHasNoPartner) {
  std::vector<TracedRank> ranks(2);
  ranks[0] = {0_rank,
              0,
              3,
              {{.comm_id = CommId{9},
                .p2p = true,
                .send = true,
                .peer = 1_rank,
                .function = "Send",
                .start_s = 2,
                .end_s = 2.1}}};
  ranks[1] = {1_rank,
              0,
              3,
              {{.comm_id = CommId{9}, .p2p = true, .peer = 0_rank, .function = "Recv", .start_s = 0.5, .end_s = 2.1},
               {.comm_id = CommId{9},
                .p2p = true,
                .send = true,
                .peer = 0_rank,
                .function = "Send",
                .start_s = 2.5,
                .end_s = 2.6}}};
  std::vector<std::string> notes;
  const Result<OpGraph> graph = graph_of_traced_ranks(ranks, 1_step, notes);
  ASSERT_TRUE(graph.ok()) << graph.error();
  EXPECT_EQ(notes.size(), 1u);
  std::vector<double> receives;
  for (size_t op = 0; op < graph->size(); ++op) {
    if (graph->types[graph->type[op]].name == "Recv") receives.push_back(graph->length_s[op]);
  }
  ASSERT_EQ(receives.size(), 1u);
  EXPECT_NEAR(receives[0], 0.1, 1e-9);  // not the 1.6 s that it waited
}

TEST(RankTrace, RefusesWhatCannotBe) {
  std::vector<std::string> notes;
  EXPECT_FALSE(graph_of_traced_ranks({}, 1_step, notes).ok());
  std::vector<TracedRank> ranks = four_ranks(0_rank, 0);
  ranks[1].ops[0].end_s = -1;
  EXPECT_FALSE(graph_of_traced_ranks(ranks, 1_step, notes).ok());
  ranks = four_ranks(0_rank, 0);
  std::swap(ranks[1].ops[0].ordinal, ranks[1].ops[1].ordinal);  // two ranks in opposite order: a deadlock
  EXPECT_NE(graph_of_traced_ranks(ranks, 1_step, notes).error().find("circle"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
