#include "agent/ranks/rank_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <set>

#include "base/text.h"
#include "model/events.h"
#include "wire/compression.h"
#include "wire/otlp.h"

namespace lockstep {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kUnix = 1'700'000'000'000'000'000;
constexpr uint64_t kComm = 0xfeed;

struct RankMetricsTest : ::testing::Test {
  RecorderHeader header;
  RecorderCost cost;
  RecordCounts records;
  RankAssembler assembler{kUnix};
  RankMetrics metrics;
  int64_t now_ns = 1'000 * kSecond;
  bool channels_apart = false;

  RankMetricsTest() {
    header.anchor_unix_ns = kUnix;
    assembler.set_comms({{.comm_index = 0, .live = true, .comm_id = kComm, .size = 4096, .rank_in_comm = 3}});
  }
  void transfer(int32_t peer, uint8_t channel, uint32_t wait_ns, uint32_t bytes = 1000, bool send = true) {
    Record record{};
    record.head.type = RecordType::kProxyStep;
    record.head.flags = send ? kFlagSend : 0;
    record.head.time_ns = static_cast<uint64_t>(now_ns);
    record.proxy_step.peer = peer;
    record.proxy_step.channel = channel;
    record.proxy_step.bytes = bytes;
    record.proxy_step.wait_peer_ns = wait_ns;
    assembler.add(record);
  }
  std::vector<MetricPoint> take(bool last = false) {
    assembler.end_drain(now_ns, 0);
    now_ns += 5 * kSecond;
    return metrics.take({header, cost, records, assembler, channels_apart, last}, now_ns, kUnix + now_ns);
  }
  static std::vector<MetricPoint> of(const std::vector<MetricPoint>& points, RankMetric metric) {
    std::vector<MetricPoint> some;
    for (const MetricPoint& point : points) {
      if (point.name == descriptor_of(metric).name) some.push_back(point);
    }
    return some;
  }
};

TEST_F(RankMetricsTest, TellsASeriesWhenItHasMovedAndNowAndThen) {
  transfer(7, 0, 1000);
  EXPECT_EQ(of(take(), RankMetric::kNetworkBytes).size(), 1u);
  EXPECT_EQ(of(take(), RankMetric::kNetworkBytes).size(), 0u);
  transfer(7, 0, 1000);
  EXPECT_EQ(of(take(), RankMetric::kNetworkBytes).at(0).int_value, 2000);
  size_t again = 0;
  for (int64_t left = RankMetrics::kRefreshNs; left > 0; left -= 5 * kSecond)
    again += of(take(), RankMetric::kNetworkBytes).size();
  EXPECT_EQ(again, 1u);
}

TEST_F(RankMetricsTest, WhatStandsStillIsToldOnceInTwoMinutesAlsoWhereOtherSeriesAreForgotten) {
  std::string told;
  for (int64_t at_s = 5; at_s <= 4 * 120; at_s += 5) told += of(take(), RankMetric::kGpuInfo).empty() ? '.' : 'x';
  const std::string refresh = "x" + std::string(RankMetrics::kRefreshNs / (5 * kSecond) - 1, '.');
  EXPECT_EQ(told, refresh + refresh + refresh + refresh);
}

TEST_F(RankMetricsTest, TellsLossTokensAndUtilisationOfTheLastStepThatToldThem) {
  auto mark = [&](RecordType type, double value, const char* name, int64_t at_ns) {
    Record record{};
    record.head.type = type;
    record.head.time_ns = static_cast<uint64_t>(at_ns);
    record.mark.number = 1;
    record.mark.value = value;
    std::snprintf(record.mark.name, sizeof record.mark.name, "%s", name);
    assembler.add(record);
  };
  EXPECT_TRUE(of(take(), RankMetric::kLoss).empty());
  mark(RecordType::kStepBegin, 0, "", now_ns);
  mark(RecordType::kScalar, 2e15, "peak_flops", now_ns + 1);
  mark(RecordType::kScalar, 1e15, "flops", now_ns + 2);
  mark(RecordType::kScalar, 8192, "tokens", now_ns + 3);
  mark(RecordType::kScalar, std::nan(""), "loss", now_ns + 4);
  mark(RecordType::kStepEnd, 0, "", now_ns + 2 * kSecond);
  assembler.end_drain(now_ns, 0);
  assembler.take_steps(now_ns, true);
  const std::vector<MetricPoint> points = take();
  EXPECT_DOUBLE_EQ(of(points, RankMetric::kMfu).at(0).value, 0.25);
  EXPECT_EQ(of(points, RankMetric::kMfu).at(0).start_unix_ns, 0) << "a gauge counts from no time";
  EXPECT_DOUBLE_EQ(of(points, RankMetric::kTokensPerSecond).at(0).value, 4096);
  EXPECT_TRUE(std::isnan(of(points, RankMetric::kLoss).at(0).value));
  EXPECT_DOUBLE_EQ(of(points, RankMetric::kStepSource).at(0).value, 1);
  EXPECT_TRUE(of(take(), RankMetric::kLoss).empty()) << "NaN again is nothing new";
}

TEST_F(RankMetricsTest, SaysWhatTransfersWaitedForByCauseAndDirection) {
  transfer(7, 0, 3'000'000);
  transfer(7, 1, 1'000'000, 500, false);
  std::map<std::string, double> waits;
  for (const MetricPoint& point : of(take(), RankMetric::kNetworkWait)) {
    EXPECT_EQ(find_string(point.attributes, "function"), "Unknown");
    EXPECT_EQ(find_int(point.attributes, "comm_size"), 4096);
    EXPECT_EQ(find_int(point.attributes, "peer"), 7);
    EXPECT_EQ(find(point.attributes, "channel"), nullptr);
    EXPECT_TRUE(point.monotonic);
    EXPECT_EQ(point.start_unix_ns, kUnix);
    waits[format("%s %s", std::string(find_string(point.attributes, "direction")).c_str(),
                 std::string(find_string(point.attributes, "cause")).c_str())] = point.value;
  }
  EXPECT_EQ(waits.size(), 6u);
  EXPECT_NEAR(waits["send peer"], 0.003, 1e-6);
  EXPECT_NEAR(waits["receive peer"], 0.001, 1e-6);
  EXPECT_EQ(waits["send wire"], 0);
}

TEST_F(RankMetricsTest, KeepsChannelsApartOnlyWhileEverythingIsAskedFor) {
  for (uint8_t channel = 0; channel < 4; ++channel) transfer(7, channel, 1000);
  std::vector<MetricPoint> together = of(take(), RankMetric::kNetworkBytes);
  ASSERT_EQ(together.size(), 1u);
  EXPECT_EQ(together[0].int_value, 4000);
  channels_apart = true;
  std::vector<MetricPoint> apart = of(take(), RankMetric::kNetworkBytes);
  ASSERT_EQ(apart.size(), 4u);
  EXPECT_EQ(find_int(apart[3].attributes, "channel"), 3);
  EXPECT_EQ(apart[3].int_value, 1000);
  channels_apart = false;
  transfer(7, 0, 1000);
  EXPECT_EQ(of(take(), RankMetric::kNetworkBytes).at(0).int_value, 5000);
}

TEST_F(RankMetricsTest, OfManyPeersThoseThatWaitedMostGoFirstAndTheOthersFollow) {
  for (int32_t peer = 0; peer < 40; ++peer) transfer(peer, 0, static_cast<uint32_t>(1000 * (peer + 1)));
  std::set<int64_t> reported;
  auto peers = [&] {
    std::vector<int64_t> all;
    for (const MetricPoint& point : of(take(), RankMetric::kNetworkBytes)) {
      all.push_back(find_int(point.attributes, "peer"));
      reported.insert(all.back());
    }
    return all;
  };
  std::vector<int64_t> first = peers();
  EXPECT_EQ(first.size(), RankMetrics::kPeerPointsMax / 4);
  EXPECT_EQ(first.front(), 39);
  EXPECT_EQ(metrics.held_back(), 4 * (40 - first.size()));
  peers();
  peers();
  EXPECT_EQ(reported.size(), 40u);
  transfer(0, 0, 1000);
  EXPECT_EQ(peers(), std::vector<int64_t>{0});
}

TEST_F(RankMetricsTest, TheLastReportHoldsNothingBack) {
  for (int32_t peer = 0; peer < 100; ++peer) transfer(peer, 0, 1000);
  EXPECT_EQ(of(take(true), RankMetric::kNetworkBytes).size(), 100u);
  EXPECT_EQ(metrics.held_back(), 0u);
}

TEST_F(RankMetricsTest, TellsWhatThePluginCountsNotAtEveryReport) {
  cost.events = 100;
  cost.samples = 3;
  cost.total_ns = 1'000;
  cost.buckets = {1, 0, 1, 0, 0, 0, 0, 0, 1};
  records.read = {1, 2, 3, 4, 5, 0};
  records.overwritten = 7;
  header.refused[static_cast<size_t>(Refused::kNoSlot)] = 9;
  header.mask = 0x5e;
  header.nccl_version = 22809;
  std::vector<MetricPoint> points = take();
  EXPECT_EQ(of(points, RankMetric::kPluginEvents).at(0).int_value, 100);
  EXPECT_EQ(of(points, RankMetric::kPluginRecords).size(), 5u);
  EXPECT_EQ(of(points, RankMetric::kPluginOverwritten).at(0).int_value, 7);
  EXPECT_EQ(of(points, RankMetric::kPluginTorn).at(0).int_value, 0);
  EXPECT_EQ(find_string(of(points, RankMetric::kPluginRefused).at(0).attributes, "reason"), "no_slot");
  EXPECT_EQ(of(points, RankMetric::kPluginRefused).at(0).int_value, 9);
  EXPECT_EQ(of(points, RankMetric::kPluginSwitchedOff).at(0).int_value, 0);
  EXPECT_EQ(of(points, RankMetric::kPluginDetailMask).at(0).int_value, 0x5e);
  EXPECT_EQ(of(points, RankMetric::kPluginNcclVersion).at(0).int_value, 22809);
  const MetricPoint callback = of(points, RankMetric::kPluginCallback).at(0);
  EXPECT_EQ(callback.kind, MetricKind::kHistogram);
  EXPECT_EQ(callback.count, 3u);
  EXPECT_EQ(callback.buckets.size(), callback.bounds.size() + 1);
  EXPECT_DOUBLE_EQ(callback.bounds.front(), 25e-9);
  EXPECT_DOUBLE_EQ(callback.value, 1e-6);

  cost.events = 200;
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(of(take(), RankMetric::kPluginEvents).empty());
  points = take();
  EXPECT_EQ(of(points, RankMetric::kPluginEvents).at(0).int_value, 200);
  EXPECT_TRUE(of(points, RankMetric::kPluginTorn).empty()) << "it has not moved";
  cost.events = 300;
  EXPECT_EQ(of(take(true), RankMetric::kPluginEvents).at(0).int_value, 300);
}

// Sends that take 20 us and 1 ns a byte, over a range of sizes.
TEST_F(RankMetricsTest, TellsLatencyAndBandwidthOfEachPeerOfACommunicator) {
  int64_t done_ns = now_ns;
  for (int i = 0; i < 60; ++i) {
    Record record{};
    const uint32_t bytes = 10'000u << i % 6;
    record.head.type = RecordType::kProxyStep;
    record.head.flags = kFlagSend;
    record.proxy_step.peer = 5;
    record.proxy_step.bytes = bytes;
    record.proxy_step.wire_ns = 20'000 + bytes;
    done_ns += record.proxy_step.wire_ns + 1000;
    record.head.time_ns = static_cast<uint64_t>(done_ns);
    assembler.add(record);
  }
  std::vector<MetricPoint> points = take();
  const MetricPoint latency = of(points, RankMetric::kPeerLatency).at(0);
  EXPECT_NEAR(latency.value, 20e-6, 2e-6);
  EXPECT_EQ(find_string(latency.attributes, "comm_id"), "000000000000feed");
  EXPECT_EQ(find_int(latency.attributes, "peer"), 5);
  EXPECT_NEAR(of(points, RankMetric::kPeerBandwidth).at(0).value, 1e9, 5e7);
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(of(take(), RankMetric::kPeerBandwidth).empty()) << "it has not moved";
}

// Transfers of one size draw no line: how fast the link is can be told, not how long the way is.
TEST_F(RankMetricsTest, ALatencyThatIsNotKnownIsNotTold) {
  for (int i = 0; i < 60; ++i) {
    Record record{};
    record.head.type = RecordType::kProxyStep;
    record.head.flags = kFlagSend;
    record.proxy_step.peer = 5;
    record.proxy_step.bytes = 1'000'000;
    record.proxy_step.wire_ns = 1'000'000;
    record.head.time_ns = static_cast<uint64_t>(now_ns + i * 2'000'000);
    assembler.add(record);
  }
  const std::vector<MetricPoint> points = take();
  EXPECT_EQ(of(points, RankMetric::kPeerBandwidth).size(), 1u);
  EXPECT_TRUE(of(points, RankMetric::kPeerLatency).empty());
}

// The fleet's budget is 0.5 kB a second and GPU, steps included: five seconds of metrics at their largest must leave
// room for them. Random waits, as they are worst to compress.
TEST_F(RankMetricsTest, AReportAtItsLimitFitsTheBudget) {
  if (!available(Encoding::kZstd)) GTEST_SKIP() << "built without zstd";
  constexpr int kRanks = 8;
  Batch batch{.signal = Signal::kMetrics, .groups = {}};
  uint64_t random = 12345;
  for (Rank rank : all_ranks(kRanks)) {
    std::vector<MetricPoint> points;
    metrics = RankMetrics();
    for (int report = 0; report < 5; ++report) {
      for (int32_t peer = 0; peer < 200; ++peer) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        transfer(peer, 0, static_cast<uint32_t>(random >> 34), static_cast<uint32_t>(random >> 44));
      }
      points = take();
    }
    now_ns -= 25 * kSecond;  // all ranks at the same time
    batch.groups.push_back({.resource = to_resource({"job", 0, rank, 64, rank.value(), "node-17", "GPU-1234"}),
                            .scope_name = "lockstep.agent",
                            .points = std::move(points)});
  }
  EXPECT_GT(batch.record_count(), kRanks * RankMetrics::kPeerPointsMax * 9 / 10);
  Result<std::string> bytes = compress(Encoding::kZstd, otlp::encode(batch));
  ASSERT_TRUE(bytes.ok());
  RecordProperty("bytes_per_second_and_rank", static_cast<int>(bytes->size()) / kRanks / 5);
  EXPECT_LT(bytes->size(), kRanks * 5 * 250u);
}

}  // namespace
}  // namespace lockstep
