// The evaluator from inside: shared by eval.cc and the files that are named beside Evaluator's members below.
//
// A Block is what an expression is worth at every step: a row of values per series. A value that is not there is a
// stale marker (is_stale()), which no evaluation yields. Errors travel as EvalFailure up to run_query().
// Thread rule: Confined.
#pragma once

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "query/promql/ast.h"
#include "query/promql/label_table.h"
#include "query/promql/query.h"

namespace lockstep::promql {

inline const double kAbsent = std::bit_cast<double>(kStaleBits);
inline bool is_absent(double value) {
  return is_stale(value);
}

struct EvalFailure {
  QueryFailure kind;
  std::string message;
};
[[noreturn]] void fail_execution(std::string message);

struct Grid {
  int64_t start = 0, end = 0, step = 1;
  size_t count = 1;
  int64_t time(size_t i) const { return start + static_cast<int64_t>(i) * step; }
  int64_t last() const { return time(count - 1); }
};

struct Row {
  LabelSpan labels;
  bool drop_name = false;
};

struct Block {
  size_t steps = 1;
  std::vector<Row> rows;
  std::vector<double> values;            // rows x steps
  std::vector<HistogramPtr> histograms;  // empty, or as long as values; where one is set, its value is 0
  bool one_name = false;                 // every row has the same metric name: without it they stay different

  std::span<double> row(size_t i) { return {values.data() + i * steps, steps}; }
  std::span<const double> row(size_t i) const { return {values.data() + i * steps, steps}; }
  const NativeHistogram* histogram(size_t row, size_t step) const {
    return histograms.empty() ? nullptr : histograms[row * steps + step].get();
  }
  HistogramPtr histogram_ptr(size_t row, size_t step) const {
    return histograms.empty() ? nullptr : histograms[row * steps + step];
  }
  // A row of absent values.
  size_t add_row(LabelSpan labels, bool drop_name = false);
  void set_histogram(size_t row, size_t step, HistogramPtr histogram);
  bool row_is_empty(size_t i) const;
  void drop_empty_rows();
  void drop_last_row();
};

// One series' samples without stale markers, floats and histograms apart.
struct SeriesSamples {
  std::vector<int64_t> times;
  std::vector<double> values;
  std::vector<int64_t> histogram_times;
  std::vector<HistogramPtr> histograms;
};
// Takes what is in `columns`, which is left as it may be.
void split_samples(SampleColumns& columns, SeriesSamples& out);
// Works out for each histogram that does not say so whether its counter was reset before it.
void find_resets(SampleColumns& columns);

// What a range function sees at one step.
struct Window {
  std::span<const int64_t> times;
  std::span<const double> values;
  std::span<const int64_t> histogram_times;
  std::span<const HistogramPtr> histograms;
  int64_t eval_ms = 0;
  int64_t range_start_ms = 0, range_end_ms = 0;  // what the selector asks for; anchored and smoothed see more
  size_t size() const { return times.size() + histogram_times.size(); }
};

class Evaluator;

// For one call of a range function: its parameters at the step, and where annotations go.
struct RangeCall {
  Evaluator& evaluator;
  const Expr& call;
  const Expr& argument;  // the range vector
  LabelSpan labels;      // of the series
  double parameters[2] = {0, 0};
  bool anchored = false, smoothed = false;
  int64_t range_ms = 0;
  std::vector<double>* scratch = nullptr;
};
struct RangeValue {
  double value = kAbsent;
  HistogramPtr histogram;
};
using RangeFunction = RangeValue (*)(const Window&, const RangeCall&);
RangeFunction find_range_function(std::string_view name);

// Times far outside what exists must not overflow when offsets are taken from them.
inline int64_t tame(int64_t ms) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 8;
  return std::clamp(ms, -kMost, kMost);
}
bool names_one_metric(const Expr& selector);
// Of a call: an argument that is a string.
inline const std::string& string_argument(const Expr& call, size_t i) {
  return unwrapped(call.child(i)).text;
}

class Evaluator {
 public:
  Evaluator(const MetricReader& reader, const QueryTimes& times, const QueryOptions& options);

  QueryResult run(Expr& expr);

  // --- expressions
  Block eval(const Expr& expr, const Grid& grid);
  std::vector<double> eval_scalar(const Expr& expr, const Grid& grid);

  // --- used by the parts
  LabelTable& labels() { return labels_; }
  const QueryOptions& options() const { return options_; }
  bool delayed() const { return options_.delayed_name_removal; }
  void annotate(bool warning, std::string message, const Expr& at, std::string details = {});
  bool is_cancelled() const;
  bool is_late() const;
  bool is_without_memory() const;  // the whole process
  void check();                    // fails where it is cancelled, late or without memory
  void charge(uint64_t samples);   // read
  void charge_block(const Block& block);
  // Before a text or anything else of so many bytes is made: it fails where that would be too much, held with what
  // there is.
  void charge_bytes(uint64_t bytes);
  // A block that stays while others are made: its bytes count with theirs.
  class Held {
   public:
    Held(Evaluator& evaluator, const Block& block) : evaluator_(evaluator), bytes_(bytes_of(block)) {
      evaluator_.held_bytes_ += bytes_;
    }
    ~Held() { evaluator_.held_bytes_ -= bytes_; }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

   private:
    Evaluator& evaluator_;
    const uint64_t bytes_;
  };
  std::string metric_name(LabelSpan labels) const {
    return std::string(labels_.text(labels_.get(labels, LabelTable::kName)));
  }
  // The metric's name goes: now, or at the end.
  void drop_names(Block& block);
  // Rows with the same labels become one; an error where both have a value at a step. strict: an error in any case.
  void merge_same(Block& block, bool strict = false);

 private:
  friend struct RangeCall;
  const MetricSelection* select(std::span<const LabelMatcher> matchers, int64_t from, int64_t to, int64_t spacing,
                                Rollup rollup = Rollup::kLast);
  // only: but for these and what says which metric it is, labels may be left out.
  std::vector<LabelSpan> labels_of(const MetricSelection& selection,
                                   const std::optional<std::vector<std::string>>& only = std::nullopt);

  static uint64_t bytes_of(const Block& block);
  void hold(uint64_t bytes);  // in all

  enum class Take { kValue, kTime };
  Block eval_selector(const Expr& expr, const Grid& grid, Take take = Take::kValue);
  Block selected(const MetricSelection& selection, const Grid& grid, const Expr* expr, int64_t offset, Take take);
  Block eval_unary(const Expr& expr, const Grid& grid);
  Block number_block(std::span<const double> values);
  void answer(Block block, const Grid& grid, bool instant, ValueType type, QueryResult& result);

  // resolve.cc
  enum class BucketUse { kUnknown, kNotNeeded, kNeeded };
  void resolve(Expr& expr, BucketUse use);
  bool is_invariant(const Expr& expr) const;

  // range_eval.cc
  // Which samples the windows of a range vector can hold, at any step.
  struct Reached {
    int64_t from_ms = 0, to_ms = 0;
  };
  Reached reached_by(const Expr& matrix, const Grid& grid) const;
  Block subquery(const Expr& expr, const Grid& parent, Grid& grid);
  Block eval_range_call(const Expr& expr, const Grid& grid, size_t argument);
  class OverRange;
  Block over_range(const Expr& expr, const Grid& grid, size_t argument, std::string_view function,
                   const MetricSelection* selection, bool keep_labels = false);
  Block mean_of_rollups(const Block& sums, const Block& counts);
  void raw_range(const Expr& expr, const Grid& grid, QueryResult& result);

  // range_functions.cc
  Block eval_smoothed(const Expr& expr, const Grid& grid);

  // vector_functions.cc
  Block eval_call(const Expr& expr, const Grid& grid);
  Block scalar_of(const Expr& expr, const Grid& grid);
  Block timestamp(const Expr& expr, const Grid& grid);
  Block elementwise(const Expr& expr, const Grid& grid);
  Block absent(const Expr& expr, const Grid& grid);
  Block sorted(const Expr& expr, const Grid& grid);
  LabelSpan absent_labels(const Expr& expr);

  // date_functions.cc, histogram_functions.cc, label_functions.cc, info.cc
  Block date_function(const Expr& expr, const Grid& grid);
  Block histogram_function(const Expr& expr, const Grid& grid);
  Block classic_function(const Expr& expr, const Grid& grid);
  Block label_replace(const Expr& expr, const Grid& grid);
  Block label_join(const Expr& expr, const Grid& grid);
  class InfoJoin;
  Block info(const Expr& expr, const Grid& grid);

  // aggregate.cc
  Block eval_aggregate(const Expr& expr, const Grid& grid);
  std::vector<uint32_t> group(const Block& block, const Expr& expr, std::vector<LabelSpan>& groups);
  Block aggregate_simple(const Expr& expr, Block block);
  Block aggregate_quantile(const Expr& expr, Block block, std::span<const double> parameter);
  Block aggregate_k(const Expr& expr, Block block, std::span<const double> parameter, const Grid& grid);
  Block count_values(const Expr& expr, Block block);

  // binary.cc
  Block eval_binary(const Expr& expr, const Grid& grid);
  Block scalar_scalar(const Expr& expr, const Grid& grid);
  Block vector_scalar(const Expr& expr, const Grid& grid, bool scalar_left);
  Block set_operation(const Expr& expr, Block left, Block right);
  Block vector_vector(const Expr& expr, Block left, Block right);

  const MetricReader& reader_;
  QueryTimes times_;
  const QueryOptions& options_;
  LabelTable labels_{[this](size_t bytes) { charge_bytes(bytes); }};
  std::vector<std::unique_ptr<MetricSelection>> selections_;  // labels_ refers to their texts
  std::vector<Annotation> annotations_;
  uint64_t samples_ = 0;
  uint64_t unchecked_ = 0;  // samples since check()
  uint64_t held_bytes_ = 0;
  uint64_t peak_bytes_ = 0;
};

}  // namespace lockstep::promql
