#include "sle/rank_cells.h"

#include <algorithm>

namespace lockstep::sle {

uint64_t hash_of(const RankCells& cells) {
  uint64_t hash = 1469598103934665603ull;
  const auto add = [&hash](uint64_t value) { hash = (hash ^ value) * 1099511628211ull; };
  for (const RankRun& run : cells) {
    add(static_cast<uint64_t>(run.first.value()));
    add(static_cast<uint64_t>(run.ranks));
    add(run.cell.code());
  }
  return hash;
}

RankSpans spans_of(std::vector<Rank> ranks) {
  std::sort(ranks.begin(), ranks.end());
  RankSpans spans;
  for (const Rank rank : ranks) {
    if (!spans.empty() && rank < spans.back().end) continue;
    if (!spans.empty() && rank == spans.back().end) {
      ++spans.back().end;
    } else {
      spans.push_back({rank, rank + 1});
    }
  }
  return spans;
}

RankSpans common_of(const RankSpans& a, const RankSpans& b) {
  RankSpans out;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size(); ++(a[i].end < b[j].end ? i : j)) {
    const Rank first = std::max(a[i].first, b[j].first), end = std::min(a[i].end, b[j].end);
    if (first < end) out.push_back({first, end});
  }
  return out;
}

void append(RankCells& cells, Rank first, int32_t ranks, Cell cell) {
  if (ranks <= 0 || cell == Cell()) return;
  if (!cells.empty() && cells.back().end() == first && cells.back().cell == cell) {
    cells.back().ranks += ranks;
  } else {
    cells.push_back({first, ranks, cell});
  }
}

RankCells all_ranks(int32_t ranks, Cell cell) {
  RankCells cells;
  append(cells, Rank{0}, ranks, cell);
  return cells;
}

RankCells covered(const RankCells& cells, const RankCells& over) {
  return overlay(cells, over, [](Cell below, Cell above) { return above == Cell() ? below : above; });
}

RankCells with(const RankCells& cells, const RankSpans& ranks, Cell cell) {
  RankCells over;
  for (const RankSpan& span : ranks) append(over, span.first, span.end - span.first, cell);
  return covered(cells, over);
}

RankCells keeping_charges(const RankCells& fresh, const RankCells& before) {
  return overlay(fresh, before, [](Cell now, Cell then) {
    return now == Cell::degraded(kUnexplained) && then.is_degraded() ? then : now;
  });
}

}  // namespace lockstep::sle
