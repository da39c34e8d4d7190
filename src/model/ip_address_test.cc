#include "model/ip_address.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(IpAddress, ReadsAndWritesBothKinds) {
  for (const char* text : {"10.0.0.1", "255.255.255.255", "fd00::1", "::1"}) {
    ASSERT_TRUE(parse_ip(text)) << text;
    EXPECT_EQ(to_text(*parse_ip(text)), text);
  }
  EXPECT_EQ(parse_ip("::ffff:10.0.0.1"), parse_ip("10.0.0.1"));
  for (const char* text : {"", "10.0.0", "10.0.0.256", "leaf1", "::1::"}) EXPECT_FALSE(parse_ip(text)) << text;
}

TEST(IpPrefix, HoldsWhatBeginsTheSame) {
  EXPECT_TRUE(parse_ip_prefix("10.0.0.0/8")->contains(*parse_ip("10.255.0.1")));
  EXPECT_FALSE(parse_ip_prefix("10.0.0.0/8")->contains(*parse_ip("11.0.0.1")));
  EXPECT_TRUE(parse_ip_prefix("172.16.0.0/12")->contains(*parse_ip("172.31.255.255")));
  EXPECT_FALSE(parse_ip_prefix("172.16.0.0/12")->contains(*parse_ip("172.32.0.0")));
  EXPECT_TRUE(parse_ip_prefix("0.0.0.0/0")->contains(*parse_ip("8.8.8.8")));
  EXPECT_FALSE(parse_ip_prefix("0.0.0.0/0")->contains(*parse_ip("fd00::1")));
  EXPECT_TRUE(parse_ip_prefix("::/0")->contains(*parse_ip("8.8.8.8")));
  EXPECT_TRUE(parse_ip_prefix("fd00::/7")->contains(*parse_ip("fc00::1")));
  EXPECT_TRUE(parse_ip_prefix("10.0.0.1")->contains(*parse_ip("10.0.0.1")));
  EXPECT_FALSE(parse_ip_prefix("10.0.0.1")->contains(*parse_ip("10.0.0.2")));
  for (const char* text : {"", "/8", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/x", "fd00::/129"})
    EXPECT_FALSE(parse_ip_prefix(text)) << text;
}

}  // namespace
}  // namespace lockstep
