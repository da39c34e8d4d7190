// Warnings about what peers send: at most one line per second and reason, with a count of those left out, so that one
// broken exporter cannot fill a disk.
//
// Reasons are a closed list (they are kept for ever); what a peer sent belongs into the line.
// Thread rule: Thread-safe.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"

namespace lockstep {

class RateLimitedLog {
 public:
  RateLimitedLog(const Clock& clock, const char* component) : clock_(clock), component_(component) {}

  void warn(const std::string& reason, const std::string& line) {
    warn(reason, [&] { return line; });
  }
  // Where lines may come by the thousand: made only where it is written.
  template <std::invocable MakeLine>
  void warn(const std::string& reason, const MakeLine& make_line) {
    if (const std::optional<int64_t> left_out = due(reason)) write(with_left_out(reason, make_line(), *left_out));
  }
  // The line to write now, or nothing. (What warn() writes; for tests.)
  std::optional<std::string> line_now(const std::string& reason, const std::string& line);

 private:
  // Lines left out since the last one, where one is due now.
  std::optional<int64_t> due(const std::string& reason);
  static std::string with_left_out(const std::string& reason, std::string line, int64_t left_out);
  void write(const std::string& line);

  struct State {
    int64_t next_ns = 0;
    int64_t left_out = 0;
  };
  const Clock& clock_;
  const char* component_;
  Mutex mutex_;
  std::map<std::string, State> states_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
