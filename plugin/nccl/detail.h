// How much NCCL is asked to tell. NCCL reads one mask for the whole process, at every call of its API; the plugin may
// change it at any time, and so may others (NCCL RAS, from 2.31 on).
//
// Kernel events are what makes GPU time and ends visible, and proxy steps tell what a transfer waits for; both cost
// NCCL itself something on small messages. So where small operations come fast, they are asked for in one of kThinning
// steps (or stretches of time, where the job tells no steps) and the operations between are marked as unseen. A wish in
// the recorder's control word (control.h) goes before that, and a mask that somebody else wrote goes before both.
//
// Thread rule: Thread-safe; on_operation() is O(1), a look at two words unless something is due.
#pragma once

#include <atomic>
#include <cstdint>

#include "recorder/writer.h"

namespace lockstep::nccl {

class Detail {
 public:
  static constexpr uint64_t kReviewNs = 250'000'000;
  static constexpr uint32_t kThinning = 8;
  // Operations, by kernels or copy engines: without them nobody would look at the control word again.
  static constexpr uint32_t kNeeded = 0x1006;

  // events: the bits that may be asked for, of those the interface knows. small_bytes, small_per_s: operations below
  // this size count as small; from this many a second on their kernel events are thinned out.
  void configure(RecorderWriter& recorder, uint32_t events, uint64_t small_bytes, uint64_t small_per_s);
  // NCCL's mask, valid while a communicator lives; null when the last one has gone.
  void use_mask(int* nccl_mask);
  // Bits that the mask has from now on whatever we ask for: a second plugin wants them (chain.h).
  void keep(uint32_t bits);
  uint32_t events() const { return events_; }

  // The bits that NCCL works by now, as far as their events come to us.
  uint32_t in_force() const {
    const int* mask = nccl_mask_.load(std::memory_order_acquire);
    const uint32_t not_for_us = kept_.load(std::memory_order_relaxed) & ~events_;
    return mask != nullptr ? static_cast<uint32_t>(__atomic_load_n(mask, __ATOMIC_RELAXED)) & ~not_for_us : 0;
  }

  void on_operation(uint64_t bytes, uint64_t now_ns) {
    if (bytes < small_bytes_) small_.store(small_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (now_ns >= review_at_ns_.load(std::memory_order_relaxed)) [[unlikely]]
      review(now_ns);
    if (thinning_.load(std::memory_order_relaxed)) [[unlikely]]
      follow_steps();
  }

 private:
  void review(uint64_t now_ns);
  void follow_steps();
  void ask(uint32_t wanted);

  RecorderWriter* recorder_ = nullptr;
  uint32_t events_ = 0;
  uint64_t small_bytes_ = 0;
  uint64_t small_per_s_ = 0;
  std::atomic<int*> nccl_mask_{nullptr};
  std::atomic<uint32_t> wanted_{0};  // what we ask for
  std::atomic<uint32_t> kept_{0};
  std::atomic_flag asking_;
  std::atomic<uint32_t> asked_{0};  // both: what we wrote last
  std::atomic<uint64_t> review_at_ns_{0};
  std::atomic<uint64_t> reviewed_at_ns_{0};
  std::atomic<uint64_t> small_{0};  // since the last review; a lost count does not matter
  std::atomic<bool> thinning_{false};
  std::atomic<uint64_t> reviews_{0};
  std::atomic<uint64_t> step_seen_{0};
  std::atomic<uint64_t> step_moved_ns_{0};
};

}  // namespace lockstep::nccl
