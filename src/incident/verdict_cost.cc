#include "incident/verdict_cost.h"

namespace lockstep::incident {

GpuCost cost_of(const VerdictLoss& loss, const IncidentRegistry* incidents, const GpuPricing& pricing) {
  std::optional<GpusByModel> gpus;
  if (incidents != nullptr && pricing.prices().by_model()) gpus = incidents->gpus_of_finding(loss.verdict_id);
  return pricing.prices().cost(loss.gpu_seconds, gpus ? *gpus : pricing.gpus_of(loss.job_id, loss.attempt));
}

}  // namespace lockstep::incident
