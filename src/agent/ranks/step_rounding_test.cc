#include "agent/ranks/step_rounding.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

TEST(StepRounding, KeepsATimeToOnePartInFourThousand) {
  for (int64_t ns = 3'000'000; ns < 100'000'000'000; ns = ns * 21 / 20 + 7)
    EXPECT_LE(std::abs(static_cast<double>(rounded_time(ns) - ns)) / static_cast<double>(ns), 1.0 / 4096) << ns;
}

TEST(StepRounding, AShortTimeStaysAndNoneStaysNone) {
  EXPECT_EQ(rounded_time(0), 0);
  EXPECT_EQ(rounded_time(1), 1024);
  EXPECT_EQ(rounded_time(20'000), 20'480);
}

TEST(StepRounding, TheStepStillEndsWhereItEnded) {
  StepSummary step;
  step.start_unix_ns = 1'700'000'000'123'456'789;
  step.duration_ns = 251'234'567;
  step.comms = {
      CommStep{.comm_id = CommId{7}, .gpu_ns = 1'234'567, .first_start_unix_ns = step.start_unix_ns + 1'000'003}};
  step.flows = {FlowStep{.bytes = 12'345, .wire_ns = 7'654'321}};
  const StepSummary sent = rounded_for_sending(step);
  EXPECT_NEAR(static_cast<double>(sent.start_unix_ns + sent.duration_ns - step.start_unix_ns - step.duration_ns), 0,
              512);
  EXPECT_NEAR(static_cast<double>(sent.comms[0].first_start_unix_ns - step.comms[0].first_start_unix_ns), 0, 512);
  EXPECT_NEAR(static_cast<double>(sent.duration_ns), 251'234'567, 251'234'567 / 4096.0);
  EXPECT_EQ(sent.comms[0].comm_id, CommId{7});
  EXPECT_EQ(sent.flows[0].bytes, 12'345);
}

}  // namespace
}  // namespace lockstep
