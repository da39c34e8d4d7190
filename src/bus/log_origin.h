// Where a record of the durable log stood on a bus between machines. It is kept in the record itself, so that both are on
// disk or neither is: after a crash the log says by itself which records of the bus it has.
//
// On disk, before the payload, 32 bytes: cluster u32, partition i32, offset i64, digest 16 bytes (docs/formats/log.md).
// Thread rule: Thread-safe (no state).
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "base/sha256.h"

namespace lockstep {

struct LogOrigin {
  uint32_t cluster = 0;  // which bus: its offsets say nothing of another's
  int32_t partition = 0;
  int64_t offset = 0;
  std::array<uint8_t, 16> digest{};  // of the payload: the same bytes again are the same facts again
};
static_assert(sizeof(LogOrigin) == 32 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

inline std::array<uint8_t, 16> digest_of(std::string_view payload) {
  const Sha256 whole = sha256(payload);
  std::array<uint8_t, 16> part;
  std::memcpy(part.data(), whole.data(), part.size());
  return part;
}

inline std::string with_origin(const LogOrigin& origin, std::string_view payload) {
  std::string bytes;
  bytes.reserve(sizeof origin + payload.size());
  bytes.append(reinterpret_cast<const char*>(&origin), sizeof origin);
  bytes.append(payload);
  return bytes;
}

// Takes it off the front; nullopt: there is none.
inline std::optional<LogOrigin> take_origin(std::string_view& bytes) {
  LogOrigin origin;
  if (bytes.size() < sizeof origin) return std::nullopt;
  std::memcpy(&origin, bytes.data(), sizeof origin);
  bytes.remove_prefix(sizeof origin);
  return origin;
}

}  // namespace lockstep
