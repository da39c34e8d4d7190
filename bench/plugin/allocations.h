// Counts what a thread takes from the heap: the program's malloc and its kin stand in front of the C library's, for
// every library it loads. operator new of C++ and the allocators of other languages end there, too.
//
// Thread rule: Thread-safe (a count per thread).
#pragma once

#include <cstdint>

namespace lockstep::plugin_bench {

uint64_t allocations_of_this_thread();

}  // namespace lockstep::plugin_bench
