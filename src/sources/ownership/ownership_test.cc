#include "sources/ownership/ownership.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

ProcessFacts process_with(Environment environment, CgroupFacts cgroup = {}) {
  ProcessFacts facts;
  facts.pid = 100;
  facts.user = "anna";
  facts.cgroup_read = facts.environment_read = true;
  facts.environment = std::move(environment);
  facts.cgroup = std::move(cgroup);
  return facts;
}

const PodRef kPod{"team", "llama-worker-3", "trainer"};

TEST(Ownership, TakesTheJobInTheOrderOfTheDesign) {
  Environment all{{"LOCKSTEP_JOB_ID", "mine"}, {"SLURM_JOB_ID", "77"}, {"TORCHELASTIC_RUN_ID", "elastic"}};
  const CgroupFacts slurm{"78", "0", "", ""};
  auto job = [](const ProcessFacts& facts) {
    const Owner owner = owner_from_process(facts, kPod).owner;
    return owner.job_id + " " + owner.source;
  };
  EXPECT_EQ(job(process_with(all, slurm)), "mine environment");
  all.erase("LOCKSTEP_JOB_ID");
  EXPECT_EQ(job(process_with(all, slurm)), "78 slurm") << "a variable may be inherited, a cgroup is not";
  EXPECT_EQ(job(process_with(all)), "77 slurm");
  all.erase("SLURM_JOB_ID");
  EXPECT_EQ(job(process_with(all)), "elastic torchelastic");
  all["TORCHELASTIC_RUN_ID"] = "none";
  EXPECT_EQ(job(process_with(all)), "team/llama kubernetes");
  EXPECT_EQ(job(process_with({{"JOB_NAME", "nightly"}})), "team/nightly kubernetes");
  EXPECT_EQ(owner_from_process(process_with({{"JOB_NAME", "nightly"}}), std::nullopt).owner.job_id, "")
      << "outside a pod that name is anybody's";
}

TEST(Ownership, TakesRankAndAttemptFromTheFirstLauncherThatTells) {
  const ProcessOwner torchrun = owner_from_process(
      process_with({{"RANK", "13"}, {"LOCAL_RANK", "5"}, {"SLURM_PROCID", "1"}, {"TORCHELASTIC_RESTART_COUNT", "2"}}),
      std::nullopt);
  EXPECT_EQ(torchrun.owner.rank, 13_rank);
  EXPECT_EQ(torchrun.local_rank, 5);
  EXPECT_EQ(torchrun.owner.attempt, 2);
  EXPECT_TRUE(torchrun.attempt_reported);
  EXPECT_EQ(owner_from_process(process_with({{"OMPI_COMM_WORLD_RANK", "4"}}), std::nullopt).owner.rank, 4_rank);
  EXPECT_EQ(owner_from_process(process_with({{"PMI_RANK", "6"}}), std::nullopt).owner.rank, 6_rank);
  EXPECT_EQ(owner_from_process(process_with({{"JOB_COMPLETION_INDEX", "2"}}), kPod).owner.rank, 2_rank);
  EXPECT_EQ(owner_from_process(process_with({{"RANK", "all"}}), std::nullopt).owner.rank, kNoRank);
  EXPECT_FALSE(owner_from_process(process_with({}), std::nullopt).attempt_reported);
}

TEST(Ownership, ARecordersOwnWordGoesFirstUnlessItKnewNoName) {
  const ProcessOwner process = owner_from_process(process_with({{"RANK", "0"}}, {"78", "0", "", ""}), std::nullopt);
  Identity recorder{"llama", 3, 5_rank, 8, 5, "gpu-017", ""};
  ProcessOwner both = with_recorder(process, recorder);
  EXPECT_EQ(both.owner, (Owner{"llama", 3, 5_rank, "anna", "", "", "", "recorder"}));
  recorder.job_id = "unknown-gpu-017-4242";
  recorder.rank = kNoRank;
  both = with_recorder(process, recorder);
  EXPECT_EQ(both.owner, (Owner{"78", 3, 0_rank, "anna", "", "", "", "slurm"}));
  EXPECT_EQ(with_recorder({}, recorder).owner.job_id, "unknown-gpu-017-4242") << "still better than none";
}

TEST(Ownership, AnIdIsAsLongAsARecorderCanHoldIt) {
  const ProcessFacts facts = process_with({{"LOCKSTEP_JOB_ID", std::string(300, 'x')}});
  EXPECT_EQ(owner_from_process(facts, std::nullopt).owner.job_id.size(), 127u);
}

TEST(Ownership, AllPodsOfAJobHaveOneId) {
  for (const char* pod : {"llama-worker-3", "llama-master-0", "llama-launcher-x7k2p", "llama-0-x7k2p", "llama-0",
                          "llama-6d5f9c7b8d-x7k2p", "llama-workers-0-3-x7k2p", "llama"})
    EXPECT_EQ(job_of_pod("team", pod), "team/llama") << pod;
  EXPECT_EQ(job_of_pod("", "llama-70b-worker-1"), "llama-70b");
  EXPECT_EQ(job_of_pod("team", "train-tests"), "team/train-tests") << "a word is not a hash";
  EXPECT_EQ(job_of_pod("team", "12345"), "team/12345");
  EXPECT_EQ(job_of_pod("team", "-0"), "team/-0");
  EXPECT_EQ(job_of_pod("team", ""), "team/");
}

TEST(Ownership, TakesAGpuFromTheEnvironmentOnlyByItsUuid) {
  std::vector<GpuInfo> gpus(2);
  gpus[0].uuid = "GPU-aaaa-1";
  gpus[1].uuid = "GPU-aaab-2";
  auto gpu = [&](Environment environment, int32_t local_rank) {
    return gpu_from_environment(process_with(std::move(environment)), local_rank, gpus);
  };
  EXPECT_EQ(gpu({{"CUDA_VISIBLE_DEVICES", "GPU-aaaa-1,GPU-aaab-2"}}, 1), "GPU-aaab-2");
  EXPECT_EQ(gpu({{"CUDA_VISIBLE_DEVICES", "GPU-aaab"}}, 3), "GPU-aaab-2") << "it sees this one alone";
  EXPECT_EQ(gpu({{"CUDA_VISIBLE_DEVICES", "GPU-aaa"}}, 0), "") << "could be either";
  EXPECT_EQ(gpu({{"CUDA_VISIBLE_DEVICES", "1"}}, 0), "") << "an index counts from zero in every container";
  EXPECT_EQ(gpu({{"NVIDIA_VISIBLE_DEVICES", "GPU-aaaa-1,GPU-aaab-2"}}, 1), "") << "its order is not CUDA's";
  EXPECT_EQ(gpu({{"NVIDIA_VISIBLE_DEVICES", "GPU-aaaa-1"}}, -1), "GPU-aaaa-1");
  EXPECT_EQ(gpu({{"LOCKSTEP_GPU_UUID", "GPU-x"}, {"CUDA_VISIBLE_DEVICES", "GPU-aaaa-1"}}, 0), "GPU-x");
  EXPECT_EQ(gpu({}, 0), "");
}

}  // namespace
}  // namespace lockstep
