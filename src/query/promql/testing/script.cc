#include "query/promql/testing/script.h"

#include <re2/re2.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>

#include "base/duration.h"
#include "base/text.h"
#include "query/promql/lexer.h"
#include "query/promql/parser.h"
#include "query/promql/printer.h"
#include "query/promql/sample_math.h"

namespace lockstep::promql {
namespace {

using LabelList = MemoryMetricReader::LabelList;

constexpr double kTolerance = 1e-6;

bool same_value(double a, double b) {
  if (is_stale(a) || is_stale(b)) return is_stale(a) && is_stale(b);
  return (std::isnan(a) && std::isnan(b)) || nearly(a, b, kTolerance);
}

// --- series lines

class SeriesParser {
 public:
  explicit SeriesParser(std::string_view line) : line_(trim(line)) {}

  Result<ScriptSeries> run() {
    ScriptSeries out;
    if (!labels(out.labels)) return Error{"labels of \"" + std::string(line_) + "\" are not understood"};
    while (skip_blanks(), at_ < line_.size()) {
      if (!item(out.values))
        return Error{format("value at byte %zu of \"%s\" is not understood", at_, std::string(line_).c_str())};
    }
    return out;
  }

 private:
  void skip_blanks() {
    while (at_ < line_.size() && (line_[at_] == ' ' || line_[at_] == '\t')) ++at_;
  }
  bool take(std::string_view text) {
    if (!line_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }

  bool labels(LabelList& out) {
    while (at_ < line_.size() && line_[at_] != '{' && line_[at_] != ' ' && line_[at_] != '\t') ++at_;
    const std::string_view name = line_.substr(0, at_);
    if (!name.empty()) out.emplace_back("__name__", name);
    skip_blanks();
    if (at_ >= line_.size() || line_[at_] != '{' || line_.substr(at_).starts_with("{{")) return !name.empty();
    const size_t begin = at_;
    char quote = 0;
    for (;; ++at_) {
      if (at_ >= line_.size()) return false;
      const char c = line_[at_];
      if (quote != 0) {
        if (c == '\\' && quote != '`') ++at_;
        if (c == quote) quote = 0;
      } else if (c == '"' || c == '\'' || c == '`') {
        quote = c;
      } else if (c == '}') {
        ++at_;
        break;
      }
    }
    const std::vector<Token> tokens = lex(line_.substr(begin, at_ - begin));
    for (size_t i = 1; i < tokens.size() && !tokens[i].is("}");) {
      if (tokens[i].kind == TokenKind::kString && !tokens[i + 1].is("=")) {
        out.emplace_back("__name__", tokens[i++].text);
      } else {
        if (i + 2 >= tokens.size() || !tokens[i + 1].is("=") || tokens[i + 2].kind != TokenKind::kString) return false;
        out.emplace_back(tokens[i].text, tokens[i + 2].text);
        i += 3;
      }
      if (tokens[i].is(",")) ++i;
    }
    std::erase_if(out, [](const auto& label) { return label.second.empty(); });
    std::sort(out.begin(), out.end());
    return true;
  }

  bool count(uint64_t& out) {
    const size_t begin = at_;
    while (at_ < line_.size() && line_[at_] >= '0' && line_[at_] <= '9') ++at_;
    const std::optional<uint64_t> value = parse_uint(line_.substr(begin, at_ - begin));
    if (!value || *value > 1'000'000) return false;
    out = *value;
    return true;
  }

  bool number(double& out, bool need_sign = false) {
    size_t begin = at_;
    double sign = 1;
    if (at_ < line_.size() && (line_[at_] == '+' || line_[at_] == '-')) {
      sign = line_[at_] == '-' ? -1 : 1;
      begin = ++at_;
    } else if (need_sign) {
      return false;
    }
    const auto letter = [&](size_t i) { return i < line_.size() ? line_[i] : '\0'; };
    if (std::isalpha(static_cast<unsigned char>(letter(at_)))) {
      at_ = std::min(line_.size(), at_ + 3);
    } else {
      while ((letter(at_) >= '0' && letter(at_) <= '9') || letter(at_) == '.' || letter(at_) == '_' ||
             letter(at_) == 'e' || letter(at_) == 'E' ||
             ((letter(at_) == '+' || letter(at_) == '-') && at_ > begin &&
              (letter(at_ - 1) == 'e' || letter(at_ - 1) == 'E')))
        ++at_;
    }
    double value = 0;
    if (!parse_number(line_.substr(begin, at_ - begin), &value)) {
      return false;
    }
    out = sign * value;
    return true;
  }

  bool item(std::vector<ScriptValue>& out) {
    if (take("_")) {
      uint64_t times = 1;
      if (take("x") && !count(times)) return false;
      for (uint64_t i = 0; i < times; ++i) out.push_back({true, 0, nullptr, false});
      return true;
    }
    if (take("stale")) {
      out.push_back({false, std::bit_cast<double>(kStaleBits), nullptr, false});
      return true;
    }
    if (line_.substr(at_).starts_with("{{")) return histogram_item(out);
    double value = 0;
    if (!number(value)) return false;
    double step = 0;
    if (at_ < line_.size() && (line_[at_] == '+' || line_[at_] == '-') && !number(step, true)) return false;
    uint64_t times = 0;
    if (take("x") && !count(times)) return false;
    for (uint64_t i = 0; i <= times; ++i, value += step) out.push_back({false, value, nullptr, false});
    return true;
  }

  bool histogram_item(std::vector<ScriptValue>& out) {
    ScriptValue base;
    if (!histogram(base)) return false;
    if (take("x")) {
      uint64_t times = 0;
      if (!count(times)) return false;
      out.insert(out.end(), times + 1, base);
      return true;
    }
    if (line_.substr(at_).starts_with("+{{") || line_.substr(at_).starts_with("-{{")) {
      const bool minus = line_[at_++] == '-';
      ScriptValue step;
      uint64_t times = 0;
      if (!histogram(step) || !take("x") || !count(times)) return false;
      FlatHistogram now(*base.histogram);
      out.push_back(base);
      out.back().reset_hint_given = step.reset_hint_given;
      for (uint64_t i = 0; i < times; ++i) {
        const AddOutcome outcome =
            minus ? subtract(now, FlatHistogram(*step.histogram)) : add(now, FlatHistogram(*step.histogram));
        if (outcome.incompatible) return false;
        out.push_back({false, 0, now.pack(), step.reset_hint_given});
      }
      return true;
    }
    out.push_back(base);
    return true;
  }

  bool histogram(ScriptValue& out) {
    at_ += 2;
    auto made = std::make_shared<NativeHistogram>();
    int64_t offset = 0, negative_offset = 0;
    for (;;) {
      skip_blanks();
      if (take("}}")) break;
      const size_t colon = line_.find(':', at_);
      if (colon == std::string_view::npos) return false;
      const std::string_view key = line_.substr(at_, colon - at_);
      at_ = colon + 1;
      double value = 0;
      if (key == "buckets" || key == "n_buckets" || key == "custom_values") {
        std::vector<double>& list = key == "buckets"     ? made->positive
                                    : key == "n_buckets" ? made->negative
                                                         : made->custom_bounds;
        if (!take("[")) return false;
        while (skip_blanks(), !take("]")) {
          if (!number(value)) return false;
          list.push_back(value);
        }
      } else if (key == "counter_reset_hint") {
        out.reset_hint_given = true;
        if (!reset_hint(made->reset)) return false;
      } else {
        if (!number(value)) return false;
        if (key == "schema") {
          made->schema = static_cast<int32_t>(value);
        } else if (key == "sum") {
          made->sum = value;
        } else if (key == "count") {
          made->count = value;
        } else if (key == "z_bucket") {
          made->zero_count = value;
        } else if (key == "z_bucket_w") {
          made->zero_threshold = value;
        } else if (key == "offset") {
          offset = static_cast<int64_t>(value);
        } else if (key == "n_offset") {
          negative_offset = static_cast<int64_t>(value);
        } else {
          return false;
        }
      }
    }
    if (!made->positive.empty())
      made->positive_spans = {{static_cast<int32_t>(offset), static_cast<uint32_t>(made->positive.size())}};
    if (!made->negative.empty())
      made->negative_spans = {{static_cast<int32_t>(negative_offset), static_cast<uint32_t>(made->negative.size())}};
    out.histogram = std::move(made);
    return true;
  }

  bool reset_hint(CounterReset& reset) {
    if (take("unknown")) {
      reset = CounterReset::kUnknown;
    } else if (take("reset")) {
      reset = CounterReset::kYes;
    } else if (take("not_reset")) {
      reset = CounterReset::kNo;
    } else if (take("gauge")) {
      reset = CounterReset::kGauge;
    } else {
      return false;
    }
    return true;
  }

  std::string_view line_;
  size_t at_ = 0;
};

std::string shown_labels(const LabelList& labels) {
  std::string out = "{";
  for (const auto& [name, value] : labels) out += (out.size() > 1 ? ", " : "") + name + "=" + in_quotes(value);
  return out + "}";
}

bool same_histogram(const NativeHistogram& expected, const NativeHistogram& actual, bool with_hint) {
  const FlatHistogram a(*FlatHistogram(expected).pack());
  const FlatHistogram b(*FlatHistogram(actual).pack());
  if (a.schema != b.schema || !same_value(a.count, b.count) || !same_value(a.sum, b.sum) ||
      a.zero_threshold != b.zero_threshold || !same_value(a.zero_count, b.zero_count) ||
      (a.is_custom() && a.custom_bounds != b.custom_bounds) || (with_hint && a.reset != b.reset))
    return false;
  const auto same_side = [](const std::vector<FlatBucket>& x, const std::vector<FlatBucket>& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const FlatBucket& p, const FlatBucket& q) {
      return p.index == q.index && same_value(p.count, q.count);
    });
  };
  return same_side(a.positive, b.positive) && same_side(a.negative, b.negative);
}

std::string hint_text(CounterReset reset) {
  switch (reset) {
    case CounterReset::kYes:
      return " reset";
    case CounterReset::kNo:
      return " not_reset";
    case CounterReset::kGauge:
      return " gauge";
    default:
      return " unknown";
  }
}

// --- cases

struct Expectation {
  std::string kind;  // fail warn no_warn info no_info ordered
  std::optional<std::string> message;
  std::optional<std::string> regex;
  bool matches(const std::string& text) const {
    if (message) return text == *message;
    return !regex || RE2::PartialMatch(text, RE2(*regex));
  }
};

struct Case {
  size_t line = 0;
  bool range = false;
  QueryTimes times;
  std::string query;
  bool ordered = false, fail = false, warn = false, info = false;
  std::vector<Expectation> expectations;
  std::optional<double> scalar;
  std::optional<std::string> text;
  std::vector<ScriptSeries> series;
  bool range_vector = false;
  int64_t first_ms = 0, step_ms = 0;

  bool must_fail() const {
    return fail ||
           std::any_of(expectations.begin(), expectations.end(), [](const Expectation& e) { return e.kind == "fail"; });
  }
  bool is_ordered() const {
    return ordered || std::any_of(expectations.begin(), expectations.end(),
                                  [](const Expectation& e) { return e.kind == "ordered"; });
  }
};

std::string check_annotations(const Case& given, const QueryResult& result) {
  std::vector<std::string> warnings, infos;
  for (const Annotation& annotation : result.annotations)
    (annotation.warning ? warnings : infos).push_back(annotation.message);
  if (given.warn && warnings.empty()) return "a warning is expected, there is none";
  if (given.info && infos.empty()) return "an info is expected, there is none";
  for (const auto& [kind, found] : {std::pair{"warn", &warnings}, std::pair{"info", &infos}}) {
    std::vector<const Expectation*> wanted;
    for (const Expectation& expectation : given.expectations) {
      if (expectation.kind == kind) wanted.push_back(&expectation);
      if (expectation.kind == std::string("no_") + kind && !found->empty()) return "unexpected: " + found->front();
    }
    if (wanted.empty()) continue;
    for (const Expectation* one : wanted) {
      if (std::none_of(found->begin(), found->end(), [&](const std::string& text) { return one->matches(text); }))
        return std::string("no ") + kind + " like \"" + one->message.value_or(one->regex.value_or("")) + "\"" +
               (found->empty() ? "" : "; there is: " + found->front());
    }
    for (const std::string& text : *found) {
      if (std::none_of(wanted.begin(), wanted.end(), [&](const Expectation* one) { return one->matches(text); }))
        return "unexpected: " + text;
    }
  }
  return {};
}

std::string check_point(const ScriptValue& expected, double value, const HistogramPtr& histogram,
                        const LabelList& labels) {
  if (expected.histogram) {
    if (!histogram) return format("a float %g instead of a histogram for %s", value, shown_labels(labels).c_str());
    if (same_histogram(*expected.histogram, *histogram, expected.reset_hint_given)) return {};
    return to_text(*histogram) + hint_text(histogram->reset) + " instead of " + to_text(*expected.histogram) +
           hint_text(expected.histogram->reset) + " for " + shown_labels(labels);
  }
  if (histogram) return "a histogram " + to_text(*histogram) + " instead of a float for " + shown_labels(labels);
  if (same_value(expected.value, value)) return {};
  return format("%.17g instead of %.17g for %s", value, expected.value, shown_labels(labels).c_str());
}

// A series at every step.
std::string check_points(const Case& given, const ScriptSeries& expected, const ResultSeries& actual) {
  std::map<int64_t, const ScriptValue*> points;
  for (size_t k = 0; k < expected.values.size(); ++k) {
    if (!expected.values[k].omitted)
      points[given.first_ms + static_cast<int64_t>(k) * given.step_ms] = &expected.values[k];
  }
  if (points.size() != actual.times_ms.size())
    return format("%zu points instead of %zu for %s", actual.times_ms.size(), points.size(),
                  shown_labels(actual.labels).c_str());
  for (size_t k = 0; k < actual.times_ms.size(); ++k) {
    const auto point = points.find(actual.times_ms[k]);
    if (point == points.end())
      return format("a point at %lld ms for %s", static_cast<long long>(actual.times_ms[k]),
                    shown_labels(actual.labels).c_str());
    const HistogramPtr histogram = actual.histograms.empty() ? nullptr : actual.histograms[k];
    if (std::string problem = check_point(*point->second, actual.values[k], histogram, actual.labels); !problem.empty())
      return format("at %lld ms: %s", static_cast<long long>(actual.times_ms[k]), problem.c_str());
  }
  return {};
}

std::string check_result(const Case& given, const QueryResult& result, bool as_vector) {
  if (given.text)
    return result.text == *given.text ? "" : "the string \"" + result.text + "\" instead of \"" + *given.text + "\"";
  if (given.scalar) {
    double value = result.scalar;
    if (result.type != ValueType::kScalar) {
      if (result.series.empty() || !as_vector) return "not a scalar";
      value = result.series[0].values[0];
    }
    return same_value(value, *given.scalar) ? "" : format("%.17g instead of %.17g", value, *given.scalar);
  }
  if (result.type == ValueType::kScalar) return "a scalar";
  std::vector<uint8_t> seen(given.series.size(), 0);
  for (size_t i = 0; i < result.series.size(); ++i) {
    const ResultSeries& actual = result.series[i];
    // The last line for a label set counts.
    size_t found = given.series.size();
    for (size_t k = 0; k < given.series.size(); ++k) {
      if (given.series[k].labels == actual.labels) found = k;
    }
    if (found == given.series.size())
      return "unexpected series " + shown_labels(actual.labels) +
             (actual.values.empty() ? "" : format(" with %.17g", actual.values[0])) +
             (actual.histograms.empty() || !actual.histograms[0] ? "" : " " + to_text(*actual.histograms[0]));
    seen[found] = 1;
    const ScriptSeries& expected = given.series[found];
    if (as_vector) {
      if (given.is_ordered() && found != i)
        return format("%s is at place %zu instead of %zu", shown_labels(actual.labels).c_str(), i + 1, found + 1);
      if (expected.values.empty()) return "no value expected";
      const HistogramPtr histogram = actual.histograms.empty() ? nullptr : actual.histograms[0];
      if (std::string problem = check_point(expected.values[0], actual.values[0], histogram, actual.labels);
          !problem.empty())
        return problem;
      continue;
    }
    if (std::string problem = check_points(given, expected, actual); !problem.empty()) return problem;
  }
  for (size_t k = 0; k < given.series.size(); ++k) {
    if (!seen[k] && std::none_of(given.series.begin(), given.series.end(), [&](const ScriptSeries& other) {
          return &other != &given.series[k] && other.labels == given.series[k].labels;
        }))
      return "no series " + shown_labels(given.series[k].labels);
  }
  return {};
}

bool depends_on_evaluation_time(std::string_view name) {
  static constexpr std::string_view kNames[] = {
      "days_in_month", "day_of_month",   "day_of_week", "day_of_year", "end",  "hour", "minute",   "month",
      "year",          "predict_linear", "range",       "start",       "step", "time", "timestamp"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// Puts @ on every selector and subquery that has none; false: the query's value depends on when it is asked.
bool fix_time(Expr& expr, int64_t at_ms, bool inside_fixed) {
  if (inside_fixed) {
    bool fine = true;
    for (auto& child : expr.children) fine &= fix_time(*child, at_ms, true);
    return fine;
  }
  bool fixed_here = false;
  if (expr.kind == Expr::Kind::kSelector || expr.kind == Expr::Kind::kSubquery) {
    if (expr.at == AtModifier::kNone) {
      expr.at = AtModifier::kTime;
      expr.at_ms = at_ms;
    }
    fixed_here = expr.kind == Expr::Kind::kSubquery;
  }
  bool fine = !(expr.kind == Expr::Kind::kCall && depends_on_evaluation_time(expr.function->name));
  for (auto& child : expr.children) fine &= fix_time(*child, at_ms, fixed_here);
  return fine;
}

class Script {
 public:
  Script(std::string_view text, bool type_and_unit_labels) {
    for (std::string_view line : split(text, '\n')) {
      line = trim(line);
      lines_.push_back(line.starts_with('#') ? std::string_view() : line);
    }
    options_.delayed_name_removal = true;
    options_.type_and_unit_labels = type_and_unit_labels;
  }

  ScriptOutcome run() {
    for (at_ = 0; at_ < lines_.size(); ++at_) {
      const std::string_view line = lines_[at_];
      if (line.empty()) continue;
      std::string problem;
      if (line == "clear") {
        reader_.clear();
      } else if (line.starts_with("load")) {
        problem = load();
      } else if (line.starts_with("eval")) {
        problem = evaluate();
      } else {
        problem = "unknown command";
      }
      if (problem.empty()) continue;
      outcome_.broken = format("line %zu: %s", at_ + 1, problem.c_str());
      break;
    }
    return std::move(outcome_);
  }

 private:
  std::string load() {
    const std::string_view head = lines_[at_];
    const bool with_nhcb = head.starts_with("load_with_nhcb");
    int64_t gap = 0;
    const size_t blank = head.find_first_of(" \t");
    if (blank == std::string_view::npos) return "load without a step";
    if (std::string problem = parse_duration_ms(trim(head.substr(blank)), &gap); !problem.empty()) return problem;
    std::vector<ScriptSeries> loaded;
    while (at_ + 1 < lines_.size() && !lines_[at_ + 1].empty()) {
      const std::string_view line = lines_[++at_];
      const size_t space = line.find_first_of(" \t");
      if (space != std::string_view::npos && line.substr(0, space).ends_with("@st"))
        continue;  // start times are not kept
      Result<ScriptSeries> series = parse_script_series(line);
      if (!series.ok()) return series.error();
      loaded.push_back(std::move(*series));
    }
    for (const ScriptSeries& series : loaded) {
      HistogramPtr before;
      for (size_t i = 0; i < series.values.size(); ++i) {
        const ScriptValue& value = series.values[i];
        const int64_t time = static_cast<int64_t>(i) * gap;
        if (value.omitted) continue;
        if (!value.histogram) {
          reader_.add(series.labels, time, value.value);
          before = nullptr;
          continue;
        }
        before = stored(value.histogram, before);
        reader_.add(series.labels, time, before);
      }
    }
    if (with_nhcb) load_as_custom_bounds(loaded, gap);
    return {};
  }

  // Prometheus's store says of a counter sample that it was not reset, or nothing: a reset begins a new chunk, and of a
  // chunk's first sample nothing is said, unless whoever wrote it did.
  static HistogramPtr stored(const HistogramPtr& histogram, const HistogramPtr& before) {
    auto kept = std::make_shared<NativeHistogram>(*histogram);
    if (kept->reset == CounterReset::kGauge || is_stale(kept->sum)) return kept;
    const CounterReset given = kept->reset;
    if (!before || is_stale(before->sum)) {
      if (given == CounterReset::kNo) kept->reset = CounterReset::kUnknown;
      return kept;
    }
    kept->reset = CounterReset::kUnknown;
    if (given == CounterReset::kYes) {
      kept->reset = given;
    } else if (!was_reset(*kept, *before)) {
      kept->reset = CounterReset::kNo;
    }
    return kept;
  }

  // A classic histogram at one time.
  struct Classic {
    std::map<double, double> buckets;
    std::optional<double> count;
    double sum = 0;
  };
  using Classics = std::map<LabelList, std::map<int64_t, Classic>>;

  static Classics find_classics(const std::vector<ScriptSeries>& loaded, int64_t gap) {
    Classics found;
    for (const ScriptSeries& series : loaded) {
      LabelList labels = series.labels;
      std::string name, le;
      for (const auto& [label, value] : labels) {
        if (label == "__name__") name = value;
        if (label == "le") le = value;
      }
      std::string suffix;
      for (const char* one : {"_bucket", "_count", "_sum"}) {
        if (name.ends_with(one)) suffix = one;
      }
      if (suffix.empty()) continue;
      double bound = 0;
      if (suffix == "_bucket") {
        const bool minus = le.starts_with('-');
        if (minus || le.starts_with('+')) le.erase(0, 1);
        if (!parse_number(le, &bound)) continue;
        if (minus) bound = -bound;
      }
      name.resize(name.size() - suffix.size());
      std::erase_if(labels, [](const auto& label) { return label.first == "le"; });
      for (auto& [label, value] : labels) {
        if (label == "__name__") value = name;
      }
      std::erase_if(labels, [](const auto& label) { return label.second.empty(); });
      for (size_t i = 0; i < series.values.size(); ++i) {
        const ScriptValue& value = series.values[i];
        if (value.omitted || value.histogram) continue;
        Classic& classic = found[labels][static_cast<int64_t>(i) * gap];
        if (suffix == "_bucket") {
          classic.buckets.emplace(bound, value.value);
        } else if (suffix == "_count") {
          classic.count = value.value;
        } else {
          classic.sum = value.value;
        }
      }
    }
    return found;
  }

  void load_as_custom_bounds(const std::vector<ScriptSeries>& loaded, int64_t gap) {
    for (auto& [labels, by_time] : find_classics(loaded, gap)) {
      HistogramPtr before;
      for (auto& [time, classic] : by_time) {
        constexpr double kInf = std::numeric_limits<double>::infinity();
        if (!classic.count && !classic.buckets.empty()) classic.count = classic.buckets.rbegin()->second;
        classic.buckets.emplace(kInf, classic.count.value_or(0));
        auto made = std::make_shared<NativeHistogram>();
        made->schema = NativeHistogram::kCustomBounds;
        made->count = classic.count.value_or(0);
        made->sum = classic.sum;
        double below = 0;
        for (const auto& [bound, count] : classic.buckets) {
          made->positive.push_back(count - below);
          below = count;
          if (bound != kInf) made->custom_bounds.push_back(bound);
        }
        made->positive_spans = {{0, static_cast<uint32_t>(made->positive.size())}};
        before = stored(FlatHistogram(*made).pack(), before);
        reader_.add(labels, time, before);
      }
    }
  }

  static int64_t duration(const std::string& text) {
    int64_t ms = 0;
    const std::string unsigned_text = text.starts_with('-') ? text.substr(1) : text;
    if (unsigned_text == "0") return 0;
    (void)parse_duration_ms(unsigned_text, &ms);
    return text.starts_with('-') ? -ms : ms;
  }

  std::string evaluate() {
    Case given;
    given.line = at_ + 1;
    if (!read_head(std::string(lines_[at_]), given)) return "not an eval command";
    bool is_last = false;
    while (!is_last && at_ + 1 < lines_.size() && !lines_[at_ + 1].empty()) {
      if (std::string problem = read_expected(std::string(lines_[++at_]), given, is_last); !problem.empty())
        return problem;
    }
    outcome_.cases.push_back({given.line, given.query, run_case(given)});
    return {};
  }

  static bool read_head(const std::string& head, Case& given) {
    static const RE2 kInstant(R"(^eval(?:_(fail|warn|ordered|info))?\s+instant\s+(?:at\s+(.+?))?\s+(.+)$)");
    static const RE2 kRange(R"(^eval(?:_(fail|warn|info))?\s+range\s+from\s+(.+)\s+to\s+(.+)\s+step\s+(.+?)\s+(.+)$)");
    std::string mode, from, to, step;
    if (RE2::FullMatch(head, kInstant, &mode, &from, &given.query)) {
      given.times.start_ms = given.times.end_ms = duration(from);
    } else if (RE2::FullMatch(head, kRange, &mode, &from, &to, &step, &given.query)) {
      given.range = true;
      given.times = {duration(from), duration(to), duration(step)};
      given.first_ms = given.times.start_ms;
      given.step_ms = given.times.step_ms;
    } else {
      return false;
    }
    given.ordered = mode == "ordered";
    given.fail = mode == "fail";
    given.warn = mode == "warn";
    given.info = mode == "info";
    return true;
  }

  // is_last: no further line belongs to the case.
  static std::string read_expected(const std::string& line, Case& given, bool& is_last) {
    static const RE2 kRangeVector(R"(^expect range vector\s+from\s+(.+)\s+to\s+(.+)\s+step\s+(.+)$)");
    std::string from, to, step;
    if (given.fail && line.starts_with("expected_fail_message")) {
      given.expectations.push_back({"fail", std::string(trim(line.substr(21))), {}});
      is_last = true;
    } else if (given.fail && line.starts_with("expected_fail_regexp")) {
      given.expectations.push_back({"fail", {}, std::string(trim(line.substr(20)))});
      is_last = true;
    } else if (RE2::FullMatch(line, kRangeVector, &from, &to, &step)) {
      given.range_vector = true;
      given.first_ms = duration(from);
      given.step_ms = duration(step);
      given.times.start_ms = given.times.end_ms = duration(to);
    } else if (line.starts_with("expect string")) {
      const std::vector<Token> tokens = lex(trim(line.substr(13)));
      given.text = tokens[0].text;
    } else if (line.starts_with("expect ")) {
      return read_expectation(line, given);
    } else {
      return read_value(line, given, is_last);
    }
    return {};
  }

  static std::string read_expectation(const std::string& line, Case& given) {
    static const RE2 kExpect(R"(^expect\s+(ordered|fail|warn|no_warn|info|no_info)(?:\s+(regex|msg):(.+))?$)");
    Expectation expectation;
    std::string how, what;
    if (!RE2::FullMatch(line, kExpect, &expectation.kind, &how, &what)) return "not an expect line";
    if (how == "msg") expectation.message = std::string(trim(what));
    if (how == "regex") expectation.regex = std::string(trim(what));
    given.expectations.push_back(std::move(expectation));
    return {};
  }

  // A number is the whole answer; of series there may be more.
  static std::string read_value(const std::string& line, Case& given, bool& is_last) {
    double number = 0;
    std::string digits = line;
    const bool minus = digits.starts_with('-');
    if (minus || digits.starts_with('+')) digits.erase(0, 1);
    if (parse_number(digits, &number)) {
      given.scalar = minus ? -number : number;
      is_last = true;
      return {};
    }
    Result<ScriptSeries> series = parse_script_series(line);
    if (!series.ok()) return series.error();
    given.series.push_back(std::move(*series));
    return {};
  }

  std::string run_case(const Case& given) {
    Result<std::unique_ptr<Expr>> parsed = parse(given.query);
    if (!parsed.ok()) return given.must_fail() ? "" : parsed.error();
    if (given.range) return check(given, given.query, run_query(given.query, reader_, given.times, options_), false);
    const int64_t at = given.times.start_ms;
    if (std::string problem = run_instant(given, given.query, at); !problem.empty()) return problem;
    if (!fix_time(**parsed, at, false)) return {};
    const std::string fixed = to_text(**parsed);
    std::vector<int64_t> others = {-10 * at, 0, at / 5, at, 10 * at};
    if (at == 0) others = {-1000, 0, 1000};
    for (int64_t other : others) {
      if (std::string problem = run_instant(given, fixed, other); !problem.empty())
        return format("as %s at %lld ms: %s", fixed.c_str(), static_cast<long long>(other), problem.c_str());
    }
    return {};
  }

  std::string run_instant(const Case& given, const std::string& query, int64_t at) {
    const QueryResult result = run_query(query, reader_, {at, at, 0}, options_);
    const bool is_matrix = given.range_vector;
    if (std::string problem = check(given, query, result, !is_matrix); !problem.empty()) return problem;
    if (given.must_fail() || given.range_vector || given.text) return {};
    static const RE2 kContext(R"((start|end|range|step)\(\))");
    if (RE2::PartialMatch(query, kContext)) return {};
    QueryResult range = run_query(query, reader_, {at - 60'000, at + 60'000, 60'000}, options_);
    if (!range.ok()) return "as a range query: " + range.error;
    if (given.is_ordered()) return {};
    std::vector<ResultSeries> there;
    for (ResultSeries& series : range.series) {
      for (size_t k = 0; k < series.times_ms.size(); ++k) {
        if (series.times_ms[k] != at) continue;
        ResultSeries one;
        one.labels = std::move(series.labels);
        one.times_ms = {at};
        one.values = {series.values[k]};
        if (!series.histograms.empty()) one.histograms = {series.histograms[k]};
        there.push_back(std::move(one));
        break;
      }
    }
    range.series = std::move(there);
    if (std::string problem = check_result(given, range, true); !problem.empty()) return "as a range query: " + problem;
    return {};
  }

  std::string check(const Case& given, const std::string&, const QueryResult& result, bool as_vector) {
    if (!result.ok()) {
      if (!given.must_fail()) return "failed: " + result.error;
      for (const Expectation& expectation : given.expectations) {
        if (expectation.kind == "fail" && !expectation.matches(result.error))
          return "fails differently: " + result.error;
      }
      return {};
    }
    if (given.must_fail()) return "does not fail";
    if (std::string problem = check_annotations(given, result); !problem.empty()) return problem;
    return check_result(given, result, as_vector);
  }

  std::vector<std::string_view> lines_;
  size_t at_ = 0;
  MemoryMetricReader reader_;
  QueryOptions options_;
  ScriptOutcome outcome_;
};

}  // namespace

Result<ScriptSeries> parse_script_series(std::string_view line) {
  return SeriesParser(line).run();
}

ScriptOutcome run_script(std::string_view text, bool type_and_unit_labels) {
  return Script(text, type_and_unit_labels).run();
}

}  // namespace lockstep::promql
