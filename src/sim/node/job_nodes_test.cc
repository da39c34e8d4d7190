#include "sim/node/job_nodes.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace lockstep::sim {
namespace {

constexpr int64_t kStart = 1'700'000'000'000'000'000;
const JobShape kShape{.job_id = "job", .tp = 2, .pp = 2, .dp = 4, .first_host = 3, .step_ms = 250};

// A job of two hosts, played for some seconds with the readings of its nodes.
struct Played {
  Fleet fleet{kShape, kStart};
  JobNodes nodes{kShape};
  std::map<std::string, int64_t> readings;                      // by host
  std::map<std::string, std::map<std::string, double>> newest;  // by metric and its attributes, by GPU or adapter
  std::vector<std::string> events;

  void play(int seconds, std::vector<Fault> faults = {}) {
    const int64_t end_ns = fleet.now_unix_ns() + seconds * 1'000'000'000ll;
    while (fleet.now_unix_ns() < end_ns) {
      ASSERT_TRUE(fleet.play_step(faults));
      for (const Batch& batch : nodes.due(fleet, faults, fleet.now_unix_ns())) hear(batch);
    }
  }
  void hear(const Batch& batch) {
    for (const ResourceGroup& group : batch.groups) {
      if (batch.signal == Signal::kMetrics && !group.points.empty())
        ++readings[std::string(find_string(group.resource, "host.name"))];
      for (const LogRecord& record : group.logs) events.push_back(record.event_name);
      for (const MetricPoint& point : group.points) {
        std::string key = point.name;
        for (const char* label : {"clock", "hw.sensor_location"}) {
          if (std::string_view value = find_string(point.attributes, label); !value.empty())
            key += " " + std::string(value);
        }
        std::string_view of = find_string(point.attributes, "gpu_uuid");
        if (of.empty()) of = find_string(group.resource, "lockstep.gpu_uuid");
        newest[key][std::string(of)] = point.value;
      }
    }
  }
  double of(const char* metric, Rank rank) { return newest[metric][fleet.identity(rank).gpu_uuid]; }
};

TEST(JobNodes, ReadEveryNodeOnceASecondUnderItsName) {
  Played played;
  played.play(5);
  EXPECT_EQ(played.readings.size(), 2u);
  for (const auto& [host, count] : played.readings) {
    EXPECT_TRUE(host == "node-03" || host == "node-04") << host;
    EXPECT_GE(count, 4) << host;
  }
}

TEST(JobNodes, ASlowGpuIsHotAndItsClockIsLowUntilTheFaultIsOver) {
  Played played;
  played.play(3, {{.kind = FaultKind::kSlowGpu, .rank = 5_rank, .severity = 1.6}});
  const char* clock = "lockstep_gpu_clock_hertz sm";
  EXPECT_LT(played.of(clock, 5_rank), 0.75 * played.of(clock, 4_rank));
  EXPECT_GT(played.of(clock, 4_rank), 1.8e9);
  played.play(3);
  EXPECT_GT(played.of(clock, 5_rank), 0.9 * played.of(clock, 4_rank));
}

TEST(JobNodes, AMissingRankShowsNothingOnItsNode) {
  EXPECT_EQ(cause_on_node(FaultKind::kMissingRank), Cause::kNone);
  EXPECT_EQ(cause_on_node(FaultKind::kSlowLink), Cause::kNicDegraded);
}

}  // namespace
}  // namespace lockstep::sim
