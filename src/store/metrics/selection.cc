#include "store/metrics/selection.h"

#include <algorithm>
#include <cmath>

namespace lockstep::metrics {
namespace {
constexpr uint32_t kNone = UINT32_MAX;

// Behind what is there where that is later anyway, merged where not.
void add_columns(SampleColumns& out, SampleColumns& more, const std::function<double(double, double)>* combine) {
  if (more.times_ms.empty()) return;
  if (out.times_ms.empty()) {
    std::swap(out, more);
    return;
  }
  if (more.times_ms.front() > out.times_ms.back() && out.histograms.empty() && more.histograms.empty()) {
    out.times_ms.insert(out.times_ms.end(), more.times_ms.begin(), more.times_ms.end());
    out.values.insert(out.values.end(), more.values.begin(), more.values.end());
    return;
  }
  if (combine != nullptr) {
    size_t i = 0;
    for (size_t k = 0; k < more.times_ms.size(); ++k) {
      while (i < out.times_ms.size() && out.times_ms[i] < more.times_ms[k]) ++i;
      if (i < out.times_ms.size() && out.times_ms[i] == more.times_ms[k])
        more.values[k] = (*combine)(out.values[i], more.values[k]);
    }
  }
  SampleColumns merged;
  merge_columns(out, more, merged);
  std::swap(out, merged);
}
uint32_t at(const std::vector<uint32_t>& list, size_t series) {
  return series < list.size() ? list[series] : kNone;
}
// Series that are asked for lie far apart in memory; so many before their turn the cells are sent for.
constexpr size_t kAhead = 4;
}  // namespace

void Selection::prefetch(size_t series, int64_t from_ms, int64_t to_ms) const {
  const HeadPlace place = head_[series];
  if (place.snapshot != kNone) snapshots_[place.snapshot].data.prefetch(place.slot, from_ms, to_ms);
}

uint32_t Selection::symbol_of(std::string_view text) {
  if (std::optional<uint32_t> known = symbols_->find(text); known && *known < first_extra_) return *known;
  auto known = extra_numbers_.find(text);
  if (known != extra_numbers_.end()) return known->second;
  extra_.emplace_back(text);
  const uint32_t number = first_extra_ + static_cast<uint32_t>(extra_.size() - 1);
  extra_numbers_.emplace(extra_.back(), number);
  return number;
}

Result<void> Selection::add_block(BlockPart part, const SeriesSet& set, const SeriesSet& last, bool is_first_indexed) {
  if (is_first_indexed) {
    sets_.index();
    if (first_extra_ == UINT32_MAX) first_extra_ = static_cast<uint32_t>(symbols_->size());
  }
  const Block& block = *part.block;
  std::vector<uint32_t> symbols(block.symbol_count(), kNone);
  auto symbol = [&](uint32_t number) {
    if (symbols[number] == kNone) symbols[number] = symbol_of(block.text(number));
    return symbols[number];
  };
  std::vector<LabelSymbols> labels;
  bool ok = true;
  const auto add = [&](uint32_t there, std::vector<uint32_t>& to) {
    if (!ok || !block.labels(there, labels)) {
      ok = false;
      return;
    }
    if (block.info().tier != 0)
      std::erase_if(labels, [&](const LabelSymbols& label) { return block.text(label.name) == kRollupLabel; });
    for (LabelSymbols& label : labels) label = {symbol(label.name), symbol(label.value)};
    const uint32_t series = sets_.add(labels);
    if (to.size() <= series) to.resize(series + 1, kNone);
    to[series] = there;
  };
  set.visit([&](uint32_t there) { add(there, part.there); });
  last.visit([&](uint32_t there) { add(there, part.last); });
  if (!ok) return Error{block.path() + ": its labels make no sense"};
  last_in_blocks_ms_ = std::max(last_in_blocks_ms_, block.info().last_ms);
  has_rollups_ |= block.info().tier != 0;
  const auto later = std::find_if(by_time_.begin(), by_time_.end(), [&](uint32_t other) {
    return blocks_[other].block->info().first_ms > block.info().first_ms;
  });
  by_time_.insert(later, static_cast<uint32_t>(blocks_.size()));
  blocks_.push_back(std::move(part));
  return {};
}

Result<void> Selection::samples(size_t series, int64_t from_ms, int64_t to_ms, SampleColumns& out) const {
  out.clear();
  if (series + kAhead < head_.size()) prefetch(series + kAhead, from_ms, to_ms);
  if (blocks_.empty() && rollup_ == Rollup::kLast) {  // the usual question is about what is in memory
    const HeadPlace place = head_[series];
    if (snapshots_[place.snapshot].sealing == nullptr) {
      snapshots_[place.snapshot].data.read(place.slot, from_ms, to_ms, out);
      return {};
    }
  }
  if (rollup_ == Rollup::kIncrease && read_counter(series, from_ms, to_ms, out)) return {};
  SampleColumns more, raw;
  const auto count_ones = [&](SampleColumns& columns) {
    for (size_t i = 0; i < columns.values.size(); ++i) {
      const bool is_histogram = !columns.histograms.empty() && columns.histograms[i] != nullptr;
      const double value = is_histogram ? columns.histograms[i]->sum : columns.values[i];
      columns.values[i] = is_stale(value) ? value : 1;
    }
    columns.histograms.clear();
  };
  const std::function<double(double, double)> combine = [&](double a, double b) { return combined(rollup_, a, b); };
  for (const BlockPart& part : blocks_) {
    const bool is_rollup = part.block->info().tier != 0;
    uint32_t there = at(part.there, series);
    const bool takes_last = is_rollup && (there == kNone || rollup_ == Rollup::kIncrease);
    if (takes_last) there = at(part.last, series);
    if (there == kNone) continue;
    more.clear();
    read_part(part, there, from_ms, to_ms, more);
    if (takes_last && rollup_ == Rollup::kCount) count_ones(more);
    if (!is_rollup) {
      add_columns(raw, more, nullptr);
    } else {
      add_columns(out, more, &combine);
    }
  }
  if (series < head_.size()) read_head(head_[series], from_ms, to_ms, more, raw);
  if (rollup_ == Rollup::kCount) count_ones(raw);
  add_columns(out, raw, nullptr);
  return {};
}

void Selection::read_part(const BlockPart& part, uint32_t there, int64_t from_ms, int64_t to_ms,
                          SampleColumns& out) const {
  const size_t damaged = part.block->read(there, std::max(from_ms, part.from_ms), std::min(to_ms, part.to_ms), out);
  if (damaged > 0) on_damage_(*part.block, damaged);
  for (const BlockPart::Deleted& deleted : part.deleted) {
    if (!deleted.series.has(there)) continue;
    SampleColumns kept;
    for (size_t i = 0; i < out.times_ms.size(); ++i) {
      if (out.times_ms[i] >= deleted.from_ms && out.times_ms[i] <= deleted.to_ms) continue;
      kept.times_ms.push_back(out.times_ms[i]);
      kept.values.push_back(out.values[i]);
      if (!out.histograms.empty()) kept.histograms.push_back(out.histograms[i]);
    }
    std::swap(out, kept);
  }
}

// A point of a rollup says what the counter had risen since the one before, resets included; raw samples are compared.
// False: histograms are among them, which tell their resets themselves.
bool Selection::read_counter(size_t series, int64_t from_ms, int64_t to_ms, SampleColumns& out) const {
  struct Point {
    int64_t time_ms;
    double value;
    double rise;  // absent(): to be compared with the value before
  };
  std::vector<Point> points;
  SampleColumns values, rises, more, raw;
  for (const BlockPart& part : blocks_) {
    const bool is_rollup = part.block->info().tier != 0;
    const uint32_t there = at(part.there, series), last = is_rollup ? at(part.last, series) : there;
    values.clear();
    rises.clear();
    if (last != kNone) read_part(part, last, from_ms, to_ms, values);
    if (!values.histograms.empty()) return false;
    if (!is_rollup) {
      add_columns(raw, values, nullptr);
      continue;
    }
    if (there != kNone) read_part(part, there, from_ms, to_ms, rises);
    size_t next = 0;
    for (size_t i = 0; i < values.times_ms.size(); ++i) {
      while (next < rises.times_ms.size() && rises.times_ms[next] < values.times_ms[i]) ++next;
      const bool has_rise = next < rises.times_ms.size() && rises.times_ms[next] == values.times_ms[i];
      points.push_back({values.times_ms[i], values.values[i], has_rise ? rises.values[next] : absent()});
    }
  }
  if (series < head_.size()) read_head(head_[series], from_ms, to_ms, more, raw);
  if (!raw.histograms.empty()) return false;
  for (size_t i = 0; i < raw.times_ms.size(); ++i) points.push_back({raw.times_ms[i], raw.values[i], absent()});
  std::stable_sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.time_ms < b.time_ms; });
  out.clear();
  double before = absent(), total = 0;
  for (const Point& point : points) {
    if (std::isnan(point.value)) continue;
    if (is_absent(before)) {
      // Where it began again within the point's stretch, it was worth more than it shows.
      total = is_absent(point.rise) ? point.value : std::max(point.value, point.rise);
    } else if (!is_absent(point.rise)) {
      total += point.rise;
    } else {
      total += point.value < before ? point.value : point.value - before;
    }
    before = point.value;
    if (!out.times_ms.empty() && out.times_ms.back() == point.time_ms) {
      out.values.back() = total;
    } else {
      out.times_ms.push_back(point.time_ms);
      out.values.push_back(total);
    }
  }
  return true;
}

void Selection::read_head(HeadPlace place, int64_t from_ms, int64_t to_ms, SampleColumns& more,
                          SampleColumns& out) const {
  if (place.snapshot == kNone) return;
  const GroupSnapshot& snapshot = snapshots_[place.snapshot];
  if (snapshot.sealing != nullptr) {
    more.clear();
    snapshot.sealing->read(place.slot, from_ms, to_ms, more);
    add_columns(out, more, nullptr);
  }
  more.clear();
  snapshot.data.read(place.slot, from_ms, to_ms, more);
  add_columns(out, more, nullptr);
}

Result<void> Selection::stretches(size_t series, int64_t from_ms, int64_t to_ms, const WindowEdges& edges,
                                  SampleColumns& out, std::vector<SampleStretch>& stretches) const {
  const bool as_they_are = rollup_ != Rollup::kCount && rollup_ != Rollup::kIncrease;
  if (!blocks_.empty() && as_they_are && read_apart(series, from_ms, to_ms, edges, out, stretches)) return {};
  stretches.clear();
  return samples(series, from_ms, to_ms, out);
}

// Blocks and memory one after the other in time. False: something of one lies within another or is deleted, and only
// the samples themselves can tell.
bool Selection::read_apart(size_t series, int64_t from_ms, int64_t to_ms, const WindowEdges& edges, SampleColumns& out,
                           std::vector<SampleStretch>& stretches) const {
  out.clear();
  stretches.clear();
  int64_t end_ms = INT64_MIN;
  for (uint32_t number : by_time_) {
    const BlockPart& part = blocks_[number];
    uint32_t there = at(part.there, series);
    if (there == kNone) there = at(part.last, series);
    if (there == kNone) continue;
    const Block& block = *part.block;
    if (block.has_histograms(there)) return false;
    for (const BlockPart::Deleted& deleted : part.deleted) {
      if (deleted.series.has(there)) return false;
    }
    const size_t samples_before = out.times_ms.size(), stretches_before = stretches.size();
    const size_t damaged =
        block.read(there, std::max(from_ms, part.from_ms), std::min(to_ms, part.to_ms), out, &edges, &stretches);
    if (damaged > 0) on_damage_(block, damaged);
    const int64_t begun_ms = end_ms;
    if (samples_before < out.times_ms.size()) {
      if (out.times_ms[samples_before] <= begun_ms) return false;
      end_ms = std::max(end_ms, out.times_ms.back());
    }
    if (stretches_before < stretches.size()) {
      if (stretches[stretches_before].first_ms <= begun_ms) return false;
      end_ms = std::max(end_ms, stretches.back().last_ms);
    }
  }
  if (series >= head_.size()) return true;
  SampleColumns more, head;
  read_head(head_[series], from_ms, to_ms, more, head);
  if (head.times_ms.empty()) return true;
  if (head.times_ms.front() <= end_ms || !head.histograms.empty()) return false;
  add_columns(out, head, nullptr);
  return true;
}

// The newest row has it but for series that have left: rows only get later, and blocks and what is being sealed end
// before them.
Result<void> Selection::newest(size_t series, int64_t from_ms, int64_t to_ms, SampleColumns& out) const {
  if (series + kAhead < head_.size()) prefetch(series + kAhead, INT64_MAX, INT64_MAX);
  const HeadPlace place = series < head_.size() ? head_[series] : HeadPlace{};
  if (place.snapshot != kNone && rollup_ == Rollup::kLast) {
    const GroupSnapshot& snapshot = snapshots_[place.snapshot];
    const GroupData& data = snapshot.data;
    for (size_t row = data.late.empty() && data.histograms.empty() ? data.open_rows : 0; row-- > 0;) {
      const int64_t time_ms = data.open->times_ms[row];
      if (time_ms > to_ms) continue;
      if (time_ms < from_ms || time_ms <= last_in_blocks_ms_ ||
          (snapshot.sealing != nullptr && time_ms <= snapshot.sealing->last_ms()))
        break;
      const double value = data.open->at(row, place.slot);
      if (is_absent(value)) continue;
      out.clear();
      out.times_ms.push_back(time_ms);
      out.values.push_back(value);
      return {};
    }
  }
  return MetricSelection::newest(series, from_ms, to_ms, out);
}

}  // namespace lockstep::metrics
