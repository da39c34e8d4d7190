// Reading metrics: which series match, and their samples. What PromQL, the exports and our own pages read through.
//
// A selection is a snapshot: it sees every sample that was acknowledged before select() returned, and keeps what it
// refers to alive while it lives. Series are numbered 0..size()-1, each label set once, in no promised order. Label
// names and values are symbols of the selection: equal text has an equal number, so that grouping compares integers
// and text is made once per group, not once per series; numbers are dense enough for a table by number. The metric's
// name is the label "__name__". Stale markers come back as samples (is_stale()); who evaluates leaves them out.
//
// Thread rule: MetricReader is Thread-safe; a MetricSelection belongs to one thread at a time, but samples() of
// different series may be called from different threads with different buffers.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "model/native_histogram.h"

namespace lockstep {

inline constexpr uint64_t kStaleBits = 0x7FF0000000000002;
inline bool is_stale(double value) {
  return std::bit_cast<uint64_t>(value) == kStaleBits;
}

struct LabelMatcher {
  enum class Op : uint8_t { kEqual, kNotEqual, kRegex, kNotRegex };  // a regex (RE2) matches the whole value
  std::string name;
  Op op = Op::kEqual;
  std::string value;  // a label that a series does not have counts as ""
};

// One series' samples as columns, in time order, each time once.
struct SampleColumns {
  std::vector<int64_t> times_ms;
  std::vector<double> values;                                      // as long as times_ms
  std::vector<std::shared_ptr<const NativeHistogram>> histograms;  // empty, or as long as times_ms; null: a float
  void clear() {
    times_ms.clear();
    values.clear();
    histograms.clear();
  }
};

// Where the windows of a question begin and end: ends at first_ms, first_ms + step_ms, ..., each begun range_ms before.
// A sample at the very time belongs to what is before it.
struct WindowEdges {
  int64_t first_ms = 0, step_ms = 0;
  size_t count = 1;
  int64_t range_ms = 0;
  // One of them lies between samples of a stretch that begins and ends at these times.
  bool cut(int64_t begin_ms, int64_t end_ms) const {
    return has_one(first_ms, begin_ms, end_ms) || has_one(first_ms - range_ms, begin_ms, end_ms);
  }

 private:
  bool has_one(int64_t edge_ms, int64_t begin_ms, int64_t end_ms) const {
    if (end_ms <= begin_ms) return false;
    if (edge_ms >= begin_ms) return edge_ms < end_ms;
    if (step_ms <= 0) return false;
    // Whatever the times are: those of a file may be any.
    const uint64_t step = static_cast<uint64_t>(step_ms);
    const uint64_t distance = static_cast<uint64_t>(begin_ms) - static_cast<uint64_t>(edge_ms);
    const uint64_t steps = distance / step + (distance % step != 0 ? 1 : 0);
    return steps < count && steps * step - distance < static_cast<uint64_t>(end_ms) - static_cast<uint64_t>(begin_ms);
  }
};

inline constexpr double kExactMax = 9007199254740992.0;  // 2^53: below it every integer is a double

// Float samples of a series, one after the other, of which this is known without reading them. None of them is stale or
// another NaN.
struct SampleStretch {
  size_t before = 0;  // which of the samples that are read beside it comes next
  int64_t first_ms = 0, last_ms = 0;
  uint64_t count = 0;
  double first = 0, last = 0, min = 0, max = 0;
  bool falls = false;         // somewhere a value is below the one before it
  bool sum_is_exact = false;  // integers, and whatever some of them add up to is below kExactMax
  double sum = 0;             // if exact
};

// What a point of a rollup tier says of the samples it stands for.
enum class Rollup : uint8_t { kLast, kMin, kMax, kSum, kCount, kIncrease };

struct SelectOptions {
  int64_t from_ms = 0;  // inclusive
  int64_t to_ms = 0;    // inclusive
  // The coarsest spacing of samples that still answers the question: 0 wants raw samples; more lets the store answer
  // from a rollup tier whose spacing is not above it.
  int64_t spacing_ms = 0;
  // Which of a rollup point's numbers is wanted; a raw sample counts as a point of its own (kCount: 1). Rollups of
  // counters keep the last value and the increase alone; asked for something else they give the last (kCount: 1).
  // kIncrease is a counter as it would be had it never begun again: its first value, and what it rose since.
  Rollup rollup = Rollup::kLast;
  uint64_t series_max = 0;  // more matching series: an error that says so. 0: no limit
  // Asked now and then while series are collected; true: nobody wants them any more, select() ends with an error.
  std::function<bool()> give_up = {};
};

inline LabelMatcher label_is(std::string name, std::string value) {
  return {std::move(name), LabelMatcher::Op::kEqual, std::move(value)};
}

struct LabelSymbols {
  uint32_t name = 0;
  uint32_t value = 0;
};

class MetricSelection {
 public:
  virtual ~MetricSelection() = default;
  virtual size_t size() const = 0;
  virtual std::span<const LabelSymbols> labels(size_t series) const = 0;  // sorted by the name's text
  virtual std::string_view text(uint32_t symbol) const = 0;
  // Points of rollups are among its samples: for a question about all samples another Rollup may be the right one.
  virtual bool has_rollups() const { return false; }
  // Appends nothing to what `out` held: it is cleared first. An error: the store found damage; it says where.
  virtual Result<void> samples(size_t series, int64_t from_ms, int64_t to_ms, SampleColumns& out) const = 0;
  // As samples(), but what lies between two edges may come as a stretch: what a store knows from the heads of its
  // chunks.
  virtual Result<void> stretches(size_t series, int64_t from_ms, int64_t to_ms, const WindowEdges& /*edges*/,
                                 SampleColumns& out, std::vector<SampleStretch>& stretches) const {
    stretches.clear();
    return samples(series, from_ms, to_ms, out);
  }
  // The last of them alone, or none: what a store often knows without reading the others.
  virtual Result<void> newest(size_t series, int64_t from_ms, int64_t to_ms, SampleColumns& out) const {
    LOCKSTEP_TRY(samples(series, from_ms, to_ms, out));
    if (out.times_ms.size() > 1) {
      out.times_ms.erase(out.times_ms.begin(), out.times_ms.end() - 1);
      out.values.erase(out.values.begin(), out.values.end() - 1);
      if (!out.histograms.empty()) out.histograms.erase(out.histograms.begin(), out.histograms.end() - 1);
    }
    return {};
  }
};

struct MetricMetadata {
  std::string name, type, help, unit;  // type: counter gauge histogram summary gaugehistogram info stateset unknown
};

struct Exemplar {
  std::vector<std::pair<std::string, std::string>> series_labels;
  std::vector<std::pair<std::string, std::string>> labels;  // trace_id and the like
  double value = 0;
  int64_t time_ms = 0;
};

class MetricReader {
 public:
  virtual ~MetricReader() = default;
  // Series with at least one sample (or a chunk that may hold one) in the range. At least one matcher must not match
  // "".
  virtual Result<std::unique_ptr<MetricSelection>> select(std::span<const LabelMatcher> matchers,
                                                          const SelectOptions& options) const = 0;
  // Of series that match any of the matcher lists (an empty outer list: of all), sorted.
  virtual Result<std::vector<std::string>> label_names(std::span<const std::vector<LabelMatcher>> any, int64_t from_ms,
                                                       int64_t to_ms) const = 0;
  virtual Result<std::vector<std::string>> label_values(std::string_view name,
                                                        std::span<const std::vector<LabelMatcher>> any, int64_t from_ms,
                                                        int64_t to_ms) const = 0;
  virtual std::vector<MetricMetadata> metadata() const = 0;
  virtual Result<std::vector<Exemplar>> exemplars(std::span<const LabelMatcher> matchers, int64_t from_ms,
                                                  int64_t to_ms) const = 0;
};

}  // namespace lockstep
