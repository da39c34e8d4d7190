// The small change of files of columns: varints, fixed numbers and counted bytes, written to a string and read back
// from bytes that are not trusted.
//
// On error: a reader that ran past the end, or found a number that cannot be, is no longer ok() and gives zeros.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/protobuf_wire.h"

namespace lockstep::columns {

inline void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}
inline void put_signed(std::string& out, int64_t value) {
  put_varint(out, protobuf::zigzag_encode(value));
}
inline void put_bytes(std::string& out, std::string_view bytes) {
  put_varint(out, bytes.size());
  out.append(bytes);
}
template <typename T>
void put_fixed(std::string& out, T value) {
  char digits[sizeof(T)];
  std::memcpy(digits, &value, sizeof(T));
  out.append(digits, sizeof(T));
}

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return bytes_.empty(); }
  size_t left() const { return bytes_.size(); }
  void fail() {
    ok_ = false;
    bytes_ = {};
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) break;
      const uint64_t byte = static_cast<uint8_t>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    fail();
    return 0;
  }
  int64_t signed_varint() { return protobuf::zigzag_decode(varint()); }
  // A count of things that take at least `bytes_each` of what is left: more cannot be true.
  size_t count(size_t bytes_each = 1) {
    const uint64_t value = varint();
    if (value > bytes_.size() / bytes_each) {
      fail();
      return 0;
    }
    return value;
  }
  std::string_view raw(size_t size) {
    if (size > bytes_.size()) {
      fail();
      return {};
    }
    std::string_view part = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return part;
  }
  std::string_view bytes() { return raw(count()); }
  template <typename T>
  T fixed() {
    T value{};
    if (std::string_view part = raw(sizeof(T)); part.size() == sizeof(T)) std::memcpy(&value, part.data(), sizeof(T));
    return value;
  }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace lockstep::columns
