// What the plugin hands to NCCL instead of pointers: a kind, a place and a generation packed into 64 bits. A handle is
// never dereferenced, so one that is stale, repeated, made up or from another process can at worst name an event that
// is no longer there.
//
//   63..60 kind   59..44 salt of this process   43..32 row of the in-flight table, of an event the lane of the thread
//   that started it   31..0 position (generation and index; of a context the epoch of its communicator, of a group its
//   number)
//
// Thread rule: Immutable (plain data).
#pragma once

#include <unistd.h>

#include <cstdint>

#include "recorder/ticks.h"

namespace lockstep::nccl {

// Tells handles of this process from those of others: also of one with the same pid in another container, as far as 16
// bits can.
inline uint16_t new_salt() {
  const uint64_t mixed = (static_cast<uint64_t>(::getpid()) << 32 ^ system_now_ns()) * 0x9E3779B97F4A7C15ULL;
  return static_cast<uint16_t>(mixed >> 48);
}

// kGroup is any of NCCL's groups and API calls: nothing is kept of them, the number alone joins what belongs together.
// kPair is a handle of the chain (chain.h).
enum class HandleKind : uint8_t { kNone = 0, kContext, kOp, kProxyOp, kProxyStep, kKernelCh, kGroup, kPair };

struct Handle {
  HandleKind kind = HandleKind::kNone;
  uint32_t row = 0;
  uint32_t position = 0;

  uint64_t packed(uint16_t salt) const {
    return static_cast<uint64_t>(kind) << 60 | static_cast<uint64_t>(salt) << 44 |
           static_cast<uint64_t>(row & 0xFFF) << 32 | position;
  }
  // kNone for a handle that carries another process's salt.
  static Handle unpacked(uint64_t word, uint16_t salt) {
    const bool ours =
        static_cast<uint16_t>(word >> 44) == salt && word >> 60 <= static_cast<uint64_t>(HandleKind::kPair);
    if (!ours) return {};
    return {static_cast<HandleKind>(word >> 60), static_cast<uint32_t>(word >> 32 & 0xFFF),
            static_cast<uint32_t>(word)};
  }
};

}  // namespace lockstep::nccl
