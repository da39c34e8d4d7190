#include "agent/detail_policy.h"

namespace lockstep {
namespace {

constexpr uint32_t kProxyStepEvents = 0x10;
constexpr uint32_t kKernelEvents = 0x40;
constexpr int64_t kSecondNs = 1'000'000'000;

}  // namespace

std::optional<DetailPolicy::Change> DetailPolicy::ask(uint16_t mask, bool up, int64_t now_ns) {
  const Change change{{mask, static_cast<uint32_t>((now_ns + kWishNs) / kSecondNs)}, up};
  own_word_ = change.wish.word();
  own_is_up_ = up;
  overwritten_at_.clear();
  return change;
}

std::optional<DetailPolicy::Change> DetailPolicy::decide(const Look& look) {
  if (given_up_) return std::nullopt;
  if (look.overwritten) overwritten_at_.push_back(look.now_ns);
  while (!overwritten_at_.empty() && look.now_ns - overwritten_at_.front() > kWithinNs) overwritten_at_.pop_front();
  const bool too_much = overwritten_at_.size() >= kLooks;
  if ((!too_much && !look.silence) || look.mask == 0) return std::nullopt;

  const auto wish = DetailWish::from(look.control, static_cast<uint64_t>(look.now_ns));
  const bool own = wish && look.control == own_word_;
  if (wish && !own) return std::nullopt;
  if (too_much) {
    if (own && !own_is_up_ && wish->mask == kDetailLow) return std::nullopt;  // there is no less
    const bool steps_are_gone = (look.mask & kProxyStepEvents) == 0 || (own && !own_is_up_);
    if (!steps_are_gone) return ask(kNoSteps, false, look.now_ns);
    if ((look.mask & ~uint32_t{kDetailLow}) == 0) return std::nullopt;
    return ask(kDetailLow, false, look.now_ns);
  }
  if ((look.mask & kKernelEvents) != 0 || own) return std::nullopt;
  return ask(kDetailFull, true, look.now_ns);
}

bool full_detail_asked(uint64_t control, int64_t now_ns) {
  const auto wish = DetailWish::from(control, static_cast<uint64_t>(now_ns));
  return wish && (wish->mask & kDetailFull) == kDetailFull;
}

}  // namespace lockstep
