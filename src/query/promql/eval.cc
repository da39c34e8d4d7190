#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text.h"
#include "query/promql/evaluator.h"
#include "query/promql/parser.h"
#include "query/promql/printer.h"

namespace lockstep::promql {
namespace {

constexpr uint64_t kSamplesBetweenChecks = 4096;
constexpr size_t kSeriesBetweenChecks = 4096;
constexpr uint64_t kSeriesAsSamples = 64;  // what finding a series' samples takes, whatever their number

// Functions whose value changes with the time of evaluation though their arguments do not.
bool depends_on_time(std::string_view name) {
  static constexpr std::string_view kNames[] = {"days_in_month", "day_of_month", "day_of_week",    "day_of_year",
                                                "hour",          "minute",       "month",          "year",
                                                "time",          "timestamp",    "predict_linear", "start_timestamp"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

double duration_value(const DurationExpr& expr, double step_s, double range_s) {
  using Op = DurationExpr::Op;
  const double left = expr.left ? duration_value(*expr.left, step_s, range_s) : 0;
  const double right = expr.right ? duration_value(*expr.right, step_s, range_s) : 0;
  switch (expr.op) {
    case Op::kNumber:
      return expr.seconds;
    case Op::kStep:
      return step_s;
    case Op::kRange:
      return range_s;
    case Op::kMinOf:
      return std::min(left, right);
    case Op::kMaxOf:
      return std::max(left, right);
    case Op::kAdd:
      return left + right;
    case Op::kSub:
      return left - right;
    case Op::kMul:
      return left * right;
    case Op::kDiv:
      if (right == 0)
        throw EvalFailure{QueryFailure::kBadQuery, format("a duration is divided by zero at byte %u", expr.begin)};
      return left / right;
    case Op::kMod:
      if (right == 0)
        throw EvalFailure{QueryFailure::kBadQuery, format("a duration is taken modulo zero at byte %u", expr.begin)};
      return std::fmod(left, right);
    case Op::kPow:
      return std::pow(left, right);
    case Op::kNegate:
      return -right;
  }
  return 0;
}

int64_t duration_ms(const DurationExpr& expr, const QueryTimes& times, bool may_be_negative) {
  const double step_s = static_cast<double>(times.step_ms) / 1000;
  const double range_s = static_cast<double>(times.end_ms - times.start_ms) / 1000;
  const double seconds = duration_value(expr, step_s, range_s);
  if (std::isnan(seconds) || std::isinf(seconds))
    throw EvalFailure{QueryFailure::kBadQuery, format("%u:%u: duration is NaN or infinite", expr.begin, expr.end)};
  if (seconds <= 0 && !may_be_negative)
    throw EvalFailure{QueryFailure::kBadQuery, format("%u:%u: duration must be greater than 0", expr.begin, expr.end)};
  if (std::fabs(seconds) > 9223372036.0)
    throw EvalFailure{QueryFailure::kBadQuery, format("%u:%u: duration is out of range", expr.begin, expr.end)};
  return static_cast<int64_t>(seconds * 1000);
}

// Times far outside what exists must not overflow when offsets are taken from them.
int64_t tame(int64_t ms) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 8;
  return std::clamp(ms, -kMost, kMost);
}

void split_samples(SampleColumns& columns, SeriesSamples& out) {
  out.histogram_times.clear();
  out.histograms.clear();
  if (columns.histograms.empty()) {
    size_t kept = 0;
    const size_t count = columns.times_ms.size();
    while (kept < count && !is_stale(columns.values[kept])) ++kept;
    for (size_t i = kept; i < count; ++i) {
      if (is_stale(columns.values[i])) continue;
      columns.times_ms[kept] = columns.times_ms[i];
      columns.values[kept++] = columns.values[i];
    }
    columns.times_ms.resize(kept);
    columns.values.resize(kept);
    std::swap(out.times, columns.times_ms);
    std::swap(out.values, columns.values);
    return;
  }
  out.times.clear();
  out.values.clear();
  for (size_t i = 0; i < columns.times_ms.size(); ++i) {
    if (columns.histograms[i]) {
      if (is_stale(columns.histograms[i]->sum)) continue;
      out.histogram_times.push_back(columns.times_ms[i]);
      out.histograms.push_back(columns.histograms[i]);
    } else if (!is_stale(columns.values[i])) {
      out.times.push_back(columns.times_ms[i]);
      out.values.push_back(columns.values[i]);
    }
  }
}

void find_resets(SampleColumns& columns) {
  const NativeHistogram* before = nullptr;
  HistogramPtr kept;
  for (HistogramPtr& histogram : columns.histograms) {
    if (!histogram || is_stale(histogram->sum)) continue;
    const HistogramPtr original = histogram;
    if (before != nullptr && histogram->reset == CounterReset::kUnknown) {
      auto reported = std::make_shared<NativeHistogram>(*histogram);
      reported->reset = was_reset(*histogram, *before) ? CounterReset::kYes : CounterReset::kNo;
      histogram = std::move(reported);
    }
    kept = original;
    before = kept.get();
  }
}

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

}  // namespace

void fail_execution(std::string message) {
  throw EvalFailure{QueryFailure::kExecution, std::move(message)};
}

size_t Block::add_row(LabelSpan labels, bool drop_name) {
  rows.push_back({labels, drop_name});
  values.resize(values.size() + steps, kAbsent);
  if (!histograms.empty()) histograms.resize(values.size());
  return rows.size() - 1;
}

void Block::set_histogram(size_t row, size_t step, HistogramPtr histogram) {
  if (histograms.empty()) histograms.resize(values.size());
  values[row * steps + step] = 0;
  histograms[row * steps + step] = std::move(histogram);
}

bool Block::row_is_empty(size_t i) const {
  for (double value : row(i)) {
    if (!is_absent(value)) return false;
  }
  return true;
}

void Block::drop_empty_rows() {
  size_t kept = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (row_is_empty(i)) continue;
    if (kept != i) {
      rows[kept] = rows[i];
      std::copy_n(values.data() + i * steps, steps, values.data() + kept * steps);
      if (!histograms.empty())
        std::move(histograms.begin() + static_cast<ptrdiff_t>(i * steps),
                  histograms.begin() + static_cast<ptrdiff_t>((i + 1) * steps),
                  histograms.begin() + static_cast<ptrdiff_t>(kept * steps));
    }
    ++kept;
  }
  rows.resize(kept);
  values.resize(kept * steps);
  if (!histograms.empty()) histograms.resize(values.size());
}

Evaluator::Evaluator(const MetricReader& reader, const QueryTimes& times, const QueryOptions& options)
    : reader_(reader), times_(times), options_(options) {}

// --- limits and annotations

bool Evaluator::is_cancelled() const {
  return options_.cancelled && options_.cancelled();
}

bool Evaluator::is_late() const {
  return options_.deadline && std::chrono::steady_clock::now() > *options_.deadline;
}

void Evaluator::check() {
  if (is_cancelled()) throw EvalFailure{QueryFailure::kCancelled, "query was canceled in expression evaluation"};
  if (is_late()) throw EvalFailure{QueryFailure::kTimeout, "query timed out in expression evaluation"};
  if (is_without_memory()) throw EvalFailure{QueryFailure::kNoMemory, kMemorySpent};
}

bool Evaluator::is_without_memory() const {
  return options_.memory != nullptr && options_.memory->budget() != nullptr && options_.memory->budget()->spent();
}

void Evaluator::charge(uint64_t samples) {
  samples_ += samples;
  if (samples_ > options_.limits.samples_max)
    fail_execution(
        format("query processing would load too many samples into memory in query execution: more than %llu; "
               "narrow its range or selectors, or take a larger step",
               static_cast<unsigned long long>(options_.limits.samples_max)));
  unchecked_ += samples + kSeriesAsSamples;
  if (unchecked_ >= kSamplesBetweenChecks) {
    unchecked_ = 0;
    check();
  }
}

uint64_t Evaluator::bytes_of(const Block& block) {
  return block.values.capacity() * sizeof(double) + block.histograms.capacity() * sizeof(HistogramPtr) +
         block.rows.capacity() * sizeof(Row);
}

void Evaluator::hold(uint64_t bytes) {
  peak_bytes_ = std::max(peak_bytes_, bytes);
  if (bytes > options_.limits.bytes_max)
    fail_execution(
        format("query would hold more than %llu bytes at once; narrow its range or selectors, or take a "
               "larger step",
               static_cast<unsigned long long>(options_.limits.bytes_max)));
  if (options_.memory != nullptr && !options_.memory->hold(bytes))
    throw EvalFailure{QueryFailure::kNoMemory, kMemorySpent};
}

void Evaluator::charge_block(const Block& block) {
  hold(bytes_of(block) + held_bytes_ + labels_.bytes());
}

void Evaluator::charge_bytes(uint64_t bytes) {
  hold(held_bytes_ + labels_.bytes() + bytes);
}

void Evaluator::annotate(bool warning, std::string message, const Expr& at, std::string details) {
  // As Prometheus has it: what is found in a subquery is told of the query's first byte.
  const uint32_t begin = unwrapped(at).kind == Expr::Kind::kSubquery ? 0 : unwrapped(at).begin;
  for (const Annotation& known : annotations_) {
    if (known.warning == warning && known.message == message) return;  // the first place is told
  }
  annotations_.push_back({warning, std::move(message), begin, std::move(details)});
}

// --- before evaluation

namespace {
bool names_one_metric(const Expr& selector) {
  return std::any_of(selector.matchers.begin(), selector.matchers.end(), [](const LabelMatcher& matcher) {
    return matcher.name == "__name__" && matcher.op == LabelMatcher::Op::kEqual;
  });
}

Expr* unwrapped(std::unique_ptr<Expr>& expr) {
  return expr->kind == Expr::Kind::kParen ? unwrapped(expr->children[0]) : expr.get();
}

// sum by (job) (rate(x[1m])): nobody sees any label of x but job. Series that then look alike are not merged: a
// selector's rows are what they are, and those of one metric differ without their name too.
void tell_wanted_labels(Expr& aggregate) {
  switch (aggregate.aggregate) {
    case AggregateOp::kTopk:
    case AggregateOp::kBottomk:
    case AggregateOp::kLimitk:
    case AggregateOp::kLimitRatio:
    case AggregateOp::kCountValues:
      return;
    default:
      break;
  }
  if (aggregate.without) return;
  Expr* operand = unwrapped(aggregate.children[0]);
  if (operand->kind == Expr::Kind::kCall) {
    for (std::unique_ptr<Expr>& argument : operand->children) {
      Expr* range = unwrapped(argument);
      if (range->kind == Expr::Kind::kMatrix && names_one_metric(range->child()))
        range->children[0]->only_labels = aggregate.grouping;
    }
  } else if (operand->kind == Expr::Kind::kSelector) {
    operand->only_labels = aggregate.grouping;
  }
}
}  // namespace

void Evaluator::resolve(Expr& expr, BucketUse use) {
  if (expr.offset_expr) expr.offset_ms = duration_ms(*expr.offset_expr, times_, true);
  if (expr.range_expr) expr.range_ms = duration_ms(*expr.range_expr, times_, false);
  if (expr.step_expr) expr.step_ms = duration_ms(*expr.step_expr, times_, false);
  if (expr.at == AtModifier::kStart) expr.at_ms = times_.start_ms;
  if (expr.at == AtModifier::kEnd) expr.at_ms = times_.end_ms;
  expr.at_ms = tame(expr.at_ms);
  expr.offset_ms = tame(expr.offset_ms);
  expr.range_ms = tame(expr.range_ms);
  if (expr.kind == Expr::Kind::kSubquery || expr.op == BinaryOp::kTrimUpper || expr.op == BinaryOp::kTrimLower) {
    use = BucketUse::kNeeded;
  } else if (expr.kind == Expr::Kind::kCall && use != BucketUse::kNeeded) {
    const std::string_view name = expr.function->name;
    if (name == "histogram_count" || name == "histogram_sum" || name == "histogram_avg") use = BucketUse::kNotNeeded;
    if (name == "histogram_quantile" || name == "histogram_quantiles" || name == "histogram_fraction")
      use = BucketUse::kNeeded;
  }
  expr.finds_resets = use == BucketUse::kNotNeeded;
  if (expr.kind == Expr::Kind::kAggregate) tell_wanted_labels(expr);
  for (auto& child : expr.children) resolve(*child, use);
}

bool Evaluator::is_invariant(const Expr& expr) const {
  switch (expr.kind) {
    case Expr::Kind::kNumber:
    case Expr::Kind::kString:
      return true;
    case Expr::Kind::kSelector:
    case Expr::Kind::kSubquery:
      return expr.at != AtModifier::kNone;
    case Expr::Kind::kMatrix:
    case Expr::Kind::kAggregate:
    case Expr::Kind::kUnary:
    case Expr::Kind::kParen:
      return is_invariant(expr.child());
    case Expr::Kind::kBinary:
      return is_invariant(expr.child(0)) && is_invariant(expr.child(1));
    case Expr::Kind::kCall: {
      if (expr.function->name == "timestamp") {
        const Expr& argument = unwrapped(expr.child());
        return argument.kind == Expr::Kind::kSelector && is_invariant(argument);
      }
      if (depends_on_time(expr.function->name)) return false;
      return std::all_of(expr.children.begin(), expr.children.end(),
                         [&](const auto& child) { return is_invariant(*child); });
    }
  }
  return false;
}

// --- selecting

const MetricSelection* Evaluator::select(std::span<const LabelMatcher> matchers, int64_t from, int64_t to,
                                         int64_t spacing, Rollup rollup) {
  check();
  SelectOptions options;
  options.from_ms = from;
  options.to_ms = to;
  options.spacing_ms = to - from > options_.rollup_span_ms ? spacing : 0;
  options.rollup = rollup;
  options.series_max = options_.limits.series_max;
  options.give_up = [this] { return is_cancelled() || is_late() || is_without_memory(); };
  Result<std::unique_ptr<MetricSelection>> selection = reader_.select(matchers, options);
  check();
  if (!selection.ok()) fail_execution(selection.error());
  selections_.push_back(std::move(*selection));
  return selections_.back().get();
}

std::vector<LabelSpan> Evaluator::labels_of(const MetricSelection& selection,
                                            const std::optional<std::vector<std::string>>& only) {
  std::vector<uint32_t> wanted{LabelTable::kName, LabelTable::kType, LabelTable::kUnit};
  if (only) {
    for (const std::string& name : *only) wanted.push_back(labels_.intern(name));
  }
  std::vector<uint32_t> known;  // the selection's number -> ours + 1
  const auto ours = [&](uint32_t symbol) {
    if (symbol >= known.size()) known.resize(std::max<size_t>(symbol + 1, known.size() * 2), 0);
    if (known[symbol] == 0) known[symbol] = labels_.intern_stable(selection.text(symbol)) + 1;
    return known[symbol] - 1;
  };
  std::vector<LabelSpan> out;
  out.reserve(selection.size());
  for (size_t i = 0; i < selection.size(); ++i) {
    if (i % kSeriesBetweenChecks == 0) check();
    const std::span<const LabelSymbols> given = selection.labels(i);
    LabelSymbols* made = labels_.room(given.size());
    size_t count = 0;
    for (const LabelSymbols& label : given) {
      const uint32_t name = ours(label.name);
      if (only && std::find(wanted.begin(), wanted.end(), name) == wanted.end()) continue;
      const uint32_t value = ours(label.value);
      if (value != LabelTable::kEmpty) made[count++] = {name, value};
    }
    out.push_back(labels_.keep(made, count));
  }
  return out;
}

Block Evaluator::selected(const MetricSelection& selection, const Grid& grid, const Expr* expr, int64_t offset,
                          Take take) {
  Block block;
  block.steps = grid.count;
  const std::vector<LabelSpan> labels = labels_of(selection, expr != nullptr ? expr->only_labels : std::nullopt);
  block.rows.reserve(selection.size());
  block.values.reserve(selection.size() * grid.count);
  charge_block(block);
  const bool fixed = expr != nullptr && expr->at != AtModifier::kNone;
  const int64_t lookback = options_.lookback_ms;
  const int64_t from = (fixed ? expr->at_ms : grid.start) - offset - lookback + 1;
  const int64_t to = (fixed ? expr->at_ms : grid.last()) - offset;
  const bool newest_alone = (fixed || grid.count == 1) && (expr == nullptr || !expr->finds_resets);
  SampleColumns columns;
  for (size_t i = 0; i < selection.size(); ++i) {
    Result<void> read = newest_alone ? selection.newest(i, from, to, columns) : selection.samples(i, from, to, columns);
    if (!read.ok()) fail_execution(read.error());
    const size_t count = columns.times_ms.size();
    charge(count + 1);
    if (count == 0) continue;
    if (expr != nullptr && expr->finds_resets) find_resets(columns);
    const size_t row = block.add_row(labels[i]);
    std::span<double> out = block.row(row);
    bool any = false;
    size_t next = 0;  // the first sample after the time looked at
    for (size_t s = 0; s < grid.count; ++s) {
      const int64_t at = (fixed ? expr->at_ms : grid.time(s)) - offset;
      while (next < count && columns.times_ms[next] <= at) ++next;
      if (next == 0) continue;
      const size_t k = next - 1;
      if (columns.times_ms[k] <= at - lookback) continue;
      const HistogramPtr* histogram =
          columns.histograms.empty() || !columns.histograms[k] ? nullptr : &columns.histograms[k];
      if (histogram != nullptr ? is_stale((*histogram)->sum) : is_stale(columns.values[k])) continue;
      any = true;
      if (take == Take::kTime) {
        if (expr == nullptr && histogram != nullptr)
          fail_execution("this should be an info metric, with float samples: " + labels_.shown(labels[i]));
        out[s] = static_cast<double>(columns.times_ms[k]);
      } else if (histogram != nullptr) {
        block.set_histogram(row, s, *histogram);
        out = block.row(row);
      } else {
        out[s] = columns.values[k];
      }
    }
    if (!any) {
      block.rows.pop_back();
      block.values.resize(block.values.size() - grid.count);
      if (!block.histograms.empty()) block.histograms.resize(block.values.size());
    }
  }
  charge_block(block);
  return block;
}

Block Evaluator::eval_selector(const Expr& expr, const Grid& grid, Take take) {
  if (expr.smoothed && take == Take::kValue) return eval_smoothed(expr, grid);
  const bool fixed = expr.at != AtModifier::kNone;
  const int64_t from = (fixed ? expr.at_ms : grid.start) - expr.offset_ms - options_.lookback_ms + 1;
  const int64_t to = (fixed ? expr.at_ms : grid.last()) - expr.offset_ms;
  const MetricSelection* selection = select(expr.matchers, from, to, std::min(grid.step, options_.lookback_ms / 2));
  Block block = selected(*selection, grid, &expr, expr.offset_ms, take);
  block.one_name = names_one_metric(expr);
  return block;
}

// --- range vectors

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

namespace {
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
}  // namespace

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

Block Evaluator::over_range(const Expr& expr, const Grid& grid, size_t argument_index, std::string_view name,
                            const MetricSelection* selection, bool keep_labels) {
  const Expr& argument = unwrapped(expr.child(argument_index));
  const RangeFunction function = find_range_function(name);
  std::vector<std::vector<double>> parameters;
  for (size_t i = 0; i < expr.children.size(); ++i) {
    if (i != argument_index) parameters.push_back(eval_scalar(expr.child(i), grid));
  }
  const bool is_subquery = argument.kind == Expr::Kind::kSubquery;
  const Expr& modified = is_subquery ? argument : argument.child();
  std::vector<double> scratch;
  RangeCall call{*this, expr, argument, {}, {0, 0}, modified.anchored, modified.smoothed, argument.range_ms, &scratch};
  static constexpr std::string_view kAnchored[] = {"changes", "delta", "increase", "rate", "resets"};
  static constexpr std::string_view kSmoothed[] = {"delta", "increase", "rate"};
  const auto among = [&](std::span<const std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (call.anchored && !among(kAnchored))
    fail_execution("anchored modifier can only be used with: " + joined(kAnchored) + " - not with " +
                   std::string(name));
  if (call.smoothed && !among(kSmoothed))
    fail_execution("smoothed modifier can only be used with: " + joined(kSmoothed) + " - not with " +
                   std::string(name));

  const bool fixed = modified.at != AtModifier::kNone;
  const int64_t before = call.anchored || call.smoothed ? options_.lookback_ms : 0;
  const int64_t after = call.smoothed ? options_.lookback_ms : 0;
  const bool keeps_name = name == "last_over_time" || name == "first_over_time";
  const bool wants_counter = name == "rate" || name == "increase";

  Block out;
  out.steps = grid.count;
  Block inner;
  Grid inner_grid;
  Reached reached;
  std::vector<LabelSpan> labels;
  size_t series = 0;
  if (is_subquery) {
    inner = subquery(argument, grid, inner_grid);
    series = inner.rows.size();
    out.one_name = inner.one_name;
  } else {
    reached = reached_by(argument, grid);
    labels = labels_of(*selection, keep_labels ? std::nullopt : modified.only_labels);
    series = selection->size();
    out.one_name = names_one_metric(modified);
  }
  out.rows.reserve(series);
  out.values.reserve(series * grid.count);
  charge_block(out);

  SampleColumns columns;
  SeriesSamples samples;
  std::vector<double> made;
  const WindowEdges edges{(fixed ? modified.at_ms : grid.start) - modified.offset_ms, fixed ? 0 : grid.step, grid.count,
                          argument.range_ms};
  ExtrapolatedRows rows(name, edges);
  StretchedRows stretched(name, edges);
  std::vector<SampleStretch> stretches;
  const bool is_plain = !is_subquery && before == 0 && after == 0 && !modified.finds_resets;
  uint32_t warned_name = std::numeric_limits<uint32_t>::max();
  for (size_t i = 0; i < series; ++i) {
    bool drop_name = !keeps_name;
    bool is_made = false;  // at every step at once
    if (is_subquery) {
      call.labels = inner.rows[i].labels;
      drop_name |= inner.rows[i].drop_name;
      columns.clear();
      for (size_t s = 0; s < inner_grid.count; ++s) {
        const double value = inner.values[i * inner_grid.count + s];
        if (is_absent(value)) continue;
        columns.times_ms.push_back(inner_grid.time(s));
        columns.values.push_back(value);
        if (inner.histograms.empty()) continue;
        HistogramPtr histogram = inner.histogram_ptr(i, s);
        // What the subquery stepped over is not known, so neither is whether there was a reset in between.
        if (histogram && (histogram->reset == CounterReset::kYes || histogram->reset == CounterReset::kNo)) {
          auto unsure = std::make_shared<NativeHistogram>(*histogram);
          unsure->reset = CounterReset::kUnknown;
          histogram = std::move(unsure);
        }
        columns.histograms.push_back(std::move(histogram));
      }
    } else {
      call.labels = labels[i];
      const auto [from, to] = reached;
      Result<void> read = is_plain && stretched.applies() ? selection->stretches(i, from, to, edges, columns, stretches)
                                                          : selection->samples(i, from, to, columns);
      if (!stretches.empty()) {
        charge(stretches.size());
        made.assign(grid.count, kAbsent);
        is_made = read.ok() && stretched.make(columns, stretches, made);
        if (!is_made) read = selection->samples(i, from, to, columns);
      }
      if (!read.ok()) fail_execution(read.error());
    }
    charge(columns.times_ms.size() + 1);
    if (!is_made) {
      if (modified.finds_resets && !is_subquery) find_resets(columns);
      split_samples(columns, samples);
      if (samples.times.empty() && samples.histogram_times.empty()) continue;
    }
    const size_t row = out.add_row(call.labels, drop_name);
    bool any = false;
    bool any_float = false;
    size_t float_begin = 0, float_end = 0, histogram_begin = 0, histogram_end = 0;
    if (is_made) {
      std::copy(made.begin(), made.end(), out.row(row).begin());
    } else if (rows.applies() && samples.histogram_times.empty() && before == 0 && after == 0) {
      rows.make(samples, out.row(row));
      is_made = true;
    }
    if (is_made) {
      const std::span<const double> values = out.row(row);
      any = any_float = std::any_of(values.begin(), values.end(), [](double value) { return !is_absent(value); });
    }
    for (size_t s = 0; s < grid.count && !is_made; ++s) {
      Window window;
      window.eval_ms = grid.time(s);
      window.range_end_ms = (fixed ? modified.at_ms : window.eval_ms) - modified.offset_ms;
      window.range_start_ms = window.range_end_ms - argument.range_ms;
      const int64_t first = window.range_start_ms - before;
      const int64_t last = window.range_end_ms + after;
      while (float_end < samples.times.size() && samples.times[float_end] <= last) ++float_end;
      while (float_begin < float_end && samples.times[float_begin] <= first) ++float_begin;
      window.times = part(samples.times, float_begin, float_end);
      window.values = part(samples.values, float_begin, float_end);
      if (!samples.histogram_times.empty()) {
        while (histogram_end < samples.histogram_times.size() && samples.histogram_times[histogram_end] <= last)
          ++histogram_end;
        while (histogram_begin < histogram_end && samples.histogram_times[histogram_begin] <= first) ++histogram_begin;
        window.histogram_times = part(samples.histogram_times, histogram_begin, histogram_end);
        window.histograms = part(samples.histograms, histogram_begin, histogram_end);
      }
      if (window.size() == 0) continue;
      for (size_t p = 0; p < parameters.size() && p < 2; ++p) call.parameters[p] = parameters[p][s];
      RangeValue value = function(window, call);
      if (value.histogram) {
        out.set_histogram(row, s, std::move(value.histogram));
        any = true;
      } else if (!is_absent(value.value)) {
        out.values[row * grid.count + s] = value.value;
        any = any_float = true;
      }
    }
    if (grid.count > 1) charge(grid.count);
    if (!any) {
      out.rows.pop_back();
      out.values.resize(out.values.size() - grid.count);
      if (!out.histograms.empty()) out.histograms.resize(out.values.size());
    }
    if (wants_counter && any_float) {
      const uint32_t metric = labels_.get(call.labels, LabelTable::kName);
      if (metric == LabelTable::kEmpty || (metric == warned_name && !options_.type_and_unit_labels)) continue;
      warned_name = metric;
      const std::string_view text = labels_.text(metric);
      if (options_.type_and_unit_labels) {
        const std::string_view type = labels_.text(labels_.get(call.labels, LabelTable::kType));
        if (type != "counter" && type != "histogram")
          annotate(false,
                   "PromQL info: metric might not be a counter, __type__ label is not set to \"counter\" or "
                   "\"histogram\", got " +
                       in_quotes(type) + ": " + in_quotes(text),
                   argument);
      } else if (!ends_like_a_counter(text)) {
        annotate(false,
                 "PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: " +
                     in_quotes(text),
                 argument);
      }
    }
  }
  charge_block(out);

  if (name == "absent_over_time") {
    Block absent;
    absent.steps = grid.count;
    const size_t row = absent.add_row(absent_labels(argument), true);
    bool any = false;
    for (size_t s = 0; s < grid.count; ++s) {
      bool found = false;
      for (size_t i = 0; i < out.rows.size() && !found; ++i) found = !is_absent(out.row(i)[s]);
      if (found) continue;
      absent.row(row)[s] = 1;
      any = true;
    }
    if (!any) absent = Block{.steps = grid.count, .rows = {}, .values = {}, .histograms = {}, .one_name = false};
    return absent;
  }
  if (!delayed()) {
    for (Row& row : out.rows) {
      if (row.drop_name) row.labels = labels_.without_metadata(row.labels);
    }
    if (!out.one_name) merge_same(out, true);
  }
  return out;
}

// --- names

void Evaluator::drop_names(Block& block) {
  for (Row& row : block.rows) {
    if (!delayed()) row.labels = labels_.without_metadata(row.labels);
    row.drop_name = true;
  }
}

void Evaluator::merge_same(Block& block, bool strict) {
  if (block.rows.size() < 2) return;
  LabelSetIds ids(block.rows.size());
  std::vector<uint32_t> of(block.rows.size());
  for (size_t i = 0; i < block.rows.size(); ++i) of[i] = ids.id(block.rows[i].labels);
  if (ids.size() == block.rows.size()) return;
  if (strict) fail_execution("vector cannot contain metrics with the same labelset");
  std::vector<size_t> first(ids.size(), std::numeric_limits<size_t>::max());
  for (size_t i = 0; i < block.rows.size(); ++i) {
    size_t& target = first[of[i]];
    if (target == std::numeric_limits<size_t>::max()) {
      target = i;
      continue;
    }
    for (size_t s = 0; s < block.steps; ++s) {
      double& from = block.values[i * block.steps + s];
      if (is_absent(from)) continue;
      double& to = block.values[target * block.steps + s];
      if (!is_absent(to)) fail_execution("vector cannot contain metrics with the same labelset");
      to = from;
      from = kAbsent;
      if (!block.histograms.empty())
        block.histograms[target * block.steps + s] = std::move(block.histograms[i * block.steps + s]);
    }
  }
  block.drop_empty_rows();
}

// --- expressions

Block Evaluator::number_block(std::span<const double> values) {
  Block block;
  block.steps = values.size();
  block.rows.push_back({});
  block.values.assign(values.begin(), values.end());
  charge_block(block);
  return block;
}

std::vector<double> Evaluator::eval_scalar(const Expr& expr, const Grid& grid) {
  Block block = eval(expr, grid);
  block.values.resize(grid.count, std::numeric_limits<double>::quiet_NaN());
  return std::move(block.values);
}

Block Evaluator::eval_unary(const Expr& expr, const Grid& grid) {
  Block block = eval(expr.child(), grid);
  if (!expr.negative) return block;
  for (size_t i = 0; i < block.values.size(); ++i) {
    if (is_absent(block.values[i])) continue;
    if (!block.histograms.empty() && block.histograms[i]) {
      FlatHistogram histogram(*block.histograms[i]);
      histogram.scale(-1);
      block.histograms[i] = histogram.pack();
    } else {
      block.values[i] = -block.values[i];
    }
  }
  drop_names(block);
  if (!delayed() && !block.one_name) merge_same(block);
  return block;
}

Block Evaluator::eval(const Expr& expr, const Grid& grid) {
  check();
  if (grid.count > 1 && expr.kind != Expr::Kind::kNumber && expr.kind != Expr::Kind::kString &&
      expr.kind != Expr::Kind::kMatrix && is_invariant(expr)) {
    const Grid once{grid.start, grid.start, grid.step, 1};
    const Block single = eval(expr, once);
    Block block;
    block.steps = grid.count;
    block.rows = single.rows;
    block.one_name = single.one_name;
    if (single.rows.size() * grid.count > options_.limits.samples_max)
      fail_execution("query processing would load too many samples into memory in query execution");
    block.values.reserve(single.values.size() * grid.count);
    charge_block(block);
    for (double value : single.values) block.values.insert(block.values.end(), grid.count, value);
    for (const HistogramPtr& histogram : single.histograms)
      block.histograms.insert(block.histograms.end(), grid.count, histogram);
    return block;
  }
  switch (expr.kind) {
    case Expr::Kind::kNumber:
      return number_block(std::vector<double>(grid.count, expr.number));
    case Expr::Kind::kString:
      return number_block(std::vector<double>(grid.count, 0));
    case Expr::Kind::kSelector:
      return eval_selector(expr, grid);
    case Expr::Kind::kParen:
      return eval(expr.child(), grid);
    case Expr::Kind::kUnary:
      return eval_unary(expr, grid);
    case Expr::Kind::kAggregate:
      return eval_aggregate(expr, grid);
    case Expr::Kind::kBinary:
      return eval_binary(expr, grid);
    case Expr::Kind::kCall:
      return eval_call(expr, grid);
    case Expr::Kind::kMatrix:
    case Expr::Kind::kSubquery:
      break;
  }
  fail_execution("a range vector cannot be evaluated here");
}

// --- the answer

void Evaluator::answer(Block block, const Grid& grid, bool instant, ValueType type, QueryResult& result) {
  for (Row& row : block.rows) {
    if (row.drop_name) row.labels = labels_.without_metadata(row.labels);
  }
  if (delayed()) merge_same(block);
  if (!delayed() && instant) merge_same(block, true);
  if (instant && type == ValueType::kScalar) {
    result.type = ValueType::kScalar;
    result.scalar = block.values.empty() ? std::numeric_limits<double>::quiet_NaN() : block.values[0];
    return;
  }
  result.type = instant ? ValueType::kVector : ValueType::kMatrix;
  std::vector<uint32_t> order(block.rows.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  if (!instant) {
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return labels_.compare(block.rows[a].labels, block.rows[b].labels) < 0; });
  }
  result.series.reserve(order.size());
  const Held held(*this, block);
  uint64_t answer_bytes = order.size() * sizeof(ResultSeries);
  for (uint32_t i : order) {
    answer_bytes += labels_.text_bytes(block.rows[i].labels) + grid.count * (sizeof(int64_t) + sizeof(double));
    charge_bytes(answer_bytes);
    ResultSeries series;
    for (size_t s = 0; s < grid.count; ++s) {
      const double value = block.row(i)[s];
      if (is_absent(value)) continue;
      series.times_ms.push_back(grid.time(s));
      series.values.push_back(value);
      if (!block.histograms.empty()) series.histograms.push_back(block.histograms[i * block.steps + s]);
    }
    if (series.times_ms.empty()) continue;
    series.labels = labels_.text_of(block.rows[i].labels);
    result.series.push_back(std::move(series));
  }
}

// What smoothed and anchored show when they are asked for as they are: the ends of the range as values.
static void extend(std::vector<int64_t>& times, std::vector<double>& values, int64_t from, int64_t to, bool smoothed) {
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

QueryResult Evaluator::run(Expr& expr) {
  QueryResult result;
  try {
    resolve(expr, BucketUse::kUnknown);
    const bool instant = times_.step_ms == 0;
    Grid grid;
    grid.start = tame(times_.start_ms);
    grid.end = instant ? grid.start : tame(times_.end_ms);
    grid.step = instant ? 1 : times_.step_ms;
    grid.count = static_cast<size_t>((grid.end - grid.start) / grid.step + 1);
    const Expr& top = unwrapped(expr);
    if (top.type == ValueType::kString) {
      if (!instant)
        throw EvalFailure{QueryFailure::kBadQuery,
                          "invalid expression type \"string\" for range query, must be Scalar or instant Vector"};
      result.type = ValueType::kString;
      result.text = top.text;
    } else if (top.type == ValueType::kMatrix) {
      if (!instant)
        throw EvalFailure{QueryFailure::kBadQuery,
                          "invalid expression type \"range vector\" for range query, must be Scalar or instant Vector"};
      raw_range(top, grid, result);
    } else {
      if (grid.count > options_.limits.samples_max)
        fail_execution("query processing would load too many samples into memory in query execution");
      answer(eval(expr, grid), grid, instant, expr.type, result);
    }
  } catch (const EvalFailure& failure) {
    result = {};
    result.failure = failure.kind;
    result.error = as_one_line(failure.message);
  } catch (const std::bad_alloc&) {
    result = {};
    result.failure = QueryFailure::kExecution;
    result.error = "the query needs more memory than there is";
  }
  result.annotations = std::move(annotations_);
  result.samples_read = samples_;
  result.peak_bytes = peak_bytes_;
  return result;
}

std::string shown(const Annotation& annotation, std::string_view query) {
  size_t line = 1, column = 1;
  for (size_t i = 0; i < annotation.at && i < query.size(); ++i) {
    ++column;
    if (query[i] == '\n') {
      ++line;
      column = 1;
    }
  }
  return format("%s%s (%zu:%zu)", annotation.message.c_str(), annotation.details.c_str(), line, column);
}

QueryResult run_query(std::unique_ptr<Expr> expr, const MetricReader& reader, const QueryTimes& times,
                      const QueryOptions& options) {
  return Evaluator(reader, times, options).run(*expr);
}

QueryResult run_query(std::string_view query, const MetricReader& reader, const QueryTimes& times,
                      const QueryOptions& options) {
  Result<std::unique_ptr<Expr>> expr = parse(query);
  if (!expr.ok()) {
    QueryResult result;
    result.failure = QueryFailure::kBadQuery;
    result.error = expr.error();
    return result;
  }
  return run_query(std::move(*expr), reader, times, options);
}

}  // namespace lockstep::promql
