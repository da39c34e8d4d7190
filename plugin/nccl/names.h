// NCCL names functions, types, algorithms and protocols by strings; records carry small numbers. By content, not by
// address: a string's address changes when NCCL is unloaded and loaded again.
//
// Thread rule: Thread-safe (no state). A null or unknown name is 0, "unknown".
#pragma once

#include <cstdint>

#include "recorder/records.h"

namespace lockstep::nccl {

Function function_of(const char* name);
Datatype datatype_of(const char* name);
uint8_t algorithm_of(const char* name);  // as in OpRecord::algorithm
uint8_t protocol_of(const char* name);   // as in OpRecord::protocol

}  // namespace lockstep::nccl
