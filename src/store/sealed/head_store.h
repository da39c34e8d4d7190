// A store whose rows are first in memory, its head, searchable at once, and go from there by number, size or age into
// files: the same for spans and log records. What a row is and how a file of them is written is the store's.
//
// Durability: the durable log is the write-ahead log. Each file says which of its records it holds, and holds() tells
//   whoever replays the log what need not be appended again.
// Limits: while files cannot be written (disk full), rows stay in the head up to unsealed_bytes_max; beyond, the oldest
//   are dropped and counted (unsealed).
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/counters.h"
#include "base/mutex.h"
#include "base/result.h"
#include "store/sealed/file.h"
#include "store/sealed/file_info.h"
#include "store/sealed/file_store.h"

namespace lockstep::sealed {

class HeadStore : public FileStore {
 public:
  // Whether what came with this record of the log is in files already, or was and has been dropped since.
  bool holds(uint64_t log_sequence, int64_t received_unix_ns) const;
  // The first record of the log of which something is in no file yet; UINT64_MAX: there is none.
  uint64_t first_unsealed() const;

 protected:
  struct HeadOptions {
    size_t rows_max = 0;     // sealed when there are so many,
    size_t bytes_max = 0;    // or they take so much,
    int64_t age_max_ns = 0;  // or the first came so long ago
    size_t unsealed_bytes_max = 0;
    size_t file_rows_max = SIZE_MAX;  // of one seal, whose memory is bounded so; nor has it more than twice bytes_max
  };
  struct Part {
    size_t rows = 0;
    size_t bytes = 0;
    std::shared_ptr<const void> columns;  // the store's own
    Origin origin = {};
  };
  HeadStore(const StoreKind& kind, FileOptions files, HeadOptions head, const Clock& clock, Counters& counters);
  // From the options of a store, which have these names.
  template <typename Options>
  HeadStore(const StoreKind& kind, const Options& of, size_t file_rows_max, const Clock& clock, Counters& counters)
      : HeadStore(kind,
                  {.folder = of.folder,
                   .days = of.days,
                   .bytes_max = of.bytes_max,
                   .witness = of.witness,
                   .background = of.background},
                  {.rows_max = of.head_rows_max,
                   .bytes_max = of.head_bytes_max,
                   .age_max_ns = of.head_age_max_ns,
                   .unsealed_bytes_max = of.unsealed_bytes_max,
                   .file_rows_max = file_rows_max},
                  clock, counters) {}
  ~HeadStore() = default;

  // What has just come, behind what is there; of no rows, nothing. Gives whether a seal is due: sealer_.wake(), once the
  // lock is let go.
  bool add(Part part, uint64_t log_sequence, int64_t received_unix_ns) LOCKSTEP_REQUIRES(mutex_);
  // What is known of a file that is made of these.
  static FileInfo joined_info(const Files& files, uint64_t number);

  // What each store does its own way. The rows of these in one, in their order.
  virtual Part join_parts(std::span<const Part> parts) const = 0;
  virtual Result<FilePointer> write_file(std::span<const Part> parts, const FileInfo& info) const = 0;
  virtual void on_sealed() LOCKSTEP_REQUIRES(mutex_) {}  // what was in the head is in a file
  virtual size_t other_bytes() const LOCKSTEP_REQUIRES_SHARED(mutex_) { return 0; }  // of memory, besides the head

  const HeadOptions head_options_;
  std::deque<Part> head_ LOCKSTEP_GUARDED_BY(mutex_);  // oldest first
  size_t head_rows_ LOCKSTEP_GUARDED_BY(mutex_) = 0;

 private:
  SealWork work() final;
  Result<bool> seal_some(Which which) final;  // all of it, whichever
  void on_files_changed() final LOCKSTEP_REQUIRES(mutex_) { report_sizes(); }
  bool is_full() const LOCKSTEP_REQUIRES_SHARED(mutex_);
  bool seal_is_due() const;
  void join_small_parts() LOCKSTEP_REQUIRES(mutex_);
  void drop_over_limit() LOCKSTEP_REQUIRES(mutex_);
  void report_sizes() LOCKSTEP_REQUIRES(mutex_);

  size_t head_bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  size_t parts_in_seal_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // the first of head_, which stay where they are meanwhile
  int64_t head_since_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep::sealed
