// How one SLE judged one minute of a job, for all of its ranks: runs of ranks with the same cell. Most minutes are one
// run: every GPU good.
//
// Thread rule: Immutable values, pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "model/ids.h"

namespace lockstep::sle {

// Good, unknown, idle by plan, or degraded and charged to exactly one owner (a row of a table that is told beside it).
class Cell {
 public:
  constexpr Cell() = default;
  static constexpr Cell good() { return Cell(1); }
  static constexpr Cell unknown() { return Cell(2); }
  static constexpr Cell idle() { return Cell(kIdle); }
  static constexpr Cell degraded(uint32_t owner) { return Cell(3 + owner); }
  static constexpr Cell of_code(uint32_t code) { return Cell(code); }
  constexpr uint32_t code() const { return code_; }
  constexpr bool is_good() const { return code_ == 1; }
  constexpr bool is_unknown() const { return code_ == 2; }
  constexpr bool is_idle() const { return code_ == kIdle; }
  constexpr bool is_degraded() const { return code_ >= 3 && code_ != kIdle; }
  constexpr uint32_t owner() const { return code_ - 3; }  // of a degraded one
  bool operator==(const Cell&) const = default;

 private:
  static constexpr uint32_t kIdle = INT32_MAX;  // beyond any owner
  constexpr explicit Cell(uint32_t code) : code_(code) {}
  uint32_t code_ = 0;  // 0: no GPU-minute of this SLE
};
inline constexpr uint32_t kUnexplained = 0;  // the owner of what nobody explains

struct RankRun {
  Rank first;
  int32_t ranks = 0;
  Cell cell;
  bool operator==(const RankRun&) const = default;
  Rank end() const { return first + ranks; }
};
// Sorted; no two overlap; neighbours differ; none is empty or of code 0.
using RankCells = std::vector<RankRun>;

struct RankSpan {
  Rank first;
  Rank end;  // behind its last
  bool operator==(const RankSpan&) const = default;
};
// Sorted and apart.
using RankSpans = std::vector<RankSpan>;
uint64_t hash_of(const RankCells& cells);
inline RankSpans every_rank() {
  return {{Rank{0}, Rank{INT32_MAX}}};
}
RankSpans spans_of(std::vector<Rank> ranks);  // in any order, also twice
RankSpans common_of(const RankSpans& a, const RankSpans& b);

// Adds ranks behind the last: what follows an equal run joins it.
void append(RankCells& cells, Rank first, int32_t ranks, Cell cell);
RankCells all_ranks(int32_t ranks, Cell cell);
// Each rank of `base` with choose(its cell there, its cell in `over`); Cell() where it has none there.
template <typename Choose>
RankCells overlay(const RankCells& base, const RankCells& over, const Choose& choose) {
  RankCells out;
  size_t at = 0;
  for (const RankRun& run : base) {
    for (Rank from = run.first; from < run.end();) {
      while (at < over.size() && over[at].end() <= from) ++at;
      const bool inside = at < over.size() && over[at].first <= from;
      Rank to = run.end();
      if (at < over.size()) to = std::min(to, inside ? over[at].end() : over[at].first);
      append(out, from, to - from, choose(run.cell, inside ? over[at].cell : Cell()));
      from = to;
    }
  }
  return out;
}
// `cells`, and where `over` has a cell, that one.
RankCells covered(const RankCells& cells, const RankCells& over);
// `cells` with these ranks set to `cell`, where they are there at all.
RankCells with(const RankCells& cells, const RankSpans& ranks, Cell cell);
// Calls visit(first, ranks, cell) for the parts that lie in the spans.
template <typename Visit>
void visit_within(const RankCells& cells, const RankSpans& spans, const Visit& visit) {
  size_t at = 0;
  for (const RankRun& run : cells) {
    while (at < spans.size() && spans[at].end <= run.first) ++at;
    for (size_t i = at; i < spans.size() && spans[i].first < run.end(); ++i) {
      const Rank first = std::max(run.first, spans[i].first), end = std::min(run.end(), spans[i].end);
      if (first < end) visit(first, end - first, run.cell);
    }
  }
}

// What is measured anew keeps the charge that was made before: a rank that is degraded in both, and that nobody explains
// in `fresh`, stays charged as in `before`.
RankCells keeping_charges(const RankCells& fresh, const RankCells& before);
// Every degraded rank for which may_take(owner now) holds is charged to `owner`.
template <typename MayTake>
RankCells charged(const RankCells& cells, uint32_t owner, const MayTake& may_take) {
  RankCells out;
  for (const RankRun& run : cells) {
    const bool takes = run.cell.is_degraded() && may_take(run.cell.owner());
    append(out, run.first, run.ranks, takes ? Cell::degraded(owner) : run.cell);
  }
  return out;
}

}  // namespace lockstep::sle
