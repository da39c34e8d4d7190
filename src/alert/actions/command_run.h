// Runs a file of the operator's, without a shell: no arguments, an environment that is all given, nothing on its input,
// bounded in time and output. Whatever it started ends with it, unless it went to a session of its own.
//
// Which files: absolute, executable, and as operators_file() wants them, so that nobody but the operator decides what is
// run.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace lockstep {

inline constexpr size_t kCommandOutputBytesMax = 4'096;

// The file that a path leads to. It, every folder and every link on the way belong to root or to us and can be written by
// nobody else; the mode does not count where nothing can be written (a volume of Kubernetes that is mounted read-only).
// An error: one line that says what is wrong with it.
Result<std::string> operators_file(const std::string& path);
// The same of a file to be run.
Result<std::string> checked_command_file(const std::string& path);

struct CommandResult {
  int exit_code = 0;  // 128 + signal where it was killed
  bool in_time = true;
  std::string output;  // the first kCommandOutputBytesMax of what it wrote, errors among it
};
// interrupt_fd: once that can be read it is ended, as if its time were over. An error: it was not started.
Result<CommandResult> run_command(const std::string& path, std::vector<std::pair<std::string, std::string>> environment,
                                  int64_t timeout_ms, int interrupt_fd);

}  // namespace lockstep
