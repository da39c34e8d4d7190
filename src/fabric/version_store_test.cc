#include "fabric/version_store.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace lockstep::fabric {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

class VersionStoreTest : public ::testing::Test {
 protected:
  void gpu(const std::string& host, const std::string& uuid, const std::string& driver, int64_t at_s) {
    report(host, "lockstep_gpu_info", {{"gpu_uuid", uuid}, {"vendor", "nvidia"}, {"driver", driver}}, at_s);
  }
  void nic(const std::string& host, const std::string& device, const std::string& firmware, int64_t at_s,
           const std::string& port = "1") {
    report(host, "lockstep_nic_info", {{"device", device}, {"port", port}, {"firmware", firmware}}, at_s);
  }
  void report(const std::string& host, const char* name, Attributes labels, int64_t at_s, uint32_t flags = 0) {
    const MetricPoint point{.name = name, .attributes = std::move(labels), .value = 1, .flags = flags};
    store_.on_metrics({{"host.name", host}}, {{point}}, at_s * kSecond);
  }
  void nccl(int64_t attempt, int64_t number, int64_t at_s) {
    const MetricPoint point{.name = "lockstep_plugin_nccl_version", .value = static_cast<double>(number)};
    store_.on_metrics({{"lockstep.job_id", "llama"}, {"lockstep.attempt", attempt}}, {{point}}, at_s * kSecond);
  }
  void start(int64_t attempt, int64_t at_s) {
    store_.on_rank_started({"llama", attempt, 0_rank, 8, 0, "node-1", "GPU-1"}, at_s * kSecond);
  }
  void code(int64_t attempt, std::string_view version, int64_t at_s, int32_t rank = 0) {
    start(attempt, at_s);
    store_.on_code_version({"llama", attempt, Rank{rank}, 8, 0, "node-1", "GPU-1"}, version, at_s * kSecond);
  }
  std::vector<std::string> changes(int64_t from_s = 0, int64_t to_s = 1'000'000) {
    std::vector<std::string> all;
    for (const Change& one : store_.changes(from_s * kSecond, to_s * kSecond))
      all.push_back(format("%lld %s %s: %s -> %s", static_cast<long long>(one.time_unix_ns / kSecond),
                           one.component.c_str(), one.what.c_str(), one.before.c_str(), one.after.c_str()));
    return all;
  }

  static constexpr size_t kChangesMax = 200;
  VersionStore store_{kChangesMax};
};

TEST_F(VersionStoreTest, TheDriverOfAHostChangesOnceWhateverItsGpusSay) {
  for (const char* uuid : {"GPU-0", "GPU-1"}) gpu("node-1", uuid, "550.90", 10);
  EXPECT_TRUE(changes().empty()) << "how it was found is no change";
  for (const int64_t at : {100, 200})
    for (const char* uuid : {"GPU-0", "GPU-1"}) gpu("node-1", uuid, "570.20", at);
  gpu("node-1", "GPU-7", "550.90", 300);  // a GPU that differs for good
  gpu("node-1", "GPU-7", "550.90", 400);
  EXPECT_EQ(changes(), std::vector<std::string>{"100 host:node-1 driver: 550.90 -> 570.20"});
  EXPECT_TRUE(changes(101).empty());
  EXPECT_TRUE(changes(0, 99).empty());
}

TEST_F(VersionStoreTest, AnAdapterIsNamedAsTheTopologyNamesIt) {
  nic("node-1", "mlx5_0", "28.40", 10);
  nic("node-1", "mlx5_0", "28.40", 10, "2");
  nic("node-1", "mlx5_0", "28.43", 20);
  nic("node-1", "mlx5_0", "", 30);  // it could not be read
  nic("node-1", "mlx5_0", "28.43", 40, "2");
  EXPECT_EQ(changes(), (std::vector<std::string>{"40 nic:node-1:mlx5_0/2 firmware: 28.40 -> 28.43",
                                                 "20 nic:node-1:mlx5_0 firmware: 28.40 -> 28.43"}));
}

TEST_F(VersionStoreTest, TheEndOfARowIsNoVersion) {
  gpu("node-1", "GPU-0", "570.20", 10);
  report("node-1", "lockstep_gpu_info", {{"gpu_uuid", "GPU-0"}, {"vendor", "nvidia"}, {"driver", "550.90"}}, 20,
         MetricPoint::kNoRecordedValue);
  EXPECT_TRUE(changes().empty());
}

TEST_F(VersionStoreTest, AJobChangesItsVersionsWithAnAttempt) {
  code(0, "v1", 10);
  code(0, "v2", 11, 1);  // ranks that differ
  nccl(0, 22809, 12);
  start(1, 20);
  nccl(1, 22809, 20);
  code(1, "v3", 21);
  start(2, 29);
  nccl(2, 23007, 30);
  nccl(9, 99999, 30);  // at which attempt a job is, no metric says
  code(1, "v1", 31, 2);
  nccl(0, 22809, 32);  // a late word
  EXPECT_EQ(changes(),
            (std::vector<std::string>{"30 job:llama nccl: 2.28.9 -> 2.30.7", "21 job:llama code: v1 -> v3"}));
  code(5, "v9", 40);
  store_.on_attempt_back("llama", 2);
  code(2, "v3", 50);
  EXPECT_EQ(changes(35), (std::vector<std::string>{"50 job:llama code: v9 -> v3", "40 job:llama code: v3 -> v9"}));
}

TEST_F(VersionStoreTest, RefusesWhatIsNoVersionAndWhatHasNoRoom) {
  gpu("node-1", "GPU-0", std::string(VersionStore::kTextMax + 1, 'x'), 10);
  gpu("node-1", "GPU-0", "570\n20", 10);
  gpu(std::string(1'000, 'h'), "GPU-0", "570.20", 10);
  code(0, std::string(100'000, 'x'), 10);
  EXPECT_EQ(store_.refused_count(), 4u);
  for (size_t i = 0; i < VersionStore::kPartsMax + 7; ++i) nic("node-2", format("mlx5_%zu", i), "28.40", 20);
  EXPECT_EQ(store_.refused_count(), 4u + 7);
  nccl(0, -5, 30);
  nccl(0, 22809, 30);
  EXPECT_TRUE(changes().empty());
}

TEST_F(VersionStoreTest, AllPartsTogetherHaveALimit) {
  VersionStore store(kChangesMax, 3);
  for (const char* host : {"node-1", "node-2"}) {
    std::vector<MetricPoint> points;
    for (const char* device : {"mlx5_0", "mlx5_1"})
      points.push_back({.name = "lockstep_nic_info", .attributes = {{"device", device}, {"firmware", "28.40"}}});
    store.on_metrics({{"host.name", host}}, points, kSecond);
  }
  EXPECT_EQ(store.refused_count(), 1u);
}

TEST_F(VersionStoreTest, WhatIsSilentForADayMakesRoomForPartsToo) {
  VersionStore store(kChangesMax, 2);
  auto hear = [&](const char* host, const char* firmware, int64_t at_ns) {
    const MetricPoint point{.name = "lockstep_nic_info", .attributes = {{"device", "mlx5_0"}, {"firmware", firmware}}};
    store.on_metrics({{"host.name", host}}, {{point}}, at_ns);
  };
  hear("node-1", "28.40", 0);
  hear("node-2", "28.40", kSecond);
  hear("node-3", "28.40", VersionStore::kForgottenNs - 1);
  EXPECT_EQ(store.refused_count(), 1u);
  hear("node-3", "28.40", VersionStore::kForgottenNs);
  EXPECT_EQ(store.refused_count(), 1u);
  hear("node-3", "28.43", VersionStore::kForgottenNs + 1);
  EXPECT_EQ(store.changes(0, INT64_MAX).size(), 1u);
}

TEST_F(VersionStoreTest, TwoMachinesOfOneNameThatDisagreeAreOneChange) {
  for (int64_t at = 0; at < 600; at += 10) nic("localhost", "mlx5_0", at % 20 == 0 ? "28.40" : "28.43", 1'000 + at);
  EXPECT_EQ(changes(), std::vector<std::string>{"1010 nic:localhost:mlx5_0 firmware: 28.40 -> 28.43"});
}

TEST_F(VersionStoreTest, ForgetsTheOldestChanges) {
  for (size_t i = 0; i <= kChangesMax + 5; ++i)
    nic("node-1", "mlx5_0", i % 2 == 0 ? "28.40" : "28.43", static_cast<int64_t>(60 * i));
  const std::vector<std::string> all = changes();
  EXPECT_EQ(all.size(), kChangesMax);
  EXPECT_TRUE(all.back().starts_with("360 nic:node-1:mlx5_0")) << all.back();
}

}  // namespace
}  // namespace lockstep::fabric
