#include "agent/own_cost.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>

namespace lockstep {
namespace {

constexpr int64_t kWindow = OwnCost::kWindowNs;

TEST(OwnCost, TwoWindowsOverTheBudgetSlowTheSourcesDown) {
  OwnCost cost(0.03);
  EXPECT_FALSE(cost.note({.cpu_seconds = 0}, 0));
  EXPECT_FALSE(cost.note({.cpu_seconds = 0.5}, kWindow));  // 5 %
  EXPECT_EQ(cost.note({.cpu_seconds = 1.0}, 2 * kWindow), 1);
  EXPECT_DOUBLE_EQ(cost.cpu_share(), 0.05);
}

TEST(OwnCost, OneBusyWindowChangesNothing) {
  OwnCost cost(0.03);
  double used = 0;
  for (int64_t i = 0; i < 20; ++i)
    EXPECT_FALSE(cost.note({.cpu_seconds = used += i % 2 == 0 ? 0.5 : 0.1}, i * kWindow));
}

TEST(OwnCost, GoesBackOnlyWhenTheLowerLevelWouldFitWithRoomToSpare) {
  OwnCost cost(0.03);
  double used = 0;
  int64_t now = 0;
  auto window = [&](double share) {
    used += share * 10;
    return cost.note({.cpu_seconds = used}, now += kWindow);
  };
  cost.note({}, 0);
  window(0.05);
  EXPECT_EQ(window(0.05), 1);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(window(0.025));  // at level 0 it would be 5 % again
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(window(0.005));
  EXPECT_EQ(window(0.005), 0);
}

TEST(OwnCost, MeasuresThisProcess) {
  const OwnUse before = measure_own_use(-1);
  volatile double sink = 0;
  for (int i = 0; i < 20'000'000; ++i) sink = sink + 1;
  const OwnUse after = measure_own_use(-1);
  EXPECT_GT(after.cpu_seconds, before.cpu_seconds);
  EXPECT_GT(after.rss_bytes, 1'000'000u);
}

// As its own child everything counts twice; and what children that have ended used counts for good.
TEST(OwnCost, IsThatOfThisProcessItsReaderAndThoseBefore) {
  const auto spin = [](double seconds) {
    const clock_t end = clock() + static_cast<clock_t>(seconds * CLOCKS_PER_SEC);
    while (clock() < end) {
    }
  };
  spin(0.1);
  const OwnUse alone = measure_own_use(0), twice = measure_own_use(::getpid());
  EXPECT_GT(alone.rss_bytes, 1u << 20);
  EXPECT_GT(twice.rss_bytes, alone.rss_bytes + alone.rss_bytes / 2);
  EXPECT_GT(twice.cpu_seconds, 1.5 * alone.cpu_seconds);
  const pid_t child = ::fork();
  if (child == 0) {
    spin(0.1);
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_GT(measure_own_use(0).cpu_seconds, alone.cpu_seconds + 0.09);
}

}  // namespace
}  // namespace lockstep
