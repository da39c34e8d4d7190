// A step with what every query about it needs: the detail of its ranks and their clocks. A page asks for the same step
// many times while somebody looks around in it, so the last few are kept.
//
// A step that is being read is read once, however many ask for it. What is answered may be kFreshNs old.
// Limits: kKept steps, kRanksTogether ranks in all of them (about 20 kB each).
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "analysis/clocks/clock_alignment.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "store/span_store.h"
#include "store/step_store.h"

namespace lockstep {

struct StepTrace {
  std::string job_id;
  int64_t attempt = 0;
  StepNumber step;
  std::vector<RankDetail> ranks;  // that have sent detail, by rank; may be none
  ClockAlignment clocks;
};

class StepTraceCache {
 public:
  static constexpr int64_t kFreshNs = 3'000'000'000;
  static constexpr size_t kKept = 8;
  static constexpr size_t kRanksTogether = 20'000;

  StepTraceCache(const StepStore& steps, const SpanStore& spans, const Clock& clock)
      : steps_(steps), spans_(spans), clock_(clock) {}

  std::shared_ptr<const StepTrace> get(const std::string& job_id, int64_t attempt, StepNumber step);

 private:
  using Future = std::shared_future<std::shared_ptr<const StepTrace>>;
  struct Kept {
    std::string job_id;
    int64_t attempt;
    StepNumber step;
    int64_t asked_ns;
    size_t ranks;  // 0 while it is being read
    Future trace;
  };
  std::shared_ptr<const StepTrace> read(const std::string& job_id, int64_t attempt, StepNumber step) const;

  const StepStore& steps_;
  const SpanStore& spans_;
  const Clock& clock_;
  Mutex mutex_;
  std::deque<Kept> kept_ LOCKSTEP_GUARDED_BY(mutex_);  // newest first
};

}  // namespace lockstep
