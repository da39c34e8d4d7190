#include "wire/copy_budget.h"

#include <gtest/gtest.h>

namespace lockstep::otlp {
namespace {

TEST(CopyBudget, GivesAllThatItHasAndNotAByteMore) {
  CopyBudget budget;
  EXPECT_TRUE(budget.take(0, UINT64_MAX)) << "nothing can be copied for ever";
  EXPECT_FALSE(budget.take(kCopiedBytesMax + 1, 1));
  EXPECT_FALSE(budget.take(2, UINT64_MAX)) << "and no product wraps";
  EXPECT_TRUE(budget.take(kCopiedBytesMax / 4, 3));
  EXPECT_FALSE(budget.take(kCopiedBytesMax / 4, 2));
  EXPECT_TRUE(budget.take(kCopiedBytesMax / 4 - 1, 1));
  EXPECT_TRUE(budget.take(1, 1));
  EXPECT_FALSE(budget.take(1, 1));
  EXPECT_TRUE(budget.take(1, 0));
}

TEST(CopyBudget, AResourceCountsForEveryGroupButTheOneItCameWith) {
  const std::string text(1000, 'x');
  const Attributes resource = {{"key", Value(text)}};
  const uint64_t one = sizeof(std::string) + 3 + sizeof(Value) + 1000;
  EXPECT_EQ(memory_bytes(resource), one);
  EXPECT_EQ(copied_bytes(resource, 0), 0u);
  EXPECT_EQ(copied_bytes(resource, 1), 0u);
  EXPECT_EQ(copied_bytes(resource, 2), one);
  EXPECT_EQ(copied_bytes(resource, 5), 4 * one);
  EXPECT_EQ(memory_bytes(Value(Value::Bytes{text})), sizeof(Value) + 1000);
  EXPECT_EQ(memory_bytes(Value(resource)), sizeof(Value) + one);
  EXPECT_EQ(memory_bytes(Value(ValueList{Value(text), Value(int64_t{1})})), 3 * sizeof(Value) + 1000);
}

TEST(CopyBudget, SharesAResourceWithEveryGroupFromTheFirst) {
  const Attributes resource = {{"key", Value(int64_t{1})}};
  for (size_t first = 0; first <= 3; ++first) {
    CopyBudget budget;
    std::vector<ResourceGroup> groups(3);
    ASSERT_TRUE(budget.share_resource(resource, groups, first));
    for (size_t i = 0; i < groups.size(); ++i) EXPECT_EQ(groups[i].resource.size(), i < first ? 0u : 1u) << first;
  }
  CopyBudget spent;
  ASSERT_TRUE(spent.take(kCopiedBytesMax - memory_bytes(resource), 1));
  std::vector<ResourceGroup> groups(3);
  EXPECT_FALSE(spent.share_resource(resource, groups, 0)) << "two copies, and room for one";
  EXPECT_TRUE(spent.share_resource(resource, groups, 1));
  EXPECT_FALSE(spent.share_resource(resource, groups, 1));
  EXPECT_TRUE(spent.share_resource(resource, groups, 2)) << "no copy";
  EXPECT_TRUE(spent.share_resource({}, groups, 0));
}

}  // namespace
}  // namespace lockstep::otlp
