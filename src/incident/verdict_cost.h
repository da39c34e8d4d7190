// What the GPU time that a verdict names is worth: the same in its alert, what is sent of that, its incident and the API.
//
// By the GPUs that its incident keeps of it; of one that is in none, by those of its own attempt. A later attempt of the job
// may be on others: where those of its own are not known any more, nobody knows the models, and prices by model say so.
// Thread rule: Thread-safe (no state).
#pragma once

#include <string_view>

#include "analysis/cost/gpu_pricing.h"
#include "incident/incident_registry.h"
#include "model/verdict.h"

namespace lockstep::incident {

struct VerdictLoss {
  std::string_view verdict_id;
  std::string_view job_id;
  int64_t attempt = 0;
  double gpu_seconds = 0;
};
inline VerdictLoss loss_of(const Verdict& verdict) {
  return {verdict.id, verdict.job_id, verdict.attempt, verdict.lost_gpu_seconds};
}

// incidents nullptr: none are kept.
GpuCost cost_of(const VerdictLoss& loss, const IncidentRegistry* incidents, const GpuPricing& pricing);

}  // namespace lockstep::incident
