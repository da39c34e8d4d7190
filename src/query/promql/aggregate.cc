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
  const AggregateOp op = expr.aggregate;
  std::vector<LabelSpan> groups;
  const std::vector<uint32_t> of = group(block, expr, groups);
  Block out;
  out.steps = block.steps;
  out.rows.reserve(groups.size());
  for (LabelSpan labels : groups) out.rows.push_back({labels, false});
  out.values.assign(groups.size() * block.steps, kAbsent);
  charge_block(out);
  for (size_t i = 0; i < block.rows.size(); ++i) out.rows[of[i]].drop_name |= block.rows[i].drop_name;

  const std::string ignored = "PromQL info: ignored histogram in " + std::string(op_text(op)) + " aggregation";
  const Expr& argument = expr.child();
  const size_t piece = std::max<size_t>(1, kStatesMax / std::max<size_t>(1, groups.size()));
  std::vector<State> states;
  for (size_t from = 0; from < block.steps; from += piece) {
    check();
    const size_t width = std::min(piece, block.steps - from);
    states.clear();
    states.resize(groups.size() * width);
    for (size_t i = 0; i < block.rows.size(); ++i) {
      const double* row = block.values.data() + i * block.steps + from;
      State* group_states = states.data() + of[i] * width;
      for (size_t s = 0; s < width; ++s) {
        const double value = row[s];
        if (is_absent(value)) continue;
        State& state = group_states[s];
        const NativeHistogram* histogram = block.histogram(i, from + s);
        if (histogram != nullptr && op != AggregateOp::kSum && op != AggregateOp::kAvg && op != AggregateOp::kCount &&
            op != AggregateOp::kGroup) {
          annotate(false, ignored, argument);
          continue;
        }
        if (state.incompatible) continue;
        const bool first = !state.seen;
        state.seen = true;
        switch (op) {
          case AggregateOp::kSum:
          case AggregateOp::kAvg:
            if (histogram != nullptr) {
              state.has_histogram = true;
              if (state.has_float) break;
              if (!state.histograms) state.histograms = std::make_unique<HistogramSum>();
              if (!(op == AggregateOp::kSum ? state.histograms->add(*histogram)
                                            : state.histograms->add_to_mean(*histogram))) {
                state.incompatible = true;
                annotate(
                    true,
                    "PromQL warning: vector contains a mix of histograms with exponential and custom buckets schemas "
                    "for metric name " +
                        in_quotes(metric_name(block.rows[i].labels)),
                    argument);
              }
              break;
            }
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
              if (!state.moving) {
                Compensated sum{state.value, state.lost};
                sum.add(value);
                if (!std::isinf(sum.sum)) {
                  state.value = sum.sum;
                  state.lost = sum.lost;
                  break;
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
      if ((i & 1023) == 1023) check();
    }
    for (size_t g = 0; g < groups.size(); ++g) {
      for (size_t s = 0; s < width; ++s) {
        State& state = states[g * width + s];
        if (!state.seen) continue;
        double& result = out.values[g * block.steps + from + s];
        switch (op) {
          case AggregateOp::kSum:
          case AggregateOp::kAvg:
            if (state.has_float && state.has_histogram) {
              annotate(true, "PromQL warning: encountered a mix of histograms and floats for aggregation", argument);
            } else if (state.has_histogram) {
              if (state.incompatible) break;
              if (state.histograms->collision())
                annotate(true, "PromQL warning: conflicting counter resets during histogram aggregation", argument);
              if (state.histograms->reconciled())
                annotate(false, "PromQL info: mismatched custom buckets were reconciled during aggregation", argument);
              out.set_histogram(g, from + s,
                                op == AggregateOp::kSum ? state.histograms->total() : state.histograms->mean());
            } else if (op == AggregateOp::kSum) {
              result = state.value + state.lost;
            } else {
              result = state.moving ? state.mean + state.lost : state.value / state.count + state.lost / state.count;
            }
            break;
          case AggregateOp::kCount:
            result = state.count;
            break;
          case AggregateOp::kStdvar:
            result = state.value / state.count;
            break;
          case AggregateOp::kStddev:
            result = std::sqrt(state.value / state.count);
            break;
          default:
            result = state.value;
        }
      }
    }
  }
  out.drop_empty_rows();
  return out;
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
  const AggregateOp op = expr.aggregate;
  const bool ratio = op == AggregateOp::kLimitRatio;
  double least = std::numeric_limits<double>::infinity(), most = -least;
  bool has_nan = false;
  for (double value : parameter) {
    has_nan |= std::isnan(value);
    least = std::min(least, value);
    most = std::max(most, value);
  }
  Block out;
  out.steps = block.steps;
  if (ratio ? !has_nan && most == 0 && least == 0 : !has_nan && most < 1) return out;
  if (has_nan) fail_execution(ratio ? "Ratio value is NaN" : "Parameter value is NaN");
  if (ratio) {
    if (most > 1)
      annotate(true,
               "PromQL warning: ratio value should be between -1 and 1, got " + short_number(most) + ", capping to 1",
               expr.child(1));
    if (least < -1)
      annotate(true,
               "PromQL warning: ratio value should be between -1 and 1, got " + short_number(least) + ", capping to -1",
               expr.child(1));
  } else {
    if (least <= -9.2233720368547758e18)
      fail_execution(format("Scalar value %s underflows int64", short_number(least).c_str()));
    if (most >= 9.2233720368547758e18)
      fail_execution(format("Scalar value %s overflows int64", short_number(most).c_str()));
  }
  std::vector<LabelSpan> groups;
  const std::vector<uint32_t> of = group(block, expr, groups);
  std::vector<double> offsets;  // limit_ratio: where a series lies between 0 and 1
  if (ratio) {
    for (const Row& row : block.rows)
      offsets.push_back(static_cast<double>(labels_.stable_hash(row.labels)) / 18446744073709551615.0);
  }
  const std::string ignored = "PromQL info: ignored histogram in " + std::string(op_text(op)) + " aggregation";
  const bool instant = grid.start == grid.end && block.steps == 1;
  std::vector<uint8_t> keep(block.values.size(), 0);
  std::vector<uint32_t> order;  // instant: rows as they are answered
  std::vector<std::vector<uint32_t>> chosen(groups.size());
  for (size_t s = 0; s < block.steps; ++s) {
    check();
    for (auto& rows : chosen) rows.clear();
    const double given = parameter[s];
    const size_t k =
        ratio || given < 1 ? 0 : static_cast<size_t>(std::min(given, static_cast<double>(block.rows.size())));
    if (!ratio && k == 0) continue;
    if (ratio && given == 0) continue;
    const double share = std::clamp(given, -1.0, 1.0);
    const auto value_of = [&](uint32_t row) { return block.values[row * block.steps + s]; };
    // The heap's top is what goes first when something better comes.
    const auto worse = [&](uint32_t a, uint32_t b) {
      const double x = value_of(a), y = value_of(b);
      if (std::isnan(x)) return true;
      return op == AggregateOp::kBottomk ? x > y : x < y;
    };
    for (uint32_t i = 0; i < block.rows.size(); ++i) {
      const double value = value_of(i);
      if (is_absent(value)) continue;
      std::vector<uint32_t>& heap = chosen[of[i]];
      if (ratio) {
        if (share >= 0 ? offsets[i] < share : offsets[i] >= 1 + share) heap.push_back(i);
        continue;
      }
      if (op == AggregateOp::kLimitk) {
        if (heap.size() < k) heap.push_back(i);
        continue;
      }
      if (block.histogram(i, s) != nullptr) {
        annotate(false, ignored, expr);
        continue;
      }
      const auto sift_up = [&](size_t at) {
        while (at > 0 && worse(heap[at], heap[(at - 1) / 2])) {
          std::swap(heap[at], heap[(at - 1) / 2]);
          at = (at - 1) / 2;
        }
      };
      const auto sift_down = [&] {
        size_t at = 0;
        for (;;) {
          size_t child = 2 * at + 1;
          if (child >= heap.size()) break;
          if (child + 1 < heap.size() && worse(heap[child + 1], heap[child])) ++child;
          if (!worse(heap[child], heap[at])) break;
          std::swap(heap[at], heap[child]);
          at = child;
        }
      };
      if (heap.size() < k) {
        heap.push_back(i);
        sift_up(heap.size() - 1);
      } else {
        const double top = value_of(heap[0]);
        const bool better = op == AggregateOp::kTopk ? top < value : top > value;
        if (better || (std::isnan(top) && !std::isnan(value))) {
          heap[0] = i;
          sift_down();
        }
      }
    }
    for (std::vector<uint32_t>& rows : chosen) {
      for (uint32_t row : rows) keep[row * block.steps + s] = 1;
      if (!instant) continue;
      if (op == AggregateOp::kTopk || op == AggregateOp::kBottomk) {
        std::stable_sort(rows.begin(), rows.end(), [&](uint32_t a, uint32_t b) {
          const double x = value_of(a), y = value_of(b);
          if (std::isnan(y)) return !std::isnan(x);
          return op == AggregateOp::kBottomk ? x < y : x > y;
        });
      }
      order.insert(order.end(), rows.begin(), rows.end());
    }
  }
  if (!instant) {
    for (size_t i = 0; i < block.values.size(); ++i) {
      if (!keep[i]) block.values[i] = kAbsent;
    }
    block.drop_empty_rows();
    return block;
  }
  for (uint32_t i : order) {
    const size_t row = out.add_row(block.rows[i].labels, block.rows[i].drop_name);
    if (HistogramPtr histogram = block.histogram_ptr(i, 0)) {
      out.set_histogram(row, 0, std::move(histogram));
    } else {
      out.row(row)[0] = block.row(i)[0];
    }
  }
  return out;
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
