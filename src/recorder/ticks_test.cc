#include "recorder/ticks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cstdint>
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

// What a clock remembers, in the order of its members: of a thread that asked last long ago.
struct Remembered {
  uint64_t tick, ns, clock_ns, rate, window;
};

TEST(TickClock, ARateSeenLaterIsBelievedWithinAThousandthOfTheFirst) {
  TickClock::prepare();
  if (!TickClock::usable()) GTEST_SKIP() << "the kernel does not keep time by this machine's counter";
  const uint64_t first = TickClock::ticks_to_ns(uint64_t{1} << 32);
  const auto rate_after = [&](double seen) {
    constexpr uint64_t kPassedNs = 100'000'000'000;
    const auto passed = static_cast<uint64_t>((static_cast<unsigned __int128>(kPassedNs) << 32) / first);
    for (;;) {
      const uint64_t now_ns = system_now_ns();
      const uint64_t before_ns = now_ns - static_cast<uint64_t>(seen * kPassedNs);
      const Remembered before{TickClock::ticks() - passed, 0, before_ns, first, 1};
      auto clock = std::bit_cast<TickClock>(before);
      EXPECT_GE(clock.now_ns(), now_ns);
      const auto after = std::bit_cast<Remembered>(clock);
      if (after.tick != before.tick) return static_cast<double>(after.rate) / static_cast<double>(first);
    }  // its readings were too far apart: another process ran between them
  };
  for (const double believed : {0.9995, 1.0005}) EXPECT_NEAR(rate_after(believed), believed, 0.0002);
  for (const double nonsense : {0.5, 0.99, 1.01, 2.0}) EXPECT_EQ(rate_after(nonsense), 1) << nonsense;
}

}  // namespace
}  // namespace lockstep
