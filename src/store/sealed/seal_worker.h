// The thread of a store that seals what memory holds: a seal when one is due, and after it, and every minute, what else
// there is to do. A seal that fails (disk full) is tried again every few seconds and reported once a minute; an
// exception costs the one seal.
//
// Thread rule: run() is for that thread; it returns once the token asks it to stop.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "base/clock.h"
#include "base/counters.h"
#include "base/mutex.h"
#include "base/result.h"

namespace lockstep::sealed {

struct SealWork {
  const char* store;         // in lines of the log
  const char* count_failed;  // the counter of seals that an exception ended
  std::function<void()> on_wake = [] {};
  std::function<bool()> is_due;
  std::function<Result<bool>()> seal;
  std::function<void(bool ok)> on_sealed = [](bool) {};
  std::function<std::string()> limit;  // of what stays in memory meanwhile
  std::function<void()> maintain;
};

class SealWorker {
 public:
  SealWorker(const Clock& clock, Counters& counters) : clock_(clock), counters_(counters) {}

  void run(std::stop_token stop, const SealWork& work);
  void wake() { wake_.notify_one(); }  // a seal may be due; any thread

 private:
  bool try_seal(const SealWork& work, int64_t now_ns);

  const Clock& clock_;
  Counters& counters_;
  // Of the thread that runs.
  int64_t not_before_ns_ = 0;
  int64_t reported_ns_ = 0;

  Mutex mutex_;
  StoppableConditionVariable wake_;
};

}  // namespace lockstep::sealed
