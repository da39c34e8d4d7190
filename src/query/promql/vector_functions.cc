// Functions over instant vectors and scalars.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <unordered_map>
#include <unordered_set>

#include "base/text.h"
#include "query/promql/date_functions.h"
#include "query/promql/evaluator.h"

namespace lockstep::promql {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// As IEEE 754-2008's old maxNum would not: a NaN wins, but infinity wins over it.
double larger(double a, double b) {
  if (a == kInf || b == kInf) return kInf;
  if (std::isnan(a) || std::isnan(b)) return kNan;
  if (a == 0 && a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
double smaller(double a, double b) {
  if (a == -kInf || b == -kInf) return -kInf;
  if (std::isnan(a) || std::isnan(b)) return kNan;
  if (a == 0 && a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

using Simple = double (*)(double);
Simple find_simple(std::string_view name) {
  static const std::unordered_map<std::string_view, Simple> kFunctions = {
      {"abs", [](double v) { return std::fabs(v); }},
      {"ceil", [](double v) { return std::ceil(v); }},
      {"floor", [](double v) { return std::floor(v); }},
      {"exp", [](double v) { return std::exp(v); }},
      {"sqrt", [](double v) { return std::sqrt(v); }},
      {"ln", [](double v) { return std::log(v); }},
      {"log2", [](double v) { return std::log2(v); }},
      {"log10", [](double v) { return std::log10(v); }},
      {"sin", [](double v) { return std::sin(v); }},
      {"cos", [](double v) { return std::cos(v); }},
      {"tan", [](double v) { return std::tan(v); }},
      {"asin", [](double v) { return std::asin(v); }},
      {"acos", [](double v) { return std::acos(v); }},
      {"atan", [](double v) { return std::atan(v); }},
      {"sinh", [](double v) { return std::sinh(v); }},
      {"cosh", [](double v) { return std::cosh(v); }},
      {"tanh", [](double v) { return std::tanh(v); }},
      {"asinh", [](double v) { return std::asinh(v); }},
      {"acosh", [](double v) { return std::acosh(v); }},
      {"atanh", [](double v) { return std::atanh(v); }},
      {"rad", [](double v) { return v * std::numbers::pi / 180; }},
      {"deg", [](double v) { return v * 180 / std::numbers::pi; }},
      {"sgn", [](double v) { return v < 0   ? -1.0
                                    : v > 0 ? 1.0
                                            : v; }},
  };
  const auto found = kFunctions.find(name);
  return found == kFunctions.end() ? nullptr : found->second;
}

// --- order of label values: runs of digits by their number

bool natural_less(std::string_view a, std::string_view b) {
  const auto next_run = [](std::string_view& text) {
    const auto digit = [](char c) { return c >= '0' && c <= '9'; };
    size_t length = 1;
    while (length < text.size() && digit(text[length]) == digit(text[0])) ++length;
    const std::string_view run = text.substr(0, length);
    text.remove_prefix(length);
    return run;
  };
  while (!a.empty()) {
    if (b.empty()) return false;
    const std::string_view x = next_run(a);
    const std::string_view y = next_run(b);
    const std::optional<int64_t> i = parse_int(x);
    const std::optional<int64_t> k = parse_int(y);
    const bool same = i && k ? *i == *k : x == y;
    if (!same) return i && k ? *i < *k : x < y;
    if (a.empty()) return true;
    if (b.empty()) return false;
  }
  return false;
}

}  // namespace

Block Evaluator::eval_call(const Expr& expr, const Grid& grid) {
  const std::string_view name = expr.function->name;
  for (size_t i = 0; i < expr.children.size(); ++i) {
    if (expr.function->arguments[std::min(i, expr.function->arguments.size() - 1)] == ValueType::kMatrix)
      return eval_range_call(expr, grid, i);
  }
  const auto times = [&](auto value) {
    std::vector<double> out(grid.count);
    for (size_t s = 0; s < grid.count; ++s) out[s] = value(s);
    return number_block(out);
  };
  if (name == "time") return times([&](size_t s) { return static_cast<double>(grid.time(s)) / 1000; });
  if (name == "pi") return times([](size_t) { return std::numbers::pi; });
  if (name == "start") return times([&](size_t) { return static_cast<double>(times_.start_ms) / 1000; });
  if (name == "end") return times([&](size_t) { return static_cast<double>(times_.end_ms) / 1000; });
  if (name == "range")
    return times([&](size_t) { return static_cast<double>(times_.end_ms - times_.start_ms) / 1000; });
  if (name == "step")
    return times(
        [&](size_t) { return times_.start_ms == times_.end_ms ? 0 : static_cast<double>(times_.step_ms) / 1000; });
  if (name == "min_of" || name == "max_of") {
    std::vector<double> a = eval_scalar(expr.child(0), grid);
    const std::vector<double> b = eval_scalar(expr.child(1), grid);
    for (size_t s = 0; s < a.size(); ++s) a[s] = name == "min_of" ? smaller(a[s], b[s]) : larger(a[s], b[s]);
    return number_block(a);
  }
  if (name == "vector") {
    Block block = number_block(eval_scalar(expr.child(), grid));
    return block;
  }
  if (name == "scalar") return scalar_of(expr, grid);
  if (name == "timestamp") return timestamp(expr, grid);
  if (name == "start_timestamp") {  // when a counter began is not stored
    Block block;
    block.steps = grid.count;
    return block;
  }
  if (name == "absent") return absent(expr, grid);
  if (name == "sort" || name == "sort_desc" || name == "sort_by_label" || name == "sort_by_label_desc")
    return sorted(expr, grid);
  if (name == "label_replace") return label_replace(expr, grid);
  if (name == "label_join") return label_join(expr, grid);
  if (name == "info") return info(expr, grid);
  if (name == "histogram_quantile" || name == "histogram_quantiles" || name == "histogram_fraction")
    return classic_function(expr, grid);
  if (name.starts_with("histogram_")) return histogram_function(expr, grid);
  if (is_date_function(name)) return date_function(expr, grid);
  return elementwise(expr, grid);
}

// The one float of a vector that has one.
Block Evaluator::scalar_of(const Expr& expr, const Grid& grid) {
  const Block block = eval(expr.child(), grid);
  std::vector<double> out(grid.count, kNan);
  for (size_t s = 0; s < grid.count; ++s) {
    size_t found = 0;
    for (size_t i = 0; i < block.rows.size() && found < 2; ++i) {
      if (is_absent(block.row(i)[s]) || block.histogram(i, s) != nullptr) continue;
      out[s] = ++found == 1 ? block.row(i)[s] : kNan;
    }
  }
  return number_block(out);
}

Block Evaluator::timestamp(const Expr& expr, const Grid& grid) {
  const Expr& argument = expr.child().kind == Expr::Kind::kParen ? unwrapped(expr.child()) : expr.child();
  Block block;
  if (argument.kind == Expr::Kind::kSelector) {
    block = eval_selector(argument, grid, Take::kTime);
    for (double& value : block.values) {
      if (!is_absent(value)) value /= 1000;
    }
  } else {
    block = eval(argument, grid);
    for (size_t i = 0; i < block.values.size(); ++i) {
      if (!is_absent(block.values[i])) block.values[i] = static_cast<double>(grid.time(i % block.steps)) / 1000;
    }
    block.histograms.clear();
  }
  drop_names(block);
  if (!delayed() && !block.one_name) merge_same(block);
  return block;
}

// Floats one by one; histograms are left out.
Block Evaluator::elementwise(const Expr& expr, const Grid& grid) {
  const std::string_view name = expr.function->name;
  Block block = eval(expr.child(), grid);
  std::vector<std::vector<double>> parameters;
  for (size_t i = 1; i < expr.children.size(); ++i) parameters.push_back(eval_scalar(expr.child(i), grid));
  if (!block.histograms.empty()) {
    for (size_t i = 0; i < block.values.size(); ++i) {
      if (block.histograms[i]) block.values[i] = kAbsent;
    }
    block.histograms.clear();
  }
  const auto each = [&](auto apply) {
    for (size_t i = 0; i < block.rows.size(); ++i) {
      for (size_t s = 0; s < block.steps; ++s) {
        double& value = block.values[i * block.steps + s];
        if (!is_absent(value)) value = apply(value, s);
      }
    }
  };
  if (const Simple simple = find_simple(name)) {
    each([&](double v, size_t) { return simple(v); });
  } else if (name == "round") {
    each([&](double v, size_t s) {
      const double inverse = 1.0 / (parameters.empty() ? 1.0 : parameters[0][s]);
      return std::floor(v * inverse + 0.5) / inverse;
    });
  } else {
    const bool both = name == "clamp";
    const bool low = both || name == "clamp_min";
    const std::vector<double>* least = low ? &parameters[0] : nullptr;
    const std::vector<double>* most = both ? &parameters[1] : low ? nullptr : &parameters[0];
    each([&](double v, size_t s) {
      const double from = least ? (*least)[s] : -kInf;
      const double to = most ? (*most)[s] : kInf;
      if (to < from) return kAbsent;
      return larger(from, smaller(to, v));
    });
  }
  charge(block.values.size());
  block.drop_empty_rows();
  drop_names(block);
  if (!delayed() && !block.one_name) merge_same(block);
  return block;
}

LabelSpan Evaluator::absent_labels(const Expr& expr) {
  const Expr& inner = unwrapped(expr);
  const Expr* selector = inner.kind == Expr::Kind::kMatrix ? &inner.child() : &inner;
  LabelSpan labels;
  if (selector->kind != Expr::Kind::kSelector) return labels;
  std::unordered_set<std::string_view> seen;
  for (const LabelMatcher& matcher : selector->matchers) {
    if (matcher.name == "__name__") continue;
    const uint32_t name = labels_.intern(matcher.name);
    const bool first = matcher.op == LabelMatcher::Op::kEqual && seen.insert(matcher.name).second;
    labels = labels_.with(labels, name, first ? labels_.intern(matcher.value) : LabelTable::kEmpty);
  }
  return labels;
}

Block Evaluator::absent(const Expr& expr, const Grid& grid) {
  const Block block = eval(expr.child(), grid);
  Block out;
  out.steps = grid.count;
  const size_t row = out.add_row(absent_labels(expr.child()));
  for (size_t s = 0; s < grid.count; ++s) {
    bool found = false;
    for (size_t i = 0; i < block.rows.size() && !found; ++i) found = !is_absent(block.row(i)[s]);
    if (!found) out.row(row)[s] = 1;
  }
  out.drop_empty_rows();
  return out;
}

Block Evaluator::sorted(const Expr& expr, const Grid& grid) {
  const std::string_view name = expr.function->name;
  if (grid.start != grid.end)
    annotate(true, "PromQL warning: sort is ineffective for range queries since results are always ordered by labels",
             expr);
  Block block = eval(expr.child(), grid);
  const bool by_label = name.starts_with("sort_by_label");
  const bool descending = name.ends_with("_desc");
  if (!by_label && !block.histograms.empty()) {
    for (size_t i = 0; i < block.values.size(); ++i) {
      if (block.histograms[i]) block.values[i] = kAbsent;
    }
    block.histograms.clear();
    block.drop_empty_rows();
  }
  if (block.steps != 1) return block;
  std::vector<uint32_t> by;
  for (size_t i = 1; i < expr.children.size(); ++i) by.push_back(labels_.intern(string_argument(expr, i)));
  std::vector<uint32_t> order(block.rows.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    if (!by_label) {
      const double x = block.values[a], y = block.values[b];
      if (std::isnan(x) || std::isnan(y)) return !std::isnan(x) && std::isnan(y);  // NaN comes last
      return descending ? x > y : x < y;
    }
    for (uint32_t label : by) {
      const std::string_view x = labels_.text(labels_.get(block.rows[a].labels, label));
      const std::string_view y = labels_.text(labels_.get(block.rows[b].labels, label));
      if (x == y) continue;
      return descending ? natural_less(y, x) : natural_less(x, y);
    }
    const int compared = labels_.compare(block.rows[a].labels, block.rows[b].labels);
    return descending ? compared > 0 : compared < 0;
  });
  Block out;
  out.steps = 1;
  out.one_name = block.one_name;
  for (uint32_t i : order) {
    const size_t row = out.add_row(block.rows[i].labels, block.rows[i].drop_name);
    if (HistogramPtr histogram = block.histogram_ptr(i, 0)) {
      out.set_histogram(row, 0, std::move(histogram));
    } else {
      out.row(row)[0] = block.values[i];
    }
  }
  return out;
}

}  // namespace lockstep::promql
