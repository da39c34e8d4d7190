#include "server/sle_faults.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

Silence silence(const std::string& matchers) {
  Result<Silence> made = checked_silence({.id = "s", .matchers = matchers, .starts_unix_ns = 5, .ends_unix_ns = 9});
  EXPECT_TRUE(made.ok()) << matchers;
  return std::move(*made);
}

TEST(PlannedWindows, AreSilencesThatNameJobsHostsAndGpusAndNothingElse) {
  const auto count = [](const std::string& matchers) { return planned_windows({silence(matchers)}).size(); };
  EXPECT_EQ(count(R"({host="node-1"})"), 1u);
  EXPECT_EQ(count(R"({job=~"test-.*",gpu="GPU-1"})"), 1u);
  EXPECT_EQ(count(R"({job="llm",alertname="LockstepStraggler"})"), 0u);
  EXPECT_EQ(count(R"({cause="ecc"})"), 0u);
  EXPECT_EQ(count(R"({host="node-1",alertname!="LockstepHang"})"), 0u);
}

TEST(PlannedWindows, CoverWhatTheirSilenceMatches) {
  const auto windows = planned_windows(
      {silence(R"({job=~"test-.*"})"), silence(R"({host="node-1"})"), silence(R"({host="node-1",gpu="GPU-1"})")});
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(windows[0].from_unix_ns, 5);
  EXPECT_EQ(windows[0].to_unix_ns, 9);
  EXPECT_FALSE(windows[0].by_host || windows[0].by_gpu);
  EXPECT_TRUE(windows[0].covers("test-7", "", ""));
  EXPECT_FALSE(windows[0].covers("llm", "", ""));
  EXPECT_TRUE(windows[1].by_host && !windows[1].by_gpu);
  EXPECT_TRUE(windows[1].covers("llm", "node-1", ""));
  EXPECT_TRUE(windows[2].by_gpu);
  EXPECT_FALSE(windows[2].covers("llm", "node-1", "GPU-2"));
}

}  // namespace
}  // namespace lockstep
