#include "apps/cli/score_ports.h"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

TEST(ScorePorts, AQuestionIsNotTakenForAnotherAndARefusedOneIsRefusedAgain) {
  PortSeries series;
  MetricPoint point;
  point.name = "lockstep_port_up";
  point.attributes = {{"switch", "leaf.1"}, {"port", "1"}};
  series.on_metrics({}, {&point, 1}, 0);
  auto found = [&](LabelMatcher::Op op, const char* name) {
    const std::vector<LabelMatcher> matchers = {{"switch", op, name}, {"port", LabelMatcher::Op::kEqual, "1"}};
    const auto selected = series.select(matchers, {});
    return selected.ok() ? static_cast<int>((*selected)->size()) : -1;
  };
  EXPECT_EQ(found(LabelMatcher::Op::kEqual, "leaf.."), 0);
  EXPECT_EQ(found(LabelMatcher::Op::kRegex, "leaf.."), 1);
  EXPECT_EQ(found(LabelMatcher::Op::kRegex, "leaf("), -1);
  EXPECT_EQ(found(LabelMatcher::Op::kRegex, "leaf("), -1);
}

}  // namespace
}  // namespace lockstep::cli
