// Sends what a hang or a crash has left on this node to where files of captures go (model/evidence_files.h): dumps of
// PyTorch's Flight Recorder as they are found, and the kept copies of recorders of processes that died.
//
// Limits: kWaitingMax files wait, kWaitingPerUserMax of one user; kFilesPerHourMax files and kBytesPerHourMax bytes are
//         sent in an hour, and 1/kUserShare of both for one user: a job that dies again and again fills neither the
//         store, whose own limits and age hold as for captures, nor what others may send. Of a file that grows
//         while it waits, what was there is sent. What is not taken stays on the node as before.
// Counts: lockstep_agent_evidence_files_total by result: done, failed (one line in the log), busy (too many wait),
//         budget (too much in this hour).
// Thread rule: Thread-safe. One thread of its own, joined by the destructor: call the uploader's stop() first.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <thread>

#include "agent/upload/uploader.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/files.h"
#include "base/mutex.h"
#include "model/evidence_files.h"
#include "model/step.h"
#include "model/telemetry.h"

namespace lockstep {

class EvidenceUploads {
 public:
  static constexpr size_t kWaitingMax = 64;
  static constexpr size_t kWaitingPerUserMax = 16;
  static constexpr size_t kFilesPerHourMax = 128;
  static constexpr uint64_t kBytesPerHourMax = 512ull << 20;
  static constexpr uint64_t kUserShare = 4;

  // uploader: borrowed.
  EvidenceUploads(Uploader& uploader, const Clock& clock, Counters& counters);
  ~EvidenceUploads();

  // file: open for reading; its bytes are read later, on the thread. False: it is not taken, and was counted.
  bool add(const Identity& identity, uid_t user, EvidenceFileKind kind, UniqueFd file, int64_t unix_s);
  // Waits until nothing is left to send; false: something is, after that time.
  bool drain(int64_t within_ms);
  // Ends the thread; what waits is left. False: it did not come back within that time.
  bool stop(int64_t within_ms);

 private:
  struct Waiting {
    UploadOrder order;
    uid_t user = 0;
    Rank rank = kNoRank;
    UniqueFd file;
  };
  // What was sent in this hour.
  struct Spent {
    size_t files = 0;
    uint64_t bytes = 0;
    bool has_room(uint64_t more_bytes, uint64_t share) const {
      return files < kFilesPerHourMax / share && bytes + more_bytes <= kBytesPerHourMax / share;
    }
    void add(uint64_t more_bytes) {
      ++files;
      bytes += more_bytes;
    }
  };
  void run();
  void counted(const char* result);

  Uploader& uploader_;
  const Clock& clock_;
  Counters& counters_;

  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<Waiting> waiting_ LOCKSTEP_GUARDED_BY(mutex_);
  int64_t hour_since_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  Spent spent_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<uid_t, Spent> spent_by_user_ LOCKSTEP_GUARDED_BY(mutex_);  // no more users than files
  bool is_sending_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  bool stopping_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  bool ended_ LOCKSTEP_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace lockstep
