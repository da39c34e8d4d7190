#include "store/metrics/group.h"

#include <algorithm>
#include <cstring>

namespace lockstep::metrics {

namespace {
constexpr size_t kNarrow = 64, kNarrowRows = 4;
}

void OpenRows::make(size_t row, int64_t time_ms, size_t width) {
  times_ms[row] = time_ms;
  widths[row] = static_cast<uint32_t>(width);
  const bool is_narrow = width <= kNarrow;
  if (is_narrow && row % kNarrowRows != 0 && widths[row - 1] == width) {
    rows[row] = rows[row - 1] + width;
  } else {
    owned.emplace_back(new double[is_narrow ? width * (kNarrowRows - row % kNarrowRows) : width]);
    rows[row] = owned.back().get();
  }
  std::fill(rows[row], rows[row] + width, absent());
}

Strip::Strip(const OpenRows& open, size_t rows) : rows_(static_cast<uint32_t>(rows)), width_(0) {
  for (size_t row = 0; row < rows; ++row) width_ = std::max(width_, open.widths[row]);
  columns_.reset(new Columns[width_ / kStride + 1]);
  std::copy(open.times_ms, open.times_ms + rows, times_ms_);
  thread_local std::string bytes;
  bytes.clear();
  double column[kStripRows];
  for (size_t slot = 0; slot < width_; ++slot) {
    if (slot % kStride == 0) columns_[slot / kStride].start = static_cast<uint32_t>(bytes.size());
    for (size_t row = 0; row < rows; ++row) column[row] = open.at(row, slot);
    const size_t before = bytes.size();
    encode_values({column, rows}, WithSummary::kNo, bytes);
    columns_[slot / kStride].sizes[slot % kStride] = static_cast<uint16_t>(bytes.size() - before);
  }
  bytes_count_ = static_cast<uint32_t>(bytes.size());
  bytes_.reset(new char[bytes.size()]);
  std::memcpy(bytes_.get(), bytes.data(), bytes.size());
}

void Strip::column(size_t slot, double* values) const {
  if (slot >= width_) {
    std::fill(values, values + rows_, absent());
    return;
  }
  const Columns& columns = columns_[slot / kStride];
  const size_t place = slot % kStride;
  size_t at = columns.start;
  for (size_t i = 0; i < place; ++i) at += columns.sizes[i];
  if (!decode_values({bytes_.get() + at, columns.sizes[place]}, rows_, values))
    std::fill(values, values + rows_, absent());
}

size_t Strip::memory_bytes() const {
  return sizeof(Strip) + (width_ / kStride + 1) * sizeof(Columns) + bytes_count_ + 64;
}

int64_t GroupData::first_ms() const {
  int64_t first = INT64_MAX;
  if (!strips.empty()) first = strips.front()->first_ms();
  if (open_rows > 0) first = std::min(first, open->times_ms[0]);
  if (!late.empty()) first = std::min(first, late.begin()->first);
  for (const auto& [slot, samples] : histograms) {
    if (!samples.empty()) first = std::min(first, samples.front().time_ms);
  }
  return first;
}

int64_t GroupData::last_ms() const {
  int64_t last = INT64_MIN;
  if (!strips.empty()) last = strips.back()->last_ms();
  if (open_rows > 0) last = std::max(last, open->times_ms[open_rows - 1]);
  if (!late.empty()) last = std::max(last, late.rbegin()->first);
  for (const auto& [slot, samples] : histograms) {
    if (!samples.empty()) last = std::max(last, samples.back().time_ms);
  }
  return last;
}

void merge_columns(const SampleColumns& first, const SampleColumns& second, SampleColumns& out) {
  out.clear();
  const bool has_histograms = !first.histograms.empty() || !second.histograms.empty();
  auto take = [&](const SampleColumns& from, size_t at) {
    out.times_ms.push_back(from.times_ms[at]);
    out.values.push_back(from.values[at]);
    if (has_histograms) out.histograms.push_back(from.histograms.empty() ? nullptr : from.histograms[at]);
  };
  size_t i = 0, k = 0;
  while (i < first.times_ms.size() || k < second.times_ms.size()) {
    if (k == second.times_ms.size()) {
      take(first, i++);
    } else if (i == first.times_ms.size() || second.times_ms[k] < first.times_ms[i]) {
      take(second, k++);
    } else if (first.times_ms[i] < second.times_ms[k]) {
      take(first, i++);
    } else {
      ++i;
      take(second, k++);
    }
  }
}

void GroupData::prefetch(size_t slot, int64_t from_ms, int64_t to_ms) const {
  for (size_t i = open_rows; i-- > 0;) {
    if (open->times_ms[i] <= to_ms && slot < open->widths[i]) __builtin_prefetch(open->rows[i] + slot);
    if (open->times_ms[i] < from_ms) break;  // the newest in any case
  }
  for (const std::shared_ptr<const Strip>& strip : strips) {
    if (strip->last_ms() >= from_ms && strip->first_ms() <= to_ms) strip->prefetch(slot);
  }
}

void GroupData::read(size_t slot, int64_t from_ms, int64_t to_ms, SampleColumns& out) const {
  double values[kStripRows];
  auto take = [&](std::span<const int64_t> times, const double* cells) {
    for (size_t i = 0; i < times.size(); ++i) {
      if (times[i] < from_ms || times[i] > to_ms || is_absent(cells[i])) continue;
      out.times_ms.push_back(times[i]);
      out.values.push_back(cells[i]);
    }
  };
  for (const std::shared_ptr<const Strip>& strip : strips) {
    if (strip->last_ms() < from_ms || strip->first_ms() > to_ms) continue;
    strip->column(slot, values);
    take(strip->times_ms(), values);
  }
  for (size_t i = 0; i < open_rows; ++i) {
    if (open->times_ms[i] < from_ms || open->times_ms[i] > to_ms) continue;
    values[i] = open->at(i, slot);
    take({open->times_ms + i, 1}, values + i);
  }
  if (late.empty() && histograms.empty()) return;
  SampleColumns beside;
  for (auto row = late.lower_bound(from_ms); row != late.end() && row->first <= to_ms; ++row) {
    if (slot >= row->second->cells.size()) continue;
    const double value = load_cell(row->second->cells[slot]);
    if (is_absent(value)) continue;
    beside.times_ms.push_back(row->first);
    beside.values.push_back(value);
  }
  SampleColumns merged;
  if (!beside.times_ms.empty()) {
    merge_columns(out, beside, merged);
    std::swap(out, merged);
  }
  auto known = histograms.find(static_cast<uint32_t>(slot));
  if (known == histograms.end()) return;
  beside.clear();
  for (const HistogramSample& sample : known->second) {
    if (sample.time_ms < from_ms || sample.time_ms > to_ms) continue;
    beside.times_ms.push_back(sample.time_ms);
    beside.values.push_back(sample.histogram->sum);
    beside.histograms.push_back(sample.histogram);
  }
  if (beside.times_ms.empty()) return;
  merge_columns(out, beside, merged);
  std::swap(out, merged);
}

double GroupData::at(size_t slot, int64_t time_ms) const {
  if (auto row = late.find(time_ms); row != late.end() && slot < row->second->cells.size()) {
    const double value = load_cell(row->second->cells[slot]);
    if (!is_absent(value)) return value;
  }
  for (size_t i = 0; i < open_rows; ++i) {
    if (open->times_ms[i] == time_ms) return open->at(i, slot);
  }
  for (const std::shared_ptr<const Strip>& strip : strips) {
    if (strip->last_ms() < time_ms || strip->first_ms() > time_ms) continue;
    const std::span<const int64_t> times = strip->times_ms();
    const auto place = std::lower_bound(times.begin(), times.end(), time_ms);
    if (place == times.end() || *place != time_ms) continue;
    double values[kStripRows];
    strip->column(slot, values);
    return values[place - times.begin()];
  }
  return absent();
}

GroupData joined(const GroupData& older, GroupData newer) {
  GroupData both;
  both.strips = older.strips;
  if (older.open_rows > 0) both.strips.push_back(std::make_shared<const Strip>(*older.open, older.open_rows));
  both.strips.insert(both.strips.end(), newer.strips.begin(), newer.strips.end());
  both.open = std::move(newer.open);
  both.open_rows = newer.open_rows;
  both.late = std::move(newer.late);
  for (const auto& [time_ms, row] : older.late) {
    std::shared_ptr<LateRow>& known = both.late[time_ms];
    auto merged = std::make_shared<LateRow>(*row);
    if (known != nullptr) {
      merged->cells.resize(std::max(merged->cells.size(), known->cells.size()), absent());
      for (size_t i = 0; i < known->cells.size(); ++i) {
        if (!is_absent(known->cells[i])) merged->cells[i] = known->cells[i];
      }
    }
    known = std::move(merged);
  }
  both.histograms = older.histograms;
  for (auto& [slot, samples] : newer.histograms) {
    std::vector<HistogramSample>& list = both.histograms[slot];
    list.insert(list.end(), samples.begin(), samples.end());
    std::stable_sort(list.begin(), list.end(),
                     [](const HistogramSample& a, const HistogramSample& b) { return a.time_ms < b.time_ms; });
    // Of two of one time the later stays.
    std::vector<HistogramSample> once;
    for (HistogramSample& sample : list) {
      if (!once.empty() && once.back().time_ms == sample.time_ms) once.pop_back();
      once.push_back(std::move(sample));
    }
    list = std::move(once);
  }
  return both;
}

void Group::close_strip(size_t& strip_bytes) {
  if (data.open_rows == 0) return;
  auto strip = std::make_shared<const Strip>(*data.open, data.open_rows);
  strip_bytes += strip->memory_bytes();
  data.strips.push_back(std::move(strip));
  // A snapshot may still read the rows: they are its own from now on.
  data.open = nullptr;
  data.open_rows = 0;
  row_before_epoch = last_row_epoch = 0;
}

Group::Row Group::row(int64_t time_ms, uint64_t epoch, size_t& strip_bytes) {
  const size_t width = series.size();
  if (time_ms > last_ms) {
    if (data.open_rows == kStripRows) close_strip(strip_bytes);
    if (data.open == nullptr) data.open = std::make_shared<OpenRows>();
    OpenRows& open = *data.open;
    open.make(data.open_rows, time_ms, width);
    last_ms = time_ms;
    row_before_epoch = data.open_rows > 0 ? last_row_epoch : 0;
    last_row_epoch = epoch;
    // A narrower row before is not referred to.
    const double* before = nullptr;
    if (data.open_rows > 0 && row_before_epoch == epoch && open.widths[data.open_rows - 1] == width)
      before = open.rows[data.open_rows - 1];
    return {open.rows[data.open_rows++], before, false, false};
  }
  for (size_t i = data.open_rows; i-- > 0;) {
    if (data.open->times_ms[i] != time_ms) continue;
    if (data.open->widths[i] < width) {  // series that came after the row was made; a snapshot may read the old one
      auto wider = std::make_shared<OpenRows>();
      for (size_t row = 0; row < data.open_rows; ++row) {
        wider->make(row, data.open->times_ms[row], width);
        const double* from = data.open->rows[row];
        std::copy(from, from + data.open->widths[row], wider->rows[row]);
      }
      data.open = std::move(wider);
    }
    const bool is_last = i + 1 == data.open_rows;
    const bool may_refer = is_last && i > 0 && row_before_epoch == epoch && data.open->widths[i - 1] == width;
    return {data.open->rows[i], may_refer ? data.open->rows[i - 1] : nullptr, false, false};
  }
  std::shared_ptr<LateRow>& late = data.late[time_ms];
  if (late == nullptr || late->cells.size() < width) {
    auto wider = std::make_shared<LateRow>(width);
    if (late != nullptr) std::copy(late->cells.begin(), late->cells.end(), wider->cells.begin());
    strip_bytes += (width - (late != nullptr ? late->cells.size() : 0)) * 8 + 100;
    late = std::move(wider);
  }
  const bool in_strips = !data.strips.empty() && time_ms <= data.strips.back()->last_ms();
  return {late->cells.data(), nullptr, true, in_strips || sealing != nullptr};
}

double Group::older(size_t slot, int64_t time_ms) const {
  const double value = data.at(slot, time_ms);
  if (!is_absent(value) || sealing == nullptr) return value;
  return sealing->at(slot, time_ms);
}

}  // namespace lockstep::metrics
