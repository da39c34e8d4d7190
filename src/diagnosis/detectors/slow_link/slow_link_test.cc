#include "diagnosis/detectors/slow_link/slow_link.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "diagnosis/testing.h"
#include "diagnosis/verdicts/verdict_sentence.h"

namespace lockstep {
namespace {

using testing::MadeUpJob;
using testing::RankPlan;
using testing::StepPlan;

std::vector<Finding> links_of(MadeUpJob& job, const StepPlan& plan, int64_t steps = 30) {
  JobWindow window;
  job.play(window, 0_step, StepNumber{steps - 1}, plan);
  return find_slow_links(window, {});
}

// Transfers of this rank to the next take so long instead of 10 ms.
StepPlan slow_sender(size_t rank, double wire_ms = 80) {
  return [=](StepNumber, std::vector<RankPlan>& ranks) { ranks[rank].wire_ms = wire_ms; };
}

TEST(SlowLinkDetector, NamesTheSenderOfTheOneSlowFlow) {
  MadeUpJob job(8);
  job.ring_flows = true;
  std::vector<Finding> findings = links_of(job, slow_sender(3));
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{3_rank});
  EXPECT_EQ(findings[0].layer, Layer::kLink);
  EXPECT_EQ(findings[0].component, "link from rank 3 to rank 4");
  EXPECT_TRUE(findings[0].sure);
  EXPECT_NEAR(static_cast<double>(findings[0].lost_ns_per_step), 70e6, 2e6);
  EXPECT_EQ(findings[0].coverage, 1);
  EXPECT_TRUE(std::any_of(findings[0].chain.begin(), findings[0].chain.end(),
                          [](const Claim& entry) { return entry.kind == ClaimKind::kExclusion; }));
  EXPECT_TRUE(std::any_of(findings[0].chain.begin(), findings[0].chain.end(),
                          [](const Claim& entry) { return entry.kind == ClaimKind::kCounterfactual; }));
}

TEST(SlowLinkDetector, SuspectsALinkThatIsSlowFromTheFirstStepAfterTwoAndIsSureAfterFour) {
  MadeUpJob job(8);
  job.ring_flows = true;
  for (int64_t steps = 1; steps <= 6; ++steps) {
    std::vector<Finding> findings = links_of(job, slow_sender(3), steps);
    ASSERT_EQ(findings.size(), steps < 2 ? 0u : 1u) << steps;
    if (findings.empty()) continue;
    EXPECT_EQ(findings[0].ranks, std::vector<Rank>{3_rank});
    EXPECT_EQ(findings[0].sure, steps >= 4) << steps;
  }
}

// NCCL's proxy thread without a CPU: all that it does crawls, also what no wire has a part in.
TEST(SlowLinkDetector, IsTheHostWhereWhatHasArrivedIsHandedOnAsSlowly) {
  MadeUpJob job(8);
  job.ring_flows = true;
  std::vector<Finding> findings = links_of(job, [](StepNumber, std::vector<RankPlan>& ranks) {
    ranks[3].wire_ms = 80;
    ranks[3].handing_on_ms = 60;
  });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{3_rank});
  EXPECT_EQ(findings[0].layer, Layer::kHost);
  EXPECT_EQ(findings[0].cause, Cause::kCpuContention);
  EXPECT_TRUE(findings[0].sure);
}

TEST(SlowLinkDetector, IsTheLinkWhereHandingOnIsALittleSlow) {
  MadeUpJob job(8);
  job.ring_flows = true;
  std::vector<Finding> findings = links_of(job, [](StepNumber, std::vector<RankPlan>& ranks) {
    ranks[3].wire_ms = 80;
    ranks[3].handing_on_ms = 30;  // less than half of what its transfers take
    for (size_t rank = 4; rank < 8; ++rank) ranks[rank].handing_on_ms = 1;
  });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].layer, Layer::kLink);
}

// A ring over which data goes both ways; transfers between these neighbours take 80 ms instead of 10.
std::vector<Finding> links_of_two_way_ring(const std::set<std::pair<int32_t, int32_t>>& slow) {
  constexpr int32_t kRanks = 6;
  constexpr CommId kComm{7};
  JobWindow window;
  for (int64_t number = 0; number < 30; ++number) {
    for (Rank rank : all_ranks(kRanks)) {
      StepSummary row;
      row.step = StepNumber{number};
      row.duration_ns = 200'000'000;
      row.self_ns = 100'000'000;
      row.comms.push_back({.comm_id = kComm, .size = kRanks, .rank_in_comm = rank.value(), .count = 4});
      row.comms.back().gpu_ns = 100'000'000;
      for (int32_t other : {(rank.value() + 1) % kRanks, (rank.value() + kRanks - 1) % kRanks}) {
        FlowStep flow;
        flow.comm_id = kComm;
        flow.peer = other;
        flow.send = true;
        flow.transfers = 64;
        flow.bytes = 16 << 20;
        const bool is_slow = slow.contains(std::minmax(rank.value(), other));
        flow.wire_ns = is_slow ? 80'000'000 : 10'000'000;
        row.flows.push_back(flow);
      }
      const Identity identity = MadeUpJob(kRanks).identity(rank);
      window.add_comm(identity, {.comm_id = kComm, .size = kRanks, .rank_in_comm = rank.value()});
      window.add_step(identity, row);
    }
  }
  return find_slow_links(window, {});
}

TEST(SlowLinkDetector, NamesBothEndsOfALinkThatIsSlowBothWays) {
  std::vector<Finding> findings = links_of_two_way_ring({{2, 3}});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, (std::vector<Rank>{2_rank, 3_rank}));
  EXPECT_EQ(findings[0].component, "link between ranks 2 and 3");
  EXPECT_TRUE(findings[0].sure);
  EXPECT_TRUE(
      verdict_sentence(findings[0], {}).starts_with("Slow network port (link): The link between ranks 2 and 3 is slow"))
      << findings[0].sentence;
}

TEST(SlowLinkDetector, NamesTheRankWhoseTwoLinksAreSlow) {
  std::vector<Finding> findings = links_of_two_way_ring({{2, 3}, {3, 4}});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{3_rank});
}

TEST(SlowLinkDetector, SeesWhatHasJustBegunAfterTwoStepsAndIsSureAfterThree) {
  for (double wire_ms : {25.0, 45.0, 80.0}) {  // of others: 10
    for (int64_t steps : {1, 2, 3}) {
      SCOPED_TRACE(std::to_string(wire_ms) + " ms, " + std::to_string(steps) + " steps");
      MadeUpJob job(8);
      job.ring_flows = true;
      std::vector<Finding> findings = links_of(
          job,
          [&](StepNumber step, std::vector<RankPlan>& ranks) { ranks[3].wire_ms = step >= 40_step ? wire_ms : 10; },
          40 + steps);
      ASSERT_EQ(findings.size(), wire_ms >= 30 && steps >= 2 ? 1u : 0u);
      if (!findings.empty()) EXPECT_EQ(findings[0].sure, steps >= 3);
    }
  }
}

// How flows differ in a healthy job tells what is unusual: here a factor of four is none.
TEST(SlowLinkDetector, TakesLongerToBeSureWhereFlowsDifferByThemselves) {
  for (int64_t steps : {3, 12}) {
    MadeUpJob job(8);
    job.ring_flows = true;
    std::mt19937 random(7);
    std::lognormal_distribution<double> times(0, 0.35);
    std::vector<Finding> findings = links_of(
        job,
        [&](StepNumber step, std::vector<RankPlan>& ranks) {
          for (RankPlan& rank : ranks) rank.wire_ms = 10 * times(random);
          if (step >= 40_step) ranks[3].wire_ms *= 5;
        },
        40 + steps);
    EXPECT_EQ(!findings.empty() && findings[0].sure, steps == 12) << steps;
  }
}

TEST(SlowLinkDetector, SaysSinceWhen) {
  MadeUpJob job(8);
  job.ring_flows = true;
  std::vector<Finding> findings = links_of(
      job, [](StepNumber step, std::vector<RankPlan>& ranks) { ranks[3].wire_ms = step >= 40_step ? 80 : 10; }, 80);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].since_step, 40_step);
  EXPECT_EQ(findings[0].through_step, 79_step);
}

// As on a node without a core to spare.
TEST(SlowLinkDetector, NamesTheSenderWhereTransfersAreRecordedInOneOfEightSteps) {
  MadeUpJob job(8);
  std::vector<Finding> findings = links_of(
      job,
      [&](StepNumber step, std::vector<RankPlan>& ranks) {
        job.ring_flows = step % 8 == 0;
        ranks[3].wire_ms = 80;
      },
      100);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{3_rank});
  EXPECT_TRUE(findings[0].sure);
}

TEST(SlowLinkDetector, SaysNothingOfEqualFlows) {
  MadeUpJob job(8);
  job.ring_flows = true;
  EXPECT_TRUE(links_of(job, {}).empty());
}

TEST(SlowLinkDetector, SaysNothingWhenAllFlowsAreEquallySlow) {
  MadeUpJob job(8);
  job.ring_flows = true;
  job.flow_wire_ms = 80;
  EXPECT_TRUE(links_of(job, {}).empty());
}

TEST(SlowLinkDetector, SaysNothingOfFlowsThatDifferByTwo) {
  MadeUpJob job(8);
  job.ring_flows = true;
  job.flow_wire_ms = 40;
  EXPECT_TRUE(links_of(job, slow_sender(3, 80)).empty());
}

TEST(SlowLinkDetector, SaysNothingOfASlowFlowThatCostsNothing) {
  MadeUpJob job(8);
  job.ring_flows = true;
  job.flow_wire_ms = 1;
  EXPECT_TRUE(links_of(job, slow_sender(3, 8)).empty());
}

TEST(SlowLinkDetector, SaysNothingOfAFlowThatIsSlowNowAndThen) {
  MadeUpJob job(8);
  job.ring_flows = true;
  EXPECT_TRUE(links_of(job, [](StepNumber step, std::vector<RankPlan>& ranks) {
                ranks[3].wire_ms = step % 3 == 0 ? 80 : 10;
              }).empty());
}

TEST(SlowLinkDetector, ALateRankIsNotCalledALink) {
  // Its GPU feeds its transfers late, so that they stay on the wire for long as well.
  MadeUpJob job(8);
  job.ring_flows = true;
  EXPECT_TRUE(links_of(job, [](StepNumber, std::vector<RankPlan>& ranks) {
                ranks[3].own_ms += 100;
                ranks[3].wire_ms = 80;
              }).empty());
}

TEST(SlowLinkDetector, NeedsOtherFlowsToCompareWith) {
  MadeUpJob job(2);
  job.ring_flows = true;
  EXPECT_TRUE(links_of(job, slow_sender(0)).empty());
}

TEST(SlowLinkDetector, WorksWhileAFifthOfTheRanksAreSilentAndReportsTheCoverage) {
  MadeUpJob job(10);
  job.ring_flows = true;
  std::vector<Finding> findings = links_of(job, [](StepNumber, std::vector<RankPlan>& ranks) {
    ranks[3].wire_ms = 80;
    ranks[6].silent = ranks[9].silent = true;
  });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{3_rank});
  EXPECT_DOUBLE_EQ(findings[0].coverage, 0.8);
}

// Four pairs, then two rows of four: no flows are told, the buffers hide the wire.
MadeUpJob pairs_and_rows() {
  MadeUpJob job(8);
  job.groups.clear();
  for (int32_t pair = 0; pair < 4; ++pair) {
    job.groups.push_back({.comm_id = CommId{10 + static_cast<uint64_t>(pair)},
                          .ranks = {Rank{pair}, Rank{pair + 4}},
                          .transfer_ms = 10,
                          .bytes = 50'000'000});
  }
  job.groups.push_back({.comm_id = CommId{20}, .ranks = {0_rank, 1_rank, 2_rank, 3_rank}, .transfer_ms = 10});
  job.groups.push_back({.comm_id = CommId{21}, .ranks = {4_rank, 5_rank, 6_rank, 7_rank}, .transfer_ms = 10});
  return job;
}

TEST(SlowLinkDetector, NamesASlowPairByComparingGroupsWhereNoFlowTells) {
  MadeUpJob job = pairs_and_rows();
  job.groups[2].transfer_ms = 80;  // ranks 2 and 6
  std::vector<Finding> findings = links_of(job, {});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, (std::vector<Rank>{2_rank, 6_rank}));
  EXPECT_EQ(findings[0].layer, Layer::kLink);
  EXPECT_EQ(findings[0].component, "link between ranks 2 and 6");
  EXPECT_FALSE(findings[0].sure) << "a busy machine looks alike; the node has to say it too";
  EXPECT_TRUE(findings[0].sure_with_signals);
}

TEST(SlowLinkDetector, OfASlowPairTheMemberIsNamedWhoseOtherGroupsAreSlowToo) {
  MadeUpJob job(9);
  job.groups.clear();
  for (int32_t row = 0; row < 3; ++row) {
    job.groups.push_back({.comm_id = CommId{10 + static_cast<uint64_t>(row)},
                          .ranks = {Rank{3 * row}, Rank{3 * row + 1}, Rank{3 * row + 2}},
                          .transfer_ms = 10,
                          .bytes = 1'000'000});
  }
  for (uint64_t pair = 0; pair < 4; ++pair) {
    const Rank rank = rank_at(pair);
    job.groups.push_back({.comm_id = CommId{20 + pair},
                          .ranks = {rank, rank + 4},
                          .transfer_ms = pair == 1 ? 80.0 : 10.0,
                          .bytes = 50'000'000});
  }
  job.groups[1].transfer_ms = 20;  // the row of rank 5, the partner of rank 1
  std::vector<Finding> findings = links_of(job, {});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{5_rank});
}

TEST(SlowLinkDetector, SaysNothingOfEqualGroups) {
  MadeUpJob job = pairs_and_rows();
  EXPECT_TRUE(links_of(job, {}).empty());
}

TEST(SlowLinkDetector, AGroupThatWaitsForALateRankIsNotSlow) {
  MadeUpJob job = pairs_and_rows();
  EXPECT_TRUE(links_of(job, [](StepNumber, std::vector<RankPlan>& ranks) { ranks[2].own_ms += 80; }).empty());
}

}  // namespace
}  // namespace lockstep
