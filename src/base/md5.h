// MD5 (RFC 1321): for shares of targets that must fall as they do elsewhere, not for secrets.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep {

std::array<uint8_t, 16> md5(std::string_view bytes);

}  // namespace lockstep
