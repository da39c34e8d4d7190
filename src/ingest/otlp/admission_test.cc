#include "ingest/otlp/admission.h"

#include <gtest/gtest.h>

#include "base/rate_limited_log.h"
#include "model/events.h"
#include "testing/fake_clock.h"
#include "wire/otlp.h"

namespace lockstep {
namespace {

constexpr int64_t kNow = 1'700'000'000'000'000'000;
constexpr int64_t kMinute = 60'000'000'000;

Batch samples(size_t count) {
  Batch batch{Signal::kMetrics, {ResourceGroup{}}};
  batch.groups[0].resource = {{"host.name", "gpu-017"}};
  for (size_t i = 0; i < count; ++i) {
    MetricPoint point;
    point.name = "m" + std::to_string(i);
    point.time_unix_ns = kNow;
    batch.groups[0].points.push_back(point);
  }
  return batch;
}

// As a receiver does with metrics: what is left is in the batch.
AdmissionReport admit_samples(Batch& batch) {
  const std::string bytes = otlp::encode(batch);
  otlp::MetricsRequest request = *otlp::decode_metrics(bytes);
  AdmissionReport report = admit(request, kNow);
  batch = otlp::to_batch(request);
  return report;
}

Batch logs(std::vector<LogRecord> records, Attributes resource = to_resource({"job", 0, 3_rank, 8, 3, "gpu-017", ""})) {
  Batch batch{Signal::kLogs, {ResourceGroup{}}};
  batch.groups[0].resource = std::move(resource);
  batch.groups[0].logs = std::move(records);
  return batch;
}

LogRecord good_step() {
  StepSummary step;
  step.step = 7_step;
  step.start_unix_ns = kNow - kMinute;
  step.duration_ns = 1'000'000;
  return to_record(step);
}

TEST(Admission, NamesANodeThatANameCanBeOf) {
  auto begins = [](const std::string& host) {
    Batch batch = samples(1);
    batch.groups[0].resource = {{"host.name", host}};
    batch.groups[0].points[0].time_unix_ns = kNow + 60 * kMinute;
    const std::string message = admit_samples(batch).message;
    return message.substr(0, message.find("sample 1 of 1"));
  };
  EXPECT_EQ(begins("a"), "node a: ");
  EXPECT_EQ(begins(std::string(256, 'a')), "node " + std::string(256, 'a') + ": ");
  EXPECT_EQ(begins(std::string(257, 'a')), "");
  EXPECT_EQ(begins("a\x1b[31m"), "") << "goes into logs and terminals";
  EXPECT_EQ(begins(""), "");
}

TEST(Admission, SummarisesWhatItRefusedInOneLine) {
  Batch batch = samples(4096);
  batch.groups[0].points[11].time_unix_ns = kNow + 5 * 60 * kMinute;
  AdmissionReport report = admit_samples(batch);
  EXPECT_EQ(report.message,
            "node gpu-017: sample 12 of 4096 is 5h ahead of server time (limit 10m); kept 4095, refused 1");
  EXPECT_EQ(report.received, 4096);
  EXPECT_EQ(report.refused, 1);
  EXPECT_EQ(report.refused_by_reason.at("future_time"), 1);
  ASSERT_EQ(batch.record_count(), 4095u);
  EXPECT_EQ(batch.groups[0].points[10].name, "m10");
  EXPECT_EQ(batch.groups[0].points[11].name, "m12");
}

TEST(Admission, TakesTimesUpToTheLimitAndAnyTimeInThePast) {
  Batch batch = samples(4);
  batch.groups[0].points[0].time_unix_ns = kNow + kAheadMaxNs;
  batch.groups[0].points[1].time_unix_ns = kNow + kAheadMaxNs + 1;
  batch.groups[0].points[2].time_unix_ns = 1;
  batch.groups[0].points[3].time_unix_ns = INT64_MAX;  // what a time beyond 2262 is read as
  AdmissionReport report = admit_samples(batch);
  EXPECT_EQ(report.refused, 2);
  ASSERT_EQ(batch.record_count(), 2u);
  EXPECT_EQ(batch.groups[0].points[0].name, "m0");
  EXPECT_EQ(batch.groups[0].points[1].name, "m2");
}

TEST(Admission, SaysNothingWhereNothingIsRefused) {
  Batch batch = samples(3);
  AdmissionReport report = admit_samples(batch);
  EXPECT_EQ(report.message, "");
  EXPECT_EQ(report.refused, 0);
  Batch empty{Signal::kLogs, {}};
  EXPECT_EQ(admit(empty, kNow).received, 0);
}

TEST(Admission, LooksAtTheObservedTimeOfALogWithoutATimeAndAtBothEndsOfASpan) {
  LogRecord observed;
  observed.observed_unix_ns = kNow + kMinute * 11;
  LogRecord neither;
  Batch batch = logs({observed, neither});
  EXPECT_EQ(admit(batch, kNow).refused, 1);
  Batch spans{Signal::kSpans, {ResourceGroup{}}};
  Span late_end;
  late_end.start_unix_ns = kNow;
  late_end.end_unix_ns = kNow + kMinute * 11;
  Span good;
  good.start_unix_ns = good.end_unix_ns = kNow;
  spans.groups[0].spans = {late_end, good};
  AdmissionReport report = admit(spans, kNow);
  EXPECT_EQ(report.message, "span 1 of 2 is 11m ahead of server time (limit 10m); kept 1, refused 1");
}

TEST(Admission, RefusesEventsThatCannotBeReadAndKeepsTheRest) {
  LogRecord bad_step;
  bad_step.event_name = kEventTrainStep;
  LogRecord bad_status = to_record(RankStatus{});
  for (Attribute& attribute : bad_status.attributes) {
    if (attribute.key == "quiet_ns") attribute.value = Value(int64_t{-1});
  }
  LogRecord bad_comm;
  bad_comm.event_name = kEventCommInit;
  LogRecord plain;
  plain.body = Value("anything goes in a plain line");
  LogRecord foreign;
  foreign.event_name = "some.other.event";
  Batch batch = logs({bad_step, good_step(), bad_status, bad_comm, to_record(CommInit{CommId{1}, 8, 3, 1, "dp"}, kNow),
                      plain, foreign});
  AdmissionReport report = admit(batch, kNow);
  EXPECT_EQ(report.refused_by_reason,
            (std::map<std::string, int64_t>{{"bad_comm_init", 1}, {"bad_rank_status", 1}, {"bad_train_step", 1}}));
  EXPECT_EQ(report.message,
            "node gpu-017: record 1 of 7 cannot be read: train.step without a step number; kept 4, refused 3 "
            "(bad_comm_init 1, bad_rank_status 1, bad_train_step 1)");
  EXPECT_EQ(batch.record_count(), 4u);
}

TEST(Admission, RefusesEventsOfNoJobButKeepsPlainLogsOfTheSameResource) {
  LogRecord plain;
  plain.body = Value("hello");
  Batch batch = logs({good_step(), plain}, {{"service.name", "anything"}});
  AdmissionReport report = admit(batch, kNow);
  EXPECT_EQ(report.refused_by_reason.at("bad_identity"), 1);
  EXPECT_NE(report.message.find("train.step: the resource has no lockstep.job_id"), std::string::npos)
      << report.message;
  EXPECT_EQ(batch.record_count(), 1u);
}

TEST(Admission, RefusesAnAttemptBeyondAllWithOneLine) {
  Batch batch =
      logs({good_step()}, {{"lockstep.job_id", "job"}, {"lockstep.rank", 0}, {"lockstep.attempt", INT64_MAX}});
  AdmissionReport report = admit(batch, kNow);
  EXPECT_EQ(report.refused_by_reason.at("bad_identity"), 1);
  EXPECT_NE(report.message.find("lockstep.attempt 9223372036854775807 is not one any job reaches"), std::string::npos)
      << report.message;
}

TEST(RateLimitedLog, WritesOneLinePerSecondAndReasonAndCountsTheRest) {
  testing::FakeClock clock;
  RateLimitedLog log(clock, "test");
  EXPECT_EQ(log.line_now("a", "first").value_or(""), "first");
  EXPECT_FALSE(log.line_now("a", "second"));
  clock.advance(999'999'999);
  EXPECT_FALSE(log.line_now("a", "third"));
  EXPECT_EQ(log.line_now("b", "other").value_or(""), "other");
  clock.advance(1);
  EXPECT_EQ(log.line_now("a", "fourth").value_or(""), "fourth [a: 2 more lines left out]");
  clock.advance(1'000'000'000);
  EXPECT_EQ(log.line_now("a", "fifth").value_or(""), "fifth");
  int made = 0;
  for (int i = 0; i < 3; ++i) log.warn("c", [&] { return "line " + std::to_string(++made); });
  EXPECT_EQ(made, 1) << "lines that nobody reads are not made";
}

TEST(Admission, RefusesAStepFromTheFutureAndKeepsTheOthers) {
  LogsRequest request;
  request.groups = logs({good_step()}).groups;
  for (const int64_t ahead_ns : {-kMinute, 60 * kMinute, int64_t{0}}) {
    StepReport& report = request.steps.emplace_back();
    report.identity = {"job", 0, 3_rank, 8, 3, "gpu-017", ""};
    report.summary.start_unix_ns = kNow + ahead_ns;
    report.before_group = 1;
  }
  const AdmissionReport report = admit(request, kNow);
  EXPECT_EQ(report.received, 4);
  EXPECT_EQ(report.refused, 1);
  EXPECT_EQ(report.message, "node gpu-017: record 3 of 4 is 1h ahead of server time (limit 10m); kept 3, refused 1");
  ASSERT_EQ(request.steps.size(), 2u);
  EXPECT_EQ(request.steps[1].summary.start_unix_ns, kNow);
  EXPECT_EQ(request.groups[0].logs.size(), 1u);
}

}  // namespace
}  // namespace lockstep
