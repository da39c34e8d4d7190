#include "diagnosis/network/suspects.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

NetworkComponent node(uint32_t number) {
  return {.node = number};
}
NetworkComponent link(uint32_t number) {
  return {.link = number};
}

FlowPath path(bool slow, std::vector<CrossedComponent> crossed) {
  return {.crossed = std::move(crossed), .slow = slow};
}

TEST(Suspects, WhatAllSlowFlowsCrossAndNoFastOneIsTheBest) {
  std::vector<FlowPath> flows;
  for (uint32_t i = 0; i < 4; ++i) flows.push_back(path(true, {{node(1)}, {node(10 + i)}}));
  for (uint32_t i = 0; i < 12; ++i) flows.push_back(path(false, {{node(2)}, {node(20 + i)}}));
  const std::vector<Suspect> suspects = rank_suspects(flows);
  ASSERT_FALSE(suspects.empty());
  EXPECT_EQ(suspects[0].component, node(1));
  EXPECT_EQ(suspects[0].slow_crossing, 4u);
  EXPECT_EQ(suspects[0].fast_crossing, 0u);
  for (const Suspect& each : suspects) EXPECT_NE(each.component, node(2)) << "no slow flow crosses it";
}

TEST(Suspects, ASwitchThatEveryPathCrossesIsNotGuiltyForThat) {
  std::vector<FlowPath> flows;
  for (uint32_t i = 0; i < 3; ++i) flows.push_back(path(true, {{node(1)}, {node(99)}}));
  for (uint32_t i = 0; i < 30; ++i) flows.push_back(path(false, {{node(2 + i % 3)}, {node(99)}}));
  const std::vector<Suspect> suspects = rank_suspects(flows);
  EXPECT_EQ(suspects[0].component, node(1));
  EXPECT_EQ(suspects.back().component, node(99));
  EXPECT_LT(suspects.back().score, 0) << "nothing at all explains it better";
}

TEST(Suspects, ButItIsWhereNearlyAllOfThemAreSlow) {
  std::vector<FlowPath> flows;
  for (uint32_t i = 0; i < 30; ++i) flows.push_back(path(true, {{node(i)}, {node(99)}}));
  flows.push_back(path(false, {{node(50)}, {node(99)}}));
  EXPECT_EQ(rank_suspects(flows)[0].component, node(99));
}

TEST(Suspects, OfEqualLinksNobodySawWhichSoTheyStayEqual) {
  std::vector<FlowPath> flows;
  auto over_four = [](bool slow) {
    FlowPath made = path(slow, {{node(7)}});
    for (uint32_t i = 0; i < 4; ++i) made.crossed.push_back({link(i), 0.25});
    return made;
  };
  flows.push_back(over_four(true));
  for (int i = 0; i < 6; ++i) flows.push_back(over_four(false));
  const std::vector<Suspect> suspects = rank_suspects(flows);
  ASSERT_EQ(suspects.size(), 5u);
  for (size_t i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(suspects[i].score, suspects[0].score);
  EXPECT_EQ(suspects[4].component, node(7)) << "the leaf itself would slow all seven";
}

TEST(Suspects, OnePathThatWasSeenTellsEqualLinksApart) {
  std::vector<FlowPath> flows;
  flows.push_back(path(true, {{link(2), 1}}));
  for (int i = 0; i < 6; ++i) {
    FlowPath fast = path(false, {});
    for (uint32_t each = 0; each < 4; ++each) fast.crossed.push_back({link(each), 0.25});
    flows.push_back(fast);
  }
  const std::vector<Suspect> suspects = rank_suspects(flows);
  ASSERT_EQ(suspects.size(), 1u);
  EXPECT_EQ(suspects[0].component, link(2));
}

TEST(Suspects, OfWhatExplainsItAlikeTheSmallerComesFirst) {
  std::vector<FlowPath> flows;
  for (int i = 0; i < 3; ++i) flows.push_back(path(true, {{node(1)}, {node(2)}}));
  flows.push_back(path(true, {{node(2)}}));
  flows.push_back(path(false, {{node(3)}}));
  // node 2 explains the fourth flow as well, node 1 does not.
  EXPECT_EQ(rank_suspects(flows)[0].component, node(2));
  flows.erase(flows.begin() + 3);
  EXPECT_DOUBLE_EQ(rank_suspects(flows)[0].score, rank_suspects(flows)[1].score);
}

}  // namespace
}  // namespace lockstep
