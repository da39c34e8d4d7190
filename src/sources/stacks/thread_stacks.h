// Where the threads of a process are, as the kernel tells without stopping them: name, state, what they sleep in, and
// the system call they are in; the kernel's stack where reading it is permitted (CAP_SYS_ADMIN).
//
// Reads of /proc that take no lock of the process's memory, but who knows: not for a thread that must not wait.
// Limits: kThreadsRead threads are looked at, kStackThreadsMax told: the main thread, those in the kernel, those that
// run, then the others in order.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/rank_evidence.h"

namespace lockstep {

inline constexpr size_t kThreadsRead = 1024;

struct ThreadStacks {
  int64_t count = 0;  // threads of the process
  std::vector<ThreadStack> threads;
  bool syscalls_denied = false;  // what they do in the kernel may not be seen from here
};
// root: files are found under it; "" is the machine itself.
Result<ThreadStacks> read_thread_stacks(int32_t pid, const std::string& root = "");

// Parts, for bytes we did not write.
std::string syscall_name_untrusted(std::string_view text);               // of /proc/PID/syscall; empty: none
std::vector<std::string> kernel_stack_untrusted(std::string_view text);  // of /proc/PID/stack

// The signals that a process catches, ignores or blocks, of /proc/PID/status: bit n - 1 is signal n.
struct SignalSets {
  uint64_t caught = 0;
  uint64_t ignored = 0;
  uint64_t blocked = 0;  // by the main thread
};
SignalSets signal_sets_untrusted(std::string_view status_text);

}  // namespace lockstep
