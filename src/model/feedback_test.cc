#include "model/feedback.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Feedback, IsReadFromARequest) {
  Result<FeedbackAsked> wrong = read_feedback(R"({"right": false, "cause": "ecc", "note": "row 12"})");
  ASSERT_TRUE(wrong.ok()) << wrong.error();
  EXPECT_EQ(wrong->right, false);
  EXPECT_EQ(wrong->cause, Cause::kEcc);
  EXPECT_EQ(wrong->note, "row 12");
  Result<FeedbackAsked> right = read_feedback(R"({"right": true})");
  ASSERT_TRUE(right.ok()) << right.error();
  EXPECT_EQ(right->right, true);
  Result<FeedbackAsked> back = read_feedback(R"({"right": null, "cause": null})");
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_FALSE(back->right.has_value());
}

TEST(Feedback, TakesEveryCauseThatAVerdictMayName) {
  for (const TermRow<Cause>& row : kTerms<Cause>) {
    Result<FeedbackAsked> asked = read_feedback(std::string(R"({"right": false, "cause": ")") + row.name + "\"}");
    ASSERT_TRUE(asked.ok()) << asked.error();
    EXPECT_EQ(asked->cause, row.term) << row.name;
  }
}

TEST(Feedback, RefusesEverythingElseWithOneLineThatSaysWhatIsWrong) {
  struct Case {
    std::string body, part;
  };
  const Case cases[] = {
      {"", "feedback"},
      {"[]", "not an object"},
      {"{}", "needs \"right\""},
      {R"({"right": 1})", "needs \"right\""},
      {R"({"right": "yes"})", "needs \"right\""},
      {R"({"right": false, "cause": "eccc"})", "did you mean \"ecc\"?"},
      {R"({"right": false, "cause": "the\nmoon"})", "there is no cause"},
      {R"({"right": false, "cause": 7})", "cause must be a text"},
      {R"({"right": true, "cause": "ecc"})", "needs \"right\": false"},
      {R"({"right": true, "casue": "ecc"})", "no field \"casue\""},
      {R"({"right": true, "note": ")" + std::string(kFeedbackNoteMax + 1, 'x') + "\"}", "limit 1000"},
      {R"({"right": true, "note": ")" + std::string(kFeedbackBytesMax, 'x') + "\"}", "feedback"},
  };
  for (const Case& each : cases) {
    Result<FeedbackAsked> asked = read_feedback(each.body);
    ASSERT_FALSE(asked.ok()) << each.body;
    EXPECT_NE(asked.error().find(each.part), std::string::npos) << asked.error();
    EXPECT_EQ(asked.error().find('\n'), std::string::npos) << asked.error();
  }
}

}  // namespace
}  // namespace lockstep
