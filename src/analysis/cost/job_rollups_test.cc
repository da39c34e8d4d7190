#include "analysis/cost/job_rollups.h"

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/cost/loss_account.h"
#include "analysis/cost/mfu.h"
#include "analysis/metric_series.h"
#include "base/median.h"
#include "base/text.h"
#include "store/memory_step_store.h"
#include "store/metrics/engine_world.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1'000 * kMs;
constexpr int64_t kStart = 1'800'000'000 * kSecond - 3'600 * kSecond;
constexpr double kPeak = 1000e12;

class JobRollupsTest : public ::testing::Test {
 protected:
  JobRollupsTest() { open(); }

  void open() {
    rollups_.reset();
    engine_.reset();
    Result<std::unique_ptr<MetricEngine>> engine =
        MetricEngine::open({.folder = folder_.path(), .background = false}, clock_, counters_);
    ASSERT_TRUE(engine.ok()) << engine.error();
    engine_ = std::move(*engine);
    rollups_ = std::make_unique<JobRollups>(
        [this](auto stream, auto series, const auto& canonical) -> Result<PushOutcome> {
          if (full_) return Error{"disk full"};
          pushes_ += 1;
          return engine_->push(stream, series, canonical);
        },
        *engine_, counters_, 0);
  }

  static Identity identity(Rank rank, int64_t attempt = 0) {
    return {"job", attempt, rank, 4, rank.value(), "node-0", format("GPU-%d", rank.value())};
  }
  // 1 s: 800 ms of its own, 200 ms of communication that nothing hides.
  static StepSummary step(int64_t number, int64_t start_unix_ns) {
    StepSummary summary;
    summary.step = StepNumber{number};
    summary.start_unix_ns = start_unix_ns;
    summary.duration_ns = kSecond;
    summary.self_ns = 800 * kMs;
    summary.comm_ns = 250 * kMs;
    summary.split_known = true;
    summary.split_ns = {800 * kMs, 200 * kMs, 0, 0, 0, 0};
    summary.scalars = {{"flops", 0.4 * kPeak}, {"peak_flops", kPeak}};
    return summary;
  }
  void report(const Identity& who, const StepSummary& summary) {
    steps_.append_step(who, summary, summary.start_unix_ns);
    rollups_->on_step(who, summary, summary.start_unix_ns + summary.duration_ns);
  }
  // Steps one after the other from now_ on, by four ranks.
  void play(StepNumber from, StepNumber to, const std::function<void(StepSummary&, Rank)>& change = {},
            int64_t attempt = 0) {
    for (StepNumber number = from; number <= to; ++number) {
      int64_t longest = 0;
      for (Rank rank : all_ranks(4)) {
        StepSummary summary = step(number.value(), now_);
        if (change) change(summary, rank);
        longest = std::max(longest, summary.duration_ns);
        report(identity(rank, attempt), summary);
      }
      now_ += longest;
    }
    rollups_->write();
  }
  std::vector<NamedSample> series(const char* name, const char* quantile = nullptr) {
    std::vector<NamedSample> all;
    for (const NamedSeries& one : series_named(*engine_, name, 0, INT64_MAX, 10)) {
      const std::string* at = one.label("quantile");
      EXPECT_EQ(*one.label("job_id"), "job");
      if ((at == nullptr) != (quantile == nullptr) || (at != nullptr && *at != quantile)) continue;
      EXPECT_TRUE(all.empty()) << "one series of " << name;
      all = one.samples;
    }
    return all;
  }
  double last(const char* name, const char* quantile = nullptr) {
    const std::vector<NamedSample> all = series(name, quantile);
    return all.empty() ? std::nan("") : all.back().value;
  }
  int64_t rows(const char* result) {
    return counters_.value("lockstep_job_rollup_rows_total", format("result=\"%s\"", result));
  }

  // What was received and is neither folded nor said to be anything else: steps that are open.
  int64_t rows_open() { return rows("received") - rows("folded") - rows("repeated") - rows("late") - rows("left_out"); }

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_{metrics::kStartNs};
  Counters counters_{kStoreCounters};
  MemoryStepStore steps_{{}, counters_};
  std::unique_ptr<MetricEngine> engine_;
  std::unique_ptr<JobRollups> rollups_;
  int64_t now_ = kStart;
  int pushes_ = 0;
  bool full_ = false;
};

TEST_F(JobRollupsTest, WriteAJobsNumbersEveryFewSecondsOfItsOwnTime) {
  play(0_step, 59_step);
  EXPECT_NEAR(last("lockstep_job_mfu_ratio"), 0.4, 1e-6);
  EXPECT_NEAR(last("lockstep_job_step_time_seconds", "0.5"), 1, 0.004);
  EXPECT_NEAR(last("lockstep_job_step_time_seconds", "0.99"), 1, 0.004);
  EXPECT_NEAR(last("lockstep_job_communication_share_ratio"), 0.2, 1e-6);
  EXPECT_NEAR(last("lockstep_job_straggler_spread_ratio"), 0, 1e-6);
  EXPECT_NEAR(last("lockstep_job_goodput_ratio"), 1, 1e-6);
  EXPECT_EQ(last("lockstep_job_ranks"), 4);
  const std::vector<NamedSample> steps = series("lockstep_job_steps_total");
  ASSERT_EQ(steps.size(), 12u) << "a minute";
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].time_unix_ns, kStart + (1 + 5 * static_cast<int64_t>(i)) * kSecond) << "when the step ended";
    EXPECT_EQ(steps[i].value, 1 + 5 * static_cast<double>(i));
  }
  EXPECT_EQ(rows("folded"), 240);
  EXPECT_EQ(rows("received"), 240);
}

TEST_F(JobRollupsTest, AgreeWithWhatThePagesWorkOutFromTheStoredSteps) {
  uint64_t random = 1;
  play(0_step, 45_step, [&](StepSummary& summary, Rank rank) {
    if (rank == 0_rank) random = random * 6364136223846793005ull + 1442695040888963407ull;  // one length for a step
    summary.duration_ns += static_cast<int64_t>(random >> 40) * 3;
    summary.split_ns[1] += 10 * kMs * rank.value();
    if (rank == 2_rank && summary.step > 30_step) summary.self_ns += 80 * kMs;
  });
  const JobInfo job = *steps_.job("job");
  const auto window = static_cast<int64_t>(JobRollups::kWindowSteps);
  const Mfu mfu = job_mfu(steps_, *engine_, job, {}, {.last = window});
  ASSERT_TRUE(mfu.known);
  ASSERT_EQ(mfu.to_step, 45_step) << "the sample is of the last step: every fifth";
  EXPECT_NEAR(last("lockstep_job_mfu_ratio"), mfu.achieved, 1e-6);
  std::vector<double> durations;
  steps_.visit_steps("job", 26_step, 45_step, [&](const Identity&, const StepSummary& summary) {
    durations.push_back(static_cast<double>(summary.duration_ns) / 1e9);
  });
  EXPECT_NEAR(last("lockstep_job_step_time_seconds", "0.5"), median_of(durations), 0.004 * median_of(durations));
  std::sort(durations.begin(), durations.end());
  EXPECT_NEAR(last("lockstep_job_step_time_seconds", "0.99"), durations[79], 0.004 * durations[79]);
  const double communication =
      mfu.points[static_cast<size_t>(MfuBar::kWaiting)] + mfu.points[static_cast<size_t>(MfuBar::kCommunication)];
  EXPECT_NEAR(last("lockstep_job_communication_share_ratio"), communication, 1e-6);
  EXPECT_NEAR(last("lockstep_job_straggler_spread_ratio"), 0.1, 1e-6);
  const JobLosses losses = job_losses(steps_, job, {}, 26_step, 45_step);
  EXPECT_NEAR(last("lockstep_job_goodput_ratio"), 1 - losses.account.lost_ms / losses.account.window_ms, 0.02);
}

TEST_F(JobRollupsTest, HaveNoMfuWhereNoFlopsAreTold) {
  play(0_step, 20_step, [](StepSummary& summary, Rank) { summary.scalars.clear(); });
  EXPECT_TRUE(series("lockstep_job_mfu_ratio").empty());
  EXPECT_FALSE(series("lockstep_job_goodput_ratio").empty());
}

TEST_F(JobRollupsTest, TakeThePeakFromTheNameOfTheGpuWhereTheJobTellsNone) {
  const auto labels = [](size_t) -> Result<Labels> {
    return metrics::labels_of("lockstep_gpu_info{gpu_uuid=GPU-0,model=NVIDIA H100 80GB HBM3}");
  };
  const std::vector<int64_t> time = {kStart / kMs};
  const std::vector<double> one = {1};
  PushedSeries info;
  info.raw_labels = "x";
  info.times_ms = time;
  info.values = one;
  ASSERT_TRUE(engine_->push("agent", {&info, 1}, labels).ok());
  play(0_step, 20_step, [](StepSummary& summary, Rank) { summary.scalars = {{"flops", 0.5 * 989.4e12}}; });
  EXPECT_NEAR(last("lockstep_job_mfu_ratio"), 0.5, 0.001);
}

TEST_F(JobRollupsTest, DoNotWaitForARankThatIsMissing) {
  for (StepNumber number = 0_step; number < 30_step; ++number, now_ += kSecond) {
    for (Rank rank : all_ranks(3)) report(identity(rank), step(number.value(), now_));
  }
  rollups_->write();
  EXPECT_EQ(last("lockstep_job_ranks"), 3);
  EXPECT_GE(last("lockstep_job_steps_total"), 20);
}

TEST_F(JobRollupsTest, WaitForARankWhoseReportsAreLate) {
  for (int64_t number = 0; number < 60; ++number, now_ += kSecond / 10) {
    for (Rank rank : all_ranks(3)) report(identity(rank), step(number, now_));
    if (number >= 5) report(identity(3_rank), step(number - 5, now_ - 5 * (kSecond / 10)));
  }
  rollups_->write();
  EXPECT_EQ(last("lockstep_job_ranks"), 4);
  EXPECT_EQ(rows("folded"), 4 * 55);
}

TEST_F(JobRollupsTest, TakeStepsInAnyOrderOnceAndLeaveOutWhatComesTooLate) {
  std::vector<std::pair<Rank, StepSummary>> reported;
  for (StepNumber number = 0_step; number < 30_step; ++number, now_ += kSecond) {
    for (Rank rank : all_ranks(4)) reported.emplace_back(rank, step(number.value(), now_));
  }
  for (size_t i = 0; i + 4 < reported.size(); i += 4)
    std::swap(reported[i + 3], reported[i + 4]);  // a rank is one step behind
  for (const auto& [rank, summary] : reported) {
    rollups_->on_step(identity(rank), summary, now_);
    rollups_->on_step(identity(rank), summary, now_);  // delivered twice
  }
  rollups_->on_step(identity(2_rank), reported[12].second, now_);
  rollups_->write();
  EXPECT_EQ(last("lockstep_job_steps_total"), 26) << "every fifth step";
  EXPECT_EQ(last("lockstep_job_ranks"), 4);
  EXPECT_NEAR(last("lockstep_job_mfu_ratio"), 0.4, 1e-6);
  EXPECT_EQ(rows_open(), 0) << "nothing is lost unseen";
  EXPECT_EQ(rows("folded"), 120);
}

TEST_F(JobRollupsTest, AreNotLedAstrayByARankWithAbsurdNumbers) {
  int64_t wild = 1'000'000;
  play(0_step, 40_step, [&](StepSummary& summary, Rank rank) {
    if (rank != 3_rank) return;
    summary.step = StepNumber{wild += 1000};
    summary.start_unix_ns += 500 * kSecond;
  });
  EXPECT_EQ(last("lockstep_job_ranks"), 3);
  EXPECT_NEAR(last("lockstep_job_step_time_seconds", "0.5"), 1, 0.004);
  for (const NamedSample& sample : series("lockstep_job_ranks")) EXPECT_LE(sample.time_unix_ns, now_);
  EXPECT_GE(last("lockstep_job_steps_total"), 30);
  StepSummary absurd = step(41, INT64_MAX);
  absurd.duration_ns = INT64_MAX;
  rollups_->on_step(identity(0_rank), absurd, now_);
  RankStatus status;
  status.time_unix_ns = INT64_MIN;
  rollups_->on_status(identity(0_rank), status, now_);
}

TEST_F(JobRollupsTest, HoldNoMoreRanksThanTheyMayWhoeverNamesThem) {
  const auto received = [&](const char* result) {
    return counters_.value("lockstep_job_rollup_rows_total", format("result=\"%s\"", result));
  };
  for (int i = 0; i < 1600; ++i) {
    Identity absurd = identity(Rank{JobRollups::kRanksMax - 1});
    absurd.job_id = format("absurd-%d", i);
    absurd.world_size = JobRollups::kRanksMax;
    rollups_->on_step(absurd, step(0, kStart), kStart);
  }
  EXPECT_GT(received("left_out"), 0);  // one rank of a million costs little, but not nothing
  EXPECT_LT(received("left_out"), 200);
  play(0_step, 20_step);  // and the others go on
  EXPECT_EQ(received("folded"), 84);
}

TEST_F(JobRollupsTest, StepsThatAreDoneAgainAfterARestartAreNoProgress) {
  play(0_step, 30_step);
  EXPECT_NEAR(last("lockstep_job_goodput_ratio"), 1, 1e-6);
  now_ += 10 * kSecond;
  play(21_step, 40_step, {}, 1);  // a new attempt from the checkpoint of step 20: ten steps and ten seconds are lost
  EXPECT_NEAR(last("lockstep_job_goodput_ratio"), 10.0 / 30, 1e-6)
      << "at step 36: ten of the twenty steps are progress, and thirty seconds have passed";
  EXPECT_EQ(last("lockstep_job_steps_total"), 47);
  play(30_step, 60_step, {}, 1);  // back without a new attempt
  EXPECT_NEAR(last("lockstep_job_goodput_ratio"), 1, 1e-6) << "all made up for";
  EXPECT_EQ(last("lockstep_job_steps_total"), 82);
  EXPECT_EQ(rows("late"), 0);
  play(40_step, 60_step, {}, 0);  // an old attempt
  EXPECT_EQ(rows("late"), 84);
}

TEST_F(JobRollupsTest, AJobThatIsRunAgainFromItsFirstStepIsNotCountedAsRepeatingItself) {
  play(0_step, 60_step);
  now_ += 3'600 * kSecond;
  play(0_step, 40_step, {}, 1);
  EXPECT_NEAR(last("lockstep_job_goodput_ratio"), 1, 1e-6)
      << "healthy, though it has not come as far as the run before";
  play(1_step, 40_step, {}, 2);  // some count from one
  EXPECT_NEAR(last("lockstep_job_goodput_ratio"), 1, 1e-6);
}

TEST_F(JobRollupsTest, GoodputFallsWhileRanksSayThatTheyStandStill) {
  play(0_step, 30_step);
  const size_t before = series("lockstep_job_mfu_ratio").size();
  RankStatus status;
  for (int i = 0; i < 30; ++i) {
    status.time_unix_ns = now_ + i * kSecond;
    for (Rank rank : all_ranks(4)) rollups_->on_status(identity(rank), status, status.time_unix_ns);
  }
  rollups_->write();
  EXPECT_NEAR(last("lockstep_job_goodput_ratio"), 20.0 / (20 + 25), 1e-6);
  EXPECT_EQ(series("lockstep_job_mfu_ratio").size(), before) << "no step, no MFU";
}

TEST_F(JobRollupsTest, GoOnAfterARestartOfTheServerWithoutWritingTwice) {
  play(0_step, 44_step);
  const std::vector<NamedSample> before = series("lockstep_job_steps_total");
  const std::vector<NamedSample> mfu = series("lockstep_job_mfu_ratio");
  const int64_t end = now_;
  open();
  // The log no longer holds the first steps; what it holds comes again.
  now_ = kStart + 30 * kSecond;
  pushes_ = 0;
  play(30_step, 44_step);
  EXPECT_EQ(now_, end);
  EXPECT_EQ(pushes_, 0);
  play(45_step, 60_step);
  const std::vector<NamedSample> after = series("lockstep_job_steps_total");
  ASSERT_GT(after.size(), before.size());
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(after[i].time_unix_ns, before[i].time_unix_ns);
    EXPECT_EQ(after[i].value, before[i].value);
    EXPECT_EQ(series("lockstep_job_mfu_ratio")[i].value, mfu[i].value);
  }
  EXPECT_EQ(after.back().value, 61) << "as if nothing had happened";
}

TEST_F(JobRollupsTest, AreKeptWhileTheStoreTakesNothing) {
  full_ = true;
  play(0_step, 30_step);
  EXPECT_TRUE(series("lockstep_job_ranks").empty());
  EXPECT_EQ(rollups_->queued(), 7u);
  full_ = false;
  rollups_->write();
  EXPECT_EQ(series("lockstep_job_ranks").size(), 7u);
  EXPECT_EQ(counters_.value("lockstep_job_rollup_samples_dropped_total"), 0);
}

}  // namespace
}  // namespace lockstep
