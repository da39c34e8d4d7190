#include "store/metrics/group.h"

#include <algorithm>
#include <cstring>

namespace lockstep::metrics {

Strip::Strip(std::span<const int64_t> times_ms, const double* cells, size_t width)
    : rows_(static_cast<uint32_t>(times_ms.size())),
      width_(static_cast<uint32_t>(width)),
      starts_(new uint32_t[width / kStride + 2]),
      sizes_(new uint16_t[width]) {
  std::copy(times_ms.begin(), times_ms.end(), times_ms_);
  thread_local std::string bytes;
  bytes.clear();
  double column[kStripRows];
  for (size_t slot = 0; slot < width; ++slot) {
    if (slot % kStride == 0) starts_[slot / kStride] = static_cast<uint32_t>(bytes.size());
    for (size_t row = 0; row < rows_; ++row) column[row] = cells[row * width + slot];
    const size_t before = bytes.size();
    encode_values({column, rows_}, WithSummary::kNo, bytes);
    sizes_[slot] = static_cast<uint16_t>(bytes.size() - before);
  }
  starts_[(width + kStride - 1) / kStride] = static_cast<uint32_t>(bytes.size());
  bytes_.reset(new char[bytes.size()]);
  std::memcpy(bytes_.get(), bytes.data(), bytes.size());
}

void Strip::column(size_t slot, double* values) const {
  if (slot >= width_) {
    std::fill(values, values + rows_, absent());
    return;
  }
  size_t at = starts_[slot / kStride];
  for (size_t i = slot / kStride * kStride; i < slot; ++i) at += sizes_[i];
  if (!decode_values({bytes_.get() + at, sizes_[slot]}, rows_, values)) std::fill(values, values + rows_, absent());
}

size_t Strip::memory_bytes() const {
  return sizeof(Strip) + width_ * 2 + (width_ / kStride + 2) * 4 + starts_[(width_ + kStride - 1) / kStride] + 64;
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
  if (open_rows > 0 && slot < open->width && open->times_ms[open_rows - 1] >= from_ms && open->times_ms[0] <= to_ms) {
    for (size_t i = 0; i < open_rows; ++i) values[i] = load_cell(open->row(i)[slot]);
    take({open->times_ms, open_rows}, values);
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
  if (open_rows > 0 && slot < open->width) {
    for (size_t i = 0; i < open_rows; ++i) {
      if (open->times_ms[i] == time_ms) return load_cell(open->row(i)[slot]);
    }
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
  if (older.open_rows > 0)
    both.strips.push_back(std::make_shared<const Strip>(std::span<const int64_t>(older.open->times_ms, older.open_rows),
                                                        older.open->cells.get(), older.open->width));
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
  auto strip = std::make_shared<const Strip>(std::span<const int64_t>(data.open->times_ms, data.open_rows),
                                             data.open->cells.get(), data.open->width);
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
    if (data.open == nullptr || data.open_rows == data.open->capacity || data.open->width < width) {
      const size_t capacity = std::min(kStripRows, std::max<size_t>(2, data.open_rows < 2 ? 2 : data.open_rows * 2));
      auto wider = std::make_shared<OpenRows>(capacity, width);
      for (size_t i = 0; i < data.open_rows; ++i) {
        double* to = wider->row(i);
        const double* from = data.open->row(i);
        std::copy(from, from + data.open->width, to);
        std::fill(to + data.open->width, to + width, absent());
        wider->times_ms[i] = data.open->times_ms[i];
      }
      data.open = std::move(wider);
    }
    OpenRows& open = *data.open;
    open.times_ms[data.open_rows] = time_ms;
    double* cells = open.row(data.open_rows);
    std::fill(cells, cells + open.width, absent());
    last_ms = time_ms;
    row_before_epoch = data.open_rows > 0 ? last_row_epoch : 0;
    last_row_epoch = epoch;
    const double* before = row_before_epoch == epoch ? open.row(data.open_rows - 1) : nullptr;
    ++data.open_rows;
    return {cells, before, false, false};
  }
  if (data.open_rows > 0) {
    if (data.open->width < width) {  // series that came after the row was made
      auto wider = std::make_shared<OpenRows>(data.open->capacity, width);
      for (size_t i = 0; i < data.open_rows; ++i) {
        std::copy(data.open->row(i), data.open->row(i) + data.open->width, wider->row(i));
        std::fill(wider->row(i) + data.open->width, wider->row(i) + width, absent());
        wider->times_ms[i] = data.open->times_ms[i];
      }
      data.open = std::move(wider);
    }
    for (size_t i = data.open_rows; i-- > 0;) {
      if (data.open->times_ms[i] != time_ms) continue;
      const bool is_last = i + 1 == data.open_rows;
      return {data.open->row(i), is_last && i > 0 && row_before_epoch == epoch ? data.open->row(i - 1) : nullptr, false,
              false};
    }
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
