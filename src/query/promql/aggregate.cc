// Aggregations. Which group a row belongs to is worked out once; then the values of a group's rows are added up step by
// step, rows in order, so that rounding is the same whatever the number of steps.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <unordered_map>

#include "base/text.h"
#include "query/promql/evaluator.h"
#include "query/promql/lexer.h"
#include "query/promql/printer.h"
#include "query/promql/sample_math.h"

namespace lockstep::promql {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kStatesMax = 1u << 20;  // held at once; more steps are worked through in pieces

bool valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

// What a group has come to at one step.
struct State {
  double value = 0;
  double mean = 0;
  double lost = 0;
  double count = 0;
  bool seen = false;
  bool has_float = false, has_histogram = false, incompatible = false, moving = false;
  std::unique_ptr<HistogramSum> histograms;
};

std::string ignored_histogram(AggregateOp op) {
  return "PromQL info: ignored histogram in " + std::string(op_text(op)) + " aggregation";
}

// The mean by a sum; where that would overflow, by moving the mean.
void add_to_mean(State& state, double value) {
  if (!state.moving) {
    Compensated sum{state.value, state.lost};
    sum.add(value);
    if (!std::isinf(sum.sum)) {
      state.value = sum.sum;
      state.lost = sum.lost;
      return;
    }
    state.moving = true;
    state.mean = state.value / (state.count - 1);
    state.lost /= state.count - 1;
  }
  const double q = (state.count - 1) / state.count;
  Compensated mean{q * state.mean, q * state.lost};
  mean.add(value / state.count);
  state.mean = mean.sum;
  state.lost = mean.lost;
}

void add_value(State& state, AggregateOp op, double value) {
  const bool first = !state.seen;
  state.seen = true;
  switch (op) {
    case AggregateOp::kSum:
    case AggregateOp::kAvg:
      state.has_float = true;
      ++state.count;
      if (first) {
        state.value = value;
      } else if (op == AggregateOp::kSum) {
        Compensated sum{state.value, state.lost};
        sum.add(value);
        state.value = sum.sum;
        state.lost = sum.lost;
      } else {
        add_to_mean(state, value);
      }
      break;
    case AggregateOp::kCount:
      ++state.count;
      break;
    case AggregateOp::kGroup:
      state.value = 1;
      break;
    case AggregateOp::kMax:
      if (first || state.value < value || std::isnan(state.value)) state.value = value;
      break;
    case AggregateOp::kMin:
      if (first || state.value > value || std::isnan(state.value)) state.value = value;
      break;
    case AggregateOp::kStddev:
    case AggregateOp::kStdvar:
      ++state.count;
      if (first) {
        state.mean = value;
        state.value = std::isnan(value) || std::isinf(value) ? kNan : 0;
      } else {
        const double off = value - state.mean;
        state.mean += off / state.count;
        state.value += off * (value - state.mean);
      }
      break;
    default:
      break;
  }
}

// Sum or mean; false: it does not go together with those before.
bool add_histogram(State& state, AggregateOp op, const NativeHistogram& histogram) {
  state.seen = true;
  state.has_histogram = true;
  if (state.has_float) return true;
  if (!state.histograms) state.histograms = std::make_unique<HistogramSum>();
  return op == AggregateOp::kSum ? state.histograms->add(histogram) : state.histograms->add_to_mean(histogram);
}

// What a group of floats has come to.
double result_of(const State& state, AggregateOp op) {
  switch (op) {
    case AggregateOp::kSum:
      return state.value + state.lost;
    case AggregateOp::kAvg:
      return state.moving ? state.mean + state.lost : state.value / state.count + state.lost / state.count;
    case AggregateOp::kCount:
      return state.count;
    case AggregateOp::kStdvar:
      return state.value / state.count;
    case AggregateOp::kStddev:
      return std::sqrt(state.value / state.count);
    default:
      return state.value;
  }
}

// sum, avg, count, group, min, max, stddev and stdvar.
class SimpleAggregation {
 public:
  // of: the group of each row. out: a row per group, of absent values.
  SimpleAggregation(Evaluator& evaluator, const Expr& expr, const Block& block, const std::vector<uint32_t>& of,
                    Block out)
      : evaluator_(evaluator),
        op_(expr.aggregate),
        argument_(expr.child()),
        block_(block),
        of_(of),
        out_(std::move(out)) {}

  Block run() {
    const size_t piece = std::max<size_t>(1, kStatesMax / std::max<size_t>(1, out_.rows.size()));
    for (size_t from = 0; from < block_.steps; from += piece) {
      evaluator_.check();
      const size_t width = std::min(piece, block_.steps - from);
      states_.clear();
      states_.resize(out_.rows.size() * width);
      add_rows(from, width);
      write(from, width);
    }
    out_.drop_empty_rows();
    return std::move(out_);
  }

 private:
  void add_rows(size_t from, size_t width) {
    const AggregateOp op = op_;
    const bool adds_up = op == AggregateOp::kSum || op == AggregateOp::kAvg;
    const bool takes_histograms = adds_up || op == AggregateOp::kCount || op == AggregateOp::kGroup;
    for (size_t i = 0; i < block_.rows.size(); ++i) {
      const double* row = block_.values.data() + i * block_.steps + from;
      State* group_states = states_.data() + of_[i] * width;
      for (size_t s = 0; s < width; ++s) {
        const double value = row[s];
        if (is_absent(value)) continue;
        State& state = group_states[s];
        const NativeHistogram* histogram = block_.histogram(i, from + s);
        if (histogram != nullptr && !takes_histograms) {
          evaluator_.annotate(false, ignored_, argument_);
          continue;
        }
        if (state.incompatible) continue;
        if (histogram != nullptr && adds_up) {
          if (add_histogram(state, op, *histogram)) continue;
          state.incompatible = true;
          annotate_mixed_buckets(i);
        } else {
          add_value(state, op, value);
        }
      }
      if ((i & 1023) == 1023) evaluator_.check();
    }
  }

  void write(size_t from, size_t width) {
    for (size_t g = 0; g < out_.rows.size(); ++g) {
      for (size_t s = 0; s < width; ++s) {
        State& state = states_[g * width + s];
        if (!state.seen) continue;
        if (!state.has_histogram) {
          out_.values[g * block_.steps + from + s] = result_of(state, op_);
        } else {
          write_histogram(state, g, from + s);
        }
      }
    }
  }

  void write_histogram(State& state, size_t g, size_t step) {
    if (state.has_float) {
      evaluator_.annotate(true, "PromQL warning: encountered a mix of histograms and floats for aggregation",
                          argument_);
      return;
    }
    if (state.incompatible) return;
    if (state.histograms->collision())
      evaluator_.annotate(true, "PromQL warning: conflicting counter resets during histogram aggregation", argument_);
    if (state.histograms->reconciled())
      evaluator_.annotate(false, "PromQL info: mismatched custom buckets were reconciled during aggregation",
                          argument_);
    out_.set_histogram(g, step, op_ == AggregateOp::kSum ? state.histograms->total() : state.histograms->mean());
  }

  void annotate_mixed_buckets(size_t row) {
    evaluator_.annotate(
        true,
        "PromQL warning: vector contains a mix of histograms with exponential and custom buckets schemas "
        "for metric name " +
            in_quotes(evaluator_.metric_name(block_.rows[row].labels)),
        argument_);
  }

  Evaluator& evaluator_;
  const AggregateOp op_;
  const std::string ignored_ = ignored_histogram(op_);
  const Expr& argument_;
  const Block& block_;
  const std::vector<uint32_t>& of_;
  std::vector<State> states_;  // groups x steps of a piece
  Block out_;
};

// The heap's top is what goes first when something better comes.
template <typename Worse>
void sift_up(std::vector<uint32_t>& heap, const Worse& worse) {
  size_t at = heap.size() - 1;
  while (at > 0 && worse(heap[at], heap[(at - 1) / 2])) {
    std::swap(heap[at], heap[(at - 1) / 2]);
    at = (at - 1) / 2;
  }
}
template <typename Worse>
void sift_down(std::vector<uint32_t>& heap, const Worse& worse) {
  size_t at = 0;
  for (;;) {
    size_t child = 2 * at + 1;
    if (child >= heap.size()) break;
    if (child + 1 < heap.size() && worse(heap[child + 1], heap[child])) ++child;
    if (!worse(heap[child], heap[at])) break;
    std::swap(heap[at], heap[child]);
    at = child;
  }
}

// Whether the parameter lets anything through, at any step; an error or a warning where it is out of range.
bool check_k(Evaluator& evaluator, const Expr& expr, std::span<const double> parameter) {
  const bool ratio = expr.aggregate == AggregateOp::kLimitRatio;
  double least = std::numeric_limits<double>::infinity(), most = -least;
  bool has_nan = false;
  for (double value : parameter) {
    has_nan |= std::isnan(value);
    least = std::min(least, value);
    most = std::max(most, value);
  }
  if (ratio ? !has_nan && most == 0 && least == 0 : !has_nan && most < 1) return false;
  if (has_nan) fail_execution(ratio ? "Ratio value is NaN" : "Parameter value is NaN");
  if (ratio) {
    if (most > 1)
      evaluator.annotate(
          true, "PromQL warning: ratio value should be between -1 and 1, got " + short_number(most) + ", capping to 1",
          expr.child(1));
    if (least < -1)
      evaluator.annotate(
          true,
          "PromQL warning: ratio value should be between -1 and 1, got " + short_number(least) + ", capping to -1",
          expr.child(1));
  } else {
    if (least <= -9.2233720368547758e18)
      fail_execution(format("Scalar value %s underflows int64", short_number(least).c_str()));
    if (most >= 9.2233720368547758e18)
      fail_execution(format("Scalar value %s overflows int64", short_number(most).c_str()));
  }
  return true;
}

// topk, bottomk, limitk and limit_ratio: some rows of each group, chosen anew at each step.
class ChosenRows {
 public:
  // of: the group of each row.
  ChosenRows(Evaluator& evaluator, const Expr& expr, Block block, const std::vector<uint32_t>& of, size_t groups)
      : evaluator_(evaluator), expr_(expr), op_(expr.aggregate), block_(std::move(block)), of_(of), chosen_(groups) {
    if (op_ != AggregateOp::kLimitRatio) return;
    for (const Row& row : block_.rows)
      offsets_.push_back(static_cast<double>(evaluator.labels().stable_hash(row.labels)) / 18446744073709551615.0);
  }

  Block run(std::span<const double> parameter, bool instant) {
    std::vector<uint8_t> keep(block_.values.size(), 0);
    std::vector<uint32_t> order;  // instant: rows as they are answered
    for (size_t s = 0; s < block_.steps; ++s) {
      evaluator_.check();
      for (auto& rows : chosen_) rows.clear();
      choose(s, parameter[s]);
      for (std::vector<uint32_t>& rows : chosen_) {
        for (uint32_t row : rows) keep[row * block_.steps + s] = 1;
        if (!instant) continue;
        if (op_ == AggregateOp::kTopk || op_ == AggregateOp::kBottomk) best_first(rows, s);
        order.insert(order.end(), rows.begin(), rows.end());
      }
    }
    if (instant) return in_order(order);
    for (size_t i = 0; i < block_.values.size(); ++i) {
      if (!keep[i]) block_.values[i] = kAbsent;
    }
    block_.drop_empty_rows();
    return std::move(block_);
  }

 private:
  double value_of(uint32_t row, size_t s) const { return block_.values[row * block_.steps + s]; }

  void choose(size_t s, double given) {
    if (op_ == AggregateOp::kLimitRatio) {
      if (given != 0) choose_share(s, std::clamp(given, -1.0, 1.0));
      return;
    }
    const size_t k = given < 1 ? 0 : static_cast<size_t>(std::min(given, static_cast<double>(block_.rows.size())));
    if (k == 0) return;
    if (op_ == AggregateOp::kLimitk) {
      choose_first(s, k);
    } else {
      choose_best(s, k);
    }
  }

  void choose_share(size_t s, double share) {
    for (uint32_t i = 0; i < block_.rows.size(); ++i) {
      if (is_absent(value_of(i, s))) continue;
      if (share >= 0 ? offsets_[i] < share : offsets_[i] >= 1 + share) chosen_[of_[i]].push_back(i);
    }
  }

  void choose_first(size_t s, size_t k) {
    for (uint32_t i = 0; i < block_.rows.size(); ++i) {
      if (is_absent(value_of(i, s))) continue;
      if (std::vector<uint32_t>& rows = chosen_[of_[i]]; rows.size() < k) rows.push_back(i);
    }
  }

  void choose_best(size_t s, size_t k) {
    const AggregateOp op = op_;
    const auto worse = [&](uint32_t a, uint32_t b) {
      const double x = value_of(a, s), y = value_of(b, s);
      if (std::isnan(x)) return true;
      return op == AggregateOp::kBottomk ? x > y : x < y;
    };
    for (uint32_t i = 0; i < block_.rows.size(); ++i) {
      const double value = value_of(i, s);
      if (is_absent(value)) continue;
      if (block_.histogram(i, s) != nullptr) {
        evaluator_.annotate(false, ignored_, expr_);
        continue;
      }
      std::vector<uint32_t>& heap = chosen_[of_[i]];
      if (heap.size() < k) {
        heap.push_back(i);
        sift_up(heap, worse);
        continue;
      }
      const double top = value_of(heap[0], s);
      const bool better = op == AggregateOp::kTopk ? top < value : top > value;
      if (better || (std::isnan(top) && !std::isnan(value))) {
        heap[0] = i;
        sift_down(heap, worse);
      }
    }
  }

  void best_first(std::vector<uint32_t>& rows, size_t s) const {
    std::stable_sort(rows.begin(), rows.end(), [&](uint32_t a, uint32_t b) {
      const double x = value_of(a, s), y = value_of(b, s);
      if (std::isnan(y)) return !std::isnan(x);
      return op_ == AggregateOp::kBottomk ? x < y : x > y;
    });
  }

  Block in_order(const std::vector<uint32_t>& order) const {
    Block out;
    out.steps = block_.steps;
    for (uint32_t i : order) {
      const size_t row = out.add_row(block_.rows[i].labels, block_.rows[i].drop_name);
      if (HistogramPtr histogram = block_.histogram_ptr(i, 0)) {
        out.set_histogram(row, 0, std::move(histogram));
      } else {
        out.row(row)[0] = block_.row(i)[0];
      }
    }
    return out;
  }

  Evaluator& evaluator_;
  const Expr& expr_;
  const AggregateOp op_;
  const std::string ignored_ = ignored_histogram(op_);
  Block block_;
  const std::vector<uint32_t>& of_;
  std::vector<double> offsets_;                // limit_ratio: where a series lies between 0 and 1
  std::vector<std::vector<uint32_t>> chosen_;  // rows of each group, at a step
};

}  // namespace

std::vector<uint32_t> Evaluator::group(const Block& block, const Expr& expr, std::vector<LabelSpan>& groups) {
  std::vector<uint32_t> of(block.rows.size());
  std::vector<uint32_t> names;
  for (const std::string& name : expr.grouping) names.push_back(labels_.intern(name));
  if (expr.without) {
    names.push_back(LabelTable::kName);
    LabelSetIds ids(block.rows.size());
    for (size_t i = 0; i < block.rows.size(); ++i) of[i] = ids.id(labels_.without(block.rows[i].labels, names));
    for (uint32_t id = 0; id < ids.size(); ++id) groups.push_back(ids.set(id));
    return of;
  }
  if (names.empty()) {
    if (!block.rows.empty()) groups.push_back({});
    return of;
  }
  if (names.size() == 1) {
    std::vector<uint32_t> by_value;  // value -> group + 1
    for (size_t i = 0; i < block.rows.size(); ++i) {
      const uint32_t value = labels_.get(block.rows[i].labels, names[0]);
      if (value >= by_value.size()) by_value.resize(std::max<size_t>(value + 1, by_value.size() * 2), 0);
      if (by_value[value] == 0) {
        groups.push_back(labels_.only(block.rows[i].labels, names));
        by_value[value] = static_cast<uint32_t>(groups.size());
      }
      of[i] = by_value[value] - 1;
    }
    return of;
  }
  LabelSetIds ids(block.rows.size());
  for (size_t i = 0; i < block.rows.size(); ++i) of[i] = ids.id(labels_.only(block.rows[i].labels, names));
  for (uint32_t id = 0; id < ids.size(); ++id) groups.push_back(ids.set(id));
  return of;
}

Block Evaluator::aggregate_simple(const Expr& expr, Block block) {
  std::vector<LabelSpan> groups;
  const std::vector<uint32_t> of = group(block, expr, groups);
  Block out;
  out.steps = block.steps;
  out.rows.reserve(groups.size());
  for (LabelSpan labels : groups) out.rows.push_back({labels, false});
  out.values.assign(groups.size() * block.steps, kAbsent);
  charge_block(out);
  for (size_t i = 0; i < block.rows.size(); ++i) out.rows[of[i]].drop_name |= block.rows[i].drop_name;
  return SimpleAggregation(*this, expr, block, of, std::move(out)).run();
}

Block Evaluator::aggregate_quantile(const Expr& expr, Block block, std::span<const double> parameter) {
  double least = kNan, most = kNan;
  bool has_nan = false;
  for (double q : parameter) {
    if (std::isnan(q)) {
      has_nan = true;
      continue;
    }
    least = std::isnan(least) ? q : std::min(least, q);
    most = std::isnan(most) ? q : std::max(most, q);
  }
  const auto warn = [&](double q) {
    annotate(true, "PromQL warning: quantile value should be between 0 and 1, got " + short_number(q), expr.child(1));
  };
  if (has_nan) warn(kNan);
  if (most > 1) warn(most);
  if (least < 0) warn(least);
  std::vector<LabelSpan> groups;
  const std::vector<uint32_t> of = group(block, expr, groups);
  Block out;
  out.steps = block.steps;
  for (LabelSpan labels : groups) out.add_row(labels);
  charge_block(out);
  for (size_t i = 0; i < block.rows.size(); ++i) out.rows[of[i]].drop_name |= block.rows[i].drop_name;
  std::vector<std::vector<double>> values(groups.size());
  for (size_t s = 0; s < block.steps; ++s) {
    check();
    for (std::vector<double>& of_group : values) of_group.clear();
    for (size_t i = 0; i < block.rows.size(); ++i) {
      const double value = block.row(i)[s];
      if (is_absent(value)) continue;
      if (block.histogram(i, s) != nullptr) {
        annotate(false, "PromQL info: ignored histogram in quantile aggregation", expr.child());
        continue;
      }
      values[of[i]].push_back(value);
    }
    for (size_t g = 0; g < groups.size(); ++g) {
      if (!values[g].empty()) out.row(g)[s] = quantile_of(parameter[s], values[g]);
    }
  }
  out.drop_empty_rows();
  return out;
}

Block Evaluator::aggregate_k(const Expr& expr, Block block, std::span<const double> parameter, const Grid& grid) {
  if (!check_k(*this, expr, parameter)) {
    Block nothing;
    nothing.steps = block.steps;
    return nothing;
  }
  std::vector<LabelSpan> groups;
  const std::vector<uint32_t> of = group(block, expr, groups);
  const bool instant = grid.start == grid.end && block.steps == 1;
  return ChosenRows(*this, expr, std::move(block), of, groups.size()).run(parameter, instant);
}

Block Evaluator::count_values(const Expr& expr, Block block) {
  const std::string& label =
      expr.child(1).kind == Expr::Kind::kParen ? unwrapped(expr.child(1)).text : expr.child(1).text;
  if (label.empty() || !valid_utf8(label)) fail_execution("invalid label name " + in_quotes(label));
  const uint32_t name = labels_.intern(label);
  std::vector<uint32_t> names;
  for (const std::string& one : expr.grouping) names.push_back(labels_.intern(one));
  if (expr.without) {
    names.push_back(LabelTable::kName);
  } else {
    names.push_back(name);
  }
  Block out;
  out.steps = block.steps;
  const Held held(*this, block);
  LabelSetIds ids(16);
  for (size_t i = 0; i < block.rows.size(); ++i) {
    std::unordered_map<uint64_t, uint32_t> by_value;
    for (size_t s = 0; s < block.steps; ++s) {
      const double value = block.row(i)[s];
      if (is_absent(value)) continue;
      const NativeHistogram* histogram = block.histogram(i, s);
      const uint64_t bits = std::bit_cast<uint64_t>(value);
      uint32_t id = 0;
      if (const auto found = by_value.find(bits); histogram == nullptr && found != by_value.end()) {
        id = found->second;
      } else {
        const std::string text = histogram != nullptr ? to_text(*histogram) : plain_number(value);
        const LabelSpan whole = labels_.with(block.rows[i].labels, name, labels_.intern(text));
        id = ids.id(expr.without ? labels_.without(whole, names) : labels_.only(whole, names));
        if (histogram == nullptr) by_value.emplace(bits, id);
        if (id == out.rows.size()) {
          out.add_row(ids.set(id));
          charge_block(out);
        }
      }
      double& count = out.row(id)[s];
      count = is_absent(count) ? 1 : count + 1;
    }
    if ((i & 255) == 0) check();
  }
  return out;
}

Block Evaluator::eval_aggregate(const Expr& expr, const Grid& grid) {
  std::vector<double> parameter;
  if (has_parameter(expr.aggregate) && expr.aggregate != AggregateOp::kCountValues)
    parameter = eval_scalar(expr.child(1), grid);
  Block block = eval(expr.child(), grid);
  switch (expr.aggregate) {
    case AggregateOp::kTopk:
    case AggregateOp::kBottomk:
    case AggregateOp::kLimitk:
    case AggregateOp::kLimitRatio:
      return aggregate_k(expr, std::move(block), parameter, grid);
    case AggregateOp::kQuantile:
      return aggregate_quantile(expr, std::move(block), parameter);
    case AggregateOp::kCountValues:
      return count_values(expr, std::move(block));
    default:
      return aggregate_simple(expr, std::move(block));
  }
}

}  // namespace lockstep::promql
