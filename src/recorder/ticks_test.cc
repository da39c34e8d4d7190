#include "recorder/ticks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace lockstep {
namespace {

TEST(TickClock, KeepsToTheSystemsClockAndNeverGoesBack) {
  TickClock::prepare();
  if (!TickClock::usable()) GTEST_SKIP() << "the kernel does not keep time by this machine's counter";
  auto follow = [] {
    TickClock clock;
    uint64_t last = 0;
    const uint64_t end = system_now_ns() + 3 * TickClock::kWindowNs;
    uint64_t worst = 0;
    while (last < end) {
      const uint64_t before = system_now_ns();
      const uint64_t now = clock.now_ns();
      const uint64_t after = system_now_ns();
      EXPECT_GE(now, last);
      last = now;
      worst = std::max({worst, now < before ? before - now : 0, now > after ? now - after : 0});
    }
    EXPECT_LT(worst, 200'000u) << "ns away from the system's clock";
  };
  std::thread other(follow);
  follow();
  other.join();
}

TEST(TickClock, AThreadThatSleptLongIsRightAtItsFirstLook) {
  TickClock::prepare();
  if (!TickClock::usable()) GTEST_SKIP() << "the kernel does not keep time by this machine's counter";
  TickClock clock;
  clock.now_ns();
  // The sleep is the point.
  ::usleep(static_cast<useconds_t>(2 * TickClock::kWindowNs / 1000));
  const uint64_t before = system_now_ns();
  const uint64_t now = clock.now_ns();
  EXPECT_GE(now + 1000, before);
  EXPECT_LE(now, system_now_ns() + 1000);
}

TEST(TickClock, ShortStretchesAreConverted) {
  TickClock::prepare();
  if (!TickClock::usable()) GTEST_SKIP() << "the kernel does not keep time by this machine's counter";
  const uint64_t from_ns = system_now_ns();
  const uint64_t from = TickClock::ticks();
  while (system_now_ns() - from_ns < 5'000'000) {
  }
  const uint64_t ns = TickClock::ticks_to_ns(TickClock::ticks() - from);
  const uint64_t passed_ns = system_now_ns() - from_ns;
  EXPECT_GE(ns, 4'500'000u);
  EXPECT_LE(ns, passed_ns + passed_ns / 20);
}

}  // namespace
}  // namespace lockstep
