// Less work: steps take as long as ever and do less, so MFU fell and no step time shows it.
//
// The idea: FLOPs that ranks tell (else tokens), per second, against the job's own beginning, of an earlier attempt
// too. A fall that lasts while the step's length stays what it was is the work itself: a smaller batch, shorter
// sequences, a filter that drops samples. Where steps become longer it is somebody's fault or a regression, and said by
// those; where they become shorter with the work, nothing is lost. A last, partial batch says nothing.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <vector>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep {

std::vector<Finding> find_less_work(const JobWindow& window, const std::vector<AttributedRange>& explained);

}  // namespace lockstep
