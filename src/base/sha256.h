// SHA-256 (FIPS 180-4): what is kept of a token is its digest alone, and pieces of backups are named by it.
//
// Thread rule: Thread-safe (no state); Sha256Stream is Confined.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

using Sha256 = std::array<uint8_t, 32>;
Sha256 sha256(std::string_view bytes);
// The same of bytes that come piece by piece.
class Sha256Stream {
 public:
  void add(std::string_view bytes);
  Sha256 digest() const;  // of what was added so far

 private:
  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint64_t bytes_ = 0;
  std::string rest_;  // less than a block
};
// HMAC with it (RFC 2104).
Sha256 hmac_sha256(std::string_view key, std::string_view text);
// 64 digits, lower case.
std::string to_text(const Sha256& digest);
// Takes as long for digests that differ in their first byte as for equal ones.
bool equal_in_constant_time(const Sha256& a, const Sha256& b);

}  // namespace lockstep
