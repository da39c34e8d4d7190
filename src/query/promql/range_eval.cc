// Range vectors: what range functions, subqueries and a range that is asked for as it is read, and how a function is
// taken over every series of it.
#include <algorithm>
#include <limits>

#include "base/text.h"
#include "query/promql/evaluator.h"
#include "query/promql/printer.h"
#include "query/promql/range_rows.h"

namespace lockstep::promql {
namespace {

template <typename T>
std::span<const T> part(const std::vector<T>& of, size_t begin, size_t end) {
  return {of.data() + begin, end - begin};
}

std::string joined(std::span<const std::string_view> names) {
  std::string text;
  for (std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

bool ends_like_a_counter(std::string_view name) {
  return name.ends_with("_total") || name.ends_with("_sum") || name.ends_with("_count") || name.ends_with("_bucket");
}

// Functions that rollups can answer: which of their numbers is needed, and what is to be done with it. The others want
// every sample.
struct OverRollups {
  std::string_view name;
  Rollup rollup;
  std::string_view over;
};
constexpr OverRollups kOverRollups[] = {
    {"min_over_time", Rollup::kMin, "min_over_time"},
    {"max_over_time", Rollup::kMax, "max_over_time"},
    {"sum_over_time", Rollup::kSum, "sum_over_time"},
    {"count_over_time", Rollup::kCount, "sum_over_time"},
    {"avg_over_time", Rollup::kSum, "sum_over_time"},  // and divided by the count
    {"rate", Rollup::kIncrease, "rate"},
    {"increase", Rollup::kIncrease, "increase"},
    {"delta", Rollup::kLast, "delta"},
    {"deriv", Rollup::kLast, "deriv"},
    {"predict_linear", Rollup::kLast, "predict_linear"},
    {"last_over_time", Rollup::kLast, "last_over_time"},
    {"present_over_time", Rollup::kLast, "present_over_time"},
    {"absent_over_time", Rollup::kLast, "absent_over_time"},
};
const OverRollups* over_rollups(std::string_view name) {
  const auto found = std::find_if(std::begin(kOverRollups), std::end(kOverRollups),
                                  [&](const OverRollups& way) { return way.name == name; });
  return found == std::end(kOverRollups) ? nullptr : found;
}

// What smoothed and anchored show when they are asked for as they are: the ends of the range as values.
void extend(std::vector<int64_t>& times, std::vector<double>& values, int64_t from, int64_t to, bool smoothed) {
  const auto at = [](int64_t t0, double v0, int64_t t1, double v1, int64_t t) {
    return v0 + (v1 - v0) * static_cast<double>(t - t0) / static_cast<double>(t1 - t0);
  };
  if (times.empty()) return;
  size_t last = times.size() - 1;
  const auto up_to_last = times.begin() + static_cast<ptrdiff_t>(last);
  size_t first = static_cast<size_t>(std::upper_bound(times.begin(), up_to_last, from) - times.begin());
  first = first > 0 ? first - 1 : 0;
  if (smoothed) last = static_cast<size_t>(std::lower_bound(times.begin(), up_to_last, to) - times.begin());
  if (times[last] <= from) {
    times.clear();
    values.clear();
    return;
  }
  const double left = smoothed && times[first] < from
                          ? at(times[first], values[first], times[first + 1], values[first + 1], from)
                          : values[first];
  const double right = smoothed && last > 0 && times[last] > to
                           ? at(times[last - 1], values[last - 1], times[last], values[last], to)
                           : values[last];
  std::vector<int64_t> new_times{from};
  std::vector<double> new_values{left};
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i] <= from || times[i] >= to) continue;
    new_times.push_back(times[i]);
    new_values.push_back(values[i]);
  }
  new_times.push_back(to);
  new_values.push_back(right);
  times = std::move(new_times);
  values = std::move(new_values);
}

}  // namespace

Block Evaluator::subquery(const Expr& expr, const Grid& parent, Grid& grid) {
  const bool fixed = expr.at != AtModifier::kNone;
  const int64_t start = fixed ? expr.at_ms : parent.start;
  const int64_t end = fixed ? expr.at_ms : parent.last();
  grid.step = expr.step_ms != 0 ? expr.step_ms : options_.subquery_step_ms;
  const int64_t first = start - expr.offset_ms - expr.range_ms;
  grid.start = grid.step * (first / grid.step);
  if (grid.start <= first) grid.start += grid.step;
  grid.end = end - expr.offset_ms;
  if (grid.end < grid.start) {
    grid.count = 0;
    Block empty;
    empty.steps = 0;
    return empty;
  }
  const int64_t count = (grid.end - grid.start) / grid.step + 1;
  if (count > static_cast<int64_t>(options_.limits.samples_max))
    fail_execution(
        format("query processing would load too many samples into memory in query execution: "
               "a subquery has %lld steps",
               static_cast<long long>(count)));
  grid.count = static_cast<size_t>(count);
  return eval(expr.child(), grid);
}

Evaluator::Reached Evaluator::reached_by(const Expr& matrix, const Grid& grid) const {
  const Expr& selector = matrix.child();
  const bool fixed = selector.at != AtModifier::kNone;
  const int64_t before = selector.anchored || selector.smoothed ? options_.lookback_ms : 0;
  const int64_t after = selector.smoothed ? options_.lookback_ms : 0;
  return {(fixed ? selector.at_ms : grid.start) - selector.offset_ms - matrix.range_ms - before + 1,
          (fixed ? selector.at_ms : grid.last()) - selector.offset_ms + after};
}

Block Evaluator::eval_range_call(const Expr& expr, const Grid& grid, size_t argument_index) {
  const Expr& argument = unwrapped(expr.child(argument_index));
  const std::string_view name = expr.function->name;
  if (argument.kind == Expr::Kind::kSubquery) return over_range(expr, grid, argument_index, name, nullptr);
  const std::span<const LabelMatcher> matchers = argument.child().matchers;
  const Reached reached = reached_by(argument, grid);
  const OverRollups* way = over_rollups(name);
  const int64_t spacing = way == nullptr ? 0 : std::min(grid.step, argument.range_ms / 4);
  const auto selected_as = [&](Rollup rollup) {
    return select(matchers, reached.from_ms, reached.to_ms, spacing, rollup);
  };
  const MetricSelection* selection = selected_as(Rollup::kLast);
  if (way == nullptr || !selection->has_rollups()) return over_range(expr, grid, argument_index, name, selection);
  if (way->rollup != Rollup::kLast) selection = selected_as(way->rollup);
  const bool is_mean = name == "avg_over_time";
  Block block = over_range(expr, grid, argument_index, way->over, selection, is_mean);
  if (!is_mean) return block;
  const Held held(*this, block);
  return mean_of_rollups(block, over_range(expr, grid, argument_index, way->over, selected_as(Rollup::kCount), true));
}

Block Evaluator::mean_of_rollups(const Block& sums, const Block& counts) {
  LabelSetIds ids(counts.rows.size());
  std::vector<size_t> row_of;
  for (size_t i = 0; i < counts.rows.size(); ++i) {
    if (ids.id(counts.rows[i].labels) == row_of.size()) row_of.push_back(i);
  }
  Block out;
  out.steps = sums.steps;
  out.one_name = sums.one_name;
  for (size_t i = 0; i < sums.rows.size(); ++i) {
    const size_t id = ids.id(sums.rows[i].labels);
    const size_t row = out.add_row(sums.rows[i].labels, sums.rows[i].drop_name);
    for (size_t s = 0; s < out.steps && id < row_of.size(); ++s) {
      const double count = counts.row(row_of[id])[s];
      if (is_absent(count) || is_absent(sums.row(i)[s])) continue;
      if (const NativeHistogram* histogram = sums.histogram(i, s)) {
        FlatHistogram mean(*histogram);
        mean.scale(1 / count);
        out.set_histogram(row, s, mean.pack());
      } else {
        out.row(row)[s] = sums.row(i)[s] / count;
      }
    }
  }
  out.drop_empty_rows();
  charge_block(out);
  return out;
}

// A range function over every series of its argument, at every step of a grid.
class Evaluator::OverRange {
 public:
  OverRange(Evaluator& evaluator, const Expr& expr, const Grid& grid, size_t argument_index, std::string_view name,
            const MetricSelection* selection)
      : evaluator_(evaluator),
        expr_(expr),
        grid_(grid),
        argument_index_(argument_index),
        name_(name),
        selection_(selection),
        argument_(unwrapped(expr.child(argument_index))),
        is_subquery_(argument_.kind == Expr::Kind::kSubquery),
        modified_(is_subquery_ ? argument_ : argument_.child()),
        function_(find_range_function(name)),
        fixed_(modified_.at != AtModifier::kNone),
        before_(modified_.anchored || modified_.smoothed ? evaluator.options_.lookback_ms : 0),
        after_(modified_.smoothed ? evaluator.options_.lookback_ms : 0),
        keeps_name_(name == "last_over_time" || name == "first_over_time"),
        wants_counter_(name == "rate" || name == "increase"),
        is_plain_(!is_subquery_ && before_ == 0 && after_ == 0 && !modified_.finds_resets),
        edges_{(fixed_ ? modified_.at_ms : grid.start) - modified_.offset_ms, fixed_ ? 0 : grid.step, grid.count,
               argument_.range_ms},
        extrapolated_(name, edges_),
        stretched_(name, edges_),
        call_{evaluator,          expr,     argument_, {}, {0, 0}, modified_.anchored, modified_.smoothed,
              argument_.range_ms, &scratch_} {}

  // keep_labels: also those that nobody will look at.
  Block run(bool keep_labels) {
    for (size_t i = 0; i < expr_.children.size(); ++i) {
      if (i != argument_index_) parameters_.push_back(evaluator_.eval_scalar(expr_.child(i), grid_));
    }
    refuse_modifiers();
    open(keep_labels);
    for (size_t i = 0; i < series_; ++i) add_series(i);
    evaluator_.charge_block(out_);
    if (name_ == "absent_over_time") return absent_steps();
    if (!evaluator_.delayed()) {
      for (Row& row : out_.rows) {
        if (row.drop_name) row.labels = evaluator_.labels_.without_metadata(row.labels);
      }
      if (!out_.one_name) evaluator_.merge_same(out_, true);
    }
    return std::move(out_);
  }

 private:
  // What a row has come to.
  struct Found {
    bool any = false, any_float = false;
  };

  // Only some functions know what to do with anchored and smoothed.
  void refuse_modifiers() const {
    static constexpr std::string_view kAnchored[] = {"changes", "delta", "increase", "rate", "resets"};
    static constexpr std::string_view kSmoothed[] = {"delta", "increase", "rate"};
    const auto among = [&](std::span<const std::string_view> names) {
      return std::find(names.begin(), names.end(), name_) != names.end();
    };
    if (call_.anchored && !among(kAnchored))
      fail_execution("anchored modifier can only be used with: " + joined(kAnchored) + " - not with " +
                     std::string(name_));
    if (call_.smoothed && !among(kSmoothed))
      fail_execution("smoothed modifier can only be used with: " + joined(kSmoothed) + " - not with " +
                     std::string(name_));
  }

  void open(bool keep_labels) {
    out_.steps = grid_.count;
    if (is_subquery_) {
      inner_ = evaluator_.subquery(argument_, grid_, inner_grid_);
      series_ = inner_.rows.size();
      out_.one_name = inner_.one_name;
    } else {
      reached_ = evaluator_.reached_by(argument_, grid_);
      labels_ = evaluator_.labels_of(*selection_, keep_labels ? std::nullopt : modified_.only_labels);
      series_ = selection_->size();
      out_.one_name = names_one_metric(modified_);
    }
    out_.rows.reserve(series_);
    out_.values.reserve(series_ * grid_.count);
    evaluator_.charge_block(out_);
  }

  void add_series(size_t i) {
    bool drop_name = !keeps_name_;
    bool is_made = false;  // at every step at once
    if (is_subquery_) {
      drop_name |= inner_.rows[i].drop_name;
      take_from_subquery(i);
    } else {
      is_made = read_series(i);
    }
    evaluator_.charge(columns_.times_ms.size() + 1);
    if (!is_made) {
      if (modified_.finds_resets && !is_subquery_) find_resets(columns_);
      split_samples(columns_, samples_);
      if (samples_.times.empty() && samples_.histogram_times.empty()) return;
    }
    const size_t row = out_.add_row(call_.labels, drop_name);
    Found found;
    if (is_made) {
      std::copy(made_.begin(), made_.end(), out_.row(row).begin());
      found = found_in(row);
    } else if (extrapolated_.applies() && samples_.histogram_times.empty() && before_ == 0 && after_ == 0) {
      extrapolated_.make(samples_, out_.row(row));
      found = found_in(row);
    } else {
      found = window_by_window(row);
    }
    if (grid_.count > 1) evaluator_.charge(grid_.count);
    if (!found.any) out_.drop_last_row();
    if (wants_counter_ && found.any_float) annotate_unless_counter();
  }

  void take_from_subquery(size_t i) {
    call_.labels = inner_.rows[i].labels;
    columns_.clear();
    for (size_t s = 0; s < inner_grid_.count; ++s) {
      const double value = inner_.values[i * inner_grid_.count + s];
      if (is_absent(value)) continue;
      columns_.times_ms.push_back(inner_grid_.time(s));
      columns_.values.push_back(value);
      if (inner_.histograms.empty()) continue;
      HistogramPtr histogram = inner_.histogram_ptr(i, s);
      // What the subquery stepped over is not known, so neither is whether there was a reset in between.
      if (histogram && (histogram->reset == CounterReset::kYes || histogram->reset == CounterReset::kNo)) {
        auto unsure = std::make_shared<NativeHistogram>(*histogram);
        unsure->reset = CounterReset::kUnknown;
        histogram = std::move(unsure);
      }
      columns_.histograms.push_back(std::move(histogram));
    }
  }

  // True: the row is already in made_, from stretches of samples that need not be read one by one.
  bool read_series(size_t i) {
    call_.labels = labels_[i];
    const auto [from, to] = reached_;
    bool is_made = false;
    Result<void> read = is_plain_ && stretched_.applies()
                            ? selection_->stretches(i, from, to, edges_, columns_, stretches_)
                            : selection_->samples(i, from, to, columns_);
    if (!stretches_.empty()) {
      evaluator_.charge(stretches_.size());
      made_.assign(grid_.count, kAbsent);
      is_made = read.ok() && stretched_.make(columns_, stretches_, made_);
      if (!is_made) read = selection_->samples(i, from, to, columns_);
    }
    if (!read.ok()) fail_execution(read.error());
    return is_made;
  }

  Found found_in(size_t row) const {
    const std::span<const double> values = out_.row(row);
    const bool any = std::any_of(values.begin(), values.end(), [](double value) { return !is_absent(value); });
    return {any, any};
  }

  Found window_by_window(size_t row) {
    Found found;
    size_t float_begin = 0, float_end = 0, histogram_begin = 0, histogram_end = 0;
    for (size_t s = 0; s < grid_.count; ++s) {
      Window window;
      window.eval_ms = grid_.time(s);
      window.range_end_ms = (fixed_ ? modified_.at_ms : window.eval_ms) - modified_.offset_ms;
      window.range_start_ms = window.range_end_ms - argument_.range_ms;
      const int64_t first = window.range_start_ms - before_;
      const int64_t last = window.range_end_ms + after_;
      while (float_end < samples_.times.size() && samples_.times[float_end] <= last) ++float_end;
      while (float_begin < float_end && samples_.times[float_begin] <= first) ++float_begin;
      window.times = part(samples_.times, float_begin, float_end);
      window.values = part(samples_.values, float_begin, float_end);
      if (!samples_.histogram_times.empty()) {
        while (histogram_end < samples_.histogram_times.size() && samples_.histogram_times[histogram_end] <= last)
          ++histogram_end;
        while (histogram_begin < histogram_end && samples_.histogram_times[histogram_begin] <= first) ++histogram_begin;
        window.histogram_times = part(samples_.histogram_times, histogram_begin, histogram_end);
        window.histograms = part(samples_.histograms, histogram_begin, histogram_end);
      }
      if (window.size() == 0) continue;
      for (size_t p = 0; p < parameters_.size() && p < 2; ++p) call_.parameters[p] = parameters_[p][s];
      RangeValue value = function_(window, call_);
      if (value.histogram) {
        out_.set_histogram(row, s, std::move(value.histogram));
        found.any = true;
      } else if (!is_absent(value.value)) {
        out_.values[row * grid_.count + s] = value.value;
        found.any = found.any_float = true;
      }
    }
    return found;
  }

  void annotate_unless_counter() {
    LabelTable& labels = evaluator_.labels_;
    const bool by_type = evaluator_.options_.type_and_unit_labels;
    const uint32_t metric = labels.get(call_.labels, LabelTable::kName);
    if (metric == LabelTable::kEmpty || (metric == warned_name_ && !by_type)) return;
    warned_name_ = metric;
    const std::string_view text = labels.text(metric);
    if (by_type) {
      const std::string_view type = labels.text(labels.get(call_.labels, LabelTable::kType));
      if (type != "counter" && type != "histogram")
        evaluator_.annotate(false,
                            "PromQL info: metric might not be a counter, __type__ label is not set to \"counter\" or "
                            "\"histogram\", got " +
                                in_quotes(type) + ": " + in_quotes(text),
                            argument_);
    } else if (!ends_like_a_counter(text)) {
      evaluator_.annotate(
          false,
          "PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: " +
              in_quotes(text),
          argument_);
    }
  }

  // 1 where no series has a value.
  Block absent_steps() const {
    Block absent;
    absent.steps = grid_.count;
    const size_t row = absent.add_row(evaluator_.absent_labels(argument_), true);
    bool any = false;
    for (size_t s = 0; s < grid_.count; ++s) {
      bool found = false;
      for (size_t i = 0; i < out_.rows.size() && !found; ++i) found = !is_absent(out_.row(i)[s]);
      if (found) continue;
      absent.row(row)[s] = 1;
      any = true;
    }
    if (!any) absent = Block{.steps = grid_.count, .rows = {}, .values = {}, .histograms = {}, .one_name = false};
    return absent;
  }

  Evaluator& evaluator_;
  const Expr& expr_;
  const Grid& grid_;
  const size_t argument_index_;
  const std::string_view name_;
  const MetricSelection* const selection_;  // none: a subquery
  const Expr& argument_;
  const bool is_subquery_;
  const Expr& modified_;  // what has offset, @, anchored and smoothed
  const RangeFunction function_;
  const bool fixed_;
  const int64_t before_, after_;  // what is read beyond the range
  const bool keeps_name_, wants_counter_;
  const bool is_plain_;
  const WindowEdges edges_;
  ExtrapolatedRows extrapolated_;
  StretchedRows stretched_;
  std::vector<double> scratch_;
  RangeCall call_;
  std::vector<std::vector<double>> parameters_;  // at every step
  // The series: of a subquery, or of the selection.
  size_t series_ = 0;
  Block inner_;
  Grid inner_grid_;
  Reached reached_;
  std::vector<LabelSpan> labels_;
  // Of one series.
  SampleColumns columns_;
  std::vector<SampleStretch> stretches_;
  SeriesSamples samples_;
  std::vector<double> made_;
  uint32_t warned_name_ = std::numeric_limits<uint32_t>::max();
  Block out_;
};

Block Evaluator::over_range(const Expr& expr, const Grid& grid, size_t argument_index, std::string_view name,
                            const MetricSelection* selection, bool keep_labels) {
  return OverRange(*this, expr, grid, argument_index, name, selection).run(keep_labels);
}

void Evaluator::raw_range(const Expr& expr, const Grid& grid, QueryResult& result) {
  result.type = ValueType::kMatrix;
  if (expr.kind == Expr::Kind::kSubquery) {
    Grid inner;
    Block block = subquery(expr, grid, inner);
    if (inner.count > 0) answer(std::move(block), inner, false, ValueType::kMatrix, result);
    return;
  }
  const Expr& selector = expr.child();
  const int64_t end = (selector.at != AtModifier::kNone ? selector.at_ms : grid.start) - selector.offset_ms;
  const int64_t start = end - expr.range_ms;
  const int64_t before = selector.anchored || selector.smoothed ? options_.lookback_ms : 0;
  const int64_t after = selector.smoothed ? options_.lookback_ms : 0;
  const MetricSelection* selection = select(selector.matchers, start - before + 1, end + after, 0);
  const std::vector<LabelSpan> labels = labels_of(*selection);
  std::vector<uint32_t> order(labels.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](uint32_t a, uint32_t b) { return labels_.compare(labels[a], labels[b]) < 0; });
  SampleColumns columns;
  uint64_t answer_bytes = 0;
  for (uint32_t i : order) {
    if (Result<void> read = selection->samples(i, start - before + 1, end + after, columns); !read.ok())
      fail_execution(read.error());
    charge(columns.times_ms.size() + 1);
    answer_bytes += sizeof(ResultSeries) + labels_.text_bytes(labels[i]) +
                    columns.times_ms.size() * (sizeof(int64_t) + sizeof(double) + sizeof(HistogramPtr));
    charge_bytes(answer_bytes);
    ResultSeries series;
    for (size_t k = 0; k < columns.times_ms.size(); ++k) {
      const HistogramPtr histogram = columns.histograms.empty() ? nullptr : columns.histograms[k];
      if (histogram ? is_stale(histogram->sum) : is_stale(columns.values[k])) continue;
      if (histogram && (selector.anchored || selector.smoothed))
        fail_execution(std::string(selector.anchored ? "anchored" : "smoothed") +
                       " modifier is not supported with histograms");
      series.times_ms.push_back(columns.times_ms[k]);
      series.values.push_back(histogram ? 0 : columns.values[k]);
      if (!columns.histograms.empty()) series.histograms.push_back(histogram);
    }
    if (selector.anchored || selector.smoothed) {
      extend(series.times_ms, series.values, start, end, selector.smoothed);
      series.histograms.clear();
    }
    if (series.times_ms.empty()) continue;
    series.labels = labels_.text_of(labels[i]);
    result.series.push_back(std::move(series));
  }
}

}  // namespace lockstep::promql
