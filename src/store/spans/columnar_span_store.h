// Spans on disk for days: a head in memory, searchable at once, sealed by size or age into immutable files of columnar
// row groups (span_file.h, docs/formats/span-blocks.md).
//
// Durability, errors, threads: sealed/head_store.h, sealed/file_store.h.
// Twice: a span appended again is dropped while the first is in the head or was in the last one; later, queries leave it
//   out, and files that are put together lose it.
// Limits: days (by the earliest credible time, no faster than RetentionPace) and bytes, whole files, oldest first,
//   counted as dropped (retention, limit); unsealed_bytes_max of what cannot be written (unsealed).
#pragma once

#include <cstdint>
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
#include "store/sealed/head_store.h"
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

class ColumnarSpanStore final : public SpanStore, public sealed::HeadStore {
 public:
  static Result<std::unique_ptr<ColumnarSpanStore>> open(ColumnarSpanStoreOptions options, const Clock& clock,
                                                         Counters& counters);
  // Seals what is in the head.
  ~ColumnarSpanStore() override;

  void append(const ResourceGroup& group, int64_t received_unix_ns) override;
  void append(spans::SpanColumns columns, int64_t received_unix_ns, uint64_t log_sequence) override;

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
  struct Unit;
  struct Snapshot;
  struct Matcher;
  struct StepUnits;
  class Search;

  ColumnarSpanStore(const ColumnarSpanStoreOptions& options, const Clock& clock, Counters& counters);
  // sealed::HeadStore
  Result<sealed::FilePointer> open_file(std::string_view name) const override;
  Result<Joined> join(const sealed::Files& small, uint64_t number) override LOCKSTEP_REQUIRES(seal_mutex_);
  Part join_parts(std::span<const Part> parts) const override;
  Result<sealed::FilePointer> write_file(std::span<const Part> parts, const sealed::FileInfo& info) const override;
  void on_sealed() override LOCKSTEP_REQUIRES(mutex_);
  size_t other_bytes() const override LOCKSTEP_REQUIRES_SHARED(mutex_);

  static Part part_of(spans::SpanColumns columns);
  static const spans::SpanColumns& columns_of(const Part& part) {
    return *static_cast<const spans::SpanColumns*>(part.columns.get());
  }
  void drop_known(spans::SpanColumns& columns) LOCKSTEP_REQUIRES(mutex_);
  Snapshot snapshot() const;
  Columns load(const Unit& unit, spans::Wanted wanted) const;
  std::map<StepNumber, StepUnits, std::greater<>> units_of_steps(const Snapshot& all, std::string_view job_id,
                                                                 int64_t attempt) const;

  spans::KeySet keys_ LOCKSTEP_GUARDED_BY(mutex_);         // of the head
  spans::KeySet sealed_keys_ LOCKSTEP_GUARDED_BY(mutex_);  // of the head before
};

}  // namespace lockstep
