#include "diagnosis/signals/signal_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "diagnosis/signals/signatures.h"
#include "diagnosis/signals/testing/made_up_fleet.h"

namespace lockstep {
namespace {

using testing::kBegin;
using testing::kSecond;
using testing::MadeUpFleet;

MetricPoint point(std::string name, double value, int64_t seconds, Attributes attributes, bool counter = false) {
  MetricPoint point;
  point.name = std::move(name);
  point.kind = counter ? MetricKind::kSum : MetricKind::kGauge;
  point.monotonic = counter;
  point.temporality = counter ? Temporality::kCumulative : Temporality::kUnspecified;
  point.value = value;
  point.time_unix_ns = kBegin + seconds * kSecond;
  point.attributes = std::move(attributes);
  return point;
}

const Attributes kResource{{"service.name", "lockstep-agent"}, {"host.name", "n"}};

void report(SignalStore& book, const MetricPoint& reported) {
  book.on_metrics(kResource, std::span(&reported, 1), reported.time_unix_ns);
}
void report_clock(SignalStore& book, int64_t seconds, double hertz) {
  report(book, point("lockstep_gpu_clock_hertz", hertz, seconds, {{"gpu_uuid", "G"}, {"clock", "sm"}}));
}
SignalReading read(const SignalStore& book, const char* key, int64_t since, int64_t through, Place place = Place::kGpu,
                   const char* id = "G") {
  auto readings = book.read(place, "n", id, {0, kBegin + since * kSecond, kBegin + through * kSecond});
  return readings ? readings->of(signal_index(key)) : SignalReading{};
}

TEST(Signals, EveryRowOfTheSignatureTableNamesSignalsAndEventsThatExist) {
  for (const Signature& signature : signatures()) {
    for (const auto* tests : {&signature.required, &signature.expected, &signature.contradicting}) {
      for (const SignalTest& test : *tests) {
        if (test.compare == Compare::kSilent) continue;
        if (test.compare == Compare::kHappened) {
          EXPECT_NE(event_index(test.signal), kNoEvent) << signature.cause << " " << test.signal;
          continue;
        }
        ASSERT_NE(signal_index(test.signal), kNoSignal) << signature.cause << " " << test.signal;
        if (test.sibling[0] != '\0') {
          EXPECT_NE(signal_index(test.sibling), kNoSignal) << test.sibling;
        }
        EXPECT_GT(test.weight, 0);
      }
    }
  }
}

TEST(Signals, RowsOfOneSignalAgree) {
  for (const SignalRow& row : signal_rows()) {
    const SignalRow& first = signal_row(signal_index(row.key));
    EXPECT_EQ(row.place, first.place) << row.key;
    EXPECT_EQ(row.kind, first.kind) << row.key;
    EXPECT_EQ(row.merge, first.merge) << row.key;
    EXPECT_EQ(row.scale, first.scale) << row.key;
  }
  EXPECT_EQ(feeds_of("lockstep_nic_info")->info, InfoMetric::kNic);
  EXPECT_EQ(feeds_of("go_gc_duration_seconds"), nullptr);
}

TEST(Signals, XidsAreSortedByWhatTheyAreAbout) {
  auto kind = [](int64_t code, uint8_t severity) { return event_of("gpu.xid", code, severity); };
  EXPECT_EQ(kind(94, 2), event_index("xid_memory"));
  EXPECT_EQ(kind(149, 3), event_index("xid_nvlink"));
  EXPECT_EQ(kind(31, 1), event_index("xid_program"));
  EXPECT_EQ(kind(79, 3), event_index("xid_hardware"));
  EXPECT_EQ(kind(43, 0), kNoEvent);
  EXPECT_EQ(event_of("gpu.hung", -1, 3), event_index("gpu_lost"));
  EXPECT_EQ(event_of("profile.ready", -1, 0), kNoEvent);
}

TEST(SignalHistory, ShortFloatsKeepThreeDigits) {
  for (double value = 1e-4; value < 6e4; value *= 1.37) {
    EXPECT_NEAR(from_half(to_half(static_cast<float>(value))) / value, 1, 6e-4) << value;
    EXPECT_FLOAT_EQ(from_half(to_half(static_cast<float>(-value))), -from_half(to_half(static_cast<float>(value))));
  }
  EXPECT_EQ(from_half(to_half(0)), 0);
  EXPECT_EQ(from_half(to_half(1e9f)), 65504);
  EXPECT_TRUE(std::isnan(from_half(to_half(NAN))));
  EXPECT_EQ(from_half(to_half(65519.0f)), 65504);
}

TEST(SignalHistory, OldValuesBecomeMeansAndLeaveInOrder) {
  HistoryPage page;
  page.clear();
  uint32_t head = 1000;
  page.set_fine(head, 0);
  for (int i = 1; i <= 400; ++i) {
    page.advance(head, head + 1, NAN);
    page.set_fine(++head, static_cast<float>(i));
  }
  std::vector<HistoryValue> values = values_of(page, head);
  ASSERT_GT(values.size(), 20u);
  for (size_t i = 1; i < values.size(); ++i) {
    EXPECT_LE(values[i - 1].from + values[i - 1].buckets, values[i].from);
    EXPECT_LT(values[i - 1].value, values[i].value);
  }
  EXPECT_EQ(values.back().value, 400);
  EXPECT_EQ(values.front().buckets, kPerCoarse);
  EXPECT_NEAR(values.front().value, values.front().from - 1000 + 49.5, 1);
}

TEST(SignalHistory, AGapOfHoursLeavesNothingOld) {
  HistoryPage page;
  page.fill(0, 5000, 7);
  page.advance(5000, 90'000, NAN);
  EXPECT_TRUE(values_of(page, 90'000).empty());
}

TEST(SignalStore, TellsALevelNowAndBefore) {
  SignalStore book;
  for (int i = 0; i < 60; ++i) report_clock(book, 5 * i, i < 40 ? 1.98e9 : 1.4e9);
  SignalReading clock = read(book, "sm_clock", 200, 295);
  ASSERT_TRUE(clock.known);
  ASSERT_TRUE(clock.before_known);
  EXPECT_NEAR(clock.now, 1.4, 0.01);
  EXPECT_NEAR(clock.before, 1.98, 0.01);
}

TEST(SignalStore, ARateIsTheIncreasePerSecondHoweverOftenItIsTold) {
  for (int every : {1, 5, 10, 15}) {
    SignalStore book;
    for (int t = 0; t <= 240; t += every)
      report(book, point("lockstep_gpu_throttle_seconds_total", t <= 180 ? 0 : (t - 180) * 0.5, t,
                         {{"gpu_uuid", "G"}, {"reason", "power"}}, true));
    SignalReading share = read(book, "power_throttle", 180, 240);
    ASSERT_TRUE(share.known) << every;
    EXPECT_NEAR(share.now, 50, 10) << every;
    EXPECT_NEAR(share.before, 0, 0.1) << every;
  }
}

// The driver counts the sum of all heat and each reason for it, at the same time.
TEST(SignalStore, ANumberIsTheSameWhenItIsAskedForAgainLater) {
  MadeUpFleet fleet(2, 3, 2);
  fleet.only_changed = false;
  fleet.run(200);
  fleet.set_all("lockstep_nic_packet_seq_err_total{port=1}", 20);
  fleet.set_all("lockstep_gpu_sm_active", 0.4);
  const int64_t since = fleet.now();
  struct Claim {
    Place place;
    std::string id;
    EntityReadings readings;
  };
  std::vector<Claim> claims;
  for (int i = 0; i < 8; ++i) {
    fleet.run(5);
    if (i < 2) continue;  // there is no whole bucket since then
    for (const auto& [place, id] : {std::pair(Place::kGpu, MadeUpFleet::gpu_name(1, 0)), {Place::kNic, "mlx5_1"}})
      claims.push_back({place, id, *fleet.book.read(place, "node-1", id, {0, since, fleet.now() + 4 * kSecond})});
  }
  size_t compared = 0;
  for (const Claim& claim : claims) {
    const EntityReadings again =
        *fleet.book.read(claim.place, "node-1", claim.id, {0, since, claim.readings.through_unix_ns});
    for (size_t i = 0; i < again.by_ordinal.size(); ++i) {
      EXPECT_EQ(again.by_ordinal[i].known, claim.readings.by_ordinal[i].known);
      EXPECT_EQ(again.by_ordinal[i].now, claim.readings.by_ordinal[i].now) << i << " of " << claim.id;
      compared += again.by_ordinal[i].now != 0;
    }
  }
  EXPECT_GT(compared, 50u);
}

TEST(SignalStore, ReasonsThatOverlapAreNotMoreThanTheWholeTime) {
  SignalStore book;
  for (int t = 0; t <= 240; t += 5) {
    for (const char* reason : {"thermal", "sw_thermal"})
      report(book, point("lockstep_gpu_throttle_seconds_total", std::max(0, t - 180), t,
                         {{"gpu_uuid", "G"}, {"reason", reason}}, true));
  }
  EXPECT_DOUBLE_EQ(read(book, "thermal_throttle", 190, 240).now, 100);
}

TEST(SignalStore, WhatIsNotSentAgainHasNotChangedWhileItsGpuIsHeardOf) {
  SignalStore book;
  for (int t = 0; t <= 200; t += 5) {
    report(book, point("lockstep_gpu_temperature_margin_celsius", 20 + t % 3, t, {{"gpu_uuid", "G"}}));
    if (t == 0 || t == 120) {
      report(book, point("lockstep_gpu_pcie_width", 16, t, {{"gpu_uuid", "G"}}));
      report(book, point("hw.errors", 3, t, {{"gpu_uuid", "G"}, {"error.type", "corrected"}}, true));
    }
  }
  SignalReading width = read(book, "pcie_width", 150, 200);
  EXPECT_TRUE(width.known && width.before_known);
  EXPECT_EQ(width.now, 16);
  SignalReading errors = read(book, "ecc_corrected", 150, 200);
  EXPECT_TRUE(errors.known && errors.before_known);
  EXPECT_EQ(errors.now, 0);
}

TEST(SignalStore, AGpuThatFellSilentIsUnknownNotHealthy) {
  SignalStore book;
  for (int t = 0; t <= 100; t += 5) report_clock(book, t, 1.9e9 + t);
  EXPECT_FALSE(read(book, "sm_clock", 200, 300).known);
  EXPECT_FALSE(read(book, "temperature", 50, 100).known);
  EXPECT_FALSE(book.read(Place::kGpu, "n", "another", {}).has_value());
  EXPECT_FALSE(book.read(Place::kGpu, "elsewhere", "G", {}).has_value());
}

TEST(SignalStore, ASeriesThatAppearsLateHasNoPast) {
  SignalStore book;
  for (int t = 0; t <= 300; t += 5) {
    report_clock(book, t, 1.9e9 + t * 1e6);
    if (t >= 250) report(book, point("lockstep_gpu_foreign_processes", 1, t, {{"gpu_uuid", "G"}}));
  }
  SignalReading foreign = read(book, "foreign_processes", 250, 300);
  EXPECT_TRUE(foreign.known);
  EXPECT_FALSE(foreign.before_known);
}

TEST(SignalStore, SeriesOfOneSignalAreAddedUp) {
  SignalStore book;
  for (int t = 0; t <= 240; t += 5) {
    for (const char* type : {"crc_flit", "replay", "recovery"})
      report(book, point("lockstep_gpu_links_errors_total", t <= 180 ? 0 : (t - 180) * 2, t,
                         {{"gpu_uuid", "G"}, {"type", type}}, true));
  }
  EXPECT_NEAR(read(book, "link_errors", 180, 240).now, 6, 0.8);
}

TEST(SignalStore, ACounterThatFallsHasBeenReset) {
  SignalStore book;
  for (int t = 0; t <= 200; t += 5)
    report(book, point("lockstep_gpu_pcie_replays_total", t < 100 ? 1e6 : 3, t, {{"gpu_uuid", "G"}}, true));
  SignalReading replays = read(book, "pcie_replays", 90, 140);
  EXPECT_LT(replays.now, 10);
}

TEST(SignalStore, AnInterfaceBelongsToItsAdapterWhicheverIsHeardOfFirst) {
  SignalStore book;
  report(book, point("lockstep_nic_carrier_changes_total", 1, 0, {{"device", "eth0"}}, true));
  report(book, point("lockstep_nic_info", 1, 1,
                     {{"device", "mlx5_0"}, {"netdev", "eth0"}, {"gpu_uuid", "G"}, {"pci", "0000:1a:00.0"}}));
  report(book, point("hw.network.up", 1, 2, {{"device", "mlx5_0"}, {"port", "1"}}));
  report(book, point("lockstep_pcie_link_width", 16, 3, {{"pci", "0000:1a:00.0"}}));
  report(book, point("lockstep_nic_info", 1, 3, {{"device", "eno1"}, {"netdev", "eno1"}}));
  EXPECT_EQ(book.adapters_of("n", "G"), std::vector<std::string>{"mlx5_0"});
  EXPECT_EQ(book.adapters_of("n", "").size(), 2u);
  EXPECT_TRUE(read(book, "nic_up", 0, 5, Place::kNic, "mlx5_0").known);
  EXPECT_TRUE(read(book, "nic_pcie_width", 0, 5, Place::kNic, "eth0").known);
}

// Agents say in the resource whose GPU a point is about.
TEST(SignalStore, AnAdapterBelongsToTheGpuThatItsResourceNames) {
  SignalStore book;
  Attributes resource = kResource;
  resource.push_back({"lockstep.gpu_uuid", "G"});
  for (const MetricPoint& reported : {point("lockstep_gpu_info", 1, 1, {{"pci", "0000:1b:00.0"}}),
                                      point("lockstep_nic_info", 1, 1, {{"device", "mlx5_0"}, {"netdev", "eth0"}})})
    book.on_metrics(resource, std::span(&reported, 1), reported.time_unix_ns);
  EXPECT_EQ(book.adapters_of("n", "G"), std::vector<std::string>{"mlx5_0"});
}

TEST(SignalStore, KeepsTheLastEventsOfAHostAndNoneTwice) {
  SignalStore book;
  NodeEvent down;
  down.name = "link.down";
  for (int i = 0; i < 50; ++i) {
    down.time_unix_ns = kBegin + i * kSecond;
    down.device = "eth0";
    book.on_node_event("n", down, down.time_unix_ns);
    book.on_node_event("n", down, down.time_unix_ns);
  }
  std::vector<KeptEvent> events = book.events_of("n", kBegin, kBegin + 100 * kSecond);
  EXPECT_EQ(events.size(), SignalStore::kEventsMax);
  EXPECT_EQ(events.front().time_unix_ns, kBegin + 49 * kSecond);
  EXPECT_TRUE(book.events_of("n", 0, kBegin).empty());
}

TEST(SignalStore, TakesWhateverComesWithoutHarm) {
  SignalStore book;
  report_clock(book, 10, NAN);
  report_clock(book, 10, INFINITY);
  report_clock(book, 10, 1.9e9);
  report_clock(book, 5, 1.2e9);  // late
  EXPECT_EQ(book.refused().old_points, 1u);
  MetricPoint ended = point("lockstep_gpu_clock_hertz", 0, 20, {{"gpu_uuid", "G"}, {"clock", "sm"}});
  ended.flags = MetricPoint::kNoRecordedValue;
  report(book, ended);
  EXPECT_FALSE(read(book, "sm_clock", 0, 30).known);
  MetricPoint future = point("lockstep_gpu_clock_hertz", 1.8e9, 1'000'000, {{"gpu_uuid", "G"}, {"clock", "sm"}});
  book.on_metrics(kResource, std::span(&future, 1), kBegin + 30 * kSecond);
  EXPECT_TRUE(read(book, "sm_clock", 25, 30).known);
  MetricPoint nobody = point("lockstep_gpu_processes", 1, 1, {});
  book.on_metrics({}, std::span(&nobody, 1), kBegin);
  for (int i = 0; i < 200; ++i) report(book, point("lockstep_gpu_processes", 1, 40, {{"gpu_uuid", format("G%d", i)}}));
  EXPECT_EQ(book.gpus_of("n").size(), SignalStore::kGpusMax);
  EXPECT_GT(book.refused().entities, 0u);
}

TEST(SignalStore, ForgetsTheHostNotHeardOfForLongestWhenFull) {
  SignalStore book;
  MetricPoint load = point("lockstep_host_tasks_running", 1, 0, {});
  for (size_t i = 0; i < SignalStore::kHostsMax + 10; ++i) {
    load.time_unix_ns = kBegin + static_cast<int64_t>(i) * 1'000'000;
    book.on_metrics({{"host.name", format("h%zu", i)}}, std::span(&load, 1), load.time_unix_ns);
  }
  EXPECT_EQ(book.host_count(), SignalStore::kHostsMax);
  EXPECT_EQ(book.last_heard_unix_ns("h0"), 0);
  EXPECT_GT(book.last_heard_unix_ns("h10"), 0);
}

TEST(SignalStore, AGpuWithItsAdapterAndItsShareOfTheHostFitsItsBudgetWhateverMoves) {
  MadeUpFleet fleet(2);
  fleet.only_changed = false;
  std::mt19937 random(7);
  std::uniform_real_distribution<double> any(0.5, 1.5);
  for (int i = 0; i < 60; ++i) {
    // Everything moves all the time: the worst that can be sent.
    for (int host = 0; host < 2; ++host) {
      for (int gpu = 0; gpu < 8; ++gpu) {
        for (const auto& quantity : testing::kGpuQuantities)
          fleet.set(host, gpu, quantity.spec, any(random) * (quantity.healthy + 1));
        for (const auto& quantity : testing::kNicQuantities)
          fleet.set(host, gpu, quantity.spec, any(random) * (quantity.healthy + 1));
        for (const auto& quantity : testing::kNetdevQuantities)
          fleet.set(host, gpu, quantity.spec, any(random) * (quantity.healthy + 1));
      }
      for (const auto& quantity : testing::kHostQuantities)
        fleet.set(host, -1, quantity.spec, any(random) * (quantity.healthy + 1));
      NodeEvent xid;
      xid.name = "gpu.xid";
      xid.code = 79;
      xid.severity = EventSeverity::kCritical;
      xid.gpu_uuid = MadeUpFleet::gpu_name(host, i % 8);
      xid.meaning = "GPU fell off the bus";
      fleet.event(host, xid);
    }
    fleet.run(5);
  }
  EXPECT_LE(fleet.book.bytes() / 16, SignalStore::kBytesPerGpuMax);
  EXPECT_GT(fleet.book.refused().pages, 0u);  // more moved than there is room for, and that was counted
  // What moved and found no room is unknown, not at rest.
  const std::optional<EntityReadings> gpu =
      fleet.book.read(Place::kGpu, MadeUpFleet::host_name(0), MadeUpFleet::gpu_name(0, 0),
                      {.since_unix_ns = fleet.now() - 60'000'000'000, .through_unix_ns = fleet.now()});
  ASSERT_TRUE(gpu.has_value());
  const auto known = std::count_if(gpu->by_ordinal.begin(), gpu->by_ordinal.end(),
                                   [](const SignalReading& reading) { return reading.known; });
  EXPECT_EQ(known, static_cast<std::ptrdiff_t>(SignalStore::kGpuPagesMax));
}

TEST(SignalStore, AHealthyFleetTakesFarLessAndGrowsOnlyWithItsGpus) {
  auto bytes_per_gpu = [](int hosts) {
    MadeUpFleet fleet(hosts);
    fleet.run(130);
    EXPECT_EQ(fleet.book.refused().pages, 0u);
    return static_cast<double>(fleet.book.bytes()) / (hosts * 8);
  };
  double few = bytes_per_gpu(4), many = bytes_per_gpu(32);
  EXPECT_LT(many, 0.85 * SignalStore::kBytesPerGpuMax);
  EXPECT_NEAR(many / few, 1, 0.05);
}

}  // namespace
}  // namespace lockstep
