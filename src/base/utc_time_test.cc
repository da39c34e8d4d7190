#include "base/utc_time.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(UtcTime, IsWrittenWithMilliseconds) {
  EXPECT_EQ(utc_time(1'700'000'000'250), "2023-11-14T22:13:20.250Z");
  EXPECT_EQ(utc_time(0), "1970-01-01T00:00:00.000Z");
}

TEST(UtcTime, CountsDownBefore1970) {
  EXPECT_EQ(utc_time(-1), "1969-12-31T23:59:59.999Z");
  EXPECT_EQ(utc_time(-1000), "1969-12-31T23:59:59.000Z");
}

TEST(UtcTime, FollowsAPattern) {
  EXPECT_EQ(utc_time(1'700'000'000'999, "%Y%m%dT%H%M%SZ"), "20231114T221320Z");
}

}  // namespace
}  // namespace lockstep
