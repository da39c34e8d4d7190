// Binary operators. Which rows meet is worked out once per query where labels alone decide it, otherwise step by step.
#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "base/text.h"
#include "query/promql/evaluator.h"
#include "query/promql/printer.h"

namespace lockstep::promql {
namespace {

constexpr size_t kNone = std::numeric_limits<size_t>::max();

double arithmetic(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return a + b;
    case BinaryOp::kSub:
      return a - b;
    case BinaryOp::kMul:
      return a * b;
    case BinaryOp::kDiv:
      return a / b;
    case BinaryOp::kMod:
      return std::fmod(a, b);
    case BinaryOp::kPow:
      return std::pow(a, b);
    case BinaryOp::kAtan2:
      return std::atan2(a, b);
    default:
      return 0;
  }
}
bool holds(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kEqual:
      return a == b;
    case BinaryOp::kNotEqual:
      return a != b;
    case BinaryOp::kLess:
      return a < b;
    case BinaryOp::kLessEqual:
      return a <= b;
    case BinaryOp::kGreater:
      return a > b;
    case BinaryOp::kGreaterEqual:
      return a >= b;
    default:
      return false;
  }
}
bool is_trim(BinaryOp op) {
  return op == BinaryOp::kTrimUpper || op == BinaryOp::kTrimLower;
}
// What comes out is no longer what the metric's name says.
bool changes_meaning(BinaryOp op) {
  return op <= BinaryOp::kAtan2;
}

struct Cell {
  double value = 0;
  HistogramPtr histogram;
};
struct Outcome {
  Cell cell;
  bool keep = true;
  bool failed = false;  // the two do not go together: nothing comes out, bool or not
};

Outcome combine(Evaluator& evaluator, const Expr& expr, const Cell& left, const Cell& right) {
  const BinaryOp op = expr.op;
  Outcome out;
  const auto incompatible = [&](const char* a, const char* b) {
    const std::string sign(op_text(op));
    evaluator.annotate(false,
                       "PromQL info: incompatible sample types encountered for binary operator " + in_quotes(sign) +
                           ": " + a + " " + sign + " " + b,
                       expr);
    out.keep = false;
    out.failed = true;
    return out;
  };
  if (!left.histogram && !right.histogram) {
    if (is_trim(op)) return incompatible("float", "float");
    if (is_comparison(op)) {
      out.cell.value = left.value;
      out.keep = holds(op, left.value, right.value);
    } else {
      out.cell.value = arithmetic(op, left.value, right.value);
    }
    return out;
  }
  if (!left.histogram) {
    if (op != BinaryOp::kMul) return incompatible("float", "histogram");
    FlatHistogram scaled(*right.histogram);
    scaled.scale(left.value);
    out.cell.histogram = scaled.pack();
    return out;
  }
  if (!right.histogram) {
    if (is_trim(op)) {
      out.cell.histogram = trimmed(*left.histogram, right.value, op == BinaryOp::kTrimUpper);
      return out;
    }
    if (op != BinaryOp::kMul && op != BinaryOp::kDiv) return incompatible("histogram", "float");
    FlatHistogram scaled(*left.histogram);
    if (op == BinaryOp::kMul) {
      scaled.scale(right.value);
    } else {
      scaled.divide(right.value);
    }
    out.cell.histogram = scaled.pack();
    return out;
  }
  if (op == BinaryOp::kEqual || op == BinaryOp::kNotEqual) {
    out.cell.histogram = left.histogram;
    out.keep = equal(*left.histogram, *right.histogram) == (op == BinaryOp::kEqual);
    return out;
  }
  if (op != BinaryOp::kAdd && op != BinaryOp::kSub) return incompatible("histogram", "histogram");
  FlatHistogram sum(*left.histogram);
  const FlatHistogram other(*right.histogram);
  const AddOutcome added = op == BinaryOp::kAdd ? add(sum, other) : subtract(sum, other);
  const char* operation = op == BinaryOp::kAdd ? "addition" : "subtraction";
  if (added.incompatible) {
    evaluator.annotate(
        true, "PromQL warning: incompatible bucket layout encountered for binary operator " + std::string(op_text(op)),
        expr);
    out.keep = false;
    out.failed = true;
    return out;
  }
  if (added.reset_collision) {
    evaluator.annotate(true, format("PromQL warning: conflicting counter resets during histogram %s", operation), expr);
    // As a warning it leaves the vector without this element.
    out.failed = true;
    out.keep = false;
  }
  if (added.bounds_reconciled)
    evaluator.annotate(false, format("PromQL info: mismatched custom buckets were reconciled during %s", operation),
                       expr);
  if (op == BinaryOp::kSub) sum.reset = CounterReset::kGauge;
  out.cell.histogram = sum.pack();
  return out;
}

Cell cell_of(const Block& block, size_t row, size_t step) {
  return {block.values[row * block.steps + step], block.histogram_ptr(row, step)};
}
void put(Block& block, size_t row, size_t step, Cell cell) {
  if (cell.histogram) {
    block.set_histogram(row, step, std::move(cell.histogram));
  } else {
    block.values[row * block.steps + step] = cell.value;
    if (!block.histograms.empty()) block.histograms[row * block.steps + step] = nullptr;
  }
}

}  // namespace

Block Evaluator::eval_binary(const Expr& expr, const Grid& grid) {
  const bool left_scalar = expr.child(0).type == ValueType::kScalar;
  const bool right_scalar = expr.child(1).type == ValueType::kScalar;
  if (left_scalar && right_scalar) return scalar_scalar(expr, grid);
  if (left_scalar || right_scalar) return vector_scalar(expr, grid, left_scalar);
  Block left = eval(expr.child(0), grid);
  const Held left_held(*this, left);
  Block right = eval(expr.child(1), grid);
  const Held right_held(*this, right);
  if (is_set_op(expr.op)) return set_operation(expr, std::move(left), std::move(right));
  return vector_vector(expr, std::move(left), std::move(right));
}

Block Evaluator::scalar_scalar(const Expr& expr, const Grid& grid) {
  std::vector<double> left = eval_scalar(expr.child(0), grid);
  const std::vector<double> right = eval_scalar(expr.child(1), grid);
  if (is_trim(expr.op))
    fail_execution(format("operator \"%s\" not allowed for Scalar operations", std::string(op_text(expr.op)).c_str()));
  for (size_t s = 0; s < left.size(); ++s) {
    left[s] =
        is_comparison(expr.op) ? (holds(expr.op, left[s], right[s]) ? 1 : 0) : arithmetic(expr.op, left[s], right[s]);
  }
  return number_block(left);
}

Block Evaluator::vector_scalar(const Expr& expr, const Grid& grid, bool scalar_left) {
  Block block = eval(expr.child(scalar_left ? 1 : 0), grid);
  const std::vector<double> scalar = eval_scalar(expr.child(scalar_left ? 0 : 1), grid);
  const BinaryOp op = expr.op;
  const bool comparison = is_comparison(op);
  const bool plain = block.histograms.empty() && !is_trim(op);
  for (size_t i = 0; i < block.rows.size(); ++i) {
    for (size_t s = 0; s < block.steps; ++s) {
      double& value = block.values[i * block.steps + s];
      if (is_absent(value)) continue;
      if (plain) {
        const double a = scalar_left ? scalar[s] : value;
        const double b = scalar_left ? value : scalar[s];
        if (!comparison) {
          value = arithmetic(op, a, b);
        } else if (expr.return_bool) {
          value = holds(op, a, b) ? 1 : 0;
        } else if (!holds(op, a, b)) {
          value = kAbsent;
        }
        continue;
      }
      const Cell mine = cell_of(block, i, s);
      const Cell number{scalar[s], nullptr};
      Outcome out = combine(*this, expr, scalar_left ? number : mine, scalar_left ? mine : number);
      if (out.failed || (!out.keep && !expr.return_bool)) {
        value = kAbsent;
        if (!block.histograms.empty()) block.histograms[i * block.steps + s] = nullptr;
        continue;
      }
      if (comparison) out.cell = mine;
      if (expr.return_bool) out.cell = {out.keep ? 1.0 : 0.0, nullptr};
      put(block, i, s, std::move(out.cell));
    }
  }
  block.drop_empty_rows();
  if (changes_meaning(op) || expr.return_bool) {
    drop_names(block);
    if (!delayed() && !block.one_name) merge_same(block);
  }
  charge(block.values.size());
  return block;
}

namespace {

// Numbers the label sets by which rows meet, on both sides alike.
struct Signatures {
  std::vector<uint32_t> left, right;
  size_t count = 0;
};

Signatures signatures(LabelTable& labels, const VectorMatching& matching, const Block& left, const Block& right) {
  std::vector<uint32_t> names;
  for (const std::string& name : matching.labels) names.push_back(labels.intern(name));
  if (!matching.on) names.push_back(LabelTable::kName);
  LabelSetIds ids(left.rows.size() + right.rows.size());
  Signatures out;
  const auto number = [&](const Block& block, std::vector<uint32_t>& of) {
    of.reserve(block.rows.size());
    for (const Row& row : block.rows)
      of.push_back(ids.id(matching.on ? labels.only(row.labels, names) : labels.without(row.labels, names)));
  };
  number(left, out.left);
  number(right, out.right);
  out.count = ids.size();
  return out;
}

}  // namespace

Block Evaluator::set_operation(const Expr& expr, Block left, Block right) {
  const Signatures met = signatures(labels_, *expr.matching, left, right);
  const size_t steps = left.steps;
  const bool is_or = expr.op == BinaryOp::kOr;
  // Where a set of labels has a value, on the side that decides.
  const Block& deciding = is_or ? left : right;
  const std::vector<uint32_t>& deciding_ids = is_or ? met.left : met.right;
  std::vector<uint8_t> there(met.count * steps, 0);
  for (size_t i = 0; i < deciding.rows.size(); ++i) {
    for (size_t s = 0; s < steps; ++s) there[deciding_ids[i] * steps + s] |= !is_absent(deciding.row(i)[s]);
  }
  Block& masked = is_or ? right : left;
  const std::vector<uint32_t>& masked_ids = is_or ? met.right : met.left;
  const bool wanted = expr.op == BinaryOp::kAnd;
  for (size_t i = 0; i < masked.rows.size(); ++i) {
    for (size_t s = 0; s < steps; ++s) {
      if ((there[masked_ids[i] * steps + s] != 0) == wanted) continue;
      masked.row(i)[s] = kAbsent;
      if (!masked.histograms.empty()) masked.histograms[i * steps + s] = nullptr;
    }
  }
  charge(left.values.size() + right.values.size());
  masked.drop_empty_rows();
  if (!is_or) return left;
  left.one_name = false;
  for (size_t i = 0; i < right.rows.size(); ++i) {
    const size_t row = left.add_row(right.rows[i].labels, right.rows[i].drop_name);
    for (size_t s = 0; s < steps; ++s) {
      if (!is_absent(right.row(i)[s])) put(left, row, s, cell_of(right, i, s));
    }
  }
  charge_block(left);
  if (!delayed() || steps > 1) merge_same(left);
  return left;
}

Block Evaluator::vector_vector(const Expr& expr, Block left, Block right) {
  const VectorMatching& matching = *expr.matching;
  const BinaryOp op = expr.op;
  const size_t steps = left.steps;
  const bool swapped = matching.card == Cardinality::kOneToMany;
  const bool one_to_one = matching.card == Cardinality::kOneToOne;
  const bool fills = matching.fill_left || matching.fill_right;
  const Signatures met = signatures(labels_, matching, left, right);
  const Block& many = swapped ? right : left;
  const Block& one = swapped ? left : right;
  const std::vector<uint32_t>& many_ids = swapped ? met.right : met.left;
  const std::vector<uint32_t>& one_ids = swapped ? met.left : met.right;

  std::vector<uint32_t> names, include;
  for (const std::string& name : matching.labels) names.push_back(labels_.intern(name));
  for (const std::string& name : matching.include) include.push_back(labels_.intern(name));
  const auto result_labels = [&](LabelSpan many_labels, LabelSpan one_labels) {
    LabelSpan made = many_labels;
    if (changes_meaning(op) || (expr.return_bool && !delayed())) made = labels_.without_metadata(made);
    if (one_to_one) made = matching.on ? labels_.only(made, names) : labels_.without(made, names);
    for (uint32_t name : include) made = labels_.with(made, name, labels_.get(one_labels, name));
    return made;
  };
  const auto match_group = [&](LabelSpan labels) {
    if (matching.on) return labels_.only(labels, names);
    std::vector<uint32_t> gone = names;
    gone.push_back(LabelTable::kName);
    return labels_.without(labels, gone);
  };
  const auto value_of = [&](const Cell& many_cell, const Cell& one_cell, Outcome& out) {
    out = combine(*this, expr, swapped ? one_cell : many_cell, swapped ? many_cell : one_cell);
    if (out.failed) return;
    if (expr.return_bool) out.cell = {out.keep ? 1.0 : 0.0, nullptr};
  };

  Block out;
  out.steps = steps;
  charge(left.values.size() + right.values.size());

  // Fast: labels alone say which row meets which.
  std::vector<size_t> one_row(met.count, kNone);
  bool unique = !fills;
  for (size_t i = 0; i < one.rows.size() && unique; ++i) {
    unique = one_row[one_ids[i]] == kNone;
    one_row[one_ids[i]] = i;
  }
  if (unique && one_to_one) {
    std::vector<uint8_t> used(met.count, 0);
    for (uint32_t id : many_ids) {
      unique &= !used[id];
      used[id] = 1;
    }
  }
  std::vector<size_t> pairs;  // of `many` rows that meet somebody
  std::vector<LabelSpan> pair_labels;
  if (unique) {
    for (size_t i = 0; i < many.rows.size(); ++i) {
      if (one_row[many_ids[i]] == kNone) continue;
      pairs.push_back(i);
      pair_labels.push_back(result_labels(many.rows[i].labels, one.rows[one_row[many_ids[i]]].labels));
    }
    LabelSetIds ids(pair_labels.size());
    for (LabelSpan labels : pair_labels) ids.id(labels);
    unique = ids.size() == pair_labels.size();
  }
  if (unique) {
    const bool plain = many.histograms.empty() && one.histograms.empty() && !is_trim(op);
    out.rows.reserve(pairs.size());
    out.values.reserve(pairs.size() * steps);
    for (size_t p = 0; p < pairs.size(); ++p) {
      const size_t i = pairs[p];
      const size_t k = one_row[many_ids[i]];
      const size_t row = out.add_row(pair_labels[p], expr.return_bool);
      bool any = false;
      for (size_t s = 0; s < steps; ++s) {
        const double many_value = many.row(i)[s];
        const double one_value = one.row(k)[s];
        if (is_absent(many_value) || is_absent(one_value)) continue;
        if (plain) {
          const double a = swapped ? one_value : many_value;
          const double b = swapped ? many_value : one_value;
          double result = a;
          if (!is_comparison(op)) {
            result = arithmetic(op, a, b);
          } else if (expr.return_bool) {
            result = holds(op, a, b) ? 1 : 0;
          } else if (!holds(op, a, b)) {
            continue;
          }
          out.row(row)[s] = result;
          any = true;
          continue;
        }
        Outcome outcome;
        value_of(cell_of(many, i, s), cell_of(one, k, s), outcome);
        if (outcome.failed || (!outcome.keep && !expr.return_bool)) continue;
        put(out, row, s, std::move(outcome.cell));
        any = true;
      }
      if (!any) {
        out.rows.pop_back();
        out.values.resize(out.values.size() - steps);
        if (!out.histograms.empty()) out.histograms.resize(out.values.size());
      }
    }
    charge_block(out);
    return out;
  }

  // Step by step.
  LabelSetIds result_ids(many.rows.size());
  std::unordered_map<uint64_t, uint32_t> labels_of_pair;
  const auto row_for = [&](size_t i, size_t k) {  // kNone: filled in
    const uint64_t key = (static_cast<uint64_t>(i) + 1) << 32 | (k + 1);
    if (const auto found = labels_of_pair.find(key); found != labels_of_pair.end()) return found->second;
    const LabelSpan many_labels = i == kNone ? match_group(one.rows[k].labels) : many.rows[i].labels;
    const LabelSpan one_labels = k == kNone ? match_group(many.rows[i].labels) : one.rows[k].labels;
    const uint32_t id = result_ids.id(result_labels(many_labels, one_labels));
    labels_of_pair.emplace(key, id);
    if (id == out.rows.size()) out.add_row(result_ids.set(id), expr.return_bool);
    return id;
  };
  std::vector<size_t> one_at(met.count);
  std::vector<uint8_t> matched(met.count);
  std::vector<std::vector<uint32_t>> matched_rows(one_to_one ? 0 : met.count);
  for (size_t s = 0; s < steps; ++s) {
    check();
    std::fill(one_at.begin(), one_at.end(), kNone);
    std::fill(matched.begin(), matched.end(), 0);
    for (auto& rows : matched_rows) rows.clear();
    bool any_many = false, any_one = false;
    for (size_t i = 0; i < many.rows.size() && !any_many; ++i) any_many = !is_absent(many.row(i)[s]);
    for (size_t k = 0; k < one.rows.size() && !any_one; ++k) any_one = !is_absent(one.row(k)[s]);
    if (!any_many && !any_one) continue;
    if ((!any_many || !any_one) && !fills) continue;
    for (size_t k = 0; k < one.rows.size(); ++k) {
      if (is_absent(one.row(k)[s])) continue;
      size_t& known = one_at[one_ids[k]];
      if (known != kNone)
        fail_execution("found duplicate series for the match group " + labels_.shown(match_group(one.rows[k].labels)) +
                       " on the " + (swapped ? "left" : "right") + " hand-side of the operation: [" +
                       labels_.shown(one.rows[k].labels) + ", " + labels_.shown(one.rows[known].labels) +
                       "];many-to-many matching not allowed: matching labels must be unique on one side");
      known = k;
    }
    const auto meet = [&](size_t i, size_t k, uint32_t id) {
      const Cell many_cell = i == kNone ? Cell{*matching.fill_left, nullptr} : cell_of(many, i, s);
      const Cell one_cell = k == kNone ? Cell{*matching.fill_right, nullptr} : cell_of(one, k, s);
      Outcome outcome;
      value_of(many_cell, one_cell, outcome);
      if (outcome.failed) return;
      const uint32_t row = row_for(i, k);
      if (one_to_one) {
        if (matched[id])
          fail_execution("multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)");
      } else {
        if (std::find(matched_rows[id].begin(), matched_rows[id].end(), row) != matched_rows[id].end())
          fail_execution("multiple matches for labels: grouping labels must ensure unique matches");
        matched_rows[id].push_back(row);
      }
      matched[id] = 1;
      if (!outcome.keep && !expr.return_bool) return;
      if (!is_absent(out.row(row)[s])) fail_execution("vector cannot contain metrics with the same labelset");
      put(out, row, s, std::move(outcome.cell));
    };
    // As Prometheus has it: the left fill is that of the many side, whichever side that is.
    const bool fill_one = matching.fill_right.has_value();
    const bool fill_many = matching.fill_left.has_value();
    for (size_t i = 0; i < many.rows.size(); ++i) {
      if (is_absent(many.row(i)[s])) continue;
      const size_t k = one_at[many_ids[i]];
      if (k == kNone && !fill_one) continue;
      meet(i, k, many_ids[i]);
    }
    if (!fill_many) continue;
    for (size_t k = 0; k < one.rows.size(); ++k) {
      if (!is_absent(one.row(k)[s]) && !matched[one_ids[k]]) meet(kNone, k, one_ids[k]);
    }
  }
  out.drop_empty_rows();
  charge_block(out);
  return out;
}

}  // namespace lockstep::promql
