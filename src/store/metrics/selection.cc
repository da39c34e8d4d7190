#include "store/metrics/selection.h"

#include <algorithm>

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
// Series that are asked for lie far apart in memory; so many before their turn the cells are sent for.
constexpr size_t kAhead = 4;
}  // namespace

void Selection::prefetch(size_t series, int64_t from_ms, int64_t to_ms) const {
  const HeadPlace place = head_[series];
  if (place.snapshot != kNone) snapshots_[place.snapshot].data.prefetch(place.slot, from_ms, to_ms);
}

uint32_t Selection::symbol_of(std::string_view text) {
  if (std::optional<uint32_t> known = symbols_.find(text)) return *known;
  auto known = extra_numbers_.find(text);
  if (known != extra_numbers_.end()) return known->second;
  extra_.emplace_back(text);
  const uint32_t number = kExtra + static_cast<uint32_t>(extra_.size() - 1);
  extra_numbers_.emplace(extra_.back(), number);
  return number;
}

Result<void> Selection::add_block(BlockPart part, const SeriesSet& set, bool is_first_indexed) {
  if (is_first_indexed) sets_.index();
  const Block& block = *part.block;
  std::vector<uint32_t> symbols(block.symbol_count(), kNone);
  auto symbol = [&](uint32_t number) {
    if (symbols[number] == kNone) symbols[number] = symbol_of(block.text(number));
    return symbols[number];
  };
  std::vector<LabelSymbols> labels;
  bool ok = true;
  set.visit([&](uint32_t there) {
    if (!ok || !block.labels(there, labels)) {
      ok = false;
      return;
    }
    if (block.info().tier != 0)
      std::erase_if(labels, [&](const LabelSymbols& label) { return block.text(label.name) == kRollupLabel; });
    for (LabelSymbols& label : labels) label = {symbol(label.name), symbol(label.value)};
    const uint32_t series = sets_.add(labels);
    if (part.there.size() <= series) part.there.resize(series + 1, kNone);
    part.there[series] = there;
  });
  if (!ok) return Error{block.path() + ": its labels make no sense"};
  last_in_blocks_ms_ = std::max(last_in_blocks_ms_, block.info().last_ms);
  blocks_.push_back(std::move(part));
  return {};
}

// Raw samples as the points of a rollup.
void Selection::as_points(SampleColumns& out, double before) const {
  if (rollup_ == Rollup::kCount) {
    for (double& value : out.values) value = is_stale(value) ? value : 1;
  } else if (rollup_ == Rollup::kIncrease) {
    for (double& value : out.values) {
      if (is_stale(value)) continue;
      const double now = value;
      value = is_absent(before) ? 0 : now < before ? now : now - before;
      before = now;
    }
  }
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
  SampleColumns more, raw;
  const std::function<double(double, double)> combine = [&](double a, double b) { return combined(rollup_, a, b); };
  for (const BlockPart& part : blocks_) {
    const uint32_t there = series < part.there.size() ? part.there[series] : kNone;
    if (there == kNone) continue;
    more.clear();
    const size_t damaged = part.block->read(there, std::max(from_ms, part.from_ms), std::min(to_ms, part.to_ms), more);
    if (damaged > 0) on_damage_(*part.block, damaged);
    for (const BlockPart::Deleted& deleted : part.deleted) {
      if (!deleted.series.has(there)) continue;
      SampleColumns kept;
      for (size_t i = 0; i < more.times_ms.size(); ++i) {
        if (more.times_ms[i] >= deleted.from_ms && more.times_ms[i] <= deleted.to_ms) continue;
        kept.times_ms.push_back(more.times_ms[i]);
        kept.values.push_back(more.values[i]);
        if (!more.histograms.empty()) kept.histograms.push_back(more.histograms[i]);
      }
      std::swap(more, kept);
    }
    if (part.block->info().tier == 0) {
      add_columns(raw, more, nullptr);
    } else {
      add_columns(out, more, &combine);
    }
  }
  if (const HeadPlace place = series < head_.size() ? head_[series] : HeadPlace{}; place.snapshot != kNone) {
    const GroupSnapshot& snapshot = snapshots_[place.snapshot];
    if (snapshot.sealing != nullptr) {
      more.clear();
      snapshot.sealing->read(place.slot, from_ms, to_ms, more);
      add_columns(raw, more, nullptr);
    }
    more.clear();
    snapshot.data.read(place.slot, from_ms, to_ms, more);
    add_columns(raw, more, nullptr);
  }
  if (rollup_ != Rollup::kLast) as_points(raw, absent());
  add_columns(out, raw, nullptr);
  return {};
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
