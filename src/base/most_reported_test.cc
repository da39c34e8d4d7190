#include "base/most_reported.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(MostReported, IsWhatMostTellAndTheLargerAtADraw) {
  MostReported<int> reported;
  EXPECT_EQ(reported.value(), 0);
  reported.add(8);
  EXPECT_EQ(reported.value(), 8);
  reported.add(1'000'000);
  EXPECT_EQ(reported.value(), 1'000'000);
  reported.add(8);
  EXPECT_EQ(reported.value(), 8);
  reported.remove(8);
  reported.remove(8);
  EXPECT_EQ(reported.value(), 1'000'000);
  reported.remove(1'000'000);
  EXPECT_EQ(reported.value(), 0);
}

}  // namespace
}  // namespace lockstep
