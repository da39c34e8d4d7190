#include "sources/nccl/pattern_tracker.h"

#include <tuple>

namespace lockstep {
namespace {

uint64_t mixed(uint64_t value) {  // splitmix64's finalizer: sums of these tell sets apart
  value += 0x9e3779b97f4a7c15;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

bool reduces(Function function) {
  return function == Function::kAllReduce || function == Function::kReduceScatter;
}

}  // namespace

uint64_t hash_of(const PatternKey& key) {
  uint64_t hash = mixed(key.comm_id.value());
  hash = mixed(hash ^ static_cast<uint64_t>(key.bytes));
  hash = mixed(hash ^ key.context);
  hash = mixed(hash ^
               (static_cast<uint64_t>(static_cast<uint32_t>(key.comm_size)) << 32 | static_cast<uint32_t>(key.peer)));
  return mixed(hash ^ (static_cast<uint64_t>(key.function) << 8 | static_cast<uint64_t>(key.datatype)));
}

int32_t PatternTracker::signature_of(const PatternKey& key) {
  if (auto known = ids_.find(key); known != ids_.end()) return known->second;
  if (signatures_.size() >= kSignaturesMax) return -1;
  const auto id = static_cast<int32_t>(signatures_.size());
  Signature& fresh = signatures_.emplace_back();
  fresh.key = key;
  fresh.hash = hash_of(key);
  ids_.emplace(key, id);
  return id;
}

// Numbers that are missing are operations whose records were lost.
void PatternTracker::note_ordinal(const PatternSight& op) {
  if (op.ordinal == 0) return;
  Ordinals& seen = ordinals_[op.key.comm_id];
  if (seen.first == 0) seen.first = op.ordinal;
  const bool jumped = seen.last != 0 && op.ordinal != seen.last + 1;
  seen.last = op.ordinal;
  if (!jumped || !following() || anchor().key.comm_id != op.key.comm_id) return;
  hole_ = true;
  if (!anchor_seen_) return;
  // The step is over, but nobody knows since when.
  ++number_;
  anchor_seen_ = false;
  open_since_ns_ = 0;
}

void PatternTracker::note_segment(Signature& one, int64_t at_ns) {
  sum_ += one.hash;
  ++count_;
  if (one.occurrences++ > 0) {
    const uint64_t segment_sum = sum_ - one.last_sum;
    const uint64_t segment_ops = count_ - one.last_count;
    if (one.run == 0 || segment_sum != one.segment_sum || segment_ops != one.segment_ops) {
      one.run = 0;
      one.run_since_ns = one.last_ns;
    }
    ++one.run;
    one.segment_sum = segment_sum;
    one.segment_ops = segment_ops;
  }
  one.last_sum = sum_;
  one.last_count = count_;
  one.last_ns = at_ns;
}

void PatternTracker::add(const PatternSight& op) {
  note_ordinal(op);
  if (op.ends && anchor_seen_) end_step(op.at_ns);
  const int32_t id = op.counts ? signature_of(op.key) : -1;
  past_.push_back({id, op.ends, op.ordinal, op.at_ns});
  if (past_.size() > kPastMax) past_.pop_front();
  if (id < 0) return;
  Signature& one = signatures_[static_cast<size_t>(id)];
  note_segment(one, op.at_ns);

  // An anchor that has not come for several periods: the job does something else now.
  if (following() && count_ - signatures_[static_cast<size_t>(anchor_)].last_count > 4 * period_ops_ && is_regular(one))
    unlock();
  if (id == anchor_) {
    on_anchor(op.ordinal);
    if (following() && anchor_begins()) end_step(op.at_ns);
  } else if (is_regular(one) && (!following() || is_better(one))) {
    lock(id);
  }
}

bool PatternTracker::is_regular(const Signature& one) const {
  if (one.run < (one.segment_ops == 1 ? kRunOfOneMin : kRunMin)) return false;
  if (one.run * one.segment_ops < run_ops_min_) return false;
  const int64_t run_ns = one.last_ns - one.run_since_ns;
  const int64_t period_ns = run_ns / one.run;
  return period_ns >= (run_ns >= kShortRunNs ? kPeriodNsLeast : kPeriodNsMin);
}

// A longer period than the one we follow: its parts were micro-batches, if what is new in it is a reduction between
// other ranks (gradients), or if they are few.
bool PatternTracker::is_better(const Signature& one) const {
  if (one.segment_ops <= period_ops_) return false;
  const bool other_ranks =
      std::find(period_comms_.begin(), period_comms_.end(), one.key.comm_id) == period_comms_.end();
  return (reduces(one.key.function) && other_ranks) || one.segment_ops <= kPartsMax * period_ops_;
}

// Where in past_ the newest `ops` operations that count begin; past_.size() where they are not all there.
size_t PatternTracker::period_begin(uint64_t ops) const {
  size_t at = past_.size();
  while (at > 0 && ops > 0) ops -= past_[--at].signature >= 0;
  return ops == 0 ? at : past_.size();
}

int32_t PatternTracker::anchor_in(size_t begin, int32_t otherwise) const {
  struct Seen {
    uint64_t times = 0;
    int64_t gap_ns = 0;  // since the operation before it
  };
  std::map<int32_t, Seen> seen;
  for (size_t i = begin; i < past_.size(); ++i) {
    if (past_[i].signature < 0) continue;
    Seen& one = seen[past_[i].signature];
    ++one.times;
    if (i > 0) one.gap_ns = past_[i].at_ns - past_[i - 1].at_ns;
  }
  int32_t best = otherwise;
  auto rank_of = [&](int32_t id) {
    const PatternKey& key = signatures_[static_cast<size_t>(id)].key;
    // Sends and receives are all alike: there the longest pause tells. Everywhere else time has no say.
    const int64_t gap_ns = key.peer >= 0 ? seen[id].gap_ns : 0;
    return std::make_tuple(reduces(key.function), key.bytes, key.comm_size, gap_ns, key.function, key.datatype,
                           key.comm_id, signatures_[static_cast<size_t>(id)].hash);
  };
  for (const auto& [id, one] : std::map<int32_t, Seen>(seen)) {
    if (one.times == 1 && rank_of(id) > rank_of(best)) best = id;
  }
  return best;
}

// How often it had occurred before: the number of the step that it ends. One who came late counts by ordinals.
StepNumber PatternTracker::number_of_anchor(uint64_t ordinal) const {
  auto seen = ordinals_.find(anchor().key.comm_id);
  const bool from_the_start = seen != ordinals_.end() && seen->second.first == 1;
  int64_t before = static_cast<int64_t>(anchor().occurrences) - 1;
  if (!from_the_start && ordinals_per_step_ > 0)
    before = std::max<int64_t>(0, static_cast<int64_t>(ordinal / ordinals_per_step_) - 1);
  return StepNumber{anchor_begins() ? before - 1 : before};
}

void PatternTracker::lock(int32_t regular) {
  if (following()) ++breaks_;
  const Signature& one = signatures_[static_cast<size_t>(regular)];
  period_ops_ = one.segment_ops;
  period_sum_ = one.segment_sum;
  const size_t begin = period_begin(period_ops_);
  anchor_ = begin < past_.size() ? anchor_in(begin, regular) : regular;
  period_comms_.clear();
  for (size_t i = begin; i < past_.size(); ++i) {
    if (past_[i].signature < 0) continue;
    const CommId comm_id = signatures_[static_cast<size_t>(past_[i].signature)].key.comm_id;
    if (std::find(period_comms_.begin(), period_comms_.end(), comm_id) == period_comms_.end())
      period_comms_.push_back(comm_id);
  }
  unlike_run_ = 0;
  hole_ = false;
  anchor_seen_ = false;
  open_since_ns_ = 0;
  report_past(one.run);
}

// The steps of the periods that proved the pattern are over already.
void PatternTracker::report_past(uint32_t periods) {
  std::vector<size_t> anchors;  // newest first
  for (size_t i = past_.size(); i-- > 0 && anchors.size() <= periods;) {
    if (past_[i].signature == anchor_) anchors.push_back(i);
  }
  ordinals_per_step_ = anchors.size() > 1 ? past_[anchors[0]].ordinal - past_[anchors[1]].ordinal : 0;
  anchor_ordinal_ = anchors.empty() ? 0 : past_[anchors[0]].ordinal;
  const StepNumber newest = number_of_anchor(anchor_ordinal_);
  std::reverse(anchors.begin(), anchors.end());
  number_ = newest - static_cast<int64_t>(anchors.size()) + 1;
  // After a break numbers go on; then only what is new is told.
  const bool renumbered = number_ < last_step_;
  if (renumbered) number_ = last_step_;  // of the step whose start is not known: it is not told
  for (size_t i = renumbered && !anchors.empty() ? anchors.size() - 1 : 0; i < anchors.size(); ++i) {
    anchor_seen_ = true;
    for (size_t at = anchors[i] + !anchor_begins(); at < past_.size() && anchor_seen_; ++at) {
      if (past_[at].ends) end_step(past_[at].at_ns);
    }
  }
}

void PatternTracker::on_anchor(uint64_t ordinal) {
  if (hole_ && ordinals_per_step_ > 0 && ordinal > anchor_ordinal_) {
    const uint64_t steps = (ordinal - anchor_ordinal_ + ordinals_per_step_ / 2) / ordinals_per_step_;
    if (steps > 1) {
      number_ += static_cast<int64_t>(steps) - 1;
      open_since_ns_ = 0;
    }
  }
  hole_ = false;
  anchor_ordinal_ = ordinal;
  anchor_seen_ = true;
  if (anchor().segment_sum == period_sum_ || anchor().run >= kRunMin) {
    unlike_run_ = 0;
    period_sum_ = anchor().segment_sum;
    period_ops_ = anchor().segment_ops;
  } else if (++unlike_run_ > kUnlikeMax) {
    unlock();
  }
}

void PatternTracker::end_step(int64_t at_ns) {
  if (open_since_ns_ != 0 && at_ns > open_since_ns_) {
    steps_.push_back({number_, open_since_ns_, at_ns});
    last_step_ = number_;
  }
  ++number_;
  open_since_ns_ = at_ns;
  anchor_seen_ = false;
}

void PatternTracker::unlock() {
  ++breaks_;
  anchor_ = -1;
  anchor_seen_ = false;
  open_since_ns_ = 0;
}

void PatternTracker::finish(int64_t at_ns) {
  if (!anchor_seen_) return;
  end_step(at_ns);
  open_since_ns_ = 0;
}

}  // namespace lockstep
