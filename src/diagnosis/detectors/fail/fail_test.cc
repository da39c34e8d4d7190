#include "diagnosis/detectors/fail/fail.h"

#include <gtest/gtest.h>

#include <csignal>

#include "diagnosis/testing.h"

namespace lockstep {
namespace {

using testing::kEpochNs;
using testing::kSecondNs;

// Eight ranks on two hosts, in step 40.
class DyingJob {
 public:
  DyingJob() {
    for (Rank rank : all_ranks(8)) {
      const Identity identity{"job", 0, rank, 8, rank % 4, rank < 4_rank ? "node-0" : "node-1", "GPU"};
      StepSummary summary;
      summary.step = 39_step;
      summary.start_unix_ns = kEpochNs;
      summary.duration_ns = kSecondNs;
      window.add_step(identity, summary);
      status[rank] = {.time_unix_ns = kEpochNs, .step = 40_step};
    }
  }
  void die(Rank rank, double after_s, std::optional<ExitStatus> exit) {
    ended[rank] = {.time_unix_ns = kEpochNs + static_cast<int64_t>(after_s * 1e9), .clean = false, .exit = exit};
    status[rank].process_alive = false;
  }
  std::optional<Finding> find(int64_t after_ns = 5 * kSecondNs) const {
    return find_failure(window, {ended, status, kEpochNs + after_ns});
  }

  JobWindow window;
  std::map<Rank, RankEnd> ended;
  std::map<Rank, RankStatus> status;
};

constexpr ExitStatus of_signal(int number) {
  return {.code = 0, .signal = number};
}
constexpr ExitStatus of_code(int number) {
  return {.code = number, .signal = 0};
}

TEST(FailDetector, NamesWhoWasKilledThoughTheOthersAbortedBeforeAnAgentLooked) {
  DyingJob job;
  for (Rank rank : all_ranks(8)) job.die(rank, 1.0 + 0.01 * rank.value(), of_signal(SIGABRT));
  job.die(5_rank, 1.2, of_signal(SIGKILL));
  const std::optional<Finding> found = job.find();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, VerdictKind::kFail);
  EXPECT_EQ(found->ranks, (std::vector<Rank>{5_rank}));
  EXPECT_EQ(found->cause, Cause::kRankDead);
  EXPECT_EQ(found->layer, Layer::kHost);
  EXPECT_TRUE(found->sure);
  EXPECT_EQ(found->sentence, "Rank 5 (node-1, GPU 1) died of SIGKILL in step 40; 7 other ranks ended after it.");
  EXPECT_EQ(found->victims.size(), 7u);
  EXPECT_EQ(found->chain.front().claim, "Its process ended of SIGKILL.");
}

TEST(FailDetector, TheFirstByTimeWhereAllCouldBeConsequences) {
  DyingJob job;
  for (Rank rank : all_ranks(8)) job.die(rank, 4.5, of_code(1));
  job.die(2_rank, 1, of_code(3));
  const std::optional<Finding> found = job.find();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ranks, (std::vector<Rank>{2_rank}));
  EXPECT_EQ(found->layer, Layer::kSoftware);
  EXPECT_EQ(found->sentence,
            "Rank 2 (node-0, GPU 2) died with exit status 3 in step 40; 7 other ranks ended after it.");
}

TEST(FailDetector, AnAbortIsSureOnceAllOthersAreHeardOf) {
  DyingJob job;
  job.die(4_rank, 1, of_code(1));
  EXPECT_FALSE(job.find(2 * kSecondNs)->sure);  // the end of whom it aborted for may be under way
  EXPECT_TRUE(job.find(6 * kSecondNs)->sure);   // no more than of a silent node
  for (Rank rank : all_ranks(8)) job.status[rank].time_unix_ns = kEpochNs + kSecondNs;
  EXPECT_TRUE(job.find(2 * kSecondNs)->sure);
}

TEST(FailDetector, AKillIsSureAtOnce) {
  DyingJob job;
  job.die(4_rank, 1, of_signal(SIGKILL));
  EXPECT_TRUE(job.find(kSecondNs)->sure);
}

TEST(FailDetector, NamesWhoRaisedFirstThoughTheOthersRaisedForWantOfIt) {
  DyingJob job;
  for (Rank rank : all_ranks(8)) {
    job.die(rank, 1.5, of_code(1));
    job.ended[rank].reason = "RuntimeError: [pair.cc:534] Connection closed by peer [10.0.0.7]:4242";
    job.ended[rank].reason_unix_ns = kEpochNs + kSecondNs + rank.value();
  }
  job.ended[6_rank].reason = "ValueError: index 7 is out of bounds";
  job.ended[6_rank].reason_unix_ns = kEpochNs + kSecondNs + 40'000'000;  // its clock is off
  const std::optional<Finding> found = job.find();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ranks, (std::vector<Rank>{6_rank}));
  EXPECT_EQ(found->layer, Layer::kSoftware);
  EXPECT_EQ(found->sentence,
            "Rank 6 (node-1, GPU 2) died of ValueError: index 7 is out of bounds in step 40; 7 other ranks ended after "
            "it.");
  EXPECT_EQ(found->chain.front().claim, "It raised ValueError: index 7 is out of bounds.");
}

TEST(FailDetector, OfSeveralThatRaiseTheSameTheFirstByItsOwnClockIsNamed) {
  DyingJob job;
  for (Rank rank : all_ranks(4)) {
    job.die(rank, 1.5, std::nullopt);  // nobody saw how, but for what they raised
    job.ended[rank].reason = "KeyError: 'x'";
    job.ended[rank].reason_unix_ns = kEpochNs + kSecondNs + (rank == 2_rank ? 0 : 300'000'000);
  }
  const std::optional<Finding> found = job.find();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ranks, (std::vector<Rank>{2_rank}));
}

TEST(FailDetector, AKillIsNoConsequenceOfAnExceptionOfCommunication) {
  DyingJob job;
  job.die(1_rank, 1.0, of_code(1));
  job.ended[1_rank].reason = "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp";
  job.ended[1_rank].reason_unix_ns = kEpochNs + kSecondNs;
  job.die(3_rank, 1.8, of_signal(SIGKILL));
  EXPECT_EQ(job.find()->ranks, (std::vector<Rank>{3_rank}));
}

// Ranks that share a GPU with one that is killed raise errors of their own, within the same second.
TEST(FailDetector, WhoWasKilledBeforeTheOthersEndedIsNamedWhateverTheyRaised) {
  DyingJob job;
  for (Rank rank : all_ranks(8)) {
    job.die(rank, 1.8, of_code(1));
    job.ended[rank].reason = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered";
    job.ended[rank].reason_unix_ns = kEpochNs + kSecondNs + 10'000'000;
  }
  job.die(5_rank, 1.3, of_signal(SIGKILL));
  EXPECT_EQ(job.find()->ranks, (std::vector<Rank>{5_rank}));
  EXPECT_EQ(job.find()->layer, Layer::kHost);
}

TEST(FailDetector, WhoRaisedIsNamedThoughTheOthersWereKilledForIt) {
  DyingJob job;
  for (Rank rank : all_ranks(8)) job.die(rank, 1.8, of_signal(SIGKILL));
  job.die(2_rank, 1.3, of_code(1));
  job.ended[2_rank].reason = "ValueError: index 7 is out of bounds";
  job.ended[2_rank].reason_unix_ns = kEpochNs + kSecondNs;
  EXPECT_EQ(job.find()->ranks, (std::vector<Rank>{2_rank}));
  job.ended[2_rank].time_unix_ns = job.ended[3_rank].time_unix_ns;  // seen at one look
  EXPECT_EQ(job.find()->ranks, (std::vector<Rank>{2_rank}));
}

TEST(FailDetector, WhereMostDieTogetherOfTheSameNobodyIsNamed) {
  DyingJob job;
  for (Rank rank : all_ranks(8)) job.die(rank, 1, of_code(1));
  const std::optional<Finding> found = job.find();
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->ranks.empty());
  EXPECT_EQ(found->sentence, "8 ranks died with exit status 1 in step 40 within 2.0 s of each other; none stands out.");
}

TEST(FailDetector, AJobThatIsAskedToEndHasNotFailed) {
  DyingJob terminated;
  for (Rank rank : all_ranks(8)) terminated.die(rank, 1, of_signal(SIGTERM));
  EXPECT_FALSE(terminated.find());
  DyingJob killed;
  for (Rank rank : all_ranks(8)) killed.die(rank, 1, of_signal(SIGKILL));
  EXPECT_FALSE(killed.find()) << "by its scheduler";
  DyingJob ended;
  for (Rank rank : all_ranks(8)) ended.die(rank, 1, of_code(0));
  EXPECT_FALSE(ended.find()) << "without a word, but with status 0";
  DyingJob clean;
  for (Rank rank : all_ranks(8)) clean.ended[rank] = {.time_unix_ns = kEpochNs, .clean = true, .exit = {}};
  EXPECT_FALSE(clean.find());
  EXPECT_FALSE(DyingJob().find());
}

TEST(FailDetector, ASegfaultBeforeTheLauncherEndsTheRest) {
  DyingJob job;
  for (Rank rank : all_ranks(8)) job.die(rank, 1, of_signal(SIGTERM));
  job.die(7_rank, 1.9, of_signal(SIGSEGV));
  const std::optional<Finding> found = job.find();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ranks, (std::vector<Rank>{7_rank}));
  EXPECT_EQ(found->layer, Layer::kSoftware);
}

TEST(FailDetector, WhereNobodySawHowOnlyWhoWasAtWorkDied) {
  DyingJob job;
  job.die(3_rank, 1, std::nullopt);
  std::optional<Finding> found = job.find();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->ranks, (std::vector<Rank>{3_rank}));
  EXPECT_EQ(found->sentence, "Rank 3 (node-0, GPU 3) died in step 40.");
  job.status[3_rank].step = 39_step;  // it had ended its last step
  EXPECT_FALSE(job.find());
}

}  // namespace
}  // namespace lockstep
