#include "base/md5.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <string>

namespace lockstep {
namespace {

constexpr int kTurns[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};

// The RFC's table: the first 32 bits behind the point of |sin(i + 1)|.
std::array<uint32_t, 64> sines() {
  std::array<uint32_t, 64> table{};
  for (int i = 0; i < 64; ++i)
    table[i] = static_cast<uint32_t>(std::floor(std::fabs(std::sin(i + 1.0)) * 4294967296.0));
  return table;
}

void add_block(std::array<uint32_t, 4>& state, const char* block) {
  static const std::array<uint32_t, 64> kSines = sines();
  uint32_t words[16];
  for (int i = 0; i < 16; ++i) {
    const auto byte = [&](int k) { return static_cast<uint32_t>(static_cast<uint8_t>(block[4 * i + k])); };
    words[i] = byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24;
  }
  auto [a, b, c, d] = state;
  for (int i = 0; i < 64; ++i) {
    const int round = i / 16;
    const uint32_t mixed = round == 0   ? (b & c) | (~b & d)
                           : round == 1 ? (d & b) | (~d & c)
                           : round == 2 ? b ^ c ^ d
                                        : c ^ (b | ~d);
    const int word = round == 0 ? i : round == 1 ? (5 * i + 1) % 16 : round == 2 ? (3 * i + 5) % 16 : 7 * i % 16;
    const uint32_t sum = a + mixed + kSines[i] + words[word];
    a = d;
    d = c;
    c = b;
    b += std::rotl(sum, kTurns[round][i % 4]);
  }
  state[0] += a;
  state[1] += b;
  state[2] += c;
  state[3] += d;
}

}  // namespace

std::array<uint8_t, 16> md5(std::string_view bytes) {
  std::array<uint32_t, 4> state{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476};
  const uint64_t bits = static_cast<uint64_t>(bytes.size()) * 8;
  for (; bytes.size() >= 64; bytes.remove_prefix(64)) add_block(state, bytes.data());
  std::string rest(bytes);
  rest += '\x80';
  while (rest.size() % 64 != 56) rest += '\0';
  for (int shift = 0; shift < 64; shift += 8) rest += static_cast<char>(bits >> shift);
  for (size_t at = 0; at < rest.size(); at += 64) add_block(state, rest.data() + at);
  std::array<uint8_t, 16> digest{};
  for (size_t i = 0; i < 16; ++i) digest[i] = static_cast<uint8_t>(state[i / 4] >> (8 * (i % 4)));
  return digest;
}

}  // namespace lockstep
