#include "ingest/otlp/delta_sums.h"

#include "base/text.h"

namespace lockstep {
namespace {

constexpr int64_t kSweepNs = 60'000'000'000;

}  // namespace

DeltaSums::Sum* DeltaSums::Push::of(std::string raw_labels, int64_t time_ms, Refusal& refusal) {
  const bool is_first = !held_;
  if (is_first) held_.emplace(sums_.mutex_);
  sums_.mutex_.assert_held();  // until end()
  if (is_first) sums_.forget_idle(sums_.clock_.monotonic_ns());
  auto found = sums_.sums_.find(raw_labels);
  if (found == sums_.sums_.end()) {
    if (sums_.sums_.size() >= kSeriesMax) {
      refusal = {"delta_limit", format("more than %zu series of deltas", kSeriesMax)};
      return nullptr;
    }
    if (!sums_.memory_.hold(bytes_of(raw_labels))) {
      refusal = {"delta_limit", "there is no memory for more series of deltas (--memory-max)"};
      return nullptr;
    }
    found = sums_.sums_.emplace(std::move(raw_labels), Sum{}).first;
  } else if (time_ms <= found->second.time_ms) {
    refusal = {"delta_repeated", "a delta not later than the one before was counted already"};
    return nullptr;
  }
  undo_.emplace_back(&found->second, found->second);
  found->second.used_ns = sums_.clock_.monotonic_ns();
  return &found->second;
}

void DeltaSums::Push::take_back() {
  for (auto undo = undo_.rbegin(); undo != undo_.rend(); ++undo) *undo->first = undo->second;
}

void DeltaSums::forget_idle(int64_t now_ns) {
  if (now_ns < next_sweep_ns_) return;
  next_sweep_ns_ = now_ns + kSweepNs;
  std::erase_if(sums_, [&](const auto& item) LOCKSTEP_REQUIRES(mutex_) {
    const bool is_idle = now_ns - item.second.used_ns > kIdleNs;
    if (is_idle) memory_.release(bytes_of(item.first));
    return is_idle;
  });
}

}  // namespace lockstep
