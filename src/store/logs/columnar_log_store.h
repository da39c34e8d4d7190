// Log records on disk for days: a head in memory, searchable at once, sealed by size or age into immutable files of row
// groups (log_file.h, docs/formats/log-blocks.md).
//
// Durability: the durable log is the write-ahead log. Each file says which of its records it holds, and holds() tells
//   whoever replays the log what need not be appended again. A record that a sender delivers twice is here twice.
// Limits: days (by the earliest credible time, no faster than RetentionPace) and bytes, whole files, oldest first,
//   counted as dropped (retention, limit). While files cannot be written (disk full), records stay in the head up to
//   unsealed_bytes_max; beyond, the oldest are dropped and counted (unsealed). Long ones are cut (log_columns.h), counted
//   in lockstep_log_records_cut_total.
// On error: a file that is torn or corrupt is kept out with one line and counted; so is a row group that turns out corrupt
//   when it is read. A file of another format version is left alone, and open() refuses.
// Thread rule: Thread-safe. Sealing, putting files together and retention run on a thread of its own; queries work on
//   immutable parts and hold the lock only to take hold of them.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/clock_witness.h"
#include "base/counters.h"
#include "base/held_file.h"
#include "base/mutex.h"
#include "base/result.h"
#include "store/logs/log_file.h"
#include "store/logs/log_query.h"
#include "store/sealed/file_info.h"
#include "store/sealed/seal_worker.h"

namespace lockstep {

struct ColumnarLogStoreOptions {
  std::string folder;
  int64_t days = 7;
  uint64_t bytes_max = 16ull << 30;
  size_t head_rows_max = 4 * logs::kGroupRows;  // sealed when there are so many,
  size_t head_bytes_max = 32ull << 20;          // or they take so much,
  int64_t head_age_max_ns = 60'000'000'000;     // or the first came so long ago
  size_t unsealed_bytes_max = 256ull << 20;
  const ClockWitness* witness = nullptr;  // which time is credible; nullptr: what the clock says
  bool background = true;                 // false: nothing happens but by seal() and maintain(), for tests
};

class ColumnarLogStore {
 public:
  static Result<std::unique_ptr<ColumnarLogStore>> open(ColumnarLogStoreOptions options, const Clock& clock,
                                                        Counters& counters);
  // Seals what is in the head.
  ~ColumnarLogStore();

  // log_sequence: of the record of the durable log that all of them came with; 0: of none.
  void append(logs::LogColumns columns, int64_t received_unix_ns, uint64_t log_sequence);
  // Whether what came with this record of the log is in files already.
  bool holds(uint64_t log_sequence, int64_t received_unix_ns) const;
  // The first record of the log of which something is in no file yet; UINT64_MAX: there is none.
  uint64_t first_unsealed() const;

  Result<void> seal();  // everything that is in the head now goes to disk
  void maintain();      // retention, and small files put together
  // All files there are at one moment, also in `folder` (base/held_file.h). What is in memory alone is the log's.
  Result<std::vector<HeldFile>> hold(const std::string& folder);

  LogPage find(const LogQuery& query) const;

 private:
  using LogColumns = logs::LogColumns;
  using Columns = std::shared_ptr<const LogColumns>;
  using File = std::shared_ptr<const logs::LogFile>;
  struct Part {  // of the head
    Columns columns;
    size_t bytes = 0;
    uint64_t first_sequence = 0, last_sequence = 0;
    columns::Range<int64_t> received_unix_ns;
    logs::GroupMeta meta;  // but for its sections
  };
  struct Unit {  // a part of the head, or a row group
    Columns columns;
    File file;
    size_t group = 0;
    const logs::GroupMeta* meta = nullptr;
  };
  struct Snapshot {
    std::vector<File> files;
    std::deque<Part> head;
    int64_t arrival_last = 0;
    std::vector<Unit> units(const LogQuery& query) const;  // those that may have something
  };

  ColumnarLogStore(ColumnarLogStoreOptions options, const Clock& clock, Counters& counters);
  Result<void> load_files();
  void run(std::stop_token stop);
  bool seal_is_due() const;
  Result<bool> seal_some();  // false: the head was empty
  void drop_over_limit() LOCKSTEP_REQUIRES(mutex_);
  void join_small_parts() LOCKSTEP_REQUIRES(mutex_);
  void drop_expired() LOCKSTEP_REQUIRES(seal_mutex_);
  bool join_small_files() LOCKSTEP_REQUIRES(seal_mutex_);
  void exchange(const std::vector<File>& old, const File& joined);
  void tell_sizes() LOCKSTEP_REQUIRES(mutex_);
  void spoil(const logs::LogFile& file, size_t group, const std::string& error) const;
  Snapshot snapshot() const;
  // Rows of a group with their lines, unless is_wanted says no of those without; nullptr: no, or they cannot be read.
  Columns load(const logs::LogFile& file, size_t group, const std::function<bool(const LogColumns&)>& is_wanted) const;

  const ColumnarLogStoreOptions options_;
  const Clock& clock_;
  Counters& counters_;

  Mutex seal_mutex_;  // one seal, joining or retention at a time; taken before mutex_
  uint64_t next_number_ LOCKSTEP_GUARDED_BY(seal_mutex_) = 1;
  RetentionPace pace_ LOCKSTEP_GUARDED_BY(seal_mutex_);

  mutable SharedMutex mutex_;
  std::deque<Part> head_ LOCKSTEP_GUARDED_BY(mutex_);
  size_t head_rows_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  size_t head_bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  size_t parts_in_seal_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // the first of head_, which stay where they are meanwhile
  int64_t head_since_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  int64_t arrival_last_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // of all records that were ever here
  std::vector<File> files_ LOCKSTEP_GUARDED_BY(mutex_);   // by the time their records came
  uint64_t file_bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  mutable std::atomic<uint64_t> file_rows_{0};
  sealed::LostRecords lost_ LOCKSTEP_GUARDED_BY(mutex_);

  sealed::SealWorker sealer_;
  std::jthread worker_;
};

}  // namespace lockstep
