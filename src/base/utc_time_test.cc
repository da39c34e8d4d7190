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

TEST(UtcTime, IsReadAsRfc3339WritesIt) {
  EXPECT_EQ(*unix_ns_from_rfc3339("1970-01-01T00:00:01Z"), 1'000'000'000);
  EXPECT_EQ(*unix_ns_from_rfc3339("2026-06-10T10:15:30.123456789Z"), 1'781'086'530'123'456'789);
  EXPECT_EQ(*unix_ns_from_rfc3339("2026-06-10T12:15:30.5+02:00"), 1'781'086'530'500'000'000);
  EXPECT_EQ(*unix_ns_from_rfc3339("2026-06-10T12:15:30 02:00"), 1'781'086'530'000'000'000) << "a plus in a URL";
  for (const char* bad :
       {"", "now", "2026-06-10", "2026-06-10T10:15:30", "2026-13-10T10:15:30Z", "2026-06-10T10:15:30.1"})
    EXPECT_FALSE(unix_ns_from_rfc3339(bad).ok()) << bad;
}

TEST(UtcTime, IsReadAsHttpWritesIt) {
  EXPECT_EQ(unix_s_from_http_date("Fri, 24 May 2013 00:00:00 GMT"), 1'369'353'600);
  for (const char* bad : {"", "yesterday", "Fri, 24 May 2013 00:00:00 GMT+1"})
    EXPECT_EQ(unix_s_from_http_date(bad), std::nullopt) << bad;
}

}  // namespace
}  // namespace lockstep
