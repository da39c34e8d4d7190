#include "diagnosis/network/seen_flows.h"

#include <gtest/gtest.h>

#include "diagnosis/testing.h"

namespace lockstep {
namespace {

using testing::MadeUpJob;
using testing::RankPlan;

constexpr size_t kRanks = 32;

// Four hosts of eight. Position i of the communicator is rank i % 4 * 8 + i / 4, so that most of the ring goes from host
// to host. Each rank may send to the next one over a second communicator as well.
class SeenFlowsTest : public ::testing::Test {
 protected:
  SeenFlowsTest() {
    job_.ring_flows = true;
    job_.flow_wire_ms = 20;
    for (size_t i = 0; i < kRanks; ++i) job_.groups.front().ranks[i] = Rank(static_cast<int32_t>(i % 4 * 8 + i / 4));
  }
  void play(const std::vector<size_t>& slow, bool twice = false) {
    if (twice) {
      job_.groups.push_back(job_.groups.front());
      job_.groups.back().comm_id = CommId(77);
    }
    for (StepNumber number = 0_step; number <= 20_step; ++number) {
      auto plan = [&](StepNumber step, std::vector<RankPlan>& ranks) {
        for (size_t rank : slow) ranks[rank].wire_ms = step < 10_step ? 20 : 60;
      };
      for (auto& [who, row] : job_.step(number, plan)) {
        if (twice) {
          row.flows.push_back(row.flows.front());
          row.flows.back().comm_id = CommId(77);
        }
        window_.add_step(who, row);
      }
    }
  }
  std::vector<SeenFlow> see(size_t others_max, size_t flows_max) const {
    const std::vector<Rank> ranks = {15_rank};
    return see_flows(window_, {17_step, 18_step, 19_step, 20_step}, 10_step, {ranks, others_max, flows_max});
  }

  MadeUpJob job_{kRanks};
  JobWindow window_;
};

TEST_F(SeenFlowsTest, OnlyThoseBetweenHostsCount) {
  play({15, 3});  // rank 3 sends to rank 1
  const std::vector<SeenFlow> flows = see(kRanks, 1'000);
  EXPECT_EQ(flows.size(), 24u);
  for (const SeenFlow& flow : flows) {
    EXPECT_NE(flow.from.value() / 8, flow.to.value() / 8);
    EXPECT_EQ(flow.slow, flow.from == 15_rank);
  }
}

TEST_F(SeenFlowsTest, WhatTwoRanksExchangeOverTwoCommunicatorsIsOneFlow) {
  play({15}, true);
  const std::vector<SeenFlow> flows = see(kRanks, 1'000);
  EXPECT_EQ(flows.size(), 24u);
  for (const SeenFlow& flow : flows) EXPECT_EQ(flow.slow, flow.from == 15_rank);
}

TEST_F(SeenFlowsTest, OfTooManyTheSlowOnesStayAndTheOthersAreEvenlyChosen) {
  play({15, 28});
  const std::vector<SeenFlow> flows = see(kRanks, 16);
  EXPECT_EQ(flows.size(), 16u);
  EXPECT_EQ(std::count_if(flows.begin(), flows.end(), [](const SeenFlow& flow) { return flow.slow; }), 2);
  EXPECT_GE(flows.back().from, 24_rank);
}

TEST_F(SeenFlowsTest, WhereEachRankHasManyFewerAreAskedButAlwaysThoseOfTheFinding) {
  play({15});
  const std::vector<SeenFlow> flows = see(kRanks, 2);  // every eighth rank and 15, of which one sends within its host
  ASSERT_FALSE(flows.empty());
  EXPECT_EQ(flows.front().from, 15_rank);
  EXPECT_LE(flows.size(), 2u);
}

}  // namespace
}  // namespace lockstep
