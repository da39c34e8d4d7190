// For fuzzers of files: what the fuzzer gives is either the file itself, or where a sound one is damaged, so that more
// than the first check of a reader is reached.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace lockstep::testing {

// The first byte chooses. sound: not empty, at most 64 KiB of it can be damaged.
inline std::string damaged_file(const uint8_t* data, size_t size, const std::string& sound) {
  if (size > 0 && data[0] % 2 == 0) return std::string(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::string bytes = sound;
  for (size_t at = 1; at + 3 <= size; at += 3) {  // offset (2 bytes), value
    const size_t offset = (data[at] | static_cast<size_t>(data[at + 1]) << 8) % bytes.size();
    bytes[offset] = static_cast<char>(data[at + 2]);
  }
  return bytes;
}

}  // namespace lockstep::testing
