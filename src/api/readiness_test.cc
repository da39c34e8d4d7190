#include "api/readiness.h"

#include <gtest/gtest.h>

#include "ingest/counters_table.h"

namespace lockstep {
namespace {

TEST(ReadinessTest, SaysWhichCheckFailsAndShowsItInTheGauge) {
  Counters counters(kServerCounters);
  Readiness readiness(counters);
  std::optional<std::string> disk, clock;
  readiness.add({"disk", [&] { return disk; }});
  readiness.add({"clock", [&] { return clock; }, true});
  EXPECT_TRUE(readiness.ask().is_ready);
  EXPECT_EQ(counters.value("lockstep_ready", "check=\"disk\""), 1);
  clock = "an hour off";  // a warning alone changes nothing
  EXPECT_TRUE(readiness.ask().is_ready);
  EXPECT_EQ(counters.value("lockstep_ready", "check=\"clock\""), 0);
  disk = "full\nof lines";
  const Readiness::State state = readiness.ask();
  EXPECT_FALSE(state.is_ready);
  ASSERT_EQ(state.rows.size(), 2u);
  EXPECT_EQ(state.rows[0].name, "disk");
  EXPECT_EQ(state.rows[0].problem->find('\n'), std::string::npos);
  EXPECT_EQ(counters.value("lockstep_ready", "check=\"disk\""), 0);
  disk.reset();
  EXPECT_TRUE(readiness.ask().is_ready);
  EXPECT_EQ(counters.value("lockstep_ready", "check=\"disk\""), 1);
}

TEST(ReadinessTest, ADiskThatCannotBeAskedIsAProblem) {
  EXPECT_EQ(full_disk("/tmp"), std::nullopt);
  EXPECT_NE(full_disk("/no/such/folder"), std::nullopt);
}

}  // namespace
}  // namespace lockstep
