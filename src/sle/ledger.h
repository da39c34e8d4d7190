// The ledger: every minute of every GPU of every job, judged by each SLE as good, degraded, unknown or idle by plan; a
// degraded one is charged to exactly one owner (decision 0021).
//
// A minute is kept by (job, minute, SLE) as runs of ranks and set, never added to: what is judged again replaces what was
// judged before. So restarts, late data and replays count nothing twice. Which judgement stays is decided in one place:
//   - put() replaces what was judged from fewer rows, or as many, and never what was judged from more;
//   - a minute older than kOpenMinutes before the newest of its job is closed and stays as it is;
//   - measuring and charging are apart: a minute that is measured again keeps its charge, unless it has a new one.
//
// On disk: a snapshot and a log of records behind it, each with a checksum (docs/formats/sle-ledger.md); a start reads
//   both and begins a new snapshot. What flush() confirmed survives a crash; a torn or damaged end costs what is in it.
// Limits: keep_minutes of minutes, no faster than RetentionPace; runs_max runs, and as much in the tables that they refer
//   to (beyond it, the oldest day of all goes, and again); kJobsMax jobs. What nothing refers to any more leaves the tables
//   with the next snapshot, which full tables ask for. Its memory is of the budget: a minute that finds no room there is
//   refused, counted (no_memory) and said in one line; what the files bring back at a start is kept, and taken as room comes.
// Thread rule: Thread-safe (one lock, which a new snapshot holds while it is written).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/clock_witness.h"
#include "base/counters.h"
#include "base/held_file.h"
#include "base/memory_budget.h"
#include "base/mutex.h"
#include "base/rate_limited_log.h"
#include "base/result.h"
#include "sle/minute_runs.h"
#include "sle/rank_cells.h"
#include "sle/sle_terms.h"
#include "store/columns/byte_codec.h"
#include "store/metrics/wal.h"

namespace lockstep::sle {

inline constexpr int64_t kMinuteNs = 60'000'000'000;
constexpr int32_t minute_of(int64_t unix_ns) {
  return static_cast<int32_t>(unix_ns / kMinuteNs);
}

enum class CulpritKind : uint8_t { kNobody, kJob, kRank, kGpu, kHost, kNic, kLink, kSwitch };
const char* to_text(CulpritKind kind);  // "nobody", "job", "rank", "gpu", "host", "nic", "link", "switch"

// Who a degraded minute is charged to. Row 0 of the ledger is always "unexplained".
struct Owner {
  std::string key;         // what it is known by: a verdict's id, or what it is made of
  std::string classifier;  // "gpu", "host", ... (layers of verdicts), "telemetry", "reported", "restart", "unexplained"
  std::string sub;         // a verdict's cause; else what happened
  CulpritKind kind = CulpritKind::kNobody;
  std::string culprit;  // "GPU of rank 5", "link rank 1 -> rank 2"
  std::string host;
  std::string gpu_uuid;
  std::string verdict_id;
  std::string job_id;
  std::string place = {};  // in the network, as a verdict has it: "nic:node-1:mlx5_0", "leaf:leaf-3"; "": not there
  float weight = 0;        // share of the job's time that it costs: of two the heavier one is charged
  bool operator==(const Owner&) const = default;
};

// Where the ranks of a job run.
struct Placement {
  struct HostRun {
    Rank first;
    int32_t ranks = 0;
    std::string host;
    bool operator==(const HostRun&) const = default;
    Rank end() const { return first + ranks; }
  };
  std::string gpu_model;          // "": not known
  std::vector<HostRun> hosts;     // by rank
  std::vector<std::string> gpus;  // uuid by rank; "": not known
  bool operator==(const Placement&) const = default;
  int32_t ranks() const { return static_cast<int32_t>(gpus.size()); }
};

// What a job's minutes are held against; kept with them, so that a restart does not learn a slow job as normal.
struct Baseline {
  float value = 0;
  uint16_t learned = 0;  // minutes that it was learned from
  uint16_t bad = 0;      // degraded minutes in a row that nobody explains
  bool operator==(const Baseline&) const = default;
};
using Baselines = std::array<Baseline, kSles>;

struct JudgedMinute {
  int32_t minute = 0;
  uint64_t evidence = 0;      // rows it was judged from
  bool only_if_more = false;  // of a log that is read back: as many rows say nothing new
  std::shared_ptr<const Placement> placement;
  std::array<RankCells, kSles> cells;  // empty: not measured
  std::vector<Owner> owners;           // that cells are charged to, from 1 on: 0 is kUnexplained
  Baselines baselines{};
};

struct LedgerOptions {
  std::string folder;  // empty: kept in memory alone
  int32_t keep_minutes = 30 * 1440;
  size_t runs_max = 8'000'000;  // 12 bytes each; so many of minutes, and of ranks in the tables
  uint64_t log_bytes_max = 64u << 20;
  MemoryBudget* memory = nullptr;  // nullptr: no bound but runs_max
};

struct SleQuery;
struct SleTotals;
struct Affected;

class Ledger {
 public:
  static constexpr int32_t kOpenMinutes = 60;
  static constexpr size_t kJobsMax = 100'000;
  static constexpr size_t kOwnersMax = 1'000'000;
  static constexpr int64_t kRetryNs = 60'000'000'000;

  enum class Put : uint8_t { kStored, kSame, kFewerRows, kClosed, kFull };

  // Damage is one log line and a counter, never an error; an error: the folder cannot be used.
  static Result<std::unique_ptr<Ledger>> open(LedgerOptions options, const Clock& clock, Counters& counters);

  // Owners are known by their keys; a known key with other words is brought up to date.
  Put put(const std::string& job_id, JudgedMinute judged);
  // Charges what is degraded of these SLEs and minutes to the owner, where nobody or somebody lighter is charged.
  // Minutes that are closed stay as they are. The number of minutes changed.
  int32_t charge(const std::string& job_id, std::span<const int32_t> minutes, std::span<const Sle> sles,
                 const Owner& owner);

  Baselines baselines(std::string_view job_id) const;
  int32_t newest_minute(std::string_view job_id) const;  // 0: none
  RankCells cells(std::string_view job_id, Sle sle, int32_t minute) const;
  Owner owner_at(uint32_t index) const;

  // Lets go of what is too old; now and then.
  void expire(int32_t now_minute);
  // What was put is durable when it returns ok. Begins a new snapshot where the log has grown long or cannot be relied on,
  // and where tables are full; one that fails is tried again after kRetryNs.
  Result<void> flush();
  // Everything as one file that stays as it is, also in `folder`, for a backup. None where there is no folder.
  Result<std::vector<HeldFile>> hold(const std::string& folder);
  size_t run_count() const;
  uint64_t memory_bytes() const;  // estimated

  std::array<SleTotals, kSles> totals(const SleQuery& query) const;
  Affected affected(const SleQuery& query, Sle sle, size_t most) const;

  // One record of a file, as it was read; false: it cannot be. For open() and the fuzzer.
  bool restore_record(std::string_view record);

 private:
  struct Recent {
    int32_t minute = 0;
    uint64_t evidence = 0;
  };
  struct Job {
    uint32_t row = 0;
    std::string job_id;
    std::array<MinuteRuns, kSles> tracks;  // values: rows of cells_
    MinuteRuns placements;                 // likewise, of placements_
    std::deque<Recent> recent;             // minutes that are not closed, in order
    Baselines baselines{};
  };
  struct Hurt;        // the ranks of one placement
  class ScopedRanks;  // of placements, those that are in a scope
  class Chosen;       // owners that a query means
  class PricedRanks;  // of placements, by the models of their GPUs
  // What rows that are still used are called in the next snapshot; kGone: not used.
  struct Numbering {
    static constexpr uint32_t kGone = UINT32_MAX;
    std::vector<uint32_t> jobs, owners, cells, placements;
  };

  Ledger(LedgerOptions options, const Clock& clock, Counters& counters);
  Result<void> read_back();
  Put put_down(Job& job, JudgedMinute judged) LOCKSTEP_REQUIRES(mutex_);
  Job* job_of(const std::string& job_id) LOCKSTEP_REQUIRES(mutex_);
  uint32_t owner_row(const Owner& owner) LOCKSTEP_REQUIRES(mutex_);
  const Job* find(std::string_view job_id) const LOCKSTEP_REQUIRES(mutex_);
  uint32_t cells_row(const RankCells& cells) LOCKSTEP_REQUIRES(mutex_);
  uint32_t placement_row(const Job& job, const std::shared_ptr<const Placement>& placement) LOCKSTEP_REQUIRES(mutex_);
  static Recent* recent_of(Job& job, int32_t minute);
  static void note_recent(Job& job, int32_t minute, uint64_t evidence);
  bool is_closed(const Job& job, int32_t minute) const LOCKSTEP_REQUIRES(mutex_);
  void set(MinuteRuns& runs, int32_t minute, uint32_t value) LOCKSTEP_REQUIRES(mutex_);
  int32_t oldest_minute() const LOCKSTEP_REQUIRES(mutex_);  // INT32_MAX: none
  bool drop_oldest_day() LOCKSTEP_REQUIRES(mutex_);         // false: there is one minute, or none
  bool is_full() const LOCKSTEP_REQUIRES(mutex_);
  bool is_log_cut() const LOCKSTEP_REQUIRES(mutex_) { return logged_ > 2 * options_.log_bytes_max; }
  void log(const std::string& record) LOCKSTEP_REQUIRES(mutex_);
  uint64_t bytes() const LOCKSTEP_REQUIRES(mutex_) { return runs_ * sizeof(MinuteRun) + table_bytes_; }
  uint64_t bytes_of_tables() const LOCKSTEP_REQUIRES(mutex_);
  // Takes what it may cost to put this down, and takes or gives back to what it did cost.
  bool has_memory_for(const Job& job, const JudgedMinute& judged) LOCKSTEP_REQUIRES(mutex_);
  void settle_memory() LOCKSTEP_REQUIRES(mutex_);
  void drop_before(int32_t minute) LOCKSTEP_REQUIRES(mutex_);
  Numbering used_rows() const LOCKSTEP_REQUIRES(mutex_);
  size_t weight_of(const Numbering& rows) const LOCKSTEP_REQUIRES(mutex_);
  std::vector<std::string> snapshot(const Numbering& rows) const LOCKSTEP_REQUIRES(mutex_);
  static RankCells renumbered(const RankCells& cells, const std::vector<uint32_t>& owners);
  void adopt(const Numbering& rows) LOCKSTEP_REQUIRES(mutex_);
  Result<void> begin_snapshot() LOCKSTEP_REQUIRES(mutex_);

  bool restore_owner(columns::ByteReader& in) LOCKSTEP_REQUIRES(mutex_);
  bool restore_placement(columns::ByteReader& in) LOCKSTEP_REQUIRES(mutex_);
  bool restore_cells(columns::ByteReader& in) LOCKSTEP_REQUIRES(mutex_);
  bool restore_job(columns::ByteReader& in) LOCKSTEP_REQUIRES(mutex_);
  bool restore_minute(columns::ByteReader& in) LOCKSTEP_REQUIRES(mutex_);
  bool restore_runs(columns::ByteReader& in) LOCKSTEP_REQUIRES(mutex_);
  bool restore_recent(columns::ByteReader& in) LOCKSTEP_REQUIRES(mutex_);
  template <typename Visit>
  void visit_pieces(const SleQuery& query, Sle sle, ScopedRanks& ranks, const Visit& visit) const
      LOCKSTEP_REQUIRES(mutex_);
  void add_up(const SleQuery& query, Sle sle, ScopedRanks& ranks, Chosen& chosen, PricedRanks& priced,
              std::vector<int64_t>& by_owner, SleTotals& totals) const LOCKSTEP_REQUIRES(mutex_);
  std::map<std::pair<uint32_t, uint32_t>, Hurt> hurt_ranks(const SleQuery& query, Sle sle,
                                                           std::vector<int64_t>& by_owner) const
      LOCKSTEP_REQUIRES(mutex_);  // by job and placement
  void list_culprits(std::span<const int64_t> by_owner, size_t most, Affected& answer) const LOCKSTEP_REQUIRES(mutex_);

  const LedgerOptions options_;
  const Clock& clock_;
  Counters& counters_;
  RateLimitedLog said_{clock_, "sle"};
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<Job>> jobs_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<std::string, uint32_t, std::less<>> job_rows_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<Owner> owners_ LOCKSTEP_GUARDED_BY(mutex_);
  std::unordered_map<std::string, uint32_t> owner_rows_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<RankCells> cells_ LOCKSTEP_GUARDED_BY(mutex_);                              // row 0 is nothing
  std::unordered_multimap<uint64_t, uint32_t> cells_rows_ LOCKSTEP_GUARDED_BY(mutex_);    // by hash
  std::vector<std::shared_ptr<const Placement>> placements_ LOCKSTEP_GUARDED_BY(mutex_);  // row 0 is nothing
  size_t runs_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  size_t weight_ LOCKSTEP_GUARDED_BY(mutex_) = 0;         // runs in cells_ and ranks in placements_
  uint64_t table_bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // of all tables, estimated
  MemoryPool memory_ LOCKSTEP_GUARDED_BY(mutex_);
  uint64_t charged_bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // of memory_
  RetentionPace pace_ LOCKSTEP_GUARDED_BY(mutex_);
  int32_t dropped_before_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<metrics::Wal> wal_;  // nullptr: in memory alone
  uint64_t generation_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  uint64_t logged_ LOCKSTEP_GUARDED_BY(mutex_) = 0;           // bytes since the snapshot
  bool is_ahead_of_log_ LOCKSTEP_GUARDED_BY(mutex_) = false;  // a failed snapshot may be on disk: nothing is confirmed
  int64_t retry_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;          // monotonic: no snapshot before it
  uint32_t foreign_version_ = 0;  // of a file that another program wrote; while it is opened
};

}  // namespace lockstep::sle
