// Every counter of lockstepd: the rows of each folder that counts, in one table.
#pragma once

#include <span>

#include "base/counters.h"

namespace lockstep {

std::span<const CounterDescriptor> server_counters();

}  // namespace lockstep
