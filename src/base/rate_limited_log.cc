#include "base/rate_limited_log.h"

#include "base/log.h"
#include "base/text.h"

namespace lockstep {

std::optional<std::string> RateLimitedLog::line_now(const std::string& reason, const std::string& line) {
  MutexLock lock(mutex_);
  State& state = states_[reason];
  int64_t now_ns = clock_.monotonic_ns();
  if (now_ns < state.next_ns) {
    ++state.left_out;
    return std::nullopt;
  }
  std::string text = line;
  if (state.left_out > 0)
    text += format(" [%s: %lld more lines left out]", reason.c_str(), static_cast<long long>(state.left_out));
  state = {now_ns + 1'000'000'000, 0};
  return text;
}

void RateLimitedLog::warn(const std::string& reason, const std::string& line) {
  std::optional<std::string> text = line_now(reason, line);
  if (text) LOCKSTEP_LOG_WARN(component_, "%s", text->c_str());
}

}  // namespace lockstep
