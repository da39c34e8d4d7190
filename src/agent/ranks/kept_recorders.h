// Recorders of processes that died, kept on disk for `lockstep postmortem`: shared memory does not survive a reboot,
// and the agent clears it.
//
// What is copied is the file that was read, by its descriptor: by then its name may stand for anything. Copies are
// readable by the agent's user alone (0600 in a folder of 0700), and named after the owner, so that nobody's copy takes
// the place of another's: <uid>-<pid>-<start ticks>.lsfr. Copied on a thread of its own: nobody waits for the disk.
//
// Limits: kFilesMax files and kBytesMax bytes; where there are more, the oldest of the user who has most go first.
//         A recorder larger than kFileBytesMax is cut: its head has the table of operations in flight, which is what
//         tells where a rank stood. kWaitingPerUserMax wait for a user; keep() refuses further ones.
// Counts: lockstep_agent_recorders_kept_total by result: kept, failed, busy (too many at once).
// Thread rule: Thread-safe. One thread of its own, joined by the destructor, which finishes what waits.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "agent/heartbeat.h"
#include "base/counters.h"
#include "base/files.h"
#include "base/mutex.h"
#include "base/result.h"
#include "model/ids.h"

namespace lockstep {

class KeptRecorders {
 public:
  static constexpr size_t kFilesMax = 64;
  static constexpr uint64_t kBytesMax = 512ULL << 20;
  static constexpr uint64_t kFileBytesMax = 64ULL << 20;
  static constexpr size_t kWaitingPerUserMax = 16;

  KeptRecorders(std::string folder, Counters& counters, Heartbeat* heartbeat = nullptr);
  ~KeptRecorders();

  // How far a copy is; nullptr from keep(): it was not taken.
  class Keeping {
   public:
    bool done() const { return done_.load(); }

   private:
    friend class KeptRecorders;
    std::atomic<bool> done_{false};
  };
  // file: open for reading; a descriptor of our own is made of it. The original stays where it is. rank: for the log.
  // on_kept: called on the thread with the copy, open for reading.
  std::shared_ptr<const Keeping> keep(int file, uid_t user, const std::string& name, Rank rank,
                                      std::function<void(UniqueFd copy)> on_kept = {});

  // On the caller's thread.
  Result<void> copy(int file, uid_t user, const std::string& name);

 private:
  struct Waiting {
    UniqueFd file;
    uid_t user = 0;
    std::string name;
    Rank rank = kNoRank;
    std::function<void(UniqueFd)> on_kept;
    std::shared_ptr<Keeping> keeping;
  };
  void run();
  Result<void> make_folder() const;
  std::string path_of(uid_t user, const std::string& name) const;
  void make_room(uint64_t bytes) const;

  const std::string folder_;
  Counters& counters_;
  Heartbeat* const heartbeat_;

  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<Waiting> waiting_ LOCKSTEP_GUARDED_BY(mutex_);
  bool stopping_ LOCKSTEP_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace lockstep
