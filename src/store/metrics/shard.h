// A part of the head: groups of series, the order in which streams send them, and the log of both. A stream always
// comes to the same shard; a series lives in the shard of the stream that brought it first.
//
// A push is resolved by position: after the series that came last the stream is expected to send the one that followed
// it before, and 128 bits of hash of the label bytes say whether it did. Otherwise a table of these hashes is asked,
// and only for bytes never seen the caller for labels. No label bytes are kept.
// A stream most of whose series are new (another job, another label) gets groups of its own for them: those it does not
// send any more leave together, and rows are no wider than what is written.
// Memory per series: 16 bytes and its place in the table (6), besides group and index.
// Thread rule: Thread-safe: push() and the like lock; snapshot() takes the lock shared.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "store/metric_writer.h"
#include "store/metrics/chunked_array.h"
#include "store/metrics/group.h"
#include "store/metrics/label_hash.h"
#include "store/metrics/series_index.h"
#include "store/metrics/wal.h"
#include "store/metrics/wal_record.h"

namespace lockstep::metrics {

struct TimeBounds {
  int64_t oldest_ms = INT64_MIN;
  int64_t newest_ms = INT64_MAX;
};

struct LabelRules {
  std::vector<std::string> forbidden;  // a series that has one is refused
  std::vector<std::string> moved;      // taken off the series, and kept with its sample as an exemplar
};

// Counts and refusals of a push, gathered.
struct PushTally {
  PushOutcome outcome;
  int64_t newest_ms = INT64_MIN;
  // histograms: how many of the samples are native histograms.
  void refuse(const char* reason, uint64_t samples, uint64_t histograms, const std::function<std::string()>& example);
};

struct StoredExemplar {
  SeriesId series;
  PushedExemplar exemplar;
};

struct GroupSnapshot {
  GroupData data;
  std::shared_ptr<const GroupData> sealing;
};

class Shard {
 public:
  // What belongs to a series of another shard.
  struct Foreign {
    Home home;
    int64_t time_ms = 0;
    double value = 0;
    std::shared_ptr<const NativeHistogram> histogram;
    const PushedExemplar* exemplar = nullptr;  // of the push; then it is no sample
  };

  Shard(uint32_t number, SeriesIndex& index, const LabelHash& hash, const SeriesLimits& limits, const LabelRules& rules,
        std::unique_ptr<Wal> wal, size_t exemplars_max);

  Wal& wal() { return *wal_; }

  // Gives the end of the log's record for commit(); 0: nothing was said.
  uint64_t push(std::string_view stream, std::span<const PushedSeries> series,
                const std::function<Result<Labels>(size_t)>& canonical, TimeBounds bounds, PushTally& tally,
                std::vector<Foreign>& foreign);
  // Gives the end of the log's record too. Those whose series left are refused, and told in `gone`.
  uint64_t push_foreign(std::span<const Foreign> samples, PushTally& tally, std::vector<Home>& gone);
  // These bytes are looked up anew when they come next: the series of another shard they stood for has left.
  void forget_entries(std::span<const Home> gone);
  uint64_t log_metadata(const MetricMetadata& metadata);

  // What the log said before a crash; nothing is logged again.
  // One after the other in a group of this shard: that of their neighbour, where it has one. Those that are known stay
  // where they are.
  void restore_series(const LabelRows& series, Home neighbour, std::span<Home> homes);
  void restore_run(std::span<const Home> homes, int64_t time_ms, std::span<const double> values);
  void restore_histogram(Home home, int64_t time_ms, NativeHistogram histogram);
  void restore_exemplar(SeriesId series, PushedExemplar exemplar);
  SeriesId series_at(Home home) const;  // kNoSeries: nobody lives there

  // Copies what a selection may read; asked for group by group under one lock.
  class Snapshot {
   public:
    explicit Snapshot(const Shard& shard) : shard_(shard), lock_(shard.mutex_) {}
    // False: nothing in the range.
    bool take(uint32_t group, int64_t from_ms, int64_t to_ms, GroupSnapshot& to) const;
    size_t group_count() const {
      shard_.mutex_.assert_held_shared();
      return shard_.groups_.size();
    }
    const std::deque<StoredExemplar>& exemplars() const {
      shard_.mutex_.assert_held_shared();
      return shard_.exemplars_;
    }
    const std::deque<StoredExemplar>& exemplars_sealing() const {
      shard_.mutex_.assert_held_shared();
      return shard_.exemplars_sealing_;
    }

   private:
    const Shard& shard_;
    SharedLock lock_;
  };

  // Sealing: everything goes to `sealing` of its group and is still read from there; the log starts a generation.
  struct Sealing {
    struct Part {
      uint32_t group = 0;
      RunArray series;
      std::shared_ptr<const GroupData> data;
    };
    std::vector<Part> parts;
    std::deque<StoredExemplar> exemplars;
  };
  Sealing begin_seal(uint64_t generation);
  // The parts are in a block now, or (false) stay where they are until the next time.
  void end_seal(bool sealed);
  // Records that say which series there are, for the start of a generation.
  std::vector<std::string> series_records() const;
  // Groups that nobody wrote to since then, with nothing in memory, leave. Gives their series.
  std::vector<SeriesId> forget_idle(int64_t before_ms);

  // While this lives nobody else is at work here.
  class Hold {
   public:
    explicit Hold(Shard& shard) : lock_(shard.mutex_) {}

   private:
    MutexLock<SharedMutex> lock_;
  };
  // Under Hold: series and texts have other numbers now, by the old ones (SeriesIndex::Renumbering).
  void renumber(std::span<const SeriesId> numbers, std::span<const uint32_t> symbols);

  size_t strip_bytes() const;
  int64_t oldest_ms() const;  // in memory; INT64_MAX: nothing
  size_t memory_bytes() const;
  std::vector<Creator> largest_streams(size_t count) const;

 private:
  struct Stream {
    Hash128 seed;
    uint32_t next = 0;    // the entry that is expected
    uint64_t series = 0;  // in the groups that it made
  };
  struct Resolved {
    Home home;
    bool refused = false;
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  Stream& stream_of(std::string_view name) LOCKSTEP_REQUIRES(mutex_);
  uint32_t find_entry(const Hash128& hash) const LOCKSTEP_REQUIRES(mutex_);
  void add_entry(const Hash128& hash, Home home) LOCKSTEP_REQUIRES(mutex_);
  Group* local_group(Home home) LOCKSTEP_REQUIRES(mutex_);
  // Where series live whose bytes are known, by position and hash; the others are `missing`. Gives the entry that
  // follows the last.
  uint32_t resolve_known(uint32_t next, std::span<const Hash128> hashes, std::vector<uint32_t>& missing)
      LOCKSTEP_REQUIRES(mutex_);
  struct Asked;
  // The labels of those; what the rules do not let in is refused.
  std::vector<Asked> ask_labels(std::span<const PushedSeries> series, const std::vector<uint32_t>& missing,
                                const std::function<Result<Labels>(size_t)>& canonical, PushTally& tally)
      LOCKSTEP_REQUIRES(mutex_);
  void resolve_missing(Stream& stream, std::span<const PushedSeries> series, std::span<const Hash128> hashes,
                       const std::vector<uint32_t>& missing, const std::function<Result<Labels>(size_t)>& canonical,
                       PushTally& tally) LOCKSTEP_REQUIRES(mutex_);
  // Joins no group before `first_group`.
  Home room_in_group(Stream* stream, Home neighbour, bool same_time, uint32_t first_group) LOCKSTEP_REQUIRES(mutex_);
  void leave_out_gone_entries() LOCKSTEP_REQUIRES(mutex_);
  void put_histogram(Home home, int64_t time_ms, std::shared_ptr<const NativeHistogram> histogram, PushTally& tally)
      LOCKSTEP_REQUIRES(mutex_);
  void keep_exemplar(SeriesId series, PushedExemplar exemplar) LOCKSTEP_REQUIRES(mutex_);
  void log_new_series() LOCKSTEP_REQUIRES(mutex_);
  void begin_record() LOCKSTEP_REQUIRES(mutex_);
  uint64_t end_record() LOCKSTEP_REQUIRES(mutex_);

  class Taking;
  // Writes samples that come in time order within a group into rows, and runs of them into the log.
  class RowWriter {  // under mutex_
   public:
    RowWriter(Shard& shard, PushTally& tally, bool logs) : shard_(shard), tally_(tally), logs_(logs) {}
    ~RowWriter() { end_run(); }
    void put(Home home, int64_t time_ms, double value);

   private:
    void end_run();
    Shard& shard_;
    PushTally& tally_;
    const bool logs_;
    Group* group_ = nullptr;
    uint32_t group_number_ = kNone;
    int64_t time_ms_ = 0;
    Group::Row row_;
    uint32_t run_start_ = 0, run_end_ = 0;
  };

  const uint32_t number_;
  SeriesIndex& index_;
  const LabelHash& hash_;
  const SeriesLimits& limits_;
  const LabelRules& rules_;
  const std::unique_ptr<Wal> wal_;
  const size_t exemplars_max_;

  mutable SharedMutex mutex_;
  std::map<std::string, Stream, std::less<>> streams_ LOCKSTEP_GUARDED_BY(mutex_);
  ChunkedArray<Hash128> entries_ LOCKSTEP_GUARDED_BY(mutex_);      // in the order in which they came first
  RunArray entry_homes_ LOCKSTEP_GUARDED_BY(mutex_);               // by entry
  std::vector<uint32_t> entry_slots_ LOCKSTEP_GUARDED_BY(mutex_);  // open addressing by hash: entry + 1, or 0
  size_t entries_gone_ LOCKSTEP_GUARDED_BY(mutex_) = 0;            // at least as many stand for series that left
  std::vector<std::unique_ptr<Group>> groups_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<Stream*> makers_
      LOCKSTEP_GUARDED_BY(mutex_);  // by group: whose push it was made for; nullptr: known from the log alone
  std::deque<StoredExemplar> exemplars_ LOCKSTEP_GUARDED_BY(mutex_);
  std::deque<StoredExemplar> exemplars_sealing_ LOCKSTEP_GUARDED_BY(mutex_);
  size_t strip_bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0, sealing_bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  WalRecordWriter record_ LOCKSTEP_GUARDED_BY(mutex_);
  uint64_t epoch_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::vector<Resolved> resolved_ LOCKSTEP_GUARDED_BY(mutex_);
  struct NewSeries {
    uint32_t group, slot;
    SeriesId series;
  };
  std::vector<NewSeries> new_series_ LOCKSTEP_GUARDED_BY(mutex_);  // of this push, not logged yet
};

}  // namespace lockstep::metrics
