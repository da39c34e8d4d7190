#include "analysis/whatif/snappy.h"

#include "base/text.h"

namespace lockstep {
namespace {

enum Element : uint8_t { kLiteral = 0, kCopyOneByte = 1, kCopyTwoBytes = 2, kCopyFourBytes = 3 };

Error torn(const char* what, size_t at) {
  return Error{format("snappy: %s at byte %zu", what, at)};
}

}  // namespace

Result<std::string> unpack_snappy(std::string_view packed, uint64_t bytes_max) {
  size_t at = 0;
  // Little-endian, of `bytes` bytes; the caller has made sure that they are there.
  const auto little = [&](size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value |= static_cast<uint64_t>(static_cast<uint8_t>(packed[at++])) << (8 * i);
    return value;
  };
  uint64_t size = 0;
  for (int shift = 0;; shift += 7) {
    if (at >= packed.size() || shift > 28) return torn("the length is not a number", at);
    const auto byte = static_cast<uint8_t>(packed[at++]);
    size |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  if (size > bytes_max)
    return Error{format("snappy: would become %llu bytes (limit %llu)", static_cast<unsigned long long>(size),
                        static_cast<unsigned long long>(bytes_max))};
  // A copy of 64 bytes takes 3: what claims to grow more than that many times is not read to its end first.
  if (size > packed.size() * uint64_t{64})
    return Error{format("snappy: %zu bytes cannot become %llu", packed.size(), static_cast<unsigned long long>(size))};
  std::string out;
  out.reserve(size);
  while (at < packed.size()) {
    const auto tag = static_cast<uint8_t>(packed[at++]);
    uint64_t length = tag >> 2;
    if ((tag & 3) == kLiteral) {
      if (length >= 60) {
        const size_t extra = length - 59;
        if (packed.size() - at < extra) return torn("a literal's length is cut off", at);
        length = little(extra);
      }
      ++length;
      if (length > packed.size() - at) return torn("a literal is cut off", at);
      if (length > size - out.size()) return torn("more comes out than was said", at);
      out.append(packed.substr(at, length));
      at += length;
      continue;
    }
    uint64_t distance = 0;
    if ((tag & 3) == kCopyOneByte) {
      if (packed.size() - at < 1) return torn("a copy is cut off", at);
      length = 4 + (length & 7);
      distance = static_cast<uint64_t>(tag >> 5) << 8 | little(1);
    } else {
      const size_t bytes = (tag & 3) == kCopyTwoBytes ? 2 : 4;
      if (packed.size() - at < bytes) return torn("a copy is cut off", at);
      ++length;
      distance = little(bytes);
    }
    if (distance == 0 || distance > out.size()) return torn("a copy points before the beginning", at);
    if (length > size - out.size()) return torn("more comes out than was said", at);
    // Byte by byte: a copy may reach into what it writes.
    for (uint64_t i = 0; i < length; ++i) out.push_back(out[out.size() - distance]);
  }
  if (out.size() != size)
    return Error{format("snappy: %zu bytes came out, not %llu", out.size(), static_cast<unsigned long long>(size))};
  return out;
}

}  // namespace lockstep
