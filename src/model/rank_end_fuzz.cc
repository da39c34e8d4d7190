// parse_left_failure_untrusted: whatever a process left is one bounded line that a terminal can show, or nothing.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/rank_end.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const LeftFailure left = parse_left_failure_untrusted(std::string_view(reinterpret_cast<const char*>(data), size));
  if (left.reason.size() > kEndReasonBytesMax || left.time_unix_ns < 0) std::abort();
  if (left.reason.find_first_of("\n\r\x1b") != std::string::npos) std::abort();
  return 0;
}
