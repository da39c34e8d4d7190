// What a process takes away from itself before it reads bytes that may be hostile or enormous: memory, CPU time, files,
// the network, other programs, its priority.
//
// After confine_process() it can compute, and read and write the files that it has open; every other system call fails
// with EPERM (seccomp, an allow list), for good and for whatever runs in it later.
// On error: one line; the caller should end rather than go on without.
// Built with a sanitizer, memory and system calls are not limited: it needs both.
// Thread rule: Confined: call them before there is a second thread.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace lockstep {

struct ProcessLimits {
  uint64_t memory_bytes = 0;  // of addresses; beyond it allocating fails
  uint64_t cpu_s = 0;         // beyond it SIGXCPU ends the process
};
// Besides: writes no file (those that are no plain files stay writable), leaves no core, is the last to get the CPU and
// the disk, and the first that Linux ends when memory is short.
Result<void> limit_process(const ProcessLimits& limits);

Result<void> confine_process();

extern const bool kLimitsMemoryAndCalls;  // false: built with a sanitizer

}  // namespace lockstep
