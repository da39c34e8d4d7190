#include "analysis/cost/gpu_pricing.h"

#include <algorithm>

namespace lockstep {

GpusByModel GpuPricing::gpus_of(std::string_view job_id) const {
  if (!prices_.by_model()) return {};
  return known(job_id, INT64_MIN).gpus;
}

GpusByModel GpuPricing::gpus_of(std::string_view job_id, int64_t attempt) const {
  if (!prices_.by_model()) return {};
  Known newest = known(job_id, attempt);
  return newest.attempt == attempt ? std::move(newest.gpus) : GpusByModel();
}

GpuPricing::Known GpuPricing::known(std::string_view job_id, int64_t attempt_least) const {
  const int64_t now_ns = clock_.monotonic_ns();
  int64_t retried_ns = 0;
  {
    MutexLock lock(mutex_);
    const auto known = jobs_.find(job_id);
    const bool is_of_before = known != jobs_.end() && known->second.attempt < attempt_least;
    if (known != jobs_.end() && !is_of_before && now_ns < known->second.until_ns) return known->second;
    if (known != jobs_.end() && !is_of_before) retried_ns = known->second.retry_ns;
  }
  Known known = ask(job_id, retried_ns);
  MutexLock lock(mutex_);
  if (jobs_.size() >= kJobsMax) std::erase_if(jobs_, [&](const auto& one) { return one.second.until_ns <= now_ns; });
  if (jobs_.size() >= kJobsMax) jobs_.clear();
  jobs_.insert_or_assign(std::string(job_id), known);
  return known;
}

GpuCost GpuPricing::cost_of(std::string_view job_id, double gpu_seconds) const {
  return prices_.cost(gpu_seconds, gpus_of(job_id));
}

GpuPricing::Known GpuPricing::ask(std::string_view job_id, int64_t retried_ns) const {
  Known known;
  bool is_one_missing = false;
  const std::optional<JobInfo> job = steps_.job(job_id);
  if (job) known.attempt = job->attempt;
  const auto count = [&](const GpuModels& models) {
    known.gpus.clear();
    is_one_missing = false;
    for (const RankInfo& rank : job->ranks) {
      const std::string& gpu_uuid = rank.identity.gpu_uuid;
      const auto model = models.find(gpu_uuid);
      is_one_missing |= model == models.end() && !gpu_uuid.empty();
      ++known.gpus[model == models.end() ? std::string() : model->second];
    }
    return is_one_missing;
  };
  const int64_t age_ns_max = retried_ns > 0 ? kRetryNs : kKeptNs;
  if (job && count(*models(false, age_ns_max))) count(*models(true, age_ns_max));
  if (is_one_missing) known.retry_ns = std::clamp(2 * retried_ns, kRetryNs, kKeptNs);
  const int64_t kept_ns = known.gpus.empty() ? kRetryNs : is_one_missing ? known.retry_ns : kKeptNs;
  known.until_ns = clock_.monotonic_ns() + kept_ns;
  return known;
}

std::shared_ptr<const GpuModels> GpuPricing::models(bool of_all_time, int64_t age_ns_max) const {
  const int64_t now_ns = clock_.monotonic_ns();
  int64_t from_ms = 0;
  {
    MutexLock lock(mutex_);
    of_all_time = of_all_time && !has_all_time_;
    if (models_ && !of_all_time && now_ns - models_read_ns_ < age_ns_max) return models_;
    const int64_t back_ns = kReachNs + (models_ ? now_ns - models_read_ns_ : 0);
    if (!of_all_time) from_ms = std::max<int64_t>(0, (clock_.unix_ns() - back_ns) / 1'000'000);
  }
  Result<GpuModels> read = gpu_models(metrics_, from_ms);
  MutexLock lock(mutex_);
  models_read_ns_ = now_ns;
  has_all_time_ = has_all_time_ || (of_all_time && read.ok());
  models_ = add(read.ok() ? std::move(*read) : GpuModels());
  return models_;
}

// What is known already and that; what was read counts.
std::shared_ptr<const GpuModels> GpuPricing::add(GpuModels read) const {
  const auto is_known = [&](const GpuModels::value_type& one) LOCKSTEP_REQUIRES(mutex_) {
    const auto known = models_->find(one.first);
    return known != models_->end() && known->second == one.second;
  };
  if (models_ && std::all_of(read.begin(), read.end(), is_known)) return models_;
  if (models_ && models_->size() + read.size() <= kGpusMax) read.insert(models_->begin(), models_->end());
  return std::make_shared<const GpuModels>(std::move(read));
}

}  // namespace lockstep
