#include "model/rank_end.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep {
namespace {

TEST(LeftFailure, IsTypeAndOneLine) {
  const LeftFailure left = parse_left_failure_untrusted("time 77\ntype ValueError\nmessage index 7\n");
  EXPECT_EQ(left.reason, "ValueError: index 7");
  EXPECT_EQ(left.time_unix_ns, 77);
  EXPECT_FALSE(left.thread);
  EXPECT_TRUE(parse_left_failure_untrusted("type KeyError\nthread loader\n").thread);
  EXPECT_EQ(parse_left_failure_untrusted("type KeyError\nmessage \n").reason, "KeyError");
}

TEST(LeftFailure, WhateverAnotherUserWritesIsBoundedAndHarmless) {
  EXPECT_EQ(parse_left_failure_untrusted("").reason, "");
  EXPECT_EQ(parse_left_failure_untrusted("message without a type\n").reason, "");
  EXPECT_EQ(parse_left_failure_untrusted("time -5\ntype E\n").time_unix_ns, 0);
  EXPECT_EQ(parse_left_failure_untrusted("time 99999999999999999999999\ntype E\n").time_unix_ns, 0);
  const LeftFailure large =
      parse_left_failure_untrusted("type " + std::string(9000, 'x') + "\nmessage " + std::string(9000, 'y') + "\n");
  EXPECT_LE(large.reason.size(), kEndReasonBytesMax);
  const LeftFailure odd = parse_left_failure_untrusted(
      "type E\x1b[31m\nmessage a\x07"
      "b\xff\n");
  EXPECT_EQ(odd.reason.find_first_of("\x1b\x07"), std::string::npos) << odd.reason;
}

}  // namespace
}  // namespace lockstep
