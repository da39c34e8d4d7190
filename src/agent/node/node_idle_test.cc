#include "agent/node/node_idle.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <fstream>

#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

TEST(CoreTime, IsTheFirstLineOfTheKernelsTable) {
  const auto time = parse_core_time("cpu  100 5 20 300 40 1 2 3 50 0\ncpu0 1 2 3 4\n");
  ASSERT_TRUE(time);
  EXPECT_EQ(time->idle, 340u);
  EXPECT_EQ(time->all, 471u);
}

TEST(CoreTime, OtherTextIsNone) {
  for (const char* text : {"", "cpu", "cpu0 1 2 3 4", "cpu  1 2 x 4", "cpu  1 2"}) EXPECT_FALSE(parse_core_time(text));
}

struct NodeIdleTest : ::testing::Test {
  testing::TemporaryFolder folder;
  const std::string& root = folder.path();
  NodeIdleTest() { mkdir((root + "/proc").c_str(), 0755); }
  void says(uint64_t busy, uint64_t idle) {
    std::ofstream(root + "/proc/stat") << "cpu  " << busy << " 0 0 " << idle << " 0 0 0 0 0 0\n";
  }
};

TEST_F(NodeIdleTest, IsCrowdedWhileNoCoreIsToSpare) {
  NodeIdle node(root);
  says(1000, 1000);
  EXPECT_FALSE(node.crowded(1 * kSecond)) << "nothing is known of the first second";
  says(2500, 1100);
  EXPECT_TRUE(node.crowded(2 * kSecond));
  says(2500, 9999);
  EXPECT_TRUE(node.crowded(2 * kSecond + 1)) << "read once a second";
  says(3000, 2100);
  EXPECT_FALSE(node.crowded(3 * kSecond));
}

TEST_F(NodeIdleTest, ANodeThatDoesNotTellIsNotCrowded) {
  NodeIdle node(root);
  EXPECT_FALSE(node.crowded(1 * kSecond));
  says(1000, 0);
  EXPECT_FALSE(node.crowded(2 * kSecond));
}

}  // namespace
}  // namespace lockstep
