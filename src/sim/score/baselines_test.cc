#include "sim/score/baselines.h"

#include <gtest/gtest.h>

#include "model/events.h"
#include "sim/score/observe.h"
#include "wire/otlp.h"

namespace lockstep::sim {
namespace {

constexpr int32_t kRanks = 8;
constexpr Rank kGuilty{5};

// All in one group: who is late makes the others wait in the collective.
std::string step_bytes(StepNumber step, double guilty_more) {
  Batch batch;
  for (Rank rank : all_ranks(kRanks)) {
    Identity identity;
    identity.job_id = "job";
    identity.rank = rank;
    identity.world_size = kRanks;
    identity.host = "node-0";
    StepSummary summary;
    summary.step = step;
    const double own = rank == kGuilty ? 80e6 * (1 + guilty_more) : 80e6;
    summary.duration_ns = static_cast<int64_t>(80e6 * (1 + guilty_more) + 10e6);
    summary.self_ns = static_cast<int64_t>(own);
    summary.comm_ns = summary.duration_ns - summary.self_ns;
    CommStep comm;
    comm.comm_id = CommId{77};
    comm.size = kRanks;
    comm.rank_in_comm = rank.value();
    comm.count = 1;
    comm.gpu_ns = comm.shortest_ns = comm.longest_ns = summary.comm_ns;
    summary.comms.push_back(comm);
    ResourceGroup& group = batch.groups.emplace_back();
    group.resource = to_resource(identity);
    group.logs.push_back(to_record(summary));
  }
  return otlp::encode(batch);
}

std::vector<ReadVerdict> played(Rule rule, double guilty_more, int64_t faulty_steps = 15) {
  Baselines rules;
  for (StepNumber step = 0_step; step < 40_step + faulty_steps; ++step) {
    rules.receive(Signal::kLogs, step_bytes(step, step < 40_step ? 0 : guilty_more), step.value());
    rules.tick(step.value());
  }
  return *read_verdicts(rules.verdicts_of(rule, "job"));
}

TEST(Baselines, NameWhoTheirRuleIsAbout) {
  for (Rule rule : {Rule::kSlowestRank, Rule::kGroupMedian, Rule::kRandomWalk}) {
    const std::vector<ReadVerdict> verdicts = played(rule, 0.5);
    ASSERT_EQ(verdicts.size(), 1u) << to_text(rule);
    EXPECT_EQ(verdicts[0].state, VerdictState::kConfirmed);
    EXPECT_EQ(verdicts[0].ranks, std::vector<Rank>{kGuilty});
    EXPECT_EQ(verdicts[0].layer, Layer::kGpu);
  }
}

TEST(Baselines, TheLongestCollectiveIsAVictims) {
  const std::vector<ReadVerdict> verdicts = played(Rule::kLongestCollective, 0.5);
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_NE(verdicts[0].ranks, std::vector<Rank>{kGuilty});
  EXPECT_EQ(verdicts[0].layer, Layer::kLink);
}

TEST(Baselines, AGuessAccusesSomebodyOnceAndTheSameOneEachTime) {
  const std::vector<ReadVerdict> verdicts = played(Rule::kRandomGuess, 0.5);
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].state, VerdictState::kConfirmed);
  EXPECT_EQ(verdicts, played(Rule::kRandomGuess, 0.5));
}

TEST(Baselines, AreSilentWhileNothingChanges) {
  for (size_t i = 0; i < kRuleCount; ++i) EXPECT_TRUE(played(static_cast<Rule>(i), 0).empty());
}

TEST(Baselines, SuspectBeforeTheyConfirm) {
  const std::vector<ReadVerdict> verdicts = played(Rule::kSlowestRank, 0.5, 4);
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].state, VerdictState::kSuspected);
}

}  // namespace
}  // namespace lockstep::sim
