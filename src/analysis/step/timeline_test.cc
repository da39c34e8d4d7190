#include "analysis/step/timeline.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr int64_t kStart = 1'700'000'000'000'000'000;

// A step of 100 ns: input 10, forward to 60, backward to the end; an AllReduce from `arrives` to 90.
RankDetail rank_that_arrives(Rank rank, int64_t arrives) {
  RankDetail one;
  one.identity.rank = rank;
  one.detail.start_unix_ns = kStart;
  one.detail.duration_ns = 100;
  one.detail.phases = {
      {Phase::kInput, "", kStart, 10}, {Phase::kForward, "", kStart + 10, 50}, {Phase::kBackward, "", kStart + 60, 40}};
  one.detail.ops = {{.comm_id = CommId{1},
                     .comm_size = 2,
                     .rank_in_comm = rank.value(),
                     .function = "AllReduce",
                     .ordinal = 7,
                     .enqueued_unix_ns = kStart + arrives,
                     .start_unix_ns = kStart + arrives,
                     .duration_ns = 90 - arrives,
                     .timed = true}};
  return one;
}

TEST(Timeline, ACellShowsWhatTookMostOfItsTimeAndWaitingIsToldFromTheExchange) {
  const std::vector<RankDetail> ranks = {rank_that_arrives(0_rank, 70), rank_that_arrives(1_rank, 80)};
  Timeline timeline = make_timeline(ranks, {}, {.columns = 100});
  ASSERT_EQ(timeline.lines.size(), 2u);
  EXPECT_EQ(timeline.start_unix_ns, kStart);
  EXPECT_EQ(timeline.from_ns, 0);
  EXPECT_EQ(timeline.to_ns, 100);
  EXPECT_EQ(timeline.lines[0].cells, "i10f50b10w10c10b10");
  EXPECT_EQ(timeline.lines[1].cells, "i10f50b20c10b10");
}

TEST(Timeline, AWindowIsCutOutAtFullResolution) {
  const std::vector<RankDetail> ranks = {rank_that_arrives(0_rank, 70), rank_that_arrives(1_rank, 80)};
  Timeline timeline = make_timeline(ranks, {}, {.from_ns = 65, .to_ns = 85, .columns = 20});
  EXPECT_EQ(timeline.lines[0].cells, "b5w10c5");
  // Before and behind the step there is nothing.
  timeline = make_timeline(ranks, {}, {.from_ns = -20, .to_ns = 120, .columns = 14});
  EXPECT_EQ(timeline.lines[0].cells, ".2if5bwcb.2");
}

TEST(Timeline, ManyRanksShareALineWhichShowsTheOneThatDoesNotWait) {
  std::vector<RankDetail> ranks;
  for (Rank rank : all_ranks(64)) ranks.push_back(rank_that_arrives(rank, rank == 21_rank ? 85 : 65));
  Timeline timeline = make_timeline(ranks, {}, {.columns = 20, .lines = 8});
  ASSERT_EQ(timeline.lines.size(), 8u);
  EXPECT_EQ(timeline.lines[2].first_rank, 16_rank);
  EXPECT_EQ(timeline.lines[2].last_rank, 23_rank);
  EXPECT_EQ(timeline.lines[2].shown_rank, 21_rank);
  EXPECT_EQ(timeline.lines[2].cells, "i2f10b5cb2");
  EXPECT_EQ(timeline.lines[0].shown_rank, 0_rank);
}

TEST(Timeline, SpansComeAlongOnlyWhereFewAreInView) {
  const std::vector<RankDetail> ranks = {rank_that_arrives(0_rank, 70), rank_that_arrives(1_rank, 80)};
  Timeline all = make_timeline(ranks, {}, {.columns = 10});
  EXPECT_EQ(all.spans_in_view, 8u);
  ASSERT_EQ(all.spans.size(), 8u);
  EXPECT_EQ(all.spans[3].name, "AllReduce");
  EXPECT_EQ(all.spans[3].wait_ns, 10);
  Timeline few = make_timeline(ranks, {}, {.columns = 10, .spans_most = 7});
  EXPECT_EQ(few.spans_in_view, 8u);
  EXPECT_TRUE(few.spans.empty());
}

TEST(Timeline, AReceiverWaitsUntilTheSenderIsThere) {
  std::vector<RankDetail> ranks = {rank_that_arrives(0_rank, 80), rank_that_arrives(1_rank, 80)};
  for (RankDetail& rank : ranks) {
    OpSpan& op = rank.detail.ops[0];
    op.p2p = true;
    op.seq = 3;
    op.function = rank.identity.rank == 0_rank ? "Send" : "Recv";
    op.ordinal = rank.identity.rank == 0_rank ? 9 : 4;  // counted by each for itself
    op.peer = 1 - rank.identity.rank.value();
  }
  ranks[1].detail.ops[0].start_unix_ns = kStart + 60;
  ranks[1].detail.ops[0].duration_ns = 30;
  Timeline timeline = make_timeline(ranks, {}, {.columns = 100});
  EXPECT_EQ(timeline.lines[0].cells, "i10f50b20m10b10");
  EXPECT_EQ(timeline.lines[1].cells, "i10f50w20m10b10");
}

TEST(Timeline, OfChosenRanksTheWaitingIsStillMeasuredAgainstAll) {
  const std::vector<RankDetail> ranks = {rank_that_arrives(0_rank, 70), rank_that_arrives(1_rank, 80)};
  Timeline timeline = make_timeline(ranks, {}, {.ranks = {0_rank}, .columns = 100});
  ASSERT_EQ(timeline.lines.size(), 1u);
  EXPECT_EQ(timeline.lines[0].cells, "i10f50b10w10c10b10");
  EXPECT_EQ(timeline.spans.size(), 4u);
}

TEST(Timeline, OfNoRanksThereIsNoPicture) {
  EXPECT_TRUE(make_timeline({}, {}, {}).lines.empty());
}

}  // namespace
}  // namespace lockstep
