// Functions over instant vectors and scalars.
#include <re2/re2.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numbers>
#include <unordered_map>
#include <unordered_set>

#include "base/text.h"
#include "query/promql/evaluator.h"
#include "query/promql/lexer.h"
#include "query/promql/parser.h"
#include "query/promql/printer.h"
#include "query/promql/sample_math.h"

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

struct Civil {
  int64_t year;
  int month, day, weekday, year_day, hour, minute, month_days;
};

bool is_leap(int64_t year) {
  return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

Civil civil_of(int64_t seconds) {
  int64_t days = seconds / 86400;
  int64_t rest = seconds % 86400;
  if (rest < 0) {
    rest += 86400;
    --days;
  }
  Civil out{};
  out.hour = static_cast<int>(rest / 3600);
  out.minute = static_cast<int>(rest % 3600 / 60);
  out.weekday = static_cast<int>(((days % 7) + 11) % 7);  // 1970-01-01 was a Thursday
  // Days since 0000-03-01, in eras of 400 years.
  const int64_t shifted = days + 719468;
  const int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
  const int64_t day_of_era = shifted - era * 146097;
  const int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int64_t month = (5 * day_of_year + 2) / 153;
  out.day = static_cast<int>(day_of_year - (153 * month + 2) / 5 + 1);
  out.month = static_cast<int>(month < 10 ? month + 3 : month - 9);
  out.year = year_of_era + era * 400 + (out.month <= 2 ? 1 : 0);
  static constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool leap = is_leap(out.year);
  out.month_days = kDays[out.month - 1] + (out.month == 2 && leap ? 1 : 0);
  out.year_day = out.day;
  for (int m = 0; m + 1 < out.month; ++m) out.year_day += kDays[m] + (m == 1 && leap ? 1 : 0);
  return out;
}

std::string date_text(int64_t time_ms) {
  const Civil date = civil_of(time_ms / 1000);
  return format("%04lld-%02d-%02dT%02d:%02d:%02dZ", static_cast<long long>(date.year), date.month, date.day, date.hour,
                date.minute, static_cast<int>((time_ms / 1000 % 60 + 60) % 60));
}

using DatePart = double (*)(const Civil&);
DatePart find_date_part(std::string_view name) {
  static const std::unordered_map<std::string_view, DatePart> kParts = {
      {"year", [](const Civil& c) { return static_cast<double>(c.year); }},
      {"month", [](const Civil& c) { return static_cast<double>(c.month); }},
      {"day_of_month", [](const Civil& c) { return static_cast<double>(c.day); }},
      {"day_of_week", [](const Civil& c) { return static_cast<double>(c.weekday); }},
      {"day_of_year", [](const Civil& c) { return static_cast<double>(c.year_day); }},
      {"days_in_month", [](const Civil& c) { return static_cast<double>(c.month_days); }},
      {"hour", [](const Civil& c) { return static_cast<double>(c.hour); }},
      {"minute", [](const Civil& c) { return static_cast<double>(c.minute); }},
  };
  const auto found = kParts.find(name);
  return found == kParts.end() ? nullptr : found->second;
}

// --- classic histograms

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

bool valid_utf8_name(std::string_view text) {
  if (text.empty()) return false;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
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
  if (name == "scalar") {
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
  if (name == "timestamp") {
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
  if (find_date_part(name) != nullptr) return date_function(expr, grid);
  return elementwise(expr, grid);
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

Block Evaluator::date_function(const Expr& expr, const Grid& grid) {
  const DatePart part = find_date_part(expr.function->name);
  if (expr.children.empty()) {
    std::vector<double> out(grid.count);
    for (size_t s = 0; s < grid.count; ++s) out[s] = part(civil_of(grid.time(s) / 1000));
    return number_block(out);
  }
  Block block = eval(expr.child(), grid);
  for (size_t i = 0; i < block.values.size(); ++i) {
    double& value = block.values[i];
    if (is_absent(value)) continue;
    if (!block.histograms.empty() && block.histograms[i]) {
      value = kAbsent;
      continue;
    }
    const bool in_range = value > -9.2e18 && value < 9.2e18;
    value = part(civil_of(in_range ? static_cast<int64_t>(value) : std::numeric_limits<int64_t>::min()));
  }
  block.histograms.clear();
  block.drop_empty_rows();
  drop_names(block);
  if (!delayed() && !block.one_name) merge_same(block);
  return block;
}

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
  const std::string_view name = expr.function->name;
  const bool is_fraction = name == "histogram_fraction";
  const bool many = name == "histogram_quantiles";
  const size_t vector_index = many ? 0 : is_fraction ? 2 : 1;
  std::vector<std::vector<double>> scalars;
  std::vector<const Expr*> scalar_at;
  for (size_t i = 0; i < expr.children.size(); ++i) {
    if (i == vector_index || (many && i == 1)) continue;
    scalars.push_back(eval_scalar(expr.child(i), grid));
    scalar_at.push_back(&expr.child(i));
  }
  const Expr& argument = expr.child(vector_index);
  const Block block = eval(argument, grid);
  if (!is_fraction) {
    for (size_t k = 0; k < scalars.size(); ++k) {
      for (double q : scalars[k]) {
        if (std::isnan(q) || q < 0 || q > 1)
          annotate(true, "PromQL warning: quantile value should be between 0 and 1, got " + short_number(q),
                   *scalar_at[k]);
      }
    }
  }
  const auto for_name = [&](LabelSpan labels) {
    const std::string metric = delayed() ? metric_name(labels) : "";
    return metric.empty() ? std::string() : " for metric name " + quoted(metric);
  };

  // Rows that are buckets of one classic histogram.
  struct Classic {
    LabelSpan labels;
    std::vector<std::pair<double, size_t>> buckets;  // bound, row
  };
  constexpr uint32_t kLeOnly[] = {LabelTable::kLe};
  LabelSetIds ids(block.rows.size());
  std::vector<Classic> classics;
  std::vector<uint32_t> native_ids(block.rows.size());
  for (size_t i = 0; i < block.rows.size(); ++i) {
    bool has_float = false, has_histogram = false;
    for (size_t s = 0; s < block.steps; ++s) {
      if (is_absent(block.row(i)[s])) continue;
      (block.histogram(i, s) != nullptr ? has_histogram : has_float) = true;
    }
    if (has_histogram) {
      native_ids[i] = ids.id(block.rows[i].labels);
      if (native_ids[i] == classics.size()) classics.push_back({block.rows[i].labels, {}});
    }
    if (!has_float) continue;
    const std::string_view le = labels_.text(labels_.get(block.rows[i].labels, LabelTable::kLe));
    double bound = 0;
    std::string digits(le);
    if (!digits.empty() && (digits[0] == '+' || digits[0] == '-')) digits.erase(0, 1);
    if (!parse_number(digits, &bound)) {
      annotate(true,
               "PromQL warning: bucket label \"le\" is missing or has a malformed value of " + quoted(le) +
                   for_name(block.rows[i].labels),
               argument);
      continue;
    }
    if (le.starts_with('-')) bound = -bound;
    const LabelSpan base = labels_.without(block.rows[i].labels, kLeOnly);
    const uint32_t id = ids.id(base);
    if (id == classics.size()) classics.push_back({base, {}});
    classics[id].buckets.emplace_back(bound, i);
  }
  for (Classic& classic : classics)
    std::stable_sort(classic.buckets.begin(), classic.buckets.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });

  Block out;
  out.steps = block.steps;
  LabelSetIds out_ids(classics.size());
  const auto out_row = [&](LabelSpan labels) {
    if (!delayed()) labels = labels_.without_metadata(labels);
    const uint32_t id = out_ids.id(labels);
    if (id == out.rows.size()) out.add_row(labels, true);
    return id;
  };
  const auto set = [&](LabelSpan labels, size_t s, double value) {
    double& cell = out.values[out_row(labels) * out.steps + s];
    if (!is_absent(cell)) fail_execution("vector cannot contain metrics with the same labelset");
    cell = value;
  };
  struct Forced {
    Monotonicity worst;
    int64_t first = 0, last = 0;
    int samples = 0;
  };
  std::map<std::string, Forced> forced;

  const size_t rounds = many ? scalars.size() : 1;
  std::vector<ClassicBucket> buckets;
  std::vector<uint8_t> spoilt(classics.size());
  for (size_t round = 0; round < rounds; ++round) {
    const uint32_t quantile_label = many ? labels_.intern(string_argument(expr, 1)) : 0;
    const auto labelled = [&](LabelSpan labels, double q) {
      return many ? labels_.with(labels, quantile_label, labels_.intern(label_number(q))) : labels;
    };
    for (size_t s = 0; s < block.steps; ++s) {
      const double q = is_fraction ? 0 : scalars[round][s];
      std::fill(spoilt.begin(), spoilt.end(), 0);
      for (size_t i = 0; i < block.rows.size(); ++i) {
        const NativeHistogram* h = is_absent(block.row(i)[s]) ? nullptr : block.histogram(i, s);
        if (h == nullptr) continue;
        const Classic& same = classics[native_ids[i]];
        const bool mixed = std::any_of(same.buckets.begin(), same.buckets.end(), [&](const auto& bucket) {
          return !is_absent(block.row(bucket.second)[s]) && block.histogram(bucket.second, s) == nullptr;
        });
        if (mixed) {
          annotate(
              true,
              "PromQL warning: vector contains a mix of classic and native histograms" + for_name(block.rows[i].labels),
              argument);
          spoilt[native_ids[i]] = 1;
          continue;
        }
        double value = 0;
        if (is_fraction) {
          bool has_nan = false;
          value = fraction(scalars[0][s], scalars[1][s], *h, &has_nan);
          if (has_nan)
            annotate(
                false,
                "PromQL info: input to histogram_fraction has NaN observations, which are excluded from all fractions" +
                    for_name(block.rows[i].labels),
                expr.child(0));
        } else {
          NanEffect effect = NanEffect::kNone;
          value = quantile(q, *h, &effect);
          if (effect != NanEffect::kNone)
            annotate(false,
                     std::string("PromQL info: input to histogram_quantile has NaN observations, result is ") +
                         (effect == NanEffect::kResult ? "NaN" : "skewed higher") + for_name(block.rows[i].labels),
                     expr.child(0));
        }
        set(labelled(block.rows[i].labels, q), s, value);
      }
      for (size_t c = 0; c < classics.size(); ++c) {
        if (spoilt[c]) continue;
        buckets.clear();
        for (const auto& [bound, row] : classics[c].buckets) {
          const double value = block.row(row)[s];
          if (!is_absent(value) && block.histogram(row, s) == nullptr) buckets.push_back({bound, value});
        }
        if (buckets.empty()) continue;
        if (is_fraction) {
          set(classics[c].labels, s, classic_fraction(scalars[0][s], scalars[1][s], buckets));
          continue;
        }
        Monotonicity monotonicity;
        const double value = classic_quantile(q, buckets, monotonicity);
        if (monotonicity.forced) {
          Forced& entry = forced[for_name(classics[c].labels)];
          if (entry.samples++ == 0) entry.first = grid.time(s);
          entry.last = grid.time(s);
          entry.worst.least = std::min(entry.worst.least, monotonicity.least);
          entry.worst.most = std::max(entry.worst.most, monotonicity.most);
          entry.worst.difference = std::max(entry.worst.difference, monotonicity.difference);
        }
        set(labelled(classics[c].labels, q), s, value);
      }
    }
    check();
  }
  for (const auto& [metric, entry] : forced) {
    annotate(
        false,
        "PromQL info: input to histogram_quantile needed to be fixed for monotonicity (see "
        "https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)" +
            metric,
        argument,
        format(", from buckets %s to %s, with a max diff of %.2g, over %d samples from %s to %s",
               short_number(entry.worst.least).c_str(), short_number(entry.worst.most).c_str(), entry.worst.difference,
               entry.samples, date_text(entry.first).c_str(), date_text(entry.last).c_str()));
  }
  charge_block(out);
  out.drop_empty_rows();
  return out;
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

namespace {

// $1, ${1}, $name and ${name}; $$ is a dollar. A group that is not there is empty. charge: told of its size before it
// grows to it.
std::string expanded(std::string_view pattern, const std::vector<re2::StringPiece>& groups, const RE2& regex,
                     const std::function<void(size_t)>& charge) {
  std::string out;
  size_t charged = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '$') {
      out += pattern[i];
      continue;
    }
    if (i + 1 < pattern.size() && pattern[i + 1] == '$') {
      out += '$';
      ++i;
      continue;
    }
    size_t begin = i + 1;
    const bool braced = begin < pattern.size() && pattern[begin] == '{';
    if (braced) ++begin;
    size_t end = begin;
    const auto is_word = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    while (end < pattern.size() && is_word(pattern[end])) ++end;
    if (end == begin || (braced && (end >= pattern.size() || pattern[end] != '}'))) {
      out += '$';
      continue;
    }
    const std::string name(pattern.substr(begin, end - begin));
    size_t index = groups.size();
    if (name.find_first_not_of("0123456789") == std::string::npos) {
      if (name.size() < 9) index = static_cast<size_t>(std::stoul(name));
    } else if (const auto found = regex.NamedCapturingGroups().find(name);
               found != regex.NamedCapturingGroups().end()) {
      index = static_cast<size_t>(found->second);
    }
    if (index < groups.size() && groups[index].data() != nullptr) {
      if (const size_t size = out.size() + groups[index].size(); size > charged) {
        charged = 2 * size;  // it grows by doubling
        charge(charged);
      }
      out.append(groups[index].data(), groups[index].size());
    }
    i = braced ? end : end - 1;
  }
  return out;
}

}  // namespace

Block Evaluator::label_replace(const Expr& expr, const Grid& grid) {
  const std::string& target = string_argument(expr, 1);
  const std::string& replacement = string_argument(expr, 2);
  const std::string& pattern = string_argument(expr, 4);
  RE2::Options options;
  options.set_log_errors(false);
  options.set_dot_nl(true);
  const RE2 regex(pattern, options);
  if (!regex.ok()) fail_execution("invalid regular expression in label_replace(): " + pattern);
  if (!valid_utf8_name(target)) fail_execution("invalid destination label name in label_replace(): " + target);
  Block block = eval(expr.child(), grid);
  const uint32_t to = labels_.intern(target);
  const uint32_t from = labels_.intern(string_argument(expr, 3));
  std::unordered_map<uint32_t, std::optional<uint32_t>> known;
  const int count = 1 + regex.NumberOfCapturingGroups();
  std::optional<Held> held(std::in_place, *this, block);
  for (Row& row : block.rows) {
    const uint32_t source = labels_.get(row.labels, from);
    auto found = known.find(source);
    if (found == known.end()) {
      const std::string_view text = labels_.text(source);
      std::vector<re2::StringPiece> groups(static_cast<size_t>(count));
      std::optional<uint32_t> made;
      if (regex.Match(re2::StringPiece(text.data(), text.size()), 0, text.size(), RE2::ANCHOR_BOTH, groups.data(),
                      count))
        made = labels_.intern(
            expanded(replacement, groups, regex, [&](size_t bytes) { charge_bytes(bytes + replacement.size()); }));
      found = known.emplace(source, made).first;
    }
    if (!found->second) continue;
    row.labels = labels_.with(row.labels, to, *found->second);
    if (to == LabelTable::kName) row.drop_name = false;
  }
  held.reset();
  block.one_name = false;
  merge_same(block);
  return block;
}

Block Evaluator::label_join(const Expr& expr, const Grid& grid) {
  const std::string& target = string_argument(expr, 1);
  const std::string& separator = string_argument(expr, 2);
  std::vector<uint32_t> sources;
  for (size_t i = 3; i < expr.children.size(); ++i) {
    const std::string& source = string_argument(expr, i);
    if (!valid_utf8_name(source)) fail_execution("invalid source label name in label_join(): " + source);
    sources.push_back(labels_.intern(source));
  }
  if (!valid_utf8_name(target)) fail_execution("invalid destination label name in label_join(): " + target);
  Block block = eval(expr.child(), grid);
  const uint32_t to = labels_.intern(target);
  std::optional<Held> held(std::in_place, *this, block);
  for (Row& row : block.rows) {
    size_t bytes = separator.size() * sources.size();
    for (uint32_t source : sources) bytes += labels_.text(labels_.get(row.labels, source)).size();
    charge_bytes(bytes);
    std::string text;
    text.reserve(bytes);
    for (size_t i = 0; i < sources.size(); ++i) {
      if (i > 0) text += separator;
      text += labels_.text(labels_.get(row.labels, sources[i]));
    }
    row.labels = labels_.with(row.labels, to, labels_.intern(text));
    if (to == LabelTable::kName) row.drop_name = false;
  }
  held.reset();
  block.one_name = false;
  merge_same(block);
  return block;
}

// info(v, {labels}): adds labels of info metrics that share job and instance with a series.
Block Evaluator::info(const Expr& expr, const Grid& grid) {
  Block base = eval(expr.child(), grid);
  std::vector<LabelMatcher> name_matchers;
  std::map<std::string, std::vector<LabelMatcher>> data_matchers;
  if (expr.children.size() > 1) {
    for (const LabelMatcher& matcher : unwrapped(expr.child(1)).matchers) {
      if (matcher.name == "__name__") {
        name_matchers.push_back(matcher);
      } else {
        data_matchers[matcher.name].push_back(matcher);
      }
    }
  }
  const bool positive = std::any_of(name_matchers.begin(), name_matchers.end(), [](const LabelMatcher& m) {
    return m.op == LabelMatcher::Op::kEqual || m.op == LabelMatcher::Op::kRegex;
  });
  if (!positive) {
    if (name_matchers.empty()) {
      name_matchers.push_back({"__name__", LabelMatcher::Op::kEqual, "target_info"});
    } else {
      name_matchers.insert(name_matchers.begin(), {"__name__", LabelMatcher::Op::kRegex, ".+_info"});
    }
  }
  const auto matches = [](const LabelMatcher& matcher, std::string_view text) {
    switch (matcher.op) {
      case LabelMatcher::Op::kEqual:
        return text == matcher.value;
      case LabelMatcher::Op::kNotEqual:
        return text != matcher.value;
      default:
        break;
    }
    RE2::Options options;
    options.set_log_errors(false);
    options.set_dot_nl(true);
    return RE2::FullMatch(re2::StringPiece(text.data(), text.size()), RE2(matcher.value, options)) ==
           (matcher.op == LabelMatcher::Op::kRegex);
  };
  std::vector<uint8_t> is_info(base.rows.size());
  const uint32_t identifying[] = {labels_.intern("instance"), labels_.intern("job")};
  std::unordered_set<std::string_view> values[2];
  for (size_t i = 0; i < base.rows.size(); ++i) {
    const std::string_view name = labels_.text(labels_.get(base.rows[i].labels, LabelTable::kName));
    is_info[i] = std::all_of(name_matchers.begin(), name_matchers.end(),
                             [&](const LabelMatcher& m) { return matches(m, name); });
    if (is_info[i]) continue;
    for (int k = 0; k < 2; ++k) {
      const uint32_t value = labels_.get(base.rows[i].labels, identifying[k]);
      if (value != LabelTable::kEmpty) values[k].insert(labels_.text(value));
    }
  }
  Block infos;
  infos.steps = grid.count;
  if (!values[0].empty() || !values[1].empty()) {
    std::vector<LabelMatcher> matchers = name_matchers;
    for (int k = 0; k < 2; ++k) {
      if (values[k].empty()) continue;
      std::string any;
      for (std::string_view value : values[k])
        any += (any.empty() ? "" : "|") + RE2::QuoteMeta(re2::StringPiece(value.data(), value.size()));
      matchers.push_back({std::string(labels_.text(identifying[k])), LabelMatcher::Op::kRegex, any});
    }
    for (const auto& [name, list] : data_matchers) matchers.insert(matchers.end(), list.begin(), list.end());
    // Info series are read at the time that the first selector is.
    const Expr* selector = nullptr;
    std::function<void(const Expr&)> find = [&](const Expr& at) {
      if (selector != nullptr) return;
      if (at.kind == Expr::Kind::kSelector) selector = &at;
      for (const auto& child : at.children) find(*child);
    };
    find(expr.child());
    const int64_t offset = selector != nullptr ? selector->offset_ms : 0;
    const bool fixed = selector != nullptr && selector->at != AtModifier::kNone;
    const int64_t from = (fixed ? selector->at_ms : grid.start) - offset - options_.lookback_ms + 1;
    const int64_t to = (fixed ? selector->at_ms : grid.last()) - offset;
    const MetricSelection* selection =
        select(matchers, std::min(from, grid.start - options_.lookback_ms + 1), std::max(to, grid.last()), 0);
    infos = selected(*selection, grid, nullptr, 0, Take::kTime);
  }
  // Info rows by metric, then by job and instance.
  std::map<uint32_t, std::vector<size_t>> by_metric;
  for (size_t i = 0; i < infos.rows.size(); ++i)
    by_metric[labels_.get(infos.rows[i].labels, LabelTable::kName)].push_back(i);
  const auto identity = [&](LabelSpan labels) {
    return static_cast<uint64_t>(labels_.get(labels, identifying[0])) << 32 | labels_.get(labels, identifying[1]);
  };
  const bool all_match_empty = std::all_of(data_matchers.begin(), data_matchers.end(), [](const auto& entry) {
    return std::all_of(entry.second.begin(), entry.second.end(), matches_empty);
  });

  Block out;
  out.steps = grid.count;
  LabelSetIds ids(base.rows.size());
  for (size_t s = 0; s < grid.count; ++s) {
    check();
    std::vector<std::unordered_map<uint64_t, size_t>> found;  // per metric
    for (const auto& [metric, rows] : by_metric) {
      found.emplace_back();
      for (size_t i : rows) {
        if (is_absent(infos.row(i)[s])) continue;
        const auto [entry, fresh] = found.back().emplace(identity(infos.rows[i].labels), i);
        if (fresh) continue;
        const double known = infos.row(entry->second)[s];
        const double now = infos.row(i)[s];
        if (known == now)
          fail_execution(format("found duplicate series for info metric: existing %s @ %lld, new %s @ %lld",
                                labels_.shown(infos.rows[entry->second].labels).c_str(), static_cast<long long>(known),
                                labels_.shown(infos.rows[i].labels).c_str(), static_cast<long long>(now)));
        if (known < now) entry->second = i;
      }
    }
    for (size_t i = 0; i < base.rows.size(); ++i) {
      if (is_absent(base.row(i)[s])) continue;
      LabelSpan labels = base.rows[i].labels;
      if (!is_info[i]) {
        LabelSpan added;
        bool any = false;
        for (const auto& of_metric : found) {
          const auto hit = of_metric.find(identity(base.rows[i].labels));
          if (hit == of_metric.end()) continue;
          any = true;
          for (const LabelSymbols& label : infos.rows[hit->second].labels) {
            if (label.name == LabelTable::kName) continue;
            if (!data_matchers.empty() && !data_matchers.contains(std::string(labels_.text(label.name)))) continue;
            const uint32_t known = labels_.get(added, label.name);
            if (known != LabelTable::kEmpty && known != label.value)
              fail_execution("conflicting label: " + std::string(labels_.text(label.name)));
            if (labels_.get(base.rows[i].labels, label.name) != LabelTable::kEmpty) continue;
            added = labels_.with(added, label.name, label.value);
          }
        }
        if (!any && !all_match_empty) continue;
        for (const LabelSymbols& label : added) labels = labels_.with(labels, label.name, label.value);
      }
      const uint32_t id = ids.id(labels);
      if (id == out.rows.size()) out.add_row(labels, base.rows[i].drop_name);
      if (!is_absent(out.row(id)[s])) fail_execution("vector cannot contain metrics with the same labelset");
      if (HistogramPtr histogram = base.histogram_ptr(i, s)) {
        out.set_histogram(id, s, std::move(histogram));
      } else {
        out.row(id)[s] = base.row(i)[s];
      }
    }
  }
  charge_block(out);
  return out;
}

}  // namespace lockstep::promql
