#include "analysis/step/step_analysis.h"

#include <gtest/gtest.h>

#include <ctime>
#include <limits>

#include "analysis/step/step_testing.h"

namespace lockstep {
namespace {

using testing::PlayedStep;
constexpr CommId kWorld{0xA0};

int64_t ms(double value) {
  return PlayedStep::ns(value);
}

ClockAlignment clocks_of(const PlayedStep& played) {
  return ClockAlignment::estimate(barrier_ends(played.details), message_pairs(played.details));
}
StepAnalysis analyze(const PlayedStep& played, std::span<const RankDetail> details,
                     const std::vector<StepRow>& rows = {}) {
  const JobInfo job = played.job();
  return analyze_step(job, 7_step, details, rows, CommRoles::of(job, {}), clocks_of(played));
}
StepAnalysis analyze(const PlayedStep& played) {
  return analyze(played, played.details);
}
const StepAnalysis::RankTimes& rank_of(const StepAnalysis& analysis, Rank rank) {
  for (const StepAnalysis::RankTimes& entry : analysis.ranks) {
    if (entry.rank == rank) return entry;
  }
  static const StepAnalysis::RankTimes none;
  ADD_FAILURE() << "no rank " << rank;
  return none;
}
void expect_whole_path(const StepAnalysis& analysis) {
  ASSERT_FALSE(analysis.path.empty());
  EXPECT_EQ(analysis.path.front().from_ns, 0);
  EXPECT_EQ(analysis.path.back().to_ns, analysis.length_ns);
  int64_t sum = 0;
  for (size_t i = 0; i < analysis.path.size(); ++i) {
    EXPECT_EQ(analysis.path[i].from_ns, i == 0 ? 0 : analysis.path[i - 1].to_ns) << "a hole before piece " << i;
    EXPECT_GT(analysis.path[i].to_ns, analysis.path[i].from_ns);
    sum += analysis.path[i].to_ns - analysis.path[i].from_ns;
  }
  EXPECT_EQ(sum, analysis.length_ns);
  int64_t by_kind = 0;
  for (int64_t part : analysis.path_ns) by_kind += part;
  EXPECT_EQ(by_kind, analysis.length_ns);
}

TEST(StepAnalysis, SaysWhomEverybodyWaitedForAndForHowLong) {
  PlayedStep played(4);
  played.all_own(100, Phase::kForward);
  played.own(2_rank, 30, Phase::kForward);
  played.collective(kWorld, {0_rank, 1_rank, 2_rank, 3_rank}, 10);
  played.end();
  const StepAnalysis analysis = analyze(played);
  EXPECT_TRUE(analysis.detail);
  EXPECT_TRUE(analysis.ranks_missing.empty());
  EXPECT_NEAR(analysis.length_ns, ms(140), 1000);
  EXPECT_EQ(analysis.waits_total, 3u);
  for (const StepAnalysis::Wait& wait : analysis.waits) {
    EXPECT_EQ(wait.awaited, 2_rank);
    EXPECT_EQ(wait.wait_ns, ms(30));
    EXPECT_EQ(wait.function, "AllReduce");
    EXPECT_EQ(wait.number, 1u);
  }
  EXPECT_EQ(analysis.ranks[0].rank, 2_rank) << "worst first";
  EXPECT_NEAR(analysis.ranks[0].caused_ns, ms(90), 100'000);
  EXPECT_EQ(analysis.ranks[0].last, 1);
  EXPECT_EQ(analysis.ranks[0].wait_ns, 0);
  EXPECT_EQ(rank_of(analysis, 0_rank).wait_ns, ms(30));
  EXPECT_EQ(rank_of(analysis, 0_rank).transfer_ns, ms(10));
  EXPECT_EQ(rank_of(analysis, 0_rank).own_ns, ms(100));
  EXPECT_EQ(analysis.culprit.rank, 2_rank);
  EXPECT_EQ(analysis.culprit.ranks, 3u);
  EXPECT_EQ(analysis.culprit.doing, "forward");
  EXPECT_EQ(sentence_of(analysis),
            "Rank 2 (node-0) made 3 ranks wait 30 ms, in its forward: 21 % of a step of 140 ms.");
  EXPECT_EQ(analysis.late[4], 1);  // 10 to 100 ms
  ASSERT_EQ(analysis.comms.size(), 1u);
  EXPECT_EQ(analysis.comms[0].wait_ns, ms(90));
  EXPECT_EQ(analysis.comms[0].last_rank, 2_rank);
  EXPECT_NEAR(analysis.comms[0].bus_gb_s, 1e6 * 1.5 / 1e7, 1e-6);
  expect_whole_path(analysis);
}

TEST(StepAnalysis, PathGoesThroughTheLastToComeAndAddsUp) {
  PlayedStep played(4);
  played.all_own(10, Phase::kInput);
  played.own(3_rank, 50, Phase::kInput);
  played.all_own(40, Phase::kForward);
  played.collective(kWorld, {0_rank, 1_rank, 2_rank, 3_rank}, 5);
  played.all_own(20, Phase::kBackward);
  played.own(1_rank, 7, Phase::kBackward);
  played.collective(kWorld, {0_rank, 1_rank, 2_rank, 3_rank}, 5);
  played.end();
  const StepAnalysis analysis = analyze(played);
  expect_whole_path(analysis);
  std::vector<std::pair<Rank, std::string>> pieces;
  for (const StepAnalysis::Piece& piece : analysis.path) pieces.emplace_back(piece.rank, piece.what);
  EXPECT_EQ(pieces, (std::vector<std::pair<Rank, std::string>>{{3_rank, "input"},
                                                               {3_rank, "input"},
                                                               {3_rank, "forward"},
                                                               {3_rank, "AllReduce"},
                                                               {1_rank, "backward"},
                                                               {1_rank, "backward"},
                                                               {1_rank, "AllReduce"}}));
  EXPECT_EQ(analysis.path[3].waited_by, 1_rank);
  EXPECT_EQ(analysis.path[3].waited_ns, ms(50));
  EXPECT_NEAR(rank_of(analysis, 3_rank).path_ns, ms(105), 10'000);
  EXPECT_EQ(analysis.culprit.rank, 3_rank);
  EXPECT_EQ(analysis.culprit.doing, "input");
}

// tp groups {0,1} {2,3}, dp groups {0,2} {1,3}. Rank 3 is slow before its tp collective: rank 2 waits for it, rank 0
// waits for rank 2, and rank 2 has done nothing wrong.
TEST(StepAnalysis, ChargesTheStragglerTwoGroupsAway) {
  PlayedStep played(4);
  played.all_own(50, Phase::kForward);
  played.own(3_rank, 40, Phase::kForward);
  played.collective(CommId{0x11}, {0_rank, 1_rank}, 1);
  played.collective(CommId{0x12}, {2_rank, 3_rank}, 1);
  played.all_own(20, Phase::kBackward);
  played.collective(CommId{0x21}, {0_rank, 2_rank}, 4);
  played.collective(CommId{0x22}, {1_rank, 3_rank}, 4);
  played.end();
  const StepAnalysis analysis = analyze(played);
  EXPECT_EQ(analysis.culprit.rank, 3_rank);
  EXPECT_EQ(analysis.culprit.ranks, 3u);
  EXPECT_NEAR(rank_of(analysis, 3_rank).caused_ns, ms(120), ms(1));
  EXPECT_LT(rank_of(analysis, 2_rank).caused_ns, ms(1)) << "waiting is not guilt";
  bool direct = false;
  for (const StepAnalysis::Wait& wait : analysis.waits) direct |= wait.waiter == 0_rank && wait.awaited == 2_rank;
  EXPECT_TRUE(direct) << "rank 0 waited for rank 2 directly";
  expect_whole_path(analysis);
  EXPECT_GE(rank_of(analysis, 3_rank).path_ns, ms(90));
  EXPECT_EQ(analysis.path.front().rank, 3_rank);
}

// Four stages, two micro-batches: rank 2 is slow in its forward, everybody behind waits for it.
TEST(StepAnalysis, FollowsMessagesThroughAPipeline) {
  PlayedStep played(4);
  for (int batch = 0; batch < 2; ++batch) {
    for (int32_t stage = 0; stage < 4; ++stage) {
      if (stage > 0) played.message(CommId{0x30 + static_cast<uint64_t>(stage)}, Rank{stage - 1}, Rank{stage}, 1);
      played.own(Rank{stage}, stage == 2 ? 30 : 10, Phase::kForward);
    }
  }
  for (int32_t stage = 3; stage >= 0; --stage) {
    if (stage < 3) played.message(CommId{0x31 + static_cast<uint64_t>(stage)}, Rank{stage + 1}, Rank{stage}, 1);
    played.own(Rank{stage}, 20, Phase::kBackward);
  }
  played.end();
  const StepAnalysis analysis = analyze(played);
  expect_whole_path(analysis);
  // Twice 30 ms of rank 2 are on the way to the last end.
  int64_t forward_of_2 = 0;
  for (const StepAnalysis::Piece& piece : analysis.path) {
    if (piece.rank == 2_rank && piece.what == "forward") forward_of_2 += piece.to_ns - piece.from_ns;
  }
  EXPECT_EQ(forward_of_2, ms(60));
  EXPECT_EQ(rank_of(analysis, 3_rank).wait_ns > ms(30), true);
  EXPECT_GT(analysis.path_ns[0], ms(100));
}

// Two pipelines of two stages, the second with three times the work of the first: the first waits, by the shape.
TEST(StepAnalysis, WhoWorksNoLongerThanItsEqualsInOtherPipelinesIsNoCulprit) {
  for (const double longer_ms : {0.0, 20.0}) {
    PlayedStep played(4);
    auto both = [&](Rank first, Rank second, double work_ms) {
      played.own(first, work_ms, Phase::kForward);
      played.own(second, work_ms, Phase::kForward);
    };
    both(0_rank, 1_rank, 10);
    played.message(CommId{0x31}, 0_rank, 2_rank, 1);
    played.message(CommId{0x32}, 1_rank, 3_rank, 1);
    both(2_rank, 3_rank, 30);
    played.own(3_rank, longer_ms, Phase::kForward);
    played.message(CommId{0x31}, 2_rank, 0_rank, 1);
    played.message(CommId{0x32}, 3_rank, 1_rank, 1);
    both(0_rank, 1_rank, 10);
    played.end();
    const JobInfo job = played.job();
    const CommUse messages{.messages = 2};
    const CommRoles roles = CommRoles::of(job, {{CommId{0x31}, messages}, {CommId{0x32}, messages}});
    ASSERT_EQ(roles.find(CommId{0x31})->kind, CommKind::kPp);
    const StepAnalysis analysis = analyze_step(job, 7_step, played.details, {}, roles, clocks_of(played));
    if (longer_ms == 0) {
      EXPECT_EQ(analysis.culprit.rank, kNoRank) << sentence_of(analysis);
      EXPECT_TRUE(sentence_of(analysis).starts_with("Nobody works longer than its equals")) << sentence_of(analysis);
    } else {
      EXPECT_EQ(analysis.culprit.rank, 3_rank) << sentence_of(analysis);
      EXPECT_LE(analysis.culprit.typical_ns, ms(20)) << "what it works longer, not what the shape makes others wait";
    }
  }
}

TEST(StepAnalysis, NeedsNoClocksToSayWhoCameLast) {
  PlayedStep played(4);
  played.clock_ns = {0, 3'000'000'000, -2'000'000'000, 500'000'000};
  played.all_own(100);
  played.own(1_rank, 25);
  played.collective(kWorld, {0_rank, 1_rank, 2_rank, 3_rank}, 10);
  played.end();
  const JobInfo job = played.job();
  const StepAnalysis analysis = analyze_step(job, 7_step, played.details, {}, CommRoles::of(job, {}), ClockAlignment());
  EXPECT_EQ(analysis.clocks_unknown, 4u);
  ASSERT_EQ(analysis.waits.size(), 3u);
  for (const StepAnalysis::Wait& wait : analysis.waits) EXPECT_EQ(wait.awaited, 1_rank);
  EXPECT_EQ(analyze(played).culprit.rank, 1_rank) << "and aligned, it is charged";
  EXPECT_NEAR(analyze(played).length_ns, ms(135), 100'000);
}

TEST(StepAnalysis, DoesNotPutInOrderWhatClocksCannotTellApart) {
  // A Broadcast has no rule of least time; its members start 3 us apart, and clocks are known to no better than that.
  PlayedStep played(4);
  played.all_own(10);
  played.collective(kWorld, {0_rank, 1_rank, 2_rank, 3_rank}, 1);
  played.own(2_rank, 0.0005);
  played.collective(kWorld, {0_rank, 1_rank, 2_rank, 3_rank}, 1, "Broadcast");
  played.end();
  const StepAnalysis close = analyze(played);
  EXPECT_EQ(close.waits_total, 0u);
  EXPECT_EQ(close.undecided, 2);
  EXPECT_EQ(close.culprit.rank, kNoRank);
  EXPECT_EQ(sentence_of(close), "Nobody waited long for anybody: the step took 12 ms.");

  PlayedStep apart(4);
  apart.all_own(10);
  apart.collective(kWorld, {0_rank, 1_rank, 2_rank, 3_rank}, 1);
  apart.own(2_rank, 5);
  apart.collective(kWorld, {0_rank, 1_rank, 2_rank, 3_rank}, 1, "Broadcast");
  apart.end();
  const StepAnalysis far = analyze(apart);
  ASSERT_EQ(far.waits_total, 3u);
  EXPECT_EQ(far.waits[0].awaited, 2_rank);
}

// A send is out before the receiver comes: short, and yet it came first.
TEST(StepAnalysis, KnowsThatAShortSendCameBeforeALateReceiver) {
  PlayedStep played(2);
  played.all_own(1);
  played.collective(kWorld, {0_rank, 1_rank}, 0.1);
  played.message(CommId{0x31}, 0_rank, 1_rank, 0.1);
  played.own(1_rank, 50, Phase::kInput);
  played.collective(kWorld, {0_rank, 1_rank}, 0.1);
  played.end();
  // The receiver begins after its input, 50 ms later, and takes 3 ms to fetch what has long been there.
  OpSpan& receive = played.details[1].detail.ops[1];
  ASSERT_EQ(receive.function, "Recv");
  receive.start_unix_ns += ms(47);
  receive.duration_ns = ms(3);
  played.details[1].detail.phases[0].start_unix_ns -= ms(3);
  const StepAnalysis analysis = analyze(played);
  EXPECT_EQ(analysis.culprit.rank, 1_rank);
  EXPECT_EQ(analysis.culprit.doing, "input");
  for (const StepAnalysis::Wait& wait : analysis.waits) EXPECT_EQ(wait.waiter, 0_rank);
}

// Work that was enqueued long before it ran is of the phase in which it was enqueued, not of that in which it ran.
TEST(StepAnalysis, NamesThePhaseInWhichTheHostAskedForTheWork) {
  PlayedStep played(2);
  played.all_own(2, Phase::kForward);
  played.all_own(98, Phase::kSync);
  played.own(1_rank, 40, Phase::kSync);
  played.collective(kWorld, {0_rank, 1_rank}, 1);
  played.end();
  for (RankDetail& rank : played.details) rank.detail.ops[0].enqueued_unix_ns = rank.detail.start_unix_ns + ms(1);
  const StepAnalysis analysis = analyze(played);
  EXPECT_EQ(analysis.culprit.rank, 1_rank);
  EXPECT_EQ(analysis.culprit.doing, "forward");
}

TEST(StepAnalysis, SaysThatARankBeganTheStepLate) {
  PlayedStep played(3);
  played.all_own(50);
  played.collective(kWorld, {0_rank, 1_rank, 2_rank}, 1);
  played.end();
  // Rank 2 begins 20 ms later than the others; they wait for it.
  StepDetail& late = played.details[2].detail;
  late.start_unix_ns += ms(20);
  late.ops[0].start_unix_ns += ms(20);
  late.ops[0].enqueued_unix_ns += ms(20);
  for (Rank rank : {0_rank, 1_rank}) {
    played.details[index_of(rank)].detail.duration_ns += ms(20);
    played.details[index_of(rank)].detail.ops[0].duration_ns += ms(20);
  }
  const StepAnalysis analysis = analyze(played);
  EXPECT_EQ(sentence_of(analysis),
            "Rank 2 (node-0) made 2 ranks wait 20 ms, having begun the step late: 28 % of a step of 71 ms.");
}

TEST(StepAnalysis, CountsTheWaitOfOneKernelOnce) {
  // A send and a receive of one group run in one kernel: rank 1 exchanges with 0 and 2, and waits for 2.
  PlayedStep played(3);
  played.all_own(10);
  played.own(2_rank, 20);
  played.message(CommId{0x31}, 0_rank, 1_rank, 1);
  played.end();
  RankDetail& middle = played.details[1];
  OpSpan other = middle.detail.ops[0];
  middle.detail.ops[0].duration_ns = ms(21);
  other.comm_id = CommId{0x32};
  other.duration_ns = ms(21);
  other.function = "Send";
  other.rank_in_comm = 0;
  other.peer = 1;
  middle.detail.ops.push_back(other);
  middle.detail.duration_ns = ms(31);
  OpSpan from = other;
  from.function = "Recv";
  from.rank_in_comm = 1;
  from.peer = 0;
  from.start_unix_ns += ms(20);
  from.duration_ns = ms(1);
  played.details[2].detail.ops.push_back(from);
  played.details[2].detail.duration_ns = ms(31);
  const JobInfo job = played.job();
  const StepAnalysis analysis = analyze_step(job, 7_step, played.details, {}, CommRoles::of(job, {}), ClockAlignment());
  EXPECT_EQ(rank_of(analysis, 1_rank).wait_ns, ms(20));
  ASSERT_EQ(analysis.waits_total, 1u);
  EXPECT_EQ(analysis.waits[0].awaited, 2_rank);
}

TEST(StepAnalysis, SaysOfWhichRanksItHasNoDetailAndStillNamesTheOneTheyWaitFor) {
  PlayedStep played(4);
  played.all_own(100);
  played.own(2_rank, 30);
  played.collective(kWorld, {0_rank, 1_rank, 2_rank, 3_rank}, 10);
  played.end();
  std::vector<RankDetail> some = {played.details[0], played.details[3]};
  const StepAnalysis analysis = analyze(played, some, played.rows());
  EXPECT_TRUE(analysis.detail);
  EXPECT_EQ(analysis.ranks_detailed, 2u);
  EXPECT_EQ(analysis.ranks_missing, (std::vector<Rank>{1_rank, 2_rank}));
  EXPECT_EQ(analysis.ranks.size(), 4u);
  EXPECT_EQ(analysis.culprit.rank, 2_rank);
  ASSERT_FALSE(analysis.waits.empty());
  EXPECT_EQ(analysis.waits[0].awaited, 2_rank);
  EXPECT_TRUE(analysis.waits[0].from_summary);
  expect_whole_path(analysis);
  EXPECT_EQ(analysis.path.back().kind, StepAnalysis::Kind::kWaiting);
  EXPECT_EQ(analysis.path.back().waits_for, 2_rank);

  // Without summaries: whom they waited for is not known, and nobody is made up.
  const StepAnalysis alone = analyze(played, some);
  EXPECT_EQ(alone.culprit.rank, kNoRank);
  expect_whole_path(alone);
}

TEST(StepAnalysis, FallsBackToSummaries) {
  PlayedStep played(4);
  played.all_own(50);
  played.own(3_rank, 40);
  played.collective(CommId{0x11}, {0_rank, 1_rank}, 1);
  played.collective(CommId{0x12}, {2_rank, 3_rank}, 1);
  played.all_own(20);
  played.collective(CommId{0x21}, {0_rank, 2_rank}, 4);
  played.collective(CommId{0x22}, {1_rank, 3_rank}, 4);
  played.end();
  const StepAnalysis analysis = analyze(played, {}, played.rows());
  EXPECT_FALSE(analysis.detail);
  EXPECT_TRUE(analysis.path.empty());
  EXPECT_EQ(analysis.culprit.rank, 3_rank) << "two hops away";
  EXPECT_NEAR(analysis.length_ns, ms(115), ms(1));
  EXPECT_EQ(analysis.ranks_missing.size(), 4u);
  const StepAnalysis nothing = analyze(played, {}, {});
  EXPECT_EQ(sentence_of(nothing), "Cannot tell: nothing is known of this step any more.");
}

TEST(StepAnalysis, FromSummariesChargesTheRankThatWorkedLongestThroughAPipeline) {
  PlayedStep played(4);  // tensor pairs 0-1 and 2-3, stages 0 and 1
  for (int batch = 0; batch < 4; ++batch) {
    played.all_own(10);
    played.own(1_rank, 8);
    played.collective(CommId{0x11}, {0_rank, 1_rank}, 1);
    played.collective(CommId{0x12}, {2_rank, 3_rank}, 1);
    played.message(CommId{0x31}, 0_rank, 2_rank, 1);
    played.message(CommId{0x32}, 1_rank, 3_rank, 1);
  }
  played.collective(CommId{0x41}, {0_rank, 1_rank, 2_rank, 3_rank}, 1);
  played.end();
  const StepAnalysis analysis = analyze(played, {}, played.rows());
  EXPECT_EQ(analysis.culprit.rank, 1_rank) << sentence_of(analysis);
  EXPECT_EQ(analysis.culprit.ranks, 3u);
}

TEST(StepAnalysis, FromSummariesNobodyIsChargedWhereAllWorkAlike) {
  PlayedStep played(4);
  played.all_own(50);
  played.collective(CommId{0x11}, {0_rank, 1_rank}, 1);
  played.collective(CommId{0x12}, {2_rank, 3_rank}, 1);
  played.end();
  EXPECT_EQ(analyze(played, {}, played.rows()).culprit.rank, kNoRank);
}

TEST(StepAnalysis, TakesNonsenseFromOutsideWithoutHarm) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();
  PlayedStep played(3);
  played.all_own(10, Phase::kForward);
  played.collective(kWorld, {0_rank, 1_rank, 2_rank}, 1);
  played.message(CommId{0x31}, 0_rank, 1_rank, 1);
  played.end();
  for (int64_t bad : {kMost, kLeast, int64_t{0}, int64_t{-5}}) {
    for (int64_t length : {kMost, kLeast, int64_t{0}}) {
      std::vector<RankDetail> details = played.details;
      details[0].detail.start_unix_ns = bad;
      details[0].detail.duration_ns = length;
      details[1].detail.ops[0].start_unix_ns = bad;
      details[1].detail.ops[0].duration_ns = length;
      details[2].detail.phases[0].start_unix_ns = bad;
      details[2].detail.phases[0].duration_ns = length;
      details[2].detail.ops.push_back(details[2].detail.ops[0]);  // twice
      std::vector<StepRow> rows = played.rows();
      rows[0].summary.start_unix_ns = bad;
      rows[0].summary.duration_ns = length;
      const StepAnalysis analysis = analyze(played, details, rows);
      EXPECT_EQ(analysis.ranks.size(), 3u);
      analyze(played, {}, rows);
    }
  }
}

TEST(StepAnalysis, IsQuickForFourThousandRanks) {
  PlayedStep played(4096);
  for (int layer = 0; layer < 10; ++layer) {
    played.all_own(1, Phase::kForward);
    played.own(1234_rank, 3, Phase::kForward);
    for (int turn = 0; turn < 9; ++turn) {
      for (int32_t group = 0; group < 512; ++group) {
        std::vector<Rank> ranks;
        for (int32_t i = 0; i < 8; ++i) ranks.push_back(Rank{group * 8 + i});
        played.collective(CommId{0x1000 + static_cast<uint64_t>(group)}, ranks, 0.1);
      }
    }
    for (int32_t group = 0; group < 64; ++group) {
      std::vector<Rank> ranks;
      for (int32_t i = 0; i < 64; ++i) ranks.push_back(Rank{i * 64 + group});
      played.collective(CommId{0x2000 + static_cast<uint64_t>(group)}, ranks, 0.5);
    }
  }
  played.end();
  const JobInfo job = played.job();
  const CommRoles roles = CommRoles::of(job, {});
  const std::vector<BarrierEnd> ends = barrier_ends(played.details);
  const ClockAlignment clocks = ClockAlignment::estimate(ends, {});
  const std::clock_t began = std::clock();
  const StepAnalysis analysis = analyze_step(job, 7_step, played.details, {}, roles, clocks);
  RecordProperty("cpu_ms", static_cast<int>((std::clock() - began) * 1000 / CLOCKS_PER_SEC));
  EXPECT_EQ(analysis.culprit.rank, 1234_rank);
  EXPECT_EQ(analysis.waits.size(), std::min(analysis.waits_total, StepAnalysis::kWaitsMax));
  expect_whole_path(analysis);
}

}  // namespace
}  // namespace lockstep
