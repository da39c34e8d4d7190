#include "diagnosis/signals/cause_priors.h"

#include <algorithm>

#include "base/json_reader.h"
#include "base/json_writer.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr int64_t kCountMax = 1'000'000'000;
constexpr size_t kCauseTextMax = 64;

}  // namespace

CausePriors::CausePriors(const CausePriors& other) {
  MutexLock lock(other.mutex_);
  counts_ = other.counts_;
}

CausePriors& CausePriors::operator=(const CausePriors& other) {
  if (this == &other) return *this;
  const CausePriors copy(other);
  copy.mutex_.assert_held();  // nobody else has it
  MutexLock lock(mutex_);
  counts_ = copy.counts_;
  return *this;
}

double CausePriors::weight(Cause cause, double table_share) const {
  MutexLock lock(mutex_);
  double all = 0;
  for (const Counts& counts : counts_) all += static_cast<double>(counts.right);
  double own = 0;
  if (cause != Cause::kNone) {
    const Counts& counts = counts_[static_cast<size_t>(cause)];
    own = static_cast<double>(counts.right) - 0.5 * static_cast<double>(counts.wrong);
  }
  // Never nothing: what was wrong a hundred times can still happen.
  double counted = std::max(0.1 * kStrength * table_share, kStrength * table_share + own);
  return counted / (kStrength + all);
}

void CausePriors::feedback(Cause cause, bool right) {
  if (cause == Cause::kNone) return;
  MutexLock lock(mutex_);
  Counts& counts = counts_[static_cast<size_t>(cause)];
  int64_t& count = right ? counts.right : counts.wrong;
  count = std::min(kCountMax, count + 1);
}

CausePriors CausePriors::of(std::span<const VerdictFeedback> all) {
  CausePriors book;
  for (const VerdictFeedback& each : all) {
    book.feedback(each.said, each.right);
    if (!each.right && each.cause != each.said) book.feedback(each.cause, true);
  }
  return book;
}

std::string CausePriors::to_json() const {
  MutexLock lock(mutex_);
  JsonWriter json;
  json.begin_object();
  for (const TermRow<Cause>& row : kTerms<Cause>) {
    const Counts& counts = counts_[static_cast<size_t>(row.term)];
    if (counts.right == 0 && counts.wrong == 0) continue;
    json.key(row.name).begin_object().field("right", counts.right).field("wrong", counts.wrong).end_object();
  }
  json.end_object();
  return json.take();
}

Result<CausePriors> CausePriors::from_json(std::string_view text) {
  Result<JsonDocument> document =
      JsonDocument::parse(text, {.bytes_max = 1u << 20, .values_max = 10'000, .depth_max = 4});
  if (!document.ok()) return prefixed(document.failure(), "prior: ");
  if (!document->root().is_object()) return Error{"prior: not an object of causes"};
  CausePriors book;
  book.mutex_.assert_held();  // nobody else has it
  for (JsonValue entry : document->root()) {
    std::string cause = entry.key();
    std::optional<int64_t> right = entry["right"].integer(), wrong = entry["wrong"].integer();
    if (cause.empty() || cause.size() > kCauseTextMax || !right || !wrong || *right < 0 || *wrong < 0 ||
        *right > kCountMax || *wrong > kCountMax)
      return Error{format("prior: cause \"%s\" has no counts right and wrong from 0 to %lld",
                          as_one_line(cause.substr(0, kCauseTextMax)).c_str(), static_cast<long long>(kCountMax))};
    if (std::optional<Cause> known = term_of<Cause>(cause))
      book.counts_[static_cast<size_t>(*known)] = {.right = *right, .wrong = *wrong};
  }
  return book;
}

}  // namespace lockstep
