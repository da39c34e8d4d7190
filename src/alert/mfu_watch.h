// Whether a job does less than it did: model FLOP/s per GPU of each step against the median of the job's own steps before.
//
// A step counts once every rank has sent it, or once those that have not are silent (StepFollower) or kOpenSteps newer ones
// wait for them. kBadSteps in a row below
// kBelow of the median of the last kHistorySteps are a drop; steps of a drop do not move the median. It is over after
// kBadSteps in a row above kAbove, or after kNewNormalSteps: then that is what the job does.
// Limits: kJobsMax jobs (the one not heard of for longest goes); a job that is silent for kSilentNs has no drop.
// Thread rule: Thread-safe (one lock).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "model/step.h"
#include "store/step_follower.h"

namespace lockstep {

class MfuWatch {
 public:
  static constexpr size_t kJobsMax = 10'000;
  static constexpr size_t kHistorySteps = 50, kHistoryLeast = 20;
  static constexpr int64_t kBadSteps = 5, kNewNormalSteps = 500;
  static constexpr size_t kOpenSteps = 64;
  static constexpr double kBelow = 0.85, kAbove = 0.92;
  static constexpr int64_t kSilentNs = 600'000'000'000;

  struct Drop {
    std::string job_id;
    StepNumber since_step;
    int64_t since_unix_ns = 0;
    double now = 0, before = 0;  // FLOP/s of a GPU
  };

  void add(const Identity& identity, const StepSummary& summary, int64_t received_unix_ns);
  std::vector<Drop> drops(int64_t now_unix_ns) const;

 private:
  struct OpenStep {
    int32_t ranks = 0;
    double flops = 0, seconds = 0;
    int64_t start_unix_ns = 0;
    int64_t heard_unix_ns = 0;  // its first row came
  };
  struct Job {
    int64_t attempt = 0;
    int32_t world_size = 0;
    StepFollower follower;
    std::map<StepNumber, OpenStep> open;  // few
    StepNumber folded = kNoStep;          // the newest
    std::deque<double> history;
    double baseline = 0;  // of the drop that lasts or begins; 0: none
    int64_t bad = 0, good = 0, lasts = 0;
    bool dropped = false;
    double newest = 0;
    StepNumber since_step;
    int64_t since_unix_ns = 0;
    int64_t heard_unix_ns = 0;
  };
  static void fold_ready(Job& job);
  static void fold(Job& job, StepNumber number, const OpenStep& step);

  mutable Mutex mutex_;
  std::map<std::string, Job, std::less<>> jobs_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
