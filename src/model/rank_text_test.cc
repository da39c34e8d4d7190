#include "model/rank_text.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(RankText, RanksAreWrittenShortAndReadAgain) {
  const std::vector<Rank> mixed = {0_rank, 1_rank, 2_rank, 3_rank, 8_rank, 16_rank, 24_rank, 32_rank, 7_rank, 5_rank};
  EXPECT_EQ(ranks_text(mixed), "0-3,8-32/8,7,5");
  EXPECT_EQ(ranks_text({}), "");
  Result<std::vector<Rank>> back = ranks_from_text("0-3,8-32/8,7,5", 10);
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(*back, mixed);
  EXPECT_FALSE(ranks_from_text("0-3,8-32/8,7,5", 9).ok());
  for (const char* wrong : {"a", "-1", "3-1", "1-9/0", "1-", "0-99999999999", "1,,2"})
    EXPECT_FALSE(ranks_from_text(wrong, 100).ok()) << wrong;
}

TEST(RankText, ForPeopleRanksAreSortedAndNotTooMany) {
  EXPECT_EQ(human_ranks({}), "");
  EXPECT_EQ(human_ranks(std::vector<Rank>{9_rank, 3_rank, 5_rank, 3_rank}), "3, 5 and 9");
  EXPECT_EQ(human_ranks(std::vector<Rank>{0_rank, 1_rank, 2_rank, 7_rank, 9_rank}, 2), "0-2, 7 and 1 more");
}

}  // namespace
}  // namespace lockstep
