// SHA-256 (FIPS 180-4): what is kept of a token is its digest alone, and pieces of backups are named by it.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

using Sha256 = std::array<uint8_t, 32>;
Sha256 sha256(std::string_view bytes);
// HMAC with it (RFC 2104).
Sha256 hmac_sha256(std::string_view key, std::string_view text);
// 64 digits, lower case.
std::string to_text(const Sha256& digest);
// Takes as long for digests that differ in their first byte as for equal ones.
bool equal_in_constant_time(const Sha256& a, const Sha256& b);

}  // namespace lockstep
