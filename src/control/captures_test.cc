#include "control/captures.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "store/memory_step_store.h"
#include "store/sqlite_state_store.h"
#include "store/store_counters.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

struct Agents final : ProfileRequestSender {
  std::vector<std::pair<std::string, ProfileRequest>> requests;
  bool takes = true;
  bool ask(const std::string& host, const ProfileRequest& request) override {
    if (takes) requests.emplace_back(host, request);
    return takes;
  }
};

class CapturesTest : public ::testing::Test {
 protected:
  CapturesTest() {
    for (const Rank rank : all_ranks(16)) {
      steps_.rank_started(identity(rank), clock_.unix_ns());
      for (int64_t step = 90; step <= 100; ++step)
        steps_.append_step(identity(rank), {.step = StepNumber{step}, .duration_ns = kSecondNs / 2}, clock_.unix_ns());
    }
    open();
  }
  void open() {
    captures_.reset();
    state_.reset();
    state_ = open_sqlite_state_store(folder_.path() + "/state.sqlite").value();
    captures_ = std::make_unique<Captures>(CaptureLimits{.ranks_per_capture = 4}, false, steps_, *state_, agents_,
                                           clock_, counters_);
    captures_->go_live();
  }
  static Identity identity(Rank rank) { return {"job", 0, rank, 16, rank % 8, rank < 8_rank ? "a" : "b", ""}; }
  JobInfo job() const { return *steps_.job("job"); }
  void reports(const std::string& id, Rank rank, ProfileState state, std::string reason = "") {
    clock_.advance(1'000);
    captures_->on_profile_state(identity(rank), {clock_.unix_ns(), id, state, std::move(reason)}, clock_.unix_ns());
  }
  CaptureRank rank_of(const std::string& id, size_t index) const { return captures_->find("job", id)->ranks.at(index); }

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_;
  Counters counters_{kStoreCounters};
  MemoryStepStore steps_{{}, counters_};
  std::unique_ptr<StateStore> state_;
  Agents agents_;
  std::unique_ptr<Captures> captures_;
};

TEST_F(CapturesTest, StartAllRanksAtOneStepThatNobodyHasReached) {
  const Result<Capture> begun = captures_->begin(job(), {.ranks = {1_rank, 9_rank}, .steps = 5});
  ASSERT_TRUE(begun.ok()) << begun.error();
  ASSERT_EQ(agents_.requests.size(), 2u);
  const ProfileRequest& first = agents_.requests[0].second;
  EXPECT_EQ(agents_.requests[0].first, "a");
  EXPECT_EQ(first.ranks, std::vector<Rank>{1_rank});
  EXPECT_EQ(agents_.requests[1].second.ranks, std::vector<Rank>{9_rank});
  EXPECT_EQ(first.start_step, agents_.requests[1].second.start_step);
  EXPECT_GE((first.start_step - job().last_step) * kSecondNs / 2, Captures::kLeadNs)
      << "twelve seconds, in half seconds";
  EXPECT_EQ(first.duration_ms, 2'500);
  EXPECT_TRUE(check(first).ok());
}

TEST_F(CapturesTest, FollowEachRankToItsEndAndOutliveARestart) {
  const std::string id = captures_->begin(job(), {.ranks = {1_rank, 9_rank}})->order.capture;
  reports(id, 1_rank, ProfileState::kArmed);
  reports(id, 1_rank, ProfileState::kTracing);
  reports(id, 9_rank, ProfileState::kFailed, "no Kineto: it does not ask");
  captures_->on_profile_ready(
      identity(1_rank), {clock_.unix_ns(), id, "t/job/x/rank-1.json.gz", 7, std::string(64, 'a'), 125_step, 5}, 0);
  reports(id, 1_rank, ProfileState::kDone);
  // Another rank, job or attempt says nothing of these.
  Identity other = identity(9_rank);
  other.attempt = 1;
  captures_->on_profile_state(other, {clock_.unix_ns() + 1, id, ProfileState::kTracing}, 0);
  captures_->tick();
  const Capture before = *captures_->find("job", id);
  EXPECT_TRUE(before.ended());
  EXPECT_EQ(before.ranks[0].key, "t/job/x/rank-1.json.gz");
  EXPECT_EQ(before.ranks[1].reason, "no Kineto: it does not ask");
  EXPECT_FALSE(captures_->find("another", id));
  open();
  ASSERT_TRUE(captures_->find("job", id));
  EXPECT_EQ(*captures_->find("job", id), before);
}

TEST_F(CapturesTest, SayThatNoAgentTookTheOrderUntilOneDoes) {
  const std::string id = captures_->begin(job(), {.ranks = {1_rank}})->order.capture;
  clock_.advance(Captures::kSilentNs);
  captures_->tick();
  EXPECT_EQ(rank_of(id, 0).state, ProfileState::kFailed);
  EXPECT_TRUE(rank_of(id, 0).reason.starts_with("no agent: none of a")) << rank_of(id, 0).reason;
  reports(id, 1_rank, ProfileState::kWaiting);
  EXPECT_EQ(rank_of(id, 0).state, ProfileState::kWaiting);
  clock_.advance(2'000 * kSecondNs);
  captures_->tick();
  EXPECT_EQ(rank_of(id, 0).reason, "its agent has said nothing more after waiting");
}

TEST_F(CapturesTest, AreRefusedBeyondTheirLimits) {
  EXPECT_FALSE(captures_->begin(job(), {.ranks = {}}).ok());
  EXPECT_FALSE(captures_->begin(job(), {.ranks = {0_rank, 1_rank, 2_rank, 3_rank, 4_rank}}).ok());
  EXPECT_FALSE(captures_->begin(job(), {.ranks = {99_rank}}).ok());
  EXPECT_FALSE(captures_->begin(job(), {.ranks = {1_rank}, .steps = 1'000}).ok());
  EXPECT_TRUE(agents_.requests.empty());
  const std::string id = captures_->begin(job(), {.ranks = {1_rank}})->order.capture;
  const Result<Capture> second = captures_->begin(job(), {.ranks = {2_rank}});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error(), "a capture of this job is under way");
  reports(id, 1_rank, ProfileState::kDone);
  EXPECT_TRUE(captures_->begin(job(), {.ranks = {2_rank}}).ok());
}

TEST_F(CapturesTest, FailAtOnceWhereAHostIsAskedForTooMuch) {
  agents_.takes = false;
  const Result<Capture> begun = captures_->begin(job(), {.ranks = {1_rank}});
  ASSERT_TRUE(begun.ok());
  EXPECT_EQ(begun->ranks[0].state, ProfileState::kFailed);
}

TEST_F(CapturesTest, AreTakenByThemselvesOnlyWhereSwitchedOnAndWithinABudget) {
  Verdict verdict{.id = "v1", .job_id = "job", .state = VerdictState::kConfirmed, .kind = VerdictKind::kSlow};
  verdict.culprit.ranks = {9_rank};
  captures_->note({verdict});
  EXPECT_TRUE(agents_.requests.empty());
  captures_->set_automatic("job", true);
  Verdict hang = verdict;
  hang.kind = VerdictKind::kHang;
  captures_->note({hang});
  EXPECT_TRUE(agents_.requests.empty()) << "what stands still has no kernels";
  captures_->note({verdict});
  captures_->note({verdict});
  ASSERT_EQ(captures_->of_job("job").size(), 1u) << "once for a verdict";
  const Capture first = captures_->of_job("job").front();
  EXPECT_EQ(first.by, "verdict v1");
  EXPECT_EQ(first.order.ranks, (std::vector<Rank>{0_rank, 9_rank})) << "the culprit, and one to compare with";
  for (int i = 2; i < 10; ++i) {
    for (const Capture& capture : captures_->of_job("job")) {
      for (const CaptureRank& rank : capture.ranks) reports(capture.order.capture, rank.rank, ProfileState::kDone);
    }
    verdict.id = "v" + std::to_string(i);
    captures_->note({verdict});
  }
  EXPECT_EQ(captures_->of_job("job").size(), Captures::kAutomaticPerJob);
}

TEST_F(CapturesTest, AreGivenOutForAnalysisOnceTheyHaveEndedAndAgainWhenATraceComesLate) {
  const std::string id = captures_->begin(job(), {.ranks = {1_rank, 9_rank}})->order.capture;
  const auto ready = [&](Rank rank) {
    captures_->on_profile_ready(identity(rank), {clock_.unix_ns(), id, "default/job/f", 5, std::string(64, '0')},
                                clock_.unix_ns());
  };
  ready(1_rank);
  EXPECT_FALSE(captures_->has_for_analysis()) << "rank 9 has not ended";
  clock_.advance(Captures::kSilentNs);
  captures_->tick();
  ASSERT_TRUE(captures_->has_for_analysis());
  EXPECT_EQ(captures_->take_for_analysis()->order.capture, id);
  EXPECT_FALSE(captures_->take_for_analysis()) << "it is being analysed";
  clock_.advance(2 * kSecondNs);
  captures_->tick();
  open();
  ASSERT_TRUE(captures_->take_for_analysis()) << "which a restart has ended";
  captures_->set_summary(id, {SummaryState::kFailed, "its trace is damaged", 1});
  clock_.advance(2 * kSecondNs);
  captures_->tick();
  open();
  EXPECT_FALSE(captures_->has_for_analysis());
  EXPECT_EQ(captures_->find("job", id)->summary, (CaptureSummary{SummaryState::kFailed, "its trace is damaged", 1}));
  ready(9_rank);
  EXPECT_TRUE(captures_->has_for_analysis());
}

TEST_F(CapturesTest, SayThatTheyAreNotAnalysedWhereTooManyWaitedAtTheStart) {
  Capture capture = *captures_->begin(job(), {.ranks = {1_rank}});
  capture.ranks[0].state = ProfileState::kDone;
  capture.ranks[0].key = "default/job/f";
  for (size_t i = 0; i < Captures::kAnalyzedAtStart + 1; ++i) {
    capture.order.capture = format("p-%012zx", i);
    capture.begun_unix_ns += kSecondNs;
    JsonWriter json;
    write_capture(json, capture);
    ASSERT_TRUE(state_->save_capture({capture.order.capture, capture.begun_unix_ns, json.text()}).ok());
  }
  open();
  const CaptureSummary left_out = captures_->find("job", "p-000000000000")->summary;
  EXPECT_EQ(left_out.state, SummaryState::kFailed);
  EXPECT_EQ(left_out.error, "not analysed: 101 captures waited for it when the server started (limit 100)");
  EXPECT_EQ(captures_->find("job", "p-000000000001")->summary.state, SummaryState::kNone);
  for (size_t i = 0; i < Captures::kAnalyzedAtStart; ++i) ASSERT_TRUE(captures_->take_for_analysis());
  EXPECT_FALSE(captures_->has_for_analysis());
}

TEST_F(CapturesTest, WhatFailedAtOnceIsStillFailedAfterARestart) {
  agents_.takes = false;
  const std::string id = captures_->begin(job(), {.ranks = {1_rank}})->order.capture;
  clock_.advance(2 * kSecondNs);
  captures_->tick();
  open();
  EXPECT_EQ(rank_of(id, 0).reason, "its host is asked for too much already");
}

}  // namespace
}  // namespace lockstep
