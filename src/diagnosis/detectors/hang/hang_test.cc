#include "diagnosis/detectors/hang/hang.h"

#include <gtest/gtest.h>

#include "diagnosis/testing.h"
#include "diagnosis/verdicts/verdict_sentence.h"

namespace lockstep {
namespace {

using testing::kEpochNs;
using testing::kSecondNs;

constexpr CommId kWorld{0xC0};

// Ranks that stand still, each with its place in every communicator it is in.
class StandingJob {
 public:
  explicit StandingJob(int32_t ranks) : ranks_(ranks) {
    std::vector<Rank> all;
    for (Rank rank : all_ranks(ranks)) all.push_back(rank);
    input.typical_step_ns = kSecondNs / 10;
    for (Rank rank : all) {
      window.add_rank(identity(rank));
      input.status[rank] = {.time_unix_ns = kEpochNs, .quiet_ns = 5 * kSecondNs};
    }
    add_group(kWorld, all);
  }

  Identity identity(Rank rank) const { return {"job", 0, rank, ranks_, rank.value(), "node-0", ""}; }

  void add_group(CommId comm_id, const std::vector<Rank>& members) {
    for (size_t in_comm = 0; in_comm < members.size(); ++in_comm) {
      int32_t size = static_cast<int32_t>(members.size());
      window.add_comm(identity(members[in_comm]),
                      {.comm_id = comm_id, .size = size, .rank_in_comm = static_cast<int32_t>(in_comm)});
      CommStatus comm{.comm_id = comm_id, .size = size, .rank_in_comm = static_cast<int32_t>(in_comm)};
      comm.collectives_enqueued = comm.collectives_completed = 100;
      comm.collective = {OpState::kCompleted, 100, 99, "AllReduce", "float32", 4096, -1, kEpochNs - 6 * kSecondNs};
      input.status[members[in_comm]].comms.push_back(comm);
    }
  }

  CommStatus& at(Rank rank, CommId comm_id) {
    for (CommStatus& comm : input.status.at(rank).comms) {
      if (comm.comm_id == comm_id) return comm;
    }
    std::abort();
  }

  // The rank is in the group's next collective.
  OpStatus& enter(Rank rank, CommId comm_id = kWorld) {
    CommStatus& comm = at(rank, comm_id);
    comm.collectives_enqueued = 101;
    comm.collective = {OpState::kStarted, 101, 100, "AllReduce", "float32", 4096, -1, kEpochNs - 5 * kSecondNs};
    return comm.collective;
  }
  void all_enter_but(std::set<Rank> missing, CommId comm_id = kWorld) {
    for (Rank rank : all_ranks(ranks_)) {
      if (!missing.contains(rank)) enter(rank, comm_id);
    }
  }
  void receive(Rank rank, Rank from, CommId comm_id = kWorld) {
    CommStatus& comm = at(rank, comm_id);
    comm.p2p_enqueued = 1;
    comm.p2p = {OpState::kStarted, 1, 0, "Recv", "float32", 4096, from.value(), kEpochNs - 5 * kSecondNs};
  }
  void send(Rank rank, Rank to, CommId comm_id = kWorld) {
    receive(rank, to, comm_id);
    at(rank, comm_id).p2p.function = "Send";
  }

  // All ranks did a step.
  void step(StepNumber number, int64_t duration_ns) {
    StepSummary summary;
    summary.step = number;
    summary.duration_ns = duration_ns;
    for (Rank rank : all_ranks(ranks_)) window.add_step(identity(rank), summary);
  }
  // Nobody has made a call for so long.
  void wait(int64_t quiet_ns) {
    for (auto& [rank, status] : input.status) status.quiet_ns = quiet_ns;
  }

  std::optional<Finding> find() const { return find_hang(window, input); }

  JobWindow window;
  HangInput input;

 private:
  int32_t ranks_;
};

TEST(HangDetector, NamesTheRankThatNeverEntered) {
  StandingJob job(8);
  job.all_enter_but({6_rank});
  std::optional<Finding> hang = job.find();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->kind, VerdictKind::kHang);
  EXPECT_EQ(hang->ranks, std::vector<Rank>{6_rank});
  EXPECT_EQ(hang->cause, Cause::kRankMissing);
  EXPECT_TRUE(hang->sure);
  EXPECT_EQ(hang->victims, (std::vector<Rank>{0_rank, 1_rank, 2_rank, 3_rank, 4_rank, 5_rank, 7_rank}));
  EXPECT_EQ(hang->coverage, 1);
  EXPECT_TRUE(hang->sentence.starts_with("Rank 6 (node-0, GPU 6) never entered AllReduce 100 of all 8 ranks"))
      << hang->sentence;
  EXPECT_TRUE(std::any_of(hang->chain.begin(), hang->chain.end(),
                          [](const Claim& entry) { return entry.kind == ClaimKind::kExclusion; }));
}

TEST(HangDetector, WalksOverTwoGroupsToTheCulpritNotToTheMiddle) {
  // 0 and 1 wait in a group for 2; 2 and 3 wait in another for 4, which waits for nobody.
  StandingJob job(5);
  job.add_group(CommId{1}, {0_rank, 1_rank, 2_rank});
  job.add_group(CommId{2}, {2_rank, 3_rank, 4_rank});
  job.enter(0_rank, CommId{1});
  job.enter(1_rank, CommId{1});
  job.enter(2_rank, CommId{2});
  job.enter(3_rank, CommId{2});
  std::optional<Finding> hang = job.find();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, std::vector<Rank>{4_rank});
  EXPECT_EQ(hang->victims, (std::vector<Rank>{0_rank, 1_rank, 2_rank, 3_rank}));
  EXPECT_NE(hang->sentence.find("group of 3 (2-4)"), std::string::npos) << hang->sentence;
}

TEST(HangDetector, SeveralRanksThatAreNotAHostAreAwayTogetherAndOnlySuspected) {
  for (bool host_of_their_own : {false, true}) {
    StandingJob job(12);
    job.all_enter_but({3_rank, 9_rank});
    for (Rank rank : {3_rank, 9_rank})
      job.window.add_rank({"job", 0, rank, 12, rank.value(), host_of_their_own ? "node-9" : "node-0", ""});
    std::optional<Finding> hang = job.find();
    ASSERT_TRUE(hang);
    EXPECT_EQ(hang->ranks, (std::vector<Rank>{3_rank, 9_rank}));
    EXPECT_EQ(hang->sure, host_of_their_own);
    job.input.status[9_rank].process_alive = false;
    EXPECT_TRUE(job.find()->sure);
  }
}

TEST(HangDetector, WhoIsAwayInTheFirstStepsIsOnlySuspectedForAWhile) {
  for (int64_t steps : {3, 20}) {
    StandingJob job(8);
    for (StepNumber step = 0_step; step < StepNumber{steps}; ++step) job.step(step, kSecondNs / 10);
    job.all_enter_but({6_rank});
    ASSERT_TRUE(job.find());
    EXPECT_EQ(job.find()->sure, steps > 10);
    job.wait(150 * kSecondNs);
    EXPECT_TRUE(job.find()->sure);
    job.wait(5 * kSecondNs);
    job.input.status[6_rank].process_alive = false;
    EXPECT_TRUE(job.find()->sure);
  }
}

// One step took a minute: another may, the sooner the more.
TEST(HangDetector, WhoIsAwaySoonAfterAnotherWasForLongerIsOnlySuspected) {
  for (int64_t ago : {3, 100}) {
    StandingJob job(8);
    for (StepNumber step = 0_step; step < 120_step; ++step)
      job.step(step, step == StepNumber{119 - ago} ? 60 * kSecondNs : kSecondNs / 10);
    job.all_enter_but({6_rank});
    job.wait(20 * kSecondNs);
    ASSERT_TRUE(job.find());
    EXPECT_EQ(job.find()->sure, ago == 100);
  }
}

TEST(HangDetector, WithoutStepsAJobThatHasDoneLittleIsOnlySuspected) {
  StandingJob job(8);
  job.all_enter_but({6_rank});
  for (auto& [rank, status] : job.input.status) status.comms[0].collectives_completed = 30;
  job.wait(30 * kSecondNs);
  ASSERT_TRUE(job.find());
  EXPECT_FALSE(job.find()->sure);
  job.wait(700 * kSecondNs);
  EXPECT_TRUE(job.find()->sure);
}

// The first step compiles for minutes, on one rank longer than on the others, after many operations of its first part.
TEST(HangDetector, WhoIsAwayInTheVeryFirstStepIsOnlySuspectedForAWhile) {
  StandingJob job(8);
  job.all_enter_but({6_rank});
  job.input.typical_step_ns = 0;
  for (auto& [rank, status] : job.input.status) status.step = 0_step;
  job.wait(190 * kSecondNs);
  ASSERT_TRUE(job.find());
  EXPECT_FALSE(job.find()->sure);
  job.wait(700 * kSecondNs);
  EXPECT_TRUE(job.find()->sure);
  // A job that marks no steps has its pace by its operations.
  for (auto& [rank, status] : job.input.status) status.step = kNoStep;
  job.wait(10 * kSecondNs);
  EXPECT_TRUE(job.find()->sure);
}

TEST(HangDetector, WhoIsStoppedBeforeItEntersIsNamedAtOnceEvenInTheFirstStep) {
  StandingJob job(8);
  job.all_enter_but({3_rank, 6_rank});
  job.input.typical_step_ns = 0;
  for (auto& [rank, status] : job.input.status) status.step = 0_step;
  job.input.status[6_rank].process_stopped = true;
  job.wait(190 * kSecondNs);
  const std::optional<Finding> hang = job.find();
  ASSERT_TRUE(hang);
  EXPECT_TRUE(hang->sure);
  EXPECT_EQ(hang->ranks, std::vector<Rank>{6_rank});
  EXPECT_EQ(hang->layer, Layer::kHost);
  EXPECT_EQ(hang->cause, Cause::kProcessPaused);
  const std::string sentence = verdict_sentence(*hang, {});
  EXPECT_NE(sentence.find("is stopped and has not entered AllReduce"), std::string::npos) << sentence;
}

// The agent of their node was never heard: neither they nor their places in the groups are known.
TEST(HangDetector, RanksThatNobodyHasHeardOfAreSuspectedWhereAllOthersAreInside) {
  StandingJob job(8);
  const std::vector<Rank> heard{0_rank, 1_rank, 2_rank, 3_rank, 4_rank, 5_rank};
  JobWindow window;
  HangInput input{.status = {}, .typical_step_ns = job.input.typical_step_ns, .whole_job = true};
  job.all_enter_but({});
  for (Rank rank : heard) {
    window.add_rank(job.identity(rank));
    window.add_comm(job.identity(rank), {.comm_id = kWorld, .size = 8, .rank_in_comm = rank.value()});
    input.status[rank] = job.input.status[rank];
  }
  const std::optional<Finding> hang = find_hang(window, input);
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, (std::vector<Rank>{6_rank, 7_rank}));
  EXPECT_FALSE(hang->sure);
  EXPECT_EQ(hang->cause, Cause::kRankMissing);
  input.whole_job = false;
  EXPECT_FALSE(find_hang(window, input)) << "one node alone does not see who is on others";
  input.whole_job = true;
  // Who is known by its place has not been heard of for another reason than that nobody looks.
  for (Rank rank : {6_rank, 7_rank}) {
    window.add_rank(job.identity(rank));
    window.add_comm(job.identity(rank), {.comm_id = kWorld, .size = 8, .rank_in_comm = rank.value()});
    input.status[rank] = job.input.status[rank];
  }
  EXPECT_FALSE(find_hang(window, input));
}

TEST(HangDetector, AReceiveWaitsForItsSender) {
  StandingJob job(4);
  job.receive(3_rank, 2_rank);
  job.receive(2_rank, 1_rank);
  std::optional<Finding> hang = job.find();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, std::vector<Rank>{1_rank});
}

TEST(HangDetector, ADeadProcessIsNamedAsDead) {
  StandingJob job(8);
  job.all_enter_but({6_rank});
  job.input.status[6_rank].process_alive = false;
  std::optional<Finding> hang = job.find();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, std::vector<Rank>{6_rank});
  EXPECT_EQ(hang->cause, Cause::kRankDead);
  EXPECT_EQ(hang->layer, Layer::kHost);
}

TEST(HangDetector, AProcessThatDiedInsideTheOperationIsNamed) {
  StandingJob job(8);
  job.all_enter_but({});
  job.input.status[6_rank].process_alive = false;
  std::optional<Finding> hang = job.find();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, std::vector<Rank>{6_rank});
  EXPECT_EQ(hang->cause, Cause::kRankDead);
}

TEST(HangDetector, ARankThatSavesOrEvaluatesIsBusyNotHung) {
  for (Phase phase : {Phase::kCheckpoint, Phase::kEval}) {
    StandingJob job(8);
    job.all_enter_but({0_rank});
    job.input.status[0_rank].phase = phase;
    for (auto& [rank, status] : job.input.status) status.quiet_ns = 120 * kSecondNs;
    EXPECT_FALSE(job.find());
  }
}

TEST(HangDetector, ARankThatSavesForEverIsHung) {
  StandingJob job(8);
  job.all_enter_but({0_rank});
  job.input.status[0_rank].phase = Phase::kCheckpoint;
  for (auto& [rank, status] : job.input.status) status.quiet_ns = 3600 * kSecondNs;
  std::optional<Finding> hang = job.find();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, std::vector<Rank>{0_rank});
}

TEST(HangDetector, DifferentOperationsInTheSamePlaceAreAMismatch) {
  StandingJob job(8);
  job.all_enter_but({});
  job.at(5_rank, kWorld).collective.function = "AllGather";
  std::optional<Finding> hang = job.find();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, std::vector<Rank>{5_rank});
  EXPECT_EQ(hang->cause, Cause::kOpMismatch);
  EXPECT_EQ(hang->layer, Layer::kSoftware);
}

TEST(HangDetector, DifferentSizesOrTypesOfOneAllReduceAreAMismatch) {
  for (bool size : {true, false}) {
    StandingJob job(8);
    job.all_enter_but({});
    if (size) {
      job.at(5_rank, kWorld).collective.bytes = 8192;
    } else {
      job.at(5_rank, kWorld).collective.datatype = "bfloat16";
    }
    std::optional<Finding> hang = job.find();
    ASSERT_TRUE(hang);
    EXPECT_EQ(hang->ranks, std::vector<Rank>{5_rank});
    EXPECT_EQ(hang->cause, Cause::kOpMismatch);
  }
}

TEST(HangDetector, ACircleIsADeadlock) {
  StandingJob job(4);
  job.add_group(CommId{1}, {0_rank, 1_rank});
  job.add_group(CommId{2}, {0_rank, 1_rank});
  job.enter(0_rank, CommId{1});
  job.enter(1_rank, CommId{2});
  job.receive(2_rank, 0_rank);
  std::optional<Finding> hang = job.find();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, (std::vector<Rank>{0_rank, 1_rank}));
  EXPECT_EQ(hang->cause, Cause::kDeadlock);
}

TEST(HangDetector, EverybodyIdleIsNoHang) {
  StandingJob job(8);
  for (auto& [rank, status] : job.input.status) status.quiet_ns = 3600 * kSecondNs;
  EXPECT_FALSE(job.find());
}

TEST(HangDetector, ARankThatStillMovesIsNotHung) {
  StandingJob job(8);
  job.all_enter_but({6_rank});
  for (auto& [rank, status] : job.input.status) status.quiet_ns = 30 * kSecondNs;
  job.input.status[6_rank].quiet_ns = 0;
  EXPECT_FALSE(job.find());
}

TEST(HangDetector, ARankWhoseWordMayStillBeUnderWayIsNotAccused) {
  StandingJob job(8);
  job.all_enter_but({6_rank});
  for (auto& [rank, status] : job.input.status) status.quiet_ns = 3 * kSecondNs;
  job.input.status.erase(6_rank);
  EXPECT_FALSE(job.find());
}

TEST(HangDetector, WhoHasNoWordIsNotNamedForSureSoonerThanASilentNode) {
  StandingJob job(8);
  job.all_enter_but({6_rank});
  job.input.status.erase(6_rank);
  job.wait(5 * kSecondNs);
  EXPECT_FALSE(job.find()->sure);
  job.wait(7 * kSecondNs);
  EXPECT_TRUE(job.find()->sure);
}

TEST(HangDetector, WhoHasNoWordIsNotNamedBesideOneWhoseWordSaysThatItHasNotEntered) {
  StandingJob job(8);
  job.all_enter_but({2_rank, 6_rank});
  job.input.status.erase(6_rank);
  std::optional<Finding> hang = job.find();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, std::vector<Rank>{2_rank});
  EXPECT_TRUE(hang->sure);
  job.wait(30 * kSecondNs);  // its agent is gone by now
  EXPECT_EQ(job.find()->ranks, (std::vector<Rank>{2_rank, 6_rank}));
}

TEST(HangDetector, WhoHasNoWordIsNotNamedBesideAProcessThatIsStopped) {
  StandingJob job(8);
  job.all_enter_but({6_rank});
  job.input.status.erase(6_rank);
  job.input.status[3_rank].process_stopped = true;
  job.wait(30 * kSecondNs);
  std::optional<Finding> hang = job.find();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, std::vector<Rank>{3_rank});
  EXPECT_EQ(hang->cause, Cause::kProcessPaused);
}

TEST(HangDetector, WhoIsDeadSaysNothingMoreAndIsStillNamedAlone) {
  StandingJob job(8);
  job.all_enter_but({2_rank, 6_rank});
  job.input.status[2_rank].process_alive = false;
  job.input.status[2_rank].time_unix_ns -= 60 * kSecondNs;
  job.wait(60 * kSecondNs);
  std::optional<Finding> hang = job.find();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, std::vector<Rank>{2_rank});
  EXPECT_EQ(hang->cause, Cause::kRankDead);
}

TEST(HangDetector, QuietShorterThanTheLimitIsNoHang) {
  StandingJob job(8);
  job.input.typical_step_ns = 2 * kSecondNs;
  job.all_enter_but({6_rank});
  for (auto& [rank, status] : job.input.status) status.quiet_ns = 6 * kSecondNs;
  EXPECT_FALSE(job.find());
  for (auto& [rank, status] : job.input.status) status.quiet_ns = 8 * kSecondNs;
  EXPECT_TRUE(job.find());
}

TEST(HangDetector, AFewQuietRanksAmongMovingOnesAreNoHang) {
  // Rank 6 does something long, the others have only just come.
  StandingJob job(8);
  job.all_enter_but({6_rank});
  for (auto& [rank, status] : job.input.status) status.quiet_ns = rank == 0_rank ? 5 * kSecondNs : kSecondNs;
  EXPECT_FALSE(job.find());
}

TEST(HangDetector, IsOnlySuspectedAtFirst) {
  StandingJob job(8);
  job.all_enter_but({6_rank});
  for (auto& [rank, status] : job.input.status) status.quiet_ns = hang_after_ns(job.input) + kSecondNs / 10;
  std::optional<Finding> hang = job.find();
  ASSERT_TRUE(hang);
  EXPECT_FALSE(hang->sure);
}

TEST(HangDetector, ARankThatEndedInsteadOfEnteringIsNamed) {
  StandingJob job(8);
  job.all_enter_but({6_rank});
  job.input.status[6_rank].finished = true;
  std::optional<Finding> hang = job.find();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, std::vector<Rank>{6_rank});
}

TEST(HangDetector, RanksThatHaveEndedAreNotWaitedFor) {
  StandingJob job(4);
  for (auto& [rank, status] : job.input.status) status.finished = true;
  job.enter(0_rank);
  EXPECT_FALSE(job.find());
}

TEST(HangDetector, AnOperationThatAllHaveEnteredNamesNobodyAndIsNeverSure) {
  StandingJob job(8);
  job.all_enter_but({});
  EXPECT_FALSE(job.find());
  for (auto& [rank, status] : job.input.status) status.quiet_ns = 60 * kSecondNs;
  std::optional<Finding> hang = job.find();
  ASSERT_TRUE(hang);
  EXPECT_TRUE(hang->ranks.empty());
  EXPECT_EQ(hang->cause, Cause::kInOperationStall);
  EXPECT_FALSE(hang->sure);
}

TEST(HangDetector, AProcessThatIsStoppedInsideTheOperationIsTheCulprit) {
  StandingJob job(8);
  job.all_enter_but({});
  for (auto& [rank, status] : job.input.status) status.quiet_ns = 60 * kSecondNs;
  job.input.status[3_rank].process_stopped = true;
  std::optional<Finding> hang = job.find();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, std::vector<Rank>{3_rank});
  EXPECT_EQ(hang->cause, Cause::kProcessPaused);
  EXPECT_TRUE(hang->sure);
}

TEST(HangDetector, TheRankThatFellSilentFirstInsideTheOperationIsOnlySuspected) {
  StandingJob job(8);
  job.all_enter_but({});
  for (auto& [rank, status] : job.input.status) {
    status.quiet_ns = 60 * kSecondNs;
    status.last_call_unix_ns = kEpochNs - (rank == 5_rank ? 3'000'000 : 1'000'000 - rank.value());
  }
  std::optional<Finding> hang = job.find();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, std::vector<Rank>{5_rank});
  EXPECT_FALSE(hang->sure);
}

TEST(HangDetector, NamesARankOfWhichNothingWasEverHeardAndReportsTheCoverage) {
  StandingJob job(8);
  job.all_enter_but({6_rank});
  job.input.status.erase(6_rank);
  for (auto& [rank, status] : job.input.status) status.quiet_ns = 30 * kSecondNs;
  std::optional<Finding> hang = job.find();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, std::vector<Rank>{6_rank});
  EXPECT_DOUBLE_EQ(hang->coverage, 7.0 / 8);
}

TEST(HangAfter, FollowsTheJobsPace) {
  HangInput input;
  EXPECT_EQ(hang_after_ns(input), 120 * kSecondNs);  // nothing known yet: compilation takes its time
  CommStatus comm;
  comm.collectives_completed = 20;
  input.status[0_rank].comms = {comm};
  EXPECT_EQ(hang_after_ns(input), 3 * kSecondNs);
  input.typical_step_ns = kSecondNs / 100;
  EXPECT_EQ(hang_after_ns(input), 2 * kSecondNs);
  input.typical_step_ns = kSecondNs;
  EXPECT_EQ(hang_after_ns(input), 5 * kSecondNs);
  input.typical_step_ns = 2 * kSecondNs;
  EXPECT_EQ(hang_after_ns(input), 7 * kSecondNs);
  input.typical_step_ns = 10 * kSecondNs;
  EXPECT_EQ(hang_after_ns(input), 30 * kSecondNs);
  input.typical_step_ns = 3600 * kSecondNs;
  EXPECT_EQ(hang_after_ns(input), 120 * kSecondNs);
}

TEST(HangDetector, AnOperationWhoseEndIsNotSeenIsNoHangWhenAllHaveEnteredIt) {
  StandingJob job(4);
  job.all_enter_but({});
  for (Rank rank : all_ranks(4)) {
    job.enter(rank).end_not_seen = true;
    job.input.status.at(rank).quiet_ns = 60 * kSecondNs;
  }
  EXPECT_FALSE(job.find());
  job.at(1_rank, kWorld).collective.end_not_seen = false;  // this one is known to be inside
  EXPECT_TRUE(job.find());
}

TEST(HangDetector, AnOperationWhoseEndIsNotSeenWaitsForTheRankThatHasNotEntered) {
  StandingJob job(4);
  job.all_enter_but({2_rank});
  for (Rank rank : {0_rank, 1_rank, 3_rank}) job.at(rank, kWorld).collective.end_not_seen = true;
  std::optional<Finding> hang = job.find();
  ASSERT_TRUE(hang);
  EXPECT_EQ(hang->ranks, std::vector<Rank>{2_rank});
}

TEST(HangAfter, KnowsThePaceOfStepsWhoseGpuTimesAreUnknown) {
  testing::MadeUpJob made_up(2);
  JobWindow window;
  made_up.play(window, 0_step, 9_step, [](StepNumber, std::vector<testing::RankPlan>& ranks) {
    for (testing::RankPlan& rank : ranks) rank.unseen = true;
  });
  EXPECT_GT(typical_step_ns(window), 0);
}

// Quadratic work would not end before the test's limit in time.
TEST(HangDetector, NamesTheMissingRankOfAVeryLargeJob) {
  constexpr int32_t kRanks = 30'000, kGroup = 500;
  constexpr Rank kMissing{12'345};
  StandingJob job(kRanks);
  std::vector<Rank> group;
  for (Rank rank{kMissing % kGroup}; rank < Rank{kRanks}; rank += kRanks / kGroup) group.push_back(rank);
  ASSERT_TRUE(std::binary_search(group.begin(), group.end(), kMissing));
  job.add_group(CommId{0xD9}, group);
  // Its group waits for it, and so is missing where everybody else is.
  job.all_enter_but({group.begin(), group.end()});
  for (Rank rank : group) {
    if (rank != kMissing) job.enter(rank, CommId{0xD9});
  }
  std::optional<Finding> finding = job.find();
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->ranks, std::vector<Rank>{kMissing});
  EXPECT_EQ(finding->cause, Cause::kRankMissing);
  EXPECT_EQ(finding->victims.size(), static_cast<size_t>(kRanks - 1));
}

}  // namespace
}  // namespace lockstep
