#include "agent/heartbeat.h"

#include <gtest/gtest.h>

#include "agent/testing.h"
#include "testing/fake_clock.h"

namespace lockstep {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(Heartbeats, NameTheThreadThatHasNotMovedAndForHowLong) {
  testing::FakeClock clock;
  Heartbeats hearts(clock);
  Heartbeat& loop = hearts.add("main loop");
  Heartbeat& evidence = hearts.add("evidence thread", 20 * kSecond);
  EXPECT_EQ(hearts.stuck(), "") << "neither has begun";
  loop.beat();
  evidence.beat();
  clock.advance(15 * kSecond);
  EXPECT_EQ(hearts.stuck(), "main loop has not moved for 15 s\n");
  clock.advance(15 * kSecond);
  EXPECT_EQ(hearts.stuck(), "main loop has not moved for 30 s\nevidence thread has not moved for 30 s\n");
  loop.beat();
  EXPECT_EQ(hearts.stuck(), "evidence thread has not moved for 30 s\n");
}

TEST(Heartbeats, AThreadThatWaitsForWorkIsNotStuck) {
  testing::FakeClock clock;
  Heartbeats hearts(clock);
  Heartbeat& keeper = hearts.add("keeper");
  {
    const Busy busy(&keeper);
    clock.advance(11 * kSecond);
    EXPECT_EQ(hearts.stuck(), "keeper has not moved for 11 s\n");
  }
  clock.advance(1000 * kSecond);
  EXPECT_EQ(hearts.stuck(), "");
  const Busy of_nobody(nullptr);
}

}  // namespace
}  // namespace lockstep
