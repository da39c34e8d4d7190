#include "base/clock_witness.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/median.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr int64_t kJudgeNs = 1'000'000'000;
constexpr size_t kFew = 64;  // so few are judged at every word

bool is_near(int64_t a, int64_t b) {
  return std::llabs(a - b) <= ClockWitness::kToleranceNs;
}

}  // namespace

void ClockWitness::note(std::string_view sender, int64_t unix_ns) {
  if (unix_ns <= 0 || sender.empty()) return;
  const int64_t now_ns = clock_.monotonic_ns();
  const int64_t base_ns = unix_ns - now_ns;
  MutexLock lock(mutex_);
  const bool is_due = judged_ns_ == kUnknown || now_ns - judged_ns_ >= kJudgeNs;
  std::string name(sender.substr(0, kSenderBytesMax));
  auto known = senders_.find(name);
  if (known == senders_.end()) {
    if (senders_.size() >= kSendersMax && is_due) judge(now_ns);  // those not heard any more make room
    if (senders_.size() >= kSendersMax) return;
    known = senders_.emplace(std::move(name), Sender{base_ns, now_ns}).first;
  } else if (std::llabs(base_ns - own_base_ns_) <= std::llabs(known->second.base_ns - own_base_ns_) ||
             now_ns - known->second.heard_ns > kWindowNs / 2) {
    // Who sends anything that fits has no other clock: the rest was kept for a while, or somebody there is wrong.
    known->second = {base_ns, now_ns};
  }
  if (is_due || senders_.size() <= kFew) judge(now_ns);
}

void ClockWitness::judge(int64_t monotonic_ns) {
  judged_ns_ = monotonic_ns;
  std::erase_if(senders_, [&](const auto& one) { return monotonic_ns - one.second.heard_ns > kWindowNs; });
  std::vector<int64_t> bases;
  bases.reserve(senders_.size());
  for (const auto& [name, sender] : senders_) bases.push_back(sender.base_ns);
  const int64_t middle_ns = upper_median_of(bases);
  const auto agree = std::count_if(bases.begin(), bases.end(), [&](int64_t base) { return is_near(base, middle_ns); });
  const bool is_known = bases.size() >= kSendersMin && static_cast<size_t>(agree) * 2 > bases.size();
  senders_base_ns_ = is_known ? middle_ns : kUnknown;
  senders_until_ns_ = monotonic_ns + kWindowNs;
}

int64_t ClockWitness::senders_base(int64_t monotonic_ns) const {
  return monotonic_ns <= senders_until_ns_ ? senders_base_ns_.load() : kUnknown;
}

int64_t ClockWitness::believed_base(int64_t base_ns, int64_t monotonic_ns) const {
  const int64_t own_ns = own_base_ns_;
  if (is_near(base_ns, own_ns)) {
    // Slewing is followed, so that years of it do not add up to a jump.
    if (std::llabs(base_ns - own_ns) > kJudgeNs) own_base_ns_ = base_ns;
    if (jump_base_ns_ != kUnknown) jump_base_ns_ = kUnknown;  // it is back
    return base_ns;
  }
  const int64_t senders_ns = senders_base(monotonic_ns);
  MutexLock lock(mutex_);
  if (jump_base_ns_ == kUnknown || !is_near(jump_base_ns_, base_ns)) {
    jump_base_ns_ = base_ns;
    jump_seen_ns_ = monotonic_ns;
  }
  const bool is_believed = (senders_ns != kUnknown && is_near(senders_ns, base_ns)) ||
                           (senders_ns == kUnknown && monotonic_ns - jump_seen_ns_ >= kBelieveNs);
  if (!is_believed) return own_ns;
  jump_base_ns_ = kUnknown;
  own_base_ns_ = base_ns;
  return base_ns;
}

CredibleTime ClockWitness::now() const {
  const int64_t unix_ns = clock_.unix_ns();
  const int64_t monotonic_ns = clock_.monotonic_ns();
  const int64_t own_ns = believed_base(unix_ns - monotonic_ns, monotonic_ns) + monotonic_ns;
  CredibleTime credible{std::min(unix_ns, own_ns), std::max(unix_ns, own_ns)};
  if (const int64_t base_ns = senders_base(monotonic_ns); base_ns != kUnknown) {
    const int64_t senders_ns = base_ns + monotonic_ns;
    if (!is_near(senders_ns, unix_ns) || !is_near(senders_ns, own_ns)) {
      credible.earliest_unix_ns = std::min(credible.earliest_unix_ns, senders_ns);
      credible.latest_unix_ns = std::max(credible.latest_unix_ns, senders_ns);
    }
  }
  return credible;
}

ClockWitness::Report ClockWitness::report() const {
  const int64_t unix_ns = clock_.unix_ns();
  const int64_t monotonic_ns = clock_.monotonic_ns();
  Report report;
  const int64_t jumped_ns = unix_ns - monotonic_ns - believed_base(unix_ns - monotonic_ns, monotonic_ns);
  if (std::llabs(jumped_ns) > kToleranceNs) report.jumped_ns = jumped_ns;
  if (const int64_t base_ns = senders_base(monotonic_ns); base_ns != kUnknown) {
    report.senders_ns = base_ns + monotonic_ns - unix_ns;
  }
  {
    MutexLock lock(mutex_);
    report.senders = senders_.size();
  }
  auto far = [](int64_t ns) { return human_duration(static_cast<double>(std::llabs(ns))); };
  if (std::llabs(report.senders_ns) > kToleranceNs) {
    report.line = report.senders_ns > 0
                      ? format(
                            "most of %zu senders are %s ahead of this server's clock, which is likely wrong; they are "
                            "believed, and nothing is deleted by their time; set the clock",
                            report.senders, far(report.senders_ns).c_str())
                      : format(
                            "most of %zu senders are %s behind this server's clock: it is ahead, or they deliver what "
                            "they kept; nothing is refused or deleted that is not old by their time too",
                            report.senders, far(report.senders_ns).c_str());
  } else if (report.jumped_ns != 0) {
    report.line = format(
        "this server's clock has jumped %s by %s; it is believed after an hour, or when %zu senders agree; "
        "nothing is refused or deleted by age on its word until then",
        report.jumped_ns > 0 ? "ahead" : "back", far(report.jumped_ns).c_str(), kSendersMin);
  }
  return report;
}

int64_t RetentionPace::cutoff(int64_t now, int64_t keep, int64_t oldest, int64_t monotonic) {
  const int64_t wanted = now - keep;
  const int64_t elapsed = asked_ == INT64_MIN ? 0 : std::max<int64_t>(0, monotonic - asked_);
  if (asked_ == INT64_MIN || wanted <= oldest) {  // nothing is old, or nobody has looked yet: there is nothing to pace
    reached_ = std::min(wanted, oldest);
  } else {
    if (reached_ < oldest - keep) reached_ = oldest;
    reached_ = std::min(wanted, reached_ + kPace * elapsed);
  }
  asked_ = monotonic;
  return reached_;
}

}  // namespace lockstep
