// What code makes of bytes, as one line with a checksum: for encoders that choose among ways to write the same, and for
// readers that meet bytes which no honest writer makes. Where such a line is changed on purpose, the one that the test
// prints is the new one.
//
// Thread rule: Confined. For tests.
#pragma once

#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/crc32c.h"

namespace lockstep::testing {

class Fingerprint {
 public:
  void add(std::string_view bytes) {
    std::string chained(reinterpret_cast<const char*>(&crc_), sizeof crc_);
    for (size_t size = bytes.size(); size > 0; size >>= 8) chained.push_back(static_cast<char>(size));
    crc_ = crc32c(chained.append(bytes));
    ++count_;
    bytes_ += bytes.size();
  }
  std::string text() const {
    char line[80];
    std::snprintf(line, sizeof line, "%zu of %zu bytes, %08x", count_, bytes_, crc_);
    return line;
  }

 private:
  uint32_t crc_ = 0;
  size_t count_ = 0, bytes_ = 0;
};

// What `read` makes of these bytes with each of them changed in turn, and cut off there; nothing: it refuses.
inline std::string read_changed(const std::string& bytes,
                                const std::function<std::optional<std::string>(const std::string&)>& read) {
  size_t refused = 0;
  Fingerprint taken;
  auto look = [&](const std::string& changed) {
    if (std::optional<std::string> made = read(changed)) {
      taken.add(*made);
    } else {
      ++refused;
    }
  };
  for (size_t at = 0; at < bytes.size(); ++at) {
    const char whole = bytes[at];
    for (const int byte : {whole ^ 1, whole ^ 0x80, whole + 1, 0, 0xff, 0x7f}) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(byte);
      look(changed);
    }
    look(bytes.substr(0, at));
  }
  return std::to_string(refused) + " refused, " + taken.text();
}

}  // namespace lockstep::testing
