// Which line makes the blamed rank slow, as evidence in its verdict: where its stacks and a peer's were sampled
// (model/rank_samples.h, analysis/lines/line_difference.h).
//
// Of findings about a rank's host, input or software alone: what a GPU or a network does to a rank shows in its stacks
// too, as the line that waits for it, and would be blamed for it.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <cstdint>

#include "analysis/lines/line_difference.h"
#include "diagnosis/finding.h"

namespace lockstep {

// Samples older than this, by now, are of another time.
inline constexpr int64_t kSamplesFreshNs = 1'800'000'000'000;

// Where a person is told to look at the process by hand, the command that does it for them stands instead.
void add_lines(Finding& finding, const SampledRanks& samples, int64_t now_unix_ns);

}  // namespace lockstep
