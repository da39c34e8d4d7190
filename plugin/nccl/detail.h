// How much NCCL is asked to tell. NCCL reads one mask for the whole process, at every call of its API; the plugin may
// change it at any time, and so may others (NCCL RAS, from 2.31 on).
//
// Kernel events are what makes GPU time and ends visible, and proxy steps tell what a transfer waits for; both cost
// NCCL itself something on small messages. So where small operations come (how fast, the policy says), they are asked
// for in an eighth of the steps (or of the time, where the job tells no steps) and the operations between are marked as
// unseen. Steps are numbered alike on all ranks, and stretches of time go by the wall clock, so that all ranks see the
// same operations. The first operation of a step comes under the mask of the step before, and a step of which one
// operation is unseen tells nothing: so several steps in a row are seen, all but the first of them whole.
//
// A call that is captured into a CUDA graph keeps the mask of its capture for ever. NCCL reads the mask before it says
// that a call is captured, so the first of a capture has what was asked for before; the mask is without kernel events
// from then on until the next call that is not captured. That goes by the order of calls alone, which is the same on
// all ranks: NCCL counts a captured collective only where it has kernel events, and those counts must agree.
//
// A request in the recorder's control word (control.h) goes before all that, and a mask that somebody else wrote goes
// before both. One request is milder: that single transfers be left out but for the steps that would be sampled,
// because the node has no core to spare; everything else stays the plugin's choice.
//
// Thread rule: Thread-safe; on_operation() and on_call() are O(1), a look at two words unless something is due.
#pragma once

#include <atomic>
#include <cstdint>

#include "plugin/nccl/policy.h"
#include "recorder/writer.h"

namespace lockstep::nccl {

class Detail {
 public:
  static constexpr uint64_t kReviewNs = 250'000'000;
  static constexpr uint64_t kStepsInARow = 4;
  // Where no steps are told: long enough to hold whole steps of a second.
  static constexpr uint64_t kStretchNs = 8 * kReviewNs;
  // What was not seen for so long is over: the job's steps, and its small operations where every single one is dear.
  static constexpr uint64_t kForgetNs = 10'000'000'000;
  // Operations, by kernels or copy engines: without them nobody would look at the control word again.
  static constexpr uint32_t kNeeded = 0x1006;

  void configure(RecorderWriter& recorder, const Policy& policy);
  // NCCL's mask, valid while a communicator lives; null when the last one has gone.
  void use_mask(int* nccl_mask);
  // Bits that the mask has from now on whatever we ask for: a second plugin wants them (chain.h).
  void keep(uint32_t bits);
  // Bits that are not asked for from now on, whoever requests them. Before use_mask().
  void drop(uint32_t bits) { events_.fetch_and(~bits, std::memory_order_relaxed); }
  uint32_t events() const { return events_.load(std::memory_order_relaxed); }
  // Kernel events do not tell the end of every operation: proxy operations are asked for wherever they are.
  void keep_proxy_ops() { keeps_proxy_ops_.store(true, std::memory_order_relaxed); }

  // The bits that NCCL works by now, as far as their events come to us.
  uint32_t in_force() const {
    const int* mask = nccl_mask_.load(std::memory_order_acquire);
    const uint32_t not_for_us = kept_.load(std::memory_order_relaxed) & ~events();
    return mask != nullptr ? static_cast<uint32_t>(__atomic_load_n(mask, __ATOMIC_RELAXED)) & ~not_for_us : 0;
  }
  // Kernel events are wanted of all that is captured, not only of the first of it.
  bool kernels_in_graphs() const {
    return policy_.kernels_in_graphs || (request_.load(std::memory_order_relaxed) & kEventKernelCh) != 0;
  }

  void on_operation(uint64_t bytes, uint64_t now_ns) {
    if (bytes < policy_.small_bytes)
      small_.store(small_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (now_ns >= review_at_ns_.load(std::memory_order_relaxed)) [[unlikely]]
      review(now_ns);
    if (following_.load(std::memory_order_relaxed)) [[unlikely]]
      follow_steps();
  }
  // A call of NCCL's API. NCCL has read the mask for it already: what changes is in force from the next one on.
  void on_call(bool captured) {
    if (captured != capturing_.load(std::memory_order_relaxed)) [[unlikely]]
      follow_capture(captured);
  }

 private:
  void review(uint64_t now_ns);
  void follow_steps();
  void follow_capture(bool captured);
  bool small_ones_come(uint64_t now_ns, bool was);
  uint32_t choice() const;
  void ask(uint32_t wanted);

  RecorderWriter* recorder_ = nullptr;
  Policy policy_;
  uint64_t to_unix_ns_ = 0;
  std::atomic<uint32_t> events_{0};
  std::atomic<int*> nccl_mask_{nullptr};
  std::atomic<uint32_t> wanted_{0};  // what we ask for
  std::atomic<uint32_t> kept_{0};
  std::atomic_flag asking_;
  std::atomic<uint32_t> asked_{0};    // both: what we wrote last
  std::atomic<uint32_t> request_{0};  // what the control word asks for; 0: nothing, it is our choice
  std::atomic<uint64_t> review_at_ns_{0};
  std::atomic<uint64_t> reviewed_at_ns_{0};
  std::atomic<uint64_t> small_{0};  // since the last review; a lost count does not matter
  std::atomic<uint64_t> small_at_ns_{0};
  std::atomic<bool> sampling_{false};   // kernel events and transfers, because small operations come
  std::atomic<bool> transfers_{false};  // transfers alone are sampled, because somebody requests it
  std::atomic<bool> following_{false};  // either
  std::atomic<bool> sampled_{true};     // while sampling: this step, or stretch, is one of those that are seen
  std::atomic<bool> capturing_{false};
  std::atomic<bool> keeps_proxy_ops_{false};
  std::atomic<uint64_t> step_seen_{0};
  std::atomic<uint64_t> step_moved_ns_{0};
};

}  // namespace lockstep::nccl
