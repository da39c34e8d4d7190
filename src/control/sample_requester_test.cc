#include "control/sample_requester.h"

#include <gtest/gtest.h>

#include "store/memory_step_store.h"
#include "store/store_counters.h"

namespace lockstep {
namespace {

constexpr int64_t kNow = 1'800'000'000'000'000'000;
constexpr int64_t kMinute = 60'000'000'000;

struct Asked final : SampleRequestSender {
  std::vector<std::pair<std::string, SampleRequest>> requests;
  bool ask(const std::string& host, const SampleRequest& request) override {
    requests.emplace_back(host, request);
    return true;
  }
};

class SampleRequesterTest : public ::testing::Test {
 protected:
  SampleRequesterTest() {
    for (Rank rank : all_ranks(16))
      steps_.rank_started({"job", 0, rank, 16, rank % 8, rank < 8_rank ? "a" : "b", ""}, kNow);
    asks_.go_live();
  }
  static Verdict slow(std::vector<Rank> culprits, Layer layer = Layer::kInput) {
    Verdict verdict{.id = "v", .job_id = "job", .state = VerdictState::kConfirmed, .kind = VerdictKind::kSlow};
    verdict.culprit.ranks = std::move(culprits);
    verdict.culprit.layer = layer;
    return verdict;
  }
  Counters counters_{kStoreCounters};
  MemoryStepStore steps_{{}, counters_};
  Asked asked_;
  SampleRequester asks_{steps_, asked_, counters_, true};
};

TEST_F(SampleRequesterTest, AsksForTheCulpritAndItsNeighboursOnceForAConfirmedVerdict) {
  for (int i = 0; i < 3; ++i) asks_.note({slow({7_rank})}, kNow + i * kMinute);
  ASSERT_EQ(asked_.requests.size(), 2u);
  EXPECT_EQ(asked_.requests[0].first, "a");
  EXPECT_EQ(asked_.requests[0].second.ranks, (std::vector<Rank>{6_rank, 7_rank}));
  EXPECT_EQ(asked_.requests[1].second.ranks, (std::vector<Rank>{8_rank}));
  EXPECT_EQ(asked_.requests[0].second.seconds, 5);
}

TEST_F(SampleRequesterTest, NobodyIsAskedForAGpuForASuspicionOrWhereItIsNotSwitchedOn) {
  asks_.note({slow({7_rank}, Layer::kGpu)}, kNow);
  Verdict suspected = slow({7_rank});
  suspected.state = VerdictState::kSuspected;
  asks_.note({suspected}, kNow);
  SampleRequester off(steps_, asked_, counters_, false);
  off.go_live();
  off.note({slow({7_rank})}, kNow);
  SampleRequester replayed(steps_, asked_, counters_, true);
  replayed.note({slow({7_rank})}, kNow);
  EXPECT_TRUE(asked_.requests.empty());
}

TEST_F(SampleRequesterTest, APersonMayAskSoOftenAMinuteForOneJob) {
  const std::optional<JobInfo> job = steps_.job("job");
  const SampleRequest request{.job_id = "job", .ranks = {1_rank, 2_rank}};
  for (size_t i = 0; i < SampleRequester::kPerJobMinute; ++i) EXPECT_TRUE(asks_.ask(*job, request, kNow));
  EXPECT_FALSE(asks_.ask(*job, request, kNow));
  EXPECT_TRUE(asks_.ask(*job, request, kNow + kMinute));
}

}  // namespace
}  // namespace lockstep
