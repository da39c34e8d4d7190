#include "sle/rank_cells.h"

#include <algorithm>

namespace lockstep::sle {

uint64_t hash_of(const RankCells& cells) {
  uint64_t hash = 1469598103934665603ull;
  const auto add = [&hash](uint64_t value) { hash = (hash ^ value) * 1099511628211ull; };
  for (const RankRun& run : cells) {
    add(static_cast<uint64_t>(run.first));
    add(static_cast<uint64_t>(run.ranks));
    add(run.cell.code());
  }
  return hash;
}

RankSpans spans_of(std::vector<int32_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  RankSpans spans;
  for (const int32_t rank : ranks) {
    if (!spans.empty() && rank < spans.back().end) continue;
    if (!spans.empty() && rank == spans.back().end) {
      ++spans.back().end;
    } else {
      spans.push_back({rank, rank + 1});
    }
  }
  return spans;
}

void append(RankCells& cells, int32_t first, int32_t ranks, Cell cell) {
  if (ranks <= 0 || cell == Cell()) return;
  if (!cells.empty() && cells.back().end() == first && cells.back().cell == cell) {
    cells.back().ranks += ranks;
  } else {
    cells.push_back({first, ranks, cell});
  }
}

RankCells all_ranks(int32_t ranks, Cell cell) {
  RankCells cells;
  append(cells, 0, ranks, cell);
  return cells;
}

RankCells with(const RankCells& cells, const RankSpans& ranks, Cell cell) {
  RankCells out;
  size_t at = 0;
  for (const RankRun& run : cells) {
    int32_t from = run.first;
    while (from < run.end()) {
      while (at < ranks.size() && ranks[at].end <= from) ++at;
      const bool inside = at < ranks.size() && ranks[at].first <= from;
      int32_t to = run.end();
      if (inside) {
        to = std::min(to, ranks[at].end);
      } else if (at < ranks.size()) {
        to = std::min(to, ranks[at].first);
      }
      append(out, from, to - from, inside ? cell : run.cell);
      from = to;
    }
  }
  return out;
}

RankCells keeping_charges(const RankCells& fresh, const RankCells& before) {
  RankCells out;
  size_t at = 0;
  for (const RankRun& run : fresh) {
    if (!run.cell.is_degraded() || run.cell.owner() != kUnexplained) {
      append(out, run.first, run.ranks, run.cell);
      continue;
    }
    int32_t from = run.first;
    while (from < run.end()) {
      while (at < before.size() && before[at].end() <= from) ++at;
      const bool inside = at < before.size() && before[at].first <= from;
      int32_t to = run.end();
      if (inside) {
        to = std::min(to, before[at].end());
      } else if (at < before.size()) {
        to = std::min(to, before[at].first);
      }
      append(out, from, to - from, inside && before[at].cell.is_degraded() ? before[at].cell : run.cell);
      from = to;
    }
  }
  return out;
}

}  // namespace lockstep::sle
