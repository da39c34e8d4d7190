#include "base/rate_limited_log.h"

#include "base/log.h"
#include "base/text.h"

namespace lockstep {

std::optional<int64_t> RateLimitedLog::due(const std::string& reason) {
  MutexLock lock(mutex_);
  State& state = states_[reason];
  const int64_t now_ns = clock_.monotonic_ns();
  if (now_ns < state.next_ns) {
    ++state.left_out;
    return std::nullopt;
  }
  const int64_t left_out = state.left_out;
  state = {now_ns + 1'000'000'000, 0};
  return left_out;
}

std::string RateLimitedLog::with_left_out(const std::string& reason, std::string line, int64_t left_out) {
  if (left_out > 0) line += format(" [%s: %lld more lines left out]", reason.c_str(), static_cast<long long>(left_out));
  return line;
}

std::optional<std::string> RateLimitedLog::line_now(const std::string& reason, const std::string& line) {
  const std::optional<int64_t> left_out = due(reason);
  return left_out ? std::optional(with_left_out(reason, line, *left_out)) : std::nullopt;
}

void RateLimitedLog::write(const std::string& line) {
  LOCKSTEP_LOG_WARN(component_, "%s", line.c_str());
}

}  // namespace lockstep
