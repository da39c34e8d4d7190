#include "server/sle_faults.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

Silence silence(const std::string& matchers, bool is_planned = true) {
  Result<Silence> made = checked_silence(
      {.id = "s", .matchers = matchers, .starts_unix_ns = 5, .ends_unix_ns = 9, .is_planned = is_planned});
  EXPECT_TRUE(made.ok()) << matchers;
  return std::move(*made);
}

TEST(PlannedWindows, AreSilencesThatSayTheyArePlanned) {
  EXPECT_EQ(planned_windows({silence(R"({job=~"test-.*",gpu="GPU-1"})")}).size(), 1u);
  // Who silences a host that is broken does not say that it may be.
  EXPECT_EQ(planned_windows({silence(R"({host="node-1"})", false)}).size(), 0u);
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
