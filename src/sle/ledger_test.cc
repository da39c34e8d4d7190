#include "sle/ledger.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <ctime>
#include <map>
#include <random>
#include <tuple>

#include "base/disk.h"
#include "base/files.h"
#include "base/format_versions.h"
#include "sle/ledger_query.h"
#include "store/sle_counters.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep::sle {
namespace {

constexpr int32_t kFirst = 29'000'000;  // some minute of 2025

std::shared_ptr<const Placement> placement_of(int32_t ranks, const std::string& prefix, const std::string& model) {
  auto placement = std::make_shared<Placement>();
  placement->gpu_model = model;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    if (rank % 4 == 0)
      placement->hosts.push_back({Rank{rank}, std::min(4, ranks - rank), prefix + std::to_string(rank / 4)});
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
  const RankCells cells = with(all_ranks(10, Cell::good()), spans_of({3_rank, 4_rank, 9_rank}), Cell::degraded(2));
  EXPECT_EQ(cells, (RankCells{{0_rank, 3, Cell::good()},
                              {3_rank, 2, Cell::degraded(2)},
                              {5_rank, 4, Cell::good()},
                              {9_rank, 1, Cell::degraded(2)}}));
  EXPECT_EQ(with(cells, {{0_rank, 10_rank}}, Cell::good()), all_ranks(10, Cell::good()));
}

TEST(RankCells, LaidOverOthersAreWhatIsLookedAtRankByRank) {
  std::mt19937 random(5);
  const auto some = [&] {
    RankCells cells;
    for (const Rank rank : lockstep::all_ranks(30)) append(cells, rank, 1, Cell::of_code(random() % 4));
    return cells;
  };
  const auto at = [](const RankCells& cells, Rank rank) {
    for (const RankRun& run : cells)
      if (rank >= run.first && rank < run.end()) return run.cell;
    return Cell();
  };
  for (int round = 0; round < 100; ++round) {
    const RankCells below = some(), above = some(), both = covered(below, above);
    for (const Rank rank : lockstep::all_ranks(30)) {
      const Cell expected = at(below, rank) == Cell() || at(above, rank) == Cell() ? at(below, rank) : at(above, rank);
      ASSERT_EQ(at(both, rank), expected) << "round " << round << " rank " << rank;
    }
  }
}

TEST(RankSpans, InCommonAreThoseOfBoth) {
  EXPECT_EQ(common_of({{0_rank, 4_rank}, {6_rank, 9_rank}}, {{2_rank, 7_rank}, {8_rank, 20_rank}}),
            (RankSpans{{2_rank, 4_rank}, {6_rank, 7_rank}, {8_rank, 9_rank}}));
  EXPECT_EQ(common_of({{0_rank, 4_rank}}, {}), RankSpans());
  EXPECT_EQ(common_of({{0_rank, 4_rank}}, {{4_rank, 5_rank}}), RankSpans());
}

// A disk of which a sync fails, or every write of a snapshot.
class FailingDisk final : public disk::Hook {
 public:
  FailingDisk() { disk::set_hook(this); }
  ~FailingDisk() override { disk::set_hook(nullptr); }
  FailingDisk(const FailingDisk&) = delete;
  FailingDisk& operator=(const FailingDisk&) = delete;
  int before(const disk::Call& call, size_t&) override {
    using Kind = disk::Call::Kind;
    if (call.kind == Kind::kSync && syncs_to_fail > 0 && syncs_to_fail-- > 0) return EIO;
    const bool is_snapshot = call.kind == Kind::kOpen && call.path.find(".snap") != std::string_view::npos;
    snapshots += is_snapshot ? 1 : 0;
    return is_snapshot && snapshots_fail ? ENOSPC : 0;
  }
  void after(const disk::Call&, int64_t) override {}

  int syncs_to_fail = 0;
  bool snapshots_fail = false;
  int snapshots = 0;
};

class LedgerTest : public ::testing::Test {
 protected:
  std::unique_ptr<Ledger> open(LedgerOptions options = {}) {
    options.folder = folder_.path() + "/sle";
    Result<std::unique_ptr<Ledger>> ledger = Ledger::open(std::move(options), clock_, counters_);
    EXPECT_TRUE(ledger.ok()) << (ledger.ok() ? "" : ledger.error());
    return std::move(*ledger);
  }
  std::unique_ptr<Ledger> in_memory(LedgerOptions options) {
    Result<std::unique_ptr<Ledger>> ledger = Ledger::open(std::move(options), clock_, counters_);
    return std::move(*ledger);
  }
  std::string file_of(const std::string& ending) const {
    const Result<std::vector<std::string>> names = list_directory(folder_.path() + "/sle");
    for (const std::string& name : *names)
      if (name.ends_with(ending)) return folder_.path() + "/sle/" + name;
    return {};
  }
  static SleTotals progress(const Ledger& ledger, Scope scope = {}, int32_t from = kFirst, int32_t end = kFirst + 200) {
    return ledger.totals({.scope = std::move(scope), .from = from, .end = end})[static_cast<size_t>(Sle::kProgress)];
  }

  // Who is charged with minutes of progress, the most first.
  static std::vector<Owner> owners(const Ledger& ledger) {
    std::vector<Owner> all;
    const SleQuery query{.scope = {}, .from = kFirst, .end = kFirst + 200};
    for (const Affected::One& one : ledger.affected(query, Sle::kProgress, 1000).culprits) all.push_back(one.owner);
    return all;
  }

  lockstep::testing::TemporaryFolder folder_;
  lockstep::testing::FakeClock clock_;
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
  const int32_t first_alone[] = {kFirst};
  const Owner light{.key = "v1", .classifier = "host", .sub = "gc", .weight = 0.1f};
  const Owner heavy{.key = "v2", .classifier = "gpu", .sub = "ecc", .weight = 0.3f};
  EXPECT_EQ(ledger->charge("job", first_alone, progress_alone, light), 1);
  ledger->put("job", judged(kFirst, bad, placement, 5));
  ASSERT_EQ(owners(*ledger).size(), 1u);
  EXPECT_EQ(owners(*ledger)[0].key, "v1");
  EXPECT_EQ(ledger->charge("job", first_alone, progress_alone, heavy), 1);
  EXPECT_EQ(ledger->charge("job", first_alone, progress_alone, light), 0);
  EXPECT_EQ(owners(*ledger)[0].key, "v2");
}

TEST_F(LedgerTest, AnOwnerThatIsKnownBetterIsNotAnotherOne) {
  auto ledger = open();
  const auto placement = placement_of(2, "a", "H100");
  JudgedMinute one = judged(kFirst, all_ranks(2, Cell::degraded(1)), placement);
  one.owners = {{.key = "v1", .classifier = "gpu", .sub = ""}};
  ledger->put("job", one);
  ledger->charge("job", {}, {}, {.key = "v1", .classifier = "gpu", .sub = "throttle-thermal"});
  ASSERT_EQ(owners(*ledger).size(), 1u);
  EXPECT_EQ(owners(*ledger)[0].sub, "throttle-thermal");
}

TEST_F(LedgerTest, OwnersThatWereLetGoSinceAMinuteWasJudgedAreKnownAgainWhenItIsPut) {
  auto ledger = open({.log_bytes_max = 1});
  const auto placement = placement_of(2, "a", "H100");
  const Owner first{.key = "v1", .classifier = "gpu"}, second{.key = "v2", .classifier = "host"};
  JudgedMinute one =
      judged(kFirst, with(all_ranks(2, Cell::degraded(1)), {{1_rank, 2_rank}}, Cell::degraded(2)), placement);
  one.owners = {first, second};
  ledger->put("job", judged(kFirst, all_ranks(2, Cell::degraded(kUnexplained)), placement));
  ledger->charge("job", {}, {}, second);  // known, and nothing is charged to it
  ASSERT_TRUE(ledger->flush().ok());      // a snapshot without it
  ledger->put("job", one);
  ASSERT_EQ(owners(*ledger).size(), 2u);
  EXPECT_EQ(owners(*ledger)[0], first);
  EXPECT_EQ(owners(*ledger)[1], second);
}

TEST_F(LedgerTest, WhereAnOwnerIsInTheNetworkOutlivesARestart) {
  auto ledger = open();
  JudgedMinute one = judged(kFirst, all_ranks(2, Cell::degraded(1)), placement_of(2, "a", "H100"));
  one.owners = {{.key = "v1", .classifier = "nic", .place = "nic:node-1:mlx5_0"}};
  ledger->put("job", one);
  ASSERT_TRUE(ledger->flush().ok());
  ledger.reset();
  ledger = open();
  EXPECT_EQ(owners(*ledger)[0].place, "nic:node-1:mlx5_0");
}

TEST_F(LedgerTest, OfVersion1OwnersHaveNoPlace) {
  auto ledger = in_memory({});
  using std::string_literals::operator""s;
  EXPECT_TRUE(ledger->restore_record("\x01\x01"s));
  const std::string owner =
      "\x03\x01\x02v1\x03gpu\x03"
      "ecc\x01g\x01h\x01u\x02v1\x03job\x03\0\0\0\0"s;
  EXPECT_TRUE(ledger->restore_record(owner));
  EXPECT_EQ(ledger->owner_at(1).job_id, "job");
  EXPECT_EQ(ledger->owner_at(1).place, "");
  EXPECT_FALSE(ledger->restore_record("\x01\x04"s));
}

TEST_F(LedgerTest, AllThatAScopeSaysMustHold) {
  auto ledger = open();
  ledger->put("job", judged(kFirst, all_ranks(8, Cell::good()), placement_of(8, "a", "H100")));
  const auto good = [&](Scope scope) { return progress(*ledger, std::move(scope)).minutes.good; };
  EXPECT_EQ(good({.hosts = {"a0"}, .gpus = std::set<std::string>{"agpu1", "agpu5"}}), 1);
  EXPECT_EQ(good({.job_id = "job", .ranks = RankSpans{{2_rank, 6_rank}}, .hosts = {"a1"}}), 2);
  EXPECT_EQ(good({.job_id = "job", .ranks = RankSpans{{2_rank, 6_rank}}, .gpus = std::set<std::string>{"agpu7"}}), 0);
}

TEST_F(LedgerTest, EachOwnerIsLookedAtOnceHoweverManyMinutesAreChargedToIt) {
  auto ledger = in_memory({});
  const auto placement = placement_of(8, "a", "H100");
  for (int32_t i = 0; i < 50; ++i) {
    JudgedMinute one =
        judged(kFirst + i, with(all_ranks(8, Cell::degraded(1)), {{Rank{i % 7}, 8_rank}}, Cell::good()), placement);
    one.owners = {{.key = "v1", .classifier = "gpu"}};
    ledger->put("job", one);
  }
  int asked = 0;
  SleQuery query{.scope = {}, .from = kFirst, .end = kFirst + 200};
  query.charged_to = [&](const Owner&) { return ++asked > 0; };
  const auto totals = ledger->totals(query);
  EXPECT_EQ(asked, 1);
  const Affected affected = ledger->affected(query, Sle::kProgress, 10);
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(affected.culprits[0].degraded, totals[static_cast<size_t>(Sle::kProgress)].chosen);
}

TEST_F(LedgerTest, SuccessIsARangeWhereMinutesAreUnknown) {
  const Minutes minutes{.good = 6, .degraded = 2, .unknown = 2};
  EXPECT_DOUBLE_EQ(minutes.success(), 0.75);
  EXPECT_DOUBLE_EQ(minutes.success_least(), 0.6);
  EXPECT_DOUBLE_EQ(minutes.success_most(), 0.8);
  EXPECT_DOUBLE_EQ(minutes.coverage(), 0.8);
}

TEST_F(LedgerTest, EachGpuCostsWhatItsModelCostsAndWhatHasNoPriceIsKeptApart) {
  auto ledger = open();
  ledger->put("job", judged(kFirst, all_ranks(8, Cell::degraded(kUnexplained)), placement_of(8, "a", "H100")));
  const GpuPrices prices = *GpuPrices::parse("H100=60,A100=30");
  SleQuery query{.scope = {.job_id = "job"}, .from = kFirst, .end = kFirst + 1, .prices = &prices};
  const auto cost = [&] { return money_text(ledger->totals(query)[0].chosen_cost); };
  EXPECT_EQ(cost(), "8.00 at 60.00 a GPU-hour") << "by the job's model, where no GPU's own is known";
  query.models =
      std::make_shared<const GpuModels>(GpuModels{{"agpu5", "NVIDIA A100"}, {"agpu6", "NVIDIA A100"}, {"agpu7", "L4"}});
  EXPECT_EQ(cost(), "6.00 at 30.00 to 60.00 a GPU-hour, and 1.0 GPU-minutes without a price (L4)");
  query.scope.ranks = RankSpans{{4_rank, 6_rank}};
  EXPECT_EQ(cost(), "1.50 at 30.00 to 60.00 a GPU-hour");
  query.prices = nullptr;
  EXPECT_EQ(cost(), "");
}

TEST_F(LedgerTest, ThePriceOfALargeJobWithManyModelsIsNotSoughtFromTheBeginningForEachRank) {
  constexpr int32_t kRanks = 32'000;
  auto ledger = open();
  const auto placement = placement_of(kRanks, "a", "");
  GpuModels models;
  for (size_t i = 0; i < placement->gpus.size(); ++i) models[placement->gpus[i]] = i % 4 < 2 ? "H100" : "A100";
  RankCells in_turn;
  for (const Rank rank : lockstep::all_ranks(kRanks))
    append(in_turn, rank, 1, index_of(rank) % 2 == 0 ? Cell::degraded(kUnexplained) : Cell::good());
  ledger->put("job", judged(kFirst, all_ranks(kRanks, Cell::degraded(kUnexplained)), placement));
  ledger->put("job", judged(kFirst + 1, std::move(in_turn), placement));
  const GpuPrices prices = *GpuPrices::parse("H100=60,A100=30");
  SleQuery query{.scope = {}, .prices = &prices, .models = std::make_shared<const GpuModels>(std::move(models))};
  double money = 0;
  const auto processor_time = [&](int32_t minute) {
    query.from = minute;
    query.end = minute + 1;
    const std::clock_t before = std::clock();
    money = ledger->totals(query)[static_cast<size_t>(Sle::kProgress)].chosen_cost.money;
    return std::clock() - before;
  };
  const std::clock_t of_one_run = processor_time(kFirst);
  EXPECT_DOUBLE_EQ(money, 24'000);
  EXPECT_LT(processor_time(kFirst + 1), 10 * of_one_run);
  EXPECT_DOUBLE_EQ(money, 12'000);
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

TEST_F(LedgerTest, ASnapshotThatIsCutOffIsDamageAndNotACrash) {
  {
    auto ledger = open();
    ledger->put("job", judged(kFirst, all_ranks(4, Cell::good()), placement_of(4, "a", "H100")));
    ASSERT_TRUE(ledger->hold(folder_.path()).ok());  // in a snapshot
  }
  const std::string path = file_of(".snap");
  const Result<std::string> bytes = read_file(path, 1 << 20);
  ASSERT_TRUE(bytes.ok());
  ASSERT_TRUE(write_file_atomically(path, bytes->substr(0, bytes->size() - 3)).ok());
  open();
  EXPECT_EQ(counters_.value("lockstep_sle_files_damaged_total"), 1);
}

TEST_F(LedgerTest, AFileOfANewerFrameIsRefusedAndStays) {
  open();
  const std::string path = file_of(".snap");
  Result<std::string> bytes = read_file(path, 1 << 20);
  ASSERT_TRUE(bytes.ok());
  (*bytes)[formats::kMetricLog.magic.size()] = 9;
  ASSERT_TRUE(write_file_atomically(path, *bytes).ok());
  EXPECT_FALSE(Ledger::open({.folder = folder_.path() + "/sle"}, clock_, counters_).ok());
  EXPECT_EQ(*read_file(path, 1 << 20), *bytes);
}

TEST_F(LedgerTest, AfterASyncThatFailedASnapshotMakesEverythingDurable) {
  const auto placement = placement_of(4, "a", "H100");
  {
    auto ledger = open();
    FailingDisk disk;
    ledger->put("job", judged(kFirst, all_ranks(4, Cell::good()), placement));
    disk.syncs_to_fail = 1;
    EXPECT_FALSE(ledger->flush().ok());
    EXPECT_TRUE(ledger->flush().ok());
    ledger->put("job", judged(kFirst + 1, all_ranks(4, Cell::good()), placement));
    EXPECT_TRUE(ledger->flush().ok());
  }
  EXPECT_EQ(progress(*open()).minutes, (Minutes{.good = 8}));
}

TEST_F(LedgerTest, ASnapshotThatFailsIsTriedOnceAMinuteAndTheLogIsFlushedMeanwhile) {
  const auto placement = placement_of(4, "a", "H100");
  auto ledger = open({.log_bytes_max = 400});
  FailingDisk disk;
  disk.snapshots_fail = true;
  int32_t minute = kFirst;
  const auto put = [&] { ledger->put("job", judged(minute++, all_ranks(4, Cell::good()), placement)); };
  while (disk.snapshots == 0) {
    put();
    EXPECT_TRUE(ledger->flush().ok());
  }
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(ledger->flush().ok());
  EXPECT_EQ(disk.snapshots, 1);
  // A log that nobody relieves is no place to keep things in: it is cut, and nothing is confirmed.
  for (int i = 0; i < 100; ++i) put();
  EXPECT_FALSE(ledger->flush().ok());
  clock_.advance(Ledger::kRetryNs);
  EXPECT_FALSE(ledger->flush().ok());
  EXPECT_EQ(disk.snapshots, 2);
  disk.snapshots_fail = false;
  clock_.advance(Ledger::kRetryNs);
  EXPECT_TRUE(ledger->flush().ok());
  ledger.reset();
  EXPECT_EQ(progress(*open()).minutes.total(), 4 * (minute - kFirst));
}

TEST_F(LedgerTest, KeepsItsDaysAndNoMore) {
  const auto opened = in_memory({.keep_minutes = 100});
  Ledger& ledger = *opened;
  const auto placement = placement_of(1, "a", "H100");
  for (int32_t i = 0; i < 150; ++i) ledger.put("job", judged(kFirst + i, all_ranks(1, Cell::good()), placement));
  ledger.expire(kFirst + 150);
  clock_.advance(50 * kMinuteNs);
  ledger.expire(kFirst + 150);
  EXPECT_EQ(progress(ledger).minutes, (Minutes{.good = 100}));
}

TEST_F(LedgerTest, AClockThatJumpsNeitherEmptiesNorClosesIt) {
  const auto opened = in_memory({});
  Ledger& ledger = *opened;
  const auto placement = placement_of(1, "a", "H100");
  constexpr int32_t kYear = 365 * 1440;
  ledger.expire(kFirst + kYear);  // nothing is there yet
  EXPECT_EQ(ledger.put("job", judged(kFirst, all_ranks(1, Cell::good()), placement)), Ledger::Put::kStored);
  ledger.expire(kFirst);
  clock_.advance(kMinuteNs);
  ledger.put("job", judged(kFirst + 30, all_ranks(1, Cell::good()), placement));
  ledger.expire(kFirst + kYear);
  EXPECT_EQ(progress(ledger).minutes.good, 2);
  EXPECT_EQ(ledger.put("job", judged(kFirst + 31, all_ranks(1, Cell::good()), placement)), Ledger::Put::kStored);
}

TEST_F(LedgerTest, WhatNothingRefersToLeavesTheTables) {
  const auto opened = in_memory({.keep_minutes = 10, .runs_max = 200});
  Ledger& ledger = *opened;
  for (int32_t i = 0; i < 100; ++i) {  // other hosts every minute
    EXPECT_EQ(ledger.put("job", judged(kFirst + i, all_ranks(8, Cell::good()), placement_of(8, std::to_string(i), ""))),
              Ledger::Put::kStored);
    EXPECT_TRUE(ledger.flush().ok());
    clock_.advance(kMinuteNs);
    ledger.expire(kFirst + i);
  }
  EXPECT_EQ(counters_.value("lockstep_sle_days_dropped_total"), 0);
}

TEST_F(LedgerTest, TablesThatAreInUseAndTooLargeCostTheOldestButNeverClosesWhatComes) {
  const auto opened = in_memory({.runs_max = 200});
  Ledger& ledger = *opened;
  for (int32_t i = 0; i < 100; ++i) {
    EXPECT_EQ(ledger.put("job", judged(kFirst + i, all_ranks(8, Cell::good()), placement_of(8, std::to_string(i), ""))),
              Ledger::Put::kStored);
    EXPECT_TRUE(ledger.flush().ok());
    clock_.advance(kMinuteNs);
  }
  EXPECT_GT(counters_.value("lockstep_sle_days_dropped_total"), 0);
}

TEST_F(LedgerTest, BeyondItsRunsTheOldestDayGoes) {
  const auto opened = in_memory({.runs_max = 1500});
  Ledger& ledger = *opened;
  const auto placement = placement_of(1, "a", "H100");
  for (int32_t i = 0; i < 2000; ++i)
    ledger.put("job", judged(kFirst + i, all_ranks(1, i % 2 == 0 ? Cell::good() : Cell::unknown()), placement));
  EXPECT_EQ(counters_.value("lockstep_sle_days_dropped_total"), 1);
  EXPECT_EQ(progress(ledger, {}, kFirst, kFirst + 2000).minutes.total(), 2000 - 1440);
}

TEST_F(LedgerTest, TakesFromTheBudgetWhatItHoldsAndGivesItBack) {
  MemoryBudget budget(64u << 20, [] { return 0; });
  {
    auto ledger = open({.keep_minutes = 10, .memory = &budget});
    for (int32_t i = 0; i < 20; ++i)
      ledger->put("job", judged(kFirst + i, all_ranks(2000, Cell::good()),
                                placement_of(2000, "a-host-with-a-long-name-" + std::to_string(i) + "-", "H100")));
    const uint64_t held = ledger->memory_bytes();
    EXPECT_GT(held, 20u * 2000 * 32);
    EXPECT_GE(budget.taken(MemoryUse::kLedger), held);
    EXPECT_LT(budget.taken(MemoryUse::kLedger), held + (4u << 20));
    ASSERT_TRUE(ledger->flush().ok());
    ledger.reset();
    EXPECT_EQ(budget.taken(MemoryUse::kLedger), 0u);
    ledger = open({.keep_minutes = 10, .memory = &budget});
    EXPECT_EQ(ledger->memory_bytes(), held);
    EXPECT_GE(budget.taken(MemoryUse::kLedger), held) << "what the files brought back";
    ledger->expire(kFirst + 20);  // days go no faster than the clock
    clock_.advance(20 * kMinuteNs);
    ledger->expire(kFirst + 20);
    ASSERT_TRUE(ledger->hold(folder_.path()).ok());  // a snapshot, without what nothing refers to
    EXPECT_LT(ledger->memory_bytes(), held * 6 / 10);
    EXPECT_LT(budget.taken(MemoryUse::kLedger), held * 6 / 10 + (4u << 20));
  }
  EXPECT_EQ(budget.taken(MemoryUse::kLedger), 0u);
}

TEST_F(LedgerTest, AMinuteThatFindsNoMemoryIsRefusedAndCountedAndTheOthersStay) {
  MemoryBudget budget(8u << 20, [] { return 0; });
  auto ledger = in_memory({.memory = &budget});
  int32_t minute = kFirst;
  const auto put = [&](const std::string& job, int32_t ranks) {
    ++minute;
    return ledger->put(job, judged(minute, all_ranks(ranks, Cell::good()),
                                   placement_of(ranks, "a-host-with-a-long-name-" + std::to_string(minute), "")));
  };
  EXPECT_EQ(put("small", 8), Ledger::Put::kStored);
  int stored = 0;
  while (put("large", 5000) == Ledger::Put::kStored) ASSERT_LT(++stored, 100);
  EXPECT_GT(stored, 0);
  EXPECT_EQ(counters_.value("lockstep_sle_minutes_total", "result=\"no_memory\""), 1);
  EXPECT_LE(ledger->memory_bytes(), 4u << 20);
  EXPECT_EQ(progress(*ledger).minutes.good, 8 + 5000 * stored);
}

// The whole of it against the plainest ledger there is: a map with a cell for each GPU, minute and job.
class LedgerProperties : public LedgerTest, public ::testing::WithParamInterface<int> {
 protected:
  using Key = std::tuple<std::string, Rank, int32_t>;  // job, rank, minute
  struct Truth {
    Cell cell;
    std::string owner, host, gpu;
  };

  void check(const Ledger& ledger) {
    const auto sum = [&](const std::function<bool(const Key&, const Truth&)>& in) {
      Minutes minutes;
      for (const auto& [key, truth] : cells_) {
        if (!in(key, truth)) continue;
        if (truth.cell.is_good()) ++minutes.good;
        if (truth.cell.is_unknown()) ++minutes.unknown;
        if (truth.cell.is_degraded()) ++minutes.degraded;
        if (truth.cell.is_idle()) ++minutes.idle;
      }
      return minutes;
    };
    const SleTotals fleet = progress(ledger);
    ASSERT_EQ(fleet.minutes, sum([](const Key&, const Truth&) { return true; }));
    // Every bad minute has exactly one owner.
    std::map<std::string, int64_t> owned;
    int64_t charged = 0;
    for (const auto& [key, truth] : cells_)
      if (truth.cell.is_degraded()) ++owned[truth.owner == "unexplained" ? truth.owner : "gpu " + truth.owner];
    for (const SleTotals::Part& part : fleet.parts) {
      ASSERT_EQ(part.minutes, owned[part.classifier + (part.sub.empty() ? "" : " " + part.sub)]);
      charged += part.minutes;
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
    const auto both = ledger.totals({.scope = {.gpus = gpu_names}, .from = kFirst, .end = kFirst + 200});
    ASSERT_EQ(both[static_cast<size_t>(Sle::kMfu)].minutes, both[static_cast<size_t>(Sle::kProgress)].minutes);
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
    check_affected(affected, ledger.affected(query, Sle::kProgress, 2));
    for (const auto* list : {&affected.jobs, &affected.hosts, &affected.gpus, &affected.models, &affected.culprits}) {
      int64_t degraded = 0;
      for (const Affected::One& one : *list) degraded += one.degraded;
      ASSERT_EQ(degraded, fleet.minutes.degraded);
    }
  }

  // Sums over runs of ranks and placements are those of each GPU's minutes, and a short list is the head of the long one.
  void check_affected(const Affected& affected, const Affected& short_list) {
    std::map<std::string, std::pair<int64_t, int64_t>> jobs, hosts;  // degraded, all
    std::map<std::pair<std::string, Rank>, int64_t> ranks;
    std::map<std::string, int64_t> owned;
    const auto add = [](std::pair<int64_t, int64_t>& to, bool degraded) {
      to.first += degraded ? 1 : 0;
      ++to.second;
    };
    for (const auto& [key, truth] : cells_) {
      if (truth.cell.is_idle()) continue;
      add(jobs[std::get<0>(key)], truth.cell.is_degraded());
      add(hosts[truth.host], truth.cell.is_degraded());
      if (!truth.cell.is_degraded()) continue;
      ++ranks[{std::get<0>(key), std::get<1>(key)}];
      ++owned[truth.owner];
    }
    ASSERT_EQ(affected.gpus.size(), ranks.size());
    ASSERT_EQ(affected.culprits.size(), owned.size());
    for (const Affected::One& one : affected.jobs) ASSERT_EQ(std::pair(one.degraded, one.total), jobs[one.name]);
    for (const Affected::One& one : affected.hosts) ASSERT_EQ(std::pair(one.degraded, one.total), hosts[one.name]);
    for (const Affected::One& one : affected.gpus) ASSERT_EQ(one.degraded, (ranks[{one.job_id, one.rank}]));
    for (const Affected::One& one : affected.culprits) ASSERT_EQ(one.degraded, owned[one.owner.key]);
    const auto compare = [](const std::vector<Affected::One>& head, const std::vector<Affected::One>& all) {
      ASSERT_EQ(head.size(), std::min<size_t>(2, all.size()));
      for (size_t i = 0; i < head.size(); ++i)
        ASSERT_EQ(std::tie(head[i].name, head[i].job_id, head[i].rank, head[i].degraded),
                  std::tie(all[i].name, all[i].job_id, all[i].rank, all[i].degraded));
      for (size_t i = 1; i < all.size(); ++i) ASSERT_GE(all[i - 1].degraded, all[i].degraded);
    };
    compare(short_list.jobs, affected.jobs);
    compare(short_list.hosts, affected.hosts);
    compare(short_list.gpus, affected.gpus);
    compare(short_list.culprits, affected.culprits);
    ASSERT_EQ(short_list.gpus_in_all, ranks.size());
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
    std::map<Rank, Cell> charged_before;
    for (const RankRun& run : before)
      for (Rank rank = run.first; rank < run.end(); ++rank) charged_before[rank] = run.cell;
    std::erase_if(cells_, [&](const auto& one) {
      return std::get<0>(one.first) == job && std::get<2>(one.first) == minute.minute;
    });
    for (const RankRun& run : fresh) {
      for (Rank rank = run.first; rank < run.end(); ++rank) {
        const Cell cell = run.cell;
        std::string owner = cell == Cell::degraded(1) ? minute.owners[0].key : "unexplained";
        const bool keeps = cell == Cell::degraded(kUnexplained) && charged_before[rank].is_degraded();
        if (keeps) owner = ledger->owner_at(charged_before[rank].owner()).key;
        cells_[{job, rank, minute.minute}] = {cell, std::move(owner), minute.placement->hosts[index_of(rank) / 4].host,
                                              minute.placement->gpus[index_of(rank)]};
      }
    }
  };
  for (int i = 0; i < 400; ++i) {
    const std::string job(1, "abc"[pick(3)]);
    const int32_t ranks = 4 + 3 * pick(3);
    const int32_t minute = kFirst + pick(Ledger::kOpenMinutes);  // within the hour: late and again
    RankCells cells = all_ranks(ranks, Cell::good());
    if (pick(2) == 0) cells = with(cells, {{Rank{pick(4)}, Rank{4 + pick(8)}}}, Cell::unknown());
    const bool is_owned = pick(2) == 0;
    if (pick(2) == 0)
      cells = with(cells, {{Rank{pick(4)}, Rank{4 + pick(8)}}}, Cell::degraded(is_owned ? 1 : kUnexplained));
    if (pick(4) == 0) cells = with(cells, {{Rank{pick(4)}, Rank{4 + pick(8)}}}, Cell::idle());
    const auto placement = placement_of(ranks, job + std::to_string(ranks), ranks > 4 ? "H100" : "A100");
    sent.emplace_back(job, judged(minute, cells, placement, 1 + rows[{job, minute}]++));
    sent.back().second.owners.resize(1);
    Owner& owner = sent.back().second.owners[0];
    owner = {.key = "v" + std::to_string(pick(5)), .classifier = "gpu"};
    owner.sub = owner.key;
    sent.back().second.cells[static_cast<size_t>(Sle::kMfu)] = cells;  // one look at the scope serves all SLEs
    put(job, sent.back().second);
    if (i % 50 == 20) {  // the log is read back: all of it is heard once more
      for (const auto& [again_job, again] : sent) ledger->put(again_job, again);
    }
    if (i % 50 == 40) {  // a restart, after a flush or by a snapshot that the next start makes
      ASSERT_TRUE(ledger->flush().ok());
      ledger.reset();
      ledger = open();
      sent.clear();
    }
    if (i % 40 == 39) check(*ledger);
    if (HasFatalFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, LedgerProperties, ::testing::Range(1, 9));

}  // namespace
}  // namespace lockstep::sle
