// What stores on disk have in common, whatever their rows are: immutable files in a folder, found again after a crash at
// any point, put together where they are small, dropped by age and limits; and a thread that sees to it. A store says
// what its files are (StoreKind) and how it writes them; what is in memory alone is its own.
//
// On error: a file that is torn or corrupt is kept out with one line and counted, so is a row group that turns out
//   corrupt when it is read. A file of another format version is left alone, and start() refuses.
// Thread rule: Thread-safe. One seal, joining or retention at a time. Queries work on the list of files they have found:
//   it is copied, changed and exchanged in one go.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/clock_witness.h"
#include "base/counters.h"
#include "base/format_versions.h"
#include "base/held_file.h"
#include "base/mutex.h"
#include "base/result.h"
#include "store/sealed/file.h"
#include "store/sealed/file_info.h"
#include "store/sealed/seal_worker.h"

namespace lockstep::sealed {

// What files of a store are, and what it is called. Counters are those of store_counters.h.
struct StoreKind {
  const char* name;   // in lines of the log, and what names of files begin with
  const char* rows;   // what the log calls rows
  const char* table;  // label of the counters of rows
  const formats::Format& format;
  const char* files_counter;
  const char* bytes_counter;
  const char* refused_counter;
  const char* corrupt_counter;
  const char* failed_counter;
  uint64_t small_rows;  // a file with less than this is small; so many in a row become one
  uint64_t small_bytes = UINT64_MAX;
};

class FileStore {
 public:
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  // Everything that is in no file now goes to disk.
  Result<void> seal();
  // Retention, and small files put together.
  void maintain();
  // All files there are at one moment, also in `folder` (base/held_file.h). What is in memory alone is the log's.
  Result<std::vector<HeldFile>> hold(const std::string& folder);

 protected:
  struct FileOptions {
    std::string folder;
    int64_t days = 7;
    uint64_t bytes_max = UINT64_MAX;
    uint64_t rows_max = UINT64_MAX;
    const ClockWitness* witness = nullptr;  // which time is credible; nullptr: what the clock says
    bool background = true;                 // false: no thread
  };
  // `kind` is borrowed.
  FileStore(const StoreKind& kind, FileOptions options, const Clock& clock, Counters& counters);
  ~FileStore() = default;

  // Finds the files there are. Once, before anything else.
  Result<void> start();
  // Ends the thread and seals what is in no file: what every store's destructor begins with.
  void close();

  // What each store does its own way.
  enum class Which { kDue, kAll };
  virtual Result<bool> seal_some(Which which) = 0;  // false: there was nothing to seal
  // For the thread. What is not filled in here: is_due, limit.
  virtual SealWork work();
  virtual Result<FilePointer> open_file(std::string_view name) const = 0;
  // Files that were found, by the time their rows came, before anybody asks for them. Leaves out what it refuses.
  virtual void adopt(Files&) LOCKSTEP_REQUIRES(seal_mutex_, mutex_) {}
  virtual void on_files_changed() LOCKSTEP_REQUIRES(mutex_) {}
  struct Joined {
    FilePointer file;
    uint64_t twice = 0;  // rows that were in more than one, or more than once in one
  };
  // One file of what can be read of these, neighbours in time, oldest first.
  virtual Result<Joined> join(const Files& small, uint64_t number) LOCKSTEP_REQUIRES(seal_mutex_) = 0;

  // What they use for that.
  std::shared_ptr<const Files> files() const;
  void add_file(const FilePointer& file) LOCKSTEP_REQUIRES(mutex_);
  void refuse(const FileInfo& file, const std::string& error) LOCKSTEP_REQUIRES(mutex_);
  // A row group that cannot be read is kept out from now on.
  void spoil(const File& file, size_t group, const std::string& error) const;
  void count_received(uint64_t rows) const;
  void count_dropped(const char* reason, uint64_t rows) const;
  const std::string& folder() const { return options_.folder; }

  const StoreKind& kind_;
  const Clock& clock_;
  Counters& counters_;
  std::atomic<int64_t>& rows_;  // the counter of those that there are, in files and in none

  Mutex seal_mutex_;  // one seal, joining or retention at a time; taken before the others
  uint64_t next_number_ LOCKSTEP_GUARDED_BY(seal_mutex_) = 1;

  mutable SharedMutex mutex_;
  std::shared_ptr<const Files> files_ LOCKSTEP_GUARDED_BY(mutex_);  // oldest first
  mutable std::atomic<uint64_t> file_rows_{0};  // that can be read; a query that finds they cannot holds no lock
  LostRecords lost_ LOCKSTEP_GUARDED_BY(mutex_);
  SealWorker sealer_;

 private:
  Result<void> load_files();
  void drop_expired() LOCKSTEP_REQUIRES(seal_mutex_);
  bool join_small_files() LOCKSTEP_REQUIRES(seal_mutex_);
  void exchange(const Files& old, const FilePointer& joined);  // in the list and on disk; joined may be null
  void set_files(Files files) LOCKSTEP_REQUIRES(mutex_);

  const FileOptions options_;
  RetentionPace pace_ LOCKSTEP_GUARDED_BY(seal_mutex_);
  std::jthread worker_;
};

}  // namespace lockstep::sealed
