#include "diagnosis/signals/early_warning.h"

#include <gtest/gtest.h>

#include "diagnosis/signals/testing/made_up_fleet.h"

namespace lockstep {
namespace {

using testing::kBegin;
using testing::kSecond;
using testing::MadeUpFleet;

// Lets an hour go by, `each_minute` says how things stand, warnings are looked for every minute.
template <typename Change>
std::vector<EarlyWarning> after(int minutes, MadeUpFleet& fleet, EarlyWarnings& early, Change each_minute) {
  for (int minute = 0; minute < minutes; ++minute) {
    each_minute(minute);
    fleet.run(60);
    early.update(fleet.book, fleet.now(), 100);
  }
  return early.warnings();
}

TEST(Trend, IsNotMovedByOutliers) {
  std::vector<HistoryValue> values;
  for (uint32_t i = 0; i < 12; ++i) values.push_back({i * 100, 100, static_cast<float>(i)});
  values[4].value = 500;
  values[9].value = -300;
  Trend trend = trend_of(values);
  EXPECT_NEAR(trend.per_hour, 3600.0 / 500, 0.8);
  EXPECT_GT(trend.agreement, 0.5);
  EXPECT_EQ(trend_of({}).known, false);
}

TEST(EarlyWarnings, AHealthyFleetGetsNone) {
  MadeUpFleet fleet(2, 3, 4);
  EarlyWarnings early;
  EXPECT_TRUE(after(50, fleet, early, [](int) {}).empty());
}

TEST(EarlyWarnings, WarnsOfRisingCorrectedErrorsWithAHorizon) {
  MadeUpFleet fleet(2, 1, 4);
  EarlyWarnings early;
  auto warnings = after(60, fleet, early, [&](int minute) {
    if (minute >= 10) fleet.set(1, 2, "hw.errors{error.type=corrected}", 0.01 * (minute - 10));
  });
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].cause, Cause::kEcc);
  EXPECT_EQ(warnings[0].host, "node-1");
  EXPECT_EQ(warnings[0].gpu_uuid, MadeUpFleet::gpu_name(1, 2));
  EXPECT_GT(warnings[0].horizon_s, 0);
  EXPECT_LT(warnings[0].horizon_s, 12 * 3600);
  EXPECT_GT(warnings[0].confidence, 0.2);
  EXPECT_TRUE(warnings[0].claims.at(0).query.starts_with("/api/signals?signal=ecc_corrected&host="));
}

TEST(EarlyWarnings, WarnsOfARowThatCouldNotBeReplaced) {
  MadeUpFleet fleet(2, 1, 4);
  EarlyWarnings early;
  fleet.set(0, 1, "lockstep_gpu_row_remap_failure", 1);
  auto warnings = after(3, fleet, early, [](int) {});
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].cause, Cause::kEcc);
}

TEST(EarlyWarnings, ARowThatBeginsToWaitAmongErrorsIsNewsAndOneAloneOrForMonthsIsNot) {
  MadeUpFleet fleet(2, 1, 4);
  EarlyWarnings early;
  fleet.set(0, 1, "lockstep_gpu_row_remap_pending", 1);  // for months
  fleet.set(0, 1, "hw.errors{error.type=corrected}", 0.1);
  fleet.set(1, 3, "hw.errors{error.type=corrected}", 0.1);
  auto warnings = after(20, fleet, early, [&](int minute) {
    if (minute != 10) return;
    fleet.set(1, 2, "lockstep_gpu_row_remap_pending", 1);  // without errors: that is what spare rows are for
    fleet.set(1, 3, "lockstep_gpu_row_remap_pending", 1);
  });
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].gpu_uuid, MadeUpFleet::gpu_name(1, 3));
  EXPECT_EQ(after(150, fleet, early, [](int) {}).size(), 1u);  // it stays as long as the row waits
}

TEST(EarlyWarnings, WarnsOfOneGpuThatHeatsUpAndNotOfAWarmDay) {
  MadeUpFleet fleet(2, 1, 4);
  EarlyWarnings early;
  auto warm = [&](int minute) { fleet.set_all("lockstep_gpu_temperature_margin_celsius", 19 - 0.1 * minute); };
  EXPECT_TRUE(after(50, fleet, early, warm).empty());
  MadeUpFleet other(2, 1, 4);
  EarlyWarnings again;
  auto warnings = after(50, other, again, [&](int minute) {
    other.set_all("lockstep_gpu_temperature_margin_celsius", 19 - 0.05 * minute);
    other.set(1, 0, "lockstep_gpu_temperature_margin_celsius", 19 - 0.3 * minute);
  });
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].cause, Cause::kThrottleThermal);
  EXPECT_EQ(warnings[0].host, "node-1");
}

TEST(EarlyWarnings, WarnsOfAClockThatDriftsAlone) {
  MadeUpFleet fleet(2, 1, 4);
  EarlyWarnings early;
  auto warnings = after(60, fleet, early, [&](int minute) {
    fleet.set(0, 3, "lockstep_gpu_clock_hertz{clock=sm}", 1.98e9 * (1 - 0.001 * minute));
  });
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].cause, Cause::kSlowCompute);
}

TEST(EarlyWarnings, WarnsOfALinkThatGetsWorse) {
  MadeUpFleet fleet(2, 1, 4);
  EarlyWarnings early;
  auto warnings = after(60, fleet, early, [&](int minute) {
    if (minute > 10) fleet.set(0, 1, "lockstep_nic_symbol_error_total{port=1}", 0.02 * (minute - 10));
  });
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0].cause, Cause::kNicDegraded);
  EXPECT_EQ(warnings[0].device, "mlx5_1");
}

TEST(EarlyWarnings, StaysWhileItLastsAndGoesWhenItIsOver) {
  MadeUpFleet fleet(2, 1, 4);
  EarlyWarnings early;
  after(60, fleet, early, [&](int minute) { fleet.set(1, 2, "hw.errors{error.type=corrected}", 0.01 * minute); });
  ASSERT_EQ(early.warnings().size(), 1u);
  std::string id = early.warnings()[0].id;
  after(3, fleet, early, [&](int minute) { fleet.set(1, 2, "hw.errors{error.type=corrected}", 0.6 + 0.01 * minute); });
  ASSERT_EQ(early.warnings().size(), 1u);
  EXPECT_EQ(early.warnings()[0].id, id);
  const int64_t raised = early.warnings()[0].raised_unix_ns;
  EXPECT_TRUE(early.gone().empty());
  bool reported_gone = false;
  after(110, fleet, early, [&](int) {
    fleet.set(1, 2, "hw.errors{error.type=corrected}", 0);
    for (const EarlyWarning& over : early.gone()) {
      reported_gone |= over.id == id && over.raised_unix_ns == raised && over.gone_unix_ns > raised;
    }
  });
  EXPECT_TRUE(early.warnings().empty());
  EXPECT_TRUE(reported_gone);
  // What is over is told for an hour.
  after(61, fleet, early, [](int) {});
  EXPECT_TRUE(early.gone().empty());
}

TEST(EarlyWarnings, ASilentHostTakesItsWarningsAlong) {
  MadeUpFleet fleet(2, 1, 4);
  EarlyWarnings early;
  fleet.set(0, 1, "lockstep_gpu_row_remap_failure", 1);
  ASSERT_EQ(after(5, fleet, early, [](int) {}).size(), 1u);
  fleet.silent_hosts.insert(0);
  EXPECT_EQ(after(30, fleet, early, [](int) {}).size(), 1u);
  EXPECT_TRUE(after(60, fleet, early, [](int) {}).empty());
  EXPECT_EQ(early.gone().size(), 1u);
}

TEST(EarlyWarnings, SayWhatRisesWhereHowFastAndWhatToDo) {
  MadeUpFleet fleet(2, 1, 4);
  EarlyWarnings early;
  auto warnings =
      after(60, fleet, early, [&](int minute) { fleet.set(1, 2, "hw.errors{error.type=corrected}", 0.01 * minute); });
  ASSERT_EQ(warnings.size(), 1u);
  const EarlyWarning& warning = warnings[0];
  EXPECT_FALSE(warning.is_gone());
  EXPECT_EQ(warning.signal, "ecc_corrected");
  EXPECT_TRUE(warning.sentence.starts_with(MadeUpFleet::gpu_name(1, 2) + " of node-1: corrected memory errors rise"))
      << warning.sentence;
  EXPECT_NE(warning.sentence.find("/min in "), std::string::npos) << warning.sentence;
  EXPECT_NE(warning.sentence.find("ecc expected "), std::string::npos) << warning.sentence;
  EXPECT_NE(warning.next.command.find(MadeUpFleet::gpu_name(1, 2)), std::string::npos) << warning.next.command;
  EXPECT_FALSE(warning.next.action.empty());
}

TEST(EarlyWarnings, AreNeverMoreThanTheirLimit) {
  SignalStore book;
  EarlyWarnings early;
  for (int round = 0; round < 3; ++round) {
    for (int host = 0; host < 400; ++host) {
      MetricPoint point;
      point.name = "lockstep_gpu_row_remap_failure";
      point.value = 1;
      point.time_unix_ns = kBegin + round * 70 * kSecond;
      for (int gpu = 0; gpu < 4; ++gpu) {
        point.attributes = {{"gpu_uuid", format("G%d", gpu)}};
        book.on_metrics({{"host.name", format("h%d", host)}}, std::span(&point, 1), point.time_unix_ns);
      }
    }
    early.update(book, kBegin + round * 70 * kSecond, 1000);
  }
  EXPECT_EQ(early.warnings().size(), EarlyWarnings::kWarningsMax);
  EXPECT_GT(early.left_out(), 0u);
}

}  // namespace
}  // namespace lockstep
