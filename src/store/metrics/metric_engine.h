// The metrics engine: recent samples in memory (shards of groups, shard.h), a write-ahead log of them, and everything
// older in immutable blocks (block.h), raw and rolled up.
//
// Writing: a push goes to the shard of its stream, to the log, and is acknowledged as Ack says. Series are never
//   refused once they are there; new ones are, beyond the limits.
// Reading: a selection copies references to what matches, from memory and blocks, and then reads without a lock; it
//   never holds up a push for longer than that copy takes.
// Sealing: when memory holds enough, all of it becomes a block and the log starts anew. Merging: small blocks become
//   blocks of hours, those days; on the way the 1 min and 1 h tiers are made. Retention: whole blocks, by age and
//   bytes; by age no faster than RetentionPace.
// Clocks: what is too old, idle or due is counted from the newest sample that is not ahead of the earliest credible
// time
//   (ClockWitness), so that a clock that has jumped neither deletes nor refuses; what is ahead of it is kept in blocks
//   of its own.
// After a crash: blocks are whole or not there; the log says the rest, and the first step() seals it: what a process
//   that ended had written may not be synced. A torn end of the log is cut and counted; damage is one line, a counter,
//   and a gap.
// On error: while the log cannot be written (disk full) push() fails and nothing is acknowledged; it recovers by
//   itself. After a sync of the log that failed push() fails too, until the next step() has made a block of everything
//   in memory and begun a log that does not depend on that file. trouble() says so meanwhile.
// Thread rule: Thread-safe. Sealing, merging and retention run on a thread of its own, or in step() where options say
//   so (tests).
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/clock_witness.h"
#include "base/counters.h"
#include "base/files.h"
#include "base/held_file.h"
#include "base/memory_budget.h"
#include "base/mutex.h"
#include "store/metric_reader.h"
#include "store/metric_writer.h"
#include "store/metrics/block.h"
#include "store/metrics/block_builder.h"
#include "store/metrics/series_index.h"
#include "store/metrics/shard.h"

namespace lockstep {

struct MetricEngineOptions {
  std::string folder;
  metrics::Ack ack = metrics::Ack::kWritten;
  uint32_t shards = 2;  // at most 64
  metrics::SeriesLimits limits = {};
  // What would make a series of every step, kernel or process (design: join keys).
  metrics::LabelRules labels = {{"step", "kernel", "kernel_name", "seq", "sequence", "pid"}, {}};
  int64_t late_ms = 24 * 3'600'000;  // behind the newest sample; older ones are refused
  int64_t future_ms = 600'000;       // ahead of the clock
  int64_t seal_age_ms = 2 * 3'600'000;
  size_t seal_bytes_min = 64ull << 20;  // of samples in memory, sealed when there are as many and
  size_t seal_bytes_per_series = 96;    // as many per series
  int64_t merge_ms = 2 * 3'600'000;     // blocks that span so long are merged, and
  int64_t merge_day_ms = 24 * 3'600'000;
  size_t merge_blocks_max = 24;
  int64_t keep_ms[metrics::kTiers] = {15ll * 86'400'000, 90ll * 86'400'000, 730ll * 86'400'000};  // behind the newest
  uint64_t bytes_max[metrics::kTiers] = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
  int64_t idle_ms = 2 * 3'600'000;  // a series that nobody writes to leaves memory
  size_t gone_series_max = 65'536;  // once more than these, and than there are, have left, their numbers are given anew
  uint64_t segment_bytes_max = 64ull << 20;
  size_t exemplars_max = 100'000;
  size_t tombstones_max = 1'000;              // deletions not merged away yet; every question looks through all of them
  size_t snapshots_max = 8;                   // copies there may be at a time,
  uint64_t snapshot_bytes_max = 64ull << 30;  // and what all of them may take
  const ClockWitness* witness = nullptr;      // which time is credible; nullptr: what the clock says
  MemoryBudget* memory = nullptr;  // where labels and metadata are taken from; nullptr: no limit but the above
  bool background = true;          // false: nothing happens but by step(), seal(), merge() and retain()
  uint64_t hash_seed = 0;          // of LabelHash
};

struct CardinalityReport {
  uint64_t series = 0;
  metrics::SeriesLimits limits;
  std::vector<metrics::Creator> metrics, jobs, tenants, streams;  // largest first
  std::map<std::string, int64_t> refused;                         // samples, by reason, since the start
};

class MetricEngine final : public MetricWriter, public MetricReader {
 public:
  static Result<std::unique_ptr<MetricEngine>> open(MetricEngineOptions options, const Clock& clock,
                                                    Counters& counters);
  // Writes out the log; nothing is sealed, the next start reads it.
  ~MetricEngine() override;

  Result<PushOutcome> push(std::string_view stream, std::span<const PushedSeries> series,
                           const std::function<Result<Labels>(size_t k)>& canonical) override;
  void set_metadata(std::string_view name, std::string_view type, std::string_view help,
                    std::string_view unit) override;

  Result<std::unique_ptr<MetricSelection>> select(std::span<const LabelMatcher> matchers,
                                                  const SelectOptions& options) const override;
  Result<std::vector<std::string>> label_names(std::span<const std::vector<LabelMatcher>> any, int64_t from_ms,
                                               int64_t to_ms) const override;
  Result<std::vector<std::string>> label_values(std::string_view name, std::span<const std::vector<LabelMatcher>> any,
                                                int64_t from_ms, int64_t to_ms) const override;
  std::vector<MetricMetadata> metadata() const override;
  Result<std::vector<Exemplar>> exemplars(std::span<const LabelMatcher> matchers, int64_t from_ms,
                                          int64_t to_ms) const override;

  // Samples of matching series in the range are not given out any more; what is pushed later is. Refused beyond
  // tombstones_max, and where their list would be longer than can be read again.
  Result<void> remove(std::span<const LabelMatcher> matchers, int64_t from_ms, int64_t to_ms);
  // What was removed leaves the disk now, not with the next merge.
  Result<void> clean();
  // All samples there are, as blocks in snapshots/NAME of the folder; gives NAME. Files are shared with the engine as
  // long as it has them. A copy of it, named `metrics`, is a folder that the engine opens. Refused beyond snapshots_max
  // and snapshot_bytes_max, and where the disk has not as much room as the copy may come to take.
  Result<std::string> snapshot();
  // All samples pushed so far, and what is known of metrics and series, also as files in `folder`, which is empty
  // (base/held_file.h). A copy of it is a folder that the engine opens.
  Result<std::vector<HeldFile>> hold(const std::string& folder);
  CardinalityReport cardinality(size_t top) const;

  // What the engine's own thread does, in turn.
  void step();
  Result<void> seal();
  Result<bool> merge();  // false: nothing to merge
  void retain();
  Result<void> sync();  // the log

  // Why pushes are refused now, or blocks cannot be written: one line.
  std::optional<std::string> trouble() const;

  size_t memory_bytes() const;
  uint64_t disk_bytes() const;  // of blocks

 private:
  using Blocks = std::vector<std::shared_ptr<const metrics::Block>>;  // by number
  class Replay;
  friend class Selection;

  MetricEngine(MetricEngineOptions options, const Clock& clock, Counters& counters);
  Result<void> load_blocks();
  Result<void> replay_log();
  Result<void> write_snapshots(uint64_t generation);
  // From now on files of earlier generations count for nothing, whether they can be removed or not.
  Result<void> mark_sealed(uint64_t generation);
  void remove_log_before(uint64_t generation);
  void run(std::stop_token stop);
  bool seal_is_due() const;
  // Blocks of what the shards gave out, added to `made`.
  Result<void> write_sealed(std::span<const metrics::Shard::Sealing> sealing, Blocks& made)
      LOCKSTEP_REQUIRES(work_mutex_);
  void forget_idle() LOCKSTEP_REQUIRES(work_mutex_);
  bool log_is_corrupt() const;
  void note_trouble(std::string line);  // empty: it is over
  CredibleTime credible_now() const;
  int64_t credible_max_ms() const {  // what is later is from a clock that is ahead
    return credible_now().earliest_unix_ns / 1'000'000 + options_.future_ms;
  }
  // Of the samples that may be true; INT64_MIN: there are none.
  int64_t newest_credible_ms() const { return std::min(newest_ms_.load(), credible_max_ms()); }
  int64_t before_newest(int64_t ms) const {  // with none, the earliest time there is
    const int64_t newest_ms = newest_credible_ms();
    return newest_ms == INT64_MIN ? INT64_MIN : newest_ms - ms;
  }
  bool is_counter(std::string_view metric) const;
  std::string log_folder() const { return options_.folder + "/log"; }
  std::string block_folder() const { return options_.folder + "/blocks"; }
  Result<void> save_tombstones(const std::vector<metrics::Tombstone>& list) LOCKSTEP_REQUIRES(work_mutex_);
  Error refuse_admin(const char* what, const char* reason, const std::string& line) const;
  Result<void> has_room_for_snapshot() const;
  Result<void> load_tombstones();
  Result<bool> merge_tier(uint32_t tier) LOCKSTEP_REQUIRES(work_mutex_);
  std::shared_ptr<const metrics::Block> block_before(const Blocks& these) const;
  Blocks readable_of(const Blocks& these) const;                             // what cannot be read is reported
  std::vector<metrics::Tombstone> tombstones_of(const Blocks& these) const;  // that say something of one of these
  Result<void> merge_these(uint32_t tier, const Blocks& inputs, uint32_t level, bool rolls_up)
      LOCKSTEP_REQUIRES(work_mutex_);
  void exchange(const Blocks& old, const Blocks& added);
  void note_blocks();
  void renumber() LOCKSTEP_REQUIRES(work_mutex_);
  void damage(const char* where, const std::string& line) const;
  void damaged_chunks(const metrics::Block& block, size_t count) const;
  std::shared_ptr<const Blocks> blocks() const;
  std::set<std::string> all_of(
      const std::function<void(const metrics::SeriesIndex::Reading&, std::vector<std::string>&)>& head,
      const std::function<void(const metrics::Block&, std::vector<std::string>&)>& block, int64_t from_ms,
      int64_t to_ms) const;
  // Blocks that answer this question, and the range each may answer for.
  struct Source {
    std::shared_ptr<const metrics::Block> block;
    int64_t from_ms, to_ms;
  };
  static std::vector<Source> sources_of(const Blocks& blocks, int64_t from_ms, int64_t to_ms, int64_t spacing_ms);

  const MetricEngineOptions options_;
  const Clock& clock_;
  Counters& counters_;
  std::atomic<int64_t>&received_, &stored_, &replaced_, &repeated_, &log_bytes_;
  metrics::LabelHash hash_;
  metrics::SeriesIndex index_;
  std::vector<std::unique_ptr<metrics::Shard>> shards_;
  UniqueFd lock_;
  std::atomic<int64_t> newest_ms_{INT64_MIN};
  std::atomic<bool> log_is_old_{false};  // samples in memory are in the log of an earlier process alone
  std::atomic<int64_t> sealed_ns_;       // monotonic
  std::atomic<bool> is_full_{false};     // blocks cannot be written, and memory holds too much

  int64_t reported_failure_ns_ = 0;  // of whoever calls step()

  Mutex work_mutex_;  // one seal, merge or retention at a time; taken before the others
  uint64_t generation_ LOCKSTEP_GUARDED_BY(work_mutex_) = 1;
  uint64_t next_block_ LOCKSTEP_GUARDED_BY(work_mutex_) = 1;
  RetentionPace pace_[metrics::kTiers] LOCKSTEP_GUARDED_BY(work_mutex_);

  mutable SharedMutex mutex_;  // held while parts move from memory to blocks, so that a question sees each once
  std::shared_ptr<const Blocks> blocks_ LOCKSTEP_GUARDED_BY(mutex_) = std::make_shared<const Blocks>();
  std::vector<metrics::Tombstone> tombstones_ LOCKSTEP_GUARDED_BY(mutex_);

  mutable Mutex trouble_mutex_;
  std::string trouble_ LOCKSTEP_GUARDED_BY(trouble_mutex_);  // why the last seal failed

  mutable Mutex metadata_mutex_;
  std::map<std::string, MetricMetadata, std::less<>> metadata_ LOCKSTEP_GUARDED_BY(metadata_mutex_);
  MemoryPool metadata_memory_ LOCKSTEP_GUARDED_BY(metadata_mutex_);
  std::vector<MetricMetadata> unlogged_metadata_
      LOCKSTEP_GUARDED_BY(metadata_mutex_);  // logged by the next sync(): senders tell it again and again

  Mutex wake_mutex_;
  StoppableConditionVariable wake_;
  std::jthread worker_;
};

}  // namespace lockstep
