// Which trace ids a row group may have: a bloom filter, ten bits and seven probes for each id, wrong for about one in a
// hundred ids that are not there, never for one that is.
//
// Thread rule: Immutable once made.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "model/telemetry.h"

namespace lockstep::spans {

class TraceBloom {
 public:
  TraceBloom() = default;
  explicit TraceBloom(std::string bits) : bits_(std::move(bits)) {}
  explicit TraceBloom(std::span<const TraceId> ids) : bits_((ids.size() * 10 + 7) / 8 + 1, '\0') {
    for (const TraceId& id : ids) {
      each_bit(id, [&](size_t bit) {
        bits_[bit / 8] = static_cast<char>(bits_[bit / 8] | 1 << bit % 8);
        return true;
      });
    }
  }
  bool may_have(const TraceId& id) const {
    if (bits_.empty()) return true;
    return each_bit(id, [&](size_t bit) { return (bits_[bit / 8] >> bit % 8 & 1) != 0; });
  }
  const std::string& bits() const { return bits_; }

 private:
  template <typename Visit>
  bool each_bit(const TraceId& id, const Visit& visit) const {
    uint64_t words[2];
    std::memcpy(words, id.data(), sizeof words);
    // Some tracers make only half of the id random, so the halves are mixed.
    uint64_t first = (words[0] ^ words[1] >> 32 ^ words[1] << 32) * 0x9E3779B97F4A7C15;
    const uint64_t second = ((words[1] ^ first >> 29) * 0xD6E8FEB86659FD93) | 1;
    const uint64_t size = bits_.size() * 8;
    for (int probe = 0; probe < 7; ++probe, first += second) {
      if (!visit(static_cast<size_t>(first % size))) return false;
    }
    return true;
  }
  std::string bits_;
};

}  // namespace lockstep::spans
