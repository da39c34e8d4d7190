#include "diagnosis/detectors/pipeline/pipeline.h"

#include <gtest/gtest.h>

#include <functional>

#include "diagnosis/roles.h"
#include "diagnosis/testing.h"
#include "diagnosis/verdicts/verdict_sentence.h"

namespace lockstep {
namespace {

constexpr int32_t kStages = 6;
constexpr CommId kComm{7};

// One rank a stage. A transfer of a healthy pipeline waits 5 ms for either neighbour.
struct Plan {
  double step_ms = 200, own_ms = 100, queue_ms = 90, input_ms = 0, handling_us = 20;
  double from_before_ms = 5, from_behind_ms = 5;  // that it waits for a transfer
};
using PlanOf = std::function<void(int64_t step, std::vector<Plan>& ranks)>;

void add_steps(JobWindow& window, int64_t from, int64_t to, const PlanOf& plan, int64_t flows_every = 1) {
  for (int64_t number = from; number < to; ++number) {
    std::vector<Plan> ranks(kStages);
    plan(number, ranks);
    for (Rank rank : all_ranks(kStages)) {
      const Plan& one = ranks[static_cast<size_t>(rank.value())];
      const bool end = rank == 0_rank || rank.value() == kStages - 1;
      StepSummary row;
      row.step = StepNumber{number};
      auto ns = [](double ms) { return static_cast<int64_t>(ms * 1e6); };
      row.duration_ns = ns(one.step_ms);
      row.self_ns = ns(one.own_ms);
      row.queue_ns = ns(one.queue_ms);
      row.phase_ns[static_cast<size_t>(Phase::kInput)] = ns(one.input_ms);
      row.comms.push_back({.comm_id = kComm, .size = kStages, .rank_in_comm = rank.value(), .count = end ? 32 : 64});
      row.comms.back().p2p = true;
      row.comms.back().gpu_ns = ns(one.step_ms - one.own_ms);
      for (int32_t peer : {rank.value() - 1, rank.value() + 1}) {
        if (peer < 0 || peer >= kStages || number % flows_every != 0) continue;
        FlowStep flow;
        flow.comm_id = kComm;
        flow.peer = peer;
        flow.send = false;
        flow.transfers = 128;
        flow.bytes = 16 << 20;
        flow.wire_ns = ns(128 * one.handling_us / 1e3);
        flow.peer_ns = 128 * ns(peer < rank.value() ? one.from_before_ms : one.from_behind_ms);
        row.flows.push_back(flow);
      }
      const Identity identity = testing::MadeUpJob(kStages).identity(rank);
      window.add_comm(identity, {.comm_id = kComm, .size = kStages, .rank_in_comm = rank.value()});
      window.add_step(identity, row);
    }
  }
  window.remember(0);
}

// Everybody waits for this one, in steps that take twice as long.
void wait_for(std::vector<Plan>& ranks, size_t slow) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank].step_ms = 400;
    ranks[rank].from_before_ms = rank > slow ? 30 : 2;
    ranks[rank].from_behind_ms = rank < slow ? 30 : 2;
  }
}

std::vector<Finding> found(int64_t steps, const PlanOf& plan, int64_t flows_every = 1) {
  JobWindow window;
  add_steps(window, 0, steps, plan, flows_every);
  return find_slow_stages(window, {});
}

TEST(PipelineDetector, SaysNothingOfAHealthyPipelineWhoseStagesDiffer) {
  EXPECT_TRUE(found(60, [](int64_t, std::vector<Plan>& ranks) {
                for (size_t rank = 0; rank < ranks.size(); ++rank)
                  ranks[rank].own_ms = 160 - 10.0 * static_cast<double>(rank);
                ranks[5].from_before_ms = ranks[0].from_behind_ms = 12;
              }).empty());
}

TEST(PipelineDetector, NamesTheGpuThatAllOthersWaitFor) {
  std::vector<Finding> findings = found(60, [](int64_t step, std::vector<Plan>& ranks) {
    if (step < 40) return;
    wait_for(ranks, 3);
    ranks[3].own_ms = 300;
    ranks[3].queue_ms = 280;
    ranks[1].own_ms = 350;  // what it waits for the stages behind it is not seen
  });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{3_rank});
  EXPECT_EQ(findings[0].kind, VerdictKind::kSlow);
  EXPECT_EQ(findings[0].layer, Layer::kGpu);
  EXPECT_TRUE(findings[0].sure);
  EXPECT_EQ(findings[0].since_step, 40_step);
  EXPECT_EQ(findings[0].lost_ns_per_step, 200'000'000);
  EXPECT_EQ(findings[0].step_without_ns, 200'000'000);
  EXPECT_EQ(findings[0].chain[0].kind, ClaimKind::kWaitsFor);
  EXPECT_NE(findings[0].chain[0].claim.find("wait at least 25 ms longer than before"), std::string::npos)
      << findings[0].chain[0].claim;
}

TEST(PipelineDetector, NamesTheInputOfTheFirstStage) {
  std::vector<Finding> findings = found(60, [](int64_t step, std::vector<Plan>& ranks) {
    if (step < 40) return;
    wait_for(ranks, 0);
    ranks[0].input_ms = 190;
  });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{0_rank});
  EXPECT_EQ(findings[0].layer, Layer::kInput);
}

TEST(PipelineDetector, NamesTheHostWhereNothingIsQueuedOnTheGpu) {
  std::vector<Finding> findings = found(60, [](int64_t step, std::vector<Plan>& ranks) {
    if (step < 40) return;
    wait_for(ranks, 5);
    ranks[5].own_ms = 300;
  });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{5_rank});
  EXPECT_EQ(findings[0].layer, Layer::kHost);
}

TEST(PipelineDetector, NamesTheStarvedProxyThoughTheGpuQueues) {
  std::vector<Finding> findings = found(60, [](int64_t step, std::vector<Plan>& ranks) {
    if (step < 40) return;
    wait_for(ranks, 2);
    ranks[2].own_ms = ranks[2].queue_ms = 300;
    ranks[2].handling_us = 1000;
  });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{2_rank});
  EXPECT_EQ(findings[0].layer, Layer::kHost);
  EXPECT_NE(verdict_sentence(findings[0], {}).find("gets no CPU for its transfers"), std::string::npos);
}

// Over a slow link both ends wait; all others wait towards it.
void wait_over(std::vector<Plan>& ranks, int32_t low) {
  for (int32_t rank = 0; rank < kStages; ++rank) {
    Plan& one = ranks[static_cast<size_t>(rank)];
    one.step_ms = 400;
    one.from_behind_ms = rank <= low ? 20 : 1;
    one.from_before_ms = rank > low ? 20 : 1;
  }
}

TEST(PipelineDetector, TwoEndsThatWaitForEachOtherAreASlowLink) {
  std::vector<Finding> findings = found(60, [](int64_t step, std::vector<Plan>& ranks) {
    if (step >= 40) wait_over(ranks, 2);
  });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, (std::vector<Rank>{2_rank, 3_rank}));
  EXPECT_EQ(findings[0].layer, Layer::kLink);
  EXPECT_FALSE(findings[0].sure) << "nothing tells the two ends apart";
  EXPECT_EQ(findings[0].lost_ns_per_step, 200'000'000);
}

TEST(PipelineDetector, TheEndOfASlowLinkWhoseOtherLinkIsSlowTooIsNamed) {
  std::vector<Finding> findings = found(60, [](int64_t step, std::vector<Plan>& ranks) {
    if (step < 40) return;
    wait_over(ranks, 2);
    ranks[2].from_before_ms = 9;
  });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{2_rank});
  EXPECT_EQ(findings[0].layer, Layer::kLink);
  EXPECT_EQ(findings[0].cause, Cause::kNicDegraded);
  EXPECT_TRUE(findings[0].sure);
}

// The plugin thins itself out where there is much to do: which transfers were slow is known some steps later.
TEST(PipelineDetector, WhatWasSlowBeforeTransfersAreKnownAgainIsPartOfIt) {
  JobWindow window;
  const auto plan = [](int64_t step, std::vector<Plan>& ranks) {
    if (step >= 40) wait_for(ranks, 3);
  };
  add_steps(window, 0, 40, plan);
  add_steps(window, 40, 60, plan, 1000);
  add_steps(window, 60, 70, plan);
  const std::vector<Finding> findings = find_slow_stages(window, {});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].since_step, 40_step);
  EXPECT_EQ(findings[0].lost_ns_per_step, 200'000'000);
}

TEST(PipelineDetector, CallsAStageThatWasSoFromTheFirstStepOnUneven) {
  std::vector<Finding> findings = found(30, [](int64_t, std::vector<Plan>& ranks) {
    wait_for(ranks, 5);
    ranks[5].own_ms = 350;
  });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, VerdictKind::kInefficient);
  EXPECT_EQ(findings[0].layer, Layer::kWorkload);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{5_rank});
  EXPECT_EQ(findings[0].lost_ns_per_step, 250'000'000);
}

TEST(PipelineDetector, SuspectsAfterThreeStepsWithTransfersAndIsSureAfterSix) {
  const auto slow_from_40 = [](int64_t step, std::vector<Plan>& ranks) {
    if (step >= 40) wait_for(ranks, 3);
  };
  EXPECT_TRUE(found(44, slow_from_40, 2).empty());  // 40, 42
  std::vector<Finding> suspected = found(48, slow_from_40, 2);
  ASSERT_EQ(suspected.size(), 1u);
  EXPECT_FALSE(suspected[0].sure);
  std::vector<Finding> sure = found(54, slow_from_40, 2);
  ASSERT_EQ(sure.size(), 1u);
  EXPECT_TRUE(sure[0].sure);
  EXPECT_EQ(sure[0].since_step, 40_step);
}

TEST(PipelineDetector, SaysNothingOfWhatDoesNotMakeStepsLonger) {
  EXPECT_TRUE(found(60, [](int64_t step, std::vector<Plan>& ranks) {
                if (step < 40) return;
                wait_for(ranks, 3);
                for (Plan& rank : ranks) rank.step_ms = 205;
              }).empty());
}

TEST(PipelineDetector, SaysNothingWhereSomeRanksToldOfNoTransfers) {
  JobWindow window;
  add_steps(window, 0, 60, [](int64_t step, std::vector<Plan>& ranks) {
    if (step >= 40) wait_for(ranks, 3);
  });
  StepSummary row = window.step(59_step)->at(5_rank).summary;
  row.step = 60_step;
  window.add_step(testing::MadeUpJob(kStages).identity(5_rank), row);
  EXPECT_EQ(find_slow_stages(window, {}).at(0).ranks, std::vector<Rank>{3_rank});  // the step before tells
}

// Rank 3 is slow and rank 2 was never heard of: what rank 1 waits for it is waiting all the same.
TEST(PipelineDetector, WhoWaitsForSomebodyWhoIsNotHeardOfIsNotNamed) {
  JobWindow all, window;
  add_steps(all, 0, 60, [](int64_t step, std::vector<Plan>& ranks) {
    if (step >= 40) wait_for(ranks, 3);
  });
  for (StepNumber step = 0_step; step < 60_step; ++step) {
    for (const auto& [rank, row] : *all.step(step)) {
      if (rank == 2_rank) continue;
      const Identity identity = testing::MadeUpJob(kStages).identity(rank);
      window.add_step(identity, row.summary, testing::kEpochNs + step.value() * testing::kSecondNs);
    }
  }
  window.remember(0);
  ASSERT_EQ(window.complete_steps().back(), 59_step);
  const std::vector<Finding> found = find_slow_stages(window, {});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].ranks, std::vector<Rank>{3_rank});
}

// Two pipelines of two stages; of the second stage of one of them nothing is heard.
TEST(PipelineDetector, AStageWhoseOtherRankIsNotHeardOfIsNoStageOfItsOwn) {
  for (bool heard : {true, false}) {
    for (int32_t pipelines : {1, 2}) {
      JobWindow window;
      for (Rank rank : all_ranks(2 * pipelines)) {
        if (!heard && rank == 3_rank) continue;
        StepSummary row;
        row.duration_ns = 200'000'000;
        row.self_ns = 100'000'000;
        row.comms.push_back({.comm_id = CommId{static_cast<uint64_t>(10 + rank.value() / 2)},
                             .size = 2,
                             .rank_in_comm = rank.value() % 2,
                             .p2p = true,
                             .count = 32});
        window.add_step(testing::MadeUpJob(2 * pipelines).identity(rank), row);
      }
      const StepFrame& frame = *window.frame(0_step);
      EXPECT_EQ(is_alone(window, frame, 1), pipelines == 1) << heard;
      if (!heard && pipelines == 2) {
        EXPECT_TRUE(std::isnan(lateness(window, frame).late_ns[1]));
      }
    }
  }
}

TEST(PipelineDetector, LeavesRanksThatHaveEqualsToOthers) {
  JobWindow window;
  add_steps(window, 0, 30, [](int64_t, std::vector<Plan>&) {});
  for (size_t slot = 0; slot < window.slots(); ++slot)
    EXPECT_TRUE(std::isnan(lateness(window, *window.frame(20_step)).late_ns[slot]));
}

}  // namespace
}  // namespace lockstep
