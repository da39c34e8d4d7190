#include "agent/detail/detail_policy.h"

#include <algorithm>

namespace lockstep {
namespace {

constexpr uint32_t kProxyStepEvents = 0x10;
constexpr uint32_t kKernelEvents = 0x40;
constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kRenewNs = 10 * kSecondNs;  // before the end of a request that is still wanted

}  // namespace

std::optional<DetailPolicy::Change> DetailPolicy::ask(uint16_t mask, Asked what, const char* why, int64_t now_ns) {
  const Change change{{mask, static_cast<uint32_t>((now_ns + kRequestNs) / kSecondNs)}, what == Asked::kMore, why};
  own_word_ = change.request.word();
  own_ = what;
  overwritten_at_.clear();
  return change;
}

void DetailPolicy::note_rates(const Look& look) {
  const int64_t passed_ns = look.now_ns - rates_since_ns_;
  if (rates_since_ns_ != 0 && passed_ns < kRateNs) return;
  if (rates_since_ns_ != 0) {
    const double seconds = static_cast<double>(passed_ns) / 1e9;
    operations_per_s_ = static_cast<double>(look.operations - operations_then_) / seconds;
    transfers_per_s_ = static_cast<double>(look.transfers - transfers_then_) / seconds;
  }
  rates_since_ns_ = look.now_ns;
  operations_then_ = look.operations;
  transfers_then_ = look.transfers;
}

std::optional<DetailPolicy::Change> DetailPolicy::decide(const Look& look) {
  if (given_up_) return std::nullopt;
  note_rates(look);
  if (look.overwritten) overwritten_at_.push_back(look.now_ns);
  while (!overwritten_at_.empty() && look.now_ns - overwritten_at_.front() > kWithinNs) overwritten_at_.pop_front();
  if (look.mask == 0) return std::nullopt;

  const auto request = DetailControl::from(look.control, static_cast<uint64_t>(look.now_ns));
  const bool own = request && look.control == own_word_;
  if (request && !own) return std::nullopt;
  const bool less = own && own_ == Asked::kLess;
  const bool sampled = own && own_ == Asked::kSampled;
  // Or less was asked for before there was a rate.
  if ((!less && !sampled) || usual_per_s_ == 0) usual_per_s_ = operations_per_s_;
  if (overwritten_at_.size() >= kLooks) {
    if (less && request->mask == kDetailLow) return std::nullopt;  // there is no less
    const bool steps_are_gone = less || (!sampled && (look.mask & kProxyStepEvents) == 0);
    const char* const why = "its records come faster than they can be read";
    if (!steps_are_gone) return ask(kNoSteps, Asked::kLess, why, look.now_ns);
    if ((look.mask & ~uint32_t{kDetailLow}) == 0) return std::nullopt;
    return ask(kDetailLow, Asked::kLess, why, look.now_ns);
  }
  if (look.silence && (sampled || (!own && (look.mask & kKernelEvents) == 0)))
    return ask(kDetailFull, Asked::kMore, "it was silent", look.now_ns);
  if ((sampled || less) && operations_per_s_ < usual_per_s_ / 2)
    return ask(kDetailFull, Asked::kMore, "it has become slow", look.now_ns);
  if (look.profiled) {
    const bool has_all = (own && own_ == Asked::kMore) || (!own && (look.mask & kDetailFull) == kDetailFull);
    if (has_all || less) return std::nullopt;
    return ask(kDetailFull, Asked::kMore, "it is being profiled", look.now_ns);
  }
  const char* const why = "the node has no core to spare and its transfers come fast";
  if (sampled && look.crowded && int64_t{request->until_s} * kSecondNs - look.now_ns < kRenewNs)
    return ask(kDetailSampled, Asked::kSampled, why, look.now_ns);
  if (own || !look.crowded || transfers_per_s_ < kDearPerS) return std::nullopt;
  return ask(kDetailSampled, Asked::kSampled, why, look.now_ns);
}

bool full_detail_asked(uint64_t control, int64_t now_ns) {
  const auto request = DetailControl::from(control, static_cast<uint64_t>(now_ns));
  return request && (request->mask & kDetailFull) == kDetailFull && (request->mask & kSampleTransfers) == 0;
}

}  // namespace lockstep
