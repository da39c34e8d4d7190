#include "store/feedback_store.h"

#include "base/text.h"

namespace lockstep {

FeedbackStore::FeedbackStore(StateStore& state, Counters& counters, Changed changed)
    : state_(state), counters_(counters), changed_(std::move(changed)) {
  MutexLock lock(mutex_);
  read_back();
  hand_on();
}

void FeedbackStore::read_back() {
  by_verdict_.clear();
  for (VerdictFeedback& each : state_.feedback()) {
    std::string id = each.verdict_id;
    by_verdict_[std::move(id)] = std::move(each);
  }
}

void FeedbackStore::hand_on() {
  if (!changed_) return;
  std::vector<VerdictFeedback> all;
  all.reserve(by_verdict_.size());
  for (const auto& [id, each] : by_verdict_) all.push_back(each);
  changed_(all);
}

std::optional<VerdictFeedback> FeedbackStore::of(std::string_view verdict_id) const {
  MutexLock lock(mutex_);
  auto found = by_verdict_.find(verdict_id);
  if (found == by_verdict_.end()) return std::nullopt;
  return found->second;
}

Result<void> FeedbackStore::keep(VerdictFeedback feedback) {
  MutexLock lock(mutex_);
  if (Result<void> saved = state_.save_feedback(feedback); !saved.ok()) {
    refused("store");
    return saved;
  }
  counters_.add("lockstep_feedback_total", feedback.right ? "answer=\"right\"" : "answer=\"wrong\"");
  std::string id = feedback.verdict_id;
  by_verdict_[std::move(id)] = std::move(feedback);
  if (by_verdict_.size() > kFeedbackMax) read_back();  // the store has dropped the oldest
  hand_on();
  return {};
}

Result<void> FeedbackStore::take_back(std::string_view verdict_id) {
  MutexLock lock(mutex_);
  auto found = by_verdict_.find(verdict_id);
  if (found == by_verdict_.end()) return {};
  if (Result<void> dropped = state_.drop_feedback(verdict_id); !dropped.ok()) {
    refused("store");
    return dropped;
  }
  counters_.add("lockstep_feedback_total", "answer=\"taken_back\"");
  by_verdict_.erase(found);
  hand_on();
  return {};
}

void FeedbackStore::refused(const char* reason) {
  counters_.add("lockstep_feedback_refused_total", format("reason=\"%s\"", reason));
}

}  // namespace lockstep
