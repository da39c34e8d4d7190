// Child processes for commands that start other programs of ours (demo, replay, tests); how any process is doing.
//
// A child is killed when its ChildProcess goes away, and when the parent dies (PR_SET_PDEATHSIG).
// own_group: once it is seen that the child has ended, whatever of its group still runs is killed: what it left in the
// background, and what does not hear SIGTERM. Only what went to a session or group of its own stays.
// Thread rule: Confined.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace lockstep {

class ChildProcess {
 public:
  struct Options {
    std::vector<std::string> arguments;                            // [0] is the program's path
    std::vector<std::pair<std::string, std::string>> environment;  // added to ours
    bool inherits_environment = true;                              // false: `environment` is all it has
    std::string stderr_path;                                       // empty: inherited; else appended to this file
    bool capture_stdout = true;                                    // read_line() reads it; else inherited
    bool stderr_to_stdout = false;                                 // captured with it
    bool connect_stdin = false;                                    // take_input() writes to it; else inherited
    bool own_group = false;                                        // signals reach all that it started; see above
    int niceness = 0;                                              // added to ours
    bool outlives_us = false;  // in a session of its own, and not killed when we die; release() it
  };
  static Result<ChildProcess> start(Options options);
  ChildProcess(ChildProcess&&) noexcept;
  ChildProcess& operator=(ChildProcess&&) noexcept;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // Next line of its standard output without the newline; an error on end of output or after timeout_ms.
  Result<std::string> read_line(int64_t timeout_ms);
  // Exit status (128 + signal if killed); an error after timeout_ms.
  Result<int> wait(int64_t timeout_ms);
  bool running();
  void signal(int number);
  // SIGTERM, wait, then SIGKILL.
  int stop(int64_t timeout_ms = 5'000);

  // For callers that must never wait: from then on the other end of its standard output or input, and what becomes of
  // it, are the caller's. The input is a socket: send() with MSG_NOSIGNAL, so that a child that has gone is an error.
  UniqueFd take_output() { return std::move(output_); }
  UniqueFd take_input() { return std::move(input_); }
  pid_t release() { return std::exchange(pid_, -1); }

 private:
  ChildProcess() = default;
  pid_t pid_ = -1;
  bool own_group_ = false;
  int status_ = -1;
  UniqueFd output_;
  UniqueFd input_;
  std::string buffered_;
};

struct ProcessState {
  uint64_t start_ticks = 0;  // field 22 of /proc/PID/stat: tells a reused pid from the one that is meant. 0: it is gone
  char letter = '?';         // field 3: R, S, D (in the kernel, cannot be interrupted), T or t (stopped), ...
  bool stopped() const { return letter == 'T' || letter == 't'; }
  bool ended() const { return letter == 'Z' || letter == 'X'; }  // nobody has waited for it
};
ProcessState parse_process_stat(std::string_view text);  // of /proc/PID/stat
// A process that has ended but was not waited for is gone. root: files are found under it; "" is the machine itself.
ProcessState process_state(int32_t pid, const std::string& root = "");

// CPU time that it has used, in user space and in the kernel, its threads together; 0: it is gone.
double process_cpu_seconds(pid_t pid);
// The same of this process and of its children that have ended.
double own_cpu_seconds();

// The folder of the running program (for finding its siblings in build/bin and ../lib).
std::string program_directory();

}  // namespace lockstep
