#include "diagnosis/detectors/workload/workload.h"

#include <gtest/gtest.h>

#include "diagnosis/detectors/straggler/straggler.h"
#include "diagnosis/testing.h"

namespace lockstep {
namespace {

using testing::MadeUpJob;
using testing::PlannedGroup;
using testing::RankPlan;

// Own time in proportion to tokens, which differ by rank and step.
void pack(StepNumber step, std::vector<RankPlan>& ranks, double spread, bool reported) {
  std::mt19937 random(static_cast<uint32_t>(step.value()) * 7919u + 1);
  for (RankPlan& rank : ranks) {
    const double factor = 1 + spread * (static_cast<double>(random() % 1000) / 1000 - 0.5);
    rank.own_ms *= factor;
    rank.queue_ms *= factor;
    if (reported) rank.scalars = {{"tokens", 8192 * factor}};
  }
}

TEST(Workload, PackedSequencesAreWorkloadAndNobodyIsAccused) {
  MadeUpJob job(16);
  JobWindow window;
  job.play(window, 0_step, 40_step,
           [](StepNumber step, std::vector<RankPlan>& ranks) { pack(step, ranks, 0.6, true); });
  EXPECT_TRUE(find_stragglers(window, {}).empty());
  std::vector<Finding> findings = find_uneven_work(window, {});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, VerdictKind::kInefficient);
  EXPECT_EQ(findings[0].layer, Layer::kWorkload);
  EXPECT_EQ(findings[0].cause, Cause::kSequenceImbalance);
  EXPECT_TRUE(findings[0].ranks.empty());
  EXPECT_GT(findings[0].lost_ns_per_step, 10'000'000);
}

TEST(Workload, AMildSpreadOfTokensIsHowBatchesAre) {
  MadeUpJob job(16);
  JobWindow window;
  job.play(window, 0_step, 40_step,
           [](StepNumber step, std::vector<RankPlan>& ranks) { pack(step, ranks, 0.06, true); });
  EXPECT_TRUE(find_uneven_work(window, {}).empty());
}

TEST(Workload, ASlowGpuIsFoundThroughPackedSequences) {
  MadeUpJob job(16);
  JobWindow window;
  job.play(window, 0_step, 40_step, [](StepNumber step, std::vector<RankPlan>& ranks) {
    pack(step, ranks, 0.4, true);
    ranks[5].own_ms += 30;
    ranks[5].queue_ms += 30;
  });
  std::vector<Finding> findings = find_stragglers(window, {});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{5_rank});
  EXPECT_EQ(findings[0].layer, Layer::kGpu);
}

MadeUpJob experts_job() {
  MadeUpJob job(8);
  PlannedGroup experts{.comm_id = CommId{0xE0},
                       .ranks = {0_rank, 1_rank, 2_rank, 3_rank, 4_rank, 5_rank, 6_rank, 7_rank},
                       .transfer_ms = 5,
                       .p2p = true};
  job.groups.insert(job.groups.begin(), experts);
  return job;
}

// Half of its time is the expert's; and what goes out does not grow with what comes in: 6 % more to do are 2 % more bytes.
TEST(Workload, ASmallLastingShareOfAnExpertIsNoSlowGpu) {
  MadeUpJob job = experts_job();
  JobWindow window;
  job.play(window, 0_step, 60_step, [](StepNumber step, std::vector<RankPlan>& ranks) {
    std::mt19937 random(static_cast<uint32_t>(step.value()) + 3);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const double work = step < 20_step ? 0 : rank == 3 ? 0.06 : rank == 6 ? -0.06 : 0;
      ranks[rank].bytes_factor = 1 + work / 3;
      ranks[rank].own_ms = 100 * (1 + work / 2) + 0.4 * static_cast<double>(random() % 100) / 100;
    }
  });
  EXPECT_TRUE(find_stragglers(window, {}).empty());
}

TEST(Workload, TheOwnerOfAHotExpertIsNamedAsWorkload) {
  MadeUpJob job = experts_job();
  JobWindow window;
  job.play(window, 0_step, 40_step, [](StepNumber step, std::vector<RankPlan>& ranks) {
    std::mt19937 random(static_cast<uint32_t>(step.value()) + 3);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const double share = (rank == 3 ? 1.5 : 1.0) * (1 + 0.05 * (static_cast<double>(random() % 100) / 100 - 0.5));
      ranks[rank].bytes_factor = share;
      ranks[rank].own_ms = 60 + 40 * share;
    }
  });
  EXPECT_TRUE(find_stragglers(window, {}).empty());
  std::vector<Finding> findings = find_uneven_work(window, {});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].cause, Cause::kExpertImbalance);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{3_rank});
}

// Eight pipelines of four stages: a group of four for each, and all together at the end.
MadeUpJob pipelines(int32_t replicas) {
  MadeUpJob job(replicas * 4);
  for (int32_t replica = 0; replica < replicas; ++replica) {
    PlannedGroup pipeline{.comm_id = CommId{0x100 + static_cast<uint64_t>(replica)}, .transfer_ms = 2, .p2p = true};
    for (int32_t stage = 0; stage < 4; ++stage) pipeline.ranks.push_back(Rank{stage * replicas + replica});
    job.groups.insert(job.groups.begin(), pipeline);
  }
  return job;
}

void name_pipelines(const MadeUpJob& job, uint64_t replicas, JobWindow& window) {
  for (uint64_t replica = 0; replica < replicas; ++replica)
    window.add_comm(job.identity(0_rank),
                    {.comm_id = CommId{0x100 + replica}, .size = 4, .rank_in_comm = 0, .name = "pp"});
}

TEST(Workload, AStageWithMoreLayersIsNamedWithAllItsRanks) {
  MadeUpJob job = pipelines(8);
  JobWindow window;
  name_pipelines(job, 8, window);
  job.play(window, 0_step, 40_step, [](StepNumber, std::vector<RankPlan>& ranks) {
    for (size_t rank = 24; rank < 32; ++rank) ranks[rank].own_ms *= 1.3;
  });
  EXPECT_TRUE(find_stragglers(window, {}).empty());
  std::vector<Finding> findings = find_uneven_work(window, {});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].cause, Cause::kStageImbalance);
  EXPECT_EQ(findings[0].ranks,
            (std::vector<Rank>{24_rank, 25_rank, 26_rank, 27_rank, 28_rank, 29_rank, 30_rank, 31_rank}));
}

// Three ranks a stage: what their steps have more has to be beyond the limit however the noise of so few steps falls.
TEST(Workload, AStageOfFewRanksThatIsAtTheLimitByNoiseIsNotNamed) {
  for (const double noise : {0.0, 0.13}) {
    MadeUpJob job = pipelines(3);
    JobWindow window;
    name_pipelines(job, 3, window);
    job.play(window, 0_step, 40_step, [&](StepNumber step, std::vector<RankPlan>& ranks) {
      const double more = 0.16 + noise * static_cast<double>(step.value() % 3 - 1);
      for (size_t rank = 9; rank < 12; ++rank) ranks[rank].own_ms *= 1 + more;
    });
    EXPECT_EQ(find_uneven_work(window, {}).size(), noise == 0 ? 1u : 0u) << noise;
  }
}

TEST(Workload, OneSlowRankOfAStageIsNoStage) {
  MadeUpJob job = pipelines(8);
  JobWindow window;
  job.play(window, 0_step, 40_step, [](StepNumber, std::vector<RankPlan>& ranks) { ranks[25].own_ms *= 1.5; });
  EXPECT_TRUE(find_uneven_work(window, {}).empty());
  std::vector<Finding> findings = find_stragglers(window, {});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, std::vector<Rank>{25_rank});
}

}  // namespace
}  // namespace lockstep
