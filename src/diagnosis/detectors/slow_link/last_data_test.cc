#include "diagnosis/detectors/slow_link/last_data.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "diagnosis/detectors/slow_link/slow_link.h"
#include "diagnosis/testing.h"

namespace lockstep {
namespace {

using testing::MadeUpJob;
using testing::RankPlan;
using testing::StepPlan;

constexpr int32_t kRanks = 8;

// A job whose ranks exchange with all others in every step; no wire is seen. last: whose data comes last in it; nobody's:
// all wait alike.
struct ExchangeJob {
  JobWindow window;
  MadeUpJob job{kRanks};
  std::mt19937 random{5};

  Rank anybody() { return Rank{std::uniform_int_distribution<int32_t>(0, kRanks - 1)(random)}; }

  void play(StepNumber from, StepNumber to, double transfer_ms, const std::function<Rank()>& last,
            const StepPlan& plan = {}) {
    std::uniform_int_distribution<int64_t> waits(1'000'000, 3'000'000);
    job.groups.front().transfer_ms = transfer_ms;
    for (StepNumber number = from; number <= to; ++number) {
      const Rank latest = last();
      for (auto& [who, row] : job.step(number, plan)) {
        for (Rank peer{0}; peer < Rank{kRanks}; ++peer) {
          if (peer == who.rank) continue;
          for (const bool send : {true, false}) {
            FlowStep flow{.comm_id = job.groups.front().comm_id, .peer = peer.value(), .send = send, .transfers = 10};
            flow.bytes = 1'000'000;
            flow.wire_ns = send ? 1'000'000 : 10'000;
            flow.own_gpu_ns = latest == kNoRank ? 1'000'000 : peer == latest ? 100'000 : waits(random);
            row.flows.push_back(flow);
          }
        }
        window.add_step(who, row);
      }
      window.remember(0);
    }
  }
  std::vector<Finding> found() { return find_slow_links(window, {}); }
};

TEST(LastData, OfOneRankInEveryStepIsItsSlowLink) {
  ExchangeJob job;
  job.play(0_step, 29_step, 5, [&] { return job.anybody(); });
  EXPECT_TRUE(job.found().empty());
  job.play(30_step, 41_step, 80, [] { return 6_rank; });
  const std::vector<Finding> found = job.found();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].ranks, std::vector<Rank>{6_rank});
  EXPECT_EQ(found[0].layer, Layer::kLink);
  EXPECT_EQ(found[0].component, "link from rank 6");
  EXPECT_TRUE(found[0].sure);
  EXPECT_NEAR(static_cast<double>(found[0].lost_ns_per_step), 75e6, 3e6);
  EXPECT_GE(found[0].since_step, 28_step);
  EXPECT_LE(found[0].since_step, 31_step);
}

TEST(LastData, IsSuspectedBeforeItIsSure) {
  ExchangeJob job;
  job.play(0_step, 29_step, 5, [&] { return job.anybody(); });
  size_t suspected = 0, sure = 0;
  for (StepNumber step = 30_step; sure == 0 && step < 50_step; ++step) {
    job.play(step, step, 80, [] { return 6_rank; });
    const std::vector<Finding> found = job.found();
    suspected += !found.empty() && !found[0].sure;
    sure += !found.empty() && found[0].sure;
  }
  EXPECT_GE(suspected, 1u);
  EXPECT_EQ(sure, 1u);
}

TEST(LastData, OfAnotherRankInEveryStepIsNobodys) {
  ExchangeJob job;
  job.play(0_step, 29_step, 5, [&] { return job.anybody(); });
  job.play(30_step, 89_step, 80, [&] { return job.anybody(); });
  EXPECT_TRUE(job.found().empty());
}

TEST(LastData, IsNothingWhereNobodysIs) {
  ExchangeJob job;
  job.play(0_step, 29_step, 5, [] { return kNoRank; });
  job.play(30_step, 49_step, 80, [] { return kNoRank; });
  EXPECT_TRUE(job.found().empty());
}

TEST(LastData, OfARankThatIsLateItselfIsNoLink) {
  ExchangeJob job;
  job.play(0_step, 29_step, 5, [&] { return job.anybody(); });
  job.play(30_step, 41_step, 5, [] { return 6_rank; },
           [](StepNumber, std::vector<RankPlan>& ranks) { ranks[6].own_ms += 75; });
  EXPECT_FALSE(slow_link::whose_data_is_last(job.window, job.window.steps_to_compare()));
}

TEST(LastData, CostsNothingThatCouldBeToldWithoutStepsBefore) {
  ExchangeJob job;
  job.play(0_step, 29_step, 80, [] { return 6_rank; });
  EXPECT_TRUE(job.found().empty());
}

TEST(LastData, ThatTakesNoLongerThanBeforeIsNobodysFault) {
  ExchangeJob job;
  job.play(0_step, 29_step, 5, [&] { return job.anybody(); });
  job.play(30_step, 59_step, 5, [] { return 6_rank; });
  EXPECT_TRUE(job.found().empty());
}

}  // namespace
}  // namespace lockstep
