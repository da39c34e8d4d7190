#include "analysis/cost/own_overhead.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/text.h"
#include "model/series_labels.h"
#include "store/testing/memory_metric_reader.h"

namespace lockstep {
namespace {

constexpr int64_t kFromMs = 1'000'000'000, kHourMs = 3'600'000, kNs = 1'000'000;

class OwnOverheadTest : public ::testing::Test {
 protected:
  // At the beginning of the window, then every so often, evenly up to its end.
  void counter(const char* name, Labels labels, std::initializer_list<double> values, int64_t over_ms = kHourMs) {
    labels.emplace_back(kMetricNameLabel, name);
    const int64_t intervals = std::max<int64_t>(1, static_cast<int64_t>(values.size()) - 1);
    int64_t at = 0;
    for (const double value : values) metrics_.add(labels, kFromMs + at++ * over_ms / intervals, value);
  }
  void agent(const std::string& host, std::initializer_list<double> cpu_seconds) {
    counter("lockstep_agent_cpu_seconds_total", {{"host", host}}, cpu_seconds);
  }
  void cores(const std::string& host, double count) {
    counter("system_cpu_time_seconds_total", {{"cpu_mode", "idle"}, {"host", host}}, {5, 5 + 0.75 * count * 3600});
    counter("system_cpu_time_seconds_total", {{"cpu_mode", "user"}, {"host", host}}, {9, 9 + 0.25 * count * 3600});
  }
  void gpus(const std::string& host, int count) {
    for (int i = 0; i < count; ++i)
      counter("lockstep_gpu_info", {{"gpu_uuid", format("GPU-%s-%d", host.c_str(), i)}, {"host", host}}, {1});
  }
  Overhead over(int64_t length_ms = kHourMs, std::vector<std::string> heard = {}) {
    const Result<Overhead> answer = overhead_of(metrics_, heard, kFromMs * kNs, (kFromMs + length_ms) * kNs);
    EXPECT_TRUE(answer.ok());
    return *answer;
  }
  static std::string why(const Overhead& overhead, std::string_view what) {
    for (const UnknownCost& row : overhead.unknown) {
      if (row.what == what) return row.sentence;
    }
    return "";
  }

  MemoryMetricReader metrics_;
};

TEST_F(OwnOverheadTest, AFleetIsWhatItsHostsTakeOfAllTheirCores) {
  for (const auto& [host, cpu, sent] : {std::tuple{"a", 36.0, 7'200.0}, {"b", 180.0, 36'000.0}}) {
    agent(host, {100, 100 + cpu});
    cores(host, 64);
    gpus(host, 4);
    counter("lockstep_agent_sent_bytes_total", {{"host", host}}, {1, 1 + sent});
    counter("lockstep_agent_memory_bytes", {{"host", host}}, {9e6, 30e6});
  }
  const Overhead overhead = over();
  EXPECT_EQ(overhead.agents.hosts, 2u);
  EXPECT_DOUBLE_EQ(overhead.agents.cpu_cores, 0.06);
  EXPECT_DOUBLE_EQ(overhead.agents.share_of_cores, 128);
  EXPECT_DOUBLE_EQ(overhead.agents.cpu_share, 0.06 / 128);
  EXPECT_EQ(overhead.agents.worst_host, "b");
  EXPECT_DOUBLE_EQ(overhead.agents.worst_share, 0.05 / 64);
  EXPECT_DOUBLE_EQ(overhead.agents.memory_bytes, 60e6);
  EXPECT_DOUBLE_EQ(overhead.agents.sent_bytes_per_s, 12);
  EXPECT_DOUBLE_EQ(overhead.agents.sent_bytes_per_s_per_gpu, 1.5);
  EXPECT_EQ(overhead.sentence,
            "Agents take 0.06 of 128 cores on 2 hosts (0.047 %), most on b (0.078 %); they send 12 B/s, 2 B/s a GPU. "
            "What the server takes is not known.");
  ASSERT_EQ(overhead.unknown.size(), 1u);
  EXPECT_EQ(overhead.unknown[0].what, "server");
}

TEST_F(OwnOverheadTest, AnAgentThatBeganAgainIsCountedFromZeroThere) {
  agent("a", {500, 518, 6, 18});
  cores("a", 8);
  EXPECT_DOUBLE_EQ(over().agents.cpu_cores, (18.0 + 6 + 12) / 3600);
}

TEST_F(OwnOverheadTest, AHostThatBeganAgainHasItsCoresStill) {
  agent("a", {0, 36});
  // 40 minutes, then a start of 15 minutes of which nothing was counted, then 5 more.
  counter("system_cpu_time_seconds_total", {{"cpu_mode", "idle"}, {"host", "a"}},
          {90'000, 90'000 + 16 * 1'200, 64, 64 + 16 * 1'200});
  EXPECT_DOUBLE_EQ(over().agents.share_of_cores, 16);
}

TEST_F(OwnOverheadTest, AHostWithoutCoresIsInNoShareAndIsNamed) {
  agent("a", {0, 36});
  cores("a", 10);
  agent("b", {0, 3600});
  counter("system_cpu_time_seconds_total", {{"cpu_mode", "idle"}, {"host", "b"}}, {7, 7}, 60'000);  // stands still
  const Overhead overhead = over();
  EXPECT_DOUBLE_EQ(overhead.agents.cpu_cores, 1.01);
  EXPECT_EQ(overhead.agents.share_hosts, 1u);
  EXPECT_DOUBLE_EQ(overhead.agents.cpu_share, 0.001);
  EXPECT_EQ(overhead.agents.worst_host, "a");
  EXPECT_TRUE(why(overhead, "cores").starts_with("b: number of cores unknown")) << why(overhead, "cores");
  EXPECT_TRUE(why(overhead, "sent_bytes").starts_with("2 hosts (a, ...): bytes sent unknown"));
}

TEST_F(OwnOverheadTest, WhatAHostSaysOfItsCpusIsBelievedBeforeTheirTimes) {
  for (const char* host : {"a", "b"}) agent(host, {0, 36});
  counter("system_cpu_logical_count", {{"host", "a"}}, {64, 48});  // some went offline
  cores("a", 60);
  cores("b", 16);  // an older agent
  const Overhead overhead = over();
  EXPECT_DOUBLE_EQ(overhead.agents.share_of_cores, 64);
  EXPECT_EQ(overhead.agents.worst_host, "b");
  EXPECT_EQ(why(overhead, "cores"), "");
}

TEST_F(OwnOverheadTest, AHostThatIsPushedAndScrapedCountsOnce) {
  for (const char* job : {"lockstep-agent", "scraped"}) {
    counter("lockstep_agent_cpu_seconds_total", {{"host", "a"}, {"job", job}}, {0, 36});
    counter("system_cpu_time_seconds_total", {{"host", "a"}, {"job", job}}, {0, 8 * 3600});
    counter("lockstep_agent_sent_bytes_total", {{"host", "a"}, {"job", job}}, {0, 3600});
  }
  const Overhead overhead = over();
  EXPECT_DOUBLE_EQ(overhead.agents.cpu_cores, 0.01);
  EXPECT_DOUBLE_EQ(overhead.agents.share_of_cores, 8);
  EXPECT_DOUBLE_EQ(overhead.agents.sent_bytes_per_s, 1);
}

TEST_F(OwnOverheadTest, OneSampleSaysThatAHostIsThereAndNothingMore) {
  agent("a", {500});
  counter("lockstep_server_cpu_seconds_total", {}, {70});
  const Overhead overhead = over();
  EXPECT_EQ(overhead.agents.hosts, 1u);
  EXPECT_TRUE(std::isnan(overhead.agents.cpu_cores));
  EXPECT_TRUE(std::isnan(overhead.agents.cpu_share));
  EXPECT_TRUE(std::isnan(overhead.server.cpu_cores));
  EXPECT_NE(why(overhead, "agent_cpu").find("only once"), std::string::npos);
  EXPECT_NE(why(overhead, "server_cpu"), "");
  EXPECT_TRUE(overhead.sentence.starts_with("What agents take on 1 host is not known yet.")) << overhead.sentence;
}

TEST_F(OwnOverheadTest, NothingAtAllIsUnknownAndNotFree) {
  const Overhead overhead = over(kHourMs, {"n-1", "n-2"});
  EXPECT_EQ(overhead.agents.hosts, 0u);
  EXPECT_EQ(overhead.sentence, "No agent has reported what it takes. What the server takes is not known.");
  EXPECT_TRUE(why(overhead, "agent").starts_with("2 hosts (n-1, ...): heard, without a report"))
      << why(overhead, "agent");
  EXPECT_NE(why(overhead, "server"), "");
}

TEST_F(OwnOverheadTest, DiskADayIsSaidOverADayAlone) {
  gpus("a", 2);
  counter("lockstep_server_cpu_seconds_total", {}, {0, 864}, 24 * kHourMs);
  counter("lockstep_server_memory_bytes", {}, {1e8, 2e8}, 24 * kHourMs);
  for (const char* part : {"log", "metrics"})
    counter("lockstep_server_disk_bytes", {{"part", part}}, {1e9, 2e9, 3e9}, 24 * kHourMs);
  const Overhead day = over(24 * kHourMs);
  EXPECT_DOUBLE_EQ(day.server.disk_bytes, 6e9);
  EXPECT_DOUBLE_EQ(day.server.disk_bytes_per_gpu, 3e9);
  EXPECT_DOUBLE_EQ(day.server.disk_bytes_per_gpu_day, 2e9);
  EXPECT_TRUE(
      day.sentence.ends_with("The server takes 0.01 cores, 200 MB of memory and 6.0 GB of disk, growing by "
                             "2.0 GB a GPU and day."))
      << day.sentence;
  const Overhead half = over(12 * kHourMs);
  EXPECT_DOUBLE_EQ(half.server.disk_bytes, 4e9);
  EXPECT_TRUE(std::isnan(half.server.disk_bytes_per_gpu_day));
  EXPECT_NE(why(half, "server_disk_per_gpu_day").find("over a day"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
