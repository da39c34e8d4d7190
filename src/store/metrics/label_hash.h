// 128 bits that stand for label bytes as they came. Keyed with numbers drawn at start, so that nobody outside can look
// for two texts that collide; with 128 bits two that do so by chance are not to be expected in the life of a server
// (16 M series: one in 10^24).
//
// Budget: below 25 ns for 240 bytes; it is most of what a sample of a known series costs.
// Thread rule: Immutable once made.
#pragma once

#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>

namespace lockstep::metrics {

struct Hash128 {
  uint64_t a = 0;
  uint64_t b = 0;
  bool operator==(const Hash128&) const = default;
};

class LabelHash {
 public:
  LabelHash() {
    std::random_device random;
    for (uint64_t& key : keys_) key = (uint64_t{random()} << 32 | random()) | 1;
  }

  // `seed`: the hash of the stream, so that the same bytes of two streams are two things.
  Hash128 operator()(std::string_view text, Hash128 seed = {}) const {
    uint64_t a = seed.a ^ keys_[0];
    uint64_t b = seed.b ^ keys_[1] ^ text.size();
    const char* at = text.data();
    size_t left = text.size();
    for (; left >= 16; at += 16, left -= 16) {
      const uint64_t x = word(at), y = word(at + 8);
      a = fold(a ^ x ^ keys_[2], y ^ keys_[3]) ^ a;
      b = fold(b ^ y ^ keys_[4], x ^ keys_[5]) ^ b;
    }
    uint64_t x = 0, y = 0;
    if (left >= 8) {
      x = word(at);
      std::memcpy(&y, at + 8, left - 8);
    } else {
      std::memcpy(&x, at, left);
    }
    a = fold(a ^ x ^ keys_[2], y ^ keys_[3]) ^ a;
    b = fold(b ^ y ^ keys_[4], x ^ keys_[5]) ^ b;
    return {fold(a ^ keys_[6], b ^ keys_[1]), fold(b ^ keys_[7], a ^ keys_[0])};
  }

 private:
  static uint64_t word(const char* at) {
    uint64_t value;
    std::memcpy(&value, at, 8);
    return value;
  }
  static uint64_t fold(uint64_t a, uint64_t b) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  uint64_t keys_[8];
};

}  // namespace lockstep::metrics
