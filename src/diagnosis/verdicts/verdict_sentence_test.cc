#include "diagnosis/verdicts/verdict_sentence.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

Finding loader() {
  Finding finding;
  finding.layer = Layer::kInput;
  finding.cause = Cause::kDataLoader;
  finding.sentence = "Rank 2 {makes|made} all 4 ranks wait 60 ms a step {when}: 70 % of the job.";
  return finding;
}

TEST(VerdictSentence, NamesCauseAndLayerFirst) {
  EXPECT_EQ(verdict_sentence(loader(), {1'200_step, 1'300_step, false}),
            "Slow data loader (input): Rank 2 makes all 4 ranks wait 60 ms a step since step 1,200: 70 % of the job.");
  Finding finding = loader();
  finding.cause = Cause::kNone;
  EXPECT_TRUE(verdict_sentence(finding, {}).starts_with("Layer input: Rank 2"));
  finding.layer = Layer::kUnknown;
  EXPECT_TRUE(verdict_sentence(finding, {}).starts_with("Rank 2"));
  finding.cause = Cause::kInOperationStall;
  EXPECT_TRUE(verdict_sentence(finding, {}).starts_with("Stuck inside an operation: Rank 2"));
}

TEST(VerdictSentence, WhatIsOverIsInThePast) {
  EXPECT_EQ(verdict_sentence(loader(), {7_step, 48_step, true}),
            "Slow data loader (input): Rank 2 made all 4 ranks wait 60 ms a step in steps 7 to 48: 70 % of the job.");
  EXPECT_NE(verdict_sentence(loader(), {7_step, 7_step, true}).find(" in step 7: "), std::string::npos);
  Finding finding = loader();
  finding.sentence = "3 ranks {have |}waited; it jumped in step {since}.";
  EXPECT_TRUE(
      verdict_sentence(finding, {7_step, 9_step, false}).ends_with(": 3 ranks have waited; it jumped in step 7."));
  EXPECT_TRUE(verdict_sentence(finding, {7_step, 9_step, true}).ends_with(": 3 ranks waited; it jumped in step 7."));
}

TEST(VerdictSentence, WhatIsNoMarkOfOursStays) {
  Finding finding = loader();
  finding.sentence = "Host {x} and {y, {is|was} }odd{";
  EXPECT_TRUE(verdict_sentence(finding, {7_step, 9_step, false}).ends_with("odd{"));
  EXPECT_NE(verdict_sentence(finding, {}).find("Host {x} and "), std::string::npos);
}

TEST(VerdictSentence, EveryCauseHasATitle) {
  for (const auto& row : kTerms<Cause>) EXPECT_NE(std::string_view(row.title), "") << row.name;
}

}  // namespace
}  // namespace lockstep
