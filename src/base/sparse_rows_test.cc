#include "base/sparse_rows.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

struct Row {
  int number = -1;
};

TEST(SparseRows, AnIndexFarOutCostsABlockAndPointers) {
  SparseRows<Row, 64> rows;
  EXPECT_EQ(rows.find(1'000'000), nullptr);
  const size_t needed = rows.room_needed(1'000'000);
  rows.at(1'000'000).number = 7;
  EXPECT_EQ(rows.room(), needed);
  EXPECT_LT(rows.room(), 40'000u);
  EXPECT_EQ(rows.find(1'000'000)->number, 7);
  EXPECT_EQ(rows.find(1'000'001)->number, -1);
  EXPECT_EQ(rows.find(3), nullptr);
  EXPECT_EQ(rows.room_needed(1'000'001), 0u);
  rows.at(3).number = 1;
  EXPECT_EQ(rows.room(), needed + 64);
  std::vector<int> numbers;
  rows.for_each([&](const Row& row) {
    if (row.number >= 0) numbers.push_back(row.number);
  });
  EXPECT_EQ(numbers, (std::vector<int>{1, 7}));
}

}  // namespace
}  // namespace lockstep
