#include "sim/score/warnings.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "sim/fleet/fleet.h"

namespace lockstep::sim {
namespace {

constexpr int64_t kStart = 1'000'000'000'000;
constexpr int64_t kSecond = 1'000'000'000;
using Outcome = WarningScore::Outcome;

// Two hosts; rank 5 has memory errors and rank 12 a flapping link, both at second 4000.
struct MadeUp {
  Scenario scenario;
  static constexpr int64_t kBegan = kStart + 4000 * kSecond;
  std::vector<ScenarioRun::Onset> onsets{{kBegan, kBegan, 0, {400_step}}, {kBegan, kBegan, 0, {400_step}}};
  JobShape shape;

  MadeUp() {
    JobPlan plan;
    plan.job_id = "job";
    plan.tp = 8;
    plan.dp = 2;
    scenario.jobs.push_back(plan);
    for (auto [cause, rank] : {std::pair{Cause::kEcc, 5_rank}, std::pair{Cause::kLinkFlap, 12_rank}}) {
      ScenarioFault fault;
      fault.cause = cause;
      fault.target.job = "job";
      fault.target.rank = rank;
      fault.precursor_s = 3000;
      scenario.faults.push_back(fault);
    }
    shape = shape_of(scenario, scenario.jobs[0], 0, 2);
  }
  SeenWarning gpu(Rank rank, int64_t at_s, double horizon_s, Cause cause = Cause::kEcc) const {
    SeenWarning warning;
    const Identity identity = identity_of(shape, rank);
    warning.host = identity.host;
    warning.gpu_uuid = identity.gpu_uuid;
    warning.cause = cause;
    warning.signal = "ecc_corrected";
    warning.raised_unix_ns = kStart + at_s * kSecond;
    warning.horizon_s = horizon_s;
    return warning;
  }
  SeenWarning adapter(Rank rank, int64_t at_s, double horizon_s) const {
    SeenWarning warning = gpu(rank, at_s, horizon_s, Cause::kNicDegraded);
    warning.gpu_uuid.clear();
    warning.device = format("mlx5_%d", rank % 8);
    warning.signal = "symbol_errors";
    return warning;
  }
  WarningCase judge(const std::vector<SeenWarning>& seen) const {
    return judge_warnings(scenario, onsets, seen, kStart, 32);
  }
};

TEST(WarningScore, AWarningComesTrueWithinItsHorizonLaterOrNotAtAll) {
  MadeUp made;
  const WarningCase judged = made.judge({
      made.gpu(5_rank, 3000, 1500),                           // in time
      made.gpu(5_rank, 1000, 1500),                           // the fault came after its horizon
      made.gpu(5_rank, 3500, 9000, Cause::kThrottleThermal),  // another cause
      made.gpu(6_rank, 3000, 9000),                           // another GPU
      made.gpu(5_rank, 4100, 9000),                           // it is there already
      made.adapter(12_rank, 3400, 9000),                      // a flapping link is warned of as a bad one
      made.adapter(13_rank, 3400, 9000),                      // another adapter
  });
  std::vector<Outcome> outcomes;
  for (const WarningScore& score : judged.warnings) outcomes.push_back(score.outcome);
  EXPECT_EQ(outcomes, (std::vector{Outcome::kTrue, Outcome::kLater, Outcome::kNothing, Outcome::kNothing,
                                   Outcome::kAlreadyThere, Outcome::kTrue, Outcome::kNothing}));
  EXPECT_FALSE(judged.warnings[3].false_sign);
  ASSERT_EQ(judged.faults.size(), 2u);
  EXPECT_EQ(judged.faults[0].warned_s, 3000);  // by the first warning of it
  EXPECT_EQ(judged.faults[1].warned_s, 600);

  const std::string text = warnings_markdown({&judged});
  EXPECT_NE(text.find("| all | 2 | 2 | 50 min | 6 | 2 | 1 | 3 | 33 % | 93.8 |"), std::string::npos) << text;
  EXPECT_NE(text.find("| ecc | 1 | 1 | 50 min | 3 | 1 | 1 | 1 | 33 % |"), std::string::npos) << text;
  EXPECT_NE(text.find("| symbol_errors | 2 | 1 | 0 | 1 |"), std::string::npos) << text;
}

TEST(WarningScore, AFaultWithoutAWarningIsNotWarnedOfAndOneThatNeverCameDoesNotCount) {
  MadeUp made;
  made.onsets[1] = {};
  const WarningCase judged = made.judge({made.adapter(12_rank, 3400, 9000)});
  EXPECT_EQ(judged.warnings[0].outcome, Outcome::kNothing);
  EXPECT_EQ(judged.faults[0].warned_s, -1);
  EXPECT_FALSE(judged.faults[1].began);
  EXPECT_NE(warnings_markdown({&judged}).find("| all | 1 | 0 | - | 1 | 0 | 0 | 1 | 0 % |"), std::string::npos);
}

TEST(WarningScore, SaysWhichCameToNothingWhereSignsDidRise) {
  MadeUp made;
  FalseSign sign;
  sign.of.cause = Cause::kEcc;
  sign.of.target = {.job = "job", .rank = 7_rank};
  made.scenario.signs.push_back(sign);
  const WarningCase judged =
      made.judge({made.gpu(7_rank, 3000, 9000), made.gpu(8_rank, 3000, 9000), made.gpu(5_rank, 3000, 9000)});
  EXPECT_TRUE(judged.warnings[0].false_sign);
  EXPECT_FALSE(judged.warnings[1].false_sign);
  EXPECT_FALSE(judged.warnings[2].false_sign);
  EXPECT_NE(
      warnings_markdown({&judged}).find("Of the 2 that came to nothing 1 were raised where signs did rise and came "
                                        "to nothing; 1 where nothing was wrong at all, 31.2 per 1,000 GPU-hours."),
      std::string::npos)
      << warnings_markdown({&judged});
}

TEST(WarningScore, SaysNothingWhereThereWasNothing) {
  const WarningCase nothing;
  EXPECT_EQ(warnings_markdown({&nothing}), "");
}

TEST(WarningWatcher, NotesAWarningOnceForEachTimeItIsRaised) {
  WarningWatcher watcher;
  auto reported = [](int raised, double horizon, const char* state = "raised") {
    return format(R"([{"id":"a","state":"%s","raised_unix_ns":%d,"horizon_s":%.1f,"host":"h"}])", state, raised,
                  horizon);
  };
  for (const std::string& answer :
       {std::string("[]"), reported(1, 50), reported(1, 40), reported(1, 40, "gone"), reported(9, 30)})
    ASSERT_TRUE(watcher.read(answer).ok());
  EXPECT_FALSE(watcher.read("nothing").ok());
  EXPECT_FALSE(watcher.read(R"([{"id":"a"}])").ok());
  const std::vector<SeenWarning> seen = watcher.take();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].horizon_s, 50);  // as it was when it was raised
  EXPECT_EQ(seen[1].raised_unix_ns, 9);
}

}  // namespace
}  // namespace lockstep::sim
