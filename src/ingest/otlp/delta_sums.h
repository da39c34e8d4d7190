// Delta points added up to counters, series by series, so that rate() and increase() mean the same everywhere.
//
// What has been added is remembered for kIdleNs after the last point and for kSeriesMax series, and begins anew (a
// counter reset) after a restart. A delta that is not later than the one before is refused: it was counted already.
// Thread rule: Thread-safe; a Push is Confined.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/memory_budget.h"
#include "base/mutex.h"
#include "model/native_histogram.h"

namespace lockstep {

class DeltaSums {
 public:
  static constexpr size_t kSeriesMax = 200'000;
  static constexpr int64_t kIdleNs = 3'600'000'000'000;

  struct Sum {
    double sum = 0;
    NativeHistogram histogram;
    int64_t time_ms = 0;  // of the last delta; 0: there was none yet
    int64_t used_ns = 0;
  };
  struct Refusal {
    const char* reason = nullptr;
    std::string line;
  };

  // memory: where that of the keys is taken from; nullptr: no limit but kSeriesMax.
  DeltaSums(const Clock& clock, MemoryBudget* memory) : clock_(clock), memory_(memory, MemoryUse::kSeries) {}

  // The deltas of one push to the store. From the first one to end() no other push has any: they are taken back where
  // the store does not take them.
  class Push {
   public:
    explicit Push(DeltaSums& sums) : sums_(sums) {}

    void begin() { undo_.clear(); }
    // Where a series' deltas are added up: the caller adds one and sets time_ms. nullptr: refused.
    Sum* of(std::string raw_labels, int64_t time_ms, Refusal& refusal);
    void take_back();
    void end() { held_.reset(); }

   private:
    DeltaSums& sums_;
    std::optional<MutexLock<Mutex>> held_;
    std::vector<std::pair<Sum*, Sum>> undo_;  // what each was before, in the order of the changes
  };

 private:
  static uint64_t bytes_of(std::string_view raw_labels) { return raw_labels.size() + sizeof(Sum) + 64; }
  void forget_idle(int64_t now_ns) LOCKSTEP_REQUIRES(mutex_);

  const Clock& clock_;
  Mutex mutex_;
  std::unordered_map<std::string, Sum> sums_ LOCKSTEP_GUARDED_BY(mutex_);  // by raw labels
  MemoryPool memory_ LOCKSTEP_GUARDED_BY(mutex_);                          // of their keys
  int64_t next_sweep_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep
