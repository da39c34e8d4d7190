#include "sources/nccl/p2p_groups.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr int32_t kSize = 4;
constexpr int32_t kOwn = 1;

// Sends to (or receives from) these peers, 10 bytes each, all at once.
std::vector<P2pPart> parts(std::vector<int32_t> sends, std::vector<int32_t> receives) {
  std::vector<P2pPart> all;
  for (int32_t peer : sends) all.push_back({true, peer, 10, 100, 200});
  for (int32_t peer : receives) all.push_back({false, peer, 10, 100, 200});
  return all;
}
Function named(std::vector<int32_t> sends, std::vector<int32_t> receives, int32_t size = kSize) {
  return recognise(parts(std::move(sends), std::move(receives)), size, kOwn).function;
}

TEST(Recognise, AnAlltoAllWithOrWithoutTheOwnPart) {
  EXPECT_EQ(named({0, 2, 3}, {0, 2, 3}), Function::kAlltoAll);
  EXPECT_EQ(named({0, 1, 2, 3}, {0, 1, 2, 3}), Function::kAlltoAll);
  EXPECT_EQ(named({3, 2, 0}, {0, 1, 2, 3}), Function::kAlltoAll);
  GroupWork work = recognise(parts({0, 1, 2, 3}, {0, 1, 2, 3}), kSize, kOwn);
  EXPECT_EQ(work.operations, 1u);
  EXPECT_EQ(work.bytes, 40u);
  EXPECT_DOUBLE_EQ(work.bus_bytes, 30);
  EXPECT_EQ(work.gpu_ns, 100u);
}

TEST(Recognise, OfThePartToItselfNoTimeIsNeeded) {
  std::vector<P2pPart> all = parts({0, 1, 2, 3}, {0, 1, 2, 3});
  for (P2pPart& part : all) {
    if (part.peer == kOwn) part.start_ns = part.stop_ns = 0;
  }
  EXPECT_EQ(recognise(all, kSize, kOwn).gpu_ns, 100u);
  EXPECT_DOUBLE_EQ(recognise(all, kSize, kOwn).bus_bytes, 30);
}

TEST(Recognise, AnAlltoAllOfUnequalParts) {
  std::vector<P2pPart> all = parts({0, 2, 3}, {0, 2, 3});
  all[1].bytes = 1000;
  all[2].stop_ns = 250;
  GroupWork work = recognise(all, kSize, kOwn);
  EXPECT_EQ(work.function, Function::kAlltoAll);
  EXPECT_EQ(work.bytes, 1020u);
  EXPECT_EQ(work.gpu_ns, 150u);
}

TEST(Recognise, TheRootOfAGatherAndOfAScatter) {
  EXPECT_EQ(named({}, {0, 2, 3}), Function::kGather);
  EXPECT_EQ(named({1}, {0, 1, 2, 3}), Function::kGather);
  EXPECT_EQ(named({0, 2, 3}, {}), Function::kScatter);
  EXPECT_EQ(named({0, 1, 2, 3}, {1}), Function::kScatter);
  EXPECT_EQ(recognise(parts({1}, {0, 1, 2, 3}), kSize, kOwn).bytes, 40u);
}

TEST(Recognise, OrdinarySendsAndReceivesStaySo) {
  EXPECT_EQ(named({0}, {}), Function::kUnknown);         // a member of a gather, or anything
  EXPECT_EQ(named({2}, {0}), Function::kUnknown);        // a pipeline
  EXPECT_EQ(named({0, 2}, {0, 2}), Function::kUnknown);  // not all
  EXPECT_EQ(named({0, 2, 3}, {0, 2}), Function::kUnknown);
  EXPECT_EQ(named({0, 2, 3}, {0}), Function::kUnknown);
  EXPECT_EQ(named({0, 2, 3, 3}, {0, 2, 3}), Function::kUnknown);
  EXPECT_EQ(named({}, {}), Function::kUnknown);
  EXPECT_EQ(named({0}, {0}, 2), Function::kUnknown);  // two that exchange
  EXPECT_EQ(named({0, 2, 9}, {0, 2, 9}), Function::kUnknown);
}

TEST(Recognise, SeveralInOneGroupAreAsMany) {
  EXPECT_EQ(recognise(parts({0, 2, 3, 0, 2, 3}, {0, 0, 2, 2, 3, 3}), kSize, kOwn).operations, 2u);
  EXPECT_EQ(named({0, 2, 3, 0, 2, 3}, {0, 2, 3}), Function::kUnknown);
}

TEST(Recognise, WithoutTheTimeOfEveryPartThereIsNone) {
  std::vector<P2pPart> all = parts({0, 2, 3}, {0, 2, 3});
  all[4].start_ns = all[4].stop_ns = 0;
  GroupWork work = recognise(all, kSize, kOwn);
  EXPECT_EQ(work.function, Function::kAlltoAll);
  EXPECT_EQ(work.gpu_ns, 0u);
  EXPECT_EQ(work.bus_bytes, 0);
  EXPECT_EQ(work.bytes, 30u);
}

TEST(P2pGroups, SettleOnceEveryPartHasComeAndNothingIsAdded) {
  P2pGroups groups;
  P2pGroups::Key first = groups.opened(0, 5, true, 2);
  groups.done(first, {});
  EXPECT_TRUE(groups.settle(false).empty());  // just touched
  P2pGroups::Key second = groups.opened(0, 5, false, 2);
  EXPECT_EQ(first, second);
  EXPECT_TRUE(groups.settle(false).empty());
  EXPECT_TRUE(groups.settle(false).empty());  // one is still open
  groups.done(second, {});
  std::vector<P2pGroups::Settled> settled = groups.settle(false);
  ASSERT_EQ(settled.size(), 1u);
  EXPECT_EQ(settled[0].parts.size(), 2u);
  EXPECT_TRUE(groups.settle(true).empty());
}

TEST(P2pGroups, APartThatIsLostHoldsNothingUp) {
  P2pGroups groups;
  groups.done(groups.opened(0, 5, true, 2), {});
  groups.lost(groups.opened(0, 5, true, 3));
  groups.settle(false);
  std::vector<P2pGroups::Settled> settled = groups.settle(false);
  ASSERT_EQ(settled.size(), 1u);
  EXPECT_EQ(settled[0].parts.size(), 1u);
}

TEST(P2pGroups, OfACapturedGraphEachReplayIsARound) {
  P2pGroups groups;
  constexpr uint32_t kGraph = 1u << 31 | 5;
  P2pGroups::Key first = groups.opened(0, kGraph, true, 2);
  EXPECT_EQ(groups.opened(0, kGraph, false, 2), first);
  EXPECT_NE(groups.opened(0, kGraph, true, 2), first);
  EXPECT_EQ(groups.opened(0, 5, true, 2), groups.opened(0, 5, true, 2));  // else a repetition is no new group
}

}  // namespace
}  // namespace lockstep
