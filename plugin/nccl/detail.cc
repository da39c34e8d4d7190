#include "plugin/nccl/detail.h"

#include <sched.h>

#include "plugin/nccl/abi/common.h"
#include "recorder/control.h"

namespace lockstep::nccl {
namespace {

constexpr uint32_t kDear = kEventKernelCh | kEventProxyStep;

}  // namespace

void Detail::configure(RecorderWriter& recorder, uint32_t events, uint64_t small_bytes, uint64_t small_per_s) {
  recorder_ = &recorder;
  events_ = events;
  small_bytes_ = small_bytes;
  small_per_s_ = small_per_s;
  wanted_.store(events, std::memory_order_relaxed);
}

void Detail::use_mask(int* nccl_mask) {
  // Every communicator writes the value that is in force: the mask is one for the whole process.
  if (nccl_mask != nullptr) {
    while (asking_.test_and_set(std::memory_order_acquire)) ::sched_yield();
    const uint32_t bits = wanted_.load(std::memory_order_relaxed) | kept_.load(std::memory_order_relaxed);
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

void Detail::review(uint64_t now_ns) {
  uint64_t due = review_at_ns_.load(std::memory_order_relaxed);
  if (now_ns < due || !review_at_ns_.compare_exchange_strong(due, now_ns + kReviewNs)) return;
  const uint64_t since = now_ns - reviewed_at_ns_.exchange(now_ns, std::memory_order_relaxed);
  const uint64_t small = small_.exchange(0, std::memory_order_relaxed);
  const uint64_t reviews = reviews_.fetch_add(1, std::memory_order_relaxed);
  if (const auto wish = DetailWish::from(recorder_->control(), now_ns)) {
    thinning_.store(false, std::memory_order_relaxed);
    return ask((wish->mask | kNeeded) & events_);
  }
  // From when they come fast until they come clearly slower: the mask should not flap. The first review has no past.
  const bool was = thinning_.load(std::memory_order_relaxed);
  const uint64_t per_s = reviews > 0 && since > 0 ? small * 1'000'000'000 / since : 0;
  const bool thin = per_s > (was ? small_per_s_ / 10 * 7 : small_per_s_);
  thinning_.store(thin, std::memory_order_relaxed);
  if (!thin) return ask(events_);

  const uint64_t step = recorder_->steps_begun();
  if (step != step_seen_.load(std::memory_order_relaxed)) step_moved_ns_.store(now_ns, std::memory_order_relaxed);
  const bool steps_told = now_ns - step_moved_ns_.load(std::memory_order_relaxed) < 10'000'000'000 && step != 0;
  if (!steps_told) ask(reviews % kThinning == 0 ? events_ : events_ & ~kDear);
}

void Detail::follow_steps() {
  const uint64_t step = recorder_->steps_begun();
  if (step == step_seen_.load(std::memory_order_relaxed)) return;
  step_seen_.store(step, std::memory_order_relaxed);
  step_moved_ns_.store(reviewed_at_ns_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  ask(step % kThinning == 0 ? events_ : events_ & ~kDear);
}

}  // namespace lockstep::nccl
