// What the write-ahead log of metrics says, as bytes: a record is a list of items, all of one push.
//
// Records are small because they refer to what was said before in the same segment: texts by number, series by group
// and slot, a row of values by what changed since the row before. A segment's first rows and texts are said in full, so
// that a segment that cannot be read spoils no other. docs/formats/metric-blocks.md has the bytes.
// On error: reading takes nothing on trust; a record that is none is false, and what it said until there stands.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/metric_descriptor.h"
#include "model/native_histogram.h"
#include "store/columns/byte_codec.h"
#include "store/metric_reader.h"

namespace lockstep::metrics {

// A row of values against the row before (nullptr: against zeros), byte by byte of what differs.
void pack_row(std::span<const double> values, const double* before, std::string& out);
bool unpack_row(columns::ByteReader& in, size_t count, const double* before, double* values);

void encode_histogram(const NativeHistogram& histogram, std::string& out);
bool decode_histogram(columns::ByteReader& in, NativeHistogram& histogram);

inline constexpr size_t kGroupSlotsMax = 4096;

// Labels of several series, one after the other.
struct LabelRows {
  std::vector<LabelSymbols> labels;
  std::vector<uint32_t> ends;
  size_t size() const { return ends.size(); }
  std::span<const LabelSymbols> operator[](size_t at) const {
    const uint32_t start = at == 0 ? 0 : ends[at - 1];
    return std::span(labels).subspan(start, ends[at] - start);
  }
  void end() { ends.push_back(static_cast<uint32_t>(labels.size())); }
  void clear() {
    labels.clear();
    ends.clear();
  }
};

class WalRecordWriter {
 public:
  // Everything said so far is forgotten: a new segment.
  void begin_segment() {
    numbers_.clear();
    texts_ = 0;
  }
  void clear() {
    bytes_.clear();
    time_ms_ = 0;
  }
  // Symbols have other numbers now, by the old ones; UINT32_MAX: none any more. What the segment calls them stays.
  void renumber(std::span<const uint32_t> symbols) {
    std::vector<uint32_t> numbers;
    for (size_t i = 0; i < std::min(numbers_.size(), symbols.size()); ++i) {
      if (numbers_[i] == 0 || symbols[i] == UINT32_MAX) continue;
      if (symbols[i] >= numbers.size()) numbers.resize(symbols[i] + 1, 0);
      numbers[symbols[i]] = numbers_[i];
    }
    numbers_ = std::move(numbers);
  }
  bool empty() const { return bytes_.empty(); }
  const std::string& bytes() const { return bytes_; }

  // Series of a group, from this slot on. labels(i), i < count, and text(symbol) are asked for.
  template <typename LabelsOf, typename TextOf>
  void add_series(uint32_t group, uint32_t first_slot, size_t count, LabelsOf&& labels, TextOf&& text) {
    series_.clear();
    for (size_t i = 0; i < count; ++i) {
      for (const LabelSymbols& label : labels(i)) {
        const uint32_t name = number(label.name, text);
        series_.labels.push_back({name, number(label.value, text)});
      }
      series_.end();
    }
    put_series(group, first_slot);
  }
  void add_run(uint32_t group, int64_t time_ms, uint32_t first_slot, std::span<const double> values,
               const double* before);
  void add_histogram(uint32_t group, uint32_t slot, int64_t time_ms, const NativeHistogram& histogram);
  void add_exemplar(uint32_t group, uint32_t slot, int64_t time_ms, double value, const Labels& labels);
  void add_metadata(const MetricMetadata& metadata);

 private:
  template <typename TextOf>
  uint32_t number(uint32_t symbol, TextOf&& text) {
    if (symbol >= numbers_.size()) numbers_.resize(std::max<size_t>(symbol + 1, numbers_.size() * 2), 0);
    if (numbers_[symbol] == 0) {
      put_text(text(symbol));
      numbers_[symbol] = ++texts_;
    }
    return numbers_[symbol] - 1;
  }
  void put_text(std::string_view text);
  void put_series(uint32_t group, uint32_t first_slot);

  std::string bytes_;
  int64_t time_ms_ = 0;
  std::vector<uint32_t> numbers_;  // by symbol of ours: its number in the segment + 1, or 0
  uint32_t texts_ = 0;
  LabelRows series_;  // in numbers of the segment
};

class WalVisitor {
 public:
  virtual ~WalVisitor() = default;
  // The segment's next text; they are numbered from 0.
  virtual void on_text(std::string_view text) = 0;
  // From this slot on; labels are numbers of texts.
  virtual void on_series(uint32_t group, uint32_t first_slot, const LabelRows& series) = 0;
  virtual void on_run(uint32_t group, int64_t time_ms, uint32_t first_slot, std::span<const double> values) = 0;
  virtual void on_histogram(uint32_t group, uint32_t slot, int64_t time_ms, NativeHistogram histogram) = 0;
  virtual void on_exemplar(uint32_t group, uint32_t slot, int64_t time_ms, double value, Labels labels) = 0;
  virtual void on_metadata(MetricMetadata metadata) = 0;
};

class WalRecordReader {
 public:
  void begin_segment() {
    texts_ = 0;
    rows_.clear();
  }
  bool read(std::string_view record, WalVisitor& visitor);

 private:
  struct Rows {  // the last two of a group
    int64_t time_ms = INT64_MIN, before_ms = INT64_MIN;
    std::vector<double> now, before;
  };
  bool read_series(columns::ByteReader& in, WalVisitor& visitor);
  // run_time_ms: of the run before in this record, and then of this one.
  bool read_run(columns::ByteReader& in, int64_t& run_time_ms, WalVisitor& visitor);

  uint64_t texts_ = 0;
  LabelRows series_;
  std::vector<double> values_;
  std::unordered_map<uint32_t, Rows> rows_;
};

}  // namespace lockstep::metrics
