#include "sle/sle_watch.h"

#include <gtest/gtest.h>

#include "sle/ledger_query.h"
#include "store/sle_counters.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep::sle {
namespace {

constexpr int32_t kBegin = 29'000'000;
constexpr int64_t kSecondNs = 1'000'000'000;

class FixedVerdicts final : public VerdictSource {
 public:
  std::vector<Verdict> verdicts(std::string_view job_id) const override {
    std::vector<Verdict> of_job;
    for (const Verdict& verdict : all)
      if (verdict.job_id == job_id) of_job.push_back(verdict);
    return of_job;
  }
  std::string summary(std::string_view) const override { return {}; }
  std::vector<Verdict> all;
};

class SleWatchTest : public ::testing::Test {
 protected:
  SleWatchTest() { open(); }
  void open() {
    watch_.reset();
    ledger_.reset();
    Result<std::unique_ptr<Ledger>> ledger = Ledger::open({.folder = folder_.path() + "/sle"}, clock_, counters_);
    ASSERT_TRUE(ledger.ok());
    ledger_ = std::move(*ledger);
    watch_ = std::make_unique<SleWatch>(
        *ledger_,
        SleWatch::Reads{diagnosis_,
                        [this](int64_t over_since_unix_ns) {
                          faults_since_unix_ns_ = over_since_unix_ns;
                          if (asked_) asked_();
                          return faults_;
                        },
                        [](std::string_view) { return "H100"; }, [this] { return planned_; }},
        default_thresholds(), counters_);
  }
  static Identity identity(int32_t rank) {
    return {.job_id = "job",
            .attempt = 1,
            .rank = Rank{rank},
            .world_size = 4,
            .host = rank < 2 ? "node-1" : "node-2",
            .gpu_uuid = "GPU-" + std::to_string(rank)};
  }
  // A step of `seconds` that begins so many seconds after the beginning, on every rank.
  void step(int64_t number, double from_s, double seconds, int32_t first_rank = 0, int32_t end_rank = 4) {
    StepSummary summary;
    summary.step = StepNumber{number};
    summary.start_unix_ns = kBegin * kMinuteNs + static_cast<int64_t>(from_s * 1e9);
    summary.duration_ns = static_cast<int64_t>(seconds * 1e9);
    summary.self_ns = summary.duration_ns / 2;
    for (int32_t rank = first_rank; rank < end_rank; ++rank)
      watch_->on_step(identity(rank), summary, summary.start_unix_ns + summary.duration_ns + kSecondNs);
  }
  // Minutes full of steps of that length; each is judged in time.
  void minutes(int32_t from, int32_t end, double seconds, int32_t end_rank = 4) {
    for (int32_t minute = from; minute < end; ++minute) {
      for (double at = 0; at + seconds <= 60.0001; at += seconds)
        step(next_step_++, minute * 60 + at, seconds, 0, end_rank);
      hosts_report(minute);
      tick(minute + 1);
    }
  }
  void hosts_report(int32_t minute) {
    for (const char* host : {"node-1", "node-2"})
      watch_->on_metrics({{"host.name", std::string(host)}}, {}, (kBegin + minute) * kMinuteNs + kSecondNs);
  }
  void tick(int32_t minute) { tick_at((kBegin + minute) * kMinuteNs + SleWatch::kGraceNs + kSecondNs); }
  void tick_at(int64_t unix_ns) { watch_->tick(unix_ns, unix_ns); }
  Minutes of(Sle sle, int32_t from = 0, int32_t end = 1000) const {
    return ledger_->totals({.from = kBegin + from, .end = kBegin + end})[static_cast<size_t>(sle)].minutes;
  }
  std::string charged(Sle sle, int32_t minute) const {
    const RankCells cells = ledger_->cells("job", sle, kBegin + minute);
    if (cells.empty() || !cells[0].cell.is_degraded()) return "not degraded";
    const Owner owner = ledger_->owner_at(cells[0].cell.owner());
    return owner.classifier + "/" + owner.sub;
  }
  Verdict slow(int64_t since_step, VerdictState state = VerdictState::kConfirmed) const {
    Verdict verdict{.id = "v1", .job_id = "job", .attempt = 1, .state = state};
    verdict.since_step = StepNumber{since_step};
    verdict.through_step = StepNumber{next_step_};
    verdict.lost_share = 0.3;
    verdict.culprit = {.ranks = {1_rank},
                       .host = "node-1",
                       .gpu_uuid = "GPU-1",
                       .layer = Layer::kGpu,
                       .component = "GPU of rank 1",
                       .cause = Cause::kThrottleThermal};
    return verdict;
  }
  void give(const Verdict& verdict, int32_t minute) {
    std::erase_if(diagnosis_.all, [&](const Verdict& one) { return one.id == verdict.id; });
    diagnosis_.all.push_back(verdict);
    watch_->note(std::span(&verdict, 1), (kBegin + minute) * kMinuteNs);
  }

  lockstep::testing::TemporaryFolder folder_;
  lockstep::testing::FakeClock clock_;
  Counters counters_{kSleCounters};
  std::vector<PlannedWindow> planned_;
  FixedVerdicts diagnosis_;
  std::vector<HardwareFault> faults_;
  int64_t faults_since_unix_ns_ = 0;
  std::function<void()> asked_;  // when faults are
  std::unique_ptr<Ledger> ledger_;
  std::unique_ptr<SleWatch> watch_;
  int64_t next_step_ = 0;
};

TEST_F(SleWatchTest, AHealthyJobLearnsItsBaselineAndIsGood) {
  minutes(0, 10, 2);
  EXPECT_EQ(of(Sle::kProgress), (Minutes{.good = 28, .unknown = 12}));
  EXPECT_EQ(of(Sle::kCoverage), (Minutes{.good = 40}));
  EXPECT_EQ(of(Sle::kGpu), (Minutes{.good = 40}));
  EXPECT_EQ(of(Sle::kGoodput).degraded, 0);
  EXPECT_EQ(of(Sle::kMfu).total(), 0);  // no FLOPs reported: not measured
}

TEST_F(SleWatchTest, SlowerStepsAreDegradedAndUnexplainedUntilAVerdictIsConfirmed) {
  minutes(0, 6, 2);
  const int64_t since = next_step_;
  minutes(6, 8, 3);
  EXPECT_EQ(of(Sle::kProgress, 6), (Minutes{.degraded = 8}));
  EXPECT_EQ(charged(Sle::kProgress, 6), "unexplained/");
  give(slow(since, VerdictState::kSuspected), 8);
  EXPECT_EQ(charged(Sle::kProgress, 6), "unexplained/");
  give(slow(since), 8);
  EXPECT_EQ(charged(Sle::kProgress, 6), "gpu/throttle-thermal");
  EXPECT_EQ(charged(Sle::kProgress, 7), "gpu/throttle-thermal");
  minutes(8, 9, 3);
  EXPECT_EQ(charged(Sle::kProgress, 8), "gpu/throttle-thermal");
  // Its GPU alone is unhealthy.
  EXPECT_EQ(of(Sle::kGpu, 8, 9), (Minutes{.good = 3, .degraded = 1}));
  // Cleared: what comes after it is not its.
  Verdict over = slow(since, VerdictState::kCleared);
  give(over, 9);
  next_step_ += 100;
  minutes(9, 10, 3);
  EXPECT_EQ(charged(Sle::kProgress, 9), "unexplained/");
}

TEST_F(SleWatchTest, AJobThatWasSlowFromItsFirstStepOnIsDegradedByItsVerdict) {
  give(slow(0), 0);
  minutes(0, 5, 3);
  EXPECT_EQ(of(Sle::kProgress), (Minutes{.degraded = 20}));
  EXPECT_EQ(charged(Sle::kProgress, 4), "gpu/throttle-thermal");
}

TEST_F(SleWatchTest, DeliveredTwiceAndReadBackCountsOnce) {
  const auto play = [&] {
    next_step_ = 0;
    minutes(0, 8, 2);
  };
  play();
  const Minutes progress = of(Sle::kProgress), goodput = of(Sle::kGoodput);
  play();
  EXPECT_EQ(of(Sle::kProgress), progress);
  watch_->flush();
  open();
  EXPECT_EQ(of(Sle::kProgress), progress);
  play();  // the log is read back
  EXPECT_EQ(of(Sle::kProgress), progress);
  EXPECT_EQ(of(Sle::kGoodput), goodput);
}

TEST_F(SleWatchTest, ALogThatLostItsBeginningDoesNotReplaceWhatWasJudgedFromAllOfIt) {
  minutes(0, 8, 2);
  watch_->flush();
  open();
  next_step_ = 7 * 30 + 25;  // the last ten seconds
  step(next_step_, 7 * 60 + 50, 4);
  tick(8);
  EXPECT_EQ(of(Sle::kProgress, 7, 8), (Minutes{.good = 4}));
  EXPECT_EQ(of(Sle::kGoodput, 7, 8), (Minutes{.good = 4}));
}

TEST_F(SleWatchTest, WhatComesLateReplacesUnknown) {
  minutes(0, 6, 2);
  for (int32_t minute = 6; minute < 9; ++minute) tick(minute + 1);  // nothing comes
  EXPECT_EQ(of(Sle::kProgress, 6, 9), (Minutes{.unknown = 12}));
  EXPECT_EQ(charged(Sle::kCoverage, 6), "telemetry/rank-silent");
  for (int32_t minute = 6; minute < 9; ++minute)
    for (int i = 0; i < 30; ++i) step(next_step_++, minute * 60 + 2 * i, 2);
  tick(9);
  tick_at((kBegin + 9) * kMinuteNs + 40 * kSecondNs);
  EXPECT_EQ(of(Sle::kProgress, 6, 9), (Minutes{.good = 12}));
}

TEST_F(SleWatchTest, AMinuteThatWasJudgedFromTooFewRanksIsLearnedFromWhenTheOthersCome) {
  for (int32_t rank = 0; rank < 4; ++rank) {
    for (int32_t i = 0; i < 150; ++i) step(i, 2 * i, 2, rank, rank + 1);
    tick_at((kBegin + 6) * kMinuteNs + rank * 10 * kSecondNs);
  }
  EXPECT_EQ(of(Sle::kProgress, 0, 5).degraded, 0);
  EXPECT_GE(of(Sle::kProgress, 0, 5).good, 8);  // those after the three that it was learned from
}

TEST_F(SleWatchTest, ARankThatIsSilentIsUnknownAndTheOthersAreNot) {
  minutes(0, 6, 2);
  minutes(6, 8, 2, 3);
  EXPECT_EQ(of(Sle::kProgress, 6), (Minutes{.good = 6, .unknown = 2}));
  EXPECT_EQ(of(Sle::kCoverage, 6), (Minutes{.good = 6, .degraded = 2}));
}

TEST_F(SleWatchTest, AHangIsDegradedProgressAndGoodputOfTheVerdict) {
  minutes(0, 6, 2);
  for (int32_t minute = 6; minute < 8; ++minute) {
    for (int32_t rank = 0; rank < 4; ++rank)
      watch_->on_status(identity(rank), {.quiet_ns = 40 * kSecondNs}, (kBegin + minute) * kMinuteNs + 30 * kSecondNs);
    hosts_report(minute);
  }
  Verdict hang{
      .id = "h1", .job_id = "job", .attempt = 1, .state = VerdictState::kConfirmed, .kind = VerdictKind::kHang};
  hang.since_unix_ns = (kBegin + 6) * kMinuteNs;
  hang.culprit = {.layer = Layer::kUnknown, .cause = Cause::kRankMissing};
  give(hang, 8);
  tick(8);
  EXPECT_EQ(of(Sle::kProgress, 6, 8), (Minutes{.degraded = 8}));
  EXPECT_EQ(charged(Sle::kGoodput, 7), "hang/rank-missing");
}

TEST_F(SleWatchTest, StepsThatAreDoneAgainAreNoGoodput) {
  minutes(0, 6, 2);
  next_step_ = 60;  // back to a checkpoint
  minutes(6, 8, 2);
  EXPECT_EQ(of(Sle::kGoodput, 6), (Minutes{.degraded = 8}));
  EXPECT_EQ(charged(Sle::kGoodput, 6), "restart/recompute");
  EXPECT_EQ(of(Sle::kProgress, 6), (Minutes{.good = 8}));
}

TEST_F(SleWatchTest, AFaultOfTheHardwareIsOfItsGpuAlone) {
  faults_ = {{.sle = Sle::kGpu,
              .host = "node-2",
              .gpu_uuid = "GPU-3",
              .what = "ecc",
              .from_unix_ns = (kBegin + 2) * kMinuteNs,
              .to_unix_ns = (kBegin + 3) * kMinuteNs}};
  minutes(0, 4, 2);
  EXPECT_EQ(of(Sle::kGpu), (Minutes{.good = 15, .degraded = 1}));
  EXPECT_EQ(of(Sle::kGpu, 2, 3).degraded, 1);
}

TEST_F(SleWatchTest, ANodeThatDoesNotReportIsUnknownNotHealthy) {
  for (int i = 0; i < 30; ++i) step(next_step_++, 2 * i, 2);
  watch_->on_metrics({{"host.name", std::string("node-1")}}, {}, kBegin * kMinuteNs + kSecondNs);
  tick(1);
  EXPECT_EQ(of(Sle::kGpu), (Minutes{.good = 2, .unknown = 2}));
}

TEST_F(SleWatchTest, AStepOfManyMinutesIsInAllOfThem) {
  minutes(0, 6, 2);
  step(next_step_++, 6 * 60, 180);
  for (int32_t minute = 6; minute < 9; ++minute) hosts_report(minute);
  tick(9);
  EXPECT_EQ(of(Sle::kProgress, 6, 9), (Minutes{.degraded = 12}));
}

TEST_F(SleWatchTest, EveryRowIsCountedOnce) {
  minutes(0, 3, 2);
  next_step_ = 0;
  minutes(0, 1, 2);  // again
  tick(1666);
  step(9000, 100'000, 2);  // fine: a day later
  step(1, 5, -1);          // absurd
  StepSummary ahead;
  ahead.step = 9001_step;
  ahead.start_unix_ns = (kBegin + 5000) * kMinuteNs;
  ahead.duration_ns = kSecondNs;
  watch_->on_step(identity(0), ahead, kBegin * kMinuteNs);
  const auto rows = [&](const char* result) {
    return counters_.value("lockstep_sle_rows_total", std::string("result=\"") + result + "\"");
  };
  EXPECT_EQ(rows("received"), rows("taken") + rows("repeated") + rows("late") + rows("future") + rows("left_out"));
  EXPECT_EQ(rows("repeated"), 120);
  EXPECT_EQ(rows("future"), 1);
  EXPECT_EQ(rows("left_out"), 4);
}

TEST_F(SleWatchTest, FaultsAreAskedForByTheTimeThatIsLookedAt) {
  tick(5);
  EXPECT_EQ(faults_since_unix_ns_, kBegin * kMinuteNs + SleWatch::kGraceNs + kSecondNs);
}

TEST_F(SleWatchTest, WhoStoresDoesNotWaitForWhatIsAskedOfOthers) {
  minutes(0, 6, 2);
  asked_ = [&] { hosts_report(7); };  // would wait for ever
  tick(8);
}

TEST_F(SleWatchTest, AClockThatJumpsAndComesBackCostsNoMinute) {
  minutes(0, 6, 2);
  constexpr int64_t kJump = 3 * 60 * kMinuteNs;
  for (int32_t minute = 6; minute < 8; ++minute) {  // what is received seems to be of three hours later
    for (int i = 0; i < 30; ++i) {
      StepSummary summary;
      summary.step = StepNumber{next_step_++};
      summary.start_unix_ns = (kBegin + minute) * kMinuteNs + i * 2 * kSecondNs;
      summary.duration_ns = 2 * kSecondNs;
      for (int32_t rank = 0; rank < 4; ++rank) {
        watch_->on_step(identity(rank), summary, summary.start_unix_ns + kJump);
        watch_->on_status(identity(rank), {}, summary.start_unix_ns + kJump);
      }
    }
    tick(minute + 1);
  }
  minutes(8, 10, 2);
  EXPECT_EQ(of(Sle::kProgress, 6, 10), (Minutes{.good = 16}));
  EXPECT_EQ(ledger_->newest_minute("job"), kBegin + 9);
  // Nor is the job taken to be there for as long as the clock was ahead.
  for (int32_t minute = 11; minute < 60; ++minute) tick(minute);
  EXPECT_EQ(ledger_->newest_minute("job"), kBegin + 10 + SleWatch::kSilentMinutes);
}

TEST_F(SleWatchTest, RanksThatAreOnlyClaimedAreLimitedOverAllJobs) {
  const auto claim = [&](const char* job, int32_t world_size, int32_t minute) {
    Identity liar = identity(0);
    liar.job_id = job;
    liar.world_size = world_size;
    watch_->on_status(liar, {}, (kBegin + minute) * kMinuteNs);
  };
  claim("liar-1", 900'000, 0);
  claim("liar-2", 900'000, 0);
  tick(1);
  EXPECT_EQ(of(Sle::kProgress).total(), 900'000);
  EXPECT_EQ(ledger_->newest_minute("liar-2"), 0);
  tick(200);  // the first was not heard of any more
  claim("large", 900'000, 200);
  tick(201);
  EXPECT_EQ(of(Sle::kProgress, 200).total(), 900'000);
}

TEST_F(SleWatchTest, RanksThatAreOnlyClaimedTakeNobodysPlace) {
  const auto claim = [&](int32_t minute) {
    Identity liar = identity(0);
    liar.job_id = "liar";
    liar.world_size = 999'999;
    watch_->on_status(liar, {}, (kBegin + minute) * kMinuteNs);
  };
  claim(0);
  minutes(0, 3, 2);
  claim(3);  // and not the other way round
  minutes(3, 6, 2);
  EXPECT_EQ(of(Sle::kProgress, 3, 6), (Minutes{.good = 12}));
  EXPECT_EQ(ledger_->newest_minute("job"), kBegin + 5);
  EXPECT_EQ(ledger_->newest_minute("liar"), 0);
}

TEST_F(SleWatchTest, ASilentHostOfManyIsChargedWithItsOwnRanks) {
  minutes(0, 6, 2);
  for (int i = 0; i < 30; ++i) step(next_step_++, 6 * 60 + 2 * i, 2);
  watch_->on_metrics({{"host.name", std::string("node-1")}}, {}, (kBegin + 6) * kMinuteNs + kSecondNs);
  tick(7);
  const RankCells cells = ledger_->cells("job", Sle::kCoverage, kBegin + 6);
  ASSERT_EQ(cells.size(), 2u);
  EXPECT_EQ(cells[0].cell, Cell::good());
  EXPECT_EQ(cells[1].first, 2_rank);
  EXPECT_EQ(ledger_->owner_at(cells[1].cell.owner()).culprit, "node-2");
}

TEST_F(SleWatchTest, InAPlannedWindowMinutesAreIdleAndChargedToNobody) {
  minutes(0, 6, 2);
  const auto window = [&](const char* host, const char* gpu, int32_t from, int32_t to) {
    const auto is = [](std::string_view wanted, std::string_view one) { return wanted.empty() || wanted == one; };
    planned_.push_back({.from_unix_ns = (kBegin + from) * kMinuteNs,
                        .to_unix_ns = (kBegin + to) * kMinuteNs,
                        .by_host = *host != '\0',
                        .by_gpu = *gpu != '\0',
                        .covers = [=](std::string_view job, std::string_view on, std::string_view uuid) {
                          return job == "job" && is(host, on) && is(gpu, uuid);
                        }});
  };
  window("", "", 6, 8);
  window("node-2", "", 8, 9);
  window("", "GPU-0", 9, 10);
  minutes(6, 11, 4);  // twice as slow: degraded, where anything is expected
  give(slow(next_step_ - 40), 11);
  tick(12);
  EXPECT_EQ(of(Sle::kProgress, 6, 8), (Minutes{.idle = 8}));
  EXPECT_EQ(of(Sle::kProgress, 8, 9), (Minutes{.degraded = 2, .idle = 2}));
  EXPECT_EQ(of(Sle::kProgress, 9, 10), (Minutes{.degraded = 3, .idle = 1}));
  EXPECT_EQ(of(Sle::kProgress, 10, 11), (Minutes{.degraded = 4}));
  EXPECT_EQ(of(Sle::kGoodput, 6, 8), (Minutes{.idle = 8}));
}

TEST_F(SleWatchTest, AJobThatIsPausedByPlanIsIdleWhileItIsSilent) {
  minutes(0, 6, 2);
  planned_.push_back({.from_unix_ns = (kBegin + 6) * kMinuteNs,
                      .to_unix_ns = (kBegin + 100) * kMinuteNs,
                      .covers = [](std::string_view, std::string_view, std::string_view) { return true; }});
  for (int32_t minute = 7; minute < 10; ++minute) tick(minute);
  EXPECT_EQ(of(Sle::kProgress, 6, 9), (Minutes{.idle = 12}));
  EXPECT_EQ(of(Sle::kCoverage, 6, 9), (Minutes{.idle = 12}));
}

TEST(SleThresholds, AreWithinTheirLimits) {
  EXPECT_DOUBLE_EQ((*parse_thresholds("progress=1.2,goodput=0.5"))[static_cast<size_t>(Sle::kProgress)].value, 1.2);
  EXPECT_TRUE(parse_thresholds("").ok());
  EXPECT_FALSE(parse_thresholds("goodput=2").ok());
  EXPECT_FALSE(parse_thresholds("gpu=1").ok());
  EXPECT_FALSE(parse_thresholds("nonsense=1").ok());
}

}  // namespace
}  // namespace lockstep::sle
