// A comparison of kernel traces as tables on standard output: of `lockstep diff` and `lockstep analyze --compare`.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstddef>

#include "profile/ranks/compare.h"

namespace lockstep::cli {

// kernels: rows at most.
void print_comparison(const profile::ProfileComparison& comparison, size_t kernels);

}  // namespace lockstep::cli
