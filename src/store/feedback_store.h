// What people said of verdicts: kept in the state store, held in memory for whoever shows verdicts, and handed to
// whoever learns from it (diagnosis) at start and after every change, as a whole.
//
// The last word on a verdict counts. A verdict may be long gone; what was said of its cause stays.
// On error: nothing changes, one line says why.
// Thread rule: Thread-safe (one lock; `changed` is called under it, one call at a time).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/counters.h"
#include "base/mutex.h"
#include "store/state_store.h"

namespace lockstep {

class FeedbackStore {
 public:
  using Changed = std::function<void(std::span<const VerdictFeedback> all)>;
  // Reads back what was kept.
  FeedbackStore(StateStore& state, Counters& counters, Changed changed);

  std::optional<VerdictFeedback> of(std::string_view verdict_id) const;
  Result<void> keep(VerdictFeedback feedback);
  Result<void> take_back(std::string_view verdict_id);
  // Somebody said something that was not taken: counted.
  void refused(const char* reason);

 private:
  void read_back() LOCKSTEP_REQUIRES(mutex_);
  void hand_on() LOCKSTEP_REQUIRES(mutex_);

  StateStore& state_;
  Counters& counters_;
  const Changed changed_;
  mutable Mutex mutex_;
  std::map<std::string, VerdictFeedback, std::less<>> by_verdict_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
