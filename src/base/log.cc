#include "base/log.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "base/utc_time.h"

namespace lockstep {
namespace {

LogLevel level_from_environment() {
  const char* text = std::getenv("LOCKSTEP_LOG");
  if (text == nullptr) return LogLevel::kInfo;
  if (std::strcmp(text, "debug") == 0) return LogLevel::kDebug;
  if (std::strcmp(text, "warn") == 0) return LogLevel::kWarn;
  if (std::strcmp(text, "error") == 0) return LogLevel::kError;
  return LogLevel::kInfo;
}

std::atomic<LogLevel>& level() {
  static std::atomic<LogLevel> value{level_from_environment()};
  return value;
}

const char* name_of(LogLevel value) {
  switch (value) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarn:
      return "warn";
    case LogLevel::kError:
      return "error";
  }
  return "?";
}

}  // namespace

void set_log_level(LogLevel value) {
  level().store(value, std::memory_order_relaxed);
}

void log_line(LogLevel line_level, const char* component, const char* pattern, ...) {
  if (line_level < level().load(std::memory_order_relaxed)) return;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const int64_t now_ms = static_cast<int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
  char line[2048];
  size_t used = static_cast<size_t>(
      std::snprintf(line, sizeof line, "%s %s %s: ", utc_time(now_ms).c_str(), name_of(line_level), component));
  va_list arguments;
  va_start(arguments, pattern);
  int length = std::vsnprintf(line + used, sizeof line - used - 1, pattern, arguments);
  va_end(arguments);
  used += length < 0 ? 0 : static_cast<size_t>(length);
  if (used > sizeof line - 2) used = sizeof line - 2;
  for (size_t i = 0; i < used; ++i) {
    if (line[i] == '\n') line[i] = ' ';  // one event, one line, whatever a peer put into it
  }
  line[used] = '\n';
  std::fwrite(line, 1, used + 1, stderr);
}

}  // namespace lockstep
