// Log records on disk for days: a head in memory, searchable at once, sealed by size or age into immutable files of row
// groups (log_file.h, docs/formats/log-blocks.md).
//
// Durability, errors, threads: sealed/head_store.h, sealed/file_store.h. A record that a sender delivers twice is here
//   twice.
// Limits: days (by the earliest credible time, no faster than RetentionPace) and bytes, whole files, oldest first,
//   counted as dropped (retention, limit); unsealed_bytes_max of what cannot be written (unsealed). Long ones are cut
//   (log_columns.h), counted in lockstep_log_records_cut_total.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/clock_witness.h"
#include "base/counters.h"
#include "base/mutex.h"
#include "base/result.h"
#include "store/logs/log_file.h"
#include "store/logs/log_query.h"
#include "store/sealed/head_store.h"

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

class ColumnarLogStore final : public sealed::HeadStore {
 public:
  static Result<std::unique_ptr<ColumnarLogStore>> open(ColumnarLogStoreOptions options, const Clock& clock,
                                                        Counters& counters);
  // Seals what is in the head.
  ~ColumnarLogStore();

  // log_sequence: of the record of the durable log that all of them came with; 0: of none.
  void append(logs::LogColumns columns, int64_t received_unix_ns, uint64_t log_sequence);

  LogPage find(const LogQuery& query) const;

  // Some rows of these columns; bytes: about what their lines take, on disk where they are there.
  using Visitor = std::function<void(const logs::LogColumns& columns, std::span<const uint32_t> rows, uint64_t bytes)>;
  // All records that a query wants, in no order but that the parts with the newest come first: of what is not whole, the
  // oldest are missing. Of the query, what it matches, its times, rows_max and give_up count, and not its filters.
  // with_lines: else only names and numbers may be looked at, which takes a small part of the time.
  LogScan scan(const LogQuery& query, bool with_lines, const Visitor& visit) const;

 private:
  using LogColumns = logs::LogColumns;
  using Columns = std::shared_ptr<const LogColumns>;
  struct HeadRows {
    LogColumns columns;
    logs::GroupMeta meta;  // but for its sections
  };
  struct Unit {  // a part of the head, or a row group
    const LogColumns* columns = nullptr;
    const logs::LogFile* file = nullptr;
    size_t group = 0;
    const logs::GroupMeta* meta = nullptr;
  };
  struct Snapshot {
    std::shared_ptr<const sealed::Files> files;
    std::deque<Part> head;
    int64_t arrival_last = 0;
    std::vector<Unit> units(const LogQuery& query) const;  // those that may have something
  };

  ColumnarLogStore(const ColumnarLogStoreOptions& options, const Clock& clock, Counters& counters);
  // sealed::HeadStore
  Result<sealed::FilePointer> open_file(std::string_view name) const override;
  void adopt(sealed::Files& files) override LOCKSTEP_REQUIRES(seal_mutex_, mutex_);
  Result<Joined> join(const sealed::Files& small, uint64_t number) override LOCKSTEP_REQUIRES(seal_mutex_);
  Part join_parts(std::span<const Part> parts) const override;
  Result<sealed::FilePointer> write_file(std::span<const Part> parts, const sealed::FileInfo& info) const override;

  static Part part_of(LogColumns columns);
  static const HeadRows& rows_of(const Part& part) { return *static_cast<const HeadRows*>(part.columns.get()); }
  Snapshot snapshot() const;
  // Rows of a group with their lines, unless is_wanted says no of those without; nullptr: no, or they cannot be read.
  Columns load(const logs::LogFile& file, size_t group, const std::function<bool(const LogColumns&)>& is_wanted) const;

  int64_t arrival_last_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // of all records that were ever here
};

}  // namespace lockstep
