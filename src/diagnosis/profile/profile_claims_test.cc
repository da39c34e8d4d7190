#include "diagnosis/profile/profile_claims.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr int64_t kNow = 1'800'000'000'000'000'000;

struct ProfileClaimsTest : ::testing::Test {
  ProfileClaimsTest() {
    finding.ranks = {5_rank};
    finding.layer = Layer::kGpu;
    finding.since_step = 100_step;
    profiles[5_rank] = {.time_unix_ns = kNow,
                        .capture = "p-0123456789ab",
                        .first_step = 140_step,
                        .steps = 5,
                        .reason = "fp32_instead_of_bf16",
                        .kernel = "sgemm",
                        .instead_of = "hgemm",
                        .sentence = "Rank 5 runs sgemm in fp32.",
                        .cost_us = 1'250,
                        .share = 0.2};
  }
  Finding finding;
  ProfiledRanks profiles;
};

TEST_F(ProfileClaimsTest, TheKernelIsTheFirstEvidenceOfItsRank) {
  finding.chain.push_back({.claim = "It waits."});
  add_profile(finding, profiles, kNow);
  ASSERT_EQ(finding.chain.size(), 2u);
  EXPECT_EQ(finding.chain[0].claim, "Kernel profile: Rank 5 runs sgemm in fp32.");
  EXPECT_EQ(finding.chain[0].value, 1.25);
  EXPECT_EQ(finding.chain[0].unit, "ms");
  EXPECT_EQ(finding.chain[0].from_step, 140_step);
  EXPECT_EQ(finding.chain[0].to_step, 144_step);
  EXPECT_EQ(finding.chain[0].query, "/api/jobs/{job}/evidence?of=profile&ranks=5&name=p-0123456789ab");
}

TEST_F(ProfileClaimsTest, AnotherRankAnOldProfileAndAHangGetNone) {
  Finding other = finding;
  other.ranks = {4_rank};
  add_profile(other, profiles, kNow);
  EXPECT_TRUE(other.chain.empty());
  Finding hang = finding;
  hang.kind = VerdictKind::kHang;
  add_profile(hang, profiles, kNow);
  EXPECT_TRUE(hang.chain.empty());
  add_profile(finding, profiles, kNow + kProfileFreshNs + 1);
  EXPECT_TRUE(finding.chain.empty());
}

TEST_F(ProfileClaimsTest, OneTakenByTimeIsOfTheStepsOfItsFinding) {
  profiles[5_rank].first_step = kNoStep;
  add_profile(finding, profiles, kNow);
  ASSERT_EQ(finding.chain.size(), 1u);
  EXPECT_EQ(finding.chain[0].from_step, 100_step);
}

}  // namespace
}  // namespace lockstep
