// read_feedback: any bytes give feedback within its limits, or one line.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/feedback.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  Result<FeedbackAsked> asked = read_feedback(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!asked.ok()) {
    if (asked.error().find('\n') != std::string::npos) std::abort();
    return 0;
  }
  if (asked->note.size() > kFeedbackNoteMax) std::abort();
  return 0;
}
