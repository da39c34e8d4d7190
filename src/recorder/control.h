// The control word of a recorder file: how another process (the agent, `lockstep detail`) asks a running job for more
// or less detail. The job looks at it when an operation is enqueued; nothing wakes it, nothing waits for it.
//
//   63 set   62..48 check   47..16 good until, seconds of CLOCK_MONOTONIC   15..0 NCCL event bits wanted
//
// The check is the top 15 bits of the product of the 48 bits below it and 0x9E3779B97F4A7C15: a word that is read half
// written fails it. A word that is not set, or is out of date, leaves the choice to the plugin: whoever raised the
// detail and died has not raised it for ever.
//
// Thread rule: Immutable (plain data); ask_detail is Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace lockstep {

struct DetailRequest {
  uint16_t mask = 0;
  uint32_t until_s = 0;

  uint64_t word() const {
    const uint64_t body = static_cast<uint64_t>(until_s) << 16 | mask;
    return 1ULL << 63 | body * 0x9E3779B97F4A7C15ULL >> 49 << 48 | body;
  }
  static std::optional<DetailRequest> from(uint64_t word, uint64_t now_ns) {
    const DetailRequest request{static_cast<uint16_t>(word), static_cast<uint32_t>(word >> 16)};
    if (word != request.word() || now_ns / 1'000'000'000 >= request.until_s) return std::nullopt;
    return request;
  }
};

// Levels that people and commands speak of:
//   low    operations only: what was called, with which size; their ends are not seen
//   full   and what the network proxy and the GPU's channels did, of every operation
//   sampled  the same, but single transfers in some steps only (kSampleTransfers: a bit of NCCL's that is never asked
//            for, KernelPhase, stands for it)
// Without either the plugin chooses, by message rate and size.
inline constexpr uint16_t kDetailLow = 0x06;
inline constexpr uint16_t kDetailFull = 0x5e;
inline constexpr uint16_t kSampleTransfers = 0x8000;
inline constexpr uint16_t kDetailSampled = kDetailFull | kSampleTransfers;
std::optional<uint16_t> mask_of_level(const std::string& level);

// Writes the request into a recorder file that is somebody else's: checks the header first, touches nothing but the
// word. nullopt takes an earlier request back.
Result<void> ask_detail(const std::string& path, std::optional<DetailRequest> request);
// The same in a file that is open for reading and writing; `what` names it in errors.
Result<void> ask_detail(int file, const std::string& what, std::optional<DetailRequest> request);

}  // namespace lockstep
