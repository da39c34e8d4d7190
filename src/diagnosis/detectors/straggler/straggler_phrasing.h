// A straggler in words, with its price: what a step would take without it.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "diagnosis/detectors/straggler/late_ranks.h"
#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep::straggler {

// "Rank 5 (node-17, GPU 3)", "Host node-17 (ranks 0 to 7)"; host: empty where it is a rank alone.
std::string name_or_host(const JobWindow& window, const std::string& host, const std::vector<Rank>& ranks);
// What a step would take without these ranks: the next slowest sets the pace then.
double saved_without(const std::vector<double>& typical, const std::vector<Late>& gone, double step_ns);
// It costs next to nothing: others are later.
bool is_hidden(const Finding& finding);
// A rank, or those of a host, that are late now. known: of how many ranks times are known.
Finding finding_of(const JobWindow& window, const std::string& host, std::vector<Late> late, double saved,
                   const LastSteps& last, size_t known);

}  // namespace lockstep::straggler
