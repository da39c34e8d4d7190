#include "model/ids.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep {
namespace {

TEST(Ids, AllRanksOfAJobComeInOrder) {
  std::vector<Rank> seen;
  for (Rank rank : all_ranks(3)) seen.push_back(rank);
  EXPECT_EQ(seen, (std::vector<Rank>{0_rank, 1_rank, 2_rank}));
  for (int32_t none : {0, -1}) {
    for (Rank rank : all_ranks(none)) ADD_FAILURE() << rank;
  }
}

TEST(Ids, ARankHasAPlaceInATableOfAllRanks) {
  EXPECT_EQ(index_of(7_rank), 7u);
  EXPECT_EQ(rank_at(7), 7_rank);
}

}  // namespace
}  // namespace lockstep
