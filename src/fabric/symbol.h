// Names of the fabric by number: a fleet has a hundred thousand adapters and eight names for them.
//
// Thread rule: as columns::TextTable.
#pragma once

#include "store/columns/text_table.h"

namespace lockstep::fabric {

using Symbol = uint32_t;
inline constexpr Symbol kNoText = 0;  // ""
using columns::TextTable;

}  // namespace lockstep::fabric
