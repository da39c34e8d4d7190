#include "analysis/cost/loss_account.h"

#include <gtest/gtest.h>

#include "base/counters.h"
#include "store/memory_step_store.h"
#include "store/store_counters.h"

namespace lockstep {
namespace {

std::vector<StepTime> steps(StepNumber from, StepNumber to, double ms) {
  std::vector<StepTime> all;
  for (StepNumber step = from; step <= to; ++step) all.push_back({step, ms, 0});
  return all;
}
std::vector<StepTime> joined(std::vector<StepTime> a, const std::vector<StepTime>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
double share_of(const LossAccount& account, LossKind kind, size_t cause = 0) {
  for (const LossPart& part : account.parts)
    if (part.kind == kind && (kind != LossKind::kVerdict || part.cause == cause)) return part.share;
  return 0;
}
void expect_whole(const LossAccount& account) {
  double shares = 0, lost = 0;
  for (const LossPart& part : account.parts) {
    shares += part.share;
    lost += part.lost_ms;
    EXPECT_GE(part.lost_ms, 0);
  }
  EXPECT_NEAR(shares, account.lost_ms > 0 ? 1 : 0, 1e-12);
  EXPECT_NEAR(lost, account.lost_ms, 1e-9);
}

TEST(LossAccount, OneCauseExplainsWhatWasMeasured) {
  const LossCause causes[] = {{.since_step = 50_step, .through_step = 99_step, .price_ms = 30}};
  const LossAccount account = split_losses(steps(0_step, 29_step, 100),
                                           joined(steps(30_step, 49_step, 100), steps(50_step, 99_step, 130)), causes);
  expect_whole(account);
  EXPECT_DOUBLE_EQ(account.baseline_ms, 100);
  EXPECT_DOUBLE_EQ(account.lost_ms, 50 * 30);
  EXPECT_DOUBLE_EQ(share_of(account, LossKind::kVerdict), 1);
}

TEST(LossAccount, WhatNoPriceCoversIsUnexplained) {
  const LossCause causes[] = {{.since_step = 50_step, .through_step = 99_step, .price_ms = 30}};
  const LossAccount account = split_losses(steps(0_step, 49_step, 100), steps(50_step, 99_step, 140), causes);
  expect_whole(account);
  EXPECT_NEAR(share_of(account, LossKind::kVerdict), 0.75, 1e-9);
  EXPECT_NEAR(share_of(account, LossKind::kUnexplained), 0.25, 1e-9);
}

TEST(LossAccount, CausesThatHideEachOtherAreNotCountedTwice) {
  // Two ranks, 100 and 60 late: together they cost 100.
  const LossCause causes[] = {{.since_step = 50_step, .through_step = 99_step, .price_ms = 100, .parallel = true},
                              {.since_step = 50_step, .through_step = 99_step, .price_ms = 60, .parallel = true}};
  const LossAccount account = split_losses(steps(0_step, 49_step, 200), steps(50_step, 99_step, 300), causes);
  expect_whole(account);
  EXPECT_DOUBLE_EQ(account.lost_ms, 50 * 100);
  EXPECT_NEAR(share_of(account, LossKind::kVerdict, 0), 0.625, 1e-9);
  EXPECT_NEAR(share_of(account, LossKind::kVerdict, 1), 0.375, 1e-9);
  EXPECT_NEAR(share_of(account, LossKind::kUnexplained), 0, 1e-9);
}

TEST(LossAccount, ACauseIsChargedOnlyForTheStepsInWhichItActs) {
  const LossCause causes[] = {{.since_step = 50_step, .through_step = 59_step, .price_ms = 50}};
  const LossAccount account = split_losses(steps(0_step, 49_step, 100),
                                           joined(steps(50_step, 59_step, 150), steps(60_step, 99_step, 110)), causes);
  expect_whole(account);
  EXPECT_DOUBLE_EQ(account.lost_ms, 10 * 50 + 40 * 10);
  EXPECT_NEAR(share_of(account, LossKind::kVerdict), 500.0 / 900, 1e-9);
}

TEST(LossAccount, AJobThatWasNeverHealthyIsComparedWithItsStepsLessTheirCauses) {
  const LossCause causes[] = {{.since_step = 0_step, .through_step = 99_step, .price_ms = 40, .parallel = true},
                              {.since_step = 0_step, .through_step = 99_step, .price_ms = 30, .parallel = true}};
  const LossAccount account = split_losses({}, steps(0_step, 99_step, 140), causes);
  expect_whole(account);
  EXPECT_TRUE(account.baseline_priced);
  EXPECT_DOUBLE_EQ(account.baseline_ms, 100) << "the later of the two sets the pace";
  EXPECT_NEAR(share_of(account, LossKind::kUnexplained), 0, 1e-9);
}

TEST(LossAccount, CheckpointsThatTheJobToldAreNobodysFault) {
  std::vector<StepTime> window = steps(50_step, 99_step, 100);
  window[20] = {70_step, 600, 500};
  const LossAccount account = split_losses(steps(0_step, 49_step, 100), window, {});
  expect_whole(account);
  EXPECT_DOUBLE_EQ(account.lost_ms, 500);
  EXPECT_DOUBLE_EQ(share_of(account, LossKind::kReported), 1);
}

TEST(LossAccount, AHangCostsTheTimeForWhichItStands) {
  const LossCause open[] = {{.since_step = 100_step, .through_step = 100_step, .stopped_ms = 30'000}};
  const LossAccount account = split_losses(steps(0_step, 49_step, 100), steps(50_step, 99_step, 100), open);
  expect_whole(account);
  EXPECT_DOUBLE_EQ(account.lost_ms, 30'000);
  EXPECT_DOUBLE_EQ(account.window_ms, 5'000 + 30'000);
  // Once the step has ended, its length holds the time already.
  std::vector<StepTime> window = steps(50_step, 99_step, 100);
  window[30].ms = 30'100;
  const LossCause over[] = {{.since_step = 80_step, .through_step = 80_step, .stopped_ms = 30'000}};
  const LossAccount ended = split_losses(steps(0_step, 49_step, 100), window, over);
  expect_whole(ended);
  EXPECT_DOUBLE_EQ(ended.lost_ms, 30'000);
  EXPECT_DOUBLE_EQ(share_of(ended, LossKind::kVerdict), 1);
}

TEST(LossAccount, TheFirstStepsOfAJobAreAPartOfTheirOwn) {
  std::vector<StepTime> window = steps(0_step, 99_step, 100);
  window[0].ms = 500;
  const LossAccount account = split_losses({}, window, {}, kSettlingSteps);
  expect_whole(account);
  EXPECT_DOUBLE_EQ(account.lost_ms, 400);
  EXPECT_DOUBLE_EQ(share_of(account, LossKind::kStart), 1);
}

TEST(LossAccount, TooFewStepsAndNoStepsSayNothing) {
  EXPECT_FALSE(split_losses({}, steps(0_step, 4_step, 100), {}).baseline_known);
  const LossAccount none = split_losses({}, {}, {});
  EXPECT_EQ(none.steps, 0);
  expect_whole(none);
}

TEST(LossAccount, AQuickerJobLosesNothing) {
  const LossAccount account = split_losses(steps(0_step, 49_step, 100), steps(50_step, 99_step, 90), {});
  expect_whole(account);
  EXPECT_EQ(account.lost_ms, 0);
}

TEST(LossAccount, AHeldUpStepThatIsQuickerThanTheBaselineSaysWhatAHealthyOneTakes) {
  const LossCause cause{.since_step = 50_step, .through_step = 99_step, .price_ms = 15, .parallel = true};
  const LossAccount account = split_losses(steps(0_step, 49_step, 100), steps(50_step, 99_step, 80), {{cause}});
  expect_whole(account);
  EXPECT_TRUE(account.baseline_priced);
  EXPECT_NEAR(account.baseline_ms, 65, 1e-9);
  EXPECT_NEAR(account.lost_ms, 50 * 15, 1e-6);
  EXPECT_EQ(account.parts[0].kind, LossKind::kVerdict);
}

TEST(JobLosses, ReadsStepsAndVerdictsOfTheNewestAttempt) {
  Counters counters(kStoreCounters);
  MemoryStepStore store({}, counters);
  for (StepNumber step = 0_step; step < 100_step; ++step) {
    for (Rank rank : all_ranks(4)) {
      StepSummary summary;
      summary.step = step;
      summary.duration_ns = step >= 60_step ? 150'000'000 : 100'000'000;
      store.append_step({"job", 1, rank, 4, rank.value(), "node-0", "GPU-0"}, summary, step.value());
    }
  }
  Verdict verdict;
  verdict.id = "v";
  verdict.attempt = 1;
  verdict.kind = VerdictKind::kSlow;
  verdict.state = VerdictState::kConfirmed;
  verdict.since_step = 60_step;
  verdict.through_step = 98_step;  // open: it still acts
  verdict.lost_share = 1.0 / 3;
  verdict.culprit = {.ranks = {2_rank}, .layer = Layer::kGpu, .cause = Cause::kThrottleThermal};
  Verdict older = verdict, wrong = verdict;
  older.attempt = 0;
  wrong.kind = VerdictKind::kIncorrect;
  const Verdict verdicts[] = {verdict, older, wrong};
  const JobLosses losses = job_losses(store, *store.job("job"), verdicts, 50_step, 99_step);
  expect_whole(losses.account);
  ASSERT_EQ(losses.parts.size(), 2u);
  EXPECT_EQ(losses.parts[0].verdict.id, "v");
  EXPECT_NEAR(losses.parts[0].part.share, 1, 1e-9);
  EXPECT_NEAR(losses.gpu_seconds(losses.account.lost_ms), 40 * 0.05 * 4, 1e-9);
  EXPECT_EQ(sentence_of(losses),
            "29 % of the last 50 steps is lost: 140 ms a step where 100 ms would do. 100 % of that: rank 2 "
            "(throttle-thermal).");
}

TEST(JobLosses, AJobThatHasBecomeQuickerIsNotSaidToTakeLessThanWouldDo) {
  Counters counters(kStoreCounters);
  MemoryStepStore store({}, counters);
  for (StepNumber step = 0_step; step < 94_step; ++step) {
    for (Rank rank : all_ranks(2)) {
      StepSummary summary;
      summary.step = step;
      summary.duration_ns = step < 4_step ? 10'000'000'000 : step < 34_step ? 1'000'000'000 : 200'000'000;
      store.append_step({"job", 1, rank, 2, rank.value(), "node-0", "GPU-0"}, summary, step.value());
    }
  }
  const JobLosses losses = job_losses(store, *store.job("job"), {}, 0_step, 93_step);
  EXPECT_GT(losses.account.baseline_ms, losses.account.step_ms);
  EXPECT_EQ(sentence_of(losses), "44 % of the last 94 steps is lost. 100 % of that: the job's first steps.");
}

}  // namespace
}  // namespace lockstep
