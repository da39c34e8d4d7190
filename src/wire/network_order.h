// A bounded reader of bytes in network order, as datagrams of network devices have them.
//
// Past the end everything reads as 0 and ok() is false from then on: callers look once, at the end of what belongs
// together.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

class NetworkReader {
 public:
  explicit NetworkReader(std::string_view bytes)
      : at_(reinterpret_cast<const uint8_t*>(bytes.data())), end_(at_ + bytes.size()) {}

  bool ok() const { return ok_; }
  size_t left() const { return static_cast<size_t>(end_ - at_); }

  uint8_t u8() { return take(1) ? at_[-1] : uint8_t{0}; }
  uint16_t u16() { return take(2) ? static_cast<uint16_t>(at_[-2] << 8 | at_[-1]) : uint16_t{0}; }
  uint32_t u32() {
    if (!take(4)) return 0;
    return static_cast<uint32_t>(at_[-4]) << 24 | static_cast<uint32_t>(at_[-3]) << 16 |
           static_cast<uint32_t>(at_[-2]) << 8 | at_[-1];
  }
  uint64_t u64() {
    const uint64_t high = u32();
    return high << 32 | u32();
  }
  // Empty where there are not so many.
  std::string_view bytes(size_t count) {
    if (!take(count)) return {};
    return {reinterpret_cast<const char*>(at_ - count), count};
  }
  void skip(size_t count) { take(count); }

 private:
  bool take(size_t count) {
    if (left() < count) {
      ok_ = false;
      at_ = end_;
      return false;
    }
    at_ += count;
    return true;
  }

  const uint8_t* at_;
  const uint8_t* end_;
  bool ok_ = true;
};

// Up to 8 bytes as a number; longer ones are cut to their last 8.
inline uint64_t number_of(std::string_view bytes) {
  uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

}  // namespace lockstep
