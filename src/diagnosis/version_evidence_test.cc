#include "diagnosis/version_evidence.h"

#include <gtest/gtest.h>

#include "diagnosis/engine.h"
#include "diagnosis/testing.h"
#include "testing/fake_clock.h"

namespace lockstep {
namespace {

using testing::kEpochNs;
using testing::kSecondNs;
using testing::MadeUpJob;
using testing::RankPlan;

class VersionEvidenceTest : public ::testing::Test {
 protected:
  // As host node-1 and its adapter report; heard of first long before.
  void upgrade(const char* metric, Attributes labels, const char* what, int64_t at_unix_ns) {
    for (const auto& [version, at] : {std::pair{"old", kEpochNs - 7'200 * kSecondNs}, std::pair{"new", at_unix_ns}}) {
      MetricPoint point{.name = metric, .attributes = labels, .value = 1};
      point.attributes.push_back({what, version});
      fabric_.versions.on_metrics({{"host.name", "node-1"}}, {{point}}, at);
    }
  }
  void upgrade_driver(int64_t at_unix_ns) {
    upgrade("lockstep_gpu_info", {{"gpu_uuid", "GPU-8"}, {"vendor", "nvidia"}}, "driver", at_unix_ns);
  }
  void upgrade_firmware(int64_t at_unix_ns) {
    upgrade("lockstep_nic_info", {{"device", "mlx5_0"}, {"port", "1"}}, "firmware", at_unix_ns);
  }
  std::vector<std::string> claims(Finding finding, int64_t since_unix_ns) {
    const std::string job_id = "job";
    add_version_evidence(fabric_, {job_id, window_, since_unix_ns}, finding);
    std::vector<std::string> all;
    for (const Claim& claim : finding.chain) all.push_back(claim.claim);
    return all;
  }

  MadeUpJob job_{16};
  JobWindow window_;
  testing::FakeClock clock_;
  fabric::Fabric fabric_{{}, clock_};
};

TEST_F(VersionEvidenceTest, ADriverThatChangedOnTheGuiltyHostShortlyBeforeIsSaid) {
  job_.play(window_, 0_step, 10_step, {});
  upgrade_driver(kEpochNs);
  const Finding guilty{.ranks = {9_rank}, .layer = Layer::kGpu};
  EXPECT_EQ(claims(guilty, kEpochNs + 120 * kSecondNs),
            std::vector<std::string>{"The driver of node-1 changed 120 s before it began: new, before that old."});
  EXPECT_EQ(claims(guilty, kEpochNs - 10 * kSecondNs),
            std::vector<std::string>{"The driver of node-1 changed 10 s after it began: new, before that old."})
      << "heard of late";
  EXPECT_TRUE(claims(guilty, kEpochNs - 60 * kSecondNs).empty()) << "what came afterwards explains nothing";
  EXPECT_TRUE(claims(guilty, kEpochNs + 601 * kSecondNs).empty()) << "nor what was long before";
  EXPECT_TRUE(claims({.ranks = {3_rank}, .layer = Layer::kGpu}, kEpochNs + 120 * kSecondNs).empty())
      << "another host's driver";
  EXPECT_TRUE(claims({.ranks = {9_rank}, .layer = Layer::kInput}, kEpochNs + 120 * kSecondNs).empty())
      << "a driver explains no slow input";
}

TEST_F(VersionEvidenceTest, AFirmwareIsOfThatAdapterAlone) {
  job_.play(window_, 0_step, 10_step, {});
  upgrade_firmware(kEpochNs);
  const int64_t since = kEpochNs + 60 * kSecondNs;
  EXPECT_EQ(
      claims({.ranks = {8_rank}, .layer = Layer::kNic, .place = "nic:node-1:mlx5_0"}, since),
      std::vector<std::string>{"The firmware of node-1:mlx5_0 changed 60 s before it began: new, before that old."});
  EXPECT_TRUE(claims({.ranks = {9_rank}, .layer = Layer::kNic, .place = "nic:node-1:mlx5_1"}, since).empty());
  EXPECT_TRUE(claims({.ranks = {8_rank}, .layer = Layer::kGpu}, since).empty());
}

TEST_F(VersionEvidenceTest, AJobThatIsSlowerAsAWholeIsAskedForItsCode) {
  job_.play(window_, 0_step, 10_step, {});
  Identity rank = job_.identity(0_rank);
  fabric_.versions.on_rank_started(rank, kEpochNs - 9'000 * kSecondNs);
  fabric_.versions.on_code_version(rank, "v1", kEpochNs - 9'000 * kSecondNs);
  rank.attempt = 1;
  fabric_.versions.on_rank_started(rank, kEpochNs);
  fabric_.versions.on_code_version(rank, "v2", kEpochNs);
  EXPECT_EQ(claims({.layer = Layer::kSoftware}, kEpochNs + 5 * kSecondNs),
            std::vector<std::string>{"The code of job job changed 5 s before it began: v2, before that v1."});
}

// Through the engine, as it comes: the claim stands in the confirmed verdict, and its query names that very change.
TEST_F(VersionEvidenceTest, IsPartOfTheVerdict) {
  DiagnosisEngine engine;
  engine.look_at_network({&fabric_, nullptr});
  engine.keep_waits(fabric_.waits);
  upgrade_driver(kEpochNs);
  auto slow = [](StepNumber step, std::vector<RankPlan>& ranks) { ranks[9].own_ms += step >= 30_step ? 60 : 0; };
  job_.play(engine, 0_step, 60_step, slow);
  const std::vector<Verdict> verdicts = engine.verdicts("job");
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].state, VerdictState::kConfirmed);
  auto event_of = [](const Verdict& verdict) {
    return std::find_if(verdict.chain.begin(), verdict.chain.end(),
                        [](const Claim& claim) { return claim.kind == ClaimKind::kEvent; });
  };
  const auto event = event_of(verdicts[0]);
  ASSERT_NE(event, verdicts[0].chain.end());
  EXPECT_EQ(event->subject, "host:node-1");
  const std::string began =
      format("&began=%lld", static_cast<long long>(kEpochNs + static_cast<int64_t>(event->value * 1e9)));
  EXPECT_TRUE(event->query.starts_with("/api/fabric/changes?component=host%3Anode-1&what=driver&from="));
  EXPECT_EQ(event->query.substr(event->query.rfind('&'), began.size() - 4), began.substr(0, began.size() - 4));
  const std::vector<fabric::RankWait> waits = fabric_.waits.worst("job", 0, job_.now_unix_ns());
  ASSERT_FALSE(waits.empty());
  EXPECT_EQ(waits[0].awaited, 9_rank) << "and everybody waited for that rank";
  EXPECT_NEAR(waits[0].seconds, 31 * 0.06, 0.3);

  // Since when it is slow does not move with the steps that are still remembered.
  job_.play(engine, 60_step, 400_step, slow);
  const std::vector<Verdict> later = engine.verdicts("job");
  ASSERT_EQ(later.size(), 1u);
  const auto still = event_of(later[0]);
  ASSERT_NE(still, later[0].chain.end());
  EXPECT_NEAR(still->value, event->value, 2);
}

}  // namespace
}  // namespace lockstep
