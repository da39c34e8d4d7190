// The wiring of lockstepd: sink, verdict keeper, and the program itself as a process.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <future>
#include <new>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/files.h"
#include "base/process.h"
#include "base/text.h"
#include "bus/log_origin.h"
#include "ingest/counters_table.h"
#include "ingest/testing/recording_metric_writer.h"
#include "model/events.h"
#include "model/step_detail.h"
#include "net/http_client.h"
#include "server/durable_sink.h"
#include "server/options.h"
#include "server/set_aside.h"
#include "server/tenant_counters.h"
#include "server/verdict_keeper.h"
#include "store/feedback_store.h"
#include "store/memory_span_store.h"
#include "store/memory_step_store.h"
#include "store/sqlite_state_store.h"
#include "store/testing/failing_access.h"
#include "testing/temporary_folder.h"
#include "wire/otlp.h"

namespace lockstep {
namespace {

Batch step_batch(const std::string& job_id, Rank rank, StepNumber step) {
  StepSummary summary;
  summary.step = step;
  summary.start_unix_ns = 1'700'000'000'000'000'000 + step.value() * 100'000'000;
  summary.duration_ns = 100'000'000;
  summary.self_ns = 60'000'000;
  summary.comm_ns = 40'000'000;
  Identity identity{.job_id = job_id,
                    .attempt = 0,
                    .rank = rank,
                    .world_size = 8,
                    .local_rank = rank.value(),
                    .host = "node-0",
                    .gpu_uuid = ""};
  return Batch{.signal = Signal::kLogs, .groups = {{.resource = to_resource(identity), .logs = {to_record(summary)}}}};
}

// Hands out sequence numbers and returns from append() in an order of its own: late ones first.
class ScrambledLog final : public DurableLog {
 public:
  Result<uint64_t> append(RecordKind, int64_t, std::string_view payload) override {
    if (fails) return Error{"no room"};
    uint64_t sequence = ++last_;
    // The sleep is the point: it makes another order likely. Nothing waits for it to have been long enough.
    if (sequence % 4 != 0) std::this_thread::sleep_for(std::chrono::milliseconds(4 - sequence % 4));
    MutexLock lock(mutex_);
    order_.emplace_back(sequence, std::string(payload));
    return sequence;
  }
  Result<void> replay(const std::function<void(uint64_t, RecordKind, int64_t, std::string_view)>&) override {
    return {};
  }
  uint64_t next_sequence() const override { return last_ + 1; }
  std::map<uint64_t, std::string> by_sequence() {
    MutexLock lock(mutex_);
    return {order_.begin(), order_.end()};
  }
  std::atomic<bool> fails{false};

 private:
  std::atomic<uint64_t> last_{41};
  Mutex mutex_;
  std::vector<std::pair<uint64_t, std::string>> order_ LOCKSTEP_GUARDED_BY(mutex_);
};

struct Heard : StoreSubscriber {
  std::vector<std::string> steps;
  std::vector<std::string> metrics;
  bool hears_metric(std::string_view name) const override { return name == "heard"; }
  void on_metrics(const Attributes& resource, std::span<const MetricPoint> points, int64_t) override {
    for (const MetricPoint& point : points)
      metrics.push_back(std::string(find_string(resource, "host.name")) + " " + point.name);
  }
  void on_step(const Identity& identity, const StepSummary& step, int64_t) override {
    steps.push_back(format("%d.%lld", identity.rank.value(), static_cast<long long>(step.step.value())));
  }
};

class SinkTest : public ::testing::Test {
 protected:
  SinkTest() { applier_.subscribe(heard_); }
  Counters counters_{kServerCounters};
  MemoryStepStore steps_{{}, counters_};
  MemorySpanStore spans_{{}, counters_};
  SystemClock clock_;
  testing::RecordingMetricWriter writer_;
  MetricIntake intake_{writer_, clock_, counters_};
  MetricMapping metrics_{intake_, clock_};
  AgentRegistry agents_;
  Applier applier_{steps_, spans_, agents_, counters_};
  Heard heard_;
  ScrambledLog log_;
};

TEST_F(SinkTest, SubscribersHearRecordsInLogOrderWhateverOrderTheDiskAnswersIn) {
  DurableSink sink(log_, applier_, metrics_, 1 << 30, clock_);
  std::vector<std::thread> threads;
  for (Rank rank : all_ranks(8)) {
    threads.emplace_back([&, rank] {
      for (StepNumber step = 0_step; step < 20_step; ++step) {
        EXPECT_EQ(sink.accept(Signal::kLogs, step_batch("job", rank, step),
                              format("%d.%lld", rank.value(), static_cast<long long>(step.value())), 1)
                      .error,
                  AcceptError::kNone);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::string> logged;
  for (const auto& [sequence, payload] : log_.by_sequence()) logged.push_back(payload);
  EXPECT_EQ(heard_.steps, logged);
  EXPECT_EQ(logged.size(), 160u);
}

TEST_F(SinkTest, AMetricsRequestIsReadOnceForTheStoreAndDiagnosisAndIsInTheStoresLogAlone) {
  Batch batch{.signal = Signal::kMetrics,
              .groups = {{.resource = {{"host.name", "n0"}, {"service.name", "lockstep-agent"}},
                          .points = {{.name = "heard", .value = 1}, {.name = "other", .value = 2}}}}};
  for (MetricPoint& point : batch.groups[0].points) point.time_unix_ns = 1'700'000'000'000'000'000;
  const std::string bytes = otlp::encode(batch);
  const Result<otlp::MetricsRequest> request = otlp::decode_metrics(bytes);
  ASSERT_TRUE(request.ok()) << request.error();
  DurableSink sink(log_, applier_, metrics_, 1 << 30, clock_);
  // The bytes are nothing that anybody could read: nobody tries.
  EXPECT_EQ(sink.accept_metrics(*request, "not read again", 1).error, AcceptError::kNone);
  EXPECT_EQ(writer_.samples.size(), 2u) << "every point is stored";
  EXPECT_EQ(heard_.metrics, std::vector<std::string>{"n0 heard"}) << "objects are made of what somebody hears";
  EXPECT_EQ(agents_.agents().size(), 1u);
  EXPECT_EQ(counters_.value("lockstep_apply_records_passed_total", "signal=\"metrics\""), 2);
  EXPECT_TRUE(log_.by_sequence().empty());
  sink.close();
  EXPECT_EQ(sink.accept_metrics(*request, bytes, 1).error, AcceptError::kUnavailable);
  EXPECT_EQ(writer_.samples.begin()->second.size(), 1u) << "nothing more is stored";
}

TEST_F(SinkTest, WhatTheLogRefusesIsNotStoredAndTheSinkGoesOn) {
  DurableSink sink(log_, applier_, metrics_, 1 << 30, clock_);
  log_.fails = true;
  AcceptResult refused = sink.accept(Signal::kLogs, step_batch("job", 0_rank, 1_step), "x", 1);
  EXPECT_EQ(refused.error, AcceptError::kUnavailable);
  EXPECT_EQ(refused.message, "no room");
  EXPECT_TRUE(steps_.jobs().empty());
  log_.fails = false;
  EXPECT_EQ(sink.accept(Signal::kLogs, step_batch("job", 0_rank, 1_step), "x", 1).error, AcceptError::kNone);
  EXPECT_EQ(steps_.steps("job", 1_step, 1_step).size(), 1u);
  sink.close();
  EXPECT_EQ(sink.accept(Signal::kLogs, step_batch("job", 0_rank, 2_step), "x", 1).error, AcceptError::kUnavailable);
}

// A store that fails on the records it is told to, or does not return from them.
class BadSpanStore final : public SpanStore {
 public:
  void append(const ResourceGroup&, int64_t) override {}
  void append(spans::SpanColumns, int64_t, uint64_t) override {
    if (blocks.valid()) blocks.wait();
    if (fails) throw std::bad_alloc();
    ++taken;
  }
  Page<StoredSpan> trace(const TraceId&, size_t) const override { return {}; }
  Page<TraceSummary> search(const TraceQuery&) const override { return {}; }
  Page<StoredSpan> newest(std::string_view, size_t) const override { return {}; }
  std::vector<std::string> services() const override { return {}; }
  std::vector<std::string> span_names(std::string_view) const override { return {}; }
  AttributeNames attribute_names() const override { return {}; }
  std::vector<std::string> attribute_values(std::string_view, size_t) const override { return {}; }
  std::vector<RankDetail> step(std::string_view, int64_t, StepNumber, const std::vector<Rank>&) const override {
    return {};
  }
  Page<TracedStep> traced_steps(std::string_view, int64_t, size_t) const override { return {}; }

  std::atomic<bool> fails{false};
  std::shared_future<void> blocks;
  std::atomic<int> taken{0};
};

TEST_F(SinkTest, ARecordThatFailsWhileItIsAppliedHoldsUpNoOther) {
  BadSpanStore spans;
  Applier applier(steps_, spans, agents_, counters_);
  DurableSink sink(log_, applier, metrics_, 1 << 30, clock_);
  spans.fails = true;
  EXPECT_EQ(sink.accept_spans({}, "x", 1).error, AcceptError::kNone) << "it is on disk";
  EXPECT_EQ(counters_.value("lockstep_apply_batches_failed_total", "signal=\"spans\""), 1);
  spans.fails = false;
  EXPECT_EQ(sink.accept_spans({}, "y", 1).error, AcceptError::kNone);
  EXPECT_EQ(sink.accept(Signal::kLogs, step_batch("job", 0_rank, 1_step), "z", 1).error, AcceptError::kNone);
  EXPECT_EQ(spans.taken, 1);
  EXPECT_EQ(steps_.steps("job", 1_step, 1_step).size(), 1u);
  EXPECT_EQ(sink.stuck(INT64_MAX / 2), std::nullopt);
}

TEST_F(SinkTest, SaysWhichRecordItIsStuckAt) {
  BadSpanStore spans;
  Applier applier(steps_, spans, agents_, counters_);
  DurableSink sink(log_, applier, metrics_, 1 << 30, clock_);
  std::promise<void> release;
  spans.blocks = release.get_future().share();
  std::thread blocked([&] { sink.accept_spans({}, "x", 1); });
  std::thread behind([&] { sink.accept(Signal::kLogs, step_batch("job", 0_rank, 1_step), "y", 1); });
  std::optional<std::string> line;
  while (!line) line = sink.stuck(clock_.monotonic_ns() + 2 * DurableSink::kStuckNs);
  EXPECT_NE(line->find("record 4"), std::string::npos) << *line;
  EXPECT_EQ(sink.stuck(clock_.monotonic_ns()), std::nullopt) << "not yet";
  release.set_value();
  blocked.join();
  behind.join();
  EXPECT_EQ(sink.stuck(clock_.monotonic_ns() + 2 * DurableSink::kStuckNs), std::nullopt);
}

TEST(SetAside, ARecordInWhichTheServerDiesAgainAndAgainIsLeftOut) {
  testing::TemporaryFolder folder;
  Counters counters{kServerCounters};
  for (uint64_t deaths = 0; deaths < SetAside::kDeathsMax; ++deaths) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      SetAside set_aside(folder.path(), counters);
      if (set_aside.is_set_aside(7, 1000)) _exit(1);
      { const SetAside::Applying fine(set_aside, 6, 999); }
      const SetAside::Applying applying(set_aside, 7, 1000);
      _exit(0);  // as a crash would: nothing is undone
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
  for (int start = 0; start < 2; ++start) {
    const SetAside set_aside(folder.path(), counters);
    EXPECT_TRUE(set_aside.is_set_aside(7, 1000));
    EXPECT_FALSE(set_aside.is_set_aside(6, 999));
    EXPECT_FALSE(set_aside.is_set_aside(7, 2000)) << "of a log that was made anew";
  }
  EXPECT_EQ(counters.sum("lockstep_replay_records_set_aside_total"), 1);
}

TEST_F(SinkTest, TooManyBytesWaitingForTheDiskAreTurnedAway) {
  DurableSink sink(log_, applier_, metrics_, 10, clock_);
  EXPECT_EQ(sink.accept(Signal::kLogs, step_batch("job", 0_rank, 0_step), std::string(100, 'x'), 1).error,
            AcceptError::kNone)
      << "one alone always fits";
  std::atomic<int> overloaded{0};
  std::atomic<int> accepted{0};
  std::vector<std::thread> threads;
  for (Rank rank : all_ranks(8)) {
    threads.emplace_back([&, rank] {
      for (StepNumber step = 0_step; step < 20_step; ++step) {
        AcceptResult result = sink.accept(Signal::kLogs, step_batch("job", rank, step), "0123456789", 1);
        ++(result.error == AcceptError::kOverloaded ? overloaded : accepted);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(overloaded, 0);
  EXPECT_GT(accepted, 0);
  EXPECT_EQ(heard_.steps.size(), static_cast<size_t>(accepted) + 1);
  EXPECT_EQ(sink.accept(Signal::kLogs, step_batch("job", 0_rank, 0_step), "0123456789", 1).error, AcceptError::kNone)
      << "nothing waits any more";
}

// The first append waits until it is let go; of the others it is seen that they came so far.
class HeldUpLog final : public DurableLog {
 public:
  Result<uint64_t> append(RecordKind, int64_t, std::string_view) override {
    MutexLock lock(mutex_);
    if (std::exchange(has_first_, true)) return Error{"came so far"};
    changed_.notify_all();
    changed_.wait(mutex_, [this]() LOCKSTEP_REQUIRES(mutex_) { return is_let_go_; });
    return 1;
  }
  Result<void> replay(const std::function<void(uint64_t, RecordKind, int64_t, std::string_view)>&) override {
    return {};
  }
  uint64_t next_sequence() const override { return 1; }
  void wait_for_the_first() {
    MutexLock lock(mutex_);
    changed_.wait(mutex_, [this]() LOCKSTEP_REQUIRES(mutex_) { return has_first_; });
  }
  void let_go() {
    MutexLock lock(mutex_);
    is_let_go_ = true;
    changed_.notify_all();
  }

 private:
  Mutex mutex_;
  ConditionVariable changed_;
  bool has_first_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  bool is_let_go_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

TEST_F(SinkTest, WhatIsWorthLeastIsTurnedAwayFirst) {
  // What each is told while `waiting` bytes wait for the disk.
  const auto answers_behind = [&](size_t waiting) {
    HeldUpLog held;
    DurableSink here(held, applier_, metrics_, 1000, clock_);
    std::thread first([&] {
      EXPECT_EQ(here.accept(Signal::kLogs, step_batch("job", 0_rank, 0_step), std::string(waiting, 'x'), 1).error,
                AcceptError::kNone);
    });
    held.wait_for_the_first();
    Batch metrics{.signal = Signal::kMetrics, .groups = {{.resource = {}, .points = {{.name = "power", .value = 1}}}}};
    metrics.groups[0].points[0].time_unix_ns = clock_.unix_ns();
    const std::string metric_bytes = otlp::encode(metrics);
    EXPECT_LT(metric_bytes.size(), 50u);
    const std::string few(50, 'x');
    Batch event = step_batch("job", 0_rank, 0_step);
    event.groups[0].logs[0].event_name = "gpu.xid";
    const AcceptError told[] = {here.accept(Signal::kMetrics, metrics, metric_bytes, 1).error,
                                here.accept_spans({}, few, 1).error,
                                here.accept(Signal::kLogs, step_batch("job", 0_rank, 1_step), few, 1).error,
                                here.accept(Signal::kLogs, std::move(event), few, 1).error};
    held.let_go();
    first.join();
    std::string text;
    for (const AcceptError one : told) text += one == AcceptError::kOverloaded ? '-' : '+';
    return text;
  };
  EXPECT_EQ(answers_behind(500), "++++");
  const size_t stored = writer_.samples.size();
  EXPECT_EQ(answers_behind(650), "-+++");
  EXPECT_EQ(answers_behind(720), "--++");
  EXPECT_EQ(answers_behind(900), "---+");
  EXPECT_EQ(answers_behind(960), "----") << "there is an end to all of it";
  EXPECT_EQ(writer_.samples.size(), stored) << "samples that are turned away are not stored";
}

struct FailingState final : testing::WithFailingAccess<StateStore> {
  bool fails = false;
  std::map<std::string, Verdict> saved;
  Result<void> save_verdict(const Verdict& verdict) override {
    if (fails) return Error{"disk full"};
    saved[verdict.id] = verdict;
    return {};
  }
  std::vector<StoredVerdict> find_verdicts(const VerdictsAsked&) const override {
    std::vector<StoredVerdict> list;
    for (const auto& [id, verdict] : saved) list.push_back({id, verdict.job_id, to_text(verdict.state), 0, ""});
    return list;
  }
  Result<void> save_feedback(const VerdictFeedback&) override { return Error{"disk full"}; }
  Result<void> drop_feedback(std::string_view) override { return Error{"disk full"}; }
  std::vector<VerdictFeedback> feedback() const override { return {}; }
  Result<void> save_capture(const StoredCapture&) override { return Error{"disk full"}; }
  Result<void> drop_capture(std::string_view) override { return Error{"disk full"}; }
  std::vector<StoredCapture> captures() const override { return {}; }
  Result<void> save_alert_rows(std::span<const StoredAlertRow>) override { return Error{"disk full"}; }
  Result<std::vector<StoredAlertRow>> alert_rows() const override { return std::vector<StoredAlertRow>(); }
  Result<void> save_incidents(std::span<const StoredIncident>) override { return Error{"disk full"}; }
  Result<std::vector<StoredIncident>> incidents() const override { return std::vector<StoredIncident>(); }
};

Verdict verdict_of(std::string id, VerdictState state) {
  Verdict verdict;
  verdict.id = std::move(id);
  verdict.state = state;
  return verdict;
}

TEST(VerdictKeeper, KeepsWhatWasConfirmedAndLeavesNoTraceOfAWithdrawnSuspicion) {
  FailingState state;
  Counters counters{kServerCounters};
  VerdictKeeper keeper(state, counters);
  keeper.keep({verdict_of("a", VerdictState::kSuspected), verdict_of("b", VerdictState::kSuspected)});
  keeper.keep({verdict_of("a", VerdictState::kConfirmed), verdict_of("b", VerdictState::kCleared)});
  EXPECT_EQ(state.saved.size(), 1u);
  keeper.keep({verdict_of("a", VerdictState::kCleared)});
  EXPECT_EQ(state.saved.at("a").state, VerdictState::kCleared);
  VerdictKeeper after_restart(state, counters);
  after_restart.keep({verdict_of("a", VerdictState::kSuspected)});
  EXPECT_EQ(state.saved.at("a").state, VerdictState::kSuspected) << "one that is known is kept up to date";
}

TEST(VerdictKeeper, TriesAgainWhatCouldNotBeSaved) {
  FailingState state;
  state.fails = true;
  Counters counters{kServerCounters};
  VerdictKeeper keeper(state, counters);
  keeper.keep({verdict_of("a", VerdictState::kConfirmed)});
  keeper.keep({verdict_of("a", VerdictState::kCleared)});
  EXPECT_TRUE(state.saved.empty());
  state.fails = false;
  keeper.keep({});
  EXPECT_EQ(state.saved.at("a").state, VerdictState::kCleared);
}

// As lockstepd wires it: what was said teaches the engine's prior, at once and after a restart.
TEST(FeedbackStore, TeachesTheEngineAtOnceAndAgainAfterARestart) {
  testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/state.sqlite";
  Counters counters(kServerCounters);
  auto taught = [](DiagnosisEngine& engine) {
    return [&engine](std::span<const VerdictFeedback> all) { engine.priors() = CausePriors::of(all); };
  };
  double untaught = 0;
  {
    Result<std::unique_ptr<StateStore>> state = open_sqlite_state_store(path);
    ASSERT_TRUE(state.ok()) << state.error();
    DiagnosisEngine engine;
    untaught = engine.priors().weight(Cause::kEcc, 0.06);
    FeedbackStore book(**state, counters, taught(engine));
    EXPECT_EQ(engine.priors().weight(Cause::kEcc, 0.06), untaught);
    for (const char* id : {"v1", "v2", "v3"})
      ASSERT_TRUE(
          book.keep({.verdict_id = id, .right = false, .said = Cause::kSlowCompute, .cause = Cause::kEcc}).ok());
    EXPECT_GT(engine.priors().weight(Cause::kEcc, 0.06), untaught);
    ASSERT_TRUE(book.take_back("v3").ok());
    EXPECT_EQ(book.of("v3"), std::nullopt);
  }
  Result<std::unique_ptr<StateStore>> state = open_sqlite_state_store(path);
  ASSERT_TRUE(state.ok()) << state.error();
  DiagnosisEngine engine;
  FeedbackStore book(**state, counters, taught(engine));
  EXPECT_EQ(engine.priors().to_json(), R"({"ecc":{"right":2,"wrong":0},"slow-compute":{"right":0,"wrong":2}})");
  EXPECT_GT(engine.priors().weight(Cause::kEcc, 0.06), untaught);
}

TEST(FeedbackStore, WhatCannotBeKeptIsNotShownAndIsCounted) {
  FailingState state;
  Counters counters(kServerCounters);
  int handed_on = 0;
  FeedbackStore book(state, counters, [&](std::span<const VerdictFeedback>) { ++handed_on; });
  Result<void> kept = book.keep({.verdict_id = "v1", .right = true, .said = Cause::kEcc});
  ASSERT_FALSE(kept.ok());
  EXPECT_EQ(kept.error(), "disk full");
  EXPECT_EQ(book.of("v1"), std::nullopt);
  EXPECT_EQ(handed_on, 1);  // at start
  EXPECT_EQ(counters.value("lockstep_feedback_refused_total", "reason=\"store\""), 1);
  EXPECT_EQ(counters.sum("lockstep_feedback_total"), 0);
}

TEST(ServerCounters, EveryRowHasItsOwnNameATypeAndHelp) {
  std::set<std::string> names;
  std::vector<CounterDescriptor> all(kServerCounters.begin(), kServerCounters.end());
  all.insert(all.end(), std::begin(kTenantCounters), std::end(kTenantCounters));
  for (const CounterDescriptor& row : all) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " stands in the table twice";
    EXPECT_EQ(std::string(row.name).starts_with("lockstep_"), true) << row.name;
    EXPECT_EQ(std::string(row.type) == "counter", std::string(row.name).ends_with("_total")) << row.name;
    EXPECT_GT(std::string(row.help).size(), 10u) << row.name;
  }
}

TEST(ServerOptions, SamplesAreSentOnByTenantToOneUrlEach) {
  const auto urls = remote_write_urls({"http://a:1/w=x", "acme=https://b/w"});
  ASSERT_TRUE(urls.ok()) << urls.error();
  ASSERT_EQ(urls->size(), 2u);
  EXPECT_EQ(urls->at("").host, "a");
  EXPECT_EQ(urls->at("acme").host, "b");
  EXPECT_EQ(remote_write_urls({"default=http://a"})->begin()->first, "");
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
           {"http://a", "default=http://b"}, {"acme=http://a", "acme=http://b"}, {"acme="}, {"acme=b"}, {"A=http://b"}})
    EXPECT_FALSE(remote_write_urls(wrong).ok()) << wrong[0];
}

TEST(ServerOptions, AnAddressThatOthersReachNeedsAReason) {
  auto check = [](ServerOptions options, const char* address, bool tokens) {
    return check_exposed(options,
                         {{"--http 127.0.0.1:0", *parse_listen_address("127.0.0.1:0")},
                          {std::string("--otlp-http ") + address, *parse_listen_address(address)}},
                         tokens);
  };
  for (const char* own : {"127.0.0.1:0", "[::1]:0", "localhost:0"}) EXPECT_TRUE(check({}, own, false).ok()) << own;
  for (const char* open : {"0.0.0.0:0", ":0", "[::]:0", "10.1.2.3:0", "lockstep.example:0"}) {
    const Result<void> refused = check({}, open, false);
    ASSERT_FALSE(refused.ok()) << open;
    EXPECT_TRUE(refused.error().starts_with(std::string("--otlp-http ") + open + ": others reach")) << refused.error();
    EXPECT_NE(refused.error().find("or say --insecure"), std::string::npos);
    EXPECT_TRUE(check({}, open, true).ok());
    EXPECT_TRUE(check({.insecure = true}, open, false).ok());
    EXPECT_TRUE(check({.tls = {"c", "k", "ca"}}, open, false).ok());
    EXPECT_FALSE(check({.tls = {"c", "k", ""}}, open, false).ok()) << "encrypted is not known";
  }
}

// The program as a process.
class LockstepdTest : public ::testing::Test {
 protected:
  struct Receivers {
    std::string http;
    std::string otlp_http;
  };
  ChildProcess start(const std::string& data, Receivers* receivers) {
    Result<ChildProcess> child =
        ChildProcess::start({.arguments = {LOCKSTEPD_PATH, "--data", data, "--http", "127.0.0.1:0", "--otlp-http",
                                           "127.0.0.1:0", "--otlp-grpc", "127.0.0.1:0"},
                             .environment = {},
                             .stderr_path = folder_.path() + "/stderr"});
    EXPECT_TRUE(child.ok()) << (child.ok() ? "" : child.error());
    Result<std::string> line = child->read_line(30'000);
    EXPECT_TRUE(line.ok()) << (line.ok() ? "" : line.error());
    std::string said = line.ok() ? *line : "";
    std::vector<std::string_view> words = split(said, ' ');
    EXPECT_EQ(words.size(), 4u) << said;
    if (words.size() == 4) {
      EXPECT_EQ(words[0], "ready");
      EXPECT_TRUE(words[1].starts_with("http=") && words[2].starts_with("otlp_http=") &&
                  words[3].starts_with("otlp_grpc="))
          << said;
      receivers->http = words[1].substr(5);
      receivers->otlp_http = words[2].substr(10);
    }
    return std::move(*child);
  }
  static HttpResponse call(const std::string& address, const HttpRequest& request) {
    Result<Url> url = parse_url("http://" + address, 80);
    EXPECT_TRUE(url.ok());
    HttpClient client(*url, 20'000);
    Result<HttpResponse> response = client.send(request);
    EXPECT_TRUE(response.ok()) << (response.ok() ? "" : response.error());
    return response.ok() ? *response : HttpResponse{};
  }
  static HttpResponse get(const std::string& address, const std::string& path) {
    return call(address, {.method = "GET", .path = path, .headers = {}, .body = ""});
  }
  static int send(const std::string& address, const Batch& batch) {
    return call(address, {.method = "POST",
                          .path = "/v1/logs",
                          .headers = {{"content-type", "application/x-protobuf"}},
                          .body = otlp::encode(batch)})
        .status;
  }
  testing::TemporaryFolder folder_;
};

TEST_F(LockstepdTest, WhatWasAcknowledgedIsThereAfterAKill) {
  std::string data = folder_.path() + "/data";
  Receivers receivers;
  {
    ChildProcess server = start(data, &receivers);
    EXPECT_EQ(get(receivers.http, "/readyz").status, 200);
    for (StepNumber step = 0_step; step < 10_step; ++step) {
      for (Rank rank : all_ranks(2)) ASSERT_EQ(send(receivers.otlp_http, step_batch("crashed job", rank, step)), 200);
    }
    EXPECT_NE(get(receivers.http, "/api/jobs/crashed%20job").body.find("\"last_step\":9"), std::string::npos)
        << "acknowledged means visible";
    kill(server.pid(), SIGKILL);
    EXPECT_TRUE(server.wait(10'000).ok());
  }
  {  // What an analyzer keeps of the bus is read back as what receivers took.
    Counters counters{kServerCounters};
    const std::string request = otlp::encode(step_batch("bus job", 0_rank, 0_step));
    const auto log = DurableLog::open({.folder = data + "/log"}, counters).value();
    ASSERT_TRUE(log->append(RecordKind::kBusLogs, SystemClock().unix_ns(), with_origin({}, request)).ok());
  }
  ChildProcess server = start(data, &receivers);
  EXPECT_EQ(get(receivers.http, "/api/jobs/bus%20job").status, 200);
  HttpResponse job = get(receivers.http, "/api/jobs/crashed%20job");
  EXPECT_EQ(job.status, 200);
  EXPECT_NE(job.body.find("\"ranks_seen\":2"), std::string::npos) << job.body;
  EXPECT_NE(job.body.find("\"last_step\":9"), std::string::npos) << job.body;
  EXPECT_NE(get(receivers.http, "/api/logs?event=train.step&limit=1").body.find("\"total\":21"), std::string::npos);
  std::string metrics = get(receivers.http, "/metrics").body;
  EXPECT_NE(metrics.find("\nlockstep_log_records_replayed_total 21\n"), std::string::npos);
  EXPECT_NE(metrics.find("\nlockstep_replay_undecodable_records_total 0\n"), std::string::npos);
  kill(server.pid(), SIGTERM);
  Result<int> status = server.wait(20'000);
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(*status, 0);
}

TEST_F(LockstepdTest, SpansAreThereOnceAfterAKillAndAfterAnOrderlyEnd) {
  const std::string data = folder_.path() + "/data";
  Identity identity{
      .job_id = "job", .attempt = 0, .rank = 0_rank, .world_size = 1, .local_rank = 0, .host = "h", .gpu_uuid = ""};
  const int64_t now = SystemClock().unix_ns();
  Receivers receivers;
  auto send_step = [&](StepNumber step) {
    StepDetail detail;
    detail.step = step;
    detail.start_unix_ns = now + step.value() * 1000;
    detail.duration_ns = 900;
    detail.phases = {{Phase::kForward, "", now + step.value() * 1000, 500}};
    Batch batch{
        .signal = Signal::kSpans,
        .groups = {{.resource = to_resource(identity), .spans = to_spans(identity, detail, SampledFor::kAsked)}}};
    return call(receivers.otlp_http, {.method = "POST",
                                      .path = "/v1/traces",
                                      .headers = {{"content-type", "application/x-protobuf"}},
                                      .body = otlp::encode(batch)})
        .status;
  };
  auto expect_spans = [&](int64_t steps, const char* files) {
    EXPECT_NE(get(receivers.http, "/api/spans").body.find(format("\"total\":%lld", static_cast<long long>(2 * steps))),
              std::string::npos);
    for (StepNumber step = 0_step; step < StepNumber{steps}; ++step) {
      const std::string trace = to_hex(step_trace_id("job", 0, step));
      EXPECT_NE(get(receivers.http, "/api/spans?trace_id=" + trace).body.find("\"total\":2"), std::string::npos)
          << step;
    }
    EXPECT_NE(get(receivers.http, "/metrics").body.find(format("\nlockstep_span_files %s\n", files)),
              std::string::npos);
  };
  {
    ChildProcess server = start(data, &receivers);
    ASSERT_EQ(send_step(0_step), 200);
    ASSERT_EQ(send_step(1_step), 200);
    expect_spans(2, "0");
    kill(server.pid(), SIGKILL);
    EXPECT_TRUE(server.wait(10'000).ok());
  }
  {
    ChildProcess server = start(data, &receivers);  // from the log
    expect_spans(2, "0");
    ASSERT_EQ(send_step(2_step), 200);
    kill(server.pid(), SIGTERM);
    Result<int> status = server.wait(20'000);
    ASSERT_TRUE(status.ok());
    EXPECT_EQ(*status, 0);
  }
  ChildProcess server = start(data, &receivers);  // from a file, and not from the log as well
  expect_spans(3, "1");
  ASSERT_EQ(send_step(3_step), 200);
  expect_spans(4, "1");
}

TEST_F(LockstepdTest, ADataFolderInUseIsRefusedWithOneLine) {
  std::string data = folder_.path() + "/data";
  Receivers receivers;
  ChildProcess first = start(data, &receivers);
  Result<ChildProcess> second =
      ChildProcess::start({.arguments = {LOCKSTEPD_PATH, "--data", data, "--http", "127.0.0.1:0", "--otlp-http",
                                         "127.0.0.1:0", "--otlp-grpc", "127.0.0.1:0"},
                           .environment = {},
                           .stderr_path = folder_.path() + "/second"});
  ASSERT_TRUE(second.ok());
  Result<int> status = second->wait(20'000);
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(*status, 1);
  Result<std::string> said = read_file(folder_.path() + "/second", 10'000);
  ASSERT_TRUE(said.ok());
  EXPECT_NE(said->find("in use by another lockstepd (pid " + std::to_string(first.pid()) + ")"), std::string::npos)
      << *said;
  EXPECT_EQ(std::count(said->begin(), said->end(), '\n'), 1) << *said;
}

TEST_F(LockstepdTest, WrongUsageIsOneLineAndExitCodeTwo) {
  Result<ChildProcess> child = ChildProcess::start(
      {.arguments = {LOCKSTEPD_PATH, "--dta", "x"}, .environment = {}, .stderr_path = folder_.path() + "/stderr"});
  ASSERT_TRUE(child.ok());
  Result<int> status = child->wait(20'000);
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(*status, 2);
  Result<std::string> said = read_file(folder_.path() + "/stderr", 10'000);
  EXPECT_EQ(std::count(said->begin(), said->end(), '\n'), 1) << *said;
}

}  // namespace
}  // namespace lockstep
