// Any bytes as what a process says to the socket that Kineto knows: refused, or within every limit.
#include <cstdlib>

#include "agent/profile/kineto_messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Result<KinetoMessage> message = parse_kineto_untrusted(bytes);
  if (message.ok() && (message->pids.empty() || message->pids.size() > kKinetoPidsMax)) std::abort();
  // What a user of the node chooses of a configuration is the name of a folder.
  const Result<std::string> config = kineto_config({.file = std::string(bytes), .trace_id = "p-0", .duration_ms = 1});
  if (config.ok() && config->find('#') != std::string::npos) std::abort();
  return 0;
}
