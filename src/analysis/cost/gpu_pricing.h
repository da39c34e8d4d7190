// What a job's GPU time costs: the one place where prices by model, the GPUs of a job and the models that agents report
// come together.
//
// The GPUs are those of the job's newest attempt, and where one is named, of that: those of an attempt that is over are not
// known. What was found is kept for kKeptNs, and while no rank is known for kRetryNs. Agents report their GPUs about when a job takes its first steps: while a model is missing it is looked for again
// after kRetryNs, then after twice that and so on up to kKeptNs. Where one price is of all GPUs, no store is asked.
//
// Models are read for kReachNs back, at most every kRetryNs, and what was read is kept; of before that once, when a GPU is
// asked for that was not reported since.
// Limits:      kJobsMax jobs are remembered, beyond them the oldest answers are made anew; models of kGpusMax GPUs, beyond
//              them those of kReachNs.
// Thread rule: Thread-safe. Stores are asked outside the lock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "analysis/cost/gpu_peak.h"
#include "analysis/cost/gpu_prices.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "store/metric_reader.h"
#include "store/step_store.h"

namespace lockstep {

class GpuPricing {
 public:
  static constexpr int64_t kKeptNs = 60'000'000'000;
  static constexpr int64_t kRetryNs = 5'000'000'000;
  static constexpr int64_t kReachNs = 86'400'000'000'000;
  static constexpr size_t kJobsMax = 10'000;
  static constexpr size_t kGpusMax = 1'000'000;

  GpuPricing(GpuPrices prices, const StepStore& steps, const MetricReader& metrics, const Clock& clock)
      : prices_(std::move(prices)), steps_(steps), metrics_(metrics), clock_(clock) {}

  const GpuPrices& prices() const { return prices_; }
  // Empty: the job has no ranks that are known, or prices do not differ by model.
  GpusByModel gpus_of(std::string_view job_id) const;
  GpusByModel gpus_of(std::string_view job_id, int64_t attempt) const;  // empty: it is not the newest, either
  GpuCost cost_of(std::string_view job_id, double gpu_seconds) const;
  // Of all GPUs that agents have reported.
  std::shared_ptr<const GpuModels> models() const { return models(true, kKeptNs); }

 private:
  struct Known {
    int64_t attempt = 0;
    GpusByModel gpus;
    int64_t until_ns = 0;  // monotonic
    int64_t retry_ns = 0;  // for which a missing model was not looked for; 0: none was missing
  };
  std::shared_ptr<const GpuModels> models(bool of_all_time, int64_t age_ns_max) const;
  std::shared_ptr<const GpuModels> add(GpuModels read) const LOCKSTEP_REQUIRES(mutex_);
  // attempt_least: what is known of an earlier one is asked for anew.
  Known known(std::string_view job_id, int64_t attempt_least) const;
  Known ask(std::string_view job_id, int64_t retried_ns) const;

  const GpuPrices prices_;
  const StepStore& steps_;
  const MetricReader& metrics_;
  const Clock& clock_;
  mutable Mutex mutex_;
  mutable std::map<std::string, Known, std::less<>> jobs_ LOCKSTEP_GUARDED_BY(mutex_);
  mutable std::shared_ptr<const GpuModels> models_ LOCKSTEP_GUARDED_BY(mutex_);
  mutable int64_t models_read_ns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;  // monotonic
  mutable bool has_all_time_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

}  // namespace lockstep
