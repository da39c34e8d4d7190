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

// The two do not go together, which is annotated.
Outcome incompatible(Evaluator& evaluator, const Expr& expr, const char* left, const char* right) {
  const std::string sign(op_text(expr.op));
  evaluator.annotate(false,
                     "PromQL info: incompatible sample types encountered for binary operator " + in_quotes(sign) +
                         ": " + left + " " + sign + " " + right,
                     expr);
  return {.cell = {}, .keep = false, .failed = true};
}

Outcome combine_histograms(Evaluator& evaluator, const Expr& expr, const Cell& left, const Cell& right) {
  const BinaryOp op = expr.op;
  Outcome out;
  if (op == BinaryOp::kEqual || op == BinaryOp::kNotEqual) {
    out.cell.histogram = left.histogram;
    out.keep = equal(*left.histogram, *right.histogram) == (op == BinaryOp::kEqual);
    return out;
  }
  if (op != BinaryOp::kAdd && op != BinaryOp::kSub) return incompatible(evaluator, expr, "histogram", "histogram");
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

Outcome combine(Evaluator& evaluator, const Expr& expr, const Cell& left, const Cell& right) {
  const BinaryOp op = expr.op;
  Outcome out;
  if (!left.histogram && !right.histogram) {
    if (is_trim(op)) return incompatible(evaluator, expr, "float", "float");
    if (is_comparison(op)) {
      out.cell.value = left.value;
      out.keep = holds(op, left.value, right.value);
    } else {
      out.cell.value = arithmetic(op, left.value, right.value);
    }
    return out;
  }
  if (!left.histogram) {
    if (op != BinaryOp::kMul) return incompatible(evaluator, expr, "float", "histogram");
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
    if (op != BinaryOp::kMul && op != BinaryOp::kDiv) return incompatible(evaluator, expr, "histogram", "float");
    FlatHistogram scaled(*left.histogram);
    if (op == BinaryOp::kMul) {
      scaled.scale(right.value);
    } else {
      scaled.divide(right.value);
    }
    out.cell.histogram = scaled.pack();
    return out;
  }
  return combine_histograms(evaluator, expr, left, right);
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

namespace {

// An operator between two vectors, by their labels. `many` is the side that may have several rows for one of the
// other: left, or right under group_right.
class VectorMatch {
 public:
  VectorMatch(Evaluator& evaluator, const Expr& expr, const Block& left, const Block& right)
      : evaluator_(evaluator),
        labels_(evaluator.labels()),
        expr_(expr),
        matching_(*expr.matching),
        swapped_(matching_.card == Cardinality::kOneToMany),
        one_to_one_(matching_.card == Cardinality::kOneToOne),
        fills_(matching_.fill_left || matching_.fill_right),
        met_(signatures(labels_, matching_, left, right)),
        many_(swapped_ ? right : left),
        one_(swapped_ ? left : right),
        many_ids_(swapped_ ? met_.right : met_.left),
        one_ids_(swapped_ ? met_.left : met_.right) {
    for (const std::string& name : matching_.labels) names_.push_back(labels_.intern(name));
    for (const std::string& name : matching_.include) include_.push_back(labels_.intern(name));
    out_.steps = left.steps;
  }

  Block run() {
    evaluator_.charge(many_.values.size() + one_.values.size());
    if (pair_rows()) {
      combine_pairs();
    } else {
      result_ids_ = LabelSetIds(many_.rows.size());
      one_at_.resize(met_.count);
      matched_.resize(met_.count);
      matched_rows_.resize(one_to_one_ ? 0 : met_.count);
      for (size_t s = 0; s < out_.steps; ++s) match_step(s);
      out_.drop_empty_rows();
    }
    evaluator_.charge_block(out_);
    return std::move(out_);
  }

 private:
  // --- labels

  LabelSpan result_labels(LabelSpan many_labels, LabelSpan one_labels) {
    LabelSpan made = many_labels;
    if (changes_meaning(expr_.op) || (expr_.return_bool && !evaluator_.delayed()))
      made = labels_.without_metadata(made);
    if (one_to_one_) made = matching_.on ? labels_.only(made, names_) : labels_.without(made, names_);
    for (uint32_t name : include_) made = labels_.with(made, name, labels_.get(one_labels, name));
    return made;
  }
  LabelSpan match_group(LabelSpan labels) {
    if (matching_.on) return labels_.only(labels, names_);
    std::vector<uint32_t> gone = names_;
    gone.push_back(LabelTable::kName);
    return labels_.without(labels, gone);
  }

  Outcome value_of(const Cell& many_cell, const Cell& one_cell) {
    Outcome out = combine(evaluator_, expr_, swapped_ ? one_cell : many_cell, swapped_ ? many_cell : one_cell);
    if (!out.failed && expr_.return_bool) out.cell = {out.keep ? 1.0 : 0.0, nullptr};
    return out;
  }

  // --- fast: labels alone say which row meets which

  // False: they do not, so who meets is to be found out at each step.
  bool pair_rows() {
    if (fills_) return false;
    one_row_.assign(met_.count, kNone);
    for (size_t i = 0; i < one_.rows.size(); ++i) {
      if (one_row_[one_ids_[i]] != kNone) return false;
      one_row_[one_ids_[i]] = i;
    }
    if (one_to_one_) {
      std::vector<uint8_t> used(met_.count, 0);
      for (uint32_t id : many_ids_) {
        if (used[id]) return false;
        used[id] = 1;
      }
    }
    for (size_t i = 0; i < many_.rows.size(); ++i) {
      if (one_row_[many_ids_[i]] == kNone) continue;
      pairs_.push_back(i);
      pair_labels_.push_back(result_labels(many_.rows[i].labels, one_.rows[one_row_[many_ids_[i]]].labels));
    }
    LabelSetIds ids(pair_labels_.size());
    for (LabelSpan labels : pair_labels_) ids.id(labels);
    return ids.size() == pair_labels_.size();
  }

  void combine_pairs() {
    const bool plain = many_.histograms.empty() && one_.histograms.empty() && !is_trim(expr_.op);
    out_.rows.reserve(pairs_.size());
    out_.values.reserve(pairs_.size() * out_.steps);
    for (size_t p = 0; p < pairs_.size(); ++p) {
      const size_t i = pairs_[p];
      const size_t k = one_row_[many_ids_[i]];
      const size_t row = out_.add_row(pair_labels_[p], expr_.return_bool);
      if (!(plain ? combine_floats(i, k, row) : combine_cells(i, k, row))) out_.drop_last_row();
    }
  }

  // False: nothing came out.
  bool combine_floats(size_t i, size_t k, size_t row) {
    const BinaryOp op = expr_.op;
    const bool compares = is_comparison(op);
    const std::span<const double> many_row = many_.row(i);
    const std::span<const double> one_row = one_.row(k);
    const std::span<double> to = out_.row(row);
    bool any = false;
    for (size_t s = 0; s < to.size(); ++s) {
      if (is_absent(many_row[s]) || is_absent(one_row[s])) continue;
      const double a = swapped_ ? one_row[s] : many_row[s];
      const double b = swapped_ ? many_row[s] : one_row[s];
      double result = a;
      if (!compares) {
        result = arithmetic(op, a, b);
      } else if (expr_.return_bool) {
        result = holds(op, a, b) ? 1 : 0;
      } else if (!holds(op, a, b)) {
        continue;
      }
      to[s] = result;
      any = true;
    }
    return any;
  }

  bool combine_cells(size_t i, size_t k, size_t row) {
    bool any = false;
    for (size_t s = 0; s < out_.steps; ++s) {
      if (is_absent(many_.row(i)[s]) || is_absent(one_.row(k)[s])) continue;
      Outcome outcome = value_of(cell_of(many_, i, s), cell_of(one_, k, s));
      if (outcome.failed || (!outcome.keep && !expr_.return_bool)) continue;
      put(out_, row, s, std::move(outcome.cell));
      any = true;
    }
    return any;
  }

  // --- step by step

  void match_step(size_t s) {
    evaluator_.check();
    std::fill(one_at_.begin(), one_at_.end(), kNone);
    std::fill(matched_.begin(), matched_.end(), 0);
    for (auto& rows : matched_rows_) rows.clear();
    bool any_many = false, any_one = false;
    for (size_t i = 0; i < many_.rows.size() && !any_many; ++i) any_many = !is_absent(many_.row(i)[s]);
    for (size_t k = 0; k < one_.rows.size() && !any_one; ++k) any_one = !is_absent(one_.row(k)[s]);
    if (!any_many && !any_one) return;
    if ((!any_many || !any_one) && !fills_) return;
    find_ones(s);
    // As Prometheus has it: the left fill is that of the many side, whichever side that is.
    const bool fill_one = matching_.fill_right.has_value();
    const bool fill_many = matching_.fill_left.has_value();
    for (size_t i = 0; i < many_.rows.size(); ++i) {
      if (is_absent(many_.row(i)[s])) continue;
      const size_t k = one_at_[many_ids_[i]];
      if (k == kNone && !fill_one) continue;
      meet(i, k, many_ids_[i], s);
    }
    if (!fill_many) return;
    for (size_t k = 0; k < one_.rows.size(); ++k) {
      if (!is_absent(one_.row(k)[s]) && !matched_[one_ids_[k]]) meet(kNone, k, one_ids_[k], s);
    }
  }

  void find_ones(size_t s) {
    for (size_t k = 0; k < one_.rows.size(); ++k) {
      if (is_absent(one_.row(k)[s])) continue;
      size_t& known = one_at_[one_ids_[k]];
      if (known != kNone)
        fail_execution("found duplicate series for the match group " + labels_.shown(match_group(one_.rows[k].labels)) +
                       " on the " + (swapped_ ? "left" : "right") + " hand-side of the operation: [" +
                       labels_.shown(one_.rows[k].labels) + ", " + labels_.shown(one_.rows[known].labels) +
                       "];many-to-many matching not allowed: matching labels must be unique on one side");
      known = k;
    }
  }

  // i or k kNone: filled in.
  void meet(size_t i, size_t k, uint32_t id, size_t s) {
    const Cell many_cell = i == kNone ? Cell{*matching_.fill_left, nullptr} : cell_of(many_, i, s);
    const Cell one_cell = k == kNone ? Cell{*matching_.fill_right, nullptr} : cell_of(one_, k, s);
    Outcome outcome = value_of(many_cell, one_cell);
    if (outcome.failed) return;
    const uint32_t row = row_for(i, k);
    if (one_to_one_) {
      if (matched_[id])
        fail_execution("multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)");
    } else {
      std::vector<uint32_t>& rows = matched_rows_[id];
      if (std::find(rows.begin(), rows.end(), row) != rows.end())
        fail_execution("multiple matches for labels: grouping labels must ensure unique matches");
      rows.push_back(row);
    }
    matched_[id] = 1;
    if (!outcome.keep && !expr_.return_bool) return;
    if (!is_absent(out_.row(row)[s])) fail_execution("vector cannot contain metrics with the same labelset");
    put(out_, row, s, std::move(outcome.cell));
  }

  uint32_t row_for(size_t i, size_t k) {
    const uint64_t key = (static_cast<uint64_t>(i) + 1) << 32 | (k + 1);
    if (const auto found = row_of_pair_.find(key); found != row_of_pair_.end()) return found->second;
    const LabelSpan many_labels = i == kNone ? match_group(one_.rows[k].labels) : many_.rows[i].labels;
    const LabelSpan one_labels = k == kNone ? match_group(many_.rows[i].labels) : one_.rows[k].labels;
    const uint32_t id = result_ids_.id(result_labels(many_labels, one_labels));
    row_of_pair_.emplace(key, id);
    if (id == out_.rows.size()) out_.add_row(result_ids_.set(id), expr_.return_bool);
    return id;
  }

  Evaluator& evaluator_;
  LabelTable& labels_;
  const Expr& expr_;
  const VectorMatching& matching_;
  const bool swapped_, one_to_one_, fills_;
  const Signatures met_;
  const Block& many_;
  const Block& one_;
  const std::vector<uint32_t>& many_ids_;
  const std::vector<uint32_t>& one_ids_;
  std::vector<uint32_t> names_, include_;
  // Where labels alone decide.
  std::vector<size_t> one_row_;  // by signature
  std::vector<size_t> pairs_;    // `many` rows that meet somebody
  std::vector<LabelSpan> pair_labels_;
  // Of a step, by signature.
  std::vector<size_t> one_at_;
  std::vector<uint8_t> matched_;
  std::vector<std::vector<uint32_t>> matched_rows_;
  LabelSetIds result_ids_{0};
  std::unordered_map<uint64_t, uint32_t> row_of_pair_;
  Block out_;
};

}  // namespace

Block Evaluator::vector_vector(const Expr& expr, Block left, Block right) {
  return VectorMatch(*this, expr, left, right).run();
}

}  // namespace lockstep::promql
