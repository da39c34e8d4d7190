#include "sources/ownership/gpu_holders.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr uint64_t kGb = 1'000'000'000;

std::vector<GpuInfo> gpus_of(int count) {
  std::vector<GpuInfo> gpus;
  for (int i = 0; i < count; ++i) {
    gpus.emplace_back().uuid = "GPU-" + std::to_string(i);
    gpus.back().index = i;
  }
  return gpus;
}

Claimant claimant_of(int32_t pid, const std::string& job, int32_t rank, const std::string& user = "anna") {
  Claimant claimant;
  claimant.pid = pid;
  claimant.start_ticks = static_cast<uint64_t>(pid);
  claimant.who.owner = {job, 0, rank, user, "", "", "", job.empty() ? "" : "slurm"};
  claimant.who.local_rank = rank;
  return claimant;
}

std::vector<int32_t> ranks_on(const GpuHolders& found, const std::string& gpu) {
  std::vector<int32_t> ranks;
  const auto holder = found.by_gpu.find(gpu);
  if (holder == found.by_gpu.end()) return ranks;
  for (const Owner& owner : holder->second.owners) ranks.push_back(owner.rank);
  return ranks;
}

TEST(GpuHolders, ARankHoldsItsOwnGpuAndNotTheOneItLeftAContextOn) {
  std::vector<Claimant> ranks;
  std::vector<GpuProcess> on;
  for (int32_t rank = 0; rank < 4; ++rank) {
    ranks.push_back(claimant_of(100 + rank, "77", rank));
    if (rank > 0) on.push_back({100 + rank, "GPU-0", kGb / 2});
    on.push_back({100 + rank, "GPU-" + std::to_string(rank), 60 * kGb});
  }
  const GpuHolders found = find_gpu_holders(gpus_of(4), on, ranks, {});
  for (int32_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(ranks_on(found, "GPU-" + std::to_string(rank)), std::vector<int32_t>{rank});
    EXPECT_EQ(found.gpu_of.at(100 + rank), "GPU-" + std::to_string(rank));
  }
  EXPECT_TRUE(found.by_gpu.at("GPU-0").foreign.empty()) << "same job";
}

TEST(GpuHolders, WithoutMemoryTheLocalRankDecides) {
  const GpuHolders found =
      find_gpu_holders(gpus_of(4), {{102, "GPU-0", 0}, {102, "GPU-2", 0}}, {claimant_of(102, "77", 2)}, {});
  EXPECT_EQ(found.gpu_of.at(102), "GPU-2");
}

TEST(GpuHolders, OneProcessMayHoldSeveralGpus) {
  const GpuHolders found = find_gpu_holders(gpus_of(3), {{100, "GPU-0", kGb}, {100, "GPU-1", kGb}, {100, "GPU-2", kGb}},
                                            {claimant_of(100, "77", 0)}, {});
  for (const char* gpu : {"GPU-0", "GPU-1", "GPU-2"}) EXPECT_EQ(ranks_on(found, gpu), std::vector<int32_t>{0}) << gpu;
}

TEST(GpuHolders, RanksThatShareAGpuAllHoldItAndTheLowestStandsForIt) {
  const GpuHolders found = find_gpu_holders(gpus_of(1), {{100, "GPU-0", kGb}, {101, "GPU-0", 3 * kGb}},
                                            {claimant_of(101, "77", 0), claimant_of(100, "77", 1)}, {});
  EXPECT_EQ(ranks_on(found, "GPU-0"), (std::vector<int32_t>{0, 1}));
  EXPECT_TRUE(found.by_gpu.at("GPU-0").foreign.empty());
}

TEST(GpuHolders, HelpersOfARankAddNoRow) {
  Claimant rank = claimant_of(100, "llama", 3);  // named by its recorder, in a Slurm job
  rank.recorded = true;
  rank.slurm_job = "77";
  Claimant same_rank = claimant_of(101, "77", 3);  // a child with the same variables
  same_rank.slurm_job = "77";
  Claimant no_rank = claimant_of(102, "77", -1);
  no_rank.slurm_job = "77";
  Claimant no_job = claimant_of(103, "", -1);
  const GpuHolders found =
      find_gpu_holders(gpus_of(1), {{100, "GPU-0", 9}, {101, "GPU-0", 8}, {102, "GPU-0", 7}, {103, "GPU-0", 7}},
                       {same_rank, no_rank, no_job, rank}, {});
  EXPECT_EQ(ranks_on(found, "GPU-0"), std::vector<int32_t>{3});
  EXPECT_EQ(found.by_gpu.at("GPU-0").owners[0].job_id, "llama");
  EXPECT_TRUE(found.by_gpu.at("GPU-0").foreign.empty());
}

TEST(GpuHolders, AProcessOfAnotherJobOrUserIsForeign) {
  const GpuHolders found = find_gpu_holders(
      gpus_of(2), {{100, "GPU-0", 60 * kGb}, {200, "GPU-0", kGb}, {300, "GPU-0", kGb}, {300, "GPU-1", kGb}},
      {claimant_of(100, "77", 0), claimant_of(200, "", -1, "bob"), claimant_of(300, "78", 0, "carl")}, {});
  EXPECT_EQ(found.by_gpu.at("GPU-0").foreign, (std::vector<int32_t>{200, 300}));
  EXPECT_EQ(found.by_gpu.at("GPU-0").owners.front().job_id, "77");
  EXPECT_TRUE(found.by_gpu.at("GPU-0").foreign_allowed.empty());
}

TEST(GpuHolders, NobodyIsForeignWhereNoJobIs) {
  const GpuHolders found = find_gpu_holders(gpus_of(1), {{100, "GPU-0", 5}, {200, "GPU-0", 4}},
                                            {claimant_of(100, "", -1, "anna"), claimant_of(200, "", -1, "bob")}, {});
  EXPECT_TRUE(found.by_gpu.at("GPU-0").foreign.empty());
  EXPECT_EQ(found.by_gpu.at("GPU-0").owners.size(), 1u) << "one row, so that a join works";
  EXPECT_EQ(found.by_gpu.at("GPU-0").owners[0].user, "anna");
}

TEST(GpuHolders, WhatAnEarlierAttemptLeftBehindIsForeign) {
  Claimant old = claimant_of(100, "77", 0), now = claimant_of(200, "77", 0);
  old.who.attempt_reported = now.who.attempt_reported = true;
  now.who.owner.attempt = 1;
  const GpuHolders found =
      find_gpu_holders(gpus_of(1), {{100, "GPU-0", 60 * kGb}, {200, "GPU-0", kGb}}, {old, now}, {});
  EXPECT_EQ(found.by_gpu.at("GPU-0").foreign, std::vector<int32_t>{100});
  ASSERT_EQ(found.by_gpu.at("GPU-0").owners.size(), 1u);
  EXPECT_EQ(found.by_gpu.at("GPU-0").owners[0].attempt, 1);
}

TEST(GpuHolders, TheMpsServerHoldsNothingAndDisturbsNobody) {
  Claimant server = claimant_of(50, "", -1, "root");
  server.service = true;
  const GpuHolders found = find_gpu_holders(gpus_of(2), {{50, "GPU-0", kGb}, {50, "GPU-1", kGb}, {100, "GPU-0", kGb}},
                                            {server, claimant_of(100, "77", 0)}, {});
  EXPECT_TRUE(found.by_gpu.at("GPU-0").foreign.empty());
  EXPECT_FALSE(found.by_gpu.contains("GPU-1"));
}

TEST(GpuHolders, ARankThatTwoGpusClaimIsNotTold) {
  // Started by one launcher task: both inherited its variables.
  const GpuHolders found = find_gpu_holders(gpus_of(2), {{100, "GPU-0", kGb}, {101, "GPU-1", kGb}},
                                            {claimant_of(100, "77", 0), claimant_of(101, "77", 0)}, {});
  EXPECT_EQ(ranks_on(found, "GPU-0"), std::vector<int32_t>{-1});
  EXPECT_EQ(ranks_on(found, "GPU-1"), std::vector<int32_t>{-1});
  EXPECT_EQ(found.rank_of.at(101), -1);

  Claimant sure = claimant_of(100, "77", 0);
  sure.recorded = true;
  const GpuHolders with_recorder =
      find_gpu_holders(gpus_of(2), {{100, "GPU-0", kGb}, {101, "GPU-1", kGb}}, {sure, claimant_of(101, "77", 0)}, {});
  EXPECT_EQ(ranks_on(with_recorder, "GPU-0"), std::vector<int32_t>{0});
  EXPECT_EQ(ranks_on(with_recorder, "GPU-1"), std::vector<int32_t>{-1});
}

TEST(GpuHolders, AnIdleGpuBelongsToWhomTheSchedulerGaveIt) {
  const Owner pod = owner_from_pod({"team", "llama-0", "trainer"});
  GpuHolders found = find_gpu_holders(gpus_of(1), {}, {}, {{"GPU-0", {pod}}});
  EXPECT_EQ(found.by_gpu.at("GPU-0").owners, std::vector<Owner>{pod});

  // A stranger on it is foreign, though the pod itself does nothing there.
  found = find_gpu_holders(gpus_of(1), {{200, "GPU-0", kGb}}, {claimant_of(200, "", -1, "bob")}, {{"GPU-0", {pod}}});
  EXPECT_EQ(found.by_gpu.at("GPU-0").owners, std::vector<Owner>{pod});
  EXPECT_EQ(found.by_gpu.at("GPU-0").foreign, std::vector<int32_t>{200});

  // A process in some pod may be that pod's.
  Claimant nameless = claimant_of(300, "", -1, "1000");
  nameless.pod_uid = "0a1b";
  found = find_gpu_holders(gpus_of(1), {{300, "GPU-0", kGb}}, {nameless}, {{"GPU-0", {pod}}});
  EXPECT_TRUE(found.by_gpu.at("GPU-0").foreign.empty());
}

TEST(GpuHolders, WhoStandsForAnIdleGpuDoesNotHangOnTheOrderOfTheAnswer) {
  const Owner one = owner_from_pod({"ml", "chat-a", "server"}), two = owner_from_pod({"ml", "search-b", "server"});
  EXPECT_EQ(find_gpu_holders(gpus_of(1), {}, {}, {{"GPU-0", {one, two}}}).by_gpu,
            find_gpu_holders(gpus_of(1), {}, {}, {{"GPU-0", {two, one}}}).by_gpu);
}

TEST(GpuHolders, PodsThatShareAGpuByTheSchedulersWillAreForeignButAllowed) {
  const Owner one = owner_from_pod({"ml", "chat-a", "server"}), two = owner_from_pod({"ml", "search-b", "server"});
  Claimant first = claimant_of(100, "", -1), second = claimant_of(200, "", -1);
  first.who.owner = one;
  second.who.owner = two;
  const GpuHolders found = find_gpu_holders(gpus_of(1), {{100, "GPU-0", kGb}, {200, "GPU-0", kGb}}, {first, second},
                                            {{"GPU-0", {one, two}}});
  EXPECT_EQ(found.by_gpu.at("GPU-0").owners, (std::vector<Owner>{one, two}));
  EXPECT_EQ(found.by_gpu.at("GPU-0").foreign, std::vector<int32_t>{200});
  EXPECT_EQ(found.by_gpu.at("GPU-0").foreign_allowed, std::vector<int32_t>{200});
}

}  // namespace
}  // namespace lockstep
