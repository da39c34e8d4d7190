#include "agent/detail/detail_policy.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr uint32_t kAll = 0x5e;
constexpr uint32_t kThinned = 0x1e;  // without kernel events

// A policy over a process that does what it is asked.
struct Process {
  DetailPolicy policy;
  int64_t now_ns = 1'000 * kSecond;
  uint32_t mask = kAll;
  uint64_t control = 0;
  uint64_t operations = 0;
  uint64_t transfers = 0;

  std::optional<DetailPolicy::Change> poll(bool overwritten, bool silence = false) {
    now_ns += kSecond / 20;
    auto change = policy.decide(
        {.now_ns = now_ns, .overwritten = overwritten, .silence = silence, .mask = mask, .control = control});
    if (change) {
      control = change->request.word();
      mask = change->request.mask;
    }
    return change;
  }
  // The first change within so many looks at an overwritten ring.
  std::optional<DetailPolicy::Change> overwritten(int looks) {
    for (int i = 0; i < looks; ++i) {
      if (auto change = poll(true)) return change;
    }
    return std::nullopt;
  }
  void operator_asks(uint16_t wanted, int64_t seconds) {
    control = DetailControl{wanted, static_cast<uint32_t>(now_ns / kSecond + seconds)}.word();
  }
};

TEST(DetailPolicy, LeavesAProcessAloneThatIsDrainedInTime) {
  Process process;
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(process.poll(false));
  EXPECT_FALSE(process.overwritten(2));
}

TEST(DetailPolicy, TakesTheNetworksStepsAwayFirstAndThenAllButTheOperations) {
  Process process;
  auto first = process.overwritten(10);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->request.mask, 0x4e);
  EXPECT_FALSE(first->up);
  EXPECT_EQ(first->request.until_s, process.now_ns / kSecond + 60);
  EXPECT_FALSE(process.overwritten(2)) << "one is given time to show";
  auto second = process.overwritten(10);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->request.mask, 0x06);
  EXPECT_FALSE(process.overwritten(100)) << "there is no less";
}

// Seconds of a job at a steady pace on a node with or without room; the last change in them.
std::optional<DetailPolicy::Change> run(Process& process, bool crowded, int seconds, uint64_t operations_per_s,
                                        uint64_t transfers_per_s) {
  std::optional<DetailPolicy::Change> last;
  for (int i = 0; i < 4 * seconds; ++i) {
    process.now_ns += kSecond / 4;
    process.operations += operations_per_s / 4;
    process.transfers += transfers_per_s / 4;
    auto change = process.policy.decide({.now_ns = process.now_ns,
                                         .mask = process.mask,
                                         .control = process.control,
                                         .crowded = crowded,
                                         .operations = process.operations,
                                         .transfers = process.transfers});
    if (!change) continue;
    process.control = change->request.word();
    last = change;
  }
  return last;
}

TEST(DetailPolicy, SamplesTransfersWhereTheyComeFastAndNoCoreIsToSpare) {
  Process with_room, slow, process;
  EXPECT_FALSE(run(with_room, false, 60, 300, 8000));
  EXPECT_FALSE(run(slow, true, 60, 300, 800)) << "they cost next to nothing";
  const auto asked = run(process, true, 12, 300, 8000);
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->request.mask, kDetailSampled);
  EXPECT_FALSE(asked->up);
}

TEST(DetailPolicy, GoesOnSamplingWhileThereIsNoRoomAndEndsAfterwards) {
  Process process;
  ASSERT_TRUE(run(process, true, 12, 300, 8000));
  ASSERT_TRUE(run(process, true, 300, 300, 1000)) << "fewer are seen now, and that is no reason to end";
  EXPECT_TRUE(DetailControl::from(process.control, static_cast<uint64_t>(process.now_ns)));
  run(process, false, 70, 300, 1000);
  EXPECT_FALSE(DetailControl::from(process.control, static_cast<uint64_t>(process.now_ns)));
}

TEST(DetailPolicy, AJobThatBecomesSlowIsSeenWhole) {
  Process process;
  ASSERT_TRUE(run(process, true, 12, 300, 8000));
  const auto asked = run(process, true, 12, 100, 300);
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->request.mask, kDetailFull);
  EXPECT_TRUE(asked->up);
}

TEST(DetailPolicy, AJobThatBecomesSlowIsSeenWholeWhereItsRecordsCameTooFastToo) {
  Process process;
  EXPECT_FALSE(run(process, false, 12, 2000, 30'000));
  const auto less = process.overwritten(10);
  ASSERT_TRUE(less);
  EXPECT_EQ(less->request.mask, 0x4e);
  EXPECT_FALSE(run(process, false, 12, 2000, 0)) << "as fast as before";
  const auto asked = run(process, false, 12, 100, 0);
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->request.mask, kDetailFull);
  EXPECT_TRUE(asked->up);
}

TEST(DetailPolicy, WhatIsUsualIsLearntAfterwardsWhereTheJobHasJustBegun) {
  Process process;
  ASSERT_TRUE(process.overwritten(10));
  EXPECT_FALSE(run(process, false, 12, 2000, 0));
  const auto asked = run(process, false, 12, 100, 0);
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->request.mask, kDetailFull);
}

TEST(DetailPolicy, APaceThatChangedWhileNothingWasLeftOutIsTheUsualOne) {
  Process process;
  ASSERT_TRUE(run(process, true, 12, 300, 8000));
  run(process, false, 120, 100, 8000);  // with room again: the wish is over, and then the job does other work
  const auto again = run(process, true, 12, 100, 8000);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->request.mask, kDetailSampled);
  EXPECT_FALSE(run(process, true, 12, 100, 1000)) << "that is its pace now";
}

TEST(DetailPolicy, AnOperatorsWishIsNotReplacedBySampling) {
  Process process;
  process.operator_asks(kDetailFull, 600);
  EXPECT_FALSE(run(process, true, 60, 300, 8000));
}

TEST(DetailPolicy, OverwritingNowAndThenIsNoReason) {
  Process process;
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(process.poll(true));
    process.now_ns += 6 * kSecond;
  }
}

TEST(DetailPolicy, BeginsAgainWhenItsWishIsOver) {
  Process process;
  ASSERT_TRUE(process.overwritten(3));
  process.now_ns += 61 * kSecond;
  process.mask = kAll;  // the plugin chooses again
  auto again = process.overwritten(10);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->request.mask, 0x4e);
}

TEST(DetailPolicy, WhereThereAreNoStepsGoesStraightToTheOperations) {
  Process process;
  process.mask = 0x4e;
  auto change = process.overwritten(3);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->request.mask, 0x06);
}

TEST(DetailPolicy, RaisesAThinnedProcessThatFallsSilentOnce) {
  Process process;
  process.mask = kThinned;
  auto change = process.policy.decide({process.now_ns, false, true, kThinned, 0});
  ASSERT_TRUE(change);
  EXPECT_TRUE(change->up);
  EXPECT_EQ(change->request.mask, 0x5e);
  // It does not look at the word while it is silent.
  EXPECT_FALSE(process.policy.decide({process.now_ns + kSecond, false, true, kThinned, change->request.word()}));
  EXPECT_TRUE(process.policy.decide({process.now_ns + 61 * kSecond, false, true, kThinned, change->request.word()}));
}

TEST(DetailPolicy, LeavesAProcessThatSeesItsKernelsAsItIs) {
  Process process;
  EXPECT_FALSE(process.poll(false, true));
  process.mask = 0;  // no communicator yet
  EXPECT_FALSE(process.poll(false, true));
}

TEST(DetailPolicy, DoesNotRaiseWhatItHasJustLowered) {
  Process process;
  ASSERT_TRUE(process.overwritten(3));
  ASSERT_TRUE(process.overwritten(3));
  EXPECT_FALSE(process.poll(false, true));
}

TEST(DetailPolicy, LowersWhatItHasRaisedWhereThatIsTooMuch) {
  Process process;
  process.mask = kThinned;
  ASSERT_TRUE(process.poll(false, true));
  auto change = process.overwritten(3);
  ASSERT_TRUE(change);
  EXPECT_EQ(change->request.mask, 0x4e);
}

TEST(DetailPolicy, NeverOverridesAnOperatorsWishThatIsStillGood) {
  Process process;
  process.operator_asks(0x5e, 30);
  EXPECT_FALSE(process.overwritten(100));
  process.mask = kThinned;
  process.operator_asks(0x1e, 30);
  EXPECT_FALSE(process.poll(false, true));
  process.now_ns += 31 * kSecond;
  EXPECT_TRUE(process.poll(false, true));
}

TEST(DetailPolicy, AnOperatorTakesOverFromTheAgent) {
  Process process;
  ASSERT_TRUE(process.overwritten(3));
  process.operator_asks(0x5e, 30);
  process.mask = kAll;
  EXPECT_FALSE(process.overwritten(100));
}

TEST(DetailPolicy, LeavesAProcessThatCannotBeAskedForGood) {
  Process process;
  ASSERT_TRUE(process.overwritten(3));
  process.policy.give_up();
  process.now_ns += 100 * kSecond;
  EXPECT_FALSE(process.overwritten(100));
}

TEST(DetailPolicy, AsksForEverythingOfAProcessThatIsBeingProfiled) {
  const auto look = [](Process& process) {
    process.now_ns += kSecond / 20;
    return process.policy.decide(
        {.now_ns = process.now_ns, .mask = process.mask, .control = process.control, .profiled = true});
  };
  Process process;
  EXPECT_FALSE(look(process)) << "it records everything";
  process.mask = kThinned;
  const auto change = look(process);
  ASSERT_TRUE(change);
  EXPECT_TRUE(change->up);
  EXPECT_EQ(change->request.mask, kDetailFull);
  process.control = change->request.word();
  EXPECT_FALSE(look(process)) << "it was asked";
  Process busy;
  ASSERT_TRUE(busy.overwritten(3));
  EXPECT_FALSE(look(busy)) << "more than can be read is no more";
}

TEST(DetailPolicy, KnowsWhetherEverythingWasAskedFor) {
  const DetailControl full{0x5e, 100}, less{0x4e, 100};
  EXPECT_TRUE(full_detail_asked(full.word(), 99 * kSecond));
  EXPECT_FALSE(full_detail_asked(full.word(), 100 * kSecond));
  EXPECT_FALSE(full_detail_asked(less.word(), 99 * kSecond));
  EXPECT_FALSE(full_detail_asked(0, 99 * kSecond));
}

}  // namespace
}  // namespace lockstep
