// Warnings about what peers send: at most one line per second and reason, with a count of those left out, so that one
// broken exporter cannot fill a disk.
//
// Reasons are a closed list (they are kept for ever); what a peer sent belongs into the line.
// Thread rule: Thread-safe.
#pragma once

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

  void warn(const std::string& reason, const std::string& line);
  // The line to write now, or nothing. (What warn() writes; for tests.)
  std::optional<std::string> line_now(const std::string& reason, const std::string& line);

 private:
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
