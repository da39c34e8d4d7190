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

Claimant claimant_of(int32_t pid, const std::string& job, Rank rank, const std::string& user = "anna") {
  Claimant claimant;
  claimant.pid = pid;
  claimant.start_ticks = static_cast<uint64_t>(pid);
  claimant.who.owner = {job, 0, rank, user, "", "", "", job.empty() ? "" : "slurm"};
  claimant.who.local_rank = rank.value();
  return claimant;
}

std::vector<Rank> ranks_on(const GpuHolders& found, const std::string& gpu) {
  std::vector<Rank> ranks;
  const auto holder = found.by_gpu.find(gpu);
  if (holder == found.by_gpu.end()) return ranks;
  for (const Owner& owner : holder->second.owners) ranks.push_back(owner.rank);
  return ranks;
}

TEST(GpuHolders, ARankHoldsItsOwnGpuAndNotTheOneItLeftAContextOn) {
  std::vector<Claimant> ranks;
  std::vector<GpuProcess> on;
  for (Rank rank : all_ranks(4)) {
    ranks.push_back(claimant_of(100 + rank.value(), "77", rank));
    if (rank > 0_rank) on.push_back({100 + rank.value(), "GPU-0", kGb / 2});
    on.push_back({100 + rank.value(), "GPU-" + std::to_string(rank.value()), 60 * kGb});
  }
  const GpuHolders found = find_gpu_holders(gpus_of(4), on, ranks, {});
  for (Rank rank : all_ranks(4)) {
    EXPECT_EQ(ranks_on(found, "GPU-" + std::to_string(rank.value())), std::vector<Rank>{rank});
    EXPECT_EQ(found.gpu_of.at(100 + rank.value()), "GPU-" + std::to_string(rank.value()));
  }
  EXPECT_TRUE(found.by_gpu.at("GPU-0").foreign.empty()) << "same job";
}

TEST(GpuHolders, WithoutMemoryTheLocalRankDecides) {
  const GpuHolders found =
      find_gpu_holders(gpus_of(4), {{102, "GPU-0", 0}, {102, "GPU-2", 0}}, {claimant_of(102, "77", 2_rank)}, {});
  EXPECT_EQ(found.gpu_of.at(102), "GPU-2");
}

TEST(GpuHolders, OneProcessMayHoldSeveralGpus) {
  const GpuHolders found = find_gpu_holders(gpus_of(3), {{100, "GPU-0", kGb}, {100, "GPU-1", kGb}, {100, "GPU-2", kGb}},
                                            {claimant_of(100, "77", 0_rank)}, {});
  for (const char* gpu : {"GPU-0", "GPU-1", "GPU-2"}) EXPECT_EQ(ranks_on(found, gpu), std::vector<Rank>{0_rank}) << gpu;
}

TEST(GpuHolders, RanksThatShareAGpuAllHoldItAndTheLowestStandsForIt) {
  const GpuHolders found = find_gpu_holders(gpus_of(1), {{100, "GPU-0", kGb}, {101, "GPU-0", 3 * kGb}},
                                            {claimant_of(101, "77", 0_rank), claimant_of(100, "77", 1_rank)}, {});
  EXPECT_EQ(ranks_on(found, "GPU-0"), (std::vector<Rank>{0_rank, 1_rank}));
  EXPECT_TRUE(found.by_gpu.at("GPU-0").foreign.empty());
}

TEST(GpuHolders, HelpersOfARankAddNoRow) {
  Claimant rank = claimant_of(100, "llama", 3_rank);  // named by its recorder, in a Slurm job
  rank.recorded = true;
  rank.slurm_job = "77";
  Claimant same_rank = claimant_of(101, "77", 3_rank);  // a child with the same variables
  same_rank.slurm_job = "77";
  Claimant no_rank = claimant_of(102, "77", kNoRank);
  no_rank.slurm_job = "77";
  Claimant no_job = claimant_of(103, "", kNoRank);
  const GpuHolders found =
      find_gpu_holders(gpus_of(1), {{100, "GPU-0", 9}, {101, "GPU-0", 8}, {102, "GPU-0", 7}, {103, "GPU-0", 7}},
                       {same_rank, no_rank, no_job, rank}, {});
  EXPECT_EQ(ranks_on(found, "GPU-0"), std::vector<Rank>{3_rank});
  EXPECT_EQ(found.by_gpu.at("GPU-0").owners[0].job_id, "llama");
  EXPECT_TRUE(found.by_gpu.at("GPU-0").foreign.empty());
}

TEST(GpuHolders, AProcessOfAnotherJobOrUserIsForeign) {
  const GpuHolders found = find_gpu_holders(
      gpus_of(2), {{100, "GPU-0", 60 * kGb}, {200, "GPU-0", kGb}, {300, "GPU-0", kGb}, {300, "GPU-1", kGb}},
      {claimant_of(100, "77", 0_rank), claimant_of(200, "", kNoRank, "bob"), claimant_of(300, "78", 0_rank, "carl")},
      {});
  EXPECT_EQ(found.by_gpu.at("GPU-0").foreign, (std::vector<int32_t>{200, 300}));
  EXPECT_EQ(found.by_gpu.at("GPU-0").owners.front().job_id, "77");
  EXPECT_TRUE(found.by_gpu.at("GPU-0").foreign_allowed.empty());
}

TEST(GpuHolders, NobodyIsForeignWhereNoJobIs) {
  const GpuHolders found =
      find_gpu_holders(gpus_of(1), {{100, "GPU-0", 5}, {200, "GPU-0", 4}},
                       {claimant_of(100, "", kNoRank, "anna"), claimant_of(200, "", kNoRank, "bob")}, {});
  EXPECT_TRUE(found.by_gpu.at("GPU-0").foreign.empty());
  EXPECT_EQ(found.by_gpu.at("GPU-0").owners.size(), 1u) << "one row, so that a join works";
  EXPECT_EQ(found.by_gpu.at("GPU-0").owners[0].user, "anna");
}

TEST(GpuHolders, WhatAnEarlierAttemptLeftBehindIsForeign) {
  Claimant old = claimant_of(100, "77", 0_rank), now = claimant_of(200, "77", 0_rank);
  old.who.attempt_reported = now.who.attempt_reported = true;
  now.who.owner.attempt = 1;
  const GpuHolders found =
      find_gpu_holders(gpus_of(1), {{100, "GPU-0", 60 * kGb}, {200, "GPU-0", kGb}}, {old, now}, {});
  EXPECT_EQ(found.by_gpu.at("GPU-0").foreign, std::vector<int32_t>{100});
  ASSERT_EQ(found.by_gpu.at("GPU-0").owners.size(), 1u);
  EXPECT_EQ(found.by_gpu.at("GPU-0").owners[0].attempt, 1);
}

TEST(GpuHolders, TheMpsServerHoldsNothingAndDisturbsNobody) {
  Claimant server = claimant_of(50, "", kNoRank, "root");
  server.service = true;
  const GpuHolders found = find_gpu_holders(gpus_of(2), {{50, "GPU-0", kGb}, {50, "GPU-1", kGb}, {100, "GPU-0", kGb}},
                                            {server, claimant_of(100, "77", 0_rank)}, {});
  EXPECT_TRUE(found.by_gpu.at("GPU-0").foreign.empty());
  EXPECT_FALSE(found.by_gpu.contains("GPU-1"));
}

TEST(GpuHolders, ARankThatTwoGpusClaimIsNotTold) {
  // Started by one launcher task: both inherited its variables.
  const GpuHolders found = find_gpu_holders(gpus_of(2), {{100, "GPU-0", kGb}, {101, "GPU-1", kGb}},
                                            {claimant_of(100, "77", 0_rank), claimant_of(101, "77", 0_rank)}, {});
  EXPECT_EQ(ranks_on(found, "GPU-0"), std::vector<Rank>{kNoRank});
  EXPECT_EQ(ranks_on(found, "GPU-1"), std::vector<Rank>{kNoRank});
  EXPECT_EQ(found.rank_of.at(101), kNoRank);

  Claimant sure = claimant_of(100, "77", 0_rank);
  sure.recorded = true;
  const GpuHolders with_recorder = find_gpu_holders(gpus_of(2), {{100, "GPU-0", kGb}, {101, "GPU-1", kGb}},
                                                    {sure, claimant_of(101, "77", 0_rank)}, {});
  EXPECT_EQ(ranks_on(with_recorder, "GPU-0"), std::vector<Rank>{0_rank});
  EXPECT_EQ(ranks_on(with_recorder, "GPU-1"), std::vector<Rank>{kNoRank});
}

TEST(GpuHolders, AnIdleGpuBelongsToWhomTheSchedulerGaveIt) {
  const Owner pod = owner_from_pod({"team", "llama-0", "trainer"});
  GpuHolders found = find_gpu_holders(gpus_of(1), {}, {}, {{"GPU-0", {pod}}});
  EXPECT_EQ(found.by_gpu.at("GPU-0").owners, std::vector<Owner>{pod});

  // A stranger on it is foreign, though the pod itself does nothing there.
  found =
      find_gpu_holders(gpus_of(1), {{200, "GPU-0", kGb}}, {claimant_of(200, "", kNoRank, "bob")}, {{"GPU-0", {pod}}});
  EXPECT_EQ(found.by_gpu.at("GPU-0").owners, std::vector<Owner>{pod});
  EXPECT_EQ(found.by_gpu.at("GPU-0").foreign, std::vector<int32_t>{200});

  // A process in some pod may be that pod's.
  Claimant nameless = claimant_of(300, "", kNoRank, "1000");
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
  Claimant first = claimant_of(100, "", kNoRank), second = claimant_of(200, "", kNoRank);
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
