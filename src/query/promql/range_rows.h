// Range functions over a whole series at once, at every step of a query: the fast ways beside a call per window
// (RangeFunction), which they give the same values as.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "query/promql/evaluator.h"

namespace lockstep::promql {

// rate, increase and delta of series that have floats alone, at all steps: what the functions give, without a call per
// step. What follows from the times of samples is worked out once for series that share them, as those of one sender
// do.
class ExtrapolatedRows {
 public:
  // step_ms 0: the same window at every step.
  ExtrapolatedRows(std::string_view name, const WindowEdges& edges);
  ~ExtrapolatedRows();
  bool applies() const { return applies_; }  // to this function
  void make(const SeriesSamples& samples, std::span<double> out);

 private:
  struct Step;
  const bool per_second_, counter_, applies_;
  const WindowEdges edges_;
  std::vector<int64_t> times_;
  std::vector<Step> steps_;  // for these times
};

// What functions give that need not see every sample, over stretches (metric_reader.h): the same to the last bit as
// over the samples themselves, or nothing.
class StretchedRows {
 public:
  StretchedRows(std::string_view name, const WindowEdges& edges);
  bool applies() const { return function_ != Function::kNone; }  // to this function
  // Takes `columns` and `stretches` as they were read. False: here only the samples themselves can tell.
  bool make(const SampleColumns& columns, std::span<const SampleStretch> stretches, std::span<double> out);

 private:
  enum class Function { kNone, kCount, kPresent, kMin, kMax, kSum, kMean, kFirst, kLast, kRate, kIncrease, kDelta };
  bool value_of(std::span<const SampleStretch> window, int64_t end_ms, double& value) const;
  bool extrapolated(std::span<const SampleStretch> window, int64_t end_ms, double& value) const;
  const Function function_;
  const WindowEdges edges_;
  std::vector<SampleStretch> pieces_;  // samples are stretches of one
};

}  // namespace lockstep::promql
