#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace lockstep {
namespace {

Result<std::unique_ptr<int>> made(bool well) {
  if (!well) return Error{"nothing there", ErrorCode::kNotFound};
  return std::make_unique<int>(3);
}

Result<void> checked(bool well) {
  if (!well) return Error{"not checked"};
  return {};
}

// How far it came, and what it made.
Result<std::string> tried(bool checks, bool makes, int& reached) {
  LOCKSTEP_TRY(checked(checks));
  reached = 1;
  const std::unique_ptr<int> number = LOCKSTEP_TRY(made(makes));
  reached = 2;
  return std::to_string(*number);
}

TEST(Result, TriesOneThingAfterAnother) {
  int reached = 0;
  EXPECT_EQ(*tried(true, true, reached), "3");
  EXPECT_EQ(reached, 2);
}

TEST(Result, ReturnsTheFirstFailureAsItCame) {
  int reached = 0;
  const Result<std::string> unchecked = tried(false, false, reached);
  EXPECT_EQ(unchecked.error(), "not checked");
  EXPECT_EQ(unchecked.code(), ErrorCode::kUnspecified);
  EXPECT_EQ(reached, 0);
  const Result<std::string> absent = tried(true, false, reached);
  EXPECT_EQ(absent.error(), "nothing there");
  EXPECT_EQ(absent.code(), ErrorCode::kNotFound);
  EXPECT_EQ(reached, 1);
}

TEST(Result, HandsOnLineAndCodeOfAFailure) {
  const Result<std::string> other = made(false).failure();
  EXPECT_EQ(other.error(), "nothing there");
  EXPECT_EQ(other.code(), ErrorCode::kNotFound);
}

TEST(Result, KeepsTheCodeOfAFailureWhoseLineIsBegunByWhereItCameUp) {
  const Result<std::string> other = prefixed(made(false).failure(), "--number: ");
  EXPECT_EQ(other.error(), "--number: nothing there");
  EXPECT_EQ(other.code(), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace lockstep
