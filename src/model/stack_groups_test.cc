#include "model/stack_groups.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

RankStack stack_at(std::vector<StackFrame> frames) {
  RankStack stack;
  stack.python = {{.ident = 1, .main = true, .frames = std::move(frames)}};
  return stack;
}

TEST(StackGroups, RanksAtTheSamePlaceAreOneLine) {
  std::map<Rank, RankStack> stacks;
  const StackFrame reduce{"all_reduce", "/x/site-packages/torch/distributed/distributed_c10d.py", 2696};
  for (Rank rank : all_ranks(64)) stacks[rank] = stack_at({reduce, {"train_step", "/job/train.py", 88}});
  stacks[17_rank] = stack_at({{"__next__", "/job/loader.py", 12}, {"train_step", "/job/train.py", 80}});
  const std::vector<StackGroup> groups = group_stacks(stacks);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].ranks.size(), 63u);
  EXPECT_EQ(groups_text(groups), "63 ranks in all_reduce at train.py:88; rank 17 in __next__ at loader.py:12");
}

}  // namespace
}  // namespace lockstep
