#include "apps/cli/terminal.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "apps/cli/wrapped.h"

namespace lockstep::cli {
namespace {

TEST(Terminal, ColumnsAreCountedAsShown) {
  EXPECT_EQ(shown_columns("llama · 5"), 9u);
  EXPECT_EQ(shown_columns("\x1b[1;31mSLOW\x1b[0m"), 4u);
  EXPECT_EQ(padded("\x1b[2mok\x1b[0m", 4), "\x1b[2mok\x1b[0m  ");
}

TEST(Terminal, WhatIsCutSaysSoAndLeavesNoColourBehind) {
  EXPECT_EQ(clipped("abcdef", 6), "abcdef");
  EXPECT_EQ(clipped("abcdef", 4), "abc…");
  EXPECT_EQ(clipped("ä ö ü ß", 4), "ä ö…");
  EXPECT_EQ(clipped("\x1b[31mabcdef\x1b[0m", 4), "\x1b[31mabc…\x1b[0m");
}

TEST(Terminal, TheColourOptionIsTakenOutUpToTheCommandOfSomebodyElse) {
  std::vector<std::string> words = {"why", "--color", "never", "job", "--", "--color=always"};
  ASSERT_TRUE(take_color_option(words).ok());
  EXPECT_EQ(words, (std::vector<std::string>{"why", "job", "--", "--color=always"}));
  EXPECT_EQ(painted(Paint::kBad, "x"), "x");
  words = {"--color=blue"};
  EXPECT_FALSE(take_color_option(words).ok());
  words = {"why", "--color"};
  EXPECT_FALSE(take_color_option(words).ok());
}

TEST(Terminal, SentencesKeepTheColumnsThatAreGiven) {
  ::setenv("COLUMNS", "40", 1);
  EXPECT_EQ(wrapped("one two three four five six seven eight nine", 4, "a"),
            "a   one two three four five six seven\n    eight nine\n");
  EXPECT_EQ(row_with_text("a row of thirty columns or so", "and its sentence"),
            "a row of thirty columns or so\n  and its sentence\n");
  ::setenv("COLUMNS", "100", 1);
  EXPECT_EQ(row_with_text("a row", "and its sentence"), "a row  and its sentence\n");
  ::unsetenv("COLUMNS");
  EXPECT_EQ(row_with_text("a row", std::string(200, 'x')), "a row  " + std::string(200, 'x') + "\n")
      << "in a pipe a row is a line";
}

}  // namespace
}  // namespace lockstep::cli
