// The SLE ledger on a disk that fails, fills up and loses power where a seed says so: what flush() confirmed is there after
// every crash, and no minute is there with another judgement than one that was put for it.
//
//     ledger_faults_test --seeds 5000 --first-seed 1     a soak; a failure names its seed
//
// A judgement follows from job, minute and how many rows it was made from, so that one under another's name is seen.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/log.h"
#include "base/text.h"
#include "sle/ledger.h"
#include "store/sle_counters.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"
#include "tests/faults/simulated_disk.h"

namespace lockstep::sle {
namespace {

uint64_t seeds = 100;
uint64_t first_seed = 1;

constexpr int32_t kFirst = 29'000'000;
constexpr int32_t kRanks = 6;
constexpr const char* kJobs[] = {"a", "b"};

RankCells judgement(int job, int32_t minute, uint64_t rows) {
  const uint64_t draw =
      (static_cast<uint64_t>(minute) * 31 + rows * 7 + static_cast<uint64_t>(job)) * 0x9e3779b97f4a7c15;
  const Cell cells[] = {Cell::good(), Cell::unknown(), Cell::idle(), Cell::degraded(1)};
  const Rank some{static_cast<int32_t>(draw >> 40 & 3)};
  return with(all_ranks(kRanks, cells[draw >> 60 & 3]), {{some, some + 2}}, cells[draw >> 50 & 3]);
}
std::string owner_key(int job, int32_t minute) {
  return format("v-%d-%d", job, minute / 3);
}

struct Met {
  uint64_t crashes = 0, faults = 0, confirmed = 0, unconfirmed = 0, failed_starts = 0, snapshots = 0;
};

class World {
 public:
  World(const std::string& root, uint64_t seed) : random_(seed * 0x9e3779b97f4a7c15), root_(root), disk_(root, seed) {}
  ~World() {
    disk_.stop();
    ledger_.reset();
  }

  std::string run(Met& met) {
    const uint64_t lives = 2 + below(3);
    for (uint64_t life = 0; life <= lives && wrong_.empty(); ++life) {
      start(met);
      choose_odds();
      disk_.stop_after(5 + below(80));
      for (uint64_t i = 40 + below(100); i > 0 && !disk_.is_stopped() && wrong_.empty(); --i) act(met);
      crash(met);
    }
    if (wrong_.empty()) start(met);
    met.faults += disk_.faults();
    return wrong_;
  }

 private:
  struct Put {
    uint64_t confirmed = 0, held = 0, newest = 0;  // rows; 0: none. Newest: that was ever put
  };

  uint64_t below(uint64_t most) { return random_() % most; }
  void choose_odds() {
    const SimulatedDisk::Odds odds[] = {
        {}, {.sync = 0.2}, {.write = 0.05, .full = 0.05}, {.sync = 0.05, .write = 0.05, .other = 0.05}};
    disk_.set_odds(odds[below(4)]);
  }

  // Opened, at the third time without faults, and compared.
  void start(Met& met) {
    disk_.stop_after(UINT64_MAX);
    for (int attempt = 0; wrong_.empty(); ++attempt) {
      disk_.set_odds({});
      if (attempt < 2 && below(3) == 0) {
        choose_odds();
        disk_.stop_after(1 + below(12));
      }
      counters_ = std::make_unique<Counters>(kSleCounters);
      auto opened = Ledger::open({.folder = root_ + "/sle", .log_bytes_max = 200 + below(3000)}, clock_, *counters_);
      if (opened.ok() && !disk_.is_stopped()) {
        ledger_ = std::move(*opened);
        break;
      }
      if (attempt >= 2) wrong_ = "it did not start on a disk that did not fail: " + (opened.ok() ? "" : opened.error());
      ++met.failed_starts;
      if (opened.ok()) ledger_ = std::move(*opened);
      crash(met);
      disk_.stop_after(UINT64_MAX);
    }
    if (wrong_.empty()) check();
  }

  void crash(Met& met) {
    ++met.crashes;
    disk_.stop();
    ledger_.reset();
    disk_.set_odds({});
    if (below(3) == 0) {
      disk_.restart_process();
    } else {
      disk_.lose_power();
    }
  }

  void act(Met& met) {
    clock_.advance(20'000'000'000);
    if (below(5) == 0) {
      const uint64_t before = disk_.faults();
      const bool ok = ledger_->flush().ok();
      if (!ok && disk_.faults() == before && !disk_.is_stopped() && before == 0) wrong_ = "flush fails without a fault";
      for (auto& [key, put] : puts_) {
        if (ok && !disk_.is_stopped()) put.confirmed = put.held;
        ++(put.confirmed == put.held ? met.confirmed : met.unconfirmed);
      }
      return;
    }
    if (below(40) == 0 && ledger_->hold(root_).ok()) ++met.snapshots;
    const int job = static_cast<int>(below(2));
    minute_ += below(3) == 0 ? 1 : 0;
    const int32_t minute = minute_ - static_cast<int32_t>(below(5));
    Put& put = puts_[{job, minute}];
    JudgedMinute judged{
        .minute = minute, .evidence = put.newest + 1, .placement = placement(static_cast<int>(below(2)))};
    judged.cells[static_cast<size_t>(Sle::kProgress)] = judgement(job, minute, judged.evidence);
    judged.owners = {{.key = owner_key(job, minute), .classifier = "gpu"}};
    if (ledger_->put(kJobs[job], std::move(judged)) == Ledger::Put::kStored) put.held = ++put.newest;
  }

  static std::shared_ptr<const Placement> placement(int which) {
    auto placement = std::make_shared<Placement>();
    placement->hosts = {{0_rank, kRanks, format("node-%d", which)}};
    for (int32_t rank = 0; rank < kRanks; ++rank) placement->gpus.push_back(format("GPU-%d-%d", which, rank));
    return placement;
  }

  // What is there, with the owners' rows as a judgement numbers them; empty: an owner is another minute's.
  RankCells found(int job, int32_t minute) const {
    RankCells cells;
    for (const RankRun& run : ledger_->cells(kJobs[job], Sle::kProgress, minute)) {
      const bool owned = run.cell.is_degraded();
      if (owned && ledger_->owner_at(run.cell.owner()).key != owner_key(job, minute)) return {};
      append(cells, run.first, run.ranks, owned ? Cell::degraded(1) : run.cell);
    }
    return cells;
  }

  void check() {
    for (auto& [key, put] : puts_) {
      const RankCells cells = found(key.first, key.second);
      const bool is_none = ledger_->cells(kJobs[key.first], Sle::kProgress, key.second).empty();
      uint64_t rows = is_none ? 0 : put.newest;
      while (rows > 0 && judgement(key.first, key.second, rows) != cells) --rows;
      if (rows < put.confirmed || (rows == 0 && !is_none)) {
        wrong_ = format("job %s minute %d: %s, and %llu was confirmed of %llu", kJobs[key.first], key.second - kFirst,
                        is_none ? "nothing is there" : "what is there was not put",
                        static_cast<unsigned long long>(put.confirmed), static_cast<unsigned long long>(put.newest));
        return;
      }
      put.confirmed = put.held = rows;
    }
  }

  std::mt19937_64 random_;
  const std::string root_;
  SimulatedDisk disk_;
  lockstep::testing::FakeClock clock_;
  std::unique_ptr<Counters> counters_;
  std::unique_ptr<Ledger> ledger_;
  std::map<std::pair<int, int32_t>, Put> puts_;  // by job and minute
  int32_t minute_ = kFirst;
  std::string wrong_;
};

TEST(LedgerFaults, WhatWasConfirmedIsThereAfterEveryCrash) {
  Met met;
  const bool is_fast = std::filesystem::exists("/dev/shm");
  for (uint64_t seed = first_seed; seed < first_seed + seeds; ++seed) {
    lockstep::testing::TemporaryFolder folder(is_fast ? "/dev/shm" : std::filesystem::temp_directory_path());
    std::string wrong;
    {
      World world(folder.path(), seed);
      wrong = world.run(met);
    }
    if (!wrong.empty()) folder.keep();
    ASSERT_EQ(wrong, "") << "seed " << seed << ", left in " << folder.path()
                         << "; again: ledger_faults_test --seeds 1 --first-seed " << seed;
  }
  std::printf("%llu seeds: %llu crashes, %llu faults, %llu starts that failed, %llu minutes confirmed, %llu not\n",
              static_cast<unsigned long long>(seeds), static_cast<unsigned long long>(met.crashes),
              static_cast<unsigned long long>(met.faults), static_cast<unsigned long long>(met.failed_starts),
              static_cast<unsigned long long>(met.confirmed), static_cast<unsigned long long>(met.unconfirmed));
  if (seeds < 100) return;
  EXPECT_GT(met.crashes, 2 * seeds);
  EXPECT_GT(met.faults, seeds);
  EXPECT_GT(met.confirmed, 20 * seeds);
  EXPECT_GT(met.unconfirmed, seeds);
  EXPECT_GT(met.failed_starts, seeds / 10);
  EXPECT_GT(met.snapshots, seeds / 10);
}

}  // namespace
}  // namespace lockstep::sle

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (std::getenv("LOCKSTEP_LOG") == nullptr) lockstep::set_log_level(static_cast<lockstep::LogLevel>(99));
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    const uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (flag == "--seeds") lockstep::sle::seeds = value;
    if (flag == "--first-seed") lockstep::sle::first_seed = value;
  }
  return RUN_ALL_TESTS();
}
