#include "base/text.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Text, FormatsTextOfAnyLength) {
  EXPECT_EQ(format("%d of %s", 3, "8"), "3 of 8");
  EXPECT_EQ(format("%s", ""), "");
  std::string longer(100'000, 'x');
  EXPECT_EQ(format("<%s>", longer.c_str()), "<" + longer + ">");
}

TEST(Text, SplitsAndKeepsEmptyParts) {
  using Parts = std::vector<std::string_view>;
  EXPECT_EQ(split("a,b", ','), (Parts{"a", "b"}));
  EXPECT_EQ(split("", ','), Parts{""});
  EXPECT_EQ(split(",a,", ','), (Parts{"", "a", ""}));
}

TEST(Text, TrimsWhiteSpaceAtBothEnds) {
  EXPECT_EQ(trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(trim(" \n "), "");
  EXPECT_EQ(trim(""), "");
}

TEST(Text, ANumberIsTheWholeTextOrNothing) {
  EXPECT_EQ(parse_int("-42"), -42);
  EXPECT_EQ(parse_int("9223372036854775807"), INT64_MAX);
  for (const char* text : {"", " 1", "1 ", "1x", "0x10", "1.5", "+1", "9223372036854775808", "-"})
    EXPECT_EQ(parse_int(text), std::nullopt) << text;
  EXPECT_EQ(parse_uint("18446744073709551615"), UINT64_MAX);
  for (const char* text : {"", "-1", "18446744073709551616"}) EXPECT_EQ(parse_uint(text), std::nullopt) << text;
  EXPECT_EQ(parse_double("2.5e3"), 2500);
  for (const char* text : {"", "x", "1.5 ", "1e999"}) EXPECT_EQ(parse_double(text), std::nullopt) << text;
}

TEST(Text, OneLineHasNothingThatATerminalObeys) {
  EXPECT_EQ(as_one_line("a\n\x1b[2Jb\x7f"), "a  [2Jb ");
  EXPECT_EQ(as_one_line("a\xC2\x9B"
                        "2Jb\xC2\x80"),
            "a  2Jb  ");  // U+009B is ESC [ in one character
  EXPECT_EQ(as_one_line("\xC2\xA0\xC3\x9B\xC2"), "\xC2\xA0\xC3\x9B\xC2");
  EXPECT_TRUE(has_control_characters("a\xC2\x9B"));
  EXPECT_FALSE(has_control_characters("\xC2\xA0\xC3\x9B, \xE2\x80\x9B"));
}

TEST(Text, AWordOfAShellIsThatTextAndNothingElse) {
  EXPECT_EQ(shell_word("link:leaf-1:Ethernet1/3"), "link:leaf-1:Ethernet1/3");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("x; rm -rf ~"), "'x; rm -rf ~'");
  EXPECT_EQ(shell_word("$(id)'s"), "'$(id)'\\''s'");
}

TEST(Text, SetsThousandsApart) {
  EXPECT_EQ(with_thousands(0), "0");
  EXPECT_EQ(with_thousands(999), "999");
  EXPECT_EQ(with_thousands(1204), "1,204");
  EXPECT_EQ(with_thousands(-1234567), "-1,234,567");
  EXPECT_EQ(with_thousands(-123), "-123");
  EXPECT_EQ(with_thousands(INT64_MIN), "-9,223,372,036,854,775,808");
}

TEST(Text, DurationsHaveOneUnitAndSanePrecision) {
  EXPECT_EQ(human_duration(0), "0 ns");
  EXPECT_EQ(human_duration(850e3), "850 us");
  EXPECT_EQ(human_duration(118e6), "118 ms");
  EXPECT_EQ(human_duration(4.2e9), "4.2 s");
  EXPECT_EQ(human_duration(9.96e6), "10 ms");
  EXPECT_EQ(human_duration(180e9), "3.0 min");
  EXPECT_EQ(human_duration(7200e9), "2.0 h");
  EXPECT_EQ(human_duration(-118e6), "-118 ms");
}

TEST(Text, ADurationJustBelowTheNextUnitIsThatUnit) {
  EXPECT_EQ(human_duration(999.9), "1.0 us");
  EXPECT_EQ(human_duration(999.9e3), "1.0 ms");
  EXPECT_EQ(human_duration(999.9e6), "1.0 s");
}

TEST(Text, BytesHaveDecimalUnits) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(999.9), "1.0 kB");
  EXPECT_EQ(human_bytes(1.5e9), "1.5 GB");
  EXPECT_EQ(human_bytes(64e6), "64 MB");
  EXPECT_EQ(human_bytes(5e18), "5000 PB");
}

TEST(Text, RanksAreListedWithRunsJoined) {
  EXPECT_EQ(human_numbers({}), "");
  EXPECT_EQ(human_numbers({5}), "5");
  EXPECT_EQ(human_numbers({9, 3, 5, 3}), "3, 5 and 9");
  EXPECT_EQ(human_numbers({0, 1, 2, 3, 4, 5, 6, 7}), "0-7");
  EXPECT_EQ(human_numbers({1, 2, 5}), "1, 2 and 5");
  EXPECT_EQ(human_numbers({0, 2, 4, 6, 8, 10, 11, 12}, 3), "0, 2, 4 and 5 more");
}

TEST(Text, NoMoreRanksAreListedThanAskedFor) {
  EXPECT_EQ(human_numbers({0, 5, 6, 9}, 2), "0, 5 and 2 more");
}

TEST(Text, APrefixEndsBetweenTwoCharacters) {
  EXPECT_EQ(utf8_prefix("abc", 3), "abc");
  EXPECT_EQ(utf8_prefix("abcd", 3), "abc");
  EXPECT_EQ(utf8_prefix("ab\xC3\xA9", 3), "ab");
  EXPECT_EQ(utf8_prefix("ab\xC3\xA9", 4), "ab\xC3\xA9");
  EXPECT_EQ(utf8_prefix("a\xF0\x9F\x9A\x80z", 4), "a");
  EXPECT_EQ(utf8_prefix("\xC3\xA9", 1), "");
  EXPECT_EQ(utf8_prefix("abc", 0), "");
  EXPECT_EQ(utf8_prefix("", 0), "");
}

TEST(Text, APrefixOfWhatIsNoUtf8IsCutAnywhere) {
  const std::string bytes(10, '\x80');
  EXPECT_EQ(utf8_prefix(bytes, 7).size(), 7u);
  EXPECT_EQ(utf8_prefix(bytes, 2).size(), 2u);
}

TEST(Text, SuggestsTheNearestWordForASlipOfTheFinger) {
  EXPECT_EQ(did_you_mean("--serber", {"--server", "--json"}), "--server");
  EXPECT_EQ(did_you_mean("wyh", {"top", "why"}), "why");
  EXPECT_EQ(did_you_mean("completely-different", {"top", "why"}), std::nullopt);
  EXPECT_EQ(did_you_mean("x", {}), std::nullopt);
}

TEST(Text, DoesNotSuggestAWordThatHasNothingInCommon) {
  EXPECT_EQ(did_you_mean("xy", {"ab"}), std::nullopt);
}

}  // namespace
}  // namespace lockstep
