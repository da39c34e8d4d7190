#include "diagnosis/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "diagnosis/testing.h"

namespace lockstep {
namespace {

using testing::accused;
using testing::kSecondNs;
using testing::kWorldComm;
using testing::MadeUpJob;
using testing::RankPlan;
using testing::StepPlan;

StepPlan slow(size_t rank, StepNumber from, StepNumber to, double more_ms = 60) {
  return [=](StepNumber step, std::vector<RankPlan>& ranks) {
    ranks[rank].own_ms += step >= from && step <= to ? more_ms : 0;
  };
}

// Time comes with tick().
struct DiagnosisEngineTest : ::testing::Test {
  DiagnosisEngine engine;

  std::string state() const {
    std::vector<Verdict> all = engine.verdicts("job");
    return all.empty() ? "" : to_text(all.front().state);
  }
};

TEST_F(DiagnosisEngineTest, SuspectsThenConfirmsThenClears) {
  MadeUpJob job(8);
  std::vector<std::string> states;
  job.play(engine, 0_step, 100_step, slow(5, 30_step, 60_step), [&](StepNumber) {
    if (states.empty() || states.back() != state()) states.push_back(state());
  });
  EXPECT_EQ(states, (std::vector<std::string>{"", "suspected", "confirmed", "cleared"}));
  std::vector<Verdict> all = engine.verdicts("job");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].culprit.ranks, std::vector<Rank>{5_rank});
  EXPECT_EQ(all[0].culprit.host, "node-0");
  EXPECT_EQ(all[0].culprit.gpu_uuid, "GPU-5");
  EXPECT_EQ(all[0].job_id, "job");
  EXPECT_EQ(all[0].kind, VerdictKind::kSlow);
}

TEST_F(DiagnosisEngineTest, WhatAProfileSaysOfTheCulpritIsInItsVerdict) {
  MadeUpJob job(8);
  job.play(engine, 0_step, 60_step, slow(5, 30_step, 60_step), [&](StepNumber step) {
    if (step != 50_step) return;
    const Verdict verdict = engine.verdicts("job").at(0);
    Identity identity{"job", 0, 5_rank, 8, 5, "node-0", "GPU-5"};
    engine.on_profile_finding(identity,
                              {.time_unix_ns = verdict.found_unix_ns,
                               .capture = "p-0123456789ab",
                               .first_step = 45_step,
                               .steps = 3,
                               .reason = "fp32_instead_of_bf16",
                               .kernel = "sgemm",
                               .instead_of = "hgemm",
                               .sentence = "Rank 5 runs sgemm in fp32.",
                               .cost_us = 60'000,
                               .share = 0.3},
                              verdict.found_unix_ns);
  });
  const Verdict verdict = engine.verdicts("job").at(0);
  ASSERT_FALSE(verdict.chain.empty());
  EXPECT_EQ(verdict.chain[0].claim, "Kernel profile: Rank 5 runs sgemm in fp32.");
  EXPECT_EQ(verdict.chain[0].query, "/api/jobs/job/evidence?of=profile&ranks=5&name=p-0123456789ab");
}

TEST_F(DiagnosisEngineTest, ConfirmsWithinTenStepsOfTheFault) {
  MadeUpJob job(8);
  StepNumber confirmed_at = kNoStep;
  job.play(engine, 0_step, 60_step, slow(5, 30_step, 60_step), [&](StepNumber step) {
    if (confirmed_at == kNoStep && state() == "confirmed") confirmed_at = step;
  });
  EXPECT_GE(confirmed_at, 33_step);
  EXPECT_LE(confirmed_at, 40_step);
  EXPECT_EQ(engine.verdicts("job").front().since_step, 30_step);
}

TEST_F(DiagnosisEngineTest, ASuspicionThatDoesNotLastLeavesNothing) {
  MadeUpJob job(8);
  bool suspected = false;
  job.play(engine, 0_step, 60_step, slow(5, 2_step, 7_step), [&](StepNumber) {
    suspected |= state() == "suspected";
    EXPECT_NE(state(), "confirmed");
  });
  EXPECT_TRUE(suspected);
  EXPECT_TRUE(engine.verdicts("job").empty());
}

TEST_F(DiagnosisEngineTest, AVerdictKeepsItsIdWhileItLastsAndItsNumbersGrow) {
  MadeUpJob job(8);
  std::set<std::string> ids;
  double lost = 0;
  job.play(engine, 0_step, 80_step, slow(5, 30_step, 80_step), [&](StepNumber) {
    for (const Verdict& verdict : engine.verdicts("job")) {
      ids.insert(verdict.id);
      EXPECT_GE(verdict.lost_gpu_seconds, lost);
      lost = verdict.lost_gpu_seconds;
    }
  });
  EXPECT_EQ(ids.size(), 1u);
  // 51 steps, 60 ms each, 8 ranks.
  EXPECT_NEAR(lost, 51 * 0.060 * 8, 0.15 * 51 * 0.060 * 8);
  EXPECT_NEAR(engine.verdicts("job").front().lost_share, 60.0 / 180, 0.05);
}

TEST_F(DiagnosisEngineTest, AVerdictKeepsItsIdWhenItsLayerTurnsOutToBeAnother) {
  MadeUpJob job(8);
  std::set<std::string> ids;
  std::set<Layer> layers;
  job.play(
      engine, 0_step, 80_step,
      [](StepNumber step, std::vector<RankPlan>& ranks) {
        ranks[5].own_ms += step >= 30_step ? 60 : 0;
        ranks[5].queue_ms += step >= 50_step ? 55 : 0;
      },
      [&](StepNumber) {
        for (const Verdict& verdict : engine.verdicts("job")) {
          ids.insert(verdict.id);
          layers.insert(verdict.culprit.layer);
        }
      });
  EXPECT_EQ(layers, (std::set<Layer>{Layer::kHost, Layer::kGpu}));
  EXPECT_EQ(ids.size(), 1u);
}

TEST_F(DiagnosisEngineTest, TroubleThatIsSoonBackIsTheSameAgain) {
  MadeUpJob job(8);
  job.play(engine, 0_step, 120_step, [](StepNumber step, std::vector<RankPlan>& ranks) {
    ranks[5].own_ms += (step >= 20_step && step < 40_step) || step >= 90_step ? 60 : 0;
  });
  std::vector<Verdict> all = engine.verdicts("job");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].state, VerdictState::kConfirmed);
  EXPECT_EQ(all[0].since_step, 20_step);
}

TEST_F(DiagnosisEngineTest, ASecondFaultLongAfterTheFirstHasClearedGetsAnIdOfItsOwn) {
  MadeUpJob job(8);
  job.play(engine, 0_step, 170_step, [](StepNumber step, std::vector<RankPlan>& ranks) {
    ranks[5].own_ms += (step >= 20_step && step < 40_step) || step >= 140_step ? 60 : 0;
  });
  std::vector<Verdict> all = engine.verdicts("job");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].state, VerdictState::kConfirmed);  // open first
  EXPECT_EQ(all[0].since_step, 140_step);
  EXPECT_EQ(all[1].state, VerdictState::kCleared);
  EXPECT_NE(all[0].id, all[1].id);
}

TEST_F(DiagnosisEngineTest, TwoSlowRanksGetTwoVerdicts) {
  MadeUpJob job(8);
  job.play(engine, 0_step, 60_step, [](StepNumber step, std::vector<RankPlan>& ranks) {
    if (step >= 20_step) ranks[2].own_ms += 60;
    if (step >= 30_step) ranks[6].own_ms += 60;
  });
  EXPECT_EQ(engine.verdicts("job").size(), 2u);
  EXPECT_EQ(accused(engine), (std::set<Rank>{2_rank, 6_rank}));
}

TEST_F(DiagnosisEngineTest, SaysNothingOfHealthyJobs) {
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    DiagnosisEngine fresh;
    MadeUpJob job(8, seed);
    job.ring_flows = true;
    job.noise = 0.03;
    job.play(fresh, 0_step, 150_step);
    EXPECT_TRUE(fresh.verdicts("job").empty()) << "seed " << seed;
    EXPECT_TRUE(fresh.summary("job").starts_with("Healthy: 8 ranks")) << fresh.summary("job");
  }
}

TEST_F(DiagnosisEngineTest, ASlowLinkIsALinkVerdictAlone) {
  MadeUpJob job(8);
  job.ring_flows = true;
  job.play(engine, 0_step, 60_step,
           [](StepNumber step, std::vector<RankPlan>& ranks) { ranks[3].wire_ms = step >= 20_step ? 80 : 10; });
  std::vector<Verdict> all = engine.verdicts("job");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].culprit.ranks, std::vector<Rank>{3_rank});
  EXPECT_EQ(all[0].culprit.layer, Layer::kLink);
  EXPECT_EQ(all[0].state, VerdictState::kConfirmed);
}

TEST_F(DiagnosisEngineTest, ALateRankWithSlowTransfersIsOneVerdictAndNoLink) {
  MadeUpJob job(8);
  job.ring_flows = true;
  job.play(engine, 0_step, 60_step, [](StepNumber step, std::vector<RankPlan>& ranks) {
    if (step < 20_step) return;
    ranks[3].own_ms += 100;
    ranks[3].wire_ms = 80;
  });
  std::vector<Verdict> all = engine.verdicts("job");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_NE(all[0].culprit.layer, Layer::kLink);
}

TEST_F(DiagnosisEngineTest, SteadySlownessThatIsOverDoesNotComeBackAsAPause) {
  MadeUpJob job(8);
  job.play(engine, 0_step, 200_step, slow(5, 30_step, 60_step, 200));
  std::vector<Verdict> all = engine.verdicts("job");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].state, VerdictState::kCleared);
}

TEST_F(DiagnosisEngineTest, UnevenSlownessThatIsOverDoesNotComeBackAsAPause) {
  MadeUpJob job(8);
  job.play(engine, 0_step, 200_step, [](StepNumber step, std::vector<RankPlan>& ranks) {
    ranks[5].own_ms += step >= 30_step && step <= 60_step && step % 5 != 0 ? 200 : 0;
  });
  std::vector<Verdict> all = engine.verdicts("job");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].state, VerdictState::kCleared);
}

TEST_F(DiagnosisEngineTest, PausesAreOneVerdictThatOutlastsTheQuietBetweenThem) {
  MadeUpJob job(8);
  std::set<std::string> ids;
  job.play(
      engine, 0_step, 120_step,
      [](StepNumber step, std::vector<RankPlan>& ranks) {
        ranks[3].own_ms += step >= 20_step && step % 10 == 0 ? 300 : 0;
      },
      [&](StepNumber step) {
        for (const Verdict& verdict : engine.verdicts("job")) {
          ids.insert(verdict.id);
          EXPECT_TRUE(step <= 80_step || verdict.state == VerdictState::kConfirmed) << "after step " << step;
        }
      });
  EXPECT_EQ(ids.size(), 1u);
  EXPECT_EQ(accused(engine), std::set<Rank>{3_rank});
}

TEST_F(DiagnosisEngineTest, ReportsTheCoverageOfAJobWithSilentRanks) {
  MadeUpJob job(10);
  job.play(engine, 0_step, 60_step, [](StepNumber step, std::vector<RankPlan>& ranks) {
    ranks[5].own_ms += step >= 20_step ? 60 : 0;
    ranks[1].silent = ranks[8].silent = true;
  });
  ASSERT_EQ(accused(engine), std::set<Rank>{5_rank});
  EXPECT_DOUBLE_EQ(engine.verdicts("job").front().coverage, 0.8);
}

TEST_F(DiagnosisEngineTest, SaysOfWhomNothingIsHeard) {
  MadeUpJob job(10);
  job.play(engine, 0_step, 60_step,
           [](StepNumber, std::vector<RankPlan>& ranks) { ranks[1].silent = ranks[8].silent = true; });
  EXPECT_EQ(engine.summary("job"), "Cannot tell for all: rank 1 and 8 sent nothing for step 60.");
}

TEST_F(DiagnosisEngineTest, SaysWhyItCannotTellYet) {
  EXPECT_EQ(engine.summary("job"), "Cannot tell: nothing is known of this job.");
  MadeUpJob job(4);
  engine.on_rank_started(job.identity(0_rank), job.now_unix_ns());
  EXPECT_TRUE(
      engine.summary("job").starts_with("Cannot tell yet: 1 of 4 ranks are known, but no step has been marked"));
  job.play(engine, 0_step, 3_step);
  EXPECT_EQ(engine.summary("job"), "Cannot tell yet: 2 complete steps after warm-up, 4 are needed.");
}

TEST_F(DiagnosisEngineTest, TheSummaryOfASickJobIsItsVerdict) {
  MadeUpJob job(8);
  job.play(engine, 0_step, 60_step, slow(5, 30_step, 60_step));
  EXPECT_TRUE(engine.summary("job").starts_with("Too little CPU (host): Rank 5 (node-0, GPU 5) makes all 8 ranks wait"))
      << engine.summary("job");
  EXPECT_NE(engine.summary("job").find("since step 30"), std::string::npos) << engine.summary("job");
}

TEST_F(DiagnosisEngineTest, ClaimsNameQueriesOfThisJobWithItsNameEscaped) {
  MadeUpJob job(4);
  for (StepNumber step = 0_step; step < 40_step; ++step) {
    for (auto [who, row] : job.step(step, slow(2, 0_step, 40_step))) {
      who.job_id = "a job/1";
      engine.on_step(who, row, job.now_unix_ns());
    }
    engine.tick(job.now_unix_ns());
  }
  std::vector<Verdict> all = engine.verdicts("a job/1");
  ASSERT_EQ(all.size(), 1u);
  for (const Claim& entry : all[0].chain) EXPECT_TRUE(entry.query.starts_with("/api/jobs/a%20job%2F1/")) << entry.query;
}

TEST_F(DiagnosisEngineTest, JobsAreLookedAtApart) {
  MadeUpJob sick(4), healthy(4);
  for (StepNumber step = 0_step; step < 40_step; ++step) {
    sick.play(engine, step, step, slow(2, 20_step, 40_step));
    for (auto [who, row] : healthy.step(step)) {
      who.job_id = "other";
      engine.on_step(who, row, healthy.now_unix_ns());
    }
  }
  EXPECT_EQ(engine.verdicts("job").size(), 1u);
  EXPECT_EQ(engine.verdicts("other").size(), 0u);
  EXPECT_EQ(engine.verdicts("").size(), 1u);
}

TEST_F(DiagnosisEngineTest, TellsEachChangeOnceAndTheLastStateOfEveryVerdict) {
  MadeUpJob job(8);
  std::map<std::string, std::string> kept;
  job.play(
      engine, 0_step, 100_step,
      [](StepNumber step, std::vector<RankPlan>& ranks) {
        ranks[1].own_ms += step >= 2_step && step < 9_step ? 60 : 0;  // suspected, withdrawn
        ranks[5].own_ms += step >= 40_step && step < 70_step ? 60 : 0;
      },
      [&](StepNumber) {
        for (const Verdict& verdict : engine.take_changed()) kept[verdict.id] = to_text(verdict.state);
        EXPECT_TRUE(engine.take_changed().empty());
      });
  ASSERT_EQ(kept.size(), 2u);
  for (const auto& [id, last] : kept) EXPECT_EQ(last, "cleared") << id;
}

TEST_F(DiagnosisEngineTest, ANewAttemptClearsWhatTheOldOneHad) {
  MadeUpJob job(8);
  std::map<std::string, std::string> kept;
  auto keep = [&](StepNumber) {
    for (const Verdict& verdict : engine.take_changed()) kept[verdict.id] = to_text(verdict.state);
  };
  job.play(engine, 0_step, 60_step, slow(5, 30_step, 60_step), keep);
  ASSERT_EQ(state(), "confirmed");
  job.attempt = 1;
  job.play(engine, 50_step, 80_step, {}, keep);
  std::vector<Verdict> all = engine.verdicts("job");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].state, VerdictState::kCleared);
  EXPECT_EQ(kept[all[0].id], "cleared");
  job.play(engine, 81_step, 120_step, slow(5, 81_step, 120_step), keep);
  ASSERT_EQ(engine.verdicts("job").size(), 2u);
  EXPECT_EQ(engine.verdicts("job")[0].attempt, 1);
}

TEST_F(DiagnosisEngineTest, ASuspicionOfAnEarlierAttemptIsWithdrawn) {
  MadeUpJob job(8);
  std::map<std::string, std::string> kept;
  auto keep = [&](StepNumber) {
    for (const Verdict& verdict : engine.take_changed()) kept[verdict.id] = to_text(verdict.state);
  };
  job.play(engine, 0_step, 7_step, slow(5, 2_step, 7_step), keep);
  ASSERT_EQ(state(), "suspected");
  job.attempt = 1;
  job.play(engine, 0_step, 30_step, {}, keep);
  EXPECT_TRUE(engine.verdicts("job").empty());
  for (const auto& [id, last] : kept) EXPECT_NE(last, "suspected") << id;
}

TEST_F(DiagnosisEngineTest, ALateRowOfAnEarlierAttemptChangesNothing) {
  MadeUpJob before(8);
  before.play(engine, 0_step, 20_step);
  auto late = before.step(21_step);
  MadeUpJob after(4);  // comes back with half of its ranks
  after.attempt = 1;
  after.play(engine, 20_step, 40_step);
  ASSERT_TRUE(engine.summary("job").starts_with("Healthy: 4 ranks")) << engine.summary("job");
  for (const auto& [who, row] : late) engine.on_step(who, row, after.now_unix_ns());
  after.play(engine, 41_step, 43_step);
  EXPECT_TRUE(engine.summary("job").starts_with("Healthy: 4 ranks")) << engine.summary("job");
}

// Where a rank stands in the next AllReduce of all ranks.
RankStatus standing(Rank rank, int32_t ranks, bool entered, int64_t quiet_ns) {
  RankStatus status{.time_unix_ns = testing::kEpochNs, .quiet_ns = quiet_ns};
  CommStatus comm{.comm_id = kWorldComm, .size = ranks, .rank_in_comm = rank.value()};
  comm.collectives_enqueued = entered ? 101 : 100;
  comm.collectives_completed = 100;
  comm.collective = {entered ? OpState::kStarted : OpState::kCompleted,
                     entered ? 101u : 100u,
                     100,
                     "AllReduce",
                     "float32",
                     4096,
                     -1,
                     testing::kEpochNs};
  status.comms = {comm};
  return status;
}

TEST_F(DiagnosisEngineTest, AHangIsConfirmedAndClearsWhenTheRanksMoveAgain) {
  MadeUpJob job(4);
  job.play(engine, 0_step, 20_step);
  int64_t now = job.now_unix_ns();
  for (Rank rank : all_ranks(4))
    engine.on_status(job.identity(rank), standing(rank, 4, rank != 2_rank, 5 * kSecondNs), now);
  engine.tick(now);
  std::vector<Verdict> all = engine.verdicts("job");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].kind, VerdictKind::kHang);
  EXPECT_EQ(all[0].state, VerdictState::kConfirmed);
  EXPECT_EQ(all[0].culprit.ranks, std::vector<Rank>{2_rank});
  EXPECT_EQ(all[0].lost_share, 1);
  EXPECT_NEAR(all[0].lost_gpu_seconds, 20, 0.1);
  EXPECT_TRUE(engine.summary("job").starts_with("Rank missing (software): Rank 2 (node-0, GPU 2) never entered"))
      << engine.summary("job");

  for (Rank rank : all_ranks(4)) engine.on_status(job.identity(rank), standing(rank, 4, true, 0), now);
  job.play(engine, 21_step, 30_step);
  all = engine.verdicts("job");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].state, VerdictState::kCleared);
}

TEST_F(DiagnosisEngineTest, ARankThatHasJustSaidThatItMovesIsNotAccused) {
  MadeUpJob job(4);
  job.play(engine, 0_step, 20_step);
  int64_t now = job.now_unix_ns();
  for (Rank rank : all_ranks(4))
    engine.on_status(job.identity(rank), standing(rank, 4, rank != 2_rank, 10 * kSecondNs), now);
  engine.on_status(job.identity(2_rank), standing(2_rank, 4, false, 0), now);
  engine.tick(now);
  EXPECT_EQ(accused(engine), std::set<Rank>{});
}

TEST_F(DiagnosisEngineTest, ARankThatDiesWhileTheOthersWaitIsNamed) {
  MadeUpJob job(4);
  job.play(engine, 0_step, 20_step);
  int64_t now = job.now_unix_ns();
  for (Rank rank : all_ranks(4)) {
    RankStatus status = standing(rank, 4, rank != 2_rank, 5 * kSecondNs);
    status.process_alive = rank != 2_rank;
    engine.on_status(job.identity(rank), status, now);
  }
  engine.on_rank_ended(job.identity(2_rank), {}, now);
  engine.tick(now);
  std::vector<Verdict> all = engine.verdicts("job");
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].culprit.cause, Cause::kRankDead);
  EXPECT_EQ(all[0].culprit.ranks, std::vector<Rank>{2_rank});
}

TEST_F(DiagnosisEngineTest, AFailureBecomesSureThoughNothingMoreIsHeard) {
  MadeUpJob job(4);
  job.play(engine, 0_step, 20_step);
  const int64_t now = job.now_unix_ns();
  engine.on_rank_ended(job.identity(2_rank), {.time_unix_ns = now, .exit = ExitStatus{.code = 1}}, now);
  engine.tick(now);
  ASSERT_EQ(engine.verdicts("job").size(), 1u);
  EXPECT_EQ(engine.verdicts("job")[0].state, VerdictState::kSuspected);
  engine.tick(now + JobWindow::kSilentNs);
  EXPECT_EQ(engine.verdicts("job")[0].state, VerdictState::kConfirmed);
}

TEST_F(DiagnosisEngineTest, AJobThatHasEndedIsNotHung) {
  MadeUpJob job(4);
  job.play(engine, 0_step, 20_step);
  int64_t now = job.now_unix_ns();
  for (Rank rank : all_ranks(4)) {
    engine.on_status(job.identity(rank), standing(rank, 4, rank != 2_rank, 5 * kSecondNs), now);
    engine.on_rank_ended(job.identity(rank), {.time_unix_ns = now, .clean = true, .exit = {}}, now);
  }
  engine.tick(now);
  EXPECT_TRUE(engine.verdicts("job").empty());
}

TEST_F(DiagnosisEngineTest, ForgetsTheJobHeardOfLongestAgoWhenThereAreTooMany) {
  for (size_t i = 0; i <= DiagnosisEngine::kJobsMax; ++i)
    engine.on_rank_started({format("job-%zu", i), 0, 0_rank, 1, 0, "", ""}, 0);
  EXPECT_EQ(engine.summary("job-0"), "Cannot tell: nothing is known of this job.");
  EXPECT_TRUE(engine.summary("job-1").starts_with("Cannot tell yet"));
}

TEST_F(DiagnosisEngineTest, TheVerdictOfAJobThatEndedWithItStays) {
  MadeUpJob job(8);
  job.play(engine, 0_step, 60_step, slow(5, 30_step, 60_step));
  for (Rank rank : all_ranks(8))
    engine.on_rank_ended(job.identity(rank), {.time_unix_ns = job.now_unix_ns(), .clean = true, .exit = {}},
                         job.now_unix_ns());
  engine.tick(job.now_unix_ns());
  EXPECT_EQ(state(), "confirmed");
}

TEST_F(DiagnosisEngineTest, CannotTellWhereTheGpuTimesOfARankOrOfAllAreNotKnown) {
  MadeUpJob job(8);
  job.play(engine, 0_step, 19_step, [](StepNumber, std::vector<RankPlan>& ranks) { ranks[3].unseen = true; });
  EXPECT_TRUE(engine.verdicts("job").empty());
  EXPECT_EQ(engine.summary("job"), "Cannot tell for all: the GPU times of rank 3 are not known for step 19.");
  job.play(engine, 20_step, 25_step, [](StepNumber, std::vector<RankPlan>& ranks) {
    for (RankPlan& rank : ranks) rank.unseen = true;
  });
  EXPECT_TRUE(engine.verdicts("job").empty());
  EXPECT_EQ(engine.summary("job"), "Cannot tell: in the last 6 steps no rank's GPU times are known.");
  job.play(engine, 26_step, 30_step);
  EXPECT_TRUE(engine.summary("job").starts_with("Healthy: 8 ranks")) << engine.summary("job");
}

TEST_F(DiagnosisEngineTest, CannotTellOfAJobOfWhichEveryStepIsUnknown) {
  MadeUpJob job(4);
  job.play(engine, 0_step, 9_step, [](StepNumber, std::vector<RankPlan>& ranks) {
    for (RankPlan& rank : ranks) rank.unseen = true;
  });
  EXPECT_EQ(engine.summary("job"), "Cannot tell: in the last 10 steps no rank's GPU times are known.");
}

TEST_F(DiagnosisEngineTest, AVerdictIsNotClearedByStepsThatAreUnknown) {
  MadeUpJob job(8);
  auto slow_then_dark = [](StepNumber step, std::vector<RankPlan>& ranks) {
    if (step < 30_step) ranks[5].own_ms += 50;
    ranks[5].unseen = step >= 30_step && step < 60_step;
  };
  job.play(engine, 0_step, 59_step, slow_then_dark);
  EXPECT_EQ(testing::accused(engine), std::set<Rank>{5_rank});
  job.play(engine, 60_step, 79_step, slow_then_dark);  // known again, and healthy
  EXPECT_TRUE(testing::accused(engine).empty());
}

TEST(DiagnosisEngine, WhatIsPutDownWhileItLooksIsThereForTheNextLook) {
  constexpr StepNumber kLast = 60_step;
  DiagnosisEngine looked_at_by_another, alone;
  std::atomic<bool> over = false;
  std::jthread looks([&] {
    while (!over) {
      looked_at_by_another.tick(testing::kEpochNs);
      looked_at_by_another.verdicts("job");
      looked_at_by_another.summary("job");
    }
  });
  for (DiagnosisEngine* engine : {&looked_at_by_another, &alone}) {
    MadeUpJob job(8);
    for (StepNumber number = 0_step; number <= kLast; ++number) {
      for (const auto& [who, row] : job.step(number)) engine->on_step(who, row, testing::kEpochNs);
    }
  }
  over = true;
  looks.join();
  for (DiagnosisEngine* engine : {&looked_at_by_another, &alone}) engine->tick(testing::kEpochNs);
  EXPECT_EQ(looked_at_by_another.summary("job"), alone.summary("job"));
  EXPECT_EQ(alone.summary("job").substr(0, 8), "Healthy:");
}

// A job whose network was slow from its first step on all ranks: nothing in it is out of the ordinary, and the adapters
// say what they could.
TEST(DiagnosisEngine, HealthySaysWhatTheNetworkCouldDo) {
  for (double gigabits : {0.0, 400.0, 20.0}) {
    DiagnosisEngine engine;
    MadeUpJob job(16);  // two hosts
    job.ring_flows = true;
    job.flow_wire_ms = 50;  // 100 MB: 2 GB/s
    job.groups.front().transfer_ms = 400;
    job.play(engine, 0_step, 30_step, {}, [&](StepNumber) {
      for (const char* host : {"node-0", "node-1"}) {
        MetricPoint point;
        point.name = "hw.network.bandwidth.limit";
        point.attributes = {{"device", "mlx5_0"}, {"port", "1"}};
        point.value = gigabits / 8 * 1e9;
        point.time_unix_ns = job.now_unix_ns();
        if (gigabits > 0) engine.on_metrics({{"host.name", host}}, std::span(&point, 1), job.now_unix_ns());
      }
    });
    const std::string summary = engine.summary("job");
    EXPECT_TRUE(summary.starts_with("Healthy: 16 ranks")) << summary;
    EXPECT_NE(summary.find("; communication takes 80 % of a step at 2.00 GB/s a link"), std::string::npos) << summary;
    EXPECT_NE(summary.find(gigabits == 0     ? "whether the network could do better is not known"
                           : gigabits == 400 ? "between hosts, where an adapter carries 50: the network is slow for"
                                             : "between hosts, where an adapter carries 2.5: the network is what it"),
              std::string::npos)
        << summary;
  }
}

TEST(DiagnosisEngine, HealthySaysHowMuchOfTheirPeakTheGpusDo) {
  DiagnosisEngine engine;
  MadeUpJob job(8);
  job.play(engine, 0_step, 30_step, [](StepNumber, std::vector<RankPlan>& ranks) {
    for (RankPlan& rank : ranks) rank.scalars = {{"flops", 12e12}, {"peak_flops", 1000e12}};
  });
  const std::string summary = engine.summary("job");
  const size_t at = summary.find("; its GPUs do ");
  ASSERT_NE(at, std::string::npos) << summary;
  EXPECT_NEAR(std::atof(summary.c_str() + at + 14), 10, 0.5) << summary;  // percent of their peak
}

TEST(DiagnosisEngine, AfterARestartTheSameTroubleHasItsOldIdAndANewOneAnotherId) {
  auto slow_rank = [](StepNumber from, StepNumber to) {
    return
        [=](StepNumber step, std::vector<RankPlan>& ranks) { ranks[2].own_ms *= step >= from && step <= to ? 1.5 : 1; };
  };
  DiagnosisEngine before;
  MadeUpJob first(8);
  first.play(before, 0_step, 40_step, slow_rank(15_step, 60_step));
  ASSERT_EQ(before.verdicts("job").size(), 1u);
  const Verdict kept = before.verdicts("job")[0];

  DiagnosisEngine again;
  again.restore({{kept.id, "job", kept.since_step, kept.through_step}});
  MadeUpJob second(8);
  second.play(again, 20_step, 60_step, slow_rank(15_step, 60_step));
  ASSERT_EQ(again.verdicts("job").size(), 1u);
  EXPECT_EQ(again.verdicts("job")[0].id, kept.id);

  DiagnosisEngine later;
  later.restore({{kept.id, "job", kept.since_step, kept.through_step}});
  MadeUpJob third(8);
  third.play(later, 500_step, 560_step, slow_rank(520_step, 560_step));
  ASSERT_EQ(later.verdicts("job").size(), 1u);
  EXPECT_NE(later.verdicts("job")[0].id, kept.id);
}

TEST(DiagnosisEngine, AHostWhoseRanksAreLateTogetherIsOneVerdict) {
  DiagnosisEngine engine;
  MadeUpJob job(32);
  job.play(engine, 0_step, 40_step, [](StepNumber step, std::vector<RankPlan>& ranks) {
    for (size_t rank = 8; rank < 16; ++rank) ranks[rank].own_ms += step >= 15_step ? 30 : 0;
  });
  std::vector<Verdict> verdicts = engine.verdicts("job");
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].culprit.ranks.size(), 8u);
  EXPECT_EQ(verdicts[0].culprit.host, "node-1");
  EXPECT_EQ(verdicts[0].culprit.layer, Layer::kHost);
}

TEST(DiagnosisEngine, TheSourceOfANanIsNotForgottenWhenItsStepIsLongAgo) {
  DiagnosisEngine engine;
  MadeUpJob job(8);
  job.play(engine, 0_step, 120_step, [](StepNumber step, std::vector<RankPlan>& ranks) {
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      ranks[rank].scalars = {{"grad_norm_local", step >= 30_step && (rank == 6 || step > 30_step) ? std::nan("") : 1.0},
                             {"loss", step >= 31_step ? std::nan("") : 2.0}};
  });
  ASSERT_EQ(engine.verdicts("job").size(), 1u);
  EXPECT_EQ(engine.verdicts("job")[0].culprit.ranks, std::vector<Rank>{6_rank});
  EXPECT_EQ(engine.verdicts("job")[0].state, VerdictState::kConfirmed);
}

TEST(DiagnosisEngine, LooksAheadOnceASecondAndKeepsItsWarningsIdWhileItLasts) {
  DiagnosisEngine engine;
  const int64_t begin = 1'800'000'000'000'000'000;
  auto report = [&](int64_t now, double failed) {
    MetricPoint point;
    point.name = "lockstep_gpu_row_remap_failure";
    point.value = failed;
    point.time_unix_ns = now;
    point.attributes = {{"gpu_uuid", "GPU-7"}};
    engine.on_metrics({{"host.name", "node-3"}}, std::span(&point, 1), now);
  };
  std::set<std::string> ids;
  int64_t now = begin;
  auto play = [&](int seconds, double failed) {
    for (int64_t end = now + seconds * 1'000'000'000ll; now < end; now += 250'000'000) {
      if ((now - begin) % 5'000'000'000 == 0) report(now, failed);
      engine.tick(now);
      for (const EarlyWarning& warning : engine.warnings()) ids.insert(warning.id);
    }
  };
  play(30, 1);
  EXPECT_TRUE(engine.warnings().empty());  // one look is none
  play(120, 1);
  ASSERT_EQ(engine.warnings().size(), 1u);
  EXPECT_FALSE(engine.warnings()[0].is_gone());
  EXPECT_EQ(engine.warnings()[0].host, "node-3");
  EXPECT_EQ(engine.warnings()[0].gpu_uuid, "GPU-7");
  EXPECT_EQ(engine.warnings_raised(), 1);
  play(300, 0);
  ASSERT_EQ(engine.warnings().size(), 1u);
  EXPECT_TRUE(engine.warnings()[0].is_gone());
  EXPECT_EQ(engine.warnings_raised(), 0);
  EXPECT_EQ(ids.size(), 1u);
}

TEST(DiagnosisEngine, WhatNobodyLooksAtIsBoundedAndNotLost) {
  DiagnosisEngine engine;
  Identity identity;
  identity.job_id = "flood";
  identity.world_size = 2;
  for (size_t i = 0; i < DiagnosisEngine::kWaitingMax + 10; ++i) {
    identity.rank = Rank{static_cast<int32_t>(i % 2)};
    engine.on_rank_started(identity, 1);
    ASSERT_LT(engine.waiting("flood"), DiagnosisEngine::kWaitingMax);
  }
  EXPECT_EQ(engine.waiting("flood"), 10u);
  engine.tick(2);
  EXPECT_EQ(engine.waiting("flood"), 0u);
  EXPECT_EQ(engine.waiting("nobody"), 0u);
}

// Looks come when there is time for them: between two of them a rank may have become well again.
TEST(DiagnosisEngine, WhatIsOverEndsWithTheLastStepThatShowedItHoweverSeldomSomebodyLooked) {
  for (int64_t every : {1, 3, 4, 5, 7}) {
    MadeUpJob job(8);
    DiagnosisEngine engine;
    for (StepNumber step = 0_step; step < 91_step; ++step) {
      for (const auto& [who, row] : job.step(step, [](StepNumber number, std::vector<RankPlan>&ranks) {
             ranks[3].own_ms *= number >= 20_step && number < 40_step ? 1.6 : 1;
           }))
        engine.on_step(who, row, job.now_unix_ns());
      if (step % every == 0) engine.tick(job.now_unix_ns());
    }
    const std::vector<Verdict> verdicts = engine.verdicts("job");
    ASSERT_EQ(verdicts.size(), 1u) << every;
    EXPECT_EQ(verdicts[0].state, VerdictState::kCleared) << every;
    EXPECT_EQ(verdicts[0].through_step, 39_step) << every;
  }
}

}  // namespace
}  // namespace lockstep
