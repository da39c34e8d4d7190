#include "alert/open_series.h"

#include <gtest/gtest.h>

#include "ingest/counters_table.h"
#include "model/series_labels.h"
#include "store/metric_reader.h"
#include "store/sqlite_state_store.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

struct ListedVerdicts final : VerdictSource {
  std::vector<Verdict> list;
  mutable int asked = 0;
  std::vector<Verdict> verdicts(std::string_view) const override {
    ++asked;
    return list;
  }
  std::string summary(std::string_view) const override { return ""; }
};

std::unique_ptr<StateStore> state_in(const std::string& folder) {
  Result<std::unique_ptr<StateStore>> opened = open_sqlite_state_store(folder + "/state.sqlite");
  EXPECT_TRUE(opened.ok());
  return std::move(*opened);
}

struct OpenSeriesTest : ::testing::Test {
  testing::TemporaryFolder folder;
  testing::FakeClock clock{1'800'000'000'000'000'000};
  Counters counters{kIngestCounters};
  std::unique_ptr<StateStore> state = state_in(folder.path());
  ClockWitness witness{clock};
  AlertRegistry alerts{*state, clock, witness, counters};
  ListedVerdicts verdicts;
  std::map<std::string, double> told;  // the newest of each, by "name rank"
  int pushes = 0;
  bool is_full = false;
  OpenSeries series{
      [this](auto pushed, const auto& canonical) -> Result<PushOutcome> {
        if (is_full) return Error{"disk full"};
        ++pushes;
        for (size_t i = 0; i < pushed.size(); ++i) {
          const Labels labels = *canonical(i);
          told[std::string(label_value(labels, "__name__")) + " " + std::string(label_value(labels, "cause")) + " " +
               std::string(label_value(labels, "rank"))] = pushed[i].values[0];
        }
        return PushOutcome{};
      },
      verdicts, alerts, clock};

  static Verdict slow(std::vector<Rank> ranks) {
    Verdict verdict;
    verdict.id = "v";
    verdict.job_id = "llm";
    verdict.state = VerdictState::kConfirmed;
    verdict.culprit.ranks = std::move(ranks);
    verdict.culprit.cause = Cause::kThrottleThermal;
    verdict.culprit.layer = Layer::kGpu;
    return verdict;
  }
};

TEST_F(OpenSeriesTest, AVerdictIsASeriesForEachRankThatItNamesAndEndsWithIt) {
  verdicts.list = {slow({5_rank, 6_rank})};
  series.tick();
  EXPECT_EQ(told["lockstep_verdict_open throttle-thermal 5"], 1);
  EXPECT_EQ(told["lockstep_verdict_open throttle-thermal 6"], 1);
  verdicts.list[0].culprit.ranks = {5_rank};
  series.note_change();
  series.tick();
  EXPECT_TRUE(is_stale(told["lockstep_verdict_open throttle-thermal 6"]));
  EXPECT_EQ(told["lockstep_verdict_open throttle-thermal 5"], 1);
  verdicts.list[0].state = VerdictState::kCleared;
  series.note_change();
  series.tick();
  EXPECT_TRUE(is_stale(told["lockstep_verdict_open throttle-thermal 5"]));
}

TEST_F(OpenSeriesTest, WhatHoldsIsToldAgainBeforeALookbackEndsAndNotAtEveryTick) {
  verdicts.list = {slow({5_rank})};
  series.tick();
  series.tick();
  EXPECT_EQ(pushes, 1);
  EXPECT_EQ(verdicts.asked, 1) << "to ask is to copy all of them";
  clock.advance(OpenSeries::kEveryNs);
  series.tick();
  EXPECT_EQ(pushes, 2);
}

TEST_F(OpenSeriesTest, AnEndThatCouldNotBeWrittenIsWrittenLater) {
  verdicts.list = {slow({5_rank})};
  series.tick();
  is_full = true;
  verdicts.list.clear();
  series.note_change();
  series.tick();
  is_full = false;
  series.tick();
  EXPECT_TRUE(is_stale(told["lockstep_verdict_open throttle-thermal 5"]));
}

TEST_F(OpenSeriesTest, ABuiltInAlertThatFiresIsInAlertsAsPrometheusWritesIt) {
  series.tick();
  alerts.raise({.fingerprint = "f", .name = "LockstepHang", .labels = {{"cause", "rank-missing"}}});
  alerts.tick();
  series.tick();
  EXPECT_EQ(told["ALERTS rank-missing "], 1);
}

}  // namespace
}  // namespace lockstep
