#include "apply/applier.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "base/text.h"
#include "store/memory_span_store.h"
#include "store/memory_step_store.h"
#include "store/store_counters.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

struct Heard : StoreSubscriber {
  std::vector<std::string> calls;
  void on_step(const Identity& identity, const StepSummary& step, int64_t received) override {
    calls.push_back(format("step %d.%lld@%lld", identity.rank.value(), static_cast<long long>(step.step.value()),
                           static_cast<long long>(received)));
  }
  void on_status(const Identity& identity, const RankStatus&, int64_t) override {
    calls.push_back(format("status %d", identity.rank.value()));
  }
  void on_comm(const Identity& identity, const CommInit& comm, int64_t) override {
    calls.push_back(
        format("comm %d.%llu", identity.rank.value(), static_cast<unsigned long long>(comm.comm_id.value())));
  }
  void on_rank_started(const Identity& identity, int64_t) override {
    calls.push_back(format("started %d", identity.rank.value()));
  }
  void on_code_version(const Identity&, std::string_view version, int64_t began) override {
    calls.push_back(format("code %s@%lld", std::string(version).c_str(), static_cast<long long>(began)));
  }
  void on_rank_ended(const Identity& identity, const RankEnd& end, int64_t) override {
    calls.push_back(format("ended %d %s", identity.rank.value(), end.clean ? "clean" : "unclean"));
  }
  void on_profile_finding(const Identity& identity, const ProfileFinding& finding, int64_t) override {
    calls.push_back(format("profile %d: %s", identity.rank.value(), finding.sentence.c_str()));
  }
  void on_records_lost(const Identity& identity, int64_t records, int64_t) override {
    calls.push_back(format("lost %d.%lld", identity.rank.value(), static_cast<long long>(records)));
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
            .rank = 3_rank,
            .world_size = 8,
            .local_rank = 3,
            .host = "node-0",
            .gpu_uuid = "GPU-3"};
  }
  void apply_logs(Attributes resource, std::vector<LogRecord> logs) {
    Batch batch{.signal = Signal::kLogs, .groups = {{.resource = std::move(resource), .logs = std::move(logs)}}};
    applier_.apply(Signal::kLogs, batch, 1000);
  }
  Counters counters_{kStoreCounters};
  MemoryStepStore steps_{{}, counters_};
  MemorySpanStore spans_{{}, counters_};
  AgentRegistry agents_;
  Applier applier_{steps_, spans_, agents_, counters_};
  Heard heard_;
};

TEST_F(ApplierTest, CodeIsAsOldAsTheStartThatItCameWithAndNeverFromTheFuture) {
  for (const int64_t began : {400, 5000}) {
    LogRecord start = job_start_record(began);
    start.attributes.push_back({"version", "v2"});
    apply_logs(to_resource(identity()), {start});
  }
  EXPECT_EQ(heard_.calls, (std::vector<std::string>{"started 3", "code v2@400", "started 3", "code v2@1000"}));
}

TEST_F(ApplierTest, EventsBecomeRowsAndSubscribersHearOfThemInOrder) {
  StepSummary step;
  step.step = 7_step;
  step.duration_ns = 5;
  step.records_lost = 2;
  RankStatus status;
  status.time_unix_ns = 60;
  apply_logs(to_resource(identity()),
             {job_start_record(1), to_record(CommInit{.comm_id = CommId{9}, .size = 8, .rank_in_comm = 3}, 2),
              to_record(step), to_record(status), to_record(Gap{"ring_overwritten", 10}, 3),
              job_end_record({.time_unix_ns = 4, .clean = true, .exit = {}})});
  EXPECT_EQ(heard_.calls, (std::vector<std::string>{"started 3", "comm 3.9", "step 3.7@1000", "status 3", "lost 3.10",
                                                    "ended 3 clean"}));
  std::optional<JobInfo> job = steps_.job("job");
  ASSERT_TRUE(job.has_value());
  const RankInfo& rank = job->ranks.at(0);
  EXPECT_EQ(rank.identity, identity());
  EXPECT_EQ(rank.last_step, 7_step);
  EXPECT_EQ(rank.comms.at(0).comm_id, CommId{9});
  EXPECT_TRUE(rank.status.has_value());
  EXPECT_TRUE(rank.ended && rank.ended_cleanly);
  EXPECT_EQ(rank.records_lost, 12);
  EXPECT_EQ(steps_.steps("job", 7_step, 7_step).size(), 1u);
  EXPECT_EQ(steps_.logs("", "", 100).total, 6u);
  EXPECT_EQ(steps_.logs("", "train.step", 100).total, 1u);
  ASSERT_EQ(agents_.agents().size(), 1u);
  EXPECT_EQ(agents_.agents()[0].host, "node-0");
  EXPECT_EQ(agents_.agents()[0].records_lost, 12);
  EXPECT_EQ(agents_.agents()[0].last_seen_unix_ns, 1000);
}

TEST_F(ApplierTest, AStepWithoutItsRecordIsAppliedAsTheRecordWouldBe) {
  StepReport report{.identity = identity(), .summary = {}, .observed_unix_ns = 77, .resource = nullptr};
  report.summary.step = 7_step;
  report.summary.start_unix_ns = 50;
  report.summary.duration_ns = 5;
  report.summary.records_lost = 2;
  StepReport other = report;
  other.identity.rank = 4_rank;
  LogsRequest request;
  request.groups.push_back({.resource = to_resource(identity()), .logs = {job_start_record(1)}});
  report.before_group = other.before_group = 1;
  request.steps = {report, other};
  const Batch batch = to_batch(request);
  applier_.apply_logs(request, 1000);

  MemoryStepStore steps{{}, counters_};
  AgentRegistry agents;
  Heard heard;
  Applier applier{steps, spans_, agents, counters_};
  applier.subscribe(heard);
  applier.apply(Signal::kLogs, batch, 1000);
  EXPECT_EQ(heard_.calls, (std::vector<std::string>{"started 3", "step 3.7@1000", "step 4.7@1000"}));
  EXPECT_EQ(heard_.calls, heard.calls);
  EXPECT_EQ(steps_.steps("job", 7_step, 7_step).size(), 2u);
  for (const char* service : {"", "lockstep-agent", "another"}) {
    for (const char* event : {"", "train.step", "job.start"}) {
      const Page<StoredLog> without = steps_.logs(service, event, 100), with = steps.logs(service, event, 100);
      ASSERT_EQ(without.total, with.total);
      for (size_t i = 0; i < with.items.size(); ++i) {
        EXPECT_EQ(without.items[i].record, with.items[i].record);
        EXPECT_EQ(*without.items[i].resource, *with.items[i].resource);
      }
    }
  }
  EXPECT_EQ(agents_.agents().at(0).records_lost, 4);
  EXPECT_EQ(agents.agents().at(0).records_lost, 4);
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

TEST_F(ApplierTest, WhatASummaryBlamesARankForIsHeardOfThatRankAndKept) {
  const Result<BlamedRanks> blamed = profile_finding_from_summary_untrusted(
      R"({"verdict":{"sentence":"Copies.","reason":"extra_copies","ranks":[5],"cost_us_per_step":1,"share":0.1}})",
      {.time_unix_ns = 900, .capture = "p-0123456789ab"});
  ASSERT_TRUE(blamed.ok()) << blamed.error();
  Batch batch{.signal = Signal::kLogs, .groups = to_groups(*blamed, identity())};
  LogRecord broken = batch.groups.at(0).logs.at(0);
  applier_.apply(Signal::kLogs, batch, 1000);
  broken.attributes.clear();
  apply_logs(to_resource(identity()), {broken});
  EXPECT_EQ(heard_.calls, std::vector<std::string>{"profile 5: Copies."});
  EXPECT_EQ(steps_.logs("", kEventProfileFinding, 10).total, 2u);
  EXPECT_EQ(counters_.value("lockstep_apply_records_refused_total", "signal=\"logs\",reason=\"malformed\""), 1);
}

TEST_F(ApplierTest, AGapWithoutARankIsTheAgentsOwn) {
  apply_logs({{"service.name", "lockstep-agent"}, {"host.name", "node-9"}}, {to_record(Gap{"spool_full", 4}, 1)});
  EXPECT_EQ(agents_.agents().at(0).records_lost, 4);
  EXPECT_EQ(counters_.sum("lockstep_apply_records_refused_total"), 0);
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

TEST_F(ApplierTest, LogRecordsAreKeptOnDiskOnceAndStepsAreNot) {
  testing::TemporaryFolder folder;
  testing::FakeClock clock{1'700'000'000'000'000'000};
  auto logs = ColumnarLogStore::open({.folder = folder.path(), .background = false}, clock, counters_).value();
  applier_.keep_logs(*logs);
  auto batch = [] {
    Batch made{.signal = Signal::kLogs};
    ResourceGroup& group = made.groups.emplace_back();
    group.resource = to_resource(identity());
    StepSummary step;
    step.step = 7_step;
    LogRecord line;
    line.body = "epoch 2";
    group.logs = {to_record(step), line};
    return made;
  };
  const int64_t received = clock.unix_ns();
  EXPECT_TRUE(applier_.apply(Signal::kLogs, batch(), received, 5));
  ASSERT_TRUE(logs->seal().ok());
  EXPECT_TRUE(applier_.apply(Signal::kLogs, batch(), received, 5)) << "the log is read back";
  const LogPage page = logs->find({});
  ASSERT_EQ(page.entries.size(), 1u);
  EXPECT_EQ(page.entries[0].body, "\"epoch 2\"");
  EXPECT_EQ(page.entries[0].job, "job");
  EXPECT_EQ(page.entries[0].rank, 3_rank);
  EXPECT_EQ(page.entries[0].time_unix_ns, received) << "it told none of its own";
}

}  // namespace
}  // namespace lockstep
