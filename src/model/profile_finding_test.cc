#include "model/profile_finding.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "model/events.h"

namespace lockstep {
namespace {

const ProfileFinding kCapture{
    .time_unix_ns = 7'000'000'000, .capture = "p-0123456789ab", .first_step = 140_step, .steps = 5};

std::string summary(const std::string& ranks, const std::string& more = "") {
  return R"({"verdict":{"sentence":"Rank 5 runs gemm in fp32.\nThe others in bf16.","reason":"fp32_instead_of_bf16","ranks":)" +
         ranks + R"(,"kernel":"sgemm","instead_of":"hgemm","cost_us_per_step":1250.5,"share":0.21)" + more +
         R"(,"evidence":[],"differences":[]},"bytes":1,"ranks":[]})";
}

TEST(ProfileFinding, AVerdictOfASummaryIsARecordOfEachRankThatItBlames) {
  const Result<BlamedRanks> blamed = profile_finding_from_summary_untrusted(summary("[5,6]"), kCapture);
  ASSERT_TRUE(blamed.ok()) << blamed.error();
  EXPECT_EQ(blamed->ranks, (std::vector<Rank>{5_rank, 6_rank}));
  EXPECT_EQ(blamed->finding.sentence, "Rank 5 runs gemm in fp32. The others in bf16.");
  EXPECT_EQ(blamed->finding.cost_us, 1250.5);
  const std::vector<ResourceGroup> groups = to_groups(*blamed, {"job", 2, 0_rank, 8, 0, "node", ""});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(identity_from_resource(groups[1].resource)->rank, 6_rank);
  EXPECT_EQ(identity_from_resource(groups[1].resource)->attempt, 2);
  const Result<ProfileFinding> again = profile_finding_from_record(groups[1].logs.at(0));
  ASSERT_TRUE(again.ok()) << again.error();
  EXPECT_EQ(*again, blamed->finding);
}

TEST(ProfileFinding, WhereNoRankStandsOutThereIsNothingToHandOn) {
  const Result<BlamedRanks> none = profile_finding_from_summary_untrusted(
      R"({"verdict":{"sentence":"No rank stands out.","reason":"none","ranks":[]}})", kCapture);
  ASSERT_TRUE(none.ok()) << none.error();
  EXPECT_TRUE(none->ranks.empty());
  EXPECT_TRUE(to_groups(*none, {}).empty());
}

TEST(ProfileFinding, ASummaryThatIsNoneIsOneLine) {
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[]"), std::string(R"({"verdict":3})"), summary("[-1]"),
        summary("[1.5]"), summary("[99999999999]"), summary(R"(["5"])"), summary("[5]").substr(0, 200),
        std::string(R"({"verdict":{"sentence":"x","reason":"a b","ranks":[1],"cost_us_per_step":1,"share":0.1}})"),
        std::string(R"({"verdict":{"sentence":"","reason":"host","ranks":[1],"cost_us_per_step":1,"share":0.1}})"),
        std::string(R"({"verdict":{"sentence":"x","reason":"host","ranks":[1],"cost_us_per_step":1e300,"share":0.1}})"),
        std::string(R"({"verdict":{"sentence":"x","reason":"host","ranks":[1],"share":0.1}})")}) {
    const Result<BlamedRanks> read = profile_finding_from_summary_untrusted(text, kCapture);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().find('\n'), std::string::npos);
  }
  std::string many;
  for (int i = 0; i < 1'000; ++i) many += format("%s%d", i > 0 ? "," : "[", i);
  EXPECT_EQ(profile_finding_from_summary_untrusted(summary(many + "]"), kCapture)->ranks.size(),
            kProfileRanksBlamedMax);
  const Result<BlamedRanks> longer =
      profile_finding_from_summary_untrusted(R"({"verdict":{"sentence":")" + std::string(5'000, 'x') +
                                                 R"(","reason":"host","ranks":[1],"cost_us_per_step":1,"share":0.1}})",
                                             kCapture);
  EXPECT_EQ(longer->finding.sentence.size(), kProfileSentenceMax);
}

TEST(ProfileFinding, ARecordIsChecked) {
  const LogRecord good = to_record(profile_finding_from_summary_untrusted(summary("[5]"), kCapture)->finding);
  for (const char* key : {"capture", "reason", "sentence", "cost_us", "share"}) {
    LogRecord bad = good;
    std::erase_if(bad.attributes, [&](const Attribute& attribute) { return attribute.key == key; });
    EXPECT_FALSE(profile_finding_from_record(bad).ok()) << key;
  }
}

}  // namespace
}  // namespace lockstep
