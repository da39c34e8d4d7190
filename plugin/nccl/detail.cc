#include "plugin/nccl/detail.h"

#include <sched.h>

#include <ctime>

#include "plugin/nccl/abi/common.h"
#include "recorder/control.h"

namespace lockstep::nccl {
namespace {

constexpr uint32_t kDear = kEventKernelCh | kEventProxyStep;

uint64_t clock_ns(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

void Detail::configure(RecorderWriter& recorder, const Policy& policy) {
  recorder_ = &recorder;
  policy_ = policy;
  to_unix_ns_ = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
  events_.store(policy.events, std::memory_order_relaxed);
  wanted_.store(policy.events, std::memory_order_relaxed);
}

void Detail::use_mask(int* nccl_mask) {
  // Every communicator writes the value that is in force: the mask is one for the whole process.
  if (nccl_mask != nullptr) {
    while (asking_.test_and_set(std::memory_order_acquire)) ::sched_yield();
    const uint32_t wanted = wanted_.load(std::memory_order_relaxed) & events();
    wanted_.store(wanted, std::memory_order_relaxed);
    const uint32_t bits = wanted | kept_.load(std::memory_order_relaxed);
    asked_.store(bits, std::memory_order_relaxed);
    __atomic_store_n(nccl_mask, static_cast<int>(bits), __ATOMIC_RELAXED);
    recorder_->show_mask(bits);
    asking_.clear(std::memory_order_release);
  }
  nccl_mask_.store(nccl_mask, std::memory_order_release);
}

void Detail::keep(uint32_t bits) {
  kept_.store(bits, std::memory_order_relaxed);
  ask(wanted_.load(std::memory_order_relaxed));
}

void Detail::ask(uint32_t wanted) {
  int* mask = nccl_mask_.load(std::memory_order_acquire);
  // Two at once could make our own bits look like somebody else's. The other's are in force until the next review.
  if (mask == nullptr || asking_.test_and_set(std::memory_order_acquire)) return;
  wanted_.store(wanted, std::memory_order_relaxed);
  const uint32_t bits = wanted | kept_.load(std::memory_order_relaxed);
  const auto found = static_cast<uint32_t>(__atomic_load_n(mask, __ATOMIC_RELAXED));
  // Somebody else has written it: an operator, through NCCL RAS. Then it is theirs until the next communicator.
  const bool ours = found == asked_.load(std::memory_order_relaxed);
  if (ours && found != bits) {
    asked_.store(bits, std::memory_order_relaxed);
    __atomic_store_n(mask, static_cast<int>(bits), __ATOMIC_RELAXED);
  }
  recorder_->show_mask(ours ? bits : found);
  asking_.clear(std::memory_order_release);
}

uint32_t Detail::choice() const {
  if (const uint32_t request = request_.load(std::memory_order_relaxed); request != 0) return request & events();
  uint32_t bits = events();
  if (!sampled_.load(std::memory_order_relaxed)) {
    if (sampling_.load(std::memory_order_relaxed)) bits &= ~kDear;
    // Without kernel events a proxy's operations are the only sign that one has ended.
    const bool kernels_tell = (bits & kEventKernelCh) != 0 && !keeps_proxy_ops_.load(std::memory_order_relaxed);
    if (transfers_.load(std::memory_order_relaxed))
      bits &= ~(kernels_tell ? kEventProxyStep | kEventProxyOp : uint32_t{kEventProxyStep});
  }
  if (capturing_.load(std::memory_order_relaxed) && !policy_.kernels_in_graphs)
    bits &= ~static_cast<uint32_t>(kEventKernelCh);
  return bits;
}

bool Detail::small_ones_come(uint64_t now_ns, bool was) {
  const uint64_t before = reviewed_at_ns_.load(std::memory_order_relaxed);
  if (before != 0 && now_ns - before < kReviewNs / 2) return was;  // too short to tell a rate
  reviewed_at_ns_.store(now_ns, std::memory_order_relaxed);
  const uint64_t small = small_.exchange(0, std::memory_order_relaxed);
  const uint64_t per_s = before != 0 ? small * 1'000'000'000 / (now_ns - before) : 0;  // the first has no past
  // From when they come fast until they come clearly slower: the mask should not flap.
  const uint64_t limit = was ? policy_.small_per_s / 10 * 7 : policy_.small_per_s;
  if (per_s > limit) {
    small_at_ns_.store(now_ns, std::memory_order_relaxed);
    return true;
  }
  // Where every single one is dear, the long quiet part of a step must not switch it off for the rest.
  return policy_.small_per_s == 0 && was && now_ns - small_at_ns_.load(std::memory_order_relaxed) < kForgetNs;
}

void Detail::review(uint64_t now_ns) {
  uint64_t due = review_at_ns_.load(std::memory_order_relaxed);
  // At the same moments on all ranks, as far as their clocks agree.
  const uint64_t unix_ns = now_ns + to_unix_ns_;
  const uint64_t next = now_ns + kReviewNs - unix_ns % kReviewNs;
  if (now_ns < due || !review_at_ns_.compare_exchange_strong(due, next)) return;
  const bool sampling = small_ones_come(now_ns, sampling_.load(std::memory_order_relaxed));
  const auto request = DetailControl::from(recorder_->control(), now_ns);
  const bool transfers = request && (request->mask & kSampleTransfers) != 0;
  const bool requested = request && !transfers;
  request_.store(requested ? request->mask | kNeeded : 0, std::memory_order_relaxed);
  sampling_.store(sampling && !requested, std::memory_order_relaxed);
  transfers_.store(transfers, std::memory_order_relaxed);
  following_.store(transfers || (sampling && !requested), std::memory_order_relaxed);

  const uint64_t step = recorder_->steps_begun();
  if (step != step_seen_.load(std::memory_order_relaxed)) step_moved_ns_.store(now_ns, std::memory_order_relaxed);
  const bool steps_reported = step != 0 && now_ns - step_moved_ns_.load(std::memory_order_relaxed) < kForgetNs;
  if (!steps_reported) sampled_.store(unix_ns / kStretchNs % policy_.sampling == 0, std::memory_order_relaxed);
  ask(choice());
}

void Detail::follow_steps() {
  const uint64_t step = recorder_->steps_begun();
  if (step == step_seen_.load(std::memory_order_relaxed)) return;
  step_seen_.store(step, std::memory_order_relaxed);
  step_moved_ns_.store(reviewed_at_ns_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  sampled_.store(step <= policy_.whole_steps || step / kStepsInARow % policy_.sampling == 0, std::memory_order_relaxed);
  ask(choice());
}

void Detail::follow_capture(bool captured) {
  capturing_.store(captured, std::memory_order_relaxed);
  ask(choice());
}

}  // namespace lockstep::nccl
