#include "base/utc_time.h"

#include <ctime>

#include "base/text.h"

namespace lockstep {
namespace {

int64_t whole_seconds(int64_t unix_ms) {
  return unix_ms / 1000 - (unix_ms % 1000 < 0 ? 1 : 0);
}

}  // namespace

std::string utc_time(int64_t unix_ms, const char* pattern) {
  const time_t seconds = whole_seconds(unix_ms);
  tm utc{};
  gmtime_r(&seconds, &utc);
  char text[64];
  return std::string(text, std::strftime(text, sizeof text, pattern, &utc));
}

std::string utc_time(int64_t unix_ms) {
  return utc_time(unix_ms, "%Y-%m-%dT%H:%M:%S") +
         format(".%03dZ", static_cast<int>(unix_ms - whole_seconds(unix_ms) * 1000));
}

}  // namespace lockstep
