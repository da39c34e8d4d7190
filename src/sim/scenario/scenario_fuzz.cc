// A scenario file never crashes the parser, its mistakes are one line, and what it takes can be played: shapes that
// multiply out, targets that are there, small jobs whose faults cost what they cost (truths() plays a few steps).
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "sim/scenario/scenario.h"
#include "sim/scenario/truth.h"

using namespace lockstep;
using namespace lockstep::sim;

static void require(bool holds) {
  if (!holds) abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Result<Scenario> scenario = parse_scenario({reinterpret_cast<const char*>(data), size}, "fuzz.yaml");
  if (!scenario.ok()) {
    require(scenario.error().rfind("fuzz.yaml:", 0) == 0);
    require(scenario.error().find('\n') == std::string::npos);
    return 0;
  }
  require(!scenario->jobs.empty());
  int64_t ranks = 0, passes = 0;
  for (const JobPlan& plan : scenario->jobs) {
    require(check(shape_of(*scenario, plan, 0, plan.dp)).ok());
    ranks += plan.world_size();
    passes += int64_t{plan.world_size()} * plan.micro_batches * plan.model_chunks * plan.layers;
  }
  if (ranks > 4096) return 0;  // large ones are only slow
  for (size_t i = 0; i < scenario->faults.size(); ++i) {
    const ScenarioFault& fault = scenario->faults[i];
    const JobPlan* plan = find_job(*scenario, fault.target.job);
    require(plan != nullptr);
    require(!ranks_of(fault.target, shape_of(*scenario, *plan, 0, plan->dp)).empty());
    require(amount_at(*scenario, i, fault.from_step) >= 0);
    require(!describe(fault).empty());
  }
  if (ranks > 64 || passes > 4096 || scenario->faults.size() > 4) return 0;
  for (const Truth& truth : truths(*scenario)) require(std::isfinite(truth.cost) && !truth.layers.empty());
  return 0;
}
