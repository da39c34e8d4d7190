#include "sle/minute_runs.h"

#include <algorithm>

namespace lockstep::sle {

size_t MinuteRuns::place_of(int32_t minute) const {
  return static_cast<size_t>(std::upper_bound(runs_.begin(), runs_.end(), minute,
                                              [](int32_t m, const MinuteRun& run) { return m < run.end; }) -
                             runs_.begin());
}

uint32_t MinuteRuns::at(int32_t minute) const {
  const size_t place = place_of(minute);
  return place < runs_.size() && runs_[place].first <= minute ? runs_[place].value : 0;
}

bool MinuteRuns::append(MinuteRun run) {
  if (run.value == 0 || run.first >= run.end || (!runs_.empty() && run.first < runs_.back().end)) return false;
  if (!runs_.empty() && runs_.back().end == run.first && runs_.back().value == run.value) {
    runs_.back().end = run.end;
  } else {
    runs_.push_back(run);
  }
  return true;
}

void MinuteRuns::set(int32_t minute, uint32_t value) {
  if (value != 0 && append({minute, minute + 1, value})) return;
  if (at(minute) == value) return;
  size_t place = place_of(minute);
  // Nothing is left of what this minute had.
  if (place < runs_.size() && runs_[place].first <= minute) {
    const MinuteRun old = runs_[place];
    std::vector<MinuteRun> rest;
    if (old.first < minute) rest.push_back({old.first, minute, old.value});
    if (minute + 1 < old.end) rest.push_back({minute + 1, old.end, old.value});
    const auto at_place = runs_.erase(runs_.begin() + static_cast<ptrdiff_t>(place));
    runs_.insert(at_place, rest.begin(), rest.end());
    place = place_of(minute);
  }
  if (value == 0) return;
  const bool joins_left = place > 0 && runs_[place - 1].end == minute && runs_[place - 1].value == value;
  const bool joins_right = place < runs_.size() && runs_[place].first == minute + 1 && runs_[place].value == value;
  if (joins_left && joins_right) {
    runs_[place - 1].end = runs_[place].end;
    runs_.erase(runs_.begin() + static_cast<ptrdiff_t>(place));
  } else if (joins_left) {
    runs_[place - 1].end = minute + 1;
  } else if (joins_right) {
    runs_[place].first = minute;
  } else {
    runs_.insert(runs_.begin() + static_cast<ptrdiff_t>(place), {minute, minute + 1, value});
  }
}

void MinuteRuns::drop_before(int32_t minute) {
  runs_.erase(runs_.begin(), runs_.begin() + static_cast<ptrdiff_t>(place_of(minute - 1)));
  while (!runs_.empty() && runs_.front().end <= minute) runs_.erase(runs_.begin());
  if (!runs_.empty()) runs_.front().first = std::max(runs_.front().first, minute);
}

std::span<const MinuteRun> MinuteRuns::within(int32_t from, int32_t to) const {
  if (from >= to) return {};
  const size_t first = place_of(from);
  size_t last = first;
  while (last < runs_.size() && runs_[last].first < to) ++last;
  return std::span(runs_).subspan(first, last - first);
}

}  // namespace lockstep::sle
