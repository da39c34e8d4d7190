#include "agent/node/node_series.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "agent/metrics_page.h"

namespace lockstep {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

constexpr MetricDescriptor kTable[] = {
    {.name = "lockstep_gpu_sm_active",
     .unit = "1",
     .kind = MetricKind::kGauge,
     .labels = "gpu_uuid",
     .help = "Share of time.",
     .quantum = 1.0 / 256},
    {.name = "hw.energy", .unit = "J", .kind = MetricKind::kSum, .labels = "gpu_uuid", .help = "Energy."},
    {.name = "lockstep_host_load", .unit = "1", .kind = MetricKind::kGauge, .labels = "", .help = "Load."},
    {.name = "lockstep_gpu_info", .unit = "1", .kind = MetricKind::kGauge, .labels = "gpu_uuid", .help = "What it is."},
};

LabelSet gpu(const char* uuid) {
  return std::make_shared<const Labels>(Labels{{"gpu_uuid", uuid}});
}
const LabelSet kNone = std::make_shared<const Labels>();

Tick at(int64_t seconds) {
  return {.monotonic_ns = seconds * kSecond, .unix_ns = (1'000'000 + seconds) * kSecond};
}

size_t points_in(const std::vector<ResourceGroup>& groups) {
  size_t count = 0;
  for (const ResourceGroup& group : groups) count += group.points.size();
  return count;
}

struct NodeSeriesTest : ::testing::Test {
  NodeSeries series{{.host = "node-1"}};
  void read(int64_t second, const MetricDescriptor& metric, const LabelSet& labels, double value) {
    series.update({{&metric, labels, value}}, at(second));
  }
};

TEST_F(NodeSeriesTest, ANoisyGaugeIsToldAsItsMeanRoundedToItsQuantum) {
  for (int64_t second = 0; second < 5; ++second) read(second, kTable[0], gpu("GPU-1"), second % 2 == 0 ? 0.40 : 0.60);
  std::vector<ResourceGroup> groups = series.take(at(5));
  ASSERT_EQ(points_in(groups), 1u);
  EXPECT_EQ(groups[0].points[0].value, std::round(0.48 * 256) / 256);
  EXPECT_EQ(find_string(groups[0].resource, "lockstep.gpu_uuid"), "GPU-1");
  EXPECT_EQ(find_string(groups[0].resource, "host.name"), "node-1");
  EXPECT_TRUE(groups[0].points[0].attributes.empty());
}

TEST_F(NodeSeriesTest, WhatHasNotChangedIsNotToldAgainUntilTheRefresh) {
  int reported = 0;
  for (int64_t second = 0; second <= 125; ++second) {
    read(second, kTable[2], kNone, 3);
    if (second % 5 == 0) reported += static_cast<int>(points_in(series.take(at(second))));
  }
  EXPECT_EQ(reported, 2);
}

TEST_F(NodeSeriesTest, NoiseBelowTheQuantumIsNoChange) {
  read(0, kTable[0], gpu("GPU-1"), 0.5);
  EXPECT_EQ(points_in(series.take(at(0))), 1u);
  read(5, kTable[0], gpu("GPU-1"), 0.5003);
  EXPECT_EQ(points_in(series.take(at(5))), 0u);
  EXPECT_EQ(series.counts().unchanged, 1u);
}

TEST_F(NodeSeriesTest, ASumThatFallsCountsFromThere) {
  read(0, kTable[1], gpu("GPU-1"), 900);
  EXPECT_EQ(series.take(at(0))[0].points[0].start_unix_ns, at(0).unix_ns);
  read(5, kTable[1], gpu("GPU-1"), 950);
  EXPECT_EQ(series.take(at(5))[0].points[0].start_unix_ns, at(0).unix_ns);
  read(10, kTable[1], gpu("GPU-1"), 20);  // the driver was loaded again
  const MetricPoint point = series.take(at(10))[0].points[0];
  EXPECT_EQ(point.start_unix_ns, at(10).unix_ns);
  EXPECT_EQ(point.value, 20);
}

TEST_F(NodeSeriesTest, ASeriesThatIsNoLongerReadEndsOnceAndLeavesThePage) {
  read(0, kTable[0], gpu("GPU-1"), 0.5);
  read(0, kTable[0], gpu("GPU-2"), 0.5);
  series.take(at(0));
  for (int64_t second = 1; second <= 40; ++second) read(second, kTable[0], gpu("GPU-2"), 0.5);
  std::vector<ResourceGroup> groups = series.take(at(40));
  ASSERT_EQ(points_in(groups), 1u);
  EXPECT_EQ(find_string(groups[0].resource, "lockstep.gpu_uuid"), "GPU-1");
  EXPECT_EQ(groups[0].points[0].flags, 1u);
  EXPECT_EQ(node_page(series, "node-1").find("GPU-1"), std::string::npos);
  EXPECT_EQ(points_in(series.take(at(41))), 0u);
}

TEST_F(NodeSeriesTest, AnInfoRowThatGivesWayToAnotherEndsAtOnce) {
  read(0, kTable[3], gpu("GPU-1"), 1);
  read(0, kTable[2], kNone, 1);
  series.take(at(0));
  read(1, kTable[3], gpu("GPU-2"), 1);
  series.end_info_not_read_since(at(1).monotonic_ns);
  EXPECT_EQ(node_page(series, "node-1").find("GPU-1"), std::string::npos);
  EXPECT_NE(node_page(series, "node-1").find("lockstep_host_load"), std::string::npos);  // says what is, not what it is
  std::vector<ResourceGroup> groups = series.take(at(1));
  ASSERT_EQ(points_in(groups), 2u);
  EXPECT_EQ(groups[0].points[0].flags, 1u);
  read(2, kTable[3], gpu("GPU-1"), 1);  // and comes back
  EXPECT_NE(node_page(series, "node-1").find("GPU-1"), std::string::npos);
}

TEST_F(NodeSeriesTest, WhatIsNotANumberOrOverTheLimitIsRefusedAndCounted) {
  NodeSeries small({.host = "node-1", .series_max = 1});
  small.update({{&kTable[0], gpu("a"), 1}, {&kTable[0], gpu("b"), 1}, {&kTable[0], gpu("a"), std::nan("")}}, at(0));
  EXPECT_EQ(small.counts().readings, 3u);
  EXPECT_EQ(small.counts().refused, 2u);
  EXPECT_EQ(small.size(), 1u);
}

TEST_F(NodeSeriesTest, TellsAndEndsAtItsTimesAndNotBefore) {
  NodeSeriesOptions options{.host = "node-1", .series_max = 2};
  NodeSeries own(options);
  const auto read_at = [&](int64_t ns, const LabelSet& labels, double value) {
    own.update({{&kTable[1], labels, value}}, {.monotonic_ns = ns, .unix_ns = ns});
  };
  const auto reported_at = [&](int64_t ns) { return own.take({.monotonic_ns = ns, .unix_ns = ns}); };
  read_at(0, gpu("GPU-1"), 5);
  read_at(0, gpu("GPU-2"), 5);
  read_at(0, gpu("GPU-3"), 5);
  EXPECT_EQ(own.counts().readings, 3u);
  EXPECT_EQ(own.counts().refused, 1u) << "two have room";
  EXPECT_EQ(own.size(), 2u);
  EXPECT_EQ(points_in(reported_at(0)), 2u);
  EXPECT_EQ(own.counts().reported, 2u);
  EXPECT_EQ(points_in(reported_at(1)), 0u) << "not read since";
  EXPECT_EQ(own.counts().unchanged, 0u);
  read_at(options.refresh_ns - 1, gpu("GPU-1"), 5);
  const std::vector<ResourceGroup> ended = reported_at(options.refresh_ns - 1);
  ASSERT_EQ(points_in(ended), 1u) << "of the other that it is over";
  EXPECT_EQ(ended[0].points[0].flags, MetricPoint::kNoRecordedValue);
  EXPECT_EQ(own.counts().unchanged, 1u);
  read_at(options.refresh_ns, gpu("GPU-1"), 5);
  const std::vector<ResourceGroup> again = reported_at(options.refresh_ns);
  ASSERT_EQ(points_in(again), 1u);
  EXPECT_EQ(again[0].points[0].flags, 0u);
  EXPECT_EQ(again[0].points[0].start_unix_ns, 0) << "the same value is no fall";
  EXPECT_TRUE(again[0].points[0].monotonic);
  EXPECT_EQ(points_in(reported_at(options.refresh_ns + options.ended_after_ns)), 0u);
  EXPECT_EQ(own.size(), 1u);
  EXPECT_EQ(points_in(reported_at(options.refresh_ns + options.ended_after_ns + 1)), 1u);
  EXPECT_EQ(own.size(), 0u);
}

TEST_F(NodeSeriesTest, OnlyASumIsToldWithItsBeginningAndOnlyAGaugeAsItsMean) {
  read(1, kTable[1], gpu("GPU-1"), 10);
  read(2, kTable[1], gpu("GPU-1"), 20);
  read(1, kTable[2], kNone, 1);
  read(2, kTable[2], kNone, 4);
  read(2, kTable[3], gpu("GPU-1"), 1);
  std::map<std::string, MetricPoint> points;
  for (const ResourceGroup& group : series.take(at(2))) {
    for (const MetricPoint& point : group.points) points[point.name] = point;
  }
  EXPECT_EQ(points["hw.energy"].value, 20);
  EXPECT_EQ(points["hw.energy"].start_unix_ns, at(1).unix_ns);
  EXPECT_EQ(points["hw.energy"].temporality, Temporality::kCumulative);
  EXPECT_EQ(points["lockstep_host_load"].value, 4) << "without a quantum it is what was read last";
  EXPECT_FALSE(points["lockstep_host_load"].monotonic);
  EXPECT_EQ(points["lockstep_host_load"].start_unix_ns, 0);
  series.end_info_not_read_since(at(2).monotonic_ns);
  EXPECT_EQ(series.take(at(2)).size(), 0u) << "it was read just then";
  series.end_info_not_read_since(at(3).monotonic_ns, "lockstep_host_load");
  EXPECT_EQ(points_in(series.take(at(3))), 1u) << "the one that is named";
}

TEST_F(NodeSeriesTest, ThePageHasOpenTelemetrysNamesInPrometheusWords) {
  read(0, kTable[0], gpu("GPU-2"), 0.5);
  read(0, kTable[0], gpu("GPU-1"), 0.25);
  read(0, kTable[1], gpu("GPU-1"), 1.5);
  EXPECT_EQ(node_page(series, "a\"b"),
            "# HELP lockstep_gpu_sm_active Share of time.\n# TYPE lockstep_gpu_sm_active gauge\n"
            "lockstep_gpu_sm_active{host=\"a\\\"b\",gpu_uuid=\"GPU-1\"} 0.25\n"
            "lockstep_gpu_sm_active{host=\"a\\\"b\",gpu_uuid=\"GPU-2\"} 0.5\n"
            "# HELP hw_energy_joules_total Energy.\n# TYPE hw_energy_joules_total counter\n"
            "hw_energy_joules_total{host=\"a\\\"b\",gpu_uuid=\"GPU-1\"} 1.5\n");
}

TEST_F(NodeSeriesTest, DcgmNamesHaveDcgmExportersUnitsAndLabels) {
  read(0, kTable[1], gpu("GPU-1"), 1.5);
  read(0, kTable[2], kNone, 1);
  const GpuInfo info{.uuid = "GPU-1",
                     .index = 3,
                     .vendor = "nvidia",
                     .model = "NVIDIA H200",
                     .pci = "0000:1b:00.0",
                     .driver = "580.1",
                     .minor = 4};
  const std::string page = dcgm_page(series, "node-1", {info});
  EXPECT_NE(
      page.find("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu=\"3\",UUID=\"GPU-1\",pci_bus_id=\"00000000:1B:00.0\","
                "device=\"nvidia4\",modelName=\"NVIDIA H200\",Hostname=\"node-1\",DCGM_FI_DRIVER_VERSION=\"580.1\"} "
                "1500\n"),
      std::string::npos)
      << page;
  EXPECT_EQ(page.find("lockstep_"), std::string::npos);
}

TEST(OpenMetrics, ACountersFamilyLosesItsTotalAndTheTextEnds) {
  EXPECT_EQ(
      to_openmetrics("# HELP a_total help _total\n# TYPE a_total counter\na_total{x=\"1\"} 2\n# TYPE b gauge\nb 1\n"),
      "# HELP a help _total\n# TYPE a counter\na_total{x=\"1\"} 2\n# TYPE b gauge\nb 1\n# EOF\n");
  EXPECT_TRUE(wants_openmetrics("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2"));
  EXPECT_FALSE(wants_openmetrics("text/plain"));
}

}  // namespace
}  // namespace lockstep
