#include "store/applier.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "base/text.h"
#include "store/memory_metric_store.h"
#include "store/memory_span_store.h"
#include "store/memory_step_store.h"
#include "store/store_counters.h"

namespace lockstep {
namespace {

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

struct Heard : StoreSubscriber {
  std::vector<std::string> calls;
  void on_step(const Identity& identity, const StepSummary& step, int64_t received) override {
    calls.push_back(format("step %d.%lld@%lld", identity.rank, static_cast<long long>(step.step),
                           static_cast<long long>(received)));
  }
  void on_status(const Identity& identity, const RankStatus&, int64_t) override {
    calls.push_back(format("status %d", identity.rank));
  }
  void on_comm(const Identity& identity, const CommInit& comm, int64_t) override {
    calls.push_back(format("comm %d.%llu", identity.rank, static_cast<unsigned long long>(comm.comm_id)));
  }
  void on_rank_started(const Identity& identity, int64_t) override {
    calls.push_back(format("started %d", identity.rank));
  }
  void on_rank_ended(const Identity& identity, bool clean, int64_t) override {
    calls.push_back(format("ended %d %s", identity.rank, clean ? "clean" : "unclean"));
  }
  void on_records_lost(const Identity& identity, int64_t records, int64_t) override {
    calls.push_back(format("lost %d.%lld", identity.rank, static_cast<long long>(records)));
  }
  void on_metrics(const Attributes& resource, std::span<const MetricPoint> points, int64_t received) override {
    calls.push_back(format("metrics %s %zu@%lld", std::string(find_string(resource, "host.name")).c_str(),
                           points.size(), static_cast<long long>(received)));
  }
  void on_node_event(std::string_view host, const NodeEvent& event, int64_t received) override {
    calls.push_back(format("event %s %s %lld@%lld", std::string(host).c_str(), event.name.c_str(),
                           static_cast<long long>(event.code), static_cast<long long>(received)));
  }
};

class ApplierTest : public ::testing::Test {
 protected:
  ApplierTest() { applier_.subscribe(heard_); }
  static Identity identity() {
    return {.job_id = "job",
            .attempt = 0,
            .rank = 3,
            .world_size = 8,
            .local_rank = 3,
            .host = "node-0",
            .gpu_uuid = "GPU-3"};
  }
  void apply_logs(Attributes resource, std::vector<LogRecord> logs) {
    Batch batch{.signal = Signal::kLogs, .groups = {{.resource = std::move(resource), .logs = std::move(logs)}}};
    applier_.apply(Signal::kLogs, batch, 1000);
  }
  void apply_point(MetricPoint point, Attributes resource = {}) {
    Batch batch{.signal = Signal::kMetrics,
                .groups = {{.resource = std::move(resource), .points = {std::move(point)}}}};
    applier_.apply(Signal::kMetrics, batch, 1000);
  }
  Series series(const std::string& name, size_t index = 0) {
    std::vector<Series> found = metrics_.select(name, 0, kAll, 100, nullptr);
    EXPECT_GT(found.size(), index) << name;
    return found.size() > index ? found[index] : Series{};
  }

  Counters counters_{kStoreCounters};
  MemoryStepStore steps_{{}, counters_};
  MemorySpanStore spans_{{}, counters_};
  MemoryMetricStore metrics_{{}, counters_};
  AgentRegistry agents_;
  Applier applier_{steps_, spans_, metrics_, agents_, counters_};
  Heard heard_;
};

TEST_F(ApplierTest, EventsBecomeRowsAndSubscribersHearOfThemInOrder) {
  StepSummary step;
  step.step = 7;
  step.duration_ns = 5;
  step.records_lost = 2;
  RankStatus status;
  status.time_unix_ns = 60;
  apply_logs(to_resource(identity()),
             {job_start_record(1), to_record(CommInit{.comm_id = 9, .size = 8, .rank_in_comm = 3}, 2), to_record(step),
              to_record(status), to_record(Gap{"ring_overwritten", 10}, 3), job_end_record(4, true)});
  EXPECT_EQ(heard_.calls, (std::vector<std::string>{"started 3", "comm 3.9", "step 3.7@1000", "status 3", "lost 3.10",
                                                    "ended 3 clean"}));
  std::optional<JobInfo> job = steps_.job("job");
  ASSERT_TRUE(job.has_value());
  const RankInfo& rank = job->ranks.at(0);
  EXPECT_EQ(rank.identity, identity());
  EXPECT_EQ(rank.last_step, 7);
  EXPECT_EQ(rank.comms.at(0).comm_id, 9u);
  EXPECT_TRUE(rank.status.has_value());
  EXPECT_TRUE(rank.ended && rank.ended_cleanly);
  EXPECT_EQ(rank.records_lost, 12);
  EXPECT_EQ(steps_.steps("job", 7, 7).size(), 1u);
  EXPECT_EQ(steps_.logs("", "", 100).total, 6u);
  EXPECT_EQ(steps_.logs("", "train.step", 100).total, 1u);
  ASSERT_EQ(agents_.agents().size(), 1u);
  EXPECT_EQ(agents_.agents()[0].host, "node-0");
  EXPECT_EQ(agents_.agents()[0].records_lost, 12);
  EXPECT_EQ(agents_.agents()[0].last_seen_unix_ns, 1000);
}

TEST_F(ApplierTest, AnEventThatCannotBeReadIsCountedAndKeptAsALogRecordOnly) {
  LogRecord no_step;
  no_step.event_name = "train.step";
  apply_logs(to_resource(identity()), {no_step});
  apply_logs({{"service.name", "app"}}, {to_record(StepSummary{})});
  LogRecord plain;
  plain.body = Value("hello");
  apply_logs({{"service.name", "app"}}, {plain});
  EXPECT_TRUE(heard_.calls.empty());
  EXPECT_TRUE(steps_.jobs().empty());
  EXPECT_EQ(steps_.logs("", "", 10).total, 3u);
  EXPECT_EQ(steps_.logs("app", "", 1).items.at(0).record.observed_unix_ns, 1000)
      << "a record without a time gets the time it was received";
  EXPECT_EQ(counters_.value("lockstep_apply_records_refused_total", "signal=\"logs\",reason=\"malformed\""), 1);
  EXPECT_EQ(counters_.value("lockstep_apply_records_refused_total", "signal=\"logs\",reason=\"no_identity\""), 1);
  EXPECT_EQ(
      counters_.sum("lockstep_apply_records_received_total"),
      counters_.sum("lockstep_apply_records_passed_total") + counters_.sum("lockstep_apply_records_refused_total"));
}

TEST_F(ApplierTest, AGapWithoutARankIsTheAgentsOwn) {
  apply_logs({{"service.name", "lockstep-agent"}, {"host.name", "node-9"}}, {to_record(Gap{"spool_full", 4}, 1)});
  EXPECT_EQ(agents_.agents().at(0).records_lost, 4);
  EXPECT_EQ(counters_.sum("lockstep_apply_records_refused_total"), 0);
}

TEST_F(ApplierTest, LabelsArePointAttributesPlusTheIdentityOfTheResource) {
  MetricPoint point{.name = "gpu.power",
                    .unit = "W",
                    .attributes = {{"gpu", 3}, {"on", true}, {"host.name", "told by the point"}},
                    .time_unix_ns = 5,
                    .value = 300};
  Attributes resource = to_resource(identity());
  resource.push_back({"process.pid", 12});
  apply_point(point, resource);
  Series power = series("gpu.power");
  EXPECT_EQ(power.kind, "gauge");
  EXPECT_EQ(power.unit, "W");
  EXPECT_EQ(power.labels, (Labels{{"gpu", "3"},
                                  {"host.name", "told by the point"},
                                  {"lockstep.attempt", "0"},
                                  {"lockstep.gpu_uuid", "GPU-3"},
                                  {"lockstep.job_id", "job"},
                                  {"lockstep.local_rank", "3"},
                                  {"lockstep.rank", "3"},
                                  {"lockstep.world_size", "8"},
                                  {"on", "true"},
                                  {"service.name", "lockstep-agent"}}));
  EXPECT_EQ(power.samples.at(0).value, 300);
}

TEST_F(ApplierTest, SumsAreCountersOnlyWhenTheyCannotFall) {
  apply_point({.name = "up",
               .kind = MetricKind::kSum,
               .temporality = Temporality::kCumulative,
               .monotonic = true,
               .time_unix_ns = 5,
               .int_value = 42,
               .is_int = true});
  apply_point({.name = "updown",
               .kind = MetricKind::kSum,
               .temporality = Temporality::kCumulative,
               .time_unix_ns = 5,
               .value = 1.5});
  apply_point({.name = "change",
               .kind = MetricKind::kSum,
               .temporality = Temporality::kDelta,
               .monotonic = true,
               .time_unix_ns = 5,
               .value = 2});
  EXPECT_EQ(series("up").kind, "counter");
  EXPECT_EQ(series("up").samples.at(0).value, 42);
  EXPECT_EQ(series("updown").kind, "gauge");
  EXPECT_EQ(series("change").labels, (Labels{{"temporality", "delta"}}));
}

TEST_F(ApplierTest, AHistogramBecomesCumulativeBucketsSumAndCount) {
  apply_point({.name = "wait",
               .unit = "s",
               .kind = MetricKind::kHistogram,
               .temporality = Temporality::kCumulative,
               .time_unix_ns = 5,
               .value = 12.5,
               .count = 6,
               .bounds = {0.5, 10},
               .buckets = {1, 2, 3}});
  std::vector<Series> buckets = metrics_.select("wait_bucket", 0, kAll, 10, nullptr);
  ASSERT_EQ(buckets.size(), 3u);
  std::map<std::string, double> by_bound;
  for (const Series& bucket : buckets) by_bound[bucket.labels.at(0).second] = bucket.samples.at(0).value;
  EXPECT_EQ(by_bound, (std::map<std::string, double>{{"0.5", 1}, {"10", 3}, {"+Inf", 6}}));
  EXPECT_EQ(series("wait_sum").samples.at(0).value, 12.5);
  EXPECT_EQ(series("wait_sum").unit, "s");
  EXPECT_EQ(series("wait_count").samples.at(0).value, 6);
  EXPECT_EQ(series("wait_count").kind, "histogram_count");
}

TEST_F(ApplierTest, ASummaryBecomesQuantileSeriesAndAnExponentialHistogramItsTotals) {
  apply_point({.name = "lag",
               .kind = MetricKind::kSummary,
               .time_unix_ns = 5,
               .value = 9,
               .count = 3,
               .bounds = {0.5, 0.99},
               .quantile_values = {1, 2}});
  EXPECT_EQ(series("lag", 1).labels, (Labels{{"quantile", "0.99"}}));
  EXPECT_EQ(series("lag", 1).samples.at(0).value, 2);
  EXPECT_EQ(series("lag_count").samples.at(0).value, 3);
  apply_point({.name = "size",
               .kind = MetricKind::kExponentialHistogram,
               .time_unix_ns = 5,
               .value = 9,
               .count = 4,
               .buckets = {1, 3}});
  EXPECT_EQ(series("size_sum").samples.at(0).value, 9);
  EXPECT_EQ(counters_.value("lockstep_apply_points_reduced_total"), 1);
}

TEST_F(ApplierTest, NoRecordedValueIsAStaleMarkerNotAZero) {
  apply_point({.name = "gone", .time_unix_ns = 5, .flags = 1});
  EXPECT_EQ(std::bit_cast<uint64_t>(series("gone").samples.at(0).value), 0x7FF0000000000002u);
}

TEST_F(ApplierTest, TellsOfThePointsOfAResourceAtOnce) {
  Batch batch{.signal = Signal::kMetrics,
              .groups = {{.resource = {{"host.name", "node-0"}}, .points = {{.name = "a"}, {.name = "b"}}},
                         {.resource = {{"host.name", "node-1"}}, .points = {{.name = "a"}}}}};
  applier_.apply(Signal::kMetrics, batch, 1000);
  EXPECT_EQ(heard_.calls, (std::vector<std::string>{"metrics node-0 2@1000", "metrics node-1 1@1000"}));
}

TEST_F(ApplierTest, TellsOfNodeEventsAndCountsThoseItCannotRead) {
  NodeEvent xid;
  xid.name = "gpu.xid";
  xid.time_unix_ns = 900;
  xid.code = 79;
  LogRecord broken = to_record(xid);
  broken.attributes.push_back({"device", int64_t{7}});
  LogRecord foreign;
  foreign.event_name = "browser.click";
  Attributes agent{{"service.name", "lockstep-agent"}, {"host.name", "node-0"}};
  apply_logs(agent, {to_record(xid), broken, foreign});
  EXPECT_EQ(heard_.calls, (std::vector<std::string>{"event node-0 gpu.xid 79@1000"}));
  EXPECT_EQ(counters_.value("lockstep_apply_records_refused_total", "signal=\"logs\",reason=\"malformed\""), 1);
  apply_logs({{"service.name", "another"}, {"host.name", "node-0"}}, {broken});
  apply_logs({{"service.name", "lockstep-agent"}}, {to_record(xid)});  // of no host
  EXPECT_EQ(heard_.calls.size(), 1u);
  EXPECT_EQ(counters_.value("lockstep_apply_records_refused_total", "signal=\"logs\",reason=\"malformed\""), 1);
}

TEST_F(ApplierTest, SpansAreKeptWithTheirService) {
  Span span;
  span.name = "step";
  Batch batch{.signal = Signal::kSpans, .groups = {{.resource = {{"service.name", "trainer"}}, .spans = {span}}}};
  applier_.apply(Signal::kSpans, batch, 1000);
  EXPECT_EQ(spans_.newest("trainer", 10).items.at(0).span, span);
  EXPECT_EQ(counters_.value("lockstep_apply_records_passed_total", "signal=\"spans\""), 1);
}

}  // namespace
}  // namespace lockstep
