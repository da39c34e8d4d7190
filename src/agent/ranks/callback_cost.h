// What the plugin's callbacks cost all jobs of this node, since the agent started, as a Prometheus histogram.
//
// Thread rule: Thread-safe.
#pragma once

#include <string>

#include "base/mutex.h"
#include "recorder/records.h"

namespace lockstep {

class CallbackCost {
 public:
  // What a process's cost has grown by.
  void add(const RecorderCost& before, const RecorderCost& now);
  std::string prometheus_text() const;

 private:
  mutable Mutex mutex_;
  RecorderCost total_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
