#include "diagnosis/detectors/registry.h"

#include "diagnosis/detectors/checkpoint/checkpoint.h"
#include "diagnosis/detectors/elimination/elimination.h"
#include "diagnosis/detectors/less_work/less_work.h"
#include "diagnosis/detectors/loss/loss.h"
#include "diagnosis/detectors/pause/pause.h"
#include "diagnosis/detectors/pipeline/pipeline.h"
#include "diagnosis/detectors/regression/regression.h"
#include "diagnosis/detectors/rotating_stall/rotating_stall.h"
#include "diagnosis/detectors/slow_flows/slow_flows.h"
#include "diagnosis/detectors/slow_link/slow_link.h"
#include "diagnosis/detectors/straggler/straggler.h"
#include "diagnosis/detectors/workload/workload.h"

namespace lockstep {
namespace {

constexpr StepDetector kStepDetectors[] = {
    {"straggler", "a rank whose own work takes longer than its peers' in most steps", find_stragglers},
    {"pipeline", "a stage of a pipeline, one rank, that all others wait for", find_slow_stages},
    {"slow_link", "a link that moves data far slower than comparable ones", find_slow_links},
    {"slow_flows", "flows of a large job and groups of any that are slower than their like, and what they share",
     find_slow_flows_and_groups},
    {"pause", "a rank that stops everybody now and then", find_pauses},
    {"rotating_stall", "ranks that stall by turns, another one in nearly every step", find_rotating_stall},
    {"checkpoint", "checkpoints that take longer than they used to", find_long_checkpoints},
    {"workload", "work that is dealt unevenly over ranks or stages", find_uneven_work},
    {"elimination", "a silent rank, because nobody else can be late", find_by_elimination},
    {"regression", "a whole job that has become slower", find_regressions},
    {"less_work", "steps that take as long as ever and do less", find_less_work},
    {"loss", "a loss that is not a number, and where it began", find_bad_loss},
};

}  // namespace

std::span<const StepDetector> step_detectors() {
  return kStepDetectors;
}

}  // namespace lockstep
