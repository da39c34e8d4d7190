#include "base/most_told.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(MostTold, IsWhatMostTellAndTheLargerAtADraw) {
  MostTold<int> told;
  EXPECT_EQ(told.value(), 0);
  told.add(8);
  EXPECT_EQ(told.value(), 8);
  told.add(1'000'000);
  EXPECT_EQ(told.value(), 1'000'000);
  told.add(8);
  EXPECT_EQ(told.value(), 8);
  told.remove(8);
  told.remove(8);
  EXPECT_EQ(told.value(), 1'000'000);
  told.remove(1'000'000);
  EXPECT_EQ(told.value(), 0);
}

}  // namespace
}  // namespace lockstep
