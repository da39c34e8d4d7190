#include "diagnosis/signals/prior_book.h"

#include <gtest/gtest.h>

#include "diagnosis/signals/signatures.h"
#include "model/causes.h"

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

TEST(PriorBook, IsMadeFromAllThatWasSaid) {
  const std::vector<VerdictFeedback> all = {
      {.verdict_id = "a", .right = true, .said = "ecc"},
      {.verdict_id = "b", .right = false, .said = "ecc", .cause = "gc"},
      {.verdict_id = "c", .right = false, .said = "ecc"},
      {.verdict_id = "d", .right = false, .said = "", .cause = "gc"},
  };
  EXPECT_EQ(PriorBook::of(all).to_json(), R"({"ecc":{"right":1,"wrong":2},"gc":{"right":2,"wrong":0}})");
  EXPECT_EQ(PriorBook::of({}).to_json(), "{}");
}

TEST(PriorBook, KnowsEveryCauseThatSignalsName) {
  for (const Signature& signature : signatures()) EXPECT_TRUE(is_cause(signature.cause)) << signature.cause;
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
