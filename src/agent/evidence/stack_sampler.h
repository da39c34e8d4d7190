// Samples of ranks' stacks, on a thread of its own: seconds of looking must not keep evidence of a hang waiting.
//
// Orders are done one after another, the ranks of one order side by side. A round that takes longer than half of its
// period makes the period longer: the agent gives way, and the event says how often it has looked.
//
// Limits: kOrdersMax orders wait, kRanksMax ranks in one.
// Counts: lockstep_agent_samples_total by result: told, failed (no Python, not permitted, gone).
// Thread rule: Thread-safe. One thread, begun with the first order, joined by the destructor.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/counters.h"
#include "base/mutex.h"
#include "model/detail_request.h"
#include "model/step.h"
#include "model/telemetry.h"

namespace lockstep {

struct SampleTarget {
  Identity identity;
  int32_t pid = -1;
  uint64_t start_ticks = 0;
  uid_t owner = 0;
};

class StackSampler {
 public:
  static constexpr size_t kOrdersMax = 4;

  StackSampler(const Clock& clock, Counters& counters) : clock_(clock), counters_(counters) {}
  ~StackSampler();

  // False: too many wait.
  bool order(std::vector<SampleTarget> targets, int64_t seconds, int64_t hz);
  // What is ready since.
  std::vector<ResourceGroup> take();
  // Ends the thread. False: it did not come back within that time.
  bool stop(int64_t within_ms);

 private:
  struct Order {
    std::vector<SampleTarget> targets;
    int64_t seconds = 0, hz = 0;
  };
  void run();
  std::vector<ResourceGroup> sample(const Order& order);
  bool is_stopping();

  const Clock& clock_;
  Counters& counters_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<Order> orders_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<ResourceGroup> done_ LOCKSTEP_GUARDED_BY(mutex_);
  bool stopping_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  bool running_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lockstep
