// StepAnalyzer: operations put together over ranks, and who came last.
#include <cmath>
#include <limits>
#include <unordered_map>

#include "analysis/step/op_key.h"
#include "analysis/step/step_analyzer.h"

namespace lockstep {
namespace {

// Nobody leaves before all have come. A send and its receive are the same for two.
bool waits_for_all(const OpSpan& op) {
  return op.p2p || op.function == "AllReduce" || op.function == "AllGather" || op.function == "ReduceScatter" ||
         op.function == "AlltoAll";
}

}  // namespace

// Times from outside are held within a day of the median start, so that nothing overflows.
int64_t StepAnalyzer::bounded(int64_t ns) {
  constexpr int64_t kDay = 86'400'000'000'000;
  return std::clamp(ns, -kDay, kDay);
}

int64_t StepAnalyzer::on_axis(Rank rank, int64_t unix_ns) const {
  int64_t since = 0;
  const int64_t moment = clocks_.job_time(rank, unix_ns);
  if (__builtin_sub_overflow(moment, origin_, &since))
    return moment < origin_ ? bounded(INT64_MIN) : bounded(INT64_MAX);
  return bounded(since);
}

void StepAnalyzer::take_details() {
  std::vector<int64_t> starts;
  for (const RankDetail& rank : details_)
    starts.push_back(clocks_.job_time(rank.identity.rank, rank.detail.start_unix_ns));
  origin_ = upper_median_of(starts);
  ranks_.resize(details_.size());
  for (size_t i = 0; i < details_.size(); ++i) {
    const RankDetail& detail = details_[i];
    RankTime& rank = ranks_[i];
    rank.detail = &detail;
    rank.start = on_axis(detail.identity.rank, detail.detail.start_unix_ns);
    rank.end = rank.start + std::clamp<int64_t>(detail.detail.duration_ns, 0, kLongestNs);
    out_.inferred |= detail.detail.inferred;
    out_.left_out += detail.detail.left_out;
  }
  begin_ = std::numeric_limits<int64_t>::max();
  end_ = std::numeric_limits<int64_t>::min();
  for (const RankTime& rank : ranks_) {
    begin_ = std::min(begin_, rank.start);
    end_ = std::max(end_, rank.end);
  }
  origin_ += begin_;
  for (RankTime& rank : ranks_) {
    rank.start -= begin_;
    rank.end -= begin_;
  }
  end_ -= begin_;
  begin_ = 0;
  out_.begin_unix_ns = origin_;
  out_.length_ns = end_;
  for (uint32_t i = 0; i < ranks_.size(); ++i) {
    RankTime& rank = ranks_[i];
    rank.ops_begin = static_cast<uint32_t>(ops_.size());
    for (const OpSpan& span : rank.detail->detail.ops) {
      if (!span.timed) {
        ++out_.untimed;
        continue;
      }
      Op op;
      op.span = &span;
      op.rank = i;
      op.start = on_axis(rank.detail->identity.rank, span.start_unix_ns);
      op.end = op.start + std::clamp<int64_t>(span.duration_ns, 0, kLongestNs);
      ops_.push_back(op);
    }
    rank.ops_end = static_cast<uint32_t>(ops_.size());
    std::stable_sort(ops_.begin() + rank.ops_begin, ops_.end(),
                     [](const Op& a, const Op& b) { return a.start < b.start; });
  }
}

// Puts operations together over ranks.
void StepAnalyzer::meet() {
  std::unordered_map<OpKey, uint32_t, OpKeyHash> places;
  places.reserve(ops_.size());
  for (uint32_t i = 0; i < ops_.size(); ++i) {
    const auto [place, fresh] = places.try_emplace(key_of(*ops_[i].span), static_cast<uint32_t>(meetings_.size()));
    if (fresh) meetings_.emplace_back();
    Meeting& meeting = meetings_[place->second];
    // Twice by one rank: numbers began anew (another communicator with the same id); the first is kept.
    const auto same_rank = [&](uint32_t other) { return ops_[other].rank == ops_[i].rank; };
    if (meeting.ops.size() < 64 && std::any_of(meeting.ops.begin(), meeting.ops.end(), same_rank)) continue;
    meeting.ops.push_back(i);
    ops_[i].meeting = place->second;
  }
}

double StepAnalyzer::apart_ns(const Op& a, const Op& b) const {
  return clocks_.error_between_ns(rank_number(a.rank), rank_number(b.rank));
}

// Who came last, and how long the others waited.
void StepAnalyzer::settle(Meeting& meeting) {
  const OpSpan& first = *ops_[meeting.ops[0]].span;
  int32_t size = first.p2p ? 2 : first.comm_size;
  if (const CommRole* role = size > 0 ? nullptr : roles_.find(first.comm_id)) size = role->size;
  meeting.complete = size > 0 && meeting.ops.size() >= static_cast<size_t>(size);
  if (meeting.ops.size() < 2) return;
  if (first.p2p ? !settle_message(meeting) : waits_for_all(first)) {
    settle_by_time(meeting);
  } else if (!first.p2p) {
    settle_by_start(meeting);
  }
  int64_t longest = 0;
  for (uint32_t i : meeting.ops) longest = std::max(longest, ops_[i].wait);
  size_t bucket = 0;
  for (int64_t limit = 10'000; bucket + 1 < out_.late.size() && longest >= limit; limit *= 10) ++bucket;
  ++out_.late[bucket];
  out_.undecided += !meeting.clear;
}

// A short message is out before anybody takes it, so that a send may be over early and still have come first: clocks
// decide where they can. False: they cannot.
bool StepAnalyzer::settle_message(Meeting& meeting) {
  uint32_t early = meeting.ops[0], late = meeting.ops[1];
  if (ops_[early].start > ops_[late].start) std::swap(early, late);
  const int64_t later = ops_[late].start - ops_[early].start;
  const double error = apart_ns(ops_[early], ops_[late]);
  if (!std::isfinite(error) || static_cast<double>(later) <= error) return false;
  Op& waiter = ops_[early];
  const int64_t spent = waiter.end - waiter.start, other = ops_[late].end - ops_[late].start;
  meeting.least_ns = std::min(spent, other);
  meeting.last = late;
  meeting.clear = true;
  const int64_t wait = std::min(later, spent - meeting.least_ns);
  waiter.wait = wait > kTogetherNs ? wait : 0;
  return true;
}

void StepAnalyzer::settle_by_time(Meeting& meeting) {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (uint32_t i : meeting.ops) least = std::min(least, ops_[i].end - ops_[i].start);
  meeting.least_ns = least;
  const int64_t together =
      least + std::max(kTogetherNs, static_cast<int64_t>(kTogetherShare * static_cast<double>(least)));
  // Those that came nearly last; among them the latest start, where clocks can tell.
  size_t near = 0;
  for (uint32_t i : meeting.ops) {
    Op& op = ops_[i];
    const int64_t spent = op.end - op.start;
    if (spent > together) {
      op.wait = spent - least;
      continue;
    }
    ++near;
    if (meeting.last == kNone) {
      meeting.last = i;
      continue;
    }
    const Op& best = ops_[meeting.last];
    const double error = apart_ns(op, best);
    const double later = static_cast<double>(op.start - best.start);
    const bool decided_by_clock = std::isfinite(error) && std::abs(later) > error;
    if (decided_by_clock ? later > 0 : spent < best.end - best.start) meeting.last = i;
  }
  meeting.clear = near == 1 && meeting.ops.size() > 1;
}

void StepAnalyzer::settle_by_start(Meeting& meeting) {
  uint32_t last = meeting.ops[0];
  int64_t least = std::numeric_limits<int64_t>::max();
  for (uint32_t i : meeting.ops) {
    least = std::min(least, ops_[i].end - ops_[i].start);
    if (ops_[i].start > ops_[last].start) last = i;
  }
  meeting.least_ns = least;
  meeting.clear = true;
  for (uint32_t i : meeting.ops) {
    if (i == last) continue;
    Op& op = ops_[i];
    const int64_t later = ops_[last].start - op.start;
    const double error = apart_ns(op, ops_[last]);
    if (!std::isfinite(error) || static_cast<double>(later) <= error) {
      meeting.clear = false;
      continue;
    }
    op.wait = std::clamp<int64_t>(later, 0, op.end - op.start);
  }
  meeting.last = last;
}

// Sends and receives of one group run in one kernel and have its times each: the kernel waited once, for the longest
// of them.
void StepAnalyzer::one_kernel() {
  for (const RankTime& rank : ranks_) {
    for (uint32_t i = rank.ops_begin; i < rank.ops_end;) {
      uint32_t end = i + 1;
      while (end < rank.ops_end && ops_[end].span->p2p && ops_[i].span->p2p && ops_[end].start == ops_[i].start &&
             ops_[end].end == ops_[i].end)
        ++end;
      if (end - i > 1) {
        int64_t most = 0;
        for (uint32_t op = i; op < end; ++op) most = std::max(most, ops_[op].wait);
        // Several as long: the kernel ended with the peer that came last of all.
        uint32_t longest = i;
        int64_t latest = std::numeric_limits<int64_t>::min();
        for (uint32_t op = i; op < end; ++op) {
          if (ops_[op].wait + kTogetherNs < most || ops_[op].meeting == kNone) continue;
          const uint32_t last = meetings_[ops_[op].meeting].last;
          if (last == kNone || ops_[last].start <= latest) continue;
          latest = ops_[last].start;
          longest = op;
        }
        for (uint32_t op = i; op < end; ++op) ops_[op].wait = op == longest ? ops_[op].wait : 0;
        // First of its kernel, so that it stands for it below.
        std::swap(ops_[i], ops_[longest]);
        if (longest != i) {
          rename(ops_[i].meeting, longest, i);
          rename(ops_[longest].meeting, i, longest);
        }
      }
      i = end;
    }
  }
}

void StepAnalyzer::rename(uint32_t meeting, uint32_t from, uint32_t to) {
  if (meeting == kNone) return;
  for (uint32_t& op : meetings_[meeting].ops) {
    if (op == from) {
      op = to;
      break;
    }
  }
  if (meetings_[meeting].last == from) meetings_[meeting].last = to;
}

void StepAnalyzer::make_stretches(RankTime& rank) const {
  int64_t at = rank.start;
  for (uint32_t i = rank.ops_begin; i < rank.ops_end; ++i) {
    const int64_t from = std::max(at, ops_[i].start), to = std::min(rank.end, ops_[i].end);
    if (to <= from) continue;
    if (from > at) rank.stretches.push_back({at, from, kNone});
    rank.stretches.push_back({from, to, i});
    at = to;
  }
  if (rank.end > at) rank.stretches.push_back({at, rank.end, kNone});
}

// The first that ends behind `from`.
size_t StepAnalyzer::first_stretch(const RankTime& rank, int64_t from) {
  return static_cast<size_t>(
      std::upper_bound(rank.stretches.begin(), rank.stretches.end(), from,
                       [](int64_t moment, const Stretch& stretch) { return moment < stretch.to; }) -
      rank.stretches.begin());
}

}  // namespace lockstep
