#include "base/characters.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace lockstep {
namespace {

TEST(Characters, AreWrittenInUtf8WhateverTheirLength) {
  std::string text;
  for (const uint32_t code : {0x41u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xFFFDu, 0x10000u, 0x10FFFFu})
    append_utf8(text, code);
  EXPECT_EQ(text,
            "A\x7F"
            "\xC2\x80\xDF\xBF"
            "\xE0\xA0\x80\xEF\xBF\xBD"
            "\xF0\x90\x80\x80\xF4\x8F\xBF\xBF");
  EXPECT_TRUE(is_utf8(text));
}

TEST(Characters, AreHexadecimalDigitsInEitherCase) {
  EXPECT_EQ(hex_digit('9'), 9);
  EXPECT_EQ(hex_digit('a'), 10);
  EXPECT_EQ(hex_digit('F'), 15);
  for (const char c : {'g', 'G', '/', ':', '@', '`'}) EXPECT_EQ(hex_digit(c), -1) << c;
}

TEST(Characters, BytesAreWrittenInHexAndReadBack) {
  const std::string bytes("\0\x09\x7f\x80\xff", 5);
  EXPECT_EQ(to_hex(bytes), "00097f80ff");
  EXPECT_EQ(to_hex(std::string_view()), "");
  EXPECT_EQ(from_lower_hex("00097f80ff"), bytes);
  EXPECT_EQ(from_lower_hex(""), "");
  for (const char* text : {"0", "0FF0", "0g", "0x", " 00"}) EXPECT_EQ(from_lower_hex(text), std::nullopt) << text;
}

TEST(Characters, OnlyAsciiLettersGetLowerCase) {
  EXPECT_EQ(lower_case("Content-TYPE: @[`{ AZ az 09 \xC3\x84"), "content-type: @[`{ az az 09 \xC3\x84");
  EXPECT_EQ(lower_case('Q'), 'q');
}

}  // namespace
}  // namespace lockstep
