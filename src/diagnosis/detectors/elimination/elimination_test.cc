#include "diagnosis/detectors/elimination/elimination.h"

#include <gtest/gtest.h>

#include <deque>

#include "diagnosis/testing.h"
#include "diagnosis/verdicts/verdict_sentence.h"

namespace lockstep {
namespace {

using testing::MadeUpJob;
using testing::PlannedGroup;
using testing::RankPlan;

// 16 ranks: pairs beside each other, and two groups of eight across; all send around a ring.
MadeUpJob job_of_pairs() {
  MadeUpJob job(16);
  job.groups.clear();
  for (int32_t pair = 0; pair < 8; ++pair)
    job.groups.push_back(
        {.comm_id = CommId{static_cast<uint64_t>(100 + pair)}, .ranks = {Rank{2 * pair}, Rank{2 * pair + 1}}});
  for (int32_t across = 0; across < 2; ++across) {
    PlannedGroup group{.comm_id = CommId{static_cast<uint64_t>(200 + across)}};
    for (int32_t pair = 0; pair < 8; ++pair) group.ranks.push_back(Rank{2 * pair + across});
    job.groups.push_back(group);
  }
  job.ring_flows = true;
  return job;
}

constexpr size_t kSilent = 12;

void silent_and_slow_from(StepNumber step, StepNumber number, std::vector<RankPlan>& plans) {
  plans[kSilent].silent = true;
  if (number >= step) plans[kSilent].own_ms *= 1.6;
}

TEST(Elimination, NamesTheSilentRankWhenNobodyElseCanBeLate) {
  MadeUpJob job = job_of_pairs();
  JobWindow window;
  job.play(window, 0_step, 40_step,
           [](StepNumber number, std::vector<RankPlan>& plans) { silent_and_slow_from(30_step, number, plans); });
  const std::vector<Finding> found = find_by_elimination(window, {});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].ranks, (std::vector<Rank>{12_rank}));
  EXPECT_EQ(found[0].layer, Layer::kUnknown);
  EXPECT_EQ(found[0].since_step, 30_step);
  EXPECT_TRUE(found[0].sure);
  EXPECT_TRUE(verdict_sentence(found[0], {})
                  .starts_with("Only rank 12 can be late: nothing is heard of it, and all others wait "))
      << found[0].sentence;
}

TEST(Elimination, SaysSinceWhenNothingIsHeard) {
  MadeUpJob job = job_of_pairs();
  JobWindow window;
  job.play(window, 0_step, 90_step, [](StepNumber number, std::vector<RankPlan>& plans) {
    silent_and_slow_from(80_step, number, plans);
    plans[kSilent].silent = number > 20_step;
  });
  const std::vector<Finding> found = find_by_elimination(window, {});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].sentence.find("nothing has been heard of it since step 20, nor of node-1"), std::string::npos)
      << found[0].sentence;
}

TEST(Elimination, ARankWhoseReportsAreLateIsNotSilent) {
  MadeUpJob job = job_of_pairs();
  JobWindow window;
  std::deque<std::pair<Identity, StepSummary>> on_their_way;
  for (StepNumber number = 0_step; number <= 90_step; ++number) {
    const auto rows = job.step(number, [](StepNumber step, std::vector<RankPlan>& plans) {
      if (step >= 60_step) plans[kSilent].own_ms *= 1.6;
    });
    for (const auto& [who, row] : rows) {
      if (index_of(who.rank) == kSilent) {
        on_their_way.emplace_back(who, row);
      } else {
        window.add_step(who, row, job.now_unix_ns());
      }
    }
    // More than half of the window behind: it is not waited for, and yet not silent.
    if (on_their_way.size() <= JobWindow::kStepsMax / 2 + 2) continue;
    window.add_step(on_their_way.front().first, on_their_way.front().second, job.now_unix_ns());
    on_their_way.pop_front();
  }
  ASSERT_EQ(window.complete_steps().back(), 90_step);
  EXPECT_TRUE(find_by_elimination(window, {}).empty());
}

TEST(Elimination, ASilentRankOfAHealthyJobIsNotAccused) {
  MadeUpJob job = job_of_pairs();
  JobWindow window;
  job.play(window, 0_step, 80_step, [](StepNumber, std::vector<RankPlan>& plans) { plans[kSilent].silent = true; });
  ASSERT_EQ(window.complete_steps().back(), 80_step);
  EXPECT_TRUE(find_by_elimination(window, {}).empty());
}

TEST(Elimination, WhoIsHeardOfAndLateIsNotExcused) {
  MadeUpJob job = job_of_pairs();
  JobWindow window;
  job.play(window, 0_step, 40_step, [](StepNumber number, std::vector<RankPlan>& plans) {
    plans[kSilent].silent = true;
    if (number >= 30_step) plans[3].own_ms *= 1.6;
  });
  EXPECT_TRUE(find_by_elimination(window, {}).empty());
}

TEST(Elimination, ASlowNetworkIsNotBlamedOnWhoIsSilent) {
  MadeUpJob job = job_of_pairs();
  JobWindow window;
  job.play(window, 0_step, 40_step, [](StepNumber number, std::vector<RankPlan>& plans) {
    plans[kSilent].silent = true;
    if (number >= 30_step)
      for (RankPlan& plan : plans) plan.wire_ms = 80;
  });
  EXPECT_TRUE(find_by_elimination(window, {}).empty());
}

TEST(Elimination, OneSlowFlowAmongManyIsNotBlamedOnWhoIsSilent) {
  MadeUpJob job(16);
  job.ring_flows = true;
  JobWindow window;
  job.play(window, 0_step, 60_step, [](StepNumber number, std::vector<RankPlan>& plans) {
    plans[kSilent].silent = true;
    if (number >= 50_step) plans[3].wire_ms = 40;
  });
  EXPECT_TRUE(find_by_elimination(window, {}).empty());
}

TEST(Elimination, TransfersThatWereNotToldBeforeExcludeNoNetwork) {
  MadeUpJob job = job_of_pairs();
  JobWindow window;
  for (StepNumber number = 0_step; number <= 40_step; ++number) {
    job.ring_flows = number >= 30_step;
    job.play(window, number, number,
             [](StepNumber step, std::vector<RankPlan>& plans) { silent_and_slow_from(30_step, step, plans); });
  }
  const std::vector<Finding> found = find_by_elimination(window, {});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_FALSE(found[0].sure);
}

// As where shards are fetched beside the work: own time is next to nothing, and longer sequences lengthen collectives.
TEST(Elimination, WorkThatGrowsBeneathCommunicationIsNotBlamedOnWhoIsSilent) {
  MadeUpJob job(8);
  job.ring_flows = true;
  JobWindow window;
  for (StepNumber number = 0_step; number <= 40_step; ++number) {
    job.groups.front().transfer_ms = number >= 30_step ? 141 : 111;
    job.play(window, number, number, [](StepNumber, std::vector<RankPlan>& plans) {
      plans[4].silent = true;
      for (RankPlan& plan : plans) plan.own_ms *= 0.09;
    });
  }
  EXPECT_TRUE(find_by_elimination(window, {}).empty());
}

TEST(Elimination, MoreWorkOnAllThatAreHeardOfIsNotBlamedOnWhoIsSilent) {
  MadeUpJob job = job_of_pairs();
  JobWindow window;
  job.play(window, 0_step, 40_step, [](StepNumber number, std::vector<RankPlan>& plans) {
    plans[kSilent].silent = true;
    if (number < 30_step) return;
    for (RankPlan& plan : plans) plan.own_ms *= 1.3;
    plans[kSilent].own_ms *= 1.25;
  });
  EXPECT_TRUE(find_by_elimination(window, {}).empty());
}

TEST(Elimination, GivesWayToWhoIsHeardOfAndBecameSlowWhenTheJobDid) {
  MadeUpJob job = job_of_pairs();
  JobWindow window;
  job.play(window, 0_step, 40_step,
           [](StepNumber number, std::vector<RankPlan>& plans) { silent_and_slow_from(30_step, number, plans); });
  const AttributedRange other{.rank = 3_rank, .from_step = 30_step, .to_step = 40_step};
  EXPECT_TRUE(find_by_elimination(window, {other}).empty());
  const AttributedRange long_before{.rank = 3_rank, .from_step = 10_step, .to_step = 40_step};
  EXPECT_EQ(find_by_elimination(window, {long_before}).size(), 1u);
  const AttributedRange suspected{.rank = 3_rank, .from_step = 30_step, .to_step = 40_step, .sure = false};
  EXPECT_EQ(find_by_elimination(window, {suspected}).size(), 1u);
}

TEST(Elimination, WithoutTransfersItIsSuspectedOnly) {
  MadeUpJob job = job_of_pairs();
  job.ring_flows = false;
  JobWindow window;
  job.play(window, 0_step, 40_step,
           [](StepNumber number, std::vector<RankPlan>& plans) { silent_and_slow_from(30_step, number, plans); });
  const std::vector<Finding> found = find_by_elimination(window, {});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_FALSE(found[0].sure);
}

TEST(Elimination, AJobThatAllAreHeardOfHasNobodyToNameThisWay) {
  MadeUpJob job = job_of_pairs();
  JobWindow window;
  job.play(window, 0_step, 40_step, [](StepNumber number, std::vector<RankPlan>& plans) {
    if (number >= 30_step) plans[kSilent].own_ms *= 1.6;
  });
  EXPECT_TRUE(find_by_elimination(window, {}).empty());
}

}  // namespace
}  // namespace lockstep
