#include "diagnosis/verdicts/verdict_tracker.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Findings = VerdictTracker::Findings;
constexpr int64_t kNow = 1'800'000'000'000'000'000;

// A job of one rank whose newest complete step the test sets.
class Job {
 public:
  explicit Job(std::string id = "job") : id_(std::move(id)) {}
  VerdictTracker::JobState through(StepNumber step) {
    Identity identity;
    identity.job_id = id_;
    identity.rank = 0_rank;
    identity.world_size = 1;
    for (; next_ <= step; ++next_) {
      StepSummary summary;
      summary.step = next_;
      summary.duration_ns = 100'000'000;
      window_.add_step(identity, summary);
    }
    return {.id = id_, .attempt = 0, .window = window_, .over = false, .quiet = false};
  }

 private:
  const std::string id_;
  JobWindow window_;
  StepNumber next_;
};

Finding slow_rank(StepNumber through_step, bool sure) {
  Finding finding;
  finding.ranks = {0_rank};
  finding.layer = Layer::kGpu;
  finding.since_step = 3_step;
  finding.through_step = through_step;
  finding.sure = sure;
  return finding;
}

TEST(VerdictTracker, ASuspicionIsConfirmedUnderItsIdOnceTheFindingIsSure) {
  VerdictTracker tracker;
  Job job;
  tracker.follow(job.through(10_step), Findings::kSteps, {slow_rank(10_step, false)}, kNow);
  ASSERT_EQ(tracker.of("job").size(), 1u);
  EXPECT_EQ(tracker.of("job")[0].verdict.state, VerdictState::kSuspected);
  const std::string id = tracker.of("job")[0].verdict.id;
  tracker.follow(job.through(11_step), Findings::kSteps, {slow_rank(11_step, true)}, kNow + 1);
  ASSERT_EQ(tracker.of("job").size(), 1u);
  EXPECT_EQ(tracker.of("job")[0].verdict.state, VerdictState::kConfirmed);
  EXPECT_EQ(tracker.of("job")[0].verdict.id, id);
  EXPECT_EQ(tracker.of("job")[0].verdict.found_unix_ns, kNow);
}

TEST(VerdictTracker, AJobsNameIsOneWordOfACommand) {
  VerdictTracker tracker;
  Job job("my job; reboot");
  Finding finding = slow_rank(10_step, false);
  finding.next = {{"look", "lockstep why {job} --json"}};
  tracker.follow(job.through(10_step), Findings::kSteps, {finding}, kNow);
  EXPECT_EQ(tracker.of("my job; reboot").front().verdict.next.at(0).command, "lockstep why 'my job; reboot' --json");
}

TEST(VerdictTracker, ASuspicionThatDoesNotLastIsReportedClearedAndForgotten) {
  VerdictTracker tracker;
  Job job;
  tracker.follow(job.through(10_step), Findings::kSteps, {slow_rank(10_step, false)}, kNow);
  tracker.take_changed();
  tracker.follow(job.through(20_step), Findings::kSteps, {}, kNow + 1);
  EXPECT_TRUE(tracker.of("job").empty());
  const std::vector<Verdict> changed = tracker.take_changed();
  ASSERT_EQ(changed.size(), 1u);
  EXPECT_EQ(changed[0].state, VerdictState::kCleared);
}

TEST(VerdictTracker, AConfirmedVerdictIsKeptClearedAndOpenedAgainUnderItsId) {
  VerdictTracker tracker;
  Job job;
  tracker.follow(job.through(10_step), Findings::kSteps, {slow_rank(10_step, true)}, kNow);
  tracker.follow(job.through(17_step), Findings::kSteps, {}, kNow + 1);
  EXPECT_TRUE(tracker.of("job")[0].open()) << "seven healthy steps are not enough";
  tracker.follow(job.through(18_step), Findings::kSteps, {}, kNow + 2);
  ASSERT_EQ(tracker.of("job").size(), 1u);
  EXPECT_FALSE(tracker.of("job")[0].open());
  tracker.follow(job.through(30_step), Findings::kSteps, {slow_rank(30_step, false)}, kNow + 3);
  ASSERT_EQ(tracker.of("job").size(), 1u);
  EXPECT_EQ(tracker.of("job")[0].verdict.state, VerdictState::kSuspected);
}

Finding of_cause(Layer layer, Cause cause, bool by_signals, StepNumber through_step) {
  Finding finding = slow_rank(through_step, true);
  finding.layer = layer;
  finding.cause = cause;
  finding.by_signals = by_signals;
  return finding;
}

// Steps are compared over a while: the last findings come when the node is well again and shows nothing.
TEST(VerdictTracker, ACauseThatTheNodeHasShownStaysWhenTheNodeIsWellAgain) {
  VerdictTracker tracker;
  Job job;
  tracker.follow(job.through(10_step), Findings::kSteps,
                 {of_cause(Layer::kGpu, Cause::kThrottleThermal, true, 10_step)}, kNow);
  tracker.follow(job.through(12_step), Findings::kSteps, {of_cause(Layer::kGpu, Cause::kSlowCompute, false, 12_step)},
                 kNow + 1);
  EXPECT_EQ(tracker.of("job")[0].verdict.culprit.cause, Cause::kThrottleThermal);
  EXPECT_EQ(tracker.of("job")[0].verdict.through_step, 12_step);
}

// A node that is read every tenth second shows it when it is over.
TEST(VerdictTracker, ACauseThatTheNodeShowsLateIsTaken) {
  VerdictTracker tracker;
  Job job;
  tracker.follow(job.through(10_step), Findings::kSteps, {of_cause(Layer::kGpu, Cause::kSlowCompute, false, 10_step)},
                 kNow);
  tracker.follow(job.through(12_step), Findings::kSteps, {of_cause(Layer::kGpu, Cause::kThrottlePower, true, 12_step)},
                 kNow + 1);
  EXPECT_EQ(tracker.of("job")[0].verdict.culprit.cause, Cause::kThrottlePower);
}

TEST(VerdictTracker, ACauseIsTakenBackWhileTheTroubleLasts) {
  VerdictTracker tracker;
  Job job;
  tracker.follow(job.through(10_step), Findings::kSteps, {of_cause(Layer::kNic, Cause::kNicDegraded, true, 10_step)},
                 kNow);
  tracker.follow(job.through(12_step), Findings::kSteps, {of_cause(Layer::kLink, Cause::kNicDegraded, false, 12_step)},
                 kNow + 1);
  EXPECT_EQ(tracker.of("job")[0].verdict.culprit.layer, Layer::kLink);
}

TEST(VerdictTracker, FindingsOfStepsDoNotClearAHang) {
  VerdictTracker tracker;
  Job job;
  Finding hang = slow_rank(10_step, true);
  hang.kind = VerdictKind::kHang;
  tracker.follow(job.through(10_step), Findings::kHangs, {hang}, kNow);
  tracker.follow(job.through(40_step), Findings::kSteps, {}, kNow + 1);
  EXPECT_EQ(tracker.confirmed_hangs("job").size(), 1u);
  tracker.follow(job.through(40_step), Findings::kHangs, {}, kNow + 2);
  EXPECT_TRUE(tracker.confirmed_hangs("job").empty());
}

Finding standstill(VerdictKind kind, std::vector<Rank> ranks, bool sure, int64_t lost_ns) {
  Finding finding = slow_rank(11_step, sure);
  finding.kind = kind;
  finding.ranks = std::move(ranks);
  finding.since_step = 11_step;
  finding.lost_ns_per_step = lost_ns;
  return finding;
}

// The end of the rank that died first comes last.
TEST(VerdictTracker, WhoIsToBlameForAStandstillIsCorrectedInItsVerdict) {
  for (VerdictKind kind : {VerdictKind::kFail, VerdictKind::kHang}) {
    VerdictTracker tracker;
    Job job;
    tracker.follow(job.through(10_step), Findings::kHangs, {standstill(kind, {4_rank}, true, 1)}, kNow);
    const std::string id = tracker.of("job")[0].verdict.id;
    tracker.follow(job.through(10_step), Findings::kHangs, {standstill(kind, {4_rank, 5_rank}, true, 2)}, kNow + 1);
    tracker.follow(job.through(10_step), Findings::kHangs, {standstill(kind, {2_rank}, true, 3)}, kNow + 2);
    ASSERT_EQ(tracker.verdicts("job").size(), 1u) << to_text(kind);
    EXPECT_EQ(tracker.verdicts("job")[0].culprit.ranks, std::vector<Rank>{2_rank});
    EXPECT_EQ(tracker.verdicts("job")[0].id, id);
  }
}

TEST(VerdictTracker, WhatIsSureOfAStandstillIsNotCorrectedByASuspicion) {
  VerdictTracker tracker;
  Job job;
  constexpr VerdictKind kHang = VerdictKind::kHang;
  tracker.follow(job.through(10_step), Findings::kHangs, {standstill(kHang, {4_rank}, true, 1)}, kNow);
  tracker.follow(job.through(10_step), Findings::kHangs, {standstill(kHang, {0_rank, 4_rank}, false, 9)}, kNow + 8);
  ASSERT_EQ(tracker.verdicts("job").size(), 1u);
  EXPECT_EQ(tracker.verdicts("job")[0].culprit.ranks, std::vector<Rank>{4_rank});
  EXPECT_EQ(tracker.verdicts("job")[0].state, VerdictState::kConfirmed);
  EXPECT_EQ(tracker.of("job")[0].finding.lost_ns_per_step, 9);
}

TEST(VerdictTracker, TheNextStandstillHasAVerdictOfItsOwn) {
  VerdictTracker tracker;
  Job job;
  constexpr VerdictKind kHang = VerdictKind::kHang;
  tracker.follow(job.through(10_step), Findings::kHangs, {standstill(kHang, {4_rank}, true, 100)}, kNow);
  Finding next = standstill(kHang, {2_rank}, true, 100);
  next.since_step = next.through_step = 21_step;
  tracker.follow(job.through(20_step), Findings::kHangs, {next}, kNow + 1000);
  ASSERT_EQ(tracker.verdicts("job").size(), 2u);
  EXPECT_EQ(tracker.verdicts("job")[0].culprit.ranks, std::vector<Rank>{2_rank});
  EXPECT_EQ(tracker.verdicts("job")[1].culprit.ranks, std::vector<Rank>{4_rank});
  EXPECT_EQ(tracker.verdicts("job")[1].state, VerdictState::kCleared);
}

TEST(VerdictTracker, ANewAttemptClearsAllAndKeepsWhatWasConfirmed) {
  VerdictTracker tracker;
  Job job;
  Finding other = slow_rank(10_step, false);
  other.subject = "other";
  tracker.follow(job.through(10_step), Findings::kSteps, {slow_rank(10_step, true), other}, kNow);
  ASSERT_EQ(tracker.of("job").size(), 2u);
  tracker.begin_attempt("job");
  ASSERT_EQ(tracker.of("job").size(), 1u);
  EXPECT_TRUE(tracker.of("job")[0].was_confirmed);
  EXPECT_FALSE(tracker.of("job")[0].open());
  tracker.forget("job");
  EXPECT_TRUE(tracker.verdicts("").empty());
}

}  // namespace
}  // namespace lockstep
