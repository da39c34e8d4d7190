#include "sources/nic/counter32.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr uint64_t kWrap = uint64_t{1} << 32;

TEST(NicCounter32, GoesOnCountingWhenTheHardwareWraps) {
  Counter32 counter;
  EXPECT_EQ(counter.extend(kWrap - 1000, 0, false), kWrap - 1000);
  EXPECT_EQ(counter.extend(500, kSecond, false), kWrap + 500);
  EXPECT_EQ(counter.extend(kWrap - 10, 60 * kSecond, false), 2 * kWrap - 10);
  EXPECT_EQ(counter.extend(5, 61 * kSecond, false), 2 * kWrap + 5);
}

TEST(NicCounter32, FallsWhenItWasReset) {
  Counter32 counter;
  EXPECT_EQ(counter.extend(120'000, 0, false), 120'000u);
  EXPECT_TRUE(counter.is_reset(3, kSecond));
  EXPECT_EQ(counter.extend(3, kSecond, false), 3u);
  EXPECT_EQ(counter.extend(7, 2 * kSecond, false), 7u);
}

TEST(NicCounter32, CannotHaveWrappedFasterThanAnyAdapterCounts) {
  Counter32 counter;
  counter.extend(3'500'000'000, 0, false);
  // A wrap would mean 795 million events: too many for one second, possible in ten.
  EXPECT_TRUE(counter.is_reset(10, kSecond));
  EXPECT_FALSE(counter.is_reset(10, 10 * kSecond));
}

TEST(NicCounter32, TakesAFallForAResetWhereThePortWasReset) {
  Counter32 counter;
  counter.extend(kWrap - 1000, 0, false);
  EXPECT_EQ(counter.extend(500, kSecond, true), 500u);
}

TEST(NicCounter32, ForgetsItsWrapsAtAReset) {
  Counter32 counter;
  counter.extend(kWrap - 1, 0, false);
  EXPECT_EQ(counter.extend(0, kSecond, false), kWrap);
  EXPECT_EQ(counter.extend(1000, 2 * kSecond, false), kWrap + 1000);
  EXPECT_EQ(counter.extend(2, 3 * kSecond, false), 2u);
}

TEST(NicCounter32, WrapsAlsoWhereTheDriverAddsMoreThan32Bits) {
  Counter32 counter;
  counter.extend(3 * kWrap - 100, 0, false);
  EXPECT_EQ(counter.extend(2 * kWrap + 50, kSecond, false), 3 * kWrap + 50);
}

}  // namespace
}  // namespace lockstep
