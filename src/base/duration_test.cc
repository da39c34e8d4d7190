#include "base/duration.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Durations, AreReadAndWritten) {
  int64_t ms = 0;
  EXPECT_EQ(parse_duration_ms("1y2w3d4h5m6s7ms", &ms), "");
  EXPECT_EQ(ms, ((((365 + 14 + 3) * 24ll + 4) * 60 + 5) * 60 + 6) * 1000 + 7);
  EXPECT_NE(parse_duration_ms("1m1h", &ms), "");
  EXPECT_NE(parse_duration_ms("1m1m", &ms), "");
  EXPECT_NE(parse_duration_ms("999999999y", &ms), "");
  EXPECT_EQ(duration_text(90'000), "1m30s");
  EXPECT_EQ(duration_text(0), "0s");
  EXPECT_EQ(duration_text(7ll * 24 * 3600 * 1000), "1w");
  EXPECT_EQ(duration_text(8ll * 24 * 3600 * 1000), "8d");
}

}  // namespace
}  // namespace lockstep
