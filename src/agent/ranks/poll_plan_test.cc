#include "agent/ranks/poll_plan.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr int64_t kMs = 1'000'000;

// Polls whenever one is due while a ring fills at the given rate (rings a second); returns the fullest it became.
double fullest_at(PollPlan& plan, double rings_per_s, int polls, int64_t& now_ns) {
  double fullest = 0;
  for (int i = 0; i < polls; ++i) {
    const int64_t since_ns = now_ns;
    now_ns = plan.due_ns();
    const double fill = rings_per_s * static_cast<double>(now_ns - since_ns) / 1e9;
    fullest = std::max(fullest, fill);
    plan.polled(now_ns, fill);
  }
  return fullest;
}

TEST(PollPlan, APollIsRareWhileRingsHaveRoom) {
  PollPlan plan;
  int64_t now_ns = kMs;
  plan.polled(now_ns, 0);
  fullest_at(plan, 0.1, 20, now_ns);
  EXPECT_EQ(plan.due_ns() - now_ns, PollPlan::kUsualNs);
}

TEST(PollPlan, PollsOftenEnoughForARingThatFillsTwentyTimesASecond) {
  PollPlan plan;
  int64_t now_ns = kMs;
  plan.polled(now_ns, 0);
  fullest_at(plan, 20, 5, now_ns);
  EXPECT_LE(fullest_at(plan, 20, 100, now_ns), PollPlan::kFillAimed * 1.01);
}

TEST(PollPlan, ABurstAfterQuietDoesNotFillARing) {
  PollPlan plan;
  int64_t now_ns = kMs;
  plan.polled(now_ns, 0);
  fullest_at(plan, 0, 20, now_ns);
  EXPECT_LT(fullest_at(plan, 3, 20, now_ns), 1.0);
}

TEST(PollPlan, SaysHowLateAPollWas) {
  PollPlan plan;
  plan.polled(kMs, 0);
  plan.polled(plan.due_ns() + 70 * kMs, 0);
  EXPECT_EQ(plan.late_ns(), 70 * kMs);
  plan.polled(plan.due_ns(), 0);
  EXPECT_EQ(plan.late_ns(), 0);
}

}  // namespace
}  // namespace lockstep
