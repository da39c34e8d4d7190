// Clocks that are made up, so that the truth is known. The cases are also the rows of bench/results/alignment.md:
//   LOCKSTEP_ALIGNMENT_TABLE=bench/results/alignment.md build/dev/tests/query_test --gtest_filter='*Alignment*Table*'
#include "analysis/clocks/clock_alignment.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>

#include "analysis/clocks/clock_testing.h"
#include "base/text.h"
#include "store/memory_step_store.h"
#include "store/store_counters.h"

namespace lockstep {
namespace {

using testing::ClockPlan;
using testing::MadeUpClocks;

struct Case {
  const char* name;
  const char* what;
  ClockPlan plan;
  double p99_us;  // at most
};

std::vector<Case> cases() {
  std::vector<Case> list;
  auto add = [&](const char* name, const char* what, double p99_us, auto change) {
    Case entry{name, what, {}, p99_us};
    change(entry.plan);
    list.push_back(entry);
  };
  add("ddp8", "8 ranks, one communicator", 20, [](ClockPlan& plan) { plan.tp = 1, plan.dp = 8, plan.pp = 1; });
  add("chain8", "tp 2 x dp 2 x pp 2: stages joined by messages alone", 40, [](ClockPlan&) {});
  add("grid512", "tp 8 x dp 64", 20, [](ClockPlan& plan) { plan.tp = 8, plan.dp = 64, plan.pp = 1; });
  add("silent20", "tp 8 x dp 64, 20 % of ranks silent, 10 % of rows lost", 20,
      [](ClockPlan& plan) { plan.tp = 8, plan.dp = 64, plan.pp = 1, plan.silent_share = 0.2, plan.row_loss = 0.1; });
  add("noisy", "tp 8 x dp 64, one dp group leaves 500 us apart", 20,
      [](ClockPlan& plan) { plan.tp = 8, plan.dp = 64, plan.pp = 1, plan.noisy_comms = 1; });
  add("late10", "tp 8 x dp 64, 10 % of ends up to 50 ms too late", 20,
      [](ClockPlan& plan) { plan.tp = 8, plan.dp = 64, plan.pp = 1, plan.late_share = 0.1, plan.late_ms = 50; });
  add("ring", "tp 8 x dp 64, rings end up to 15 us apart, always alike", 20,
      [](ClockPlan& plan) { plan.tp = 8, plan.dp = 64, plan.pp = 1, plan.ring_us = 15; });
  add("detail", "tp 8 x dp 64, detail of one step alone", 20,
      [](ClockPlan& plan) { plan.tp = 8, plan.dp = 64, plan.pp = 1, plan.summaries = false, plan.steps = 1; });
  add("world1024", "1,024 ranks with a communicator of all", 20,
      [](ClockPlan& plan) { plan.tp = 8, plan.dp = 16, plan.pp = 8, plan.world = true, plan.messages = false; });
  add("big4096", "tp 8 x dp 64 x pp 8: 4,096 ranks, stages joined by messages", 40,
      [](ClockPlan& plan) { plan.tp = 8, plan.dp = 64, plan.pp = 8, plan.messages_per_step = 1; });
  add("big4096s", "the same, 20 % of ranks silent", 40, [](ClockPlan& plan) {
    plan.tp = 8, plan.dp = 64, plan.pp = 8, plan.messages_per_step = 1, plan.silent_share = 0.2;
  });
  return list;
}

class ClockAlignmentCase : public ::testing::TestWithParam<Case> {};

TEST_P(ClockAlignmentCase, IsWithinItsBoundAndItsErrorBars) {
  const Case& entry = GetParam();
  MadeUpClocks job(entry.plan);
  const ClockAlignment alignment = ClockAlignment::estimate(job.ends, job.messages);
  const MadeUpClocks::Judged judged = job.judge(alignment);
  size_t silent = 0;
  for (Rank rank : all_ranks(entry.plan.ranks())) silent += job.silent(rank);
  EXPECT_EQ(judged.unknown, silent);
  EXPECT_LT(judged.p99_us, entry.p99_us);
  EXPECT_GE(judged.within, entry.plan.ranks() < 20 ? 0.85 : 0.95);  // one of 8 is more than 5 %
  EXPECT_LT(judged.bar_p50_us, 100);                                // a bar that holds anything is no bar
}

INSTANTIATE_TEST_SUITE_P(Cases, ClockAlignmentCase, ::testing::ValuesIn(cases()),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(ClockAlignment, ErrorBarsHoldTheTruthInNineteenOfTwentyRanksOverManySmallJobs) {
  double within = 0;
  size_t ranks = 0;
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    ClockPlan plan;
    plan.seed = seed;
    plan.dp = 4;
    plan.pp = 1;
    MadeUpClocks job(plan);
    const MadeUpClocks::Judged judged = job.judge(ClockAlignment::estimate(job.ends, {}));
    within += judged.within * static_cast<double>(judged.ranks);
    ranks += judged.ranks;
  }
  EXPECT_GE(within / static_cast<double>(ranks), 0.95);
}

TEST(ClockAlignment, SaysNothingOfRanksThatNothingConnects) {
  ClockPlan plan;
  plan.messages = false;
  MadeUpClocks job(plan);
  const ClockAlignment alignment = ClockAlignment::estimate(job.ends, {});
  // Two stages of four, each aligned in itself.
  EXPECT_EQ(job.judge(alignment, 0).ranks, 4u);
  EXPECT_EQ(job.judge(alignment, 1).ranks, 4u);
  EXPECT_LT(job.judge(alignment, 1).worst_us, 30);
  EXPECT_TRUE(std::isfinite(alignment.error_between_ns(0_rank, 1_rank)));
  EXPECT_FALSE(std::isfinite(alignment.error_between_ns(0_rank, 4_rank)));
  EXPECT_EQ(alignment.clock(99_rank), nullptr);
  EXPECT_EQ(alignment.job_time(99_rank, 12345), 12345);

  const std::vector<BarrierEnd> alone = {{CommId{1}, 1, 7_rank, MadeUpClocks::kStartNs, 0}};
  const ClockAlignment nobody = ClockAlignment::estimate(alone, {});
  ASSERT_NE(nobody.clock(7_rank), nullptr);
  EXPECT_FALSE(nobody.clock(7_rank)->known);
  EXPECT_EQ(nobody.job_time(7_rank, 12345), 12345);
  EXPECT_EQ(nobody.error_ns(), 0);
}

TEST(ClockAlignment, TakesMessagesOfOneDirectionForNoEstimate) {
  ClockPlan plan;
  plan.tp = 1, plan.dp = 1, plan.pp = 2;
  MadeUpClocks job(plan);
  EXPECT_EQ(job.judge(ClockAlignment::estimate({}, job.messages)).ranks, 2u);
  std::erase_if(job.messages, [](const MessagePair& message) { return message.from_rank == 1_rank; });
  EXPECT_EQ(job.judge(ClockAlignment::estimate({}, job.messages)).ranks, 0u);
}

TEST(ClockAlignment, ErrorBarOfAMessageIsItsOwnTime) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    ClockPlan plan;
    plan.seed = seed;
    plan.tp = 1, plan.dp = 1, plan.pp = 8;
    MadeUpClocks job(plan);
    const MadeUpClocks::Judged judged = job.judge(ClockAlignment::estimate({}, job.messages));
    EXPECT_EQ(judged.ranks, 8u);
    EXPECT_LT(judged.worst_us, 100) << seed;
    EXPECT_GE(judged.within, 0.85) << seed;
  }
}

// The wall clock was stepped by an hour between the starts of two processes of one host: each counts from its own
// anchor, so the second is an hour off for all of its life.
TEST(ClockAlignment, HandlesAWallClockThatWasSteppedBetweenTwoProcessesOfOneHost) {
  ClockPlan plan;
  plan.pp = 1;
  plan.offset_s = 0;
  plan.drift_ppm = 0;
  MadeUpClocks job(plan);
  constexpr int64_t kHourNs = 3'600'000'000'000;
  for (BarrierEnd& end : job.ends) end.end_unix_ns += end.rank == 1_rank ? kHourNs : 0;
  const ClockAlignment alignment = ClockAlignment::estimate(job.ends, {});
  ASSERT_TRUE(alignment.clock(1_rank)->known);
  EXPECT_NEAR(alignment.clock(1_rank)->offset_ns - alignment.clock(0_rank)->offset_ns, static_cast<double>(kHourNs),
              1e6);
  const int64_t moment = MadeUpClocks::kStartNs + 10'000'000'000;
  EXPECT_NEAR(static_cast<double>(alignment.job_time(1_rank, moment + kHourNs) - alignment.job_time(0_rank, moment)), 0,
              20'000);
}

TEST(ClockAlignment, KeepsARanksOwnOrderWhateverItsClockDoes) {
  MadeUpClocks job(ClockPlan{});
  const ClockAlignment alignment = ClockAlignment::estimate(job.ends, job.messages);
  for (Rank rank : all_ranks(8)) {
    int64_t before = 0;
    for (int64_t ns = 0; ns < 64'000'000'000; ns += 999'999'937) {
      const int64_t now = alignment.job_time(rank, MadeUpClocks::kStartNs + ns);
      EXPECT_GT(now, before);
      before = now;
    }
  }
}

TEST(ClockAlignment, WidensTheBarsOfRanksWhoseMessagesWouldArriveBeforeTheyWereSent) {
  ClockPlan plan;
  plan.pp = 1;
  MadeUpClocks job(plan);
  const std::vector<MessagePair> impossible = {
      {0_rank, 1_rank, job.shown(0_rank, 10'000'000'000.0), job.shown(1_rank, 10'000'000'000.0 - 3'000'000.0)}};
  const ClockAlignment alignment = ClockAlignment::estimate(job.ends, impossible);
  EXPECT_GT(alignment.clock(0_rank)->error_ns, 2'900'000);
  EXPECT_GT(alignment.clock(1_rank)->error_ns, 2'900'000);
  EXPECT_LT(alignment.clock(2_rank)->error_ns, 100'000);
}

TEST(ClockAlignment, TakesNonsenseFromOutsideWithoutHarm) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();
  MadeUpClocks job(ClockPlan{.dp = 8, .pp = 1});
  for (int64_t bad : {kMost, kLeast, int64_t{-1}, int64_t{0}, int64_t{1}, kMost / 2}) {
    job.ends.push_back({CommId{0x1000}, kStepKey + 3, 0_rank, bad, bad});
    job.ends.push_back({CommId{0x77}, 9, 1_rank, bad, kLeast});
    job.ends.push_back({CommId{0x77}, 9, 2_rank, bad, kMost});
    job.ends.push_back({CommId{0x77}, 10, Rank{static_cast<int32_t>(bad)}, bad, 5});
    job.messages.push_back({1_rank, 2_rank, bad, kMost});
    job.messages.push_back({2_rank, 2_rank, bad, bad});
  }
  const ClockAlignment alignment = ClockAlignment::estimate(job.ends, job.messages);
  EXPECT_LT(job.judge(alignment).p50_us, 200);  // a communicator that lies is believed a little
  for (const RankClock& clock : alignment.clocks()) {
    EXPECT_TRUE(std::isfinite(clock.offset_ns) && std::isfinite(clock.drift_ppm) && std::isfinite(clock.error_ns));
    alignment.job_time(clock.rank, kMost);
    alignment.job_time(clock.rank, kLeast);
  }
}

TEST(BarrierEnds, OfSummariesAreCollectivesWhoseTimesAreKnown) {
  Counters counters(kStoreCounters);
  MemoryStepStore store({}, counters);
  for (Rank rank : all_ranks(3)) {
    StepSummary step;
    step.step = 4_step;
    step.records_lost = rank == 2_rank ? 1 : 0;
    CommStep comm;
    comm.comm_id = CommId{0xA};
    comm.count = 2;
    comm.gpu_ns = 3000;
    comm.last_end_unix_ns = 1'000'000 + rank.value();
    step.comms.push_back(comm);
    comm.comm_id = CommId{0xB};
    comm.p2p = true;
    step.comms.push_back(comm);
    comm.comm_id = CommId{0xC};
    comm.p2p = false;
    comm.unseen = 1;
    step.comms.push_back(comm);
    store.append_step({"job", 0, rank, 3, 0, "h", "g"}, step, 1);
  }
  const std::vector<BarrierEnd> ends = barrier_ends(store, "job", 0_step, 10_step);
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[1].comm_id, CommId{0xA});
  EXPECT_EQ(ends[1].key, kStepKey + 4);
  EXPECT_EQ(ends[1].rank, 1_rank);
  EXPECT_EQ(ends[1].end_unix_ns, 1'000'001);
  EXPECT_EQ(ends[1].spent_ns, 1500);
}

TEST(MessagePairs, AreFoundBySequenceOfThePair) {
  auto op = [](const char* function, int32_t me, int32_t peer, uint64_t seq, int64_t start) {
    OpSpan span;
    span.comm_id = CommId{5};
    span.p2p = true;
    span.timed = true;
    span.function = function;
    span.rank_in_comm = me;
    span.peer = peer;
    span.seq = seq;
    span.start_unix_ns = start;
    span.duration_ns = 10;
    return span;
  };
  std::vector<RankDetail> details(2);
  details[0].identity.rank = 40_rank;
  details[1].identity.rank = 41_rank;
  details[0].detail.ops = {op("Send", 0, 1, 7, 100), op("Send", 0, 1, 8, 200), op("Recv", 0, 1, 7, 300)};
  details[1].detail.ops = {op("Recv", 1, 0, 8, 205), op("Send", 1, 0, 9, 290)};
  const std::vector<MessagePair> pairs = message_pairs(details);
  ASSERT_EQ(pairs.size(), 1u);
  EXPECT_EQ(pairs[0].from_rank, 40_rank);
  EXPECT_EQ(pairs[0].to_rank, 41_rank);
  EXPECT_EQ(pairs[0].sent_unix_ns, 200);
  EXPECT_EQ(pairs[0].received_unix_ns, 215);
}

void write_unseen(std::ostream& out) {
  struct Noise {
    const char* name;
    double exit_us, ring_us, late_share, row_loss, step_s;
  };
  constexpr int32_t kShapes[][3] = {{2, 4, 1}, {4, 4, 1}, {4, 16, 1}, {8, 8, 1}, {1, 16, 1}, {2, 4, 4}, {8, 32, 2}};
  for (const Noise& noise :
       {Noise{"exits 1 us, rings 2 us", 1, 2, 0.005, 0, 0.3}, Noise{"exits 5 us, rings 4 us", 5, 4, 0.02, 0, 1},
        Noise{"exits 20 us, rings 10 us, 5 % late, 5 % lost", 20, 10, 0.05, 0.05, 2},
        Noise{"exits 3 us, rings 12 us", 3, 12, 0.02, 0, 1}}) {
    double within = 0, ranks = 0, least = 2, p99_us = 0;
    std::string worst;
    for (const auto& shape : kShapes) {
      double here = 0, count = 0;
      for (uint32_t seed = 9001; seed <= 9015; ++seed) {
        ClockPlan plan;
        plan.tp = shape[0], plan.dp = shape[1], plan.pp = shape[2], plan.seed = seed, plan.steps = 40;
        plan.exit_us = noise.exit_us, plan.ring_us = noise.ring_us, plan.late_share = noise.late_share;
        plan.row_loss = noise.row_loss, plan.step_s = noise.step_s;
        MadeUpClocks job(plan);
        const MadeUpClocks::Judged judged = job.judge(ClockAlignment::estimate(job.ends, job.messages));
        here += judged.within * static_cast<double>(judged.ranks);
        count += static_cast<double>(judged.ranks);
        p99_us = std::max(p99_us, judged.p99_us);
      }
      within += here;
      ranks += count;
      if (here / count >= least) continue;
      least = here / count;
      worst = format("tp %d x dp %d x pp %d", shape[0], shape[1], shape[2]);
    }
    out << format("| %s | %.1f %% | %s | %.1f %% | %.1f us |\n", noise.name, within / ranks * 100, worst.c_str(),
                  least * 100, p99_us);
  }
}

// Writes the table when asked to, and is a fast check that every case runs otherwise done above.
TEST(ClockAlignment, TableOfAllCases) {
  const char* path = std::getenv("LOCKSTEP_ALIGNMENT_TABLE");
  if (path == nullptr) GTEST_SKIP() << "LOCKSTEP_ALIGNMENT_TABLE names the file to write";
  std::vector<Case> list = cases();
  Case huge{"", "tp 8 x dp 1,568 x pp 8: 100,352 ranks, 16 steps", {}, 40};
  huge.plan.tp = 8, huge.plan.dp = 1568, huge.plan.pp = 8, huge.plan.steps = 16, huge.plan.messages_per_step = 1;
  list.push_back(huge);
  std::ofstream out(path);
  out << "# Clock alignment on made-up clocks\n\n"
         "Written by `src/analysis/clocks/clock_alignment_test.cc` (how: its first lines). Unless a row says "
         "otherwise: 64 steps "
         "of 1 s,\nclocks off by up to 2 s and drifting by up to 50 ppm, ends leave 5 us late on average "
         "(exponential), "
         "rings end up to 4 us\napart always the same way, 2 % of ends up to 5 ms too late, one end per communicator "
         "and "
         "step rounded to 1,024 ns, messages\nof 15 to 65 us between neighbouring stages. Error: of a time on the "
         "job's "
         "axis, the worst moment of the window per rank.\n\n"
         "| job | ends + messages | ranks known | error p50 | p99 | worst | error bar p50 | truth within bar | CPU "
         "time |\n"
         "|---|---|---|---|---|---|---|---|---|\n";
  for (const Case& entry : list) {
    MadeUpClocks job(entry.plan);
    const std::clock_t began = std::clock();  // of the processor: others may be working here
    const ClockAlignment alignment = ClockAlignment::estimate(job.ends, job.messages);
    const double took_ms = static_cast<double>(std::clock() - began) * 1e3 / CLOCKS_PER_SEC;
    const MadeUpClocks::Judged judged = job.judge(alignment);
    out << format("| %s | %s + %s | %s | %.1f us | %.1f us | %.1f us | %.1f us | %.1f %% | %.0f ms |\n", entry.what,
                  with_thousands(static_cast<int64_t>(job.ends.size())).c_str(),
                  with_thousands(static_cast<int64_t>(job.messages.size())).c_str(),
                  with_thousands(static_cast<int64_t>(judged.ranks)).c_str(), judged.p50_us, judged.p99_us,
                  judged.worst_us, judged.bar_p50_us, judged.within * 100, took_ms);
  }
  out << "\nThe constants behind the error bars were chosen while looking at clocks of this kind, so the table above "
         "is no "
         "score. Other\nseeds and noise, never looked at before (15 seeds each):\n\n"
         "| noise | truth within bar, all jobs | worst job | its share | p99, worst |\n|---|---|---|---|---|\n";
  write_unseen(out);
}

}  // namespace
}  // namespace lockstep
