#include "diagnosis/detectors/registry.h"

#include "diagnosis/detectors/pause/pause.h"
#include "diagnosis/detectors/slow_link/slow_link.h"
#include "diagnosis/detectors/straggler/straggler.h"

namespace lockstep {
namespace {

constexpr StepDetector kStepDetectors[] = {
    {"straggler", "a rank whose own work takes longer than its peers' in most steps", find_stragglers},
    {"slow_link", "a link that moves data far slower than comparable ones", find_slow_links},
    {"pause", "a rank that stops everybody now and then", find_pauses},
};

}  // namespace

std::span<const StepDetector> step_detectors() {
  return kStepDetectors;
}

}  // namespace lockstep
