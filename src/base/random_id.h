// Names for what people and the server make: "s-3f9a1c20b7d1". Short enough to say, too many to guess or meet twice.
//
// Thread rule: Thread-safe.
#pragma once

#include <random>
#include <string>

#include "base/text.h"

namespace lockstep {

inline std::string random_id(const char* prefix) {
  static thread_local std::random_device random;
  return format("%s-%08x%04x", prefix, random(), random() & 0xFFFF);
}

}  // namespace lockstep
