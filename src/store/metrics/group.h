// A group: series that are written together and share their times. In memory its newest samples are rows (one time, a
// value per series); every sixteen rows become a strip, encoded column by column; what comes later than its neighbours
// is kept beside as rows of its own.
//
// A row is a plain array, so that a push of known series is a copy; a series whose value never changes costs eight
// bytes a row until the strip is made, and two to five bytes from then on.
// Reading: GroupData copied under the shard's lock is a snapshot: strips never change, rows are only added behind those
//   that were counted, and a cell is only ever set from absent() to a value or to a later value for the same time. That
//   is why cells are read and written as relaxed atomics.
// Thread rule: under the shard's lock; a copy of GroupData may be read without it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/native_histogram.h"
#include "store/metric_reader.h"
#include "store/metrics/chunk_codec.h"
#include "store/metrics/run_array.h"

namespace lockstep::metrics {

inline constexpr size_t kStripRows = 16;

inline double load_cell(const double& cell) {
  return std::atomic_ref<double>(const_cast<double&>(cell)).load(std::memory_order_relaxed);
}
inline void store_cell(double& cell, double value) {
  std::atomic_ref<double>(cell).store(value, std::memory_order_relaxed);
}

// Rows that are still added to, each as wide as the group was when it was made. Wide ones take memory one by one, so
// that there is none for rows to come; narrow ones some at once, where each alone would mostly be overhead.
struct OpenRows {
  int64_t times_ms[kStripRows] = {};
  double* rows[kStripRows] = {};
  uint32_t widths[kStripRows] = {};
  std::vector<std::unique_ptr<double[]>> owned;
  void make(size_t row, int64_t time_ms, size_t width);
  double at(size_t row, size_t slot) const { return slot < widths[row] ? load_cell(rows[row][slot]) : absent(); }
};

class Strip {
 public:
  // The first `rows` of them, at least one.
  Strip(const OpenRows& open, size_t rows);

  std::span<const int64_t> times_ms() const { return {times_ms_, rows_}; }
  int64_t first_ms() const { return times_ms_[0]; }
  int64_t last_ms() const { return times_ms_[rows_ - 1]; }
  size_t rows() const { return rows_; }
  void column(size_t slot, double* values) const;  // rows() of them
  void prefetch(size_t slot) const {
    if (slot < width_) __builtin_prefetch(&columns_[slot / kStride]);
  }
  size_t memory_bytes() const;

 private:
  static constexpr size_t kStride = 16;
  int64_t times_ms_[kStripRows];
  uint32_t rows_;
  uint32_t width_;
  uint32_t bytes_count_ = 0;
  struct Columns {  // kStride of them, side by side in bytes_
    uint32_t start;
    uint16_t sizes[kStride];
  };
  std::unique_ptr<Columns[]> columns_;
  std::unique_ptr<char[]> bytes_;
};

struct LateRow {
  explicit LateRow(size_t width) : cells(width, absent()) {}
  std::vector<double> cells;
};

struct HistogramSample {
  int64_t time_ms = 0;
  std::shared_ptr<const NativeHistogram> histogram;
};

struct GroupData {
  std::vector<std::shared_ptr<const Strip>> strips;
  std::shared_ptr<OpenRows> open;
  size_t open_rows = 0;
  std::map<int64_t, std::shared_ptr<LateRow>> late;
  std::map<uint32_t, std::vector<HistogramSample>> histograms;  // by slot, by time

  bool empty() const { return strips.empty() && open_rows == 0 && late.empty() && histograms.empty(); }
  int64_t first_ms() const;  // INT64_MAX: nothing
  int64_t last_ms() const;   // INT64_MIN: nothing
  bool overlaps(int64_t from_ms, int64_t to_ms) const { return first_ms() <= to_ms && last_ms() >= from_ms; }
  // Soon to be read, so on its way from memory.
  void prefetch(size_t slot, int64_t from_ms, int64_t to_ms) const;
  // Appended: the series' samples of this range, in time order, each time once.
  void read(size_t slot, int64_t from_ms, int64_t to_ms, SampleColumns& out) const;
  // The value of this very time, or absent().
  double at(size_t slot, int64_t time_ms) const;
};

// Both as one; of equal times the newer's count.
GroupData joined(const GroupData& older, GroupData newer);

struct Group {
  RunArray series;  // by slot
  GroupData data;
  std::shared_ptr<const GroupData> sealing;  // on its way to a block
  int64_t last_ms = INT64_MIN;
  uint64_t last_row_epoch = 0, row_before_epoch = 0;  // segments of the log in which these rows were made

  struct Row {
    double* cells = nullptr;
    const double* before = nullptr;  // the row before, where the log may refer to it
    bool is_late = false;
    bool may_repeat = false;  // a strip or a part that is being sealed may have this time
  };
  // Makes it where there is none. `bytes` is told how much memory strips take now.
  Row row(int64_t time_ms, uint64_t epoch, size_t& strip_bytes);
  // What is there already of an older time, or absent().
  double older(size_t slot, int64_t time_ms) const;

 private:
  void close_strip(size_t& strip_bytes);
};

// Merges sorted columns into sorted columns; of equal times the second's count.
void merge_columns(const SampleColumns& first, const SampleColumns& second, SampleColumns& out);

}  // namespace lockstep::metrics
