// Spans on disk for days: a head in memory, searchable at once, sealed by size or age into immutable files of columnar
// row groups (span_file.h, docs/formats/span-blocks.md).
//
// Durability: the durable log is the write-ahead log. Each file says which records of the log it holds, and
//   holds() tells whoever replays the log what need not be appended again.
// Twice: a span appended again is dropped while the first is in the head or was in the last one; later, queries leave
// it
//   out, and files that are put together lose it.
// Limits: days (by the earliest credible time, no faster than RetentionPace) and bytes, whole files, oldest first,
// counted as dropped (retention, limit). While files cannot be
//   written (disk full), spans stay in the head up to unsealed_bytes_max; beyond, the oldest are dropped and counted
//   (unsealed).
// On error: a file that is torn or corrupt is kept out with one line and counted; so is a row group that turns out
//   corrupt when it is read. A file of another format version is left alone, and open() refuses.
// Thread rule: Thread-safe. Sealing, putting files together and retention run on a thread of its own; queries work on
//   immutable parts and hold the lock only to take hold of them.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/clock_witness.h"
#include "base/counters.h"
#include "base/held_file.h"
#include "base/mutex.h"
#include "base/result.h"
#include "store/sealed/file_info.h"
#include "store/sealed/seal_worker.h"
#include "store/span_store.h"
#include "store/spans/key_set.h"
#include "store/spans/span_file.h"

namespace lockstep {

struct ColumnarSpanStoreOptions {
  std::string folder;
  int64_t days = 7;
  uint64_t bytes_max = 32ull << 30;
  size_t head_rows_max = spans::kRowGroupRows;  // sealed when there are so many,
  size_t head_bytes_max = 64ull << 20;          // or they take so much,
  int64_t head_age_max_ns = 60'000'000'000;     // or the first came so long ago
  size_t unsealed_bytes_max = 512ull << 20;
  const ClockWitness* witness = nullptr;  // which time is credible; nullptr: what the clock says
  bool background = true;  // false: nothing happens but by seal() and maintain(), for tests and benchmarks
};

class ColumnarSpanStore final : public SpanStore {
 public:
  static Result<std::unique_ptr<ColumnarSpanStore>> open(ColumnarSpanStoreOptions options, const Clock& clock,
                                                         Counters& counters);
  // Seals what is in the head.
  ~ColumnarSpanStore() override;

  void append(const ResourceGroup& group, int64_t received_unix_ns) override;
  void append(spans::SpanColumns columns, int64_t received_unix_ns, uint64_t log_sequence) override;
  // Whether the spans of this record of the log are in files already.
  bool holds(uint64_t log_sequence, int64_t received_unix_ns) const;
  // The first record of the log of which something is in no file yet; UINT64_MAX: there is none.
  uint64_t first_unsealed() const;

  // Everything that is in the head now goes to disk.
  Result<void> seal();
  // Retention, and small files put together.
  void maintain();
  // All files there are at one moment, also in `folder` (base/held_file.h). What is in memory alone is the log's.
  Result<std::vector<HeldFile>> hold(const std::string& folder);

  Page<StoredSpan> trace(const TraceId& trace_id, size_t limit) const override;
  Page<TraceSummary> search(const TraceQuery& query) const override;
  Page<StoredSpan> newest(std::string_view service, size_t limit) const override;
  std::vector<std::string> services() const override;
  std::vector<std::string> span_names(std::string_view service) const override;
  AttributeNames attribute_names() const override;
  std::vector<std::string> attribute_values(std::string_view key, size_t limit) const override;
  std::vector<RankDetail> step(std::string_view job_id, int64_t attempt, StepNumber step,
                               const std::vector<Rank>& ranks) const override;
  Page<TracedStep> traced_steps(std::string_view job_id, int64_t attempt, size_t limit) const override;

 private:
  using Columns = std::shared_ptr<const spans::SpanColumns>;
  using File = std::shared_ptr<const spans::SpanFile>;
  struct Part {  // of the head
    Columns columns;
    size_t bytes = 0;
    uint64_t first_sequence = 0;
    uint64_t last_sequence = 0;
    spans::Range<int64_t> received_unix_ns;
  };
  struct Unit;
  struct Snapshot;
  struct Matcher;
  class Search;

  ColumnarSpanStore(ColumnarSpanStoreOptions options, const Clock& clock, Counters& counters);
  Result<void> load_files();
  void run(std::stop_token stop);
  bool seal_is_due() const;
  Result<bool> seal_some();  // false: the head was empty
  void drop_over_limit() LOCKSTEP_REQUIRES(mutex_);
  void join_small_parts() LOCKSTEP_REQUIRES(mutex_);
  void drop_expired() LOCKSTEP_REQUIRES(seal_mutex_);
  bool join_small_files() LOCKSTEP_REQUIRES(seal_mutex_);
  void exchange(const std::vector<File>& old, const File& joined);  // in the list and on disk; joined may be null
  void tell_sizes() LOCKSTEP_REQUIRES(mutex_);
  void spoil(const spans::SpanFile& file, size_t group, const std::string& error) const;

  Snapshot snapshot() const;
  Columns load(const Unit& unit, spans::Wanted wanted) const;

  const ColumnarSpanStoreOptions options_;
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
  spans::KeySet keys_ LOCKSTEP_GUARDED_BY(mutex_);         // of the head
  spans::KeySet sealed_keys_ LOCKSTEP_GUARDED_BY(mutex_);  // of the head before
  std::vector<File> files_ LOCKSTEP_GUARDED_BY(mutex_);    // by the time their spans came
  uint64_t file_bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  mutable std::atomic<uint64_t> file_rows_{0};  // that can be read; a query that finds they cannot holds no lock
  sealed::LostRecords lost_ LOCKSTEP_GUARDED_BY(mutex_);

  sealed::SealWorker sealer_;
  std::jthread worker_;
};

}  // namespace lockstep
