#include "analysis/step/timeline.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "analysis/step/op_key.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr std::string_view kLetters = ".oifbpkeswcm";
constexpr const char* kNames[kCellKindCount] = {"nothing",    "own work", "input", "forward", "backward",   "optimizer",
                                                "checkpoint", "eval",     "sync",  "waiting", "collective", "message"};

CellKind kind_of(Phase phase) {
  switch (phase) {
    case Phase::kInput:
      return CellKind::kInput;
    case Phase::kForward:
      return CellKind::kForward;
    case Phase::kBackward:
      return CellKind::kBackward;
    case Phase::kOptimizer:
      return CellKind::kOptimizer;
    case Phase::kCheckpoint:
      return CellKind::kCheckpoint;
    case Phase::kEval:
      return CellKind::kEval;
    case Phase::kSync:
      return CellKind::kSync;
    case Phase::kOther:
      break;
  }
  return CellKind::kOwn;
}

// The last to arrive spends the least time: what anybody spends beyond that, it waits.
using Shortest = std::unordered_map<OpKey, int64_t, OpKeyHash>;

Shortest shortest_of(std::span<const RankDetail> details) {
  Shortest shortest;
  for (const RankDetail& rank : details) {
    for (const OpSpan& op : rank.detail.ops) {
      if (!op.timed) continue;
      auto [found, is_new] = shortest.emplace(key_of(op), op.duration_ns);
      if (!is_new) found->second = std::min(found->second, op.duration_ns);
    }
  }
  return shortest;
}

int64_t wait_of(const OpSpan& op, const Shortest& shortest) {
  if (!op.timed) return 0;
  auto found = shortest.find(key_of(op));
  return found == shortest.end() ? 0 : std::max<int64_t>(0, op.duration_ns - found->second);
}

// Time by kind in each cell of a line.
class Cells {
 public:
  Cells(int64_t from_ns, int64_t to_ns, size_t columns)
      : from_ns_(from_ns), to_ns_(to_ns), columns_(columns), times_(columns) {}

  // Takes the time away from what was there: an operation from the phase that it runs in.
  void add(CellKind kind, int64_t from_ns, int64_t to_ns, bool over) {
    from_ns = std::max(from_ns, from_ns_);
    to_ns = std::min(to_ns, to_ns_);
    if (from_ns >= to_ns) return;
    for (size_t cell = cell_at(from_ns); cell < columns_; ++cell) {
      const int64_t begin = std::max(from_ns, start_of(cell));
      const int64_t end = std::min(to_ns, start_of(cell + 1));
      if (begin >= to_ns) break;
      if (begin >= end) continue;
      auto& times = times_[cell];
      int64_t left = end - begin;
      times[static_cast<size_t>(kind)] += left;
      if (!over) continue;
      for (size_t other = 1; other < static_cast<size_t>(CellKind::kWaiting) && left > 0; ++other) {
        const int64_t taken = std::min(left, times[other]);
        times[other] -= taken;
        left -= taken;
      }
    }
  }

  std::string text() const {
    std::string text;
    for (size_t cell = 0; cell < columns_;) {
      const size_t kind = most(cell);
      size_t end = cell + 1;
      while (end < columns_ && most(end) == kind) ++end;
      text += kLetters[kind];
      if (end - cell > 1) text += format("%zu", end - cell);
      cell = end;
    }
    return text;
  }

 private:
  int64_t start_of(size_t cell) const {
    return from_ns_ + static_cast<int64_t>(static_cast<__int128>(to_ns_ - from_ns_) * static_cast<int64_t>(cell) /
                                           static_cast<int64_t>(columns_));
  }
  size_t cell_at(int64_t time_ns) const {
    auto cell = static_cast<size_t>(static_cast<__int128>(time_ns - from_ns_) * static_cast<int64_t>(columns_) /
                                    (to_ns_ - from_ns_));
    while (cell > 0 && start_of(cell) > time_ns) --cell;
    return cell;
  }
  size_t most(size_t cell) const {
    const auto& times = times_[cell];
    auto largest = std::max_element(times.begin(), times.end());
    return *largest == 0 ? 0 : static_cast<size_t>(largest - times.begin());
  }

  int64_t from_ns_;
  int64_t to_ns_;
  size_t columns_;
  std::vector<std::array<int64_t, kCellKindCount>> times_;
};

// A rank's times since the step began, on the job's axis.
class RankTimes {
 public:
  RankTimes(const RankDetail& rank, const ClockAlignment& clocks, int64_t start_unix_ns)
      : rank_(rank.identity.rank), clocks_(clocks), start_unix_ns_(start_unix_ns) {}
  int64_t operator()(int64_t unix_ns) const { return clocks_.job_time(rank_, unix_ns) - start_unix_ns_; }

 private:
  Rank rank_;
  const ClockAlignment& clocks_;
  int64_t start_unix_ns_;
};

void fill(Cells& cells, const StepDetail& detail, const RankTimes& at, const Shortest& shortest) {
  cells.add(CellKind::kOwn, at(detail.start_unix_ns), at(detail.start_unix_ns + detail.duration_ns), false);
  for (const PhaseSpan& phase : detail.phases)
    cells.add(kind_of(phase.phase), at(phase.start_unix_ns), at(phase.start_unix_ns + phase.duration_ns), true);
  for (const OpSpan& op : detail.ops) {
    if (!op.timed) continue;
    const int64_t begin = at(op.start_unix_ns);
    const int64_t end = at(op.start_unix_ns + op.duration_ns);
    const int64_t entered = std::min(end, begin + wait_of(op, shortest));
    cells.add(CellKind::kWaiting, begin, entered, true);
    cells.add(op.p2p ? CellKind::kMessage : CellKind::kCollective, entered, end, true);
  }
}

int64_t waiting_of(const RankDetail& rank, const Shortest& shortest) {
  int64_t waiting = 0;
  for (const OpSpan& op : rank.detail.ops) waiting += wait_of(op, shortest);
  return waiting;
}

// Counts what is in view; adds it where there is room for it.
void add_spans(const RankDetail& rank, const RankTimes& at, const Shortest& shortest, size_t most, Timeline& timeline) {
  auto in_view = [&](int64_t from_ns, int64_t duration_ns) {
    const bool is = from_ns < timeline.to_ns && from_ns + duration_ns > timeline.from_ns;
    timeline.spans_in_view += is;
    return is && timeline.spans_in_view <= most;
  };
  for (const PhaseSpan& phase : rank.detail.phases) {
    if (const int64_t from_ns = at(phase.start_unix_ns); in_view(from_ns, phase.duration_ns))
      timeline.spans.push_back({rank.identity.rank, kind_of(phase.phase), from_ns, phase.duration_ns, 0,
                                phase.name.empty() ? to_text(phase.phase) : phase.name, nullptr});
  }
  for (const OpSpan& op : rank.detail.ops) {
    if (const int64_t from_ns = at(op.start_unix_ns); in_view(from_ns, op.duration_ns))
      timeline.spans.push_back({rank.identity.rank, op.p2p ? CellKind::kMessage : CellKind::kCollective, from_ns,
                                op.duration_ns, wait_of(op, shortest), op.function, &op});
  }
}

// From the first rank's begin to the last one's end.
void set_step(std::span<const RankDetail> details, const ClockAlignment& clocks, Timeline& timeline) {
  int64_t begin = INT64_MAX;
  int64_t end = INT64_MIN;
  for (const RankDetail& rank : details) {
    const StepDetail& detail = rank.detail;
    begin = std::min(begin, clocks.job_time(rank.identity.rank, detail.start_unix_ns));
    end = std::max(end, clocks.job_time(rank.identity.rank, detail.start_unix_ns + detail.duration_ns));
  }
  timeline.start_unix_ns = begin;
  timeline.length_ns = std::max<int64_t>(1, end - begin);
}

}  // namespace

char letter_of(CellKind kind) {
  return kLetters[static_cast<size_t>(kind)];
}

const char* to_text(CellKind kind) {
  return kNames[static_cast<size_t>(kind)];
}

Timeline make_timeline(std::span<const RankDetail> details, const ClockAlignment& clocks,
                       const TimelineWindow& window) {
  Timeline timeline;
  timeline.columns = std::clamp<size_t>(window.columns, 1, kTimelineColumnsMax);
  if (details.empty()) return timeline;
  set_step(details, clocks, timeline);
  const bool whole = window.to_ns <= window.from_ns;
  timeline.from_ns = whole ? 0 : window.from_ns;
  timeline.to_ns = whole ? timeline.length_ns : window.to_ns;

  const Shortest shortest = shortest_of(details);
  std::vector<const RankDetail*> ranks;
  for (const RankDetail& rank : details) {
    if (window.ranks.empty() || std::binary_search(window.ranks.begin(), window.ranks.end(), rank.identity.rank))
      ranks.push_back(&rank);
  }
  timeline.ranks = ranks.size();
  const size_t lines = std::clamp<size_t>(window.lines, 1, kTimelineLinesMax);
  const size_t together = (ranks.size() + lines - 1) / lines;
  for (size_t first = 0; first < ranks.size(); first += together) {
    const size_t end = std::min(first + together, ranks.size());
    const RankDetail* shown = ranks[first];
    for (size_t i = first + 1; i < end; ++i) {
      if (waiting_of(*ranks[i], shortest) < waiting_of(*shown, shortest)) shown = ranks[i];
    }
    Cells cells(timeline.from_ns, timeline.to_ns, timeline.columns);
    fill(cells, shown->detail, RankTimes(*shown, clocks, timeline.start_unix_ns), shortest);
    timeline.lines.push_back(
        {ranks[first]->identity.rank, ranks[end - 1]->identity.rank, shown->identity.rank, cells.text()});
  }

  for (const RankDetail* rank : ranks)
    add_spans(*rank, RankTimes(*rank, clocks, timeline.start_unix_ns), shortest, window.spans_most, timeline);
  if (timeline.spans_in_view > window.spans_most) timeline.spans.clear();
  return timeline;
}

}  // namespace lockstep
