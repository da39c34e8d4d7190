#include "alert/alert_registry.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "alert/agent_watch.h"
#include "alert/builtin_alerts.h"
#include "alert/gpu_watch.h"
#include "alert/mfu_watch.h"
#include "ingest/counters_table.h"
#include "store/forwarding_state.h"
#include "store/sqlite_state_store.h"
#include "store/testing/failing_access.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

class Alerts : public ::testing::Test {
 protected:
  void SetUp() override { start(); }
  // As after a kill: nothing is closed in order.
  void start() {
    registry_.reset();
    state_.reset();
    Result<std::unique_ptr<StateStore>> state = open_sqlite_state_store(folder_.path() + "/state.sqlite");
    state_ = std::move(*state);
    registry_ = std::make_unique<AlertRegistry>(*state_, clock_, witness_, counters_);
    registry_->set_receivers(receivers_);
  }
  static RaisedAlert hang(const std::string& job = "llm") {
    Verdict verdict;
    verdict.id = "v-" + job;
    verdict.job_id = job;
    verdict.kind = VerdictKind::kHang;
    verdict.culprit.cause = Cause::kRankMissing;
    verdict.sentence = "Job " + job + " stands still.";
    return alert_of(verdict);
  }
  void pass(int64_t seconds) {
    for (int64_t i = 0; i < seconds; ++i) {
      clock_.advance(kSecond);
      registry_->tick();
    }
  }
  std::vector<Delivery> due(const std::string& receiver = "hook") { return registry_->due(receiver, 0, 50); }
  // What a receiver gets, all at once.
  std::vector<std::string> deliver(const std::string& receiver = "hook") {
    std::vector<std::string> texts;
    for (std::vector<Delivery> list = due(receiver); !list.empty(); list = due(receiver)) {
      for (const Delivery& one : list) texts.push_back(one.alert.name + (one.alert.firing ? " firing" : " resolved"));
      registry_->delivered(list);
    }
    return texts;
  }
  using Texts = std::vector<std::string>;

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_;
  ClockWitness witness_{clock_};
  Counters counters_{kServerCounters};
  std::vector<ReceiverTerms> receivers_{{"hook"}};
  std::unique_ptr<StateStore> state_;
  std::unique_ptr<AlertRegistry> registry_;
};

TEST_F(Alerts, AFaultThatIsSeenManyTimesIsOnePageAndOneWordThatItIsOver) {
  for (int i = 0; i < 5; ++i) {
    registry_->raise(hang());
    pass(1);
  }
  EXPECT_EQ(deliver(), Texts{"LockstepHang firing"});
  registry_->sync(AlertSource::kVerdict, {});
  pass(10);
  EXPECT_EQ(deliver(), Texts{}) << "it is held for a while";
  pass(25);
  EXPECT_EQ(deliver(), Texts{"LockstepHang resolved"});
  EXPECT_FALSE(registry_->alerts().at(0).firing);
}

TEST_F(Alerts, WhatIsHandedOverIsGoneWithoutAWord) {
  registry_->raise(hang("ours"));
  registry_->raise(hang("theirs"));
  pass(1);
  registry_->hand_over([](const Alert& alert) { return alert.job_id == "theirs"; });
  EXPECT_EQ(deliver(), Texts{"LockstepHang firing"});
  registry_->raise(hang("ours"));
  pass(120);
  start();
  ASSERT_EQ(registry_->alerts().size(), 1u);
  EXPECT_EQ(registry_->alerts()[0].job_id, "ours");
}

TEST_F(Alerts, AnotherServerThatTakesAJobOverTellsNobodyTwiceAndEverybodyOnce) {
  const auto is_ours = [](const Alert& alert) { return alert.job_id == "told" || alert.job_id == "untold"; };
  registry_->raise(hang("told"));
  pass(1);
  EXPECT_EQ(deliver().size(), 1u);
  registry_->raise(hang("untold"));
  registry_->raise(hang("another's"));
  pass(1);
  const std::vector<StoredAlertRow> rows = *state_->alert_rows();

  const std::unique_ptr<StateStore> state = open_sqlite_state_store(folder_.path() + "/second.sqlite").value();
  AlertRegistry second(*state, clock_, witness_, counters_);
  second.set_receivers(receivers_);
  second.take_over(rows, is_ours);
  for (const char* job : {"told", "untold"}) second.raise(hang(job));  // found again, as the bus is read back
  clock_.advance(kSecond);
  second.tick();
  const std::vector<Delivery> sent = second.due("hook", 0, 50);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].alert.job_id, "untold");
  second.delivered(sent);
  EXPECT_EQ(second.alerts().size(), 2u);
  EXPECT_EQ(second.alerts()[0].episodes, 1);
  // What is over now though nobody saw it end is told as over.
  second.sync(AlertSource::kVerdict, {hang("untold").fingerprint});
  for (int i = 0; i < 35; ++i) {
    clock_.advance(kSecond);
    second.tick();
  }
  const std::vector<Delivery> over = second.due("hook", 0, 50);
  ASSERT_EQ(over.size(), 1u);
  EXPECT_EQ(over[0].alert.job_id, "told");
  EXPECT_FALSE(over[0].alert.firing);
  EXPECT_EQ(state->alert_rows()->size(), 3u) << "two alerts and what is to be sent of one: they are its own now";
  // Again: what is known stays as it is.
  second.take_over(rows, is_ours);
  second.tick();
  EXPECT_EQ(second.due("hook", 0, 50).size(), 1u);
}

TEST_F(Alerts, WhatFiresAtANeighbourGoesOnHereAndWhatIsSaidOfItsJobsIsNotHeard) {
  registry_->raise(hang("one"));
  pass(1);
  EXPECT_EQ(deliver().size(), 1u);
  const std::vector<StoredAlertRow> rows = *state_->alert_rows();
  const std::unique_ptr<StateStore> state = open_sqlite_state_store(folder_.path() + "/second.sqlite").value();
  AlertRegistry second(*state, clock_, witness_, counters_);
  second.set_receivers(receivers_);
  second.set_neighbours(
      {.is_theirs = [](const std::string& job) { return job == "theirs"; },
       .row_of =
           [&](const std::string& fingerprint) { return rows[0].id == fingerprint ? rows[0].json : std::string(); }});
  for (const char* job : {"one", "new", "theirs"}) second.raise(hang(job));
  clock_.advance(kSecond);
  second.tick();
  ASSERT_EQ(second.alerts().size(), 2u);
  const std::vector<Delivery> sent = second.due("hook", 0, 50);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].alert.job_id, "new");
}

TEST_F(Alerts, WhatIsHandedOverIsGoneHereAlone) {
  struct Watched final : ForwardingState {
    using ForwardingState::ForwardingState;
    std::vector<StoredAlertRow> gone;
    Result<void> save_alert_rows(std::span<const StoredAlertRow> rows) override {
      for (const StoredAlertRow& row : rows) {
        if (row.json.empty()) gone.push_back(row);
      }
      return ForwardingState::save_alert_rows(rows);
    }
  } watched(*state_);
  AlertRegistry registry(watched, clock_, witness_, counters_);
  registry.set_receivers(receivers_);
  registry.raise(hang("theirs"));
  registry.tick();
  registry.hand_over([](const Alert&) { return true; });
  registry.tick();
  ASSERT_EQ(watched.gone.size(), 2u) << "the alert, and what was to be sent of it";
  EXPECT_TRUE(watched.gone[0].is_others && watched.gone[1].is_others);
  EXPECT_TRUE(state_->alert_rows()->empty());
}

TEST_F(Alerts, WhatFlapsIsHeldLongerEachTime) {
  size_t pages = 0;
  for (int i = 0; i < 25; ++i) {  // on for 20 s, off for 40 s
    registry_->raise(hang());
    pass(20);
    registry_->sync(AlertSource::kVerdict, {});
    pass(40);
    for (const std::string& text : deliver()) pages += text.ends_with("firing");
  }
  EXPECT_LE(pages, 3u);
  EXPECT_GE(registry_->alerts().at(0).flaps, 1);
}

TEST_F(Alerts, AKillBetweenFiringAndSendingLosesNothingAndSendsOnce) {
  registry_->raise(hang());
  registry_->tick();
  ASSERT_EQ(due().size(), 1u);
  start();
  registry_->raise(hang());  // found again, as the log is read back
  pass(3);
  EXPECT_EQ(deliver(), Texts{"LockstepHang firing"});
  start();
  registry_->raise(hang());
  pass(100);
  EXPECT_EQ(deliver(), Texts{});
}

TEST_F(Alerts, AReceiverThatIsDownForAnHourGetsOnePageWhenItIsBack) {
  registry_->raise(hang());
  pass(1);
  for (int minute = 0; minute < 60; ++minute) {
    if (const std::vector<Delivery> list = due(); !list.empty()) registry_->failed(list, "connection refused", true);
    pass(60);
  }
  EXPECT_EQ(deliver(), Texts{"LockstepHang firing"});
}

TEST_F(Alerts, WhatBeganAndEndedWhileAReceiverWasDownIsOneMessage) {
  receivers_ = {{"hook"}, {.name = "pager", .in_pairs = true}};
  start();
  registry_->raise(hang());
  pass(1);
  registry_->failed(due(), "connection refused", true);
  registry_->failed(due("pager"), "connection refused", true);
  registry_->sync(AlertSource::kVerdict, {});
  pass(120);
  EXPECT_EQ(deliver(), Texts{"LockstepHang resolved"});
  EXPECT_EQ(deliver("pager"), (Texts{"LockstepHang firing", "LockstepHang resolved"}))
      << "it knows no end without a beginning";
}

TEST_F(Alerts, AWallClockThatIsSetNeitherEndsNorProlongsAnything) {
  RaisedAlert xid = gpu_alert(alert_names::kGpuFault, Cause::kXid, AlertSource::kEvent, "node-1", "GPU-1");
  xid.lasts_ns = 600 * kSecond;
  registry_->raise(xid);
  pass(5);
  EXPECT_EQ(deliver().size(), 1u);
  clock_.set_ahead(86'400 * kSecond);
  pass(60);
  EXPECT_TRUE(registry_->alerts().at(0).firing);
  clock_.set_ahead(-86'400 * kSecond);
  pass(60);
  EXPECT_TRUE(registry_->alerts().at(0).firing);
  pass(600);
  EXPECT_FALSE(registry_->alerts().at(0).firing);
  EXPECT_EQ(deliver(), Texts{"LockstepGpuFault resolved"});
}

TEST_F(Alerts, AnEventAfterTheClockWasSetBackIsAPage) {
  RaisedAlert xid = gpu_alert(alert_names::kGpuFault, Cause::kXid, AlertSource::kEvent, "node-1", "GPU-1");
  xid.lasts_ns = 60 * kSecond;
  xid.seen_unix_ns = clock_.unix_ns();
  registry_->raise(xid);
  pass(200);
  EXPECT_EQ(deliver(), Texts{"LockstepGpuFault resolved"}) << "it came and went";
  clock_.set_ahead(-3'600 * kSecond);
  pass(1);
  xid.seen_unix_ns = clock_.unix_ns();
  registry_->raise(xid);
  pass(1);
  EXPECT_EQ(deliver(), Texts{"LockstepGpuFault firing"});
}

TEST_F(Alerts, AClockThatIsSetDropsNothingThatWaits) {
  registry_->raise(hang());
  pass(1);
  clock_.set_ahead(10 * 86'400 * kSecond);
  pass(2);
  ASSERT_EQ(registry_->waiting("hook"), 1u);
  clock_.set_ahead(20 * 86'400 * kSecond);  // while the server is down
  start();
  registry_->raise(hang());
  pass(60);
  EXPECT_EQ(deliver(), Texts{"LockstepHang firing"});
}

TEST_F(Alerts, WhatCannotBeDeliveredForDaysIsGivenUp) {
  registry_->raise(hang());
  pass(1);
  clock_.advance(AlertRegistry::kGiveUpNs);
  pass(2);
  EXPECT_EQ(registry_->waiting("hook"), 0u);
  EXPECT_EQ(counters_.value("lockstep_alert_notifications_lost_total", "receiver=\"hook\",reason=\"expired\""), 1);
}

TEST_F(Alerts, AMetricThatNobodySendsAnyMoreHoldsADay) {
  registry_->raise(gpu_alert(alert_names::kThrottle, Cause::kThrottleThermal, AlertSource::kMetric, "n", "GPU-1"));
  pass(5);
  start();
  pass(5);
  EXPECT_TRUE(registry_->alerts().at(0).firing);
  clock_.advance(AlertRegistry::kMetricNs);
  pass(60);
  EXPECT_FALSE(registry_->alerts().at(0).firing);
}

TEST(AgentWatch, AClockThatIsSetMakesNobodySilent) {
  testing::FakeClock clock;
  AgentRegistry agents;
  AgentWatch watch;
  const auto pass = [&](int seconds, bool is_sending) {
    size_t silent = 0;
    for (int i = 0; i < seconds; i += 5) {
      clock.advance(5 * kSecond);
      if (is_sending) agents.seen("n", clock.unix_ns(), 0);
      silent = watch.poll(agents.agents(), clock.unix_ns(), clock.monotonic_ns()).silent.size();
    }
    return silent;
  };
  EXPECT_EQ(pass(120, true), 0u);
  clock.set_ahead(300 * kSecond);
  EXPECT_EQ(watch.poll(agents.agents(), clock.unix_ns(), clock.monotonic_ns()).silent.size(), 0u);
  EXPECT_EQ(pass(30, true), 0u);
  clock.set_ahead(-3'600 * kSecond);
  EXPECT_EQ(pass(120, true), 0u) << "it still sends";
  EXPECT_EQ(pass(60, false), 0u);
  EXPECT_EQ(pass(60, false), 1u);
  EXPECT_EQ(pass(10, true), 0u);
}

TEST_F(Alerts, ARowThatWasReplacedCallsNobodyUnlessTheDriverAsksForAReset) {
  bool over = false;
  NodeEvent event{.name = "gpu.xid", .severity = EventSeverity::kWarn, .gpu_uuid = "GPU-1"};
  for (const int64_t code : {63, 92}) {
    event.code = code;
    EXPECT_FALSE(alert_of("node-1", event, &over)) << code;
  }
  event.severity = EventSeverity::kCritical;
  EXPECT_EQ(alert_of("node-1", event, &over)->name, alert_names::kEcc);
}

TEST_F(Alerts, AnXidAndTheVerdictThatBlamesItAreOneAlert) {
  NodeEvent event{.name = "gpu.xid",
                  .time_unix_ns = clock_.unix_ns(),
                  .severity = EventSeverity::kCritical,
                  .gpu_uuid = "GPU-1",
                  .code = 79,
                  .meaning = "GPU fell off the bus"};
  bool over = false;
  registry_->raise(*alert_of("node-1", event, &over));
  pass(2);
  Verdict verdict;
  verdict.id = "v1";
  verdict.job_id = "llm";
  verdict.kind = VerdictKind::kSlow;
  verdict.culprit = {
      .ranks = {5_rank}, .host = "node-1", .gpu_uuid = "GPU-1", .layer = Layer::kGpu, .cause = Cause::kXid};
  verdict.sentence = "Rank 5 is slow.";
  registry_->raise(alert_of(verdict));
  pass(2);
  EXPECT_EQ(deliver(), Texts{"LockstepGpuFault firing"});
  ASSERT_EQ(registry_->alerts().size(), 1u);
  EXPECT_EQ(registry_->alerts()[0].annotation("summary"), "Rank 5 is slow.");
  EXPECT_EQ(registry_->alerts()[0].label("job"), "") << "labels stay as receivers know them";
  EXPECT_EQ(registry_->alerts()[0].path, "/jobs/llm?rank=5");
}

TEST_F(Alerts, AnEventThatIsReadBackFromTheLogIsNoNewPage) {
  RaisedAlert xid = gpu_alert(alert_names::kGpuFault, Cause::kXid, AlertSource::kEvent, "node-1", "GPU-1");
  xid.lasts_ns = 600 * kSecond;
  xid.seen_unix_ns = clock_.unix_ns();
  registry_->raise(xid);
  pass(700);
  EXPECT_EQ(deliver().back(), "LockstepGpuFault resolved");
  start();
  registry_->raise(xid);
  pass(10);
  EXPECT_EQ(deliver(), Texts{});
}

TEST_F(Alerts, MfuThatASlowRankExplainsIsNotSent) {
  RaisedAlert mfu{.source = AlertSource::kMfu, .fingerprint = "m", .name = alert_names::kMfu, .job_id = "llm"};
  registry_->raise(mfu);
  pass(5);
  registry_->raise(hang());
  pass(40);
  EXPECT_EQ(deliver(), Texts{"LockstepHang firing"});
  registry_->sync(AlertSource::kVerdict, {});
  pass(60);
  EXPECT_EQ(deliver(), (Texts{"LockstepHang resolved", "LockstepMfuDrop firing"})) << "nothing explains it any more";
}

TEST_F(Alerts, ASilenceHoldsBackWhatMatchesUntilItEnds) {
  Silence window{.matchers = R"({job="llm"})",
                 .starts_unix_ns = clock_.unix_ns(),
                 .ends_unix_ns = clock_.unix_ns() + 100 * kSecond};
  const Result<Silence> silence = registry_->add_silence(*checked_silence(window));
  ASSERT_TRUE(silence.ok());
  registry_->raise(hang());
  registry_->raise(hang("other"));
  pass(5);
  EXPECT_EQ(deliver().size(), 1u);
  start();  // kept
  registry_->raise(hang());
  registry_->raise(hang("other"));
  pass(5);
  EXPECT_EQ(deliver(), Texts{});
  ASSERT_TRUE(registry_->end_silence(silence->id).ok());
  EXPECT_EQ(registry_->end_silence("none").code(), ErrorCode::kNotFound);
  pass(2);
  EXPECT_EQ(deliver(), Texts{"LockstepHang firing"});
}

TEST_F(Alerts, SilencesThatAreOverLeaveRoomForNewOnes) {
  Silence window{.matchers = R"({job="llm"})",
                 .starts_unix_ns = clock_.unix_ns(),
                 .ends_unix_ns = clock_.unix_ns() + 100 * kSecond};
  window = *checked_silence(window);
  for (size_t i = 0; i < AlertRegistry::kSilencesMax; ++i) ASSERT_TRUE(registry_->add_silence(window).ok());
  EXPECT_FALSE(registry_->add_silence(window).ok());
  pass(101);
  window.ends_unix_ns += 1'000 * kSecond;
  EXPECT_TRUE(registry_->add_silence(window).ok());
  EXPECT_EQ(registry_->silences().size(), AlertRegistry::kSilencesMax);
}

TEST_F(Alerts, WhatIsHeldBackIsKnownToTheListAndToAlertmanagers) {
  registry_->raise(hang());
  EXPECT_EQ(registry_->to_hold(0).size(), 0u) << "not before a tick has looked at it";
  pass(1);
  uint64_t version = registry_->version();
  EXPECT_EQ(registry_->to_hold(0).size(), 1u);
  pass(10);
  EXPECT_EQ(registry_->version(), version) << "nothing new: nobody has to be told";
  Silence window{.matchers = R"({job="llm"})",
                 .starts_unix_ns = clock_.unix_ns() + 5 * kSecond,
                 .ends_unix_ns = clock_.unix_ns() + 10 * kSecond};
  ASSERT_TRUE(registry_->add_silence(*checked_silence(window)).ok());
  EXPECT_EQ(registry_->version(), version);
  pass(6);
  EXPECT_NE(std::exchange(version, registry_->version()), registry_->version());
  EXPECT_TRUE(registry_->views(false).at(0).silenced);
  EXPECT_EQ(registry_->to_hold(0).size(), 0u);
  pass(5);
  EXPECT_NE(registry_->version(), version);
  EXPECT_FALSE(registry_->views(false).at(0).silenced);
  EXPECT_EQ(registry_->to_hold(0).size(), 1u);
}

// Notices two savers at once: then the older of two states of an alert might be the last that is written.
struct OneSaverAtATime final : testing::WithFailingAccess<StateStore> {
  std::atomic<int> savers{0};
  std::atomic<bool> met{false};
  std::atomic<int> saves{0};
  Result<void> save_alert_rows(std::span<const StoredAlertRow>) override {
    if (++savers > 1) met = true;
    for (int i = 0; i < 3; ++i) std::this_thread::yield();  // each may take milliseconds where others want the core
    --savers;
    ++saves;
    return {};
  }
  Result<std::vector<StoredAlertRow>> alert_rows() const override { return std::vector<StoredAlertRow>(); }
  Result<void> save_verdict(const Verdict&) override { return {}; }
  std::vector<StoredVerdict> find_verdicts(const VerdictsAsked&) const override { return {}; }
  Result<void> save_feedback(const VerdictFeedback&) override { return {}; }
  Result<void> drop_feedback(std::string_view) override { return {}; }
  std::vector<VerdictFeedback> feedback() const override { return {}; }
  Result<void> save_capture(const StoredCapture&) override { return {}; }
  Result<void> drop_capture(std::string_view) override { return {}; }
  std::vector<StoredCapture> captures() const override { return {}; }
  Result<void> save_incidents(std::span<const StoredIncident>) override { return {}; }
  Result<std::vector<StoredIncident>> incidents() const override { return std::vector<StoredIncident>(); }
};

TEST_F(Alerts, StatesAreSavedInTheOrderInWhichTheyCame) {
  OneSaverAtATime state;
  AlertRegistry registry(state, clock_, witness_, counters_);
  registry.set_receivers({{"hook"}});
  const auto work = [&](int thread) {
    for (int i = 0; i < 200; ++i) {
      registry.raise(hang(std::to_string(thread) + "-" + std::to_string(i)));
      registry.tick();
      registry.delivered(registry.due("hook", 0, 1));
    }
  };
  std::thread other(work, 1);
  work(2);
  other.join();
  EXPECT_GT(state.saves, 200);
  EXPECT_FALSE(state.met);
}

TEST_F(Alerts, ASilenceIsCheckedWhenItIsMade) {
  const int64_t now = clock_.unix_ns();
  EXPECT_TRUE(silence_from_request(R"({"matchers":"{host=\"a\"}","for":"2h","comment":"disk"})", now).ok());
  EXPECT_TRUE(silence_from_request(R"({"matchers":"LockstepHang{job=~\"a.*\"}","for":"2h"})", now).ok());
  for (const char* wrong : {"{}", R"({"matchers":"{}","for":"2h"})", R"({"matchers":"{a=\"b\"}","for":"2 hours"})",
                            R"({"matchers":"{a=\"b\"}","for":"9y"})", R"({"matchers":"{a=~\"(\"}","for":"1h"})",
                            R"({"matchers":"{a=\"b\"}","for":"1h","more":1})", "[]", "{"})
    EXPECT_FALSE(silence_from_request(wrong, now).ok()) << wrong;
}

TEST_F(Alerts, APlannedSilenceNamesPlacesAloneAndStaysPlanned) {
  const int64_t now = clock_.unix_ns();
  EXPECT_FALSE(silence_from_request(R"({"matchers":"{host=\"a\"}","for":"2h"})", now)->is_planned);
  Result<Silence> made =
      silence_from_request(R"({"matchers":"{host=\"a\",job=~\"b.*\"}","for":"2h","planned":true})", now);
  ASSERT_TRUE(made.ok()) << made.error();
  made->id = "s-1";
  JsonWriter json;
  write_silence(json, *made, now);
  const std::string text = json.take();
  const Result<JsonDocument> kept = JsonDocument::parse(text);
  ASSERT_TRUE(kept.ok());
  const Result<Silence> read = silence_from_json(kept->root());
  ASSERT_TRUE(read.ok()) << read.error();
  EXPECT_TRUE(read->is_planned);
  for (const char* wrong : {R"({"matchers":"{cause=\"ecc\"}","for":"2h","planned":true})",
                            R"({"matchers":"{host=\"a\",alertname!=\"LockstepHang\"}","for":"2h","planned":true})",
                            R"({"matchers":"{host=\"a\"}","for":"2h","planned":"yes"})"})
    EXPECT_FALSE(silence_from_request(wrong, now).ok()) << wrong;
}

TEST_F(Alerts, WhatIsRefusedForGoodIsGivenUpAndSeen) {
  registry_->raise(hang());
  pass(1);
  registry_->failed(due(), "answers 400", false);
  EXPECT_EQ(due().size(), 0u);
  EXPECT_EQ(registry_->alerts().at(0).deliveries.at(0).state, "failed");
  EXPECT_EQ(counters_.value("lockstep_alert_notifications_lost_total", "receiver=\"hook\",reason=\"refused\""), 1);
}

TEST_F(Alerts, NoMoreThanTheLimitAreKept) {
  RaisedAlert one = hang();
  for (size_t i = 0; i < AlertRegistry::kAlertsMax + 10; ++i) {
    one.fingerprint = std::to_string(i);
    registry_->raise(one);
  }
  EXPECT_EQ(registry_->alerts().size(), AlertRegistry::kAlertsMax);
  EXPECT_EQ(counters_.value("lockstep_alerts_refused_total"), 10);
}

TEST_F(Alerts, GpusAreWatchedWithoutAJob) {
  GpuWatch watch(*registry_);
  const Attributes resource = {{"host.name", "node-1"}};
  const auto point = [&](const char* name, double value, Attributes attributes) {
    MetricPoint one;
    one.name = name;
    one.value = value;
    one.time_unix_ns = clock_.unix_ns();
    one.attributes = std::move(attributes);
    one.attributes.push_back({"gpu_uuid", "GPU-1"});
    watch.on_metrics(resource, {&one, 1}, clock_.unix_ns(), false);
    clock_.advance(kSecond);
  };
  const auto names = [&] {
    Texts list;
    for (const Alert& alert : registry_->alerts()) list.push_back(alert.name);
    return list;
  };
  for (int i = 0; i < 5; ++i) {
    point("hw.errors", 7, {{"error.type", "uncorrected"}});
    point("lockstep_gpu_links_up", 18, {});
    point("lockstep_gpu_throttle_seconds_total", 10.0 * i, {{"reason", "power"}});
    point("lockstep_gpu_throttle_seconds_total", 0.01 * i, {{"reason", "hw_thermal"}});
  }
  EXPECT_EQ(names(), Texts{}) << "a GPU at its power limit is healthy";
  point("hw.errors", 8, {{"error.type", "uncorrected"}});
  EXPECT_EQ(names(), Texts{"LockstepGpuEcc"});
  point("lockstep_gpu_links_up", 17, {});
  EXPECT_EQ(names().size(), 2u);
  for (int i = 1; i <= 3; ++i) point("lockstep_gpu_throttle_seconds_total", 100.0 + i, {{"reason", "hw_thermal"}});
  EXPECT_EQ(names().size(), 3u);
  point("lockstep_gpu_links_up", 18, {});
  for (int i = 1; i <= 3; ++i) point("lockstep_gpu_throttle_seconds_total", 103.0, {{"reason", "hw_thermal"}});
  pass(40);
  EXPECT_EQ(names().size(), 3u);
  size_t firing = 0;
  for (const Alert& alert : registry_->alerts()) firing += alert.firing;
  EXPECT_EQ(firing, 1u) << "the memory errors are an hour's";
}

TEST_F(Alerts, ANodesClockThatIsSetBackDoesNotBlindUs) {
  GpuWatch watch(*registry_);
  const Attributes resource = {{"host.name", "node-1"}};
  double seconds = 0;
  int64_t node_unix_ns = clock_.unix_ns();
  const auto sample = [&] {
    MetricPoint one;
    one.name = "lockstep_gpu_throttle_seconds_total";
    one.value = seconds += 1;
    one.time_unix_ns = node_unix_ns += kSecond;
    one.attributes = {{"gpu_uuid", "GPU-1"}, {"reason", "hw_thermal"}};
    watch.on_metrics(resource, {&one, 1}, clock_.unix_ns(), false);
    clock_.advance(kSecond);
  };
  sample();
  node_unix_ns -= 3'600 * kSecond;
  for (int i = 0; i < 3; ++i) sample();
  EXPECT_EQ(registry_->alerts().size(), 1u);
}

TEST(MfuWatch, FiveStepsBelowTheMedianAreADropAndOneIsNot) {
  MfuWatch watch;
  int64_t step = 0;
  const auto run = [&](int steps, double seconds) {
    for (int i = 0; i < steps; ++i, ++step) {
      for (int rank = 0; rank < 2; ++rank) {
        StepSummary summary;
        summary.step = StepNumber{step};
        summary.duration_ns = static_cast<int64_t>(seconds * 1e9);
        summary.scalars = {{"flops", 1e15}};
        watch.add({.job_id = "j", .rank = Rank{rank}, .world_size = 2}, summary, 1);
      }
    }
  };
  run(40, 1);
  run(4, 2);
  run(1, 1);
  EXPECT_TRUE(watch.drops(2).empty());
  run(5, 1.3);
  ASSERT_EQ(watch.drops(2).size(), 1u);
  EXPECT_NEAR(watch.drops(2)[0].now / watch.drops(2)[0].before, 1 / 1.3, 0.01);
  run(5, 1);
  EXPECT_TRUE(watch.drops(2).empty());
  const int64_t real = step;
  step = 1'000'000'000'000;  // one wrong number
  run(1, 1);
  step = real;
  run(6, 2);
  EXPECT_EQ(watch.drops(2).size(), 1u);
}

// Rank 1 does half of the work, and its reports come ten steps late: steps without it would look like a drop.
TEST(MfuWatch, ARankWhoseReportsAreLateIsWaitedForAndASilentOneIsNot) {
  MfuWatch watch;
  int64_t now = 1'000'000'000;
  const auto report = [&](int rank, int64_t step, double flops) {
    StepSummary summary;
    summary.step = StepNumber{step};
    summary.duration_ns = 100'000'000;
    summary.scalars = {{"flops", flops}};
    watch.add({.job_id = "j", .rank = Rank{rank}, .world_size = 2}, summary, now);
  };
  for (int64_t step = 0; step < 40; ++step, now += 100'000'000) {
    report(0, step, 1e15);
    report(1, step, 3e15);
  }
  for (int64_t step = 40; step < 80; ++step, now += 100'000'000) {
    report(0, step, 1e15);
    if (step >= 50) report(1, step - 10, 3e15);
  }
  EXPECT_TRUE(watch.drops(now).empty());
  for (int64_t step = 80; step < 180; ++step, now += 100'000'000) report(0, step, 1e15);
  EXPECT_EQ(watch.drops(now).size(), 1u);
}

TEST(BuiltinAlerts, EveryRowSaysWhatRaisesItAndWhatToDo) {
  for (const BuiltinAlert& row : builtin_alerts()) {
    EXPECT_TRUE(std::string_view(row.name).starts_with("Lockstep"));
    EXPECT_FALSE(std::string_view(row.raised_by).empty());
    EXPECT_FALSE(std::string_view(row.within).empty());
    EXPECT_FALSE(std::string_view(row.runbook).empty());
  }
}

}  // namespace
}  // namespace lockstep
