#include "base/median.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace lockstep {
namespace {

TEST(Median, IsTheMiddleOneOrHalfWayBetweenTheTwoInTheMiddle) {
  EXPECT_EQ(median_of(std::vector<double>{3, 1, 2}), 2);
  EXPECT_EQ(median_of(std::vector<double>{4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median_of(std::vector<int64_t>{7, 8}), 7.5);
  EXPECT_TRUE(std::isnan(median_of(std::vector<double>{})));
}

TEST(Median, TheUpperOneIsAlwaysOneOfThem) {
  EXPECT_EQ(upper_median_of(std::vector<int64_t>{3, 1, 2}), 2);
  EXPECT_EQ(upper_median_of(std::vector<int64_t>{4, 1, 3, 2}), 3);
  EXPECT_EQ(upper_median_of(std::vector<int64_t>{}), 0);
  std::vector<int64_t> four{4, 1, 3, 2}, none;
  EXPECT_EQ(lower_median_in_place(four), 2);
  EXPECT_EQ(lower_median_in_place(none), 0);
}

TEST(Median, TheSpreadIsThatOfMostAndNotOfAnOutlier) {
  EXPECT_DOUBLE_EQ(spread_of({9, 10, 11, 10, 1000}, 10), 1.4826 * 1);
  EXPECT_DOUBLE_EQ(spread_of({10, 10, 10}, 10), 0);
  EXPECT_DOUBLE_EQ(spread_of({}, 10), 0);
}

}  // namespace
}  // namespace lockstep
