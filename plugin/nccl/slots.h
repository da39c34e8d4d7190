// Preallocated places for events between start and stop. A place is given out by a rising position; its index is the
// position modulo the size, and it belongs to whoever holds that position. Where no place is free an event loses its
// own: one that NCCL never stops (it happens) can therefore not starve the ones after it.
//
// Thread rule: claim() and publish() are for one thread at a time; the rest is Thread-safe. Lock-free; claim() looks at
//              13 places at most (of 4096), everything else is O(1). Fields of a slot are Relaxed: racing threads may
//              see each other's values, never half of one; a reader knows by release() whether what it copied was its
//              own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "plugin/nccl/handles.h"
#include "recorder/layout.h"

namespace lockstep::nccl {

template <typename T>
class Relaxed {
 public:
  Relaxed() = default;
  Relaxed(const Relaxed&) = delete;
  Relaxed& operator=(const Relaxed& other) { return *this = static_cast<T>(other); }
  operator T() const { return value_.load(std::memory_order_relaxed); }
  T read() const { return value_.load(std::memory_order_acquire); }  // before what is read next
  Relaxed& operator=(T value) {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }
  T add(T count) { return value_.fetch_add(count, std::memory_order_acq_rel) + count; }
  T exchange(T value) { return value_.exchange(value, std::memory_order_acq_rel); }

 private:
  std::atomic<T> value_{};
};

// Slot: a struct with a member `std::atomic<uint64_t> key`.
template <typename Slot>
class SlotRing {
 public:
  // size: a power of two.
  explicit SlotRing(uint32_t size) : slots_(new Slot[size]()), mask_(size - 1) {}

  struct Claim {
    Slot* slot = nullptr;   // null: a thread ended while it filled this very place; go without
    uint32_t position = 0;  // for the handle, and for publish()
    bool evicted = false;   // the slot still holds an event that never ended; look at it before filling
  };
  // One thread at a time claims. done(slot): what is in this place is over, although nobody has released it.
  template <typename Done>
  Claim claim(Done&& done) {
    // Events that take long keep their places, and stand together as they began: look further ahead each time. Only
    // where all of those places are taken does the last one lose its event.
    for (uint64_t ahead = 1;; ahead *= 2) {
      newest_ += ahead;
      const Slot& slot = slots_[newest_ & mask_];
      if (slot.key.load(std::memory_order_relaxed) == kFree || ahead > mask_ || done(slot)) return claim_newest();
    }
  }
  Claim claim() {
    return claim([](const Slot&) { return false; });
  }
  void publish(const Claim& claim) { claim.slot->key.store(claim.position, std::memory_order_release); }

  // Null where the event is gone.
  Slot* find(uint32_t position) {
    Slot& slot = slots_[position & mask_];
    return position != kFree && slot.key.load(std::memory_order_acquire) == position ? &slot : nullptr;
  }
  // What was read() of it since find() was its own.
  static bool still(const Slot* slot, uint32_t position) {
    return slot->key.load(std::memory_order_relaxed) == position;
  }
  // True for exactly one caller, and only if the event was still in its place: then what was copied before is whole.
  static bool release(Slot* slot, uint32_t position) {
    uint64_t expected = position;
    return slot->key.compare_exchange_strong(expected, kFree, std::memory_order_acq_rel);
  }

 private:
  static constexpr uint64_t kFree = 0;
  static constexpr uint64_t kBusy = ~0ULL;

  Claim claim_newest() {
    const auto position = static_cast<uint32_t>(newest_);
    Slot& slot = slots_[position & mask_];
    __builtin_prefetch(&slots_[(position + 1) & mask_], 1);  // the next one is wanted soon
    const uint64_t old = slot.key.load(std::memory_order_acquire);
    if (old == kBusy) return {};
    // Not an exchange, which would cost more than all the rest: nobody else claims at the same time.
    slot.key.store(kBusy, std::memory_order_relaxed);
    layout::store_fence();
    return {&slot, position, old != kFree};
  }

  std::unique_ptr<Slot[]> slots_;
  const uint64_t mask_;
  uint64_t newest_ = 0;  // position that claim() gave last
};

}  // namespace lockstep::nccl
