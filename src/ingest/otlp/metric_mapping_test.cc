#include "ingest/otlp/metric_mapping.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/protobuf_wire.h"
#include "ingest/counters_table.h"
#include "ingest/testing/recording_metric_writer.h"
#include "store/metric_reader.h"
#include "wire/otlp.h"

namespace lockstep {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kNow = 1'793'000'000 * kSecond;

class MetricMappingTest : public ::testing::Test {
 protected:
  MetricMapping::Outcome push(const std::vector<MetricPoint>& points) {
    Batch batch;
    batch.signal = Signal::kMetrics;
    batch.groups.resize(1);
    batch.groups[0].resource = resource;
    batch.groups[0].points = points;
    Result<MetricMapping::Outcome> outcome = push_bytes(otlp::encode(batch));
    EXPECT_TRUE(outcome.ok()) << outcome.error();
    EXPECT_EQ(
        counters.sum("lockstep_ingest_received_records_total"),
        counters.sum("lockstep_ingest_passed_records_total") + counters.sum("lockstep_ingest_refused_records_total"));
    return outcome.ok() ? *outcome : MetricMapping::Outcome{};
  }
  Result<MetricMapping::Outcome> push_bytes(const std::string& bytes) {
    const otlp::MetricsRequest request = LOCKSTEP_TRY(otlp::decode_metrics(bytes));
    return mapping.push("otlp_http", request, kNow);
  }
  static MetricPoint point(const char* name, const char* unit, MetricKind kind, double value, int64_t second = 1) {
    MetricPoint point;
    point.name = name;
    point.unit = unit;
    point.kind = kind;
    point.value = value;
    point.time_unix_ns = kNow + second * kSecond;
    point.temporality = kind == MetricKind::kGauge ? Temporality::kUnspecified : Temporality::kCumulative;
    point.monotonic = kind == MetricKind::kSum;
    return point;
  }
  double last(const std::string& series) {
    EXPECT_TRUE(writer.samples.contains(series)) << series << " is not among: " << all();
    return writer.samples[series].empty() ? 0 : writer.samples[series].back().value;
  }
  std::string all() const {
    std::string text;
    for (const auto& [series, samples] : writer.samples) text += series + "\n";
    return text;
  }
  SystemClock clock;
  Counters counters{kServerCounters};
  testing::RecordingMetricWriter writer;
  MetricIntake intake{writer, clock, counters};
  MetricMapping mapping{intake, clock};
  Attributes resource = {{"host.name", "n1"}};
};

TEST_F(MetricMappingTest, NamesAndLabelsAreWhatPromQlCanSay) {
  resource = {{"service.name", "trainer"},  {"service.namespace", "ml"}, {"service.instance.id", "7"},
              {"lockstep.job_id", "llama"}, {"host.name", "n1"},         {"os.type", "linux"},
              {"lockstep.rank", int64_t{3}}};
  MetricPoint utilization = point("hw.gpu.utilization", "1", MetricKind::kGauge, 0.5);
  utilization.attributes = {{"hw.gpu.task", "compute"}, {"host", "from the point"}};
  push({utilization});
  ASSERT_EQ(writer.samples.size(), 1u);
  EXPECT_EQ(
      writer.samples.begin()->first,
      "hw_gpu_utilization_ratio{host=\"from the point\",hw_gpu_task=\"compute\",instance=\"7\",job=\"ml/trainer\","
      "job_id=\"llama\",rank=\"3\",service_name=\"trainer\"}");
  EXPECT_EQ(writer.samples.begin()->second[0].time_ms, (kNow + kSecond) / 1'000'000);
  EXPECT_EQ(writer.metadata["hw_gpu_utilization_ratio"], "gauge|(OTLP hw.gpu.utilization)|1");
}

TEST_F(MetricMappingTest, TheSameSeriesIsAskedForOnce) {
  for (int second = 0; second < 5; ++second) push({point("a", "", MetricKind::kGauge, second, second)});
  EXPECT_EQ(writer.asked, 1u);
  EXPECT_EQ(writer.streams.size(), 1u);
  EXPECT_EQ(writer.samples["a{host=\"n1\"}"].size(), 5u);
}

TEST_F(MetricMappingTest, SumsAreCountersOrGauges) {
  MetricPoint energy = point("hw.energy", "J", MetricKind::kSum, 0);
  energy.is_int = true;
  energy.int_value = 1'000'000'007;
  MetricPoint queue = point("queue.length", "{request}", MetricKind::kSum, 4);
  queue.monotonic = false;
  push({energy, queue});
  EXPECT_EQ(last("hw_energy_joules_total{host=\"n1\"}"), 1'000'000'007);
  EXPECT_EQ(last("queue_length{host=\"n1\"}"), 4);
  EXPECT_EQ(writer.metadata["hw_energy_joules_total"], "counter|(OTLP hw.energy)|J");
}

TEST_F(MetricMappingTest, DeltasAreAddedUpAndARepeatedOneIsNotCountedTwice) {
  MetricPoint delta = point("requests", "", MetricKind::kSum, 5, 1);
  delta.temporality = Temporality::kDelta;
  push({delta});
  delta.value = 3;
  delta.time_unix_ns += kSecond;
  push({delta});
  EXPECT_EQ(last("requests_total{host=\"n1\"}"), 8);
  EXPECT_EQ(push({delta}).refused, 1u);
  EXPECT_EQ(counters.value("lockstep_ingest_refused_records_total",
                           "receiver=\"otlp_http\",signal=\"samples\",reason=\"delta_repeated\""),
            1);
  delta.time_unix_ns += kSecond;
  push({delta});
  EXPECT_EQ(last("requests_total{host=\"n1\"}"), 11);
}

TEST_F(MetricMappingTest, ADeltaThatTheStoreDidNotTakeCountsWhenItComesAgain) {
  MetricPoint delta = point("requests", "", MetricKind::kSum, 5, 1);
  delta.temporality = Temporality::kDelta;
  push({delta});
  delta.time_unix_ns += kSecond;
  Batch batch;
  batch.signal = Signal::kMetrics;
  batch.groups.resize(1);
  batch.groups[0].resource = resource;
  batch.groups[0].points = {delta};
  writer.refuse_all("disk full");
  EXPECT_FALSE(push_bytes(otlp::encode(batch)).ok());
  writer.refuse_all("");
  push({delta});
  EXPECT_EQ(last("requests_total{host=\"n1\"}"), 10);
}

TEST_F(MetricMappingTest, HistogramsBecomeBucketsSumAndCount) {
  MetricPoint histogram = point("step.time", "s", MetricKind::kHistogram, 12.5);
  histogram.count = 6;
  histogram.bounds = {0.5, 1};
  histogram.buckets = {1, 2, 3};
  push({histogram});
  EXPECT_EQ(last("step_time_seconds_bucket{host=\"n1\",le=\"0.5\"}"), 1);
  EXPECT_EQ(last("step_time_seconds_bucket{host=\"n1\",le=\"1\"}"), 3);
  EXPECT_EQ(last("step_time_seconds_bucket{host=\"n1\",le=\"+Inf\"}"), 6);
  EXPECT_EQ(last("step_time_seconds_sum{host=\"n1\"}"), 12.5);
  EXPECT_EQ(last("step_time_seconds_count{host=\"n1\"}"), 6);
  EXPECT_EQ(writer.samples.size(), 5u);
}

TEST_F(MetricMappingTest, DeltaHistogramsAreAddedUpBucketByBucket) {
  MetricPoint histogram = point("step.time", "s", MetricKind::kHistogram, 2);
  histogram.temporality = Temporality::kDelta;
  histogram.count = 3;
  histogram.bounds = {1};
  histogram.buckets = {1, 2};
  push({histogram});
  histogram.time_unix_ns += kSecond;
  push({histogram});
  EXPECT_EQ(last("step_time_seconds_bucket{host=\"n1\",le=\"1\"}"), 2);
  EXPECT_EQ(last("step_time_seconds_bucket{host=\"n1\",le=\"+Inf\"}"), 6);
  EXPECT_EQ(last("step_time_seconds_sum{host=\"n1\"}"), 4);
}

TEST_F(MetricMappingTest, SummariesKeepTheirQuantiles) {
  MetricPoint summary = point("latency", "s", MetricKind::kSummary, 7);
  summary.count = 2;
  summary.bounds = {0.5, 0.99};
  summary.quantile_values = {1, 6};
  push({summary});
  EXPECT_EQ(last("latency_seconds{host=\"n1\",quantile=\"0.99\"}"), 6);
  EXPECT_EQ(last("latency_seconds_sum{host=\"n1\"}"), 7);
  EXPECT_EQ(last("latency_seconds_count{host=\"n1\"}"), 2);
}

MetricPoint exponential(int32_t scale, int32_t offset, std::vector<uint64_t> buckets, int64_t second) {
  MetricPoint point;
  point.name = "latency";
  point.kind = MetricKind::kExponentialHistogram;
  point.temporality = Temporality::kCumulative;
  point.time_unix_ns = kNow + second * kSecond;
  point.scale = scale;
  point.positive_offset = offset;
  point.buckets = std::move(buckets);
  point.zero_count = 1;
  point.value = 10;
  point.count = 1;
  for (uint64_t count : point.buckets) point.count += count;
  return point;
}

TEST_F(MetricMappingTest, ExponentialHistogramsBecomeNativeOnes) {
  push({exponential(0, 1, {4, 0, 5}, 1)});  // (2,4] 4, (8,16] 5
  const NativeHistogram& histogram = writer.histograms["latency{host=\"n1\"}"].at(0).second;
  EXPECT_EQ(histogram.schema, 0);
  EXPECT_EQ(histogram.count, 10);
  EXPECT_EQ(histogram.sum, 10);
  EXPECT_EQ(histogram.zero_count, 1);
  EXPECT_EQ(histogram.positive_spans, (std::vector<HistogramSpan>{{2, 1}, {1, 1}}));
  EXPECT_EQ(histogram.positive, (std::vector<double>{4, 5}));
}

TEST_F(MetricMappingTest, FinerScalesThanPrometheusHasAreMergedDown) {
  push({exponential(9, 0, {1, 2, 3, 4}, 1)});  // indices 1..4 at scale 9 are 1, 1, 2, 2 at scale 8
  const NativeHistogram& histogram = writer.histograms["latency{host=\"n1\"}"].at(0).second;
  EXPECT_EQ(histogram.schema, 8);
  EXPECT_EQ(histogram.positive_spans, (std::vector<HistogramSpan>{{1, 2}}));
  EXPECT_EQ(histogram.positive, (std::vector<double>{3, 7}));
}

TEST_F(MetricMappingTest, DeltaNativeHistogramsAreAddedUpAtTheCoarserScale) {
  MetricPoint first = exponential(1, -2, {1, 1, 1, 1}, 1);  // Prometheus' indices -1..2
  MetricPoint second = exponential(0, 0, {5}, 2);           // index 1: (1,2]
  first.temporality = second.temporality = Temporality::kDelta;
  push({first});
  push({second});
  const NativeHistogram& sum = writer.histograms["latency{host=\"n1\"}"].at(1).second;
  EXPECT_EQ(sum.schema, 0);
  EXPECT_EQ(sum.count, 11);
  EXPECT_EQ(sum.positive_spans, (std::vector<HistogramSpan>{{0, 2}}));
  EXPECT_EQ(sum.positive, (std::vector<double>{2, 7}));
}

TEST_F(MetricMappingTest, RefusesAScaleThatNobodyCanSay) {
  EXPECT_EQ(push({exponential(-5, 0, {1}, 1)}).refused, 1u);
  EXPECT_TRUE(writer.histograms.empty());
}

TEST_F(MetricMappingTest, NoRecordedValueIsAStaleMarker) {
  MetricPoint gone = point("a", "", MetricKind::kGauge, 0);
  gone.flags = 1;
  push({gone});
  EXPECT_TRUE(is_stale(last("a{host=\"n1\"}")));
}

TEST_F(MetricMappingTest, ExemplarsGoWithTheirBucket) {
  // Written by hand: our own encoder has no exemplars.
  std::string bytes;
  protobuf::WireWriter out(bytes);
  const size_t groups = out.begin(1), scopes = out.begin(2), metric = out.begin(2);
  out.bytes(1, "latency");
  const size_t histogram = out.begin(9), point = out.begin(1);
  out.fixed64(3, static_cast<uint64_t>(kNow));
  out.fixed64(4, 2);
  for (uint64_t count : {1, 1}) out.fixed64(6, count);
  out.real(7, 1.0);
  for (double value : {0.5, 3.0}) {
    const size_t exemplar = out.begin(8);
    out.fixed64(2, static_cast<uint64_t>(kNow));
    out.real(3, value);
    out.bytes(5, std::string(16, '\xAB'));
    out.end(exemplar);
  }
  for (size_t began : {point, histogram, metric, scopes, groups}) out.end(began);
  ASSERT_TRUE(push_bytes(bytes).ok());
  ASSERT_EQ(writer.exemplars["latency_bucket{le=\"1\"}"].size(), 1u);
  EXPECT_EQ(writer.exemplars["latency_bucket{le=\"1\"}"][0].value, 0.5);
  EXPECT_EQ(writer.exemplars["latency_bucket{le=\"+Inf\"}"].at(0).labels,
            (Labels{{"trace_id", "abababababababababababababababab"}}));
}

}  // namespace
}  // namespace lockstep
