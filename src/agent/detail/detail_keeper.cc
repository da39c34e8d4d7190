#include "agent/detail/detail_keeper.h"

#include <algorithm>
#include <set>

#include "agent/detail/packed_detail.h"
#include "base/log.h"
#include "base/text.h"

namespace lockstep {

DetailKeeper::DetailKeeper(DetailLimits limits, Counters& counters) : limits_(limits), counters_(counters) {
  note_held();
}

void DetailKeeper::leave_out(const char* reason, int64_t steps) {
  counters_.add("lockstep_agent_detail_left_out_total", format("reason=\"%s\"", reason), steps);
}

void DetailKeeper::note_held() {
  counters_.set("lockstep_agent_detail_held", "", held_);
  counters_.set("lockstep_agent_detail_bytes", "", static_cast<int64_t>(bytes_));
}

void DetailKeeper::drop_oldest(const char* reason) {
  const Entry& oldest = entries_.front();
  bytes_ -= kEntryBytes + oldest.packed.size();
  if (!oldest.packed.empty()) {
    leave_out(reason);
    --held_;
  }
  auto rank = ranks_.find(*oldest.rank);
  auto step = rank->second.by_step.find(oldest.step);
  if (step != rank->second.by_step.end() && step->second == first_number_) rank->second.by_step.erase(step);
  // An entry whose place was taken may be the last to point here: its successor is in by_step until it goes itself.
  const bool last = rank->second.by_step.empty();
  entries_.pop_front();
  ++first_number_;
  if (last) ranks_.erase(rank);
}

void DetailKeeper::keep(const Identity& identity, const StepDetail& detail, int64_t now_ns) {
  counters_.add("lockstep_agent_detail_steps_total");
  if (limits_.bytes_max == 0) return leave_out("off");
  std::string packed = pack(detail);
  const size_t bytes = kEntryBytes + packed.size();
  if (bytes > limits_.bytes_max) return leave_out("too_large");
  while (bytes_ + bytes > limits_.bytes_max) drop_oldest("bytes");

  auto rank = ranks_.try_emplace({identity.job_id, identity.attempt, identity.rank}).first;
  rank->second.identity = identity;
  const uint64_t number = first_number_ + entries_.size();
  const auto [step, is_new] = rank->second.by_step.try_emplace(detail.step, number);
  if (!is_new) {
    Entry& before = entry(step->second);
    if (!before.packed.empty()) {
      leave_out("replaced");
      --held_;
      bytes_ -= before.packed.size();
      before.packed = std::string();
    }
    step->second = number;
  }
  entries_.push_back({&rank->first, detail.step, now_ns, std::move(packed)});
  bytes_ += bytes;
  ++held_;
  note_held();
}

void DetailKeeper::expire(int64_t now_ns) {
  if (entries_.empty() || now_ns - entries_.front().kept_ns <= limits_.age_ns) return;
  while (!entries_.empty() && now_ns - entries_.front().kept_ns > limits_.age_ns) drop_oldest("age");
  note_held();
}

DetailKeeper::State DetailKeeper::state(const RankKey& rank, StepNumber step) const {
  auto found = ranks_.find(rank);
  if (found == ranks_.end()) return State::kNotHere;
  auto number = found->second.by_step.find(step);
  if (number == found->second.by_step.end()) return State::kNotHere;
  return entries_[number->second - first_number_].packed.empty() ? State::kSent : State::kHeld;
}

std::optional<DetailKeeper::Taken> DetailKeeper::take(const RankKey& rank, StepNumber step, SampledFor reason) {
  if (state(rank, step) != State::kHeld) return std::nullopt;
  const RankSteps& steps = ranks_.find(rank)->second;
  Entry& held = entry(steps.by_step.at(step));
  Result<StepDetail> detail = unpack(held.packed);
  bytes_ -= held.packed.size();
  held.packed = std::string();
  --held_;
  note_held();
  if (!detail.ok()) {  // our own bytes: this is our mistake, and no reason to stop
    LOCKSTEP_LOG_ERROR("agent", "rank %d step %lld: %s", rank.rank.value(), static_cast<long long>(step.value()),
                       detail.error().c_str());
    leave_out("unreadable");
    return std::nullopt;
  }
  counters_.add("lockstep_agent_detail_sent_total", format("reason=\"%s\"", to_text(reason)));
  return Taken{steps.identity, std::move(*detail)};
}

std::vector<RankKey> DetailKeeper::ranks_of(const std::string& job_id, int64_t attempt) const {
  std::vector<RankKey> keys;
  for (auto at = ranks_.lower_bound({job_id, attempt, Rank{std::numeric_limits<int32_t>::min()}});
       at != ranks_.end() && at->first.job_id == job_id && at->first.attempt == attempt; ++at)
    keys.push_back(at->first);
  return keys;
}

std::vector<std::string> DetailKeeper::hosts() const {
  std::set<std::string> names;
  for (const auto& [key, rank] : ranks_) names.insert(rank.identity.host);
  names.erase("");
  return {names.begin(), names.end()};
}

}  // namespace lockstep
