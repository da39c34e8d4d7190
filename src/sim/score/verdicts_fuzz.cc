// Answers of a server that may be any server.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sim/score/observe.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  lockstep::sim::Observed observed;
  lockstep::sim::Watcher(observed).read("job", text, 1);
  return 0;
}
