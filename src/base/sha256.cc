#include "base/sha256.h"

#include <bit>
#include <string>

#include "base/characters.h"

namespace lockstep {
namespace {

// The first 32 bits of the fractions of the cube roots of the first 64 primes.
constexpr uint32_t kRounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void add_block(std::array<uint32_t, 8>& state, const char* block) {
  uint32_t words[64];
  for (int i = 0; i < 16; ++i) {
    const auto byte = [&](int k) { return static_cast<uint32_t>(static_cast<uint8_t>(block[4 * i + k])); };
    words[i] = byte(0) << 24 | byte(1) << 16 | byte(2) << 8 | byte(3);
  }
  for (int i = 16; i < 64; ++i) {
    const uint32_t near = words[i - 15], far = words[i - 2];
    words[i] = words[i - 16] + (std::rotr(near, 7) ^ std::rotr(near, 18) ^ near >> 3) + words[i - 7] +
               (std::rotr(far, 17) ^ std::rotr(far, 19) ^ far >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (int i = 0; i < 64; ++i) {
    const uint32_t first =
        h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + kRounds[i] + words[i];
    const uint32_t second = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const uint32_t added[8] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state[i] += added[i];
}

}  // namespace

void Sha256Stream::add(std::string_view bytes) {
  constexpr size_t kBlockBytes = 64;
  bytes_ += bytes.size();
  if (!rest_.empty()) {
    const std::string_view first = bytes.substr(0, kBlockBytes - rest_.size());
    rest_ += first;
    bytes.remove_prefix(first.size());
    if (rest_.size() < kBlockBytes) return;
    add_block(state_, rest_.data());
    rest_.clear();
  }
  for (; bytes.size() >= kBlockBytes; bytes.remove_prefix(kBlockBytes)) add_block(state_, bytes.data());
  rest_ = bytes;
}

Sha256 Sha256Stream::digest() const {
  std::array<uint32_t, 8> state = state_;
  const uint64_t bits = bytes_ * 8;
  std::string rest = rest_;
  rest += '\x80';
  while (rest.size() % 64 != 56) rest += '\0';
  for (int shift = 56; shift >= 0; shift -= 8) rest += static_cast<char>(bits >> shift);
  for (size_t at = 0; at < rest.size(); at += 64) add_block(state, rest.data() + at);
  Sha256 digest{};
  for (size_t i = 0; i < digest.size(); ++i) digest[i] = static_cast<uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

Sha256 sha256(std::string_view bytes) {
  Sha256Stream stream;
  stream.add(bytes);
  return stream.digest();
}

Sha256 hmac_sha256(std::string_view key, std::string_view text) {
  constexpr size_t kBlockBytes = 64;
  const Sha256 short_key = key.size() > kBlockBytes ? sha256(key) : Sha256{};
  if (key.size() > kBlockBytes) key = {reinterpret_cast<const char*>(short_key.data()), short_key.size()};
  std::string inner(kBlockBytes, '\x36'), outer(kBlockBytes, '\x5c');
  for (size_t i = 0; i < key.size(); ++i) {
    inner[i] = static_cast<char>(inner[i] ^ key[i]);
    outer[i] = static_cast<char>(outer[i] ^ key[i]);
  }
  const Sha256 digest = sha256(inner.append(text));
  return sha256(outer.append(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

std::string to_text(const Sha256& digest) {
  return to_hex(digest);
}

bool equal_in_constant_time(const Sha256& a, const Sha256& b) {
  unsigned differing = 0;
  for (size_t i = 0; i < a.size(); ++i) differing |= static_cast<unsigned>(a[i] ^ b[i]);
  return differing == 0;
}

}  // namespace lockstep
