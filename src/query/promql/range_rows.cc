#include "query/promql/range_rows.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "query/promql/extrapolation.h"

namespace lockstep::promql {

struct ExtrapolatedRows::Step {
  uint32_t begin = 0, end = 0;
  Reach reach;
  double factor = 1;
};

ExtrapolatedRows::ExtrapolatedRows(std::string_view name, const WindowEdges& edges)
    : per_second_(name == "rate"),
      counter_(name == "rate" || name == "increase"),
      applies_(counter_ || name == "delta"),
      edges_(edges) {}

ExtrapolatedRows::~ExtrapolatedRows() = default;

void ExtrapolatedRows::make(const SeriesSamples& samples, std::span<double> out) {
  const double seconds = static_cast<double>(edges_.range_ms) / 1000;
  if (samples.times != times_ || steps_.size() != out.size()) {
    times_ = samples.times;
    steps_.assign(out.size(), {});
    uint32_t begin = 0, end = 0;
    for (size_t s = 0; s < out.size(); ++s) {
      const int64_t range_end_ms = edges_.first_ms + static_cast<int64_t>(s) * edges_.step_ms;
      while (end < times_.size() && times_[end] <= range_end_ms) ++end;
      while (begin < end && times_[begin] <= range_end_ms - edges_.range_ms) ++begin;
      Step& step = steps_[s];
      step.begin = begin;
      step.end = end;
      if (end - begin < 2) continue;
      step.reach = Reach(std::span(times_).subspan(begin, end - begin), range_end_ms - edges_.range_ms, range_end_ms);
      step.factor = per_second_ ? step.reach.factor() / seconds : step.reach.factor();
    }
  }
  const double* v = samples.values.data();
  bool has_resets = false;
  for (size_t i = 1; counter_ && i < samples.values.size(); ++i) has_resets |= v[i] < v[i - 1];
  for (size_t s = 0; s < out.size(); ++s) {
    const Step& step = steps_[s];
    if (step.end - step.begin < 2) continue;
    const double first = v[step.begin];
    double result = v[step.end - 1] - first;
    for (size_t i = step.begin + 1; has_resets && i < step.end; ++i) {
      if (v[i] < v[i - 1]) result += v[i - 1];
    }
    double factor = step.factor;
    if (counter_) {
      Reach reach = step.reach;
      reach.begin_at_zero(first, result);
      if (reach.to_start != step.reach.to_start) factor = per_second_ ? reach.factor() / seconds : reach.factor();
    }
    out[s] = result * factor;
  }
}

StretchedRows::StretchedRows(std::string_view name, const WindowEdges& edges)
    : function_([&] {
        static const std::unordered_map<std::string_view, Function> kFunctions = {
            {"count_over_time", Function::kCount},    {"present_over_time", Function::kPresent},
            {"absent_over_time", Function::kPresent}, {"min_over_time", Function::kMin},
            {"max_over_time", Function::kMax},        {"sum_over_time", Function::kSum},
            {"avg_over_time", Function::kMean},       {"first_over_time", Function::kFirst},
            {"last_over_time", Function::kLast},      {"rate", Function::kRate},
            {"increase", Function::kIncrease},        {"delta", Function::kDelta},
        };
        const auto found = kFunctions.find(name);
        return found == kFunctions.end() ? Function::kNone : found->second;
      }()),
      edges_(edges) {}

bool StretchedRows::make(const SampleColumns& columns, std::span<const SampleStretch> stretches,
                         std::span<double> out) {
  if (!columns.histograms.empty()) return false;
  pieces_.clear();
  auto next = stretches.begin();
  for (size_t i = 0; i <= columns.times_ms.size(); ++i) {
    for (; next != stretches.end() && next->before == i; ++next) pieces_.push_back(*next);
    if (i == columns.times_ms.size() || is_stale(columns.values[i])) continue;
    const double value = columns.values[i];
    // The mean of nothing but -0 is -0, which a sum does not show.
    const bool is_whole =
        std::abs(value) < kExactMax && std::trunc(value) == value && !(value == 0 && std::signbit(value));
    pieces_.push_back(
        {i, columns.times_ms[i], columns.times_ms[i], 1, value, value, value, value, false, is_whole, value});
  }
  size_t begin = 0, end = 0;
  for (size_t s = 0; s < out.size(); ++s) {
    const int64_t end_ms = edges_.first_ms + static_cast<int64_t>(s) * edges_.step_ms;
    while (end < pieces_.size() && pieces_[end].last_ms <= end_ms) ++end;
    while (begin < end && pieces_[begin].first_ms <= end_ms - edges_.range_ms) ++begin;
    if (begin < end && !value_of(std::span(pieces_).subspan(begin, end - begin), end_ms, out[s])) return false;
  }
  return true;
}

bool StretchedRows::value_of(std::span<const SampleStretch> window, int64_t end_ms, double& value) const {
  switch (function_) {
    case Function::kNone:
      return false;
    case Function::kPresent:
      value = 1;
      return true;
    case Function::kFirst:
      value = window.front().first;
      return true;
    case Function::kLast:
      value = window.back().last;
      return true;
    case Function::kMin:
      value = window.front().min;
      for (const SampleStretch& piece : window) {
        if (piece.min < value || std::isnan(value)) value = piece.min;
      }
      return true;
    case Function::kMax:
      value = window.front().max;
      for (const SampleStretch& piece : window) {
        if (piece.max > value || std::isnan(value)) value = piece.max;
      }
      return true;
    case Function::kCount:
    case Function::kSum:
    case Function::kMean: {
      // Integers add up without loss in whatever order, as long as no sum reaches 2^53.
      uint64_t count = 0;
      double sum = 0, largest = 0;
      bool exact = true;
      for (const SampleStretch& piece : window) {
        count += piece.count;
        sum += piece.sum;
        largest = std::max({largest, std::abs(piece.min), std::abs(piece.max)});
        exact &= piece.sum_is_exact;
      }
      if (function_ == Function::kCount) {
        value = static_cast<double>(count);
        return true;
      }
      value = function_ == Function::kSum ? sum : sum / static_cast<double>(count);
      return exact && largest * static_cast<double>(count) < kExactMax;
    }
    case Function::kRate:
    case Function::kIncrease:
    case Function::kDelta:
      return extrapolated(window, end_ms, value);
  }
  return false;
}

bool StretchedRows::extrapolated(std::span<const SampleStretch> window, int64_t end_ms, double& value) const {
  uint64_t count = 0;
  for (const SampleStretch& piece : window) count += piece.count;
  if (count < 2) return true;
  const double first = window.front().first;
  double result = window.back().last - first;
  Reach reach(window.front().first_ms, window.back().last_ms, count, end_ms - edges_.range_ms, end_ms);
  if (function_ != Function::kDelta) {
    for (size_t i = 0; i < window.size(); ++i) {
      if (window[i].falls) return false;
      if (i > 0 && window[i].first < window[i - 1].last) result += window[i - 1].last;
    }
    reach.begin_at_zero(first, result);
  }
  double factor = reach.factor();
  if (function_ == Function::kRate) factor /= static_cast<double>(edges_.range_ms) / 1000;
  value = result * factor;
  return true;
}

}  // namespace lockstep::promql
