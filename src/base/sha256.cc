#include "base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace lockstep {
namespace {

constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t big_endian(const uint8_t* at) {
  uint32_t word;
  std::memcpy(&word, at, sizeof word);
  return __builtin_bswap32(word);
}

std::string_view text_of(const Sha256& sum) {
  return {reinterpret_cast<const char*>(sum.data()), sum.size()};
}

}  // namespace

void Sha256Hasher::add_block(const uint8_t* block) {
  uint32_t words[64];
  for (int i = 0; i < 16; ++i) words[i] = big_endian(block + 4 * i);
  for (int i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(words[i - 15], 7) ^ std::rotr(words[i - 15], 18) ^ (words[i - 15] >> 3);
    const uint32_t s1 = std::rotr(words[i - 2], 17) ^ std::rotr(words[i - 2], 19) ^ (words[i - 2] >> 10);
    words[i] = words[i - 16] + s0 + words[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (int i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + words[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const uint32_t rounds[8] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < state_.size(); ++i) state_[i] += rounds[i];
}

void Sha256Hasher::add(std::string_view bytes) {
  bytes_ += bytes.size();
  while (!bytes.empty()) {
    if (open_bytes_ == 0 && bytes.size() >= open_.size()) {
      add_block(reinterpret_cast<const uint8_t*>(bytes.data()));
      bytes.remove_prefix(open_.size());
      continue;
    }
    const size_t taken = std::min(bytes.size(), open_.size() - open_bytes_);
    std::memcpy(open_.data() + open_bytes_, bytes.data(), taken);
    open_bytes_ += taken;
    bytes.remove_prefix(taken);
    if (open_bytes_ < open_.size()) continue;
    add_block(open_.data());
    open_bytes_ = 0;
  }
}

Sha256 Sha256Hasher::finish() {
  const uint64_t bits = bytes_ * 8;
  std::string end(1, '\x80');
  end.append((119 - bytes_ % 64) % 64, '\0');
  for (int shift = 56; shift >= 0; shift -= 8) end.push_back(static_cast<char>(bits >> shift));
  add(end);
  Sha256 sum;
  for (size_t i = 0; i < state_.size(); ++i) {
    for (size_t byte = 0; byte < 4; ++byte) sum[4 * i + byte] = static_cast<uint8_t>(state_[i] >> (24 - 8 * byte));
  }
  return sum;
}

Sha256 sha256(std::string_view bytes) {
  Sha256Hasher sum;
  sum.add(bytes);
  return sum.finish();
}

std::string sha256_hex(std::string_view bytes) {
  std::string text;
  for (uint8_t byte : sha256(bytes)) {
    text.push_back("0123456789abcdef"[byte >> 4]);
    text.push_back("0123456789abcdef"[byte & 15]);
  }
  return text;
}

Sha256 hmac_sha256(std::string_view key, std::string_view bytes) {
  std::string block(64, '\0');
  Sha256 hashed;
  if (key.size() > block.size()) {
    hashed = sha256(key);
    key = text_of(hashed);
  }
  std::copy(key.begin(), key.end(), block.begin());
  for (char& byte : block) byte = static_cast<char>(byte ^ 0x36);
  Sha256Hasher inner;
  inner.add(block);
  inner.add(bytes);
  const Sha256 inside = inner.finish();
  for (char& byte : block) byte = static_cast<char>(byte ^ 0x36 ^ 0x5c);
  Sha256Hasher outer;
  outer.add(block);
  outer.add(text_of(inside));
  return outer.finish();
}

bool equal_in_constant_time(const Sha256& a, const Sha256& b) {
  unsigned differing = 0;
  for (size_t i = 0; i < a.size(); ++i) differing |= static_cast<unsigned>(a[i] ^ b[i]);
  return differing == 0;
}

}  // namespace lockstep
