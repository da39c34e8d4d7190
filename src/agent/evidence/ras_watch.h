// Asks NCCL's in-job service (RAS) where the ranks of a job stand, from a thread of the agent's own, and only when it
// helps and is safe: the answer is made inside the job, by a thread that all its processes share (ras_client.h).
//
// It helps when a rank of this node is suspected to hang, or always, where an operator says so. It is safe when every
// process here runs an NCCL that answers without harm. At most one question in every_ns.
//
// Thread rule: Thread-safe. One thread of its own, joined by the destructor, which waits for an answer under way: one
// that is given up early keeps the job busy. Nothing else here ever waits for it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/counters.h"
#include "base/mutex.h"
#include "base/result.h"
#include "model/events.h"
#include "recorder/records.h"
#include "sources/nccl/ras_client.h"

namespace lockstep {

struct RasWatchOptions {
  bool off = false;
  bool always = false;  // also while nobody is suspected
  std::string address = ras_default_address();
  int64_t every_ns = 30'000'000'000;
  int timeout_ms = 7000;  // what a query may take where processes do not answer
};

// "" as described above; "off"; "always"; else HOST:PORT of the service.
Result<RasWatchOptions> parse_ras_option(const std::string& text);

// Whether the NCCL of this process can be asked. An NCCL that does not tell its version is as old as its profiler
// interface allows: the sixth is of 2.29, the first that is safe again.
bool ras_is_safe(const RecorderHeader& header);

struct RasAnswer {
  uint64_t number = 0;     // 1, 2, ...
  int64_t asked_ns = 0;    // monotonic
  bool suspected = false;  // a rank here was suspected to hang when it was asked
  RasReport report;
};

// Operations that this rank has launched on this communicator; -1: not told.
int64_t launched_by(const RasReport& report, CommId comm_id, int32_t rank_in_comm);
// What is wrong with a communicator, if anything. Ranks of a job that runs do not launch at the same moment: that they
// differ is trouble only where a hang is suspected.
std::optional<CommRas> fault_class_of(const RasComm& comm, bool suspected);

class RasWatch {
 public:
  RasWatch(RasWatchOptions options, const Clock& clock, Counters& counters);
  ~RasWatch();

  // What the agent sees now. Asks if that is due; never blocks.
  void consider(bool suspected, bool safe);
  // The newest; nullptr: none yet.
  std::shared_ptr<const RasAnswer> answer() const;

 private:
  void run();

  const RasWatchOptions options_;
  const Clock& clock_;
  Counters& counters_;

  mutable Mutex mutex_;
  ConditionVariable wake_;
  bool stopping_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  bool wanted_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  bool asking_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  bool suspected_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  int64_t next_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  uint64_t answers_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<const RasAnswer> answer_ LOCKSTEP_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace lockstep
