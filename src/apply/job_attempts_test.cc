#include "apply/job_attempts.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "apply/applier.h"
#include "base/clock.h"
#include "base/text.h"
#include "model/attempt.h"
#include "store/memory_span_store.h"
#include "store/memory_step_store.h"
#include "store/steps/columnar_step_store.h"
#include "store/store_counters.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using Decision = JobAttempts::Decision;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kStart = 1'800'000'000 * kSecond;

Identity who(Rank rank, int64_t attempt, int32_t world_size = 8) {
  return {.job_id = "job",
          .attempt = attempt,
          .rank = rank,
          .world_size = world_size,
          .local_rank = rank.value(),
          .host = "node-0",
          .gpu_uuid = ""};
}

struct Votes {
  std::optional<JobAttempts::Known> known;
  JobAttempts attempts{[this](const std::string&) { return known; }};
  Decision say(Rank rank, int64_t attempt, int64_t at_s, bool is_end = false) {
    return attempts.decide(who(rank, attempt), kStart + at_s * kSecond, kStart + at_s * kSecond, is_end);
  }
};

TEST(JobAttempts, OneRecordOfAnotherAttemptMovesNobodyEvenWhereTheJobHasOneRank) {
  for (int64_t other : {int64_t{7}, kAttemptMost}) {
    Votes votes;
    EXPECT_EQ(votes.say(0_rank, 0, 0), Decision::kApply);
    EXPECT_EQ(votes.say(0_rank, other, 1), Decision::kHold);
    EXPECT_EQ(votes.say(0_rank, 0, 2), Decision::kApply);
    EXPECT_EQ(votes.say(0_rank, other, 3), Decision::kHold);
    EXPECT_EQ(votes.say(0_rank, 0, 4), Decision::kApply);
  }
}

TEST(JobAttempts, ARestartIsBelievedWhenMostRanksSpeakOfIt) {
  Votes votes;
  for (Rank rank : all_ranks(4)) EXPECT_EQ(votes.say(rank, 0, 0), Decision::kApply);
  for (Rank rank : {0_rank, 0_rank, 1_rank, 1_rank, 2_rank}) EXPECT_EQ(votes.say(rank, 1, 1), Decision::kHold);
  EXPECT_EQ(votes.say(2_rank, 1, 1), Decision::kSwitch);
  EXPECT_EQ(votes.say(3_rank, 1, 1), Decision::kApply);
  EXPECT_EQ(votes.say(3_rank, 0, 0), Decision::kOld);
}

TEST(JobAttempts, RanksThatHaveEndedHaveNoSayInARestart) {
  Votes votes;
  for (Rank rank : all_ranks(8)) votes.say(rank, 0, 0);
  for (Rank rank : all_ranks(8)) EXPECT_EQ(votes.say(rank, 0, 1, true), Decision::kApply);
  EXPECT_EQ(votes.say(0_rank, 1, 2), Decision::kHold);
  EXPECT_EQ(votes.say(0_rank, 1, 2), Decision::kSwitch);
}

TEST(JobAttempts, AJobThatIsRestartedSmallerWinsWhenTheOthersAreSilent) {
  Votes votes;
  for (Rank rank : all_ranks(8)) votes.say(rank, 0, 0);
  for (int64_t second = 1; second <= 60; ++second) {
    for (Rank rank : {0_rank, 1_rank}) EXPECT_EQ(votes.say(rank, 1, second), Decision::kHold) << second;
  }
  EXPECT_EQ(votes.say(0_rank, 1, 62), Decision::kSwitch);
}

TEST(JobAttempts, WhoeverTakesAJobOverLosesItWhenItsRanksGoOn) {
  Votes votes;
  votes.say(0_rank, 0, 0);
  EXPECT_EQ(votes.say(0_rank, kAttemptMost, 1), Decision::kHold);
  EXPECT_EQ(votes.say(0_rank, kAttemptMost, 1), Decision::kSwitch);  // twice in a row, of a job of one rank
  EXPECT_EQ(votes.say(0_rank, 0, 2), Decision::kHold);
  EXPECT_EQ(votes.say(0_rank, 0, 3), Decision::kSwitch);
  EXPECT_EQ(votes.say(0_rank, 0, 4), Decision::kApply);
}

TEST(JobAttempts, WhatAStoreRemembersIsOnlyWhereItBegins) {
  Votes votes;
  votes.known = {{.attempt = kAttemptMost, .last_seen_unix_ns = kStart}};
  EXPECT_EQ(votes.say(3_rank, 2, -1), Decision::kOld);  // late, from a spool
  EXPECT_EQ(votes.say(3_rank, 2, 1), Decision::kHold);
  EXPECT_EQ(votes.say(3_rank, 2, 2), Decision::kSwitch);
}

TEST(JobAttempts, WhatASpoolDeliversLateOfAnOldAttemptChangesNothing) {
  Votes votes;
  for (Rank rank : all_ranks(8)) votes.say(rank, 0, 0);
  for (Rank rank : all_ranks(8)) votes.say(rank, 0, 1, true);
  for (int i = 0; i < 2; ++i) votes.say(0_rank, 1, 100);
  for (Rank rank = 1_rank; rank < 8_rank; ++rank) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(votes.attempts.decide(who(rank, 0), kStart + 50 * kSecond, kStart + 200 * kSecond, false),
                Decision::kOld);
    }
  }
  EXPECT_EQ(votes.say(0_rank, 1, 201), Decision::kApply);
}

TEST(JobAttempts, WhatIsHeldIsBoundedAndLetGoWithTime) {
  Votes votes;
  votes.say(0_rank, 0, 0);
  LogRecord large;
  large.body = std::string(1 << 20, 'x');
  auto resource = std::make_shared<const Attributes>();
  for (int i = 0; i < 100; ++i) votes.attempts.hold(who(1_rank, 5), resource, large, kStart);
  EXPECT_LE(votes.attempts.held(), JobAttempts::kHeldBytesPerJobMax >> 20);
  EXPECT_GT(votes.attempts.held(), 8u);
  EXPECT_EQ(votes.attempts.held() + votes.attempts.take_let_go(), 100u);
  votes.say(0_rank, 0, 61);
  EXPECT_EQ(votes.attempts.held(), 0u);
}

// The same through the applier, into a store.
class AttemptsApplied : public ::testing::Test {
 protected:
  AttemptsApplied() { applier_.subscribe(heard_); }
  struct Heard : StoreSubscriber {
    int64_t attempt = -1;
    std::vector<StepNumber> steps;
    void on_attempt_back(const std::string&, int64_t back) override { attempt = back; }
    void on_step(const Identity& identity, const StepSummary& step, int64_t) override {
      attempt = std::max(attempt, identity.attempt);
      if (identity.attempt == attempt) steps.push_back(step.step);
    }
  };
  void step(Rank rank, int64_t attempt, StepNumber number, int64_t at_s) {
    StepSummary summary;
    summary.step = number;
    summary.start_unix_ns = kStart + at_s * kSecond - 1000;
    summary.duration_ns = 1000;
    Batch batch{.signal = Signal::kLogs,
                .groups = {{.resource = to_resource(who(rank, attempt)), .logs = {to_record(summary)}}}};
    applier_.apply(Signal::kLogs, std::move(batch), kStart + at_s * kSecond);
  }
  int64_t refused(const char* reason) {
    return counters_.value("lockstep_apply_records_refused_total", format("signal=\"logs\",reason=\"%s\"", reason));
  }
  Counters counters_{kStoreCounters};
  MemoryStepStore steps_{{}, counters_};
  MemorySpanStore spans_{{}, counters_};
  AgentRegistry agents_;
  Applier applier_{steps_, spans_, agents_, counters_};
  Heard heard_;
};

TEST_F(AttemptsApplied, AnEventOfAnAttemptBeyondAllSilencesNoJob) {
  for (Rank rank : all_ranks(8)) step(rank, 0, 0_step, 0);
  step(3_rank, INT64_MAX, 0_step, 1);
  step(3_rank, -1, 0_step, 1);
  step(3_rank, kAttemptMost, 0_step, 1);
  for (Rank rank : all_ranks(8)) step(rank, 0, 1_step, 2);
  EXPECT_EQ(steps_.job("job")->attempt, 0);
  EXPECT_EQ(steps_.steps("job", 0_step, 1_step).size(), 16u);
  EXPECT_EQ(heard_.steps.size(), 16u);
  EXPECT_EQ(refused("no_identity"), 2);
  EXPECT_EQ(counters_.value("lockstep_apply_records_held"), 1);
  for (Rank rank : all_ranks(8)) step(rank, 0, 2_step, 70);
  EXPECT_EQ(refused("attempt_not_confirmed"), 1);
  EXPECT_EQ(counters_.value("lockstep_apply_records_held"), 0);
  EXPECT_EQ(
      counters_.sum("lockstep_apply_records_received_total"),
      counters_.sum("lockstep_apply_records_passed_total") + counters_.sum("lockstep_apply_records_refused_total"));
}

TEST_F(AttemptsApplied, ARestartLosesNoneOfItsFirstRecords) {
  for (Rank rank : all_ranks(8)) step(rank, 0, 0_step, 0);
  for (StepNumber number = 0_step; number < 3_step; ++number) {
    for (Rank rank : all_ranks(8)) step(rank, 1, number, 10 + number.value());
  }
  EXPECT_EQ(steps_.job("job")->attempt, 1);
  EXPECT_EQ(steps_.steps("job", 0_step, 2_step).size(), 24u);
  EXPECT_EQ(heard_.attempt, 1);
}

TEST_F(AttemptsApplied, AJobThatWasTakenOverComesBackByItself) {
  for (Rank rank : all_ranks(2)) step(rank, 0, 0_step, 0);
  for (Rank rank : all_ranks(2)) {
    for (int i = 0; i < 2; ++i) step(rank, kAttemptMost, 0_step, 1);
  }
  EXPECT_EQ(steps_.job("job")->attempt, kAttemptMost);
  for (StepNumber number = 1_step; number < 4_step; ++number) {
    for (Rank rank : all_ranks(2)) step(rank, 0, number, 1 + number.value());
  }
  EXPECT_EQ(steps_.job("job")->attempt, 0);
  EXPECT_EQ(steps_.steps("job", 1_step, 3_step).size(), 6u) << "what was held while it came back is there";
  EXPECT_EQ(heard_.attempt, 0);
}

TEST_F(AttemptsApplied, OneWildStepNumberDoesNotMoveWhereTheJobIs) {
  for (Rank rank : all_ranks(8)) step(rank, 0, 100_step, 0);
  step(3_rank, 0, 900'000'000'000'000_step, 1);
  EXPECT_EQ(steps_.job("job")->last_step, 100_step);
  step(3_rank, 0, 101_step, 2);
  EXPECT_EQ(steps_.job("job")->last_step, 101_step);
  EXPECT_EQ(steps_.job("job")->ranks[3].last_step, 101_step);
}

TEST_F(AttemptsApplied, AJobWhoseFirstStepNumberWasWildIsWhereItIsSoon) {
  step(3_rank, 0, 900'000'000'000'000_step, 0);
  for (StepNumber number = 0_step; number < 9_step; ++number) {
    for (Rank rank : all_ranks(8)) step(rank, 0, number, 1 + number.value());
  }
  EXPECT_EQ(steps_.job("job")->last_step, 8_step);
}

TEST_F(AttemptsApplied, OneWorldSizeOfMillionsIsThatRanksOwn) {
  for (Rank rank : all_ranks(8)) step(rank, 0, 0_step, 0);
  StepSummary summary;
  summary.duration_ns = 1;
  Identity liar = who(2_rank, 0, 10'000'000);
  applier_.apply(
      Signal::kLogs,
      Batch{.signal = Signal::kLogs, .groups = {{.resource = to_resource(liar), .logs = {to_record(summary)}}}},
      kStart + kSecond);
  EXPECT_EQ(steps_.job("job")->world_size, 8);
}

TEST_F(AttemptsApplied, AStatusFromAClockThatIsAheadDoesNotKeepLaterOnesOut) {
  auto status = [&](int64_t claimed_s, int64_t at_s, StepNumber number) {
    RankStatus one;
    one.time_unix_ns = kStart + claimed_s * kSecond;
    one.step = number;
    applier_.apply(
        Signal::kLogs,
        Batch{.signal = Signal::kLogs, .groups = {{.resource = to_resource(who(0_rank, 0)), .logs = {to_record(one)}}}},
        kStart + at_s * kSecond);
  };
  status(600, 0, 5_step);
  status(1, 2, 6_step);
  EXPECT_EQ(steps_.job("job")->ranks[0].status->step, 6_step);
}

// A data folder as it was left by a server that believed everything.
TEST(AttemptsOnDisk, AJobThatIsSilencedOnDiskIsHeardAgainAfterARestart) {
  for (int64_t poison : {INT64_MAX, kAttemptMost}) {
    const testing::TemporaryFolder folder;
    SystemClock clock;
    Counters counters{kStoreCounters};
    ColumnarStepStoreOptions options;
    options.folder = folder.path();
    options.days = 100'000;
    options.background = false;
    StepSummary summary;
    summary.duration_ns = 1;
    {
      auto opened = ColumnarStepStore::open(options, clock, counters);
      ASSERT_TRUE(opened.ok()) << opened.error();
      std::unique_ptr<ColumnarStepStore> store = std::move(*opened);
      for (summary.step = 0_step; summary.step < 3_step; ++summary.step)
        store->append_step(who(0_rank, 0), summary, kStart);
      ASSERT_TRUE(store->seal().ok());
      summary.step = 900'000'000'000'000_step;
      store->append_step(who(0_rank, poison), summary, kStart + kSecond);
    }
    auto opened = ColumnarStepStore::open(options, clock, counters);
    ASSERT_TRUE(opened.ok()) << opened.error();
    std::unique_ptr<ColumnarStepStore> store = std::move(*opened);
    MemorySpanStore spans({}, counters);
    AgentRegistry agents;
    Applier applier(*store, spans, agents, counters);
    for (summary.step = 3_step; summary.step < 6_step; ++summary.step) {
      summary.start_unix_ns = kStart + summary.step.value() * kSecond;
      applier.apply(Signal::kLogs,
                    Batch{.signal = Signal::kLogs,
                          .groups = {{.resource = to_resource(who(0_rank, 0)), .logs = {to_record(summary)}}}},
                    kStart + summary.step.value() * kSecond + 1);
    }
    EXPECT_EQ(store->job("job")->attempt, 0) << poison;
    EXPECT_EQ(store->job("job")->last_step, 5_step) << poison;
    EXPECT_EQ(store->steps("job", 0_step, 5_step).size(), 6u)
        << poison << ": those from before it was silenced are seen again";
    store.reset();
  }
}

struct Throws : StoreSubscriber {
  void on_step(const Identity&, const StepSummary&, int64_t) override { throw std::bad_alloc(); }
};

TEST_F(AttemptsApplied, ASubscriberThatThrowsMissesTheRecordAndNobodyElseDoes) {
  Throws throws;
  Heard after;
  applier_.subscribe(throws);
  applier_.subscribe(after);
  step(0_rank, 0, 1_step, 0);
  EXPECT_EQ(steps_.steps("job", 1_step, 1_step).size(), 1u);
  EXPECT_EQ(after.steps.size(), 1u);
  EXPECT_EQ(counters_.sum("lockstep_apply_subscriber_failures_total"), 1);
}

}  // namespace
}  // namespace lockstep
