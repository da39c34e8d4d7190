// Sampled stacks of ranks as files for others' viewers: speedscope's JSON, pprof's protobuf (not compressed here), and
// collapsed stacks, a line each.
//
// A profile for each rank and thread role in speedscope; in pprof and collapsed stacks the rank is the outermost frame,
// so that ranks stand side by side, and a label. Weights are wall time.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <string>

#include "analysis/lines/line_difference.h"

namespace lockstep {

std::string speedscope_json(const SampledRanks& samples, std::string_view name);
std::string pprof_profile(const SampledRanks& samples);
std::string collapsed_stacks(const SampledRanks& samples);

}  // namespace lockstep
