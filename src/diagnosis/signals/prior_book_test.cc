#include "diagnosis/signals/prior_book.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(PriorBook, BeginsWithTheTablesShares) {
  PriorBook book;
  EXPECT_DOUBLE_EQ(book.weight("ecc", 0.06), 0.06);
}

TEST(PriorBook, WhatWasRightHereGainsAndTheRestLoses) {
  PriorBook book;
  for (int i = 0; i < 40; ++i) book.feedback("congestion", true);
  EXPECT_NEAR(book.weight("congestion", 0.12), (0.12 * 40 + 40) / 80, 1e-9);
  EXPECT_LT(book.weight("ecc", 0.06), 0.06);
}

TEST(PriorBook, WhatWasWrongLosesButNeverAll) {
  PriorBook book;
  book.feedback("ecc", false);
  EXPECT_LT(book.weight("ecc", 0.06), 0.06);
  for (int i = 0; i < 1000; ++i) book.feedback("ecc", false);
  EXPECT_GT(book.weight("ecc", 0.06), 0);
}

TEST(PriorBook, ComesBackFromItsOwnJson) {
  PriorBook book;
  book.feedback("ecc", true);
  book.feedback("ecc", false);
  book.feedback("gc", false);
  Result<PriorBook> again = PriorBook::from_json(book.to_json());
  ASSERT_TRUE(again.ok()) << again.error();
  EXPECT_EQ(again->to_json(), book.to_json());
  EXPECT_EQ(again->weight("ecc", 0.06), book.weight("ecc", 0.06));
}

TEST(PriorBook, RefusesWhatIsNoBookWithOneLine) {
  for (const char* text : {"", "[]", "{\"ecc\":1}", "{\"ecc\":{\"right\":-1,\"wrong\":0}}", "{\"ecc\":{\"right\":1}}",
                           "{\"\":{\"right\":1,\"wrong\":0}}"}) {
    Result<PriorBook> book = PriorBook::from_json(text);
    ASSERT_FALSE(book.ok()) << text;
    EXPECT_TRUE(book.error().starts_with("prior: ")) << book.error();
    EXPECT_EQ(book.error().find('\n'), std::string::npos);
  }
}

TEST(PriorBook, ManyCausesAreLeftOutNotKept) {
  PriorBook book;
  for (int i = 0; i < 1000; ++i) book.feedback("cause-" + std::to_string(i), true);
  EXPECT_TRUE(PriorBook::from_json(book.to_json()).ok());
}

}  // namespace
}  // namespace lockstep
