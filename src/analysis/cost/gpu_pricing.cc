#include "analysis/cost/gpu_pricing.h"

namespace lockstep {

GpusByModel GpuPricing::gpus_of(std::string_view job_id) const {
  const int64_t now_ns = clock_.monotonic_ns();
  {
    MutexLock lock(mutex_);
    const auto known = jobs_.find(job_id);
    if (known != jobs_.end() && now_ns < known->second.until_ns) return known->second.gpus;
  }
  Known known = ask(job_id);
  MutexLock lock(mutex_);
  if (jobs_.size() >= kJobsMax) std::erase_if(jobs_, [&](const auto& one) { return one.second.until_ns <= now_ns; });
  if (jobs_.size() >= kJobsMax) jobs_.clear();
  jobs_.insert_or_assign(std::string(job_id), known);
  return std::move(known.gpus);
}

GpuCost GpuPricing::cost_of(std::string_view job_id, double gpu_seconds) const {
  return prices_.cost(gpu_seconds, prices_.by_model() ? gpus_of(job_id) : GpusByModel());
}

GpuPricing::Known GpuPricing::ask(std::string_view job_id) const {
  Known known;
  const std::optional<JobInfo> job = steps_.job(job_id);
  const auto count = [&](const GpuModels& models) {
    known.gpus.clear();
    for (const RankInfo& rank : job->ranks) {
      const auto model = models.find(rank.identity.gpu_uuid);
      ++known.gpus[model == models.end() ? std::string() : model->second];
    }
  };
  if (job) count(*models(kKeptNs));
  if (known.gpus.contains("")) count(*models(kRetryNs));
  const bool is_whole = !known.gpus.empty() && !known.gpus.contains("");
  known.until_ns = clock_.monotonic_ns() + (is_whole ? kKeptNs : kRetryNs);
  return known;
}

std::shared_ptr<const GpuModels> GpuPricing::models(int64_t age_most_ns) const {
  const int64_t now_ns = clock_.monotonic_ns();
  {
    MutexLock lock(mutex_);
    if (models_ && now_ns - models_read_ns_ < age_most_ns) return models_;
  }
  auto models = std::make_shared<const GpuModels>(gpu_models(metrics_));
  MutexLock lock(mutex_);
  models_ = models;
  models_read_ns_ = now_ns;
  return models;
}

}  // namespace lockstep
