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
    for (int32_t rank = 0; rank < 16; ++rank)
      steps_.rank_started({"job", 0, rank, 16, rank % 8, rank < 8 ? "a" : "b", ""}, kNow);
    asks_.go_live();
  }
  static Verdict hang(std::vector<int32_t> culprits, std::vector<int32_t> victims) {
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
  asks_.note({hang({12}, {1, 2, 3})}, kNow);
  ASSERT_EQ(asked_.requests.size(), 2u);
  EXPECT_EQ(asked_.requests[0], (std::pair<std::string, StackRequest>{"a", {"job", 0, {1}}}));
  EXPECT_EQ(asked_.requests[1], (std::pair<std::string, StackRequest>{"b", {"job", 0, {12}}}));
}

TEST_F(StackRequesterTest, NeverMoreThanEight) {
  EXPECT_EQ(StackRequester::ranks_for(hang({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {11})).size(), StackRequester::kRanksMax);
  EXPECT_EQ(StackRequester::ranks_for(hang({}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9})).size(), StackRequester::kRanksMax / 2);
}

TEST_F(StackRequesterTest, AsksOnceUntilAMinuteAndAHalfHasGoneOrOthersAreNamed) {
  asks_.note({hang({3}, {})}, kNow);
  asks_.note({hang({3}, {})}, kNow + kMinute);
  EXPECT_EQ(asked_.requests.size(), 1u);
  asks_.note({hang({4}, {})}, kNow + kMinute);
  EXPECT_EQ(asked_.requests.size(), 2u);
  for (int i = 2; i < 100; ++i) asks_.note({hang({4}, {})}, kNow + i * 2 * kMinute);
  EXPECT_EQ(asked_.requests.size(), static_cast<size_t>(StackRequester::kAsksMax));
}

TEST_F(StackRequesterTest, SlowJobsAndReplayedHistoryAskNobody) {
  Verdict slow = hang({3}, {});
  slow.kind = VerdictKind::kSlow;
  asks_.note({slow}, kNow);
  StackRequester replayed(steps_, asked_, counters_);
  replayed.note({hang({3}, {})}, kNow);
  EXPECT_TRUE(asked_.requests.empty());
}

}  // namespace
}  // namespace lockstep
