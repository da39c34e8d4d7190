#include "sources/ownership/job_energy.h"

#include <cmath>

namespace lockstep {

void JobEnergy::add(const std::map<std::string, double>& joules, const std::map<std::string, Owner>& by_gpu,
                    int64_t now_ns) {
  for (const auto& [uuid, value] : joules) {
    if (!std::isfinite(value) || value < 0) continue;
    const auto owner = by_gpu.find(uuid);
    const std::string job_id = owner == by_gpu.end() ? "" : owner->second.job_id;
    auto [counter, is_new] = counters_.try_emplace(uuid);
    const double used = value - counter->second.joules;
    // What was used since the last reading is of whoever held it then. A counter that fell has begun again.
    if (!is_new && used > 0) {
      if (const auto job = jobs_.find(counter->second.job_id); job != jobs_.end()) job->second.joules += used;
    }
    counter->second = {value, job_id};
    if (job_id.empty()) continue;
    if (jobs_.size() >= kJobsMax && !jobs_.contains(job_id)) continue;
    jobs_[job_id].seen_ns = now_ns;
  }
  std::erase_if(jobs_, [&](const auto& job) { return now_ns - job.second.seen_ns > kKeepNs; });
}

}  // namespace lockstep
