#include "alert/testing/rule_unit_tests.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "alert/alert.h"
#include "alert/rules/rule_state.h"
#include "alert/yaml_reader.h"
#include "base/duration.h"
#include "base/files.h"
#include "query/promql/testing/script.h"
#include "store/testing/memory_metric_reader.h"

namespace lockstep {
namespace {

using yaml::line_of;
using yaml::Wrong;

struct ExpectedAlert {
  Labels labels, annotations;
  bool operator==(const ExpectedAlert&) const = default;
  auto operator<=>(const ExpectedAlert&) const = default;
};
struct AlertCheck {
  int line = 0;
  int64_t at_ms = 0;
  std::string name;
  std::vector<ExpectedAlert> expected;
};
struct QueryCheck {
  int line = 0;
  int64_t at_ms = 0;
  std::string query;
  std::vector<std::pair<Labels, double>> expected;
};
struct OneTest {
  int64_t interval_ms = 0;
  std::string external_url;
  std::vector<promql::ScriptSeries> series;
  std::vector<AlertCheck> alerts;
  std::vector<QueryCheck> queries;
};
struct TestFile {
  std::vector<std::string> rule_files;
  int64_t interval_ms = 60'000;
  std::vector<OneTest> tests;
};

int64_t time_of(const YAML::Node& node) {
  int64_t ms = 0;
  const std::string& text = yaml::scalar(node, "a time");
  if (text == "0") return 0;
  if (const std::string wrong = parse_duration_ms(text, &ms); !wrong.empty()) throw Wrong{line_of(node), wrong};
  return ms;
}

Labels labels_of(const YAML::Node& node) {
  Labels labels;
  if (node.IsNull()) return labels;
  yaml::each_key(node, "labels", {}, [&](const std::string& name, const YAML::Node& value) {
    set_label(labels, name, value.IsNull() ? "" : yaml::any_scalar(value, "a text"));
  });
  return labels;
}

AlertCheck alert_check(const YAML::Node& node) {
  AlertCheck check{.line = line_of(node)};
  yaml::each_key(node, "alert_rule_test", {"eval_time", "alertname", "exp_alerts"},
                 [&](const std::string& key, const YAML::Node& value) {
                   if (key == "eval_time") check.at_ms = time_of(value);
                   if (key == "alertname") check.name = yaml::scalar(value, key);
                   if (key != "exp_alerts" || value.IsNull()) return;
                   yaml::each_item(value, "exp_alerts", [&](const YAML::Node& item) {
                     ExpectedAlert expected;
                     if (item.IsMap())
                       yaml::each_key(item, "an alert", {"exp_labels", "exp_annotations"},
                                      [&](const std::string& part, const YAML::Node& labels) {
                                        (part == "exp_labels" ? expected.labels : expected.annotations) =
                                            labels_of(labels);
                                      });
                     check.expected.push_back(std::move(expected));
                   });
                 });
  for (ExpectedAlert& expected : check.expected) set_label(expected.labels, "alertname", check.name);
  return check;
}

QueryCheck query_check(const YAML::Node& node) {
  QueryCheck check{.line = line_of(node)};
  yaml::each_key(node, "promql_expr_test", {"expr", "eval_time", "exp_samples"},
                 [&](const std::string& key, const YAML::Node& value) {
                   if (key == "expr") check.query = yaml::any_scalar(value, key);
                   if (key == "eval_time") check.at_ms = time_of(value);
                   if (key != "exp_samples" || value.IsNull()) return;
                   yaml::each_item(value, "exp_samples", [&](const YAML::Node& item) {
                     std::string labels = "{}";
                     std::string number = "0";
                     yaml::each_key(item, "a sample", {"labels", "value"},
                                    [&](const std::string& part, const YAML::Node& text) {
                                      (part == "labels" ? labels : number) = yaml::scalar(text, part);
                                    });
                     const Result<promql::ScriptSeries> parsed = promql::parse_script_series(labels + " 0");
                     const std::optional<double> expected = parse_double(number);
                     if (!parsed.ok() || !expected) throw Wrong{line_of(item), "a sample that is not understood"};
                     Labels sorted = parsed->labels;
                     std::sort(sorted.begin(), sorted.end());
                     check.expected.emplace_back(std::move(sorted), *expected);
                   });
                 });
  return check;
}

OneTest test_of(const YAML::Node& node, int64_t interval_ms) {
  OneTest test{.interval_ms = interval_ms};
  const std::vector<std::string> known = {
      "interval", "name", "input_series", "alert_rule_test", "promql_expr_test", "external_labels", "external_url"};
  yaml::each_key(node, "a test", known, [&](const std::string& key, const YAML::Node& value) {
    if (key == "interval") test.interval_ms = time_of(value);
    if (key == "external_url") test.external_url = yaml::scalar(value, key);
    if (key == "alert_rule_test")
      yaml::each_item(value, "alert_rule_test",
                      [&](const YAML::Node& one) { test.alerts.push_back(alert_check(one)); });
    if (key == "promql_expr_test")
      yaml::each_item(value, "promql_expr_test",
                      [&](const YAML::Node& one) { test.queries.push_back(query_check(one)); });
    if (key != "input_series") return;
    yaml::each_item(value, "input_series", [&](const YAML::Node& one) {
      std::string series, values;
      yaml::each_key(one, "a series", {"series", "values"}, [&](const std::string& part, const YAML::Node& text) {
        (part == "series" ? series : values) = yaml::any_scalar(text, part);
      });
      Result<promql::ScriptSeries> parsed = promql::parse_script_series(series + " " + as_one_line(values));
      if (!parsed.ok()) throw Wrong{line_of(one), parsed.error()};
      test.series.push_back(std::move(*parsed));
    });
  });
  return test;
}

Result<TestFile> parse(const std::string& text) {
  TestFile file;
  const auto take = [&](const YAML::Node& root) {
    std::optional<YAML::Node> tests;
    yaml::each_key(
        root, "the file", {"rule_files", "evaluation_interval", "group_eval_order", "tests", "fuzzy_compare"},
        [&](const std::string& key, const YAML::Node& value) {
          if (key == "evaluation_interval") file.interval_ms = time_of(value);
          if (key == "tests") tests = value;
          if (key == "rule_files")
            yaml::each_item(value, "rule_files",
                            [&](const YAML::Node& one) { file.rule_files.push_back(yaml::scalar(one, "a file")); });
        });
    if (!tests) throw Wrong{1, "the file has no tests"};
    yaml::each_item(*tests, "tests",
                    [&](const YAML::Node& one) { file.tests.push_back(test_of(one, file.interval_ms)); });
  };
  LOCKSTEP_TRY(yaml::read(text, take));
  return file;
}

bool near(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= 1e-6 * std::max(std::abs(a), std::abs(b));
}

class Run {
 public:
  Run(const OneTest& test, const TestFile& file, const std::vector<RuleGroup>& groups, RuleUnitTests& out)
      : test_(test), interval_ms_(file.interval_ms), out_(out) {
    for (const RuleGroup& group : groups) states_.emplace_back(group);
    for (const promql::ScriptSeries& series : test.series) {
      for (size_t i = 0; i < series.values.size(); ++i) {
        if (!series.values[i].omitted && !series.values[i].histogram)
          reader_.add(series.labels, static_cast<int64_t>(i) * test.interval_ms, series.values[i].value);
      }
    }
  }

  void run() {
    int64_t last = 0;
    for (const AlertCheck& check : test_.alerts) last = std::max(last, check.at_ms);
    for (const QueryCheck& check : test_.queries) last = std::max(last, check.at_ms);
    // Every group at every step, whatever its own interval: as promtool has it.
    for (int64_t now = 0; now <= last; now += interval_ms_) {
      for (RuleGroupState& state : states_) {
        state.evaluate(now, {reader_,
                             [&](int64_t at, const std::vector<RuleSample>& samples) { store(at, samples); },
                             {},
                             test_.external_url});
        for (const RuleState& rule : state.states()) {
          if (!rule.error.empty())
            out_.failures.push_back("a rule of group " + state.group().name + " failed: " + rule.error);
        }
      }
      for (const AlertCheck& check : test_.alerts) {
        if (check.at_ms >= now && check.at_ms < now + interval_ms_) compare(check);
      }
    }
    for (const QueryCheck& check : test_.queries) compare(check);
  }

 private:
  void store(int64_t at, const std::vector<RuleSample>& samples) {
    for (const RuleSample& sample : samples)
      reader_.add(sample.labels, at, sample.is_stale ? std::bit_cast<double>(kStaleBits) : sample.value);
  }

  static std::string shown(const Labels& labels) {
    std::string text;
    for (const auto& [name, value] : labels) text += (text.empty() ? "" : ", ") + name + "=" + value;
    return "{" + text + "}";
  }

  void compare(const AlertCheck& check) {
    ++out_.checks;
    std::vector<ExpectedAlert> found, expected = check.expected;
    for (const RuleGroupState& state : states_) {
      for (size_t i = 0; i < state.states().size(); ++i) {
        if (state.group().rules[i].name != check.name || !state.group().rules[i].alerting) continue;
        for (const auto& [labels, alert] : state.states()[i].alerts) {
          if (alert.state == RuleAlertState::kFiring) found.push_back({labels, alert.annotations});
        }
      }
    }
    std::sort(found.begin(), found.end());
    std::sort(expected.begin(), expected.end());
    if (found == expected) return;
    std::string line =
        format("line %d: %s at %s: ", check.line, check.name.c_str(), duration_text(check.at_ms).c_str());
    line += "expected";
    for (const ExpectedAlert& one : expected) line += " " + shown(one.labels) + shown(one.annotations);
    line += ", found";
    for (const ExpectedAlert& one : found) line += " " + shown(one.labels) + shown(one.annotations);
    out_.failures.push_back(line);
  }

  void compare(const QueryCheck& check) {
    ++out_.checks;
    const promql::QueryResult result = promql::run_query(check.query, reader_, {check.at_ms, check.at_ms, 0}, {});
    std::string line =
        format("line %d: %s at %s: ", check.line, as_one_line(check.query).c_str(), duration_text(check.at_ms).c_str());
    if (!result.ok()) {
      out_.failures.push_back(line + result.error);
      return;
    }
    std::map<Labels, double> found;
    if (result.type == promql::ValueType::kScalar) found[{}] = result.scalar;
    for (const promql::ResultSeries& series : result.series) {
      Labels labels = series.labels;
      std::sort(labels.begin(), labels.end());
      if (!series.values.empty()) found[labels] = series.values.front();
    }
    bool same = found.size() == check.expected.size();
    for (const auto& [labels, value] : check.expected)
      same = same && found.contains(labels) && near(found[labels], value);
    if (same) return;
    for (const auto& [labels, value] : found) line += " found " + shown(labels) + " " + shortest_text(value);
    out_.failures.push_back(line + (found.empty() ? " found nothing" : ""));
  }

  const OneTest& test_;
  const int64_t interval_ms_;
  RuleUnitTests& out_;
  MemoryMetricReader reader_;
  std::vector<RuleGroupState> states_;
};

}  // namespace

Result<RuleUnitTests> run_rule_unit_tests(const std::string& file) {
  const std::string text = LOCKSTEP_TRY(read_file(file, kRuleFileBytesMax));
  const Result<TestFile> parsed = parse(text);
  if (!parsed.ok()) return prefixed(parsed.failure(), file + ": ");
  std::vector<std::string> rule_files;
  for (const std::string& one : parsed->rule_files)
    rule_files.push_back(one.starts_with('/') ? one : (std::filesystem::path(file).parent_path() / one).string());
  const std::vector<RuleGroup> groups = LOCKSTEP_TRY(read_rule_files(rule_files));
  RuleUnitTests out;
  for (const OneTest& test : parsed->tests) Run(test, *parsed, groups, out).run();
  return out;
}

}  // namespace lockstep
