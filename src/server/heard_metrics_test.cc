#include "server/heard_metrics.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <optional>

#include "base/files.h"
#include "diagnosis/signals/testing/made_up_fleet.h"
#include "ingest/counters_table.h"
#include "ingest/otlp/metric_mapping.h"
#include "store/memory_span_store.h"
#include "store/memory_step_store.h"
#include "store/metrics/metric_engine.h"
#include "store/testing/memory_metric_reader.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"
#include "wire/otlp.h"

namespace lockstep {
namespace {

using testing::kBegin;
using testing::kSecond;

// Time, time of receipt, host, name, attributes: "1000 1000 n0 hw.temperature a:b = 5".
struct Told final : StoreSubscriber {
  std::vector<std::string> lines;
  bool hears_metric(std::string_view name) const override {
    return name == "hw.temperature" || name == "lockstep_gpu_links_up" || name == "lockstep_gpu_info";
  }
  void on_metrics(const Attributes& resource, std::span<const MetricPoint> points, int64_t received_unix_ns) override {
    for (const MetricPoint& point : points) {
      std::string line = format("%lld %lld %s", static_cast<long long>(point.time_unix_ns / kSecond),
                                static_cast<long long>(received_unix_ns / kSecond),
                                std::string(find_string(resource, "host.name")).c_str());
      line += " " + point.name;
      for (const Attribute& attribute : point.attributes)
        line += " " + attribute.key + ":" + plain_text(attribute.value);
      lines.push_back(line + (point.is_stale() ? " ended" : format(" = %g", point.value)));
    }
  }
};

class HeardMetricsTest : public ::testing::Test {
 protected:
  HeardMetricsTest() { applier_.subscribe(told_); }
  void add(const MemoryMetricReader::LabelList& labels, int64_t second, double value) {
    store_.add(labels, second * 1000, value);
  }
  HeardMetrics read(int64_t from_s, int64_t to_s, uint64_t samples_max = HeardMetrics::kSamplesMax) {
    return HeardMetrics(store_, applier_, set_aside_, from_s * kSecond, to_s * kSecond, samples_max, 2);
  }

  Counters counters_{kServerCounters};
  MemoryStepStore steps_{{}, counters_};
  MemorySpanStore spans_{{}, counters_};
  AgentRegistry agents_;
  Applier applier_{steps_, spans_, agents_, counters_};
  Told told_;
  const testing::TemporaryFolder folder_;
  SetAside set_aside_{folder_.path(), counters_};
  MemoryMetricReader store_;
};

TEST_F(HeardMetricsTest, PointsAreToldOnceInTheOrderOfTheirTimesUnderTheNamesTheyWereSentBy) {
  add({{"__name__", "lockstep_gpu_links_up"}, {"host", "n1"}, {"gpu_uuid", "G"}}, 2000, 18);
  add({{"__name__", "hw_temperature_celsius"}, {"host", "n0"}, {"job", "x"}, {"hw_sensor_location", "gpu"}}, 1000, 5);
  add({{"__name__", "hw_temperature_celsius"}, {"host", "n0"}, {"job", "x"}, {"hw_sensor_location", "gpu"}}, 3000, 6);
  HeardMetrics heard = read(0, 9000);
  heard.tell_through(999 * kSecond);
  EXPECT_TRUE(told_.lines.empty());
  heard.tell_through(2000 * kSecond);
  EXPECT_EQ(told_.lines, (std::vector<std::string>{"1000 1000 n0 hw.temperature hw.sensor_location:gpu = 5",
                                                   "2000 2000 n1 lockstep_gpu_links_up gpu_uuid:G = 18"}));
  heard.tell_through(2000 * kSecond);
  EXPECT_EQ(told_.lines.size(), 2u);
  heard.tell_through(9000 * kSecond);
  ASSERT_EQ(told_.lines.size(), 3u);
  EXPECT_EQ(told_.lines[2], "3000 3000 n0 hw.temperature hw.sensor_location:gpu = 6");
  EXPECT_EQ(heard.points(), 3u);
}

TEST_F(HeardMetricsTest, OfOneMomentWhatSaysWhichPartsThereAreComesFirst) {
  for (const char* name : {"lockstep_gpu_links_up", "hw_temperature", "lockstep_gpu_info"})
    add({{"__name__", name}, {"host", "n0"}}, 1000, 1);
  read(0, 9000).tell_through(9000 * kSecond);
  ASSERT_EQ(told_.lines.size(), 3u);
  EXPECT_EQ(told_.lines[0], "1000 1000 n0 lockstep_gpu_info = 1");
}

TEST_F(HeardMetricsTest, WhatNobodyHearsOrHasNoHostIsNotTold) {
  add({{"__name__", "hw_temperature_limit_celsius"}, {"host", "n0"}}, 1000, 5);
  add({{"__name__", "hw_temperatures"}, {"host", "n0"}}, 1000, 5);
  add({{"__name__", "hw_temperature_celsius"}, {"instance", "n0:1"}}, 1000, 5);
  add({{"__name__", "hw_temperature_celsius"}, {"host", "n0"}}, 1000, 7);
  read(0, 9000).tell_through(9000 * kSecond);
  EXPECT_EQ(told_.lines, std::vector<std::string>{"1000 1000 n0 hw.temperature = 7"});
}

TEST_F(HeardMetricsTest, ASeriesThatEndedEndsAgain) {
  add({{"__name__", "lockstep_gpu_info"}, {"host", "n0"}}, 1000, std::bit_cast<double>(kStaleBits));
  read(0, 9000).tell_through(9000 * kSecond);
  EXPECT_EQ(told_.lines, std::vector<std::string>{"1000 1000 n0 lockstep_gpu_info ended"});
}

TEST_F(HeardMetricsTest, OfMoreThanCanBeReadTheNewestAreTold) {
  for (int64_t second = 0; second < 40'000; second += 10)
    add({{"__name__", "hw_temperature"}, {"host", "n0"}}, second, 1);
  HeardMetrics heard = read(0, 39'999, 1000);
  heard.tell_through(39'999 * kSecond);
  EXPECT_GE(heard.points(), 900u);
  EXPECT_LE(heard.points(), 1100u);
  EXPECT_EQ(told_.lines.back(), "39990 39990 n0 hw.temperature = 1");
}

TEST_F(HeardMetricsTest, AMomentInWhichTheServerDiesAgainAndAgainIsLeftOut) {
  for (const int64_t second : {1000, 1001, 1002}) add({{"__name__", "hw_temperature"}, {"host", "n0"}}, second, 1);
  ASSERT_TRUE(write_file_atomically(folder_.path() + "/set_aside", "18446744073709551615 1001000000000\n").ok());
  SetAside set_aside(folder_.path(), counters_);
  HeardMetrics heard(store_, applier_, set_aside, 0, 9000 * kSecond);
  heard.tell_through(9000 * kSecond);
  EXPECT_EQ(told_.lines,
            (std::vector<std::string>{"1000 1000 n0 hw.temperature = 1", "1002 1002 n0 hw.temperature = 1"}));
}

// A made-up fleet whose reports go through everything between: OTLP's bytes, the mapping and the engine with its log.
class ReadBackSignals : public ::testing::Test {
 protected:
  ReadBackSignals() {
    open();
    applier_.subscribe(again_);
    fleet_.also = [this](const Attributes& resource, std::span<const MetricPoint> points) {
      clock_.advance_to(fleet_.now());
      Batch batch{.signal = Signal::kMetrics, .groups = {{.resource = resource}}};
      batch.groups[0].points.assign(points.begin(), points.end());
      const std::string bytes = otlp::encode(batch);
      const otlp::MetricsRequest request = otlp::decode_metrics(bytes).value();
      const Result<MetricMapping::Outcome> pushed = mapping_->push("otlp_http", request, fleet_.now());
      ASSERT_TRUE(pushed.ok());
      ASSERT_EQ(pushed->refused, 0u) << pushed->line;
    };
  }
  void open() {
    mapping_.reset();
    intake_.reset();
    engine_.reset();
    engine_ =
        MetricEngine::open({.folder = folder_.path() + "/metrics", .background = false}, clock_, counters_).value();
    intake_.emplace(*engine_, clock_, counters_);
    mapping_.emplace(*intake_, clock_);
  }
  void compare(Place place, const std::string& host, const std::string& id) {
    for (SignalIndex signal = 0; signal < signal_count(); ++signal) {
      if (signal_row(signal).place != place) continue;
      const std::vector<HistoryValue> was = fleet_.book.history(place, host, id, signal);
      const std::vector<HistoryValue> is = again_.history(place, host, id, signal);
      ASSERT_EQ(is.size(), was.size()) << signal_row(signal).key << " of " << host << " " << id;
      for (size_t i = 0; i < was.size(); ++i) {
        EXPECT_EQ(is[i].from, was[i].from) << signal_row(signal).key;
        EXPECT_EQ(std::isnan(is[i].value), std::isnan(was[i].value)) << signal_row(signal).key << " " << i;
        // Sums of several series may be added up in another order.
        if (!std::isnan(was[i].value))
          EXPECT_NEAR(is[i].value, was[i].value, 2e-3 * std::abs(was[i].value)) << signal_row(signal).key << " " << i;
        moved_ += was[i].value != was[0].value;
        ++compared_;
      }
    }
  }
  void compare_all() {
    for (int host = 0; host < 2; ++host) {
      const std::string name = testing::MadeUpFleet::host_name(host);
      compare(Place::kHost, name, name);
      for (int gpu = 0; gpu < 2; ++gpu) {
        compare(Place::kGpu, name, testing::MadeUpFleet::gpu_name(host, gpu));
        compare(Place::kNic, name, format("mlx5_%d", gpu));
      }
    }
  }

  const testing::TemporaryFolder folder_;
  Counters counters_{kServerCounters};
  testing::FakeClock clock_{kBegin};
  std::unique_ptr<MetricEngine> engine_;
  std::optional<MetricIntake> intake_;
  std::optional<MetricMapping> mapping_;
  testing::MadeUpFleet fleet_{2, 7, 2};
  MemoryStepStore steps_{{}, counters_};
  MemorySpanStore spans_{{}, counters_};
  AgentRegistry agents_;
  Applier applier_{steps_, spans_, agents_, counters_};
  SignalStore again_;
  size_t compared_ = 0, moved_ = 0;
};

TEST_F(ReadBackSignals, AreWhatTheyWereAndGoOnAsIfNothingHadBeen) {
  fleet_.run(600);
  fleet_.set(0, 1, "lockstep_gpu_clock_hertz{clock=sm}", 1.2e9);
  fleet_.set(1, 0, "lockstep_nic_packet_seq_err_total{port=1}", 40);
  fleet_.set(1, -1, "lockstep_storage_retransmissions_total{mount=/data}", 3);
  fleet_.run(300);

  open();
  SetAside set_aside(folder_.path(), counters_);
  HeardMetrics heard(*engine_, applier_, set_aside, kBegin - kSecond, fleet_.now() + kSecond);
  heard.tell_through(fleet_.now() + kSecond);
  EXPECT_GT(heard.points(), 1000u);
  EXPECT_EQ(agents_.agents().size(), 2u);
  compare_all();

  fleet_.also = [this](const Attributes& resource, std::span<const MetricPoint> points) {
    again_.on_metrics(resource, points, fleet_.now());
  };
  fleet_.run(60);
  compare_all();
  EXPECT_GT(compared_, 2000u);
  EXPECT_GT(moved_, 500u);
}

}  // namespace
}  // namespace lockstep
