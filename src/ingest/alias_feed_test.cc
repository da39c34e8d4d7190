#include "ingest/alias_feed.h"

#include <gtest/gtest.h>

#include <limits>

#include "ingest/counters_table.h"
#include "model/series_labels.h"

namespace lockstep {
namespace {

constexpr int64_t kNow = 1'800'000'000'000'000'000;

class AliasFeedTest : public ::testing::Test {
 protected:
  // One push of one sample for each name, its labels told first.
  void push(std::vector<std::pair<std::string, double>> samples, const Labels& labels, const char* stream = "dcgm") {
    const int64_t time_ms = kNow / 1'000'000;
    std::vector<PushedSeries> series;
    for (auto& [name, value] : samples) {
      PushedSeries one;
      one.raw_labels = name;
      one.times_ms = {&time_ms, 1};
      one.values = {&value, 1};
      series.push_back(one);
      Labels all = labels;
      all.emplace_back(kMetricNameLabel, name);
      feed_.note(stream, name, *canonical_labels(all));
    }
    feed_.taken(stream, series, kNow);
  }

  struct Reported {
    std::string host;
    MetricPoint point;
  };
  std::vector<Reported> reported_;
  Counters counters_{kServerCounters};
  AliasFeed feed_{[](const MetricAlias& alias) { return std::string_view(alias.sent()) != "hw.power"; },
                  [this](const Attributes& resource, std::span<const MetricPoint> points, int64_t received) {
                    EXPECT_EQ(received, kNow);
                    for (const MetricPoint& point : points)
                      reported_.push_back({std::string(find_string(resource, "host.name")), point});
                  },
                  counters_};
};

TEST_F(AliasFeedTest, TellsAnExportersGaugesUnderTheNamesThatAgentsSend) {
  push({{"DCGM_FI_DEV_SM_CLOCK", 1980}, {"DCGM_FI_DEV_GPU_TEMP", 71}, {"DCGM_FI_DEV_POWER_VIOLATION", 2e9}},
       {{"UUID", "GPU-1"}, {"Hostname", "node-1"}, {"instance", "10.0.0.1:9400"}});
  ASSERT_EQ(reported_.size(), 3u);
  for (const Reported& one : reported_) {
    EXPECT_EQ(one.host, "node-1");
    EXPECT_EQ(find_string(one.point.attributes, "gpu_uuid"), "GPU-1");
    EXPECT_EQ(one.point.time_unix_ns, kNow);
  }
  EXPECT_EQ(reported_[0].point.name, "lockstep_gpu_clock_hertz");
  EXPECT_EQ(find_string(reported_[0].point.attributes, "clock"), "sm");
  EXPECT_DOUBLE_EQ(reported_[0].point.value, 1980e6);
  EXPECT_EQ(reported_[1].point.name, "hw.temperature");
  EXPECT_EQ(find_string(reported_[1].point.attributes, "hw.sensor_location"), "gpu");
  EXPECT_EQ(reported_[2].point.kind, MetricKind::kSum);
  EXPECT_DOUBLE_EQ(reported_[2].point.value, 2);
}

TEST_F(AliasFeedTest, TakesTheHostFromTheTargetWhereNothingElseNamesIt) {
  push({{"DCGM_FI_DEV_SM_CLOCK", 1980}}, {{"UUID", "GPU-1"}, {"instance", "node-7:9400"}});
  ASSERT_EQ(reported_.size(), 1u);
  EXPECT_EQ(reported_[0].host, "node-7");
}

// DCGM_FP64_BLANK and the fifteen above it, and the blanks of 64-bit integers.
TEST_F(AliasFeedTest, NumbersBesideThoseThatStandForNoValueAreValues) {
  constexpr double kBlank = 140'737'488'355'328;
  for (const double value : {kBlank, kBlank + 15, 9.2233720368547e18, std::numeric_limits<double>::infinity()}) {
    push({{"DCGM_FI_DEV_GPU_TEMP", value}}, {{"UUID", "GPU-1"}, {"Hostname", "node-1"}});
    EXPECT_TRUE(reported_.empty()) << value;
  }
  for (const double value : {kBlank - 1, kBlank + 16, 9.2233720368546e18}) {
    push({{"DCGM_FI_DEV_GPU_TEMP", value}}, {{"UUID", "GPU-1"}, {"Hostname", "node-1"}});
    ASSERT_EQ(reported_.size(), 1u) << value;
    reported_.clear();
  }
}

TEST_F(AliasFeedTest, LeavesOutWhatHasNoIdentityNoListenerAndNoValue) {
  push({{"DCGM_FI_DEV_SM_CLOCK", 1980}}, {{"Hostname", "node-1"}});
  EXPECT_EQ(counters_.value("lockstep_alias_series_left_out_total", "reason=\"no_identity\""), 1);
  const Labels gpu = {{"UUID", "GPU-1"}, {"Hostname", "node-1"}};
  push({{"DCGM_FI_DEV_POWER_USAGE", 300}, {"up", 1}}, gpu);
  push({{"DCGM_FI_DEV_GPU_TEMP", 140'737'488'355'328}}, gpu);
  push({{"DCGM_FI_DEV_GPU_TEMP", 9.223372036854776e18}}, gpu);
  push({{"DCGM_FI_DEV_GPU_TEMP", std::numeric_limits<double>::quiet_NaN()}}, gpu);
  EXPECT_TRUE(reported_.empty());
  push({{"DCGM_FI_DEV_GPU_TEMP", 70}}, gpu);
  EXPECT_EQ(reported_.size(), 1u);
  EXPECT_EQ(counters_.value("lockstep_alias_points_total"), 1);
}

TEST_F(AliasFeedTest, AGpuThatAnAgentReadsIsTheAgents) {
  push({{"lockstep_gpu_clock_hertz", 1e9}}, {{"gpu_uuid", "GPU-1"}, {"host", "node-1"}}, "agent");
  push({{"DCGM_FI_DEV_SM_CLOCK", 1980}}, {{"UUID", "GPU-1"}, {"Hostname", "node-1"}});
  EXPECT_TRUE(reported_.empty());
}

}  // namespace
}  // namespace lockstep
