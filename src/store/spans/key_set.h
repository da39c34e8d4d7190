// The spans that are here already: (trace id, span id, start), exactly.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "model/telemetry.h"

namespace lockstep::spans {

struct SpanKey {
  TraceId trace_id;
  SpanId span_id;
  int64_t start_unix_ns;
  bool operator==(const SpanKey&) const = default;
};

class KeySet {
 public:
  explicit KeySet(size_t expected = 0) {
    size_t slots = 1024;
    while (slots * 3 < expected * 5) slots *= 2;
    if (expected > 0) slots_.assign(slots, SpanKey{{}, {}, kFree});
  }

  // Tells the processor that insert() or has() of this key is near.
  void prepare(const SpanKey& key) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[hash_of(key) & (slots_.size() - 1)]);
  }
  // false: it was there.
  bool insert(const SpanKey& key) {
    if ((count_ + 1) * 5 > slots_.size() * 3) grow();
    SpanKey& slot = slots_[place_of(slots_, key)];
    if (!is_free(slot)) return false;
    slot = key;
    ++count_;
    return true;
  }
  bool has(const SpanKey& key) const { return count_ > 0 && !is_free(slots_[place_of(slots_, key)]); }
  size_t size() const { return count_; }
  size_t memory_bytes() const { return slots_.capacity() * sizeof(SpanKey); }

 private:
  // No clock says this, and no receiver lets it pass.
  static constexpr int64_t kFree = INT64_MIN;
  static bool is_free(const SpanKey& key) { return key.start_unix_ns == kFree; }
  static uint64_t hash_of(const SpanKey& key) {
    uint64_t words[3];
    std::memcpy(words, &key, sizeof words);  // trace id and span id
    uint64_t hash = (words[2] ^ static_cast<uint64_t>(key.start_unix_ns) * 0x9E3779B97F4A7C15) * 0xD6E8FEB86659FD93;
    hash = (hash ^ hash >> 32 ^ words[0] ^ words[1] * 0x9FB21C651E98DF25) * 0xD6E8FEB86659FD93;
    return hash ^ hash >> 31;
  }
  static size_t place_of(const std::vector<SpanKey>& slots, const SpanKey& key) {
    const size_t mask = slots.size() - 1;
    size_t at = hash_of(key) & mask;
    while (!is_free(slots[at]) && slots[at] != key) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<SpanKey> wider(slots_.empty() ? 1024 : slots_.size() * 2, SpanKey{{}, {}, kFree});
    for (const SpanKey& key : slots_) {
      if (!is_free(key)) wider[place_of(wider, key)] = key;
    }
    slots_ = std::move(wider);
  }
  std::vector<SpanKey> slots_;
  size_t count_ = 0;
};

}  // namespace lockstep::spans
