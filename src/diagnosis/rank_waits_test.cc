#include "diagnosis/rank_waits.h"

#include <gtest/gtest.h>

#include "diagnosis/testing.h"

namespace lockstep {
namespace {

using testing::kMs;
using testing::MadeUpJob;
using testing::PlannedGroup;
using testing::RankPlan;

std::vector<std::string> waits_of(MadeUpJob& job, const testing::StepPlan& plan) {
  JobWindow window;
  job.noise = 0;
  job.play(window, 0_step, 4_step, plan);
  std::vector<std::string> all;
  for (const fabric::RankWait& wait : waits_in(window, *window.frame(4_step)))
    all.push_back(format("%d-%d %.0f ms", wait.waiter.value(), wait.awaited.value(), wait.seconds * 1e3));
  std::sort(all.begin(), all.end());
  return all;
}

TEST(RankWaits, EverybodyWaitsForWhoIsLate) {
  MadeUpJob job(4);
  EXPECT_EQ(waits_of(job, [](StepNumber, std::vector<RankPlan>& ranks) { ranks[2].own_ms += 60; }),
            (std::vector<std::string>{"0-2 60 ms", "1-2 60 ms", "3-2 60 ms"}));
}

// A late rank's neighbour is late in the next group because of it: the edges lead on to who is guilty.
TEST(RankWaits, LeadFromGroupToGroup) {
  MadeUpJob job(4);
  PlannedGroup across = job.groups[0], pairs = job.groups[0];
  pairs.ranks = {0_rank, 1_rank};
  pairs.comm_id = CommId{0xC1};
  across.ranks = {1_rank, 2_rank, 3_rank};
  across.comm_id = CommId{0xC2};
  job.groups = {pairs, across};
  EXPECT_EQ(waits_of(job, [](StepNumber, std::vector<RankPlan>& ranks) { ranks[0].own_ms += 60; }),
            (std::vector<std::string>{"1-0 60 ms", "2-1 80 ms", "3-1 80 ms"}));
}

TEST(RankWaits, NoiseAndUnknownRanksAreNoWaits) {
  MadeUpJob job(4);
  EXPECT_TRUE(waits_of(job, [](StepNumber, std::vector<RankPlan>& ranks) {
                ranks[2].own_ms += 2;  // of 120: below the noise
                ranks[3].unseen = true;
              }).empty());
}

}  // namespace
}  // namespace lockstep
