#include "sle/ledger.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>

#include "base/files.h"
#include "sle/ledger_query.h"
#include "store/sle_counters.h"
#include "testing/temporary_folder.h"

namespace lockstep::sle {
namespace {

constexpr int32_t kFirst = 29'000'000;  // some minute of 2025

std::shared_ptr<const Placement> placement_of(int32_t ranks, const std::string& prefix, const std::string& model) {
  auto placement = std::make_shared<Placement>();
  placement->gpu_model = model;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    if (rank % 4 == 0) placement->hosts.push_back({rank, std::min(4, ranks - rank), prefix + std::to_string(rank / 4)});
    placement->gpus.push_back(prefix + "gpu" + std::to_string(rank));
  }
  return placement;
}

JudgedMinute judged(int32_t minute, RankCells cells, std::shared_ptr<const Placement> placement, uint64_t rows = 1) {
  JudgedMinute one{.minute = minute, .evidence = rows, .placement = std::move(placement)};
  one.cells[static_cast<size_t>(Sle::kProgress)] = std::move(cells);
  return one;
}

TEST(MinuteRuns, AreAsAMapOfMinutesWouldBe) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    MinuteRuns runs;
    std::map<int32_t, uint32_t> truth;
    for (int i = 0; i < 300; ++i) {
      const auto minute = static_cast<int32_t>(random() % 60);
      const uint32_t value = random() % 4;
      runs.set(minute, value);
      truth[minute] = value;
      if (i % 97 == 96) {
        runs.drop_before(10);
        for (int32_t m = 0; m < 10; ++m) truth.erase(m);
      }
    }
    for (int32_t minute = 0; minute < 60; ++minute) {
      const auto found = truth.find(minute);
      ASSERT_EQ(runs.at(minute), found == truth.end() ? 0 : found->second) << "round " << round << " minute " << minute;
    }
    for (size_t i = 1; i < runs.size(); ++i) {
      const MinuteRun &before = runs.runs()[i - 1], &run = runs.runs()[i];
      ASSERT_TRUE(before.end < run.first || (before.end == run.first && before.value != run.value));
    }
  }
}

TEST(RankCells, OfSomeRanksChangeAndTheOthersStay) {
  const RankCells cells = with(all_ranks(10, Cell::good()), spans_of({3, 4, 9}), Cell::degraded(2));
  EXPECT_EQ(
      cells,
      (RankCells{{0, 3, Cell::good()}, {3, 2, Cell::degraded(2)}, {5, 4, Cell::good()}, {9, 1, Cell::degraded(2)}}));
  EXPECT_EQ(with(cells, {{0, 10}}, Cell::good()), all_ranks(10, Cell::good()));
}

class LedgerTest : public ::testing::Test {
 protected:
  std::unique_ptr<Ledger> open() {
    Result<std::unique_ptr<Ledger>> ledger = Ledger::open({.folder = folder_.path() + "/sle"}, counters_);
    EXPECT_TRUE(ledger.ok()) << (ledger.ok() ? "" : ledger.error());
    return std::move(*ledger);
  }
  static SleTotals progress(const Ledger& ledger, Scope scope = {}, int32_t from = kFirst, int32_t end = kFirst + 200) {
    return ledger.totals({.scope = std::move(scope), .from = from, .end = end})[static_cast<size_t>(Sle::kProgress)];
  }

  lockstep::testing::TemporaryFolder folder_;
  Counters counters_{kSleCounters};
};

TEST_F(LedgerTest, JudgedAgainAMinuteIsReplacedAndNotAddedTo) {
  auto ledger = open();
  const auto placement = placement_of(8, "a", "H100");
  for (int again = 0; again < 3; ++again)
    ledger->put("job", judged(kFirst, all_ranks(8, Cell::degraded(kUnexplained)), placement));
  EXPECT_EQ(progress(*ledger).minutes, (Minutes{.degraded = 8}));
  EXPECT_EQ(ledger->put("job", judged(kFirst, all_ranks(8, Cell::good()), placement, 2)), Ledger::Put::kStored);
  EXPECT_EQ(progress(*ledger).minutes, (Minutes{.good = 8}));
}

TEST_F(LedgerTest, WhatWasJudgedFromMoreRowsStays) {
  auto ledger = open();
  const auto placement = placement_of(8, "a", "H100");
  ledger->put("job", judged(kFirst, all_ranks(8, Cell::good()), placement, 480));
  EXPECT_EQ(ledger->put("job", judged(kFirst, all_ranks(8, Cell::unknown()), placement, 20)), Ledger::Put::kFewerRows);
  EXPECT_EQ(progress(*ledger).minutes, (Minutes{.good = 8}));
}

TEST_F(LedgerTest, AMinuteThatIsAnHourOldIsClosed) {
  auto ledger = open();
  const auto placement = placement_of(8, "a", "H100");
  ledger->put("job", judged(kFirst, all_ranks(8, Cell::good()), placement));
  ledger->put("job", judged(kFirst + Ledger::kOpenMinutes, all_ranks(8, Cell::good()), placement));
  EXPECT_EQ(ledger->put("job", judged(kFirst, all_ranks(8, Cell::unknown()), placement, 99)), Ledger::Put::kClosed);
  EXPECT_EQ(progress(*ledger).minutes, (Minutes{.good = 16}));
}

TEST_F(LedgerTest, AChargeOutlivesANewMeasurementAndGivesWayToAHeavierOne) {
  auto ledger = open();
  const auto placement = placement_of(8, "a", "H100");
  const RankCells bad = all_ranks(8, Cell::degraded(kUnexplained));
  const Sle progress_alone[] = {Sle::kProgress};
  ledger->put("job", judged(kFirst, bad, placement));
  const uint32_t light = ledger->owner({.key = "v1", .classifier = "host", .sub = "gc", .weight = 0.1f});
  const uint32_t heavy = ledger->owner({.key = "v2", .classifier = "gpu", .sub = "ecc", .weight = 0.3f});
  EXPECT_EQ(ledger->charge("job", kFirst, kFirst + 1, progress_alone, light), 1);
  ledger->put("job", judged(kFirst, bad, placement, 5));
  ASSERT_EQ(progress(*ledger).owners.size(), 1u);
  EXPECT_EQ(progress(*ledger).owners[0].first.key, "v1");
  EXPECT_EQ(ledger->charge("job", kFirst, kFirst + 1, progress_alone, heavy), 1);
  EXPECT_EQ(ledger->charge("job", kFirst, kFirst + 1, progress_alone, light), 0);
  EXPECT_EQ(progress(*ledger).owners[0].first.key, "v2");
}

TEST_F(LedgerTest, AnOwnerThatIsKnownBetterIsNotAnotherOne) {
  auto ledger = open();
  const auto placement = placement_of(2, "a", "H100");
  const uint32_t owner = ledger->owner({.key = "v1", .classifier = "gpu", .sub = ""});
  ledger->put("job", judged(kFirst, all_ranks(2, Cell::degraded(owner)), placement));
  EXPECT_EQ(ledger->owner({.key = "v1", .classifier = "gpu", .sub = "throttle-thermal"}), owner);
  EXPECT_EQ(progress(*ledger).owners[0].first.sub, "throttle-thermal");
}

TEST_F(LedgerTest, SuccessIsARangeWhereMinutesAreUnknown) {
  const Minutes minutes{.good = 6, .degraded = 2, .unknown = 2};
  EXPECT_DOUBLE_EQ(minutes.success(), 0.75);
  EXPECT_DOUBLE_EQ(minutes.success_least(), 0.6);
  EXPECT_DOUBLE_EQ(minutes.success_most(), 0.8);
  EXPECT_DOUBLE_EQ(minutes.coverage(), 0.8);
}

TEST_F(LedgerTest, ATornEndCostsWhatIsInIt) {
  const auto placement = placement_of(4, "a", "H100");
  {
    auto ledger = open();
    ledger->put("job", judged(kFirst, all_ranks(4, Cell::good()), placement));
    ASSERT_TRUE(ledger->flush().ok());
    ledger->put("job", judged(kFirst + 1, all_ranks(4, Cell::unknown()), placement));
    ASSERT_TRUE(ledger->flush().ok());
  }
  const Result<std::vector<std::string>> names = list_directory(folder_.path() + "/sle");
  ASSERT_TRUE(names.ok());
  for (const std::string& name : *names) {
    if (!name.ends_with(".wal")) continue;
    const std::string path = folder_.path() + "/sle/" + name;
    const Result<std::string> bytes = read_file(path, 1 << 20);
    ASSERT_TRUE(bytes.ok());
    ASSERT_TRUE(write_file_atomically(path, bytes->substr(0, bytes->size() - 3)).ok());
  }
  auto ledger = open();
  EXPECT_EQ(progress(*ledger).minutes, (Minutes{.good = 4}));
  ledger->put("job", judged(kFirst + 1, all_ranks(4, Cell::unknown()), placement));
  EXPECT_EQ(progress(*ledger).minutes, (Minutes{.good = 4, .unknown = 4}));
}

TEST_F(LedgerTest, KeepsItsDaysAndNoMore) {
  Result<std::unique_ptr<Ledger>> opened = Ledger::open({.keep_minutes = 100}, counters_);
  ASSERT_TRUE(opened.ok());
  Ledger& ledger = **opened;
  const auto placement = placement_of(1, "a", "H100");
  for (int32_t i = 0; i < 150; ++i) ledger.put("job", judged(kFirst + i, all_ranks(1, Cell::good()), placement));
  ledger.expire(kFirst + 150);
  EXPECT_EQ(progress(ledger).minutes, (Minutes{.good = 100}));
}

TEST_F(LedgerTest, BeyondItsRunsTheOldestDayGoes) {
  Result<std::unique_ptr<Ledger>> opened = Ledger::open({.runs_max = 1500}, counters_);
  ASSERT_TRUE(opened.ok());
  Ledger& ledger = **opened;
  const auto placement = placement_of(1, "a", "H100");
  for (int32_t i = 0; i < 2000; ++i)
    ledger.put("job", judged(kFirst + i, all_ranks(1, i % 2 == 0 ? Cell::good() : Cell::unknown()), placement));
  EXPECT_EQ(counters_.value("lockstep_sle_days_dropped_total"), 1);
  EXPECT_EQ(progress(ledger, {}, kFirst, kFirst + 2000).minutes.total(), 2000 - 1440);
}

// The whole of it against the plainest ledger there is: a map with a cell for each GPU, minute and job.
class LedgerProperties : public LedgerTest, public ::testing::WithParamInterface<int> {
 protected:
  using Key = std::tuple<std::string, int32_t, int32_t>;  // job, rank, minute
  struct Truth {
    Cell cell;
    std::string host, gpu;
  };

  void check(const Ledger& ledger) {
    const auto sum = [&](const std::function<bool(const Key&, const Truth&)>& in) {
      Minutes minutes;
      for (const auto& [key, truth] : cells_) {
        if (!in(key, truth)) continue;
        if (truth.cell.is_good()) ++minutes.good;
        if (truth.cell.is_unknown()) ++minutes.unknown;
        if (truth.cell.is_degraded()) ++minutes.degraded;
      }
      return minutes;
    };
    const SleTotals fleet = progress(ledger);
    ASSERT_EQ(fleet.minutes, sum([](const Key&, const Truth&) { return true; }));
    // Every bad minute has exactly one owner.
    std::map<std::string, int64_t> owned;
    for (const auto& [key, truth] : cells_)
      if (truth.cell.is_degraded()) ++owned[ledger.owner_at(truth.cell.owner()).key];
    int64_t charged = 0;
    for (const auto& [owner, minutes] : fleet.owners) {
      ASSERT_EQ(minutes, owned[owner.key]) << owner.key;
      charged += minutes;
    }
    ASSERT_EQ(charged, fleet.minutes.degraded);
    // Jobs, hosts, GPUs and halves of the time each add up to the fleet.
    Minutes jobs, hosts, gpus, halves;
    for (const std::string job : {"a", "b", "c"}) {
      const Minutes one = progress(ledger, {.job_id = job}).minutes;
      ASSERT_EQ(one, sum([&](const Key& key, const Truth&) { return std::get<0>(key) == job; })) << job;
      jobs += one;
    }
    std::set<std::string> host_names, gpu_names;
    for (const auto& [key, truth] : cells_) {
      host_names.insert(truth.host);
      gpu_names.insert(truth.gpu);
    }
    for (const std::string& host : host_names) hosts += progress(ledger, {.hosts = {host}}).minutes;
    for (const std::string& gpu : gpu_names) gpus += progress(ledger, {.gpus = std::set{gpu}}).minutes;
    halves += progress(ledger, {}, kFirst, kFirst + 17).minutes;
    halves += progress(ledger, {}, kFirst + 17, kFirst + 200).minutes;
    ASSERT_EQ(jobs, fleet.minutes);
    ASSERT_EQ(hosts, fleet.minutes);
    ASSERT_EQ(gpus, fleet.minutes);
    ASSERT_EQ(halves, fleet.minutes);
    check_lists(ledger, fleet);
  }

  // The page's parts: a trend, who was hurt, who is charged.
  void check_lists(const Ledger& ledger, const SleTotals& fleet) {
    const SleQuery query{.from = kFirst, .end = kFirst + 200, .bucket_minutes = 7};
    Minutes trend;
    const auto totals = ledger.totals(query);
    for (const Minutes& bucket : totals[static_cast<size_t>(Sle::kProgress)].trend) trend += bucket;
    ASSERT_EQ(trend, fleet.minutes);
    const Affected affected = ledger.affected(query, Sle::kProgress, 1000);
    for (const auto* list : {&affected.jobs, &affected.hosts, &affected.gpus, &affected.models, &affected.culprits}) {
      int64_t degraded = 0;
      for (const Affected::One& one : *list) degraded += one.degraded;
      ASSERT_EQ(degraded, fleet.minutes.degraded);
    }
  }

  std::map<Key, Truth> cells_;
};

TEST_P(LedgerProperties, MinutesAreConservedAtEveryScopeOverRestartsLateDataAndReplays) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const auto pick = [&](uint32_t most) { return static_cast<int32_t>(random() % most); };
  auto ledger = open();
  std::map<std::pair<std::string, int32_t>, uint64_t> rows;  // what each minute was judged from
  std::vector<std::pair<std::string, JudgedMinute>> sent;
  const auto put = [&](const std::string& job, const JudgedMinute& minute) {
    const RankCells before = ledger->cells(job, Sle::kProgress, minute.minute);
    if (ledger->put(job, minute) == Ledger::Put::kFewerRows) return;
    const RankCells& fresh = minute.cells[static_cast<size_t>(Sle::kProgress)];
    std::map<int32_t, Cell> charged_before;
    for (const RankRun& run : before)
      for (int32_t rank = run.first; rank < run.end(); ++rank) charged_before[rank] = run.cell;
    std::erase_if(cells_, [&](const auto& one) {
      return std::get<0>(one.first) == job && std::get<2>(one.first) == minute.minute;
    });
    for (const RankRun& run : fresh) {
      for (int32_t rank = run.first; rank < run.end(); ++rank) {
        Cell cell = run.cell;
        const bool keeps = cell == Cell::degraded(kUnexplained) && charged_before[rank].is_degraded();
        if (keeps) cell = charged_before[rank];
        cells_[{job, rank, minute.minute}] = {cell, minute.placement->hosts[static_cast<size_t>(rank / 4)].host,
                                              minute.placement->gpus[static_cast<size_t>(rank)]};
      }
    }
  };
  for (int i = 0; i < 400; ++i) {
    const std::string job(1, "abc"[pick(3)]);
    const int32_t ranks = 4 + 3 * pick(3);
    const int32_t minute = kFirst + pick(Ledger::kOpenMinutes);  // within the hour: late and again
    RankCells cells = all_ranks(ranks, Cell::good());
    if (pick(2) == 0) cells = with(cells, {{pick(4), 4 + pick(8)}}, Cell::unknown());
    if (pick(2) == 0) {
      const uint32_t owner =
          pick(2) == 0 ? kUnexplained : ledger->owner({.key = "v" + std::to_string(pick(5)), .classifier = "gpu"});
      cells = with(cells, {{pick(4), 4 + pick(8)}}, Cell::degraded(owner));
    }
    const auto placement = placement_of(ranks, job + std::to_string(ranks), ranks > 4 ? "H100" : "A100");
    sent.emplace_back(job, judged(minute, cells, placement, 1 + rows[{job, minute}]++));
    put(job, sent.back().second);
    if (i % 50 == 20) {  // the log is read back: all of it is heard once more
      for (const auto& [again_job, again] : sent) ledger->put(again_job, again);
    }
    if (i % 50 == 40) {  // a restart, after a flush or by a snapshot that the next start makes
      ASSERT_TRUE(ledger->flush().ok());
      ledger.reset();
      ledger = open();
      // Rows of owners may have other numbers now.
      for (auto& [key, truth] : cells_)
        for (const RankRun& run : ledger->cells(std::get<0>(key), Sle::kProgress, std::get<2>(key)))
          if (std::get<1>(key) >= run.first && std::get<1>(key) < run.end()) truth.cell = run.cell;
      sent.clear();
    }
    if (i % 40 == 39) check(*ledger);
    if (HasFatalFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, LedgerProperties, ::testing::Range(1, 9));

}  // namespace
}  // namespace lockstep::sle
