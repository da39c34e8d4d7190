// Spans in memory: the plain backing, for tests and small tools. Every query looks at every span.
//
// Limits: the options, rows and bytes (estimated), whichever is reached first; oldest arrival dropped first.
// Thread rule: Thread-safe.
#pragma once

#include <deque>
#include <set>
#include <tuple>

#include "base/counters.h"
#include "base/mutex.h"
#include "store/span_store.h"

namespace lockstep {

struct MemorySpanStoreOptions {
  size_t spans_max = 200'000;
  size_t bytes_max = 256ull << 20;
};

class MemorySpanStore final : public SpanStore {
 public:
  MemorySpanStore(MemorySpanStoreOptions options, Counters& counters);

  using SpanStore::append;
  void append(const ResourceGroup& group, int64_t received_unix_ns) override;
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
  struct Entry {
    size_t bytes;
    StoredSpan item;
  };
  using Key = std::tuple<TraceId, SpanId, int64_t>;
  static Key key_of(const Span& span) { return {span.trace_id, span.span_id, span.start_unix_ns}; }

  const MemorySpanStoreOptions options_;
  Counters& counters_;
  mutable SharedMutex mutex_;
  std::deque<Entry> spans_ LOCKSTEP_GUARDED_BY(mutex_);
  std::set<Key> keys_ LOCKSTEP_GUARDED_BY(mutex_);
  size_t bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep
