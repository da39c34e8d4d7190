// What the plugin hands to NCCL instead of pointers: a kind, a place and a generation packed into 64 bits. A handle is
// never dereferenced, so one that is stale, repeated, made up or from another process can at worst name an event that
// is no longer there.
//
//   63..60 kind   59..52 salt of this process   51..40 row of the in-flight table   39..0 position (generation and
//   index)
//
// Thread rule: Immutable (plain data).
#pragma once

#include <cstdint>

namespace lockstep::nccl {

enum class HandleKind : uint8_t { kNone = 0, kContext, kOp, kProxyOp, kProxyStep, kKernelCh };

struct Handle {
  HandleKind kind = HandleKind::kNone;
  uint32_t row = 0;
  uint64_t position = 0;

  static constexpr uint64_t kPositionMask = (1ULL << 40) - 1;

  uint64_t packed(uint8_t salt) const {
    return static_cast<uint64_t>(kind) << 60 | static_cast<uint64_t>(salt) << 52 |
           static_cast<uint64_t>(row & 0xFFF) << 40 | (position & kPositionMask);
  }
  // kNone for a handle that carries another process's salt.
  static Handle unpacked(uint64_t word, uint8_t salt) {
    const bool ours =
        static_cast<uint8_t>(word >> 52) == salt && word >> 60 <= static_cast<uint64_t>(HandleKind::kKernelCh);
    if (!ours) return {};
    return {static_cast<HandleKind>(word >> 60), static_cast<uint32_t>(word >> 40 & 0xFFF), word & kPositionMask};
  }
};

}  // namespace lockstep::nccl
