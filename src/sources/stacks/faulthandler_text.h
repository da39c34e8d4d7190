// What Python's faulthandler writes when it is asked for the stacks of all threads.
//
//     Thread 0x00007f2e4d3ff6c0 (most recent call first):
//       File "/job/loader.py", line 41 in load_batch
//       File "/job/train.py", line 88 in <module>
//
// Lines that are none of these (a remark, half a line of a writer that was stopped) are passed over.
// Limits: kStackPythonThreadsMax threads, kStackFramesMax frames each, kFaulthandlerBytesMax of text.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/rank_evidence.h"

namespace lockstep {

inline constexpr size_t kFaulthandlerBytesMax = 256u << 10;

// main_ident: of the main thread, as Python numbers threads; 0: not known. The main thread comes first.
std::vector<PythonStack> parse_faulthandler_untrusted(std::string_view text, uint64_t main_ident);

}  // namespace lockstep
