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
#include "model/command_kind.h"

namespace lockstep {

// Samples older than this, by now, are of another time.
inline constexpr int64_t kSamplesFreshNs = 1'800'000'000'000;

// Where a person is told to look at the process, the command is the one that can work: our own where the agent of the rank's
// host samples for them, by hand where no agent can be asked, and none where there is no process to look at.
void add_lines(Finding& finding, const SampledRanks& samples, int64_t now_unix_ns, Answers sampled = Answers::kYes);

}  // namespace lockstep
