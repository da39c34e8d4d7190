// How many files and connections this process may have open at once.
//
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>

namespace lockstep {

// To `most`, or as many as the system allows. The usual limit is a small one, for programs that still use select().
void raise_file_limit(uint64_t most);

}  // namespace lockstep
