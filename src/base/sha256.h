// SHA-256 (FIPS 180-4) and HMAC of it (RFC 2104): names for bytes that nobody can give to others.
//
// Thread rule: Thread-safe (functions), Confined (Sha256Hasher).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

using Sha256 = std::array<uint8_t, 32>;

// Of bytes that come in pieces.
class Sha256Hasher {
 public:
  void add(std::string_view bytes);
  Sha256 finish();  // once, at the end

 private:
  void add_block(const uint8_t* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> open_ = {};  // a block that is not full yet
  size_t open_bytes_ = 0;
  uint64_t bytes_ = 0;
};

Sha256 sha256(std::string_view bytes);
std::string sha256_hex(std::string_view bytes);  // 64 digits, lower case
Sha256 hmac_sha256(std::string_view key, std::string_view bytes);
// Takes as long for digests that differ in their first byte as for equal ones.
bool equal_in_constant_time(const Sha256& a, const Sha256& b);

}  // namespace lockstep
