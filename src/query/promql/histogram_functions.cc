// Functions of histograms: native ones, and classic ones made of buckets.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/text.h"
#include "query/promql/date_functions.h"
#include "query/promql/evaluator.h"
#include "query/promql/lexer.h"
#include "query/promql/printer.h"
#include "query/promql/sample_math.h"

namespace lockstep::promql {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

struct ClassicBucket {
  double upper = 0, count = 0;
};

constexpr double kBucketTolerance = 1e-12;

struct Monotonicity {
  bool forced = false;
  double least = kInf, most = -kInf, difference = 0;
};

// Sorted by bound; equal bounds become one.
void coalesce(std::vector<ClassicBucket>& buckets) {
  std::stable_sort(buckets.begin(), buckets.end(),
                   [](const ClassicBucket& a, const ClassicBucket& b) { return a.upper < b.upper; });
  size_t kept = 0;
  for (size_t i = 1; i < buckets.size(); ++i) {
    if (buckets[i].upper == buckets[kept].upper) {
      buckets[kept].count += buckets[i].count;
    } else {
      buckets[++kept] = buckets[i];
    }
  }
  buckets.resize(kept + 1);
}

double classic_quantile(double q, std::vector<ClassicBucket>& buckets, Monotonicity& monotonicity) {
  if (std::isnan(q)) return kNan;
  if (q < 0) return -kInf;
  if (q > 1) return kInf;
  coalesce(buckets);
  if (buckets.back().upper != kInf) return kNan;
  double before = buckets[0].count;
  for (size_t i = 1; i < buckets.size(); ++i) {
    double& now = buckets[i].count;
    if (now == before) continue;
    if (nearly(before, now, kBucketTolerance)) {
      now = before;
      continue;
    }
    if (now < before) {
      monotonicity.forced = true;
      monotonicity.least = std::min(monotonicity.least, buckets[i].upper);
      monotonicity.most = std::max(monotonicity.most, buckets[i].upper);
      monotonicity.difference = std::max(monotonicity.difference, before - now);
      now = before;
      continue;
    }
    before = now;
  }
  if (buckets.size() < 2) return kNan;
  const double observations = buckets.back().count;
  if (observations == 0) return kNan;
  double rank = q * observations;
  size_t at = 0;
  while (at < buckets.size() - 1 && !(buckets[at].count >= rank)) ++at;
  if (at == buckets.size() - 1) return buckets[buckets.size() - 2].upper;
  if (at == 0 && buckets[0].upper <= 0) return buckets[0].upper;
  double start = 0;
  double count = buckets[at].count;
  if (at > 0) {
    start = buckets[at - 1].upper;
    count -= buckets[at - 1].count;
    rank -= buckets[at - 1].count;
  }
  return start + (buckets[at].upper - start) * (rank / count);
}

double classic_fraction(double lower, double upper, std::vector<ClassicBucket>& buckets) {
  coalesce(buckets);
  if (buckets.back().upper != kInf) return kNan;
  const double count = buckets.back().count;
  if (count == 0 || std::isnan(lower) || std::isnan(upper)) return kNan;
  if (lower >= upper) return 0;
  double rank = 0, lower_rank = 0, upper_rank = 0;
  bool lower_set = false, upper_set = false;
  double low = buckets[0].upper <= 0 ? -kInf : 0;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const ClassicBucket& b = buckets[i];
    if (i > 0) low = buckets[i - 1].upper;
    const auto rank_of = [&](double value) {
      if (low == -kInf) return b.count;
      return rank + (b.count - rank) * (value - low) / (b.upper - low);
    };
    if (!lower_set && low >= lower) {
      lower_rank = rank;
      lower_set = true;
    }
    if (!upper_set && low >= upper) {
      upper_rank = rank;
      upper_set = true;
    }
    if (lower_set && upper_set) break;
    if (!lower_set && low < lower && b.upper > lower) {
      lower_rank = rank_of(lower);
      lower_set = true;
    }
    if (!upper_set && low < upper && b.upper > upper) {
      upper_rank = rank_of(upper);
      upper_set = true;
    }
    if (lower_set && upper_set) break;
    rank = b.count;
  }
  if (!lower_set || lower_rank > count) lower_rank = count;
  if (!upper_set || upper_rank > count) upper_rank = count;
  return (upper_rank - lower_rank) / count;
}

// As metrics write a number in a label: 0.5, 1.0, +Inf.
std::string label_number(double value) {
  std::string text = short_number(value);
  if (std::isfinite(value) && text.find_first_of("e.") == std::string::npos) text += ".0";
  return text;
}

// histogram_quantile, histogram_quantiles and histogram_fraction: of native histograms, and of classic ones, which are
// rows that differ by le alone.
class QuantilesAndFractions {
 public:
  QuantilesAndFractions(Evaluator& evaluator, const Expr& expr, const Grid& grid)
      : evaluator_(evaluator),
        labels_(evaluator.labels()),
        expr_(expr),
        grid_(grid),
        is_fraction_(expr.function->name == "histogram_fraction"),
        many_(expr.function->name == "histogram_quantiles"),
        argument_(expr.child(many_          ? 0
                             : is_fraction_ ? 2
                                            : 1)) {}

  Block run() {
    evaluate_arguments();
    if (!is_fraction_) warn_of_quantiles();
    group_rows();
    out_.steps = block_.steps;
    out_ids_ = LabelSetIds(classics_.size());
    corrupt_.resize(classics_.size());
    const size_t rounds = many_ ? scalars_.size() : 1;
    for (size_t round = 0; round < rounds; ++round) {
      quantile_label_ = many_ ? labels_.intern(string_argument(expr_, 1)) : 0;
      for (size_t s = 0; s < block_.steps; ++s) {
        const double q = is_fraction_ ? 0 : scalars_[round][s];
        std::fill(corrupt_.begin(), corrupt_.end(), 0);
        add_natives(s, q);
        add_classics(s, q);
      }
      evaluator_.check();
    }
    annotate_forced();
    evaluator_.charge_block(out_);
    out_.drop_empty_rows();
    return std::move(out_);
  }

 private:
  // Rows that are buckets of one classic histogram.
  struct Classic {
    LabelSpan labels;
    std::vector<std::pair<double, size_t>> buckets;  // bound, row
  };
  // Where and how far the buckets of a metric had to be put right.
  struct Forced {
    Monotonicity worst;
    int64_t first = 0, last = 0;
    int samples = 0;
  };

  void evaluate_arguments() {
    for (size_t i = 0; i < expr_.children.size(); ++i) {
      if (&expr_.child(i) == &argument_ || (many_ && i == 1)) continue;
      scalars_.push_back(evaluator_.eval_scalar(expr_.child(i), grid_));
      scalar_at_.push_back(&expr_.child(i));
    }
    block_ = evaluator_.eval(argument_, grid_);
  }

  void warn_of_quantiles() {
    for (size_t k = 0; k < scalars_.size(); ++k) {
      for (double q : scalars_[k]) {
        if (std::isnan(q) || q < 0 || q > 1)
          evaluator_.annotate(true, "PromQL warning: quantile value should be between 0 and 1, got " + short_number(q),
                              *scalar_at_[k]);
      }
    }
  }

  void group_rows() {
    constexpr uint32_t kLeOnly[] = {LabelTable::kLe};
    LabelSetIds ids(block_.rows.size());
    native_ids_.resize(block_.rows.size());
    for (size_t i = 0; i < block_.rows.size(); ++i) {
      bool has_float = false, has_histogram = false;
      for (size_t s = 0; s < block_.steps; ++s) {
        if (is_absent(block_.row(i)[s])) continue;
        (block_.histogram(i, s) != nullptr ? has_histogram : has_float) = true;
      }
      if (has_histogram) {
        native_ids_[i] = ids.id(block_.rows[i].labels);
        if (native_ids_[i] == classics_.size()) classics_.push_back({block_.rows[i].labels, {}});
      }
      if (!has_float) continue;
      const std::optional<double> bound = bound_of(block_.rows[i].labels);
      if (!bound) continue;
      const LabelSpan base = labels_.without(block_.rows[i].labels, kLeOnly);
      const uint32_t id = ids.id(base);
      if (id == classics_.size()) classics_.push_back({base, {}});
      classics_[id].buckets.emplace_back(*bound, i);
    }
    for (Classic& classic : classics_)
      std::stable_sort(classic.buckets.begin(), classic.buckets.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
  }

  // Nothing: le is no number, which is annotated.
  std::optional<double> bound_of(LabelSpan labels) {
    const std::string_view le = labels_.text(labels_.get(labels, LabelTable::kLe));
    double bound = 0;
    std::string digits(le);
    if (!digits.empty() && (digits[0] == '+' || digits[0] == '-')) digits.erase(0, 1);
    if (!parse_number(digits, &bound)) {
      evaluator_.annotate(true,
                          "PromQL warning: bucket label \"le\" is missing or has a malformed value of " +
                              in_quotes(le) + for_name(labels),
                          argument_);
      return std::nullopt;
    }
    return le.starts_with('-') ? -bound : bound;
  }

  void add_natives(size_t s, double q) {
    for (size_t i = 0; i < block_.rows.size(); ++i) {
      const NativeHistogram* h = is_absent(block_.row(i)[s]) ? nullptr : block_.histogram(i, s);
      if (h == nullptr) continue;
      const LabelSpan labels = block_.rows[i].labels;
      const Classic& same = classics_[native_ids_[i]];
      const bool mixed = std::any_of(same.buckets.begin(), same.buckets.end(), [&](const auto& bucket) {
        return !is_absent(block_.row(bucket.second)[s]) && block_.histogram(bucket.second, s) == nullptr;
      });
      if (mixed) {
        evaluator_.annotate(true,
                            "PromQL warning: vector contains a mix of classic and native histograms" + for_name(labels),
                            argument_);
        corrupt_[native_ids_[i]] = 1;
        continue;
      }
      const double value = is_fraction_ ? native_fraction(*h, s, labels) : native_quantile(*h, q, labels);
      set(labelled(labels, q), s, value);
    }
  }

  double native_fraction(const NativeHistogram& histogram, size_t s, LabelSpan labels) {
    bool has_nan = false;
    const double value = fraction(scalars_[0][s], scalars_[1][s], histogram, &has_nan);
    if (has_nan)
      evaluator_.annotate(
          false,
          "PromQL info: input to histogram_fraction has NaN observations, which are excluded from all fractions" +
              for_name(labels),
          expr_.child(0));
    return value;
  }

  double native_quantile(const NativeHistogram& histogram, double q, LabelSpan labels) {
    NanEffect effect = NanEffect::kNone;
    const double value = quantile(q, histogram, &effect);
    if (effect != NanEffect::kNone)
      evaluator_.annotate(false,
                          std::string("PromQL info: input to histogram_quantile has NaN observations, result is ") +
                              (effect == NanEffect::kResult ? "NaN" : "skewed higher") + for_name(labels),
                          expr_.child(0));
    return value;
  }

  void add_classics(size_t s, double q) {
    for (size_t c = 0; c < classics_.size(); ++c) {
      if (corrupt_[c]) continue;
      buckets_.clear();
      for (const auto& [bound, row] : classics_[c].buckets) {
        const double value = block_.row(row)[s];
        if (!is_absent(value) && block_.histogram(row, s) == nullptr) buckets_.push_back({bound, value});
      }
      if (buckets_.empty()) continue;
      if (is_fraction_) {
        set(classics_[c].labels, s, classic_fraction(scalars_[0][s], scalars_[1][s], buckets_));
        continue;
      }
      Monotonicity monotonicity;
      const double value = classic_quantile(q, buckets_, monotonicity);
      if (monotonicity.forced) note_forced(forced_[for_name(classics_[c].labels)], monotonicity, grid_.time(s));
      set(labelled(classics_[c].labels, q), s, value);
    }
  }

  static void note_forced(Forced& entry, const Monotonicity& monotonicity, int64_t time_ms) {
    if (entry.samples++ == 0) entry.first = time_ms;
    entry.last = time_ms;
    entry.worst.least = std::min(entry.worst.least, monotonicity.least);
    entry.worst.most = std::max(entry.worst.most, monotonicity.most);
    entry.worst.difference = std::max(entry.worst.difference, monotonicity.difference);
  }

  void annotate_forced() {
    for (const auto& [metric, entry] : forced_) {
      evaluator_.annotate(
          false,
          "PromQL info: input to histogram_quantile needed to be fixed for monotonicity (see "
          "https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)" +
              metric,
          argument_,
          format(", from buckets %s to %s, with a max diff of %.2g, over %d samples from %s to %s",
                 short_number(entry.worst.least).c_str(), short_number(entry.worst.most).c_str(),
                 entry.worst.difference, entry.samples, date_text(entry.first).c_str(), date_text(entry.last).c_str()));
    }
  }

  std::string for_name(LabelSpan labels) const {
    const std::string metric = evaluator_.delayed() ? evaluator_.metric_name(labels) : "";
    return metric.empty() ? std::string() : " for metric name " + in_quotes(metric);
  }
  LabelSpan labelled(LabelSpan labels, double q) {
    return many_ ? labels_.with(labels, quantile_label_, labels_.intern(label_number(q))) : labels;
  }
  void set(LabelSpan labels, size_t s, double value) {
    if (!evaluator_.delayed()) labels = labels_.without_metadata(labels);
    const uint32_t row = out_ids_.id(labels);
    if (row == out_.rows.size()) out_.add_row(labels, true);
    double& cell = out_.values[row * out_.steps + s];
    if (!is_absent(cell)) fail_execution("vector cannot contain metrics with the same labelset");
    cell = value;
  }

  Evaluator& evaluator_;
  LabelTable& labels_;
  const Expr& expr_;
  const Grid& grid_;
  const bool is_fraction_, many_;
  const Expr& argument_;  // the vector
  Block block_;           // its value
  std::vector<std::vector<double>> scalars_;
  std::vector<const Expr*> scalar_at_;
  std::vector<Classic> classics_;
  std::vector<uint32_t> native_ids_;    // per row: which of classics_ has its labels
  std::vector<uint8_t> corrupt_;        // per classic, at a step: mixed with a native histogram
  std::vector<ClassicBucket> buckets_;  // of one classic at a step
  uint32_t quantile_label_ = 0;
  std::map<std::string, Forced> forced_;  // by for_name()
  LabelSetIds out_ids_{0};
  Block out_;
};

}  // namespace

Block Evaluator::histogram_function(const Expr& expr, const Grid& grid) {
  const std::string_view name = expr.function->name;
  Block block = eval(expr.child(), grid);
  for (size_t i = 0; i < block.values.size(); ++i) {
    double& value = block.values[i];
    if (is_absent(value)) continue;
    const NativeHistogram* h = block.histograms.empty() ? nullptr : block.histograms[i].get();
    if (h == nullptr) {
      value = kAbsent;
    } else if (name == "histogram_count") {
      value = h->count;
    } else if (name == "histogram_sum") {
      value = h->sum;
    } else if (name == "histogram_avg") {
      value = h->sum / h->count;
    } else {
      value = variance(*h);
      if (name == "histogram_stddev") value = std::sqrt(value);
    }
  }
  block.histograms.clear();
  block.drop_empty_rows();
  drop_names(block);
  if (!delayed() && !block.one_name) merge_same(block);
  return block;
}

Block Evaluator::classic_function(const Expr& expr, const Grid& grid) {
  return QuantilesAndFractions(*this, expr, grid).run();
}

}  // namespace lockstep::promql
