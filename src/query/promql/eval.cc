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

void Block::drop_last_row() {
  rows.pop_back();
  values.resize(values.size() - steps);
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
    if (!any) block.drop_last_row();
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
