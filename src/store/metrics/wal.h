// The write-ahead log of one shard: records in segments, with group commit. What commit() confirmed survives what its
// mode says: kWritten a crash of the process, kFsynced a crash of the machine, kMemory neither.
//
// Segments belong to generations: when a block is made of everything in memory, records go to a new generation, and the
// old ones are removed once the block is there.
// On error: records that could not be written (disk full) stay in memory and are tried again by the next commit or
//   flush; meanwhile failure() says why, and the engine takes nothing new. A file is never left with half a record that
//   a whole one follows.
// A sync that failed is not tried again: nobody knows which bytes the kernel gave up on, and the next sync that
// succeeds
//   does not say. The file is left as it is, nothing more is confirmed (is_corrupt()), until the engine has put
//   everything that is in memory elsewhere and begun a generation that says all of it anew (restated()).
// Thread rule: Thread-safe; begin_record(), append() and begin_generation() are called by one thread at a time.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/mutex.h"
#include "base/result.h"

namespace lockstep::metrics {

enum class Ack : uint8_t { kMemory, kWritten, kFsynced };

struct WalFileName {
  uint32_t shard = 0;
  uint64_t generation = 0;
  uint64_t segment = 0;  // 0: the snapshot of series that the generation starts with
  bool operator==(const WalFileName&) const = default;
  std::string text() const;
  static bool parse(std::string_view name, WalFileName& to);
};

class Wal {
 public:
  Wal(std::string folder, uint32_t shard, uint64_t generation, uint64_t segment_bytes_max);

  // The number of the segment the next record goes to; another one than before: records say everything in full again.
  uint64_t begin_record();
  uint64_t append(std::string_view payload);  // the record's end, for commit()
  Result<void> commit(uint64_t end, Ack ack);
  // Everything appended so far.
  Result<void> flush(bool sync);
  // Records from now on belong to it.
  void begin_generation(uint64_t generation);
  // Everything appended before this generation, the last that was begun, is durable elsewhere, and its series are said
  // anew: what could not be written of it need not be any more.
  void restated(uint64_t generation);
  std::string failure() const;  // empty: none
  bool is_corrupt() const;
  uint64_t bytes_appended() const;

 private:
  struct Part {  // of one segment
    WalFileName name;
    std::string bytes;
  };
  Result<void> write_out(bool sync) LOCKSTEP_REQUIRES(mutex_);
  Result<void> write_part(const Part& part);
  Error failed(const char* what, const WalFileName& name) const;
  Result<void> sync_file();

  const std::string folder_;
  const uint32_t shard_;
  const uint64_t segment_bytes_max_;

  mutable Mutex mutex_;
  ConditionVariable done_;
  WalFileName current_ LOCKSTEP_GUARDED_BY(mutex_);
  uint64_t current_bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  uint64_t epoch_ LOCKSTEP_GUARDED_BY(mutex_) = 1;
  std::vector<Part> pending_ LOCKSTEP_GUARDED_BY(mutex_);
  uint64_t appended_ LOCKSTEP_GUARDED_BY(mutex_) = 0, written_ LOCKSTEP_GUARDED_BY(mutex_) = 0,
                     synced_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  uint64_t generation_start_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // what was appended before the current generation
  bool writing_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  bool corrupt_ LOCKSTEP_GUARDED_BY(mutex_) = false;  // a sync failed, of file_name_
  std::string failure_ LOCKSTEP_GUARDED_BY(mutex_);
  // Whoever is writing.
  UniqueFd file_;
  WalFileName file_name_;
  uint64_t file_bytes_ = 0;
  bool sync_failed_ = false;
};

inline constexpr size_t kWalRecordBytesMax = 256u << 20;  // a longer record is read as a torn end
// A file of records as one write, durable when it returns.
Result<void> write_wal_file(const std::string& path, const std::vector<std::string>& records);

struct WalReadOutcome {
  uint64_t records = 0;
  uint64_t bytes_good = 0;
  bool torn = false;   // the end is cut off, as a crash leaves it
  std::string damage;  // one line; empty: none
};
// false from `each`: the record cannot be understood, which is damage.
Result<WalReadOutcome> read_wal_file(const std::string& path, const std::function<bool(std::string_view)>& each);
// The same of bytes.
WalReadOutcome read_wal_bytes(std::string_view bytes, const std::function<bool(std::string_view)>& each);

}  // namespace lockstep::metrics
