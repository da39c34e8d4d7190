// How a process of others ended, through a handle that is taken while it lives: by which signal, or with which status.
//
// From Linux 6.15 on the kernel remembers it for whoever holds a pidfd. Before, it can be read only until the parent has
// fetched it, so that often nobody knows.
// Thread rule: Immutable.
#pragma once

#include <optional>

#include "model/rank_end.h"
#include "sources/ownership/process_handle.h"

namespace lockstep {

class ProcessExit {
 public:
  // Always gives one; of a process that was gone before, and fetched by its parent, it never knows anything.
  static ProcessExit watch(ProcessHandle handle, uid_t owner);

  // Nothing: it lives, or nobody knows.
  std::optional<ExitStatus> status() const;

 private:
  ProcessExit(ProcessHandle handle, UniqueFd pidfd, bool may_read_status)
      : handle_(std::move(handle)), pidfd_(std::move(pidfd)), may_read_status_(may_read_status) {}

  ProcessHandle handle_;
  UniqueFd pidfd_;        // not valid: an old kernel
  bool may_read_status_;  // else the kernel writes 0 for the status of a process that has ended
};

// Of /proc/PID/stat, of a process that has ended and was not fetched; nothing: it has not, or the text is cut.
std::optional<ExitStatus> parse_exit_status(std::string_view stat);

}  // namespace lockstep
