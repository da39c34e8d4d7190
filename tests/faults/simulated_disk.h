// A disk that fails and loses power when a seed says so, under everything that goes through base/disk.h.
//
// Calls really happen, in a folder of a real file system; beside it this keeps a model of what a disk has to keep: the
// content of each file as of its last sync, the names of each folder as of its last sync, and every change since. From
// that lose_power() makes one of the many states that a machine may be found in: of the changes since the last sync any
// may be there, in part, or not, in any order.
// A sync of a file that fails loses some of the changes it was for, for good: the file shows them, and a later sync
// that succeeds does not bring them to disk (what Linux does). Names are kept in a journal, which has them or ends: a
// later sync of the folder is about all of them. Thread rule: Thread-safe. The same seed and the same calls give the
// same faults: changes are to come from one thread,
//   reads may come from several.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/disk.h"
#include "base/mutex.h"

namespace lockstep {

class SimulatedDisk final : public disk::Hook {
 public:
  struct Odds {  // that a call fails
    double sync = 0;
    double write = 0;  // half of them after a part of it was written
    double other = 0;  // open to change, rename, unlink, ...
    double read = 0;
    double full = 0;  // that a stretch of calls begins in which nothing can be written (ENOSPC)
  };

  // What is in `root` is on disk. From now on every call under it is this disk's.
  SimulatedDisk(std::string root, uint64_t seed);
  ~SimulatedDisk() override;

  void set_odds(const Odds& odds);
  // After so many changes more everything fails: whoever uses the disk is as good as dead.
  void stop_after(uint64_t changes);
  void stop();
  bool is_stopped() const;
  uint64_t faults() const;  // so far, without those of a disk that is stopped

  // The process ended and another one starts: what it wrote is there, synced or not.
  void restart_process();
  // The machine lost power, and has it again. Nobody has a file open.
  void lose_power();

  // For what does not go through base/disk.h by itself (sqlite_on_disk.cc): the same questions and answers.
  int before(const disk::Call& call, size_t& bytes_max) override;
  void after(const disk::Call& call, int64_t outcome) override;

 private:
  struct Change {
    bool is_truncate = false;
    uint64_t offset = 0;  // or the new size
    std::string bytes;
  };
  struct File {
    std::string durable;
    std::vector<Change> unsynced;
  };
  using Handle = std::shared_ptr<File>;  // nullptr: a folder
  struct EntryChange {                   // one of these, whole or not at all
    std::string removed;                 // empty: none
    std::string added;
    Handle file;
  };
  struct Folder {
    std::map<std::string, Handle> durable;
    std::vector<EntryChange> unsynced;
  };
  struct Descriptor {
    Handle file;
    std::string path;
    uint64_t position = 0;
  };

  bool is_ours(std::string_view path) const { return path.starts_with(root_); }
  bool happens(double odds) LOCKSTEP_REQUIRES(mutex_) {
    return odds > 0 && std::uniform_real_distribution<double>(0, 1)(random_) < odds;
  }
  uint64_t below(uint64_t most) LOCKSTEP_REQUIRES(mutex_) { return random_() % most; }
  Handle file_of(const disk::Call& call) LOCKSTEP_REQUIRES(mutex_);
  void enter(std::string_view path, Handle file) LOCKSTEP_REQUIRES(mutex_);
  void leave(std::string_view path) LOCKSTEP_REQUIRES(mutex_);
  static void apply(std::string& content, const Change& change);
  static void apply(std::map<std::string, Handle>& entries, const EntryChange& change);
  void fail_sync(File& file) LOCKSTEP_REQUIRES(mutex_);
  std::string after_power_loss(const File& file) LOCKSTEP_REQUIRES(mutex_);
  void load(const std::string& folder) LOCKSTEP_REQUIRES(mutex_);
  void write_out(const std::string& folder, const std::map<std::string, std::map<std::string, Handle>>& entries,
                 std::map<Handle, std::string>& written) LOCKSTEP_REQUIRES(mutex_);

  const std::string root_;  // ends with '/'
  const uint64_t seed_;
  mutable Mutex mutex_;
  std::mt19937_64 random_ LOCKSTEP_GUARDED_BY(mutex_);
  Odds odds_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<std::string, Handle> files_ LOCKSTEP_GUARDED_BY(mutex_);    // as the process sees them
  std::map<std::string, Folder> folders_ LOCKSTEP_GUARDED_BY(mutex_);  // by path, without a slash at the end
  std::map<int, Descriptor> descriptors_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> reads_ LOCKSTEP_GUARDED_BY(mutex_);  // so far, by path
  uint64_t changes_left_ LOCKSTEP_GUARDED_BY(mutex_) = UINT64_MAX;
  uint64_t full_for_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  uint64_t faults_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep
