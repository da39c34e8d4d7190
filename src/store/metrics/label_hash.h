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
  // 0: drawn; another: the same numbers every time, for tests.
  explicit LabelHash(uint64_t seed = 0) {
    std::random_device random;
    std::mt19937_64 drawn(seed != 0 ? seed : uint64_t{random()} << 32 | random());
    for (uint64_t& key : keys_) key = (seed != 0 ? drawn() : uint64_t{random()} << 32 | random()) | 1;
  }

  // `seed`: the hash of the stream, so that the same bytes of two streams are two things.
  Hash128 operator()(std::string_view text, Hash128 seed = {}) const {
    // Two pairs of lanes, so that multiplications need not wait for each other; each word goes through both of a pair.
    uint64_t a = seed.a ^ keys_[0], b = seed.b ^ keys_[1] ^ text.size();
    uint64_t c = seed.b ^ keys_[6], d = seed.a ^ keys_[7];
    const char* at = text.data();
    size_t left = text.size();
    for (; left >= 32; at += 32, left -= 32) {
      absorb(a, b, word(at), word(at + 8));
      absorb(c, d, word(at + 16), word(at + 24));
    }
    char rest[32] = {};
    if (left > 0) std::memcpy(rest, at, left);
    absorb(a, b, word(rest), word(rest + 8));
    absorb(c, d, word(rest + 16), word(rest + 24));
    return {fold(a ^ keys_[6], c ^ keys_[1]) ^ b ^ d, fold(b ^ keys_[7], d ^ keys_[0]) ^ a ^ c};
  }

 private:
  static uint64_t word(const char* at) {
    uint64_t value;
    std::memcpy(&value, at, 8);
    return value;
  }
  void absorb(uint64_t& a, uint64_t& b, uint64_t x, uint64_t y) const {
    a = fold(a ^ x ^ keys_[2], y ^ keys_[3]) ^ a;
    b = fold(b ^ y ^ keys_[4], x ^ keys_[5]) ^ b;
  }
  static uint64_t fold(uint64_t a, uint64_t b) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  uint64_t keys_[8];
};

}  // namespace lockstep::metrics
