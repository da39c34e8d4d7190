#include "diagnosis/signals/cause_priors.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(CausePriors, BeginsWithTheTablesShares) {
  CausePriors book;
  EXPECT_DOUBLE_EQ(book.weight(Cause::kEcc, 0.06), 0.06);
}

TEST(CausePriors, WhatWasRightHereGainsAndTheRestLoses) {
  CausePriors book;
  for (int i = 0; i < 40; ++i) book.feedback(Cause::kCongestion, true);
  EXPECT_NEAR(book.weight(Cause::kCongestion, 0.12), (0.12 * 40 + 40) / 80, 1e-9);
  EXPECT_LT(book.weight(Cause::kEcc, 0.06), 0.06);
}

TEST(CausePriors, WhatWasWrongLosesButNeverAll) {
  CausePriors book;
  book.feedback(Cause::kEcc, false);
  EXPECT_LT(book.weight(Cause::kEcc, 0.06), 0.06);
  for (int i = 0; i < 1000; ++i) book.feedback(Cause::kEcc, false);
  EXPECT_GT(book.weight(Cause::kEcc, 0.06), 0);
}

TEST(CausePriors, IsMadeFromAllThatWasSaid) {
  const std::vector<VerdictFeedback> all = {
      {.verdict_id = "a", .right = true, .said = Cause::kEcc},
      {.verdict_id = "b", .right = false, .said = Cause::kEcc, .cause = Cause::kGc},
      {.verdict_id = "c", .right = false, .said = Cause::kEcc},
      {.verdict_id = "d", .right = false, .cause = Cause::kGc},
  };
  EXPECT_EQ(CausePriors::of(all).to_json(), R"({"ecc":{"right":1,"wrong":2},"gc":{"right":2,"wrong":0}})");
  EXPECT_EQ(CausePriors::of({}).to_json(), "{}");
}

TEST(CausePriors, ComesBackFromItsOwnJson) {
  CausePriors book;
  book.feedback(Cause::kEcc, true);
  book.feedback(Cause::kEcc, false);
  book.feedback(Cause::kGc, false);
  Result<CausePriors> again = CausePriors::from_json(book.to_json());
  ASSERT_TRUE(again.ok()) << again.error();
  EXPECT_EQ(again->to_json(), book.to_json());
  EXPECT_EQ(again->weight(Cause::kEcc, 0.06), book.weight(Cause::kEcc, 0.06));
}

TEST(CausePriors, RefusesWhatIsNoBookWithOneLine) {
  for (const char* text : {"", "[]", "{\"ecc\":1}", "{\"ecc\":{\"right\":-1,\"wrong\":0}}", "{\"ecc\":{\"right\":1}}",
                           "{\"\":{\"right\":1,\"wrong\":0}}"}) {
    Result<CausePriors> book = CausePriors::from_json(text);
    ASSERT_FALSE(book.ok()) << text;
    EXPECT_TRUE(book.error().starts_with("prior: ")) << book.error();
    EXPECT_EQ(book.error().find('\n'), std::string::npos);
  }
}

TEST(CausePriors, LeavesOutACauseOfAnotherVersion) {
  Result<CausePriors> book =
      CausePriors::from_json(R"({"ecc":{"right":1,"wrong":0},"cosmic-rays":{"right":9,"wrong":0}})");
  ASSERT_TRUE(book.ok()) << book.error();
  EXPECT_EQ(book->to_json(), R"({"ecc":{"right":1,"wrong":0}})");
}

}  // namespace
}  // namespace lockstep
