// StepAnalyzer: the critical path.
#include <algorithm>
#include <functional>

#include "analysis/step/step_analyzer.h"

namespace lockstep {
namespace {

constexpr size_t kPathWalkMax = 100'000;

}  // namespace

// The operation of this rank that ended last before `at` (spanning: or has not ended by then); kNone: none.
uint32_t StepAnalyzer::last_before(RankTime& rank, int64_t at, bool spanning) {
  if (rank.by_end.empty()) {
    for (uint32_t i = rank.ops_begin; i < rank.ops_end; ++i) rank.by_end.push_back(i);
    std::stable_sort(rank.by_end.begin(), rank.by_end.end(),
                     [&](uint32_t a, uint32_t b) { return ops_[a].end < ops_[b].end; });
  }
  if (spanning) {
    for (auto i = rank.by_end.rbegin(); i != rank.by_end.rend(); ++i) {
      if (ops_[*i].start < at) return *i;
    }
    return kNone;
  }
  auto behind = std::upper_bound(rank.by_end.begin(), rank.by_end.end(), at,
                                 [&](int64_t moment, uint32_t op) { return moment < ops_[op].end; });
  while (behind != rank.by_end.begin()) {
    --behind;
    if (ops_[*behind].start < at) return *behind;
  }
  return kNone;
}

void StepAnalyzer::add_piece(Analysis::Piece piece) {
  if (piece.to_ns > piece.from_ns) out_.path.push_back(std::move(piece));
}

// Own work by phase. Phases are the host's, and a host runs ahead of its GPU: where the operation behind this work
// had long been enqueued when it began, the work was that of the phase in which it was enqueued.
std::vector<StepAnalyzer::PhaseOfWork> StepAnalyzer::phases_of(const Leg& leg) const {
  const RankDetail& detail = *ranks_[leg.rank].detail;
  const Rank rank = detail.identity.rank;
  std::vector<PhaseOfWork> parts;
  if (leg.from < ranks_[leg.rank].start) {
    const int64_t start = std::min(leg.to, ranks_[leg.rank].start);
    parts.push_back({leg.from, start, Analysis::Culprit::kLateStart});
    if (leg.to > start) {
      const std::vector<PhaseOfWork> rest = phases_of({leg.rank, start, leg.to, leg.op});
      parts.insert(parts.end(), rest.begin(), rest.end());
    }
    return parts;
  }
  if (leg.op != kNone) {
    const int64_t enqueued = on_axis(rank, ops_[leg.op].span->enqueued_unix_ns);
    if (enqueued < leg.from + (leg.to - leg.from) / 2) {
      for (const PhaseSpan& phase : detail.detail.phases) {
        const int64_t from = on_axis(rank, phase.start_unix_ns);
        if (from <= enqueued && enqueued < from + std::clamp<int64_t>(phase.duration_ns, 0, kLongestNs))
          return {{leg.from, leg.to, name_of(phase)}};
      }
      return {{leg.from, leg.to, ""}};
    }
  }
  int64_t at = leg.from;
  for (const PhaseSpan& phase : detail.detail.phases) {
    const int64_t start = on_axis(rank, phase.start_unix_ns);
    const int64_t from = std::max(at, start);
    const int64_t to = std::min(leg.to, start + std::clamp<int64_t>(phase.duration_ns, 0, kLongestNs));
    if (to <= from) continue;
    if (from > at) parts.push_back({at, from, ""});
    parts.push_back({from, to, name_of(phase)});
    at = to;
  }
  if (leg.to > at) parts.push_back({at, leg.to, ""});
  return parts;
}

// Added backwards.
void StepAnalyzer::add_own(const Leg& leg) {
  if (leg.to <= leg.from) return;
  const std::vector<PhaseOfWork> parts = phases_of(leg);
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    Analysis::Piece piece;
    piece.rank = rank_number(leg.rank);
    piece.from_ns = part->from;
    piece.to_ns = part->to;
    piece.what = part->name;
    add_piece(std::move(piece));
  }
}

void StepAnalyzer::walk_path() {
  uint32_t rank_index = 0;
  for (uint32_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].end > ranks_[rank_index].end) rank_index = i;
  }
  std::vector<bool> visited(meetings_.size(), false);
  int64_t at = end_;
  uint32_t next = kNone;  // the operation that the path came from
  bool spanning = true;
  for (size_t walked = 0; at > begin_ && walked < kPathWalkMax; ++walked) {
    RankTime& rank = ranks_[rank_index];
    const uint32_t found = at <= rank.start ? kNone : last_before(rank, at, spanning);
    spanning = false;
    if (found == kNone || ops_[found].end <= rank.start) {
      add_own({rank_index, std::min(at, rank.start), at, next});
      at = std::min(at, rank.start);
      break;
    }
    const Op& op = ops_[found];
    if (op.end < at) {
      add_own({rank_index, std::max(op.end, rank.start), at, next});
      at = std::max(op.end, rank.start);
    }
    next = found;
    at = through_operation(next, rank_index, at, visited);
  }
  if (at > begin_) {
    Analysis::Piece before;
    before.kind = Analysis::Kind::kBefore;
    before.rank = rank_number(rank_index);
    before.from_ns = begin_;
    before.to_ns = at;
    add_piece(std::move(before));
  }
  std::reverse(out_.path.begin(), out_.path.end());
  for (const Analysis::Piece& piece : out_.path) {
    out_.path_ns[static_cast<size_t>(piece.kind)] += piece.to_ns - piece.from_ns;
    if (const auto entry = rank_at_.find(piece.rank); entry != rank_at_.end())
      out_.ranks[entry->second].path_ns += piece.to_ns - piece.from_ns;
  }
  out_.path_total = out_.path.size();
  out_.path = shortened(std::move(out_.path), Analysis::kPathMax);
}

// Adds the operation to the path and goes to the member that came last. Returns the moment to go on from.
int64_t StepAnalyzer::through_operation(uint32_t& found, uint32_t& rank_index, int64_t at, std::vector<bool>& visited) {
  const Op& op = ops_[found];
  Analysis::Piece piece;
  piece.kind = Analysis::Kind::kCommunication;
  piece.what = op.span->function;
  piece.comm_id = op.span->comm_id;
  piece.number = number_of(*op.span);
  piece.to_ns = at;
  const Meeting* meeting = op.meeting == kNone ? nullptr : &meetings_[op.meeting];
  const bool others_missing = meeting == nullptr || !meeting->complete;
  const auto missing = missing_last_.find(op.span->comm_id);
  if (others_missing && (missing != missing_last_.end() || meeting == nullptr || meeting->last == kNone)) {
    piece.kind = Analysis::Kind::kWaiting;
    piece.rank = rank_number(rank_index);
    piece.waits_for = missing == missing_last_.end() ? kNoRank : missing->second;
    piece.from_ns = std::clamp(op.start, begin_, at);
    const int64_t from = piece.from_ns;
    add_piece(std::move(piece));
    return from;
  }
  const bool jump =
      meeting->last != kNone && ops_[meeting->last].rank != rank_index && op.wait > 0 && !visited[op.meeting];
  if (op.meeting != kNone) visited[op.meeting] = true;
  const Op& last = jump ? ops_[meeting->last] : op;
  // Where clocks make it seem to begin after it ended, it began when the waiter's own clock says.
  const int64_t came = jump ? std::min(last.start, op.start + op.wait) : op.start;
  piece.rank = jump ? rank_number(last.rank) : rank_number(rank_index);
  piece.from_ns = std::clamp(came, begin_, at);
  if (jump) {
    piece.waited_by = rank_number(rank_index);
    piece.waited_ns = op.wait;
    rank_index = last.rank;
    found = meeting->last;
  }
  const int64_t from = piece.from_ns;
  add_piece(std::move(piece));
  return from;
}

std::vector<StepAnalysis::Piece> shortened(std::vector<StepAnalysis::Piece> path, size_t most) {
  most = std::max<size_t>(1, most);
  if (path.size() <= most) return path;
  std::vector<int64_t> lengths;
  for (const StepAnalysis::Piece& piece : path) lengths.push_back(piece.to_ns - piece.from_ns);
  const auto last = lengths.begin() + static_cast<ptrdiff_t>(most - 1);
  std::nth_element(lengths.begin(), last, lengths.end(), std::greater<>());
  const int64_t least = *last;
  std::vector<StepAnalysis::Piece> kept;
  for (StepAnalysis::Piece& piece : path) {
    if (!kept.empty() && (piece.to_ns - piece.from_ns < least || kept.size() >= most)) {
      kept.back().to_ns = piece.to_ns;
    } else {
      kept.push_back(std::move(piece));
    }
  }
  return kept;
}

}  // namespace lockstep
