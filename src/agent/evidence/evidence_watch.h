// The evidence taker on a thread of its own, and the sampler on another: a hung file system or a wedged process holds up
// nobody else.
//
// Thread rule: Thread-safe. Its threads are joined by the destructor.
#pragma once

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "agent/evidence/evidence_taker.h"
#include "base/mutex.h"

namespace lockstep {

class EvidenceWatch {
 public:
  EvidenceWatch(EvidenceOptions options, const Clock& clock, Counters& counters);
  ~EvidenceWatch();

  // A rank that was not among them before is looked at without delay.
  void set_ranks(std::vector<RecorderOwner> owners);
  // As EvidenceTaker has it; of ranks that were looked at by now.
  std::map<std::string, std::string> code_versions();
  void ask(StackRequest request);
  void ask(SampleRequest request);
  // What was fetched since.
  std::vector<ResourceGroup> take();
  // Ends the thread. False: it did not come back within that time, from a file system that does not answer, say.
  bool stop(int64_t within_ms);

  static constexpr size_t kAskedMax = 256;  // requests that wait; further ones are dropped and counted as busy

 private:
  void run();

  Counters& counters_;
  Heartbeat* const heartbeat_;
  EvidenceTaker taker_;  // the thread's own
  StackSampler sampler_;

  Mutex mutex_;
  ConditionVariable changed_;
  std::vector<RecorderOwner> owners_ LOCKSTEP_GUARDED_BY(mutex_);
  bool owners_new_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::string> code_versions_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<StackRequest> asked_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<SampleRequest> samples_asked_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<ResourceGroup> fetched_ LOCKSTEP_GUARDED_BY(mutex_);
  bool stopping_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  bool ended_ LOCKSTEP_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace lockstep
