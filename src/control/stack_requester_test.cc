#include "control/stack_requester.h"

#include <gtest/gtest.h>

#include "store/memory_step_store.h"
#include "store/store_counters.h"

namespace lockstep {
namespace {

constexpr int64_t kNow = 1'800'000'000'000'000'000;
constexpr int64_t kMinute = 60'000'000'000;

struct Asked final : StackRequestSender {
  std::vector<std::pair<std::string, StackRequest>> requests;
  bool ask(const std::string& host, const StackRequest& request) override {
    requests.emplace_back(host, request);
    return true;
  }
};

class StackRequesterTest : public ::testing::Test {
 protected:
  StackRequesterTest() {
    for (Rank rank : all_ranks(16))
      steps_.rank_started({"job", 0, rank, 16, rank % 8, rank < 8_rank ? "a" : "b", ""}, kNow);
    asks_.go_live();
  }
  static Verdict hang(std::vector<Rank> culprits, std::vector<Rank> victims) {
    Verdict verdict{.id = "v", .job_id = "job", .state = VerdictState::kSuspected, .kind = VerdictKind::kHang};
    verdict.culprit.ranks = std::move(culprits);
    verdict.victim_ranks = std::move(victims);
    return verdict;
  }
  Counters counters_{kStoreCounters};
  MemoryStepStore steps_{{}, counters_};
  Asked asked_;
  StackRequester asks_{steps_, asked_, counters_};
};

TEST_F(StackRequesterTest, AsksTheCulpritsHostAndThatOfOneWhoWaits) {
  asks_.note({hang({12_rank}, {1_rank, 2_rank, 3_rank})}, kNow);
  ASSERT_EQ(asked_.requests.size(), 2u);
  EXPECT_EQ(asked_.requests[0], (std::pair<std::string, StackRequest>{"a", {"job", 0, {1_rank}}}));
  EXPECT_EQ(asked_.requests[1], (std::pair<std::string, StackRequest>{"b", {"job", 0, {12_rank}}}));
}

TEST_F(StackRequesterTest, NeverMoreThanEight) {
  EXPECT_EQ(StackRequester::ranks_for(
                hang({0_rank, 1_rank, 2_rank, 3_rank, 4_rank, 5_rank, 6_rank, 7_rank, 8_rank, 9_rank}, {11_rank}))
                .size(),
            StackRequester::kRanksMax);
  EXPECT_EQ(StackRequester::ranks_for(
                hang({}, {0_rank, 1_rank, 2_rank, 3_rank, 4_rank, 5_rank, 6_rank, 7_rank, 8_rank, 9_rank}))
                .size(),
            StackRequester::kRanksMax / 2);
}

TEST_F(StackRequesterTest, AsksOnceUntilAMinuteAndAHalfHasGoneOrOthersAreNamed) {
  asks_.note({hang({3_rank}, {})}, kNow);
  asks_.note({hang({3_rank}, {})}, kNow + kMinute);
  EXPECT_EQ(asked_.requests.size(), 1u);
  asks_.note({hang({4_rank}, {})}, kNow + kMinute);
  EXPECT_EQ(asked_.requests.size(), 2u);
  for (int i = 2; i < 100; ++i) asks_.note({hang({4_rank}, {})}, kNow + i * 2 * kMinute);
  EXPECT_EQ(asked_.requests.size(), static_cast<size_t>(StackRequester::kAsksMax));
}

TEST_F(StackRequesterTest, AConfirmedHangAsksForEverybodyElseOnce) {
  Verdict confirmed = hang({12_rank}, {1_rank, 2_rank});
  confirmed.state = VerdictState::kConfirmed;
  for (int i = 0; i < 3; ++i) asks_.note({confirmed}, kNow);
  size_t ranks = 0;
  for (const auto& [host, request] : asked_.requests) ranks += request.ranks.size();
  EXPECT_EQ(asked_.requests.size(), 4u);
  EXPECT_EQ(ranks, 16u);
}

TEST_F(StackRequesterTest, SlowJobsAndReplayedHistoryAskNobody) {
  Verdict slow = hang({3_rank}, {});
  slow.kind = VerdictKind::kSlow;
  asks_.note({slow}, kNow);
  StackRequester replayed(steps_, asked_, counters_);
  replayed.note({hang({3_rank}, {})}, kNow);
  EXPECT_TRUE(asked_.requests.empty());
}

}  // namespace
}  // namespace lockstep
