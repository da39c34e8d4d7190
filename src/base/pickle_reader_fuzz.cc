// Any bytes: an answer or one line, within the limits, and every value can be looked at.
#include "base/pickle_reader.h"

namespace {

size_t look(lockstep::PickleValue value, int depth, size_t& left) {
  if (depth == 0 || left == 0) return 0;
  --left;
  size_t seen = value.is_none() + value.boolean().value_or(false) + value.text().value_or("").size();
  seen += static_cast<size_t>(value.integer().value_or(0) & 1) + (value.number().value_or(0) > 0);
  for (size_t i = 0; i < value.size(); ++i) {
    seen += look(value.at(i), depth - 1, left);
    if (value.is_dict()) seen += look(value.key(i), depth - 1, left);
  }
  return seen + value["entries"].size();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  Result<Pickle> pickle = Pickle::parse_untrusted(std::string(reinterpret_cast<const char*>(data), size),
                                                  {.bytes_max = 1 << 20, .values_max = 10'000, .depth_max = 64});
  if (!pickle.ok()) {
    if (pickle.error().empty() || pickle.error().find('\n') != std::string::npos) __builtin_trap();
    return 0;
  }
  size_t left = 100'000;
  volatile size_t seen = look(pickle->root(), 32, left);
  (void)seen;
  return 0;
}
