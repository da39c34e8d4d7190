#include "incident/incident_registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <future>
#include <random>

#include "base/text.h"
#include "incident/incident_report.h"
#include "ingest/counters_table.h"
#include "store/forwarding_state.h"
#include "store/sqlite_state_store.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep::incident {
namespace {

constexpr int64_t kMinute = 60 * IncidentRegistry::kSecondNs;
constexpr int64_t kT0 = testing::FakeClock::kUnixNs;

Finding verdict(std::string id, std::string component, int64_t from_min, int64_t to_min, std::string job = "llm") {
  Finding finding{.id = std::move(id),
                  .place = {std::move(component), "gpu", "node-1", "GPU-1"},
                  .cause = Cause::kThrottleThermal,
                  .job_id = std::move(job),
                  .sentence = "Rank 5 makes all wait.",
                  .begin_unix_ns = kT0 + from_min * kMinute,
                  .seen_unix_ns = kT0 + to_min * kMinute,
                  .end_unix_ns = kT0 + to_min * kMinute,
                  .lost_gpu_seconds = 100};
  return finding;
}

Finding lasting(Finding finding) {
  finding.end_unix_ns = 0;
  return finding;
}

Finding event(std::string id, int64_t at_min, int64_t holds_min, bool opens = true) {
  Finding finding = verdict(std::move(id), "gpu:GPU-1", at_min, at_min, "");
  finding.kind = FindingKind::kEvent;
  finding.opens = opens;
  finding.family = "link";
  finding.end_unix_ns += holds_min * kMinute;
  return finding;
}

// Counts what is written, and has something happen right before the next time.
struct Disk final : ForwardingState {
  using ForwardingState::ForwardingState;
  std::function<void()> meanwhile;
  size_t rows_saved = 0;
  Result<void> save_incidents(std::span<const StoredIncident> rows) override {
    if (const auto happens = std::exchange(meanwhile, {})) happens();
    rows_saved += rows.size();
    return ForwardingState::save_incidents(rows);
  }
};

class Incidents : public ::testing::Test {
 protected:
  Incidents() { start(); }
  // As after a kill: what was not saved is not there.
  void start() {
    registry_.reset();
    state_.reset();
    state_ = open_sqlite_state_store(folder_.path() + "/state.sqlite").value();
    disk_ = std::make_unique<Disk>(*state_);
    registry_ = std::make_unique<IncidentRegistry>(*disk_, clock_, witness_, counters_);
  }
  void at(int64_t minute) {
    clock_.advance_to(kT0 + minute * kMinute);
    registry_->tick();
  }
  Incident only() {
    const std::vector<Incident> all = registry_->incidents();
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? Incident() : all.front();
  }

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_;
  ClockWitness witness_{clock_};
  Counters counters_{kServerCounters};
  std::unique_ptr<StateStore> state_;
  std::unique_ptr<Disk> disk_;
  std::unique_ptr<IncidentRegistry> registry_;
};

// Every incident as its place, its reach and its findings with their reach.
std::vector<std::string> groups(const IncidentRegistry& registry) {
  std::vector<std::string> list;
  for (const Incident& one : registry.incidents()) {
    std::string text =
        one.place.key() + format(" %lld-%lld:", static_cast<long long>((one.begin_unix_ns - kT0) / kMinute),
                                 static_cast<long long>((one.until_unix_ns - kT0) / kMinute));
    for (const Finding& finding : one.findings)
      text += format(" %s@%lld", finding.id.c_str(), static_cast<long long>((finding.begin_unix_ns - kT0) / kMinute));
    list.push_back(text);
  }
  std::sort(list.begin(), list.end());
  return list;
}

TEST_F(Incidents, WhatBelongsTogetherDoesNotDependOnTheOrderOfArrivalNorOnRepeats) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int64_t most) { return static_cast<int64_t>(random() % static_cast<uint64_t>(most)); };
    std::vector<Finding> findings;
    for (int i = 0; i < 30; ++i) {
      const int64_t from = below(600), to = from + below(40);
      const std::string id = "f" + std::to_string(i);
      findings.push_back(i % 5 == 0 ? event(id, from, 15, i % 2 == 0)
                                    : verdict(id, "gpu:GPU-" + std::to_string(below(3)), from, to));
      if (i % 7 == 0) findings.push_back(verdict(id, findings.back().place.component, from, to + below(60)));
    }
    std::vector<std::string> expected;
    for (int order = 0; order < 4; ++order) {
      const testing::TemporaryFolder folder;
      const std::unique_ptr<StateStore> state = open_sqlite_state_store(folder.path() + "/state.sqlite").value();
      testing::FakeClock clock(kT0 + 700 * kMinute);
      const ClockWitness witness(clock);
      auto registry = std::make_unique<IncidentRegistry>(*state, clock, witness, counters_);
      std::vector<Finding> sent = findings;
      if (order > 0) {
        sent.insert(sent.end(), findings.begin(), findings.end());
        std::shuffle(sent.begin(), sent.end(), random);
      }
      for (size_t i = 0; i < sent.size(); ++i) {
        registry->add(sent[i]);
        if (order != 3 || i % 10 != 0) continue;
        registry->tick();  // and a kill in between
        registry = std::make_unique<IncidentRegistry>(*state, clock, witness, counters_);
      }
      // What a kill took comes again from the log.
      for (const Finding& one : findings) registry->add(one);
      registry->tick();
      if (order == 0) expected = groups(*registry);
      ASSERT_EQ(groups(*registry), expected) << "seed " << seed << " order " << order;
    }
  }
}

TEST_F(Incidents, TwoThatALateFindingJoinsAreOneAndAnswerToBothIds) {
  registry_->add(verdict("a", "gpu:GPU-1", 0, 10));
  registry_->add(verdict("c", "gpu:GPU-1", 60, 70));
  at(71);
  ASSERT_EQ(registry_->incidents().size(), 2u);
  const std::string older = registry_->id_of_finding("a"), newer = registry_->id_of_finding("c");
  ASSERT_TRUE(registry_->acknowledge(newer, "ann", "looking").ok());
  registry_->add(verdict("b", "gpu:GPU-1", 25, 40));
  at(72);
  for (int restart = 0; restart < 2; ++restart) {
    EXPECT_EQ(only().id, older);
    EXPECT_EQ(only().findings.size(), 3u);
    EXPECT_EQ(only().state, State::kAcknowledged);
    ASSERT_TRUE(registry_->find(newer).ok());
    EXPECT_EQ(registry_->find(newer)->id, older);
    start();
  }
}

TEST_F(Incidents, NothingIsShownBeforeItIsOnDiskAndARestartShowsTheSame) {
  registry_->add(lasting(verdict("v", "gpu:GPU-1", 0, 0)));
  EXPECT_TRUE(registry_->incidents().empty());
  at(1);
  const Incident before = only();
  ASSERT_TRUE(registry_->acknowledge(before.id, "token 1 (ann)", "on it").ok());
  const Incident acknowledged = only();
  start();
  EXPECT_EQ(only(), acknowledged);
  registry_->add(lasting(verdict("v", "gpu:GPU-1", 0, 0)));  // the log, read back
  at(2);
  EXPECT_EQ(only(), acknowledged);
}

TEST_F(Incidents, AnotherServerThatTakesAJobOverHasItsIncidentAsPeopleLeftIt) {
  registry_->add(lasting(verdict("v-1", "gpu:GPU-1", 0, 1)));
  registry_->add(lasting(verdict("v-2", "gpu:GPU-2", 0, 1, "another")));
  at(1);
  const std::string id = registry_->id_of_finding("v-1");
  ASSERT_TRUE(registry_->acknowledge(id, "ada", "on it").ok());
  const std::vector<StoredIncident> rows = *state_->incidents();
  const auto is_ours = [](const Incident& one) { return one.findings.front().job_id == "llm"; };

  const std::unique_ptr<StateStore> state = open_sqlite_state_store(folder_.path() + "/second.sqlite").value();
  IncidentRegistry second(*state, clock_, witness_, counters_);
  second.take_over(rows, is_ours);
  second.add(lasting(verdict("v-1", "gpu:GPU-1", 0, 1)));  // found again, as the bus is read back
  second.tick();
  ASSERT_EQ(second.incidents().size(), 1u);
  EXPECT_EQ(second.incidents()[0].id, id);
  EXPECT_EQ(second.incidents()[0].state, State::kAcknowledged);
  EXPECT_EQ(state->incidents()->size(), 1u) << "it is its own now";
  second.take_over(rows, is_ours);
  EXPECT_EQ(second.incidents().size(), 1u);

  registry_->hand_over(is_ours);
  registry_->tick();
  ASSERT_EQ(registry_->incidents().size(), 1u);
  EXPECT_EQ(registry_->incidents()[0].findings.front().job_id, "another");
  EXPECT_EQ(state_->incidents()->size(), 1u);
  EXPECT_EQ(registry_->id_of_finding("v-1"), "");
}

TEST_F(Incidents, AreOpenAcknowledgedResolvedByQuietAndOpenAgainWhenSeenAgain) {
  registry_->add(lasting(verdict("v", "gpu:GPU-1", 0, 1)));
  at(1);
  EXPECT_EQ(only().state, State::kOpen);
  ASSERT_TRUE(registry_->acknowledge(only().id, "ann", "").ok());
  registry_->add(verdict("v", "gpu:GPU-1", 0, 5));
  at(14);
  EXPECT_EQ(only().state, State::kAcknowledged) << "for ten minutes";
  at(15);
  EXPECT_EQ(only().state, State::kResolved);
  EXPECT_EQ(only().entries.back().who, "");
  registry_->add(lasting(verdict("v", "gpu:GPU-1", 0, 20)));
  at(21);
  EXPECT_EQ(only().state, State::kOpen);
  EXPECT_EQ(only().entries.back().what, "reopened");
  EXPECT_EQ(counters_.value("lockstep_incidents_reopened_total"), 1);
}

TEST_F(Incidents, WhatAPersonResolvedStaysResolvedWhileTheSameGoesOnAndOpensForNews) {
  registry_->add(lasting(verdict("v", "gpu:GPU-1", 0, 1)));
  at(1);
  ASSERT_TRUE(registry_->resolve(only().id, "ann", "replaced the fan").ok());
  registry_->add(lasting(verdict("v", "gpu:GPU-1", 0, 2)));
  at(2);
  EXPECT_EQ(only().state, State::kResolved);
  registry_->add(event("late", 0, 15));  // of before
  at(3);
  EXPECT_EQ(only().state, State::kResolved);
  registry_->add(event("xid", 4, 15));
  at(4);
  EXPECT_EQ(only().state, State::kOpen);
}

TEST_F(Incidents, WhatAPersonOpenedAgainIsTheirsToResolve) {
  registry_->add(verdict("v", "gpu:GPU-1", 0, 1));
  at(20);
  EXPECT_EQ(only().state, State::kResolved);
  ASSERT_TRUE(registry_->reopen(only().id, "ann", "it is not").ok());
  at(300);
  EXPECT_EQ(only().state, State::kOpen);
  EXPECT_EQ(registry_->resolve("i-none", "ann", "").code(), ErrorCode::kNotFound);
}

TEST_F(Incidents, WhatAPersonOpenedAgainStaysTheirsWhateverElseIsSaidAndWhereverItGoes) {
  registry_->add(verdict("a", "gpu:GPU-1", 0, 10));
  registry_->add(verdict("c", "gpu:GPU-1", 60, 70));
  at(90);
  const std::string newer = registry_->id_of_finding("c");
  ASSERT_TRUE(registry_->reopen(newer, "ann", "").ok());
  ASSERT_TRUE(registry_->acknowledge(newer, "ann", "").ok());
  for (size_t i = 0; i < kEntriesMax; ++i) ASSERT_TRUE(registry_->say(newer, "ann", "right").ok());
  registry_->add(verdict("b", "gpu:GPU-1", 25, 40));
  at(91);
  start();
  at(300);
  EXPECT_EQ(only().state, State::kAcknowledged);
  ASSERT_TRUE(registry_->resolve(newer, "ann", "").ok());
  EXPECT_FALSE(only().held_open);
}

TEST_F(Incidents, WhatAPersonDoesWhileItIsSavedIsNotOverwritten) {
  registry_->add(lasting(verdict("v", "gpu:GPU-1", 0, 1)));
  at(1);
  const std::string id = only().id;
  registry_->add(event("xid", 1, 15));
  std::future<bool> person;
  disk_->meanwhile = [&] {
    person = std::async(std::launch::async, [&] { return registry_->acknowledge(id, "ann", "").ok(); });
    // It has to wait, so there is nothing to wait for; who does not wait has time to.
    person.wait_for(std::chrono::milliseconds(50));
  };
  registry_->tick();
  EXPECT_TRUE(person.get());
  start();
  EXPECT_EQ(only().state, State::kAcknowledged);
  EXPECT_EQ(only().findings.size(), 2u);
}

TEST_F(Incidents, WhatIsFoundWhileAPersonsWordIsSavedIsKeptWithIt) {
  registry_->add(verdict("a", "gpu:GPU-1", 0, 10));
  registry_->add(lasting(verdict("c", "gpu:GPU-1", 60, 70)));
  at(71);
  const std::string older = registry_->id_of_finding("a"), newer = registry_->id_of_finding("c");
  disk_->meanwhile = [&] {
    registry_->add(event("xid", 71, 15));
    registry_->add(verdict("b", "gpu:GPU-1", 25, 40));  // the two are one
  };
  const Result<Incident> changed = registry_->acknowledge(newer, "ann", "on it");
  ASSERT_TRUE(changed.ok());
  EXPECT_EQ(changed->id, older);
  at(72);
  for (int restart = 0; restart < 2; ++restart) {
    EXPECT_EQ(only().id, older);
    EXPECT_EQ(only().findings.size(), 4u);
    EXPECT_EQ(only().state, State::kAcknowledged);
    start();
  }
}

TEST_F(Incidents, OneThatTurnsOutToBeAnotherWhileItIsSavedFirstLeavesNothingOnDisk) {
  registry_->add(verdict("a", "gpu:GPU-1", 0, 10));
  registry_->add(verdict("c", "gpu:GPU-1", 60, 70));
  disk_->meanwhile = [&] { registry_->add(verdict("b", "gpu:GPU-1", 25, 40)); };
  at(71);
  at(72);
  EXPECT_EQ(only().findings.size(), 3u);
  EXPECT_EQ(state_->incidents()->size(), 1u);
}

TEST_F(Incidents, TwoThatAreFullAndTurnOutToBeOneAnswerToBothIdsAfterARestart) {
  for (size_t i = 0; i <= kVerdictsMax; ++i) {
    registry_->add(verdict("a" + std::to_string(i), "gpu:GPU-1", 0, 10));
    registry_->add(verdict("c" + std::to_string(i), "gpu:GPU-1", 60, 70));
  }
  at(100);
  const std::string older = registry_->id_of_finding("a0"), newer = registry_->id_of_finding("c0");
  registry_->add(verdict("b", "gpu:GPU-1", 25, 40));
  at(101);
  start();
  EXPECT_EQ(only().id, older);
  ASSERT_TRUE(registry_->find(newer).ok());
  EXPECT_EQ(registry_->find(newer)->id, older);
}

TEST_F(Incidents, WhatThereIsNoRoomForOpensWhatAPersonResolvedOnlyOnceItIsNew) {
  const auto all_last = [&](int64_t until_min) {
    for (size_t i = 0; i <= kVerdictsMax; ++i)
      registry_->add(lasting(verdict("v" + std::to_string(i), "gpu:GPU-1", 0, until_min)));
    at(until_min);
  };
  all_last(1);
  ASSERT_TRUE(only().has_more);
  ASSERT_TRUE(registry_->resolve(only().id, "ann", "replaced").ok());
  all_last(2);
  EXPECT_EQ(only().state, State::kResolved);
  for (int again = 0; again < 2; ++again) {
    registry_->add(lasting(verdict("new", "gpu:GPU-1", 3, 4)));
    at(4);
    EXPECT_EQ(only().state, again == 0 ? State::kOpen : State::kResolved);
    ASSERT_TRUE(registry_->resolve(only().id, "ann", "").ok());
  }
}

TEST_F(Incidents, AVerdictThatLastsAndMovesToWhatIsResolvedOpensIt) {
  registry_->add(verdict("a", "gpu:GPU-1", 0, 5));
  at(16);
  const std::string id = registry_->id_of_finding("a");
  ASSERT_EQ(registry_->find(id)->state, State::kResolved);
  for (const char* name : {"v", "w"}) registry_->add(lasting(verdict(name, "host:node-1", 15, 17)));
  registry_->add(lasting(verdict("v", "gpu:GPU-1", 15, 18)));
  at(18);
  EXPECT_EQ(registry_->id_of_finding("v"), id);
  EXPECT_EQ(registry_->find(id)->state, State::kOpen);
}

TEST_F(Incidents, AreWrittenWhenTheyChangeAndOnceAMinuteWhileTheirNumbersGrow) {
  registry_->add(lasting(verdict("v", "gpu:GPU-1", 0, 1)));
  at(1);
  EXPECT_EQ(disk_->rows_saved, 1u);
  at(5);
  EXPECT_EQ(disk_->rows_saved, 1u) << "nothing is new";
  for (int look = 0; look < 3; ++look) {
    clock_.advance(IncidentRegistry::kSecondNs);
    Finding now = lasting(verdict("v", "gpu:GPU-1", 0, 1));
    now.seen_unix_ns = clock_.unix_ns();
    registry_->add(now);
    registry_->tick();
  }
  EXPECT_EQ(disk_->rows_saved, 2u);
  at(7);
  EXPECT_EQ(disk_->rows_saved, 3u) << "what has grown since";
}

TEST_F(Incidents, AClockThatIsSetAheadDeletesNothing) {
  registry_->add(verdict("v", "gpu:GPU-1", 0, 1));
  at(20);
  registry_->add(event("up", 20, 0, false));
  clock_.set_ahead(100 * IncidentRegistry::kDayNs);
  registry_->tick();
  clock_.set_ahead(0);
  registry_->tick();
  EXPECT_EQ(only().findings.size(), 2u);
  EXPECT_EQ(state_->incidents()->size(), 1u);
}

TEST_F(Incidents, AnEventHoldsForAWhileOrUntilAnotherSaysThatItIsOver) {
  registry_->add(event("up", 6, 0, false));  // heard of first
  registry_->add(event("down", 5, 60));
  at(6);
  EXPECT_FALSE(is_active(only(), clock_.unix_ns()));
  registry_->add(event("down again", 7, 60));
  at(66);
  EXPECT_TRUE(is_active(only(), clock_.unix_ns()));
  at(68);
  EXPECT_FALSE(is_active(only(), clock_.unix_ns()));
  EXPECT_EQ(only().findings.size(), 3u);
}

TEST_F(Incidents, AnEndThatOpensNothingIsNoIncidentAndIsForgotten) {
  registry_->add(event("up", 0, 0, false));
  at(1);
  EXPECT_TRUE(registry_->incidents().empty());
  at(40);
  EXPECT_EQ(registry_->id_of_finding("up"), "");
  EXPECT_TRUE(state_->incidents()->empty());
}

TEST_F(Incidents, AVerdictWhosePlaceIsKnownBetterTakesItsIncidentAlong) {
  registry_->add(lasting(verdict("v", "host:node-1", 0, 1)));
  at(1);
  const std::string id = only().id;
  ASSERT_TRUE(registry_->acknowledge(id, "ann", "").ok());
  registry_->add(lasting(verdict("v", "gpu:GPU-1", 0, 2)));
  at(2);
  EXPECT_EQ(only().id, id);
  EXPECT_EQ(only().place.component, "gpu:GPU-1");
  EXPECT_EQ(only().state, State::kAcknowledged);
  registry_->add(event("xid", 3, 15));
  at(3);
  EXPECT_EQ(only().findings.size(), 2u);
  registry_->add(lasting(verdict("v", "host:node-1", 0, 1)));  // an older word
  EXPECT_EQ(only().findings.size(), 2u);
  registry_->add(lasting(verdict("v", "nic:node-1:mlx5_0", 0, 4)));
  at(4);
  EXPECT_EQ(registry_->incidents().size(), 2u) << "the event stays where it is";
}

TEST_F(Incidents, VerdictsThatNobodyHoldsAnyMoreEndedWhenTheyWereLastSeen) {
  registry_->add(lasting(verdict("v", "gpu:GPU-1", 0, 3)));
  registry_->sync_verdicts({"v"});
  EXPECT_EQ(registry_->is_lasting("v"), true);
  registry_->sync_verdicts({});
  EXPECT_EQ(registry_->is_lasting("v"), false);
  at(4);
  EXPECT_EQ(only().until_unix_ns, kT0 + 3 * kMinute);
}

TEST_F(Incidents, CostsOfJobsAddUpAndOverlappingVerdictsOfOneJobCountOnce) {
  Finding dear = verdict("b", "gpu:GPU-1", 5, 15), on_others = verdict("c", "gpu:GPU-1", 20, 30);
  dear.lost_gpu_seconds = 300;
  dear.gpus = {{"NVIDIA H100", 8}};
  on_others.gpus = {{"NVIDIA A100", 8}};
  for (const Finding& one :
       {verdict("a", "gpu:GPU-1", 0, 10), dear, on_others, verdict("d", "gpu:GPU-1", 0, 10, "other")})
    registry_->add(one);
  at(31);
  const Incident incident = only();
  const std::vector<JobCost> costs = costs_of(incident, clock_.unix_ns());
  ASSERT_EQ(costs.size(), 2u);
  EXPECT_EQ(costs[0].job_id, "llm");
  EXPECT_DOUBLE_EQ(costs[0].lost_gpu_seconds, 400);
  EXPECT_EQ(costs[0].verdicts.front()->id, "b");
  EXPECT_DOUBLE_EQ(costs[1].lost_gpu_seconds, 100);
  const GpuCost lost = lost_of(incident, clock_.unix_ns(), *GpuPrices::parse("H100=3600,A100=1800"));
  EXPECT_DOUBLE_EQ(lost.money, 300 + 50) << "each by the GPUs that its job was on then";
  EXPECT_DOUBLE_EQ(lost.gpu_seconds - lost.priced_gpu_seconds, 100);
}

TEST_F(Incidents, HardwareThatIsGuiltyAgainIsCountedOverThirtyDaysAndAJobIsNot) {
  const int64_t day = 24 * 60;
  for (int64_t i = 0; i < 5; ++i) {
    registry_->add(verdict("g" + std::to_string(i), "gpu:GPU-1", i * 10 * day, i * 10 * day + 5));
    registry_->add(verdict("j" + std::to_string(i), "job:llm", i * 10 * day, i * 10 * day + 5));
  }
  at(40 * day + 10);
  const std::vector<IncidentRegistry::Offender> offenders = registry_->offenders();
  ASSERT_EQ(offenders.size(), 1u);
  EXPECT_EQ(offenders[0].component, "gpu:GPU-1");
  EXPECT_EQ(offenders[0].ids.size(), 3u) << "of days 20, 30 and 40: the others are over for longer";
  EXPECT_EQ(offenders[0].ids.front(), registry_->id_of_finding("g4"));
}

TEST_F(Incidents, AFloodIsBoundedAndWhatIsOpenStays) {
  registry_->add(lasting(verdict("mine", "gpu:mine", 9'999, 10'000)));
  for (size_t i = 0; i < 200; ++i) registry_->add(event("e" + std::to_string(i), 0, 15));
  for (size_t i = 0; i < IncidentRegistry::kIncidentsMax + 50; ++i)
    registry_->add(verdict("v" + std::to_string(i), "gpu:" + std::to_string(i), static_cast<int64_t>(i),
                           static_cast<int64_t>(i) + 1));
  at(10'000);
  EXPECT_EQ(registry_->incidents().size(), IncidentRegistry::kIncidentsMax);
  EXPECT_EQ(counters_.value("lockstep_incidents_dropped_total"), 52);
  EXPECT_NE(registry_->id_of_finding("mine"), "");
  EXPECT_EQ(state_->incidents()->size(), IncidentRegistry::kIncidentsMax);
}

TEST_F(Incidents, AnIncidentWithTooManyFindingsSaysSoAndStaysTheSameWhenTheyComeAgain) {
  for (int again = 0; again < 2; ++again) {
    for (size_t i = 0; i < 100; ++i) registry_->add(event("e" + std::to_string(i), static_cast<int64_t>(i), 15));
    at(100);
    EXPECT_EQ(only().findings.size(), kEventsMax);
    EXPECT_TRUE(only().has_more);
    EXPECT_EQ(only().until_unix_ns, kT0 + 99 * kMinute);
  }
}

TEST_F(Incidents, WhatIsResolvedForNinetyDaysGoes) {
  registry_->add(verdict("v", "gpu:GPU-1", 0, 1));
  at(20);
  at(20 + 91 * 24 * 60);
  EXPECT_TRUE(registry_->incidents().empty());
  EXPECT_TRUE(state_->incidents()->empty());
}

TEST_F(Incidents, WhatCannotBeReadIsLeftOutAndTheRestIsThere) {
  registry_->add(verdict("v", "gpu:GPU-1", 0, 1));
  at(2);
  const StoredIncident rows[] = {{"i-bad", "{"}, {"i-other", "{\"id\":\"i-x\"}"}};
  ASSERT_TRUE(state_->save_incidents(rows).ok());
  start();
  EXPECT_EQ(only().findings.size(), 1u);
}

TEST(IncidentJson, ReadsItsOwnWriting) {
  Incident incident{.id = "i-1",
                    .place = {"leaf:leaf-1", "switch", "", ""},
                    .state = State::kAcknowledged,
                    .begin_unix_ns = 1,
                    .until_unix_ns = 2,
                    .held_open = true,
                    .findings = {verdict("a \"b\"\n", "leaf:leaf-1", 0, 1)},
                    .has_more = true,
                    .entries = {{1, "acknowledged", "ann", "x"}},
                    .also = {"i-2"},
                    .radius = {.is_known = true, .gpus = 8, .hosts = 1, .jobs = {{"llm", 4, 8}}, .jobs_total = 1}};
  const Result<Incident> read = incident_from_json(to_json(incident));
  ASSERT_TRUE(read.ok()) << read.error();
  EXPECT_EQ(*read, incident);
}

TEST(IncidentJson, OfBeforeItWasWrittenDownTheLastEntrySaysWhetherItIsHeldOpen) {
  for (const char* who : {"ann", ""}) {
    const Incident incident{.id = "i-1",
                            .place = {"leaf:leaf-1", "switch", "", ""},
                            .entries = {{1, "resolved", "", ""}, {2, "reopened", who, ""}}};
    std::string json = to_json(incident);
    const std::string field = "\"held_open\":false,";
    json.erase(json.find(field), field.size());
    EXPECT_EQ(incident_from_json(json)->held_open, who[0] != 0);
  }
}

TEST(IncidentNote, IsATextOrNothingAndEverythingElseIsOneLine) {
  EXPECT_EQ(read_note("").value(), "");
  EXPECT_EQ(read_note("{}").value(), "");
  EXPECT_EQ(read_note("{\"note\":\"a fan\"}").value(), "a fan");
  for (const std::string& body : {std::string("["), std::string("{\"note\":1}"), std::string("{\"who\":\"me\"}"),
                                  "{\"note\":\"" + std::string(600, 'x') + "\"}", std::string(10'000, ' ') + "x"}) {
    const Result<std::string> note = read_note(body);
    ASSERT_FALSE(note.ok());
    EXPECT_EQ(note.error().find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep::incident
