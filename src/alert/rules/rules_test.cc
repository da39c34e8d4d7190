#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "alert/rules/rule_file.h"
#include "alert/rules/rule_manager.h"
#include "alert/rules/rule_state.h"
#include "alert/rules/rule_template.h"
#include "alert/testing/rule_unit_tests.h"
#include "ingest/counters_table.h"
#include "store/sqlite_state_store.h"
#include "store/testing/memory_metric_reader.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

std::string expanded(const std::string& text, double value = 0.25) {
  const Labels labels = {{"host", "gpu-017:9100"}, {"job_id", "llm"}};
  const Result<RuleTemplate> parsed = RuleTemplate::parse(text);
  return parsed.ok() ? parsed->expand({labels, value, "http://l"}) : "refused: " + parsed.error();
}

TEST(RuleTemplate, ExpandsWhatRulesAreWrittenIn) {
  EXPECT_EQ(expanded("{{ $labels.host }} at {{ $value }}"), "gpu-017:9100 at 0.25");
  EXPECT_EQ(expanded("{{ .Labels.job_id }}{{.Labels.none}} {{ .Value | humanizePercentage }}"), "llm 25%");
  EXPECT_EQ(expanded("{{ $value | printf \"%.1f\" }} {{ printf \"%s=%05.2f\" $labels.job_id $value }}", 3.14159),
            "3.1 llm=03.14");
  EXPECT_EQ(expanded("{{ if gt $value 0.2 }}high{{ else }}low{{ end }}"), "high");
  EXPECT_EQ(expanded("{{ if eq $labels.job_id \"x\" }}a{{ else if lt $value 1.0 }}b{{ else }}c{{ end }}!"), "b!");
  EXPECT_EQ(expanded("a {{- /* no */ -}} b"), "ab");
  EXPECT_EQ(expanded("{{ ($value | humanize) | toUpper }}", 1500), "1.5K");
  EXPECT_EQ(expanded("{{ reReplaceAll \"(.*):9100\" \"$1\" $labels.host }} {{ stripPort $labels.host }}"),
            "gpu-017 gpu-017");
  EXPECT_EQ(expanded("{{ $labels.host | humanize }}"), "<error expanding template: \"gpu-017:9100\" is no number>");
}

TEST(RuleTemplate, WritesNumbersAsPrometheusDoes) {
  EXPECT_EQ(expanded("{{ $value }}", 1e6), "1e+06");
  EXPECT_EQ(expanded("{{ $value }}", 123456), "123456");
  EXPECT_EQ(expanded("{{ $value }}", std::nan("")), "NaN");
  EXPECT_EQ(expanded("{{ humanize $value }}", 1234567), "1.235M");
  EXPECT_EQ(expanded("{{ humanize $value }}", 0.00123), "1.23m");
  EXPECT_EQ(expanded("{{ humanize1024 $value }}", 1048576), "1Mi");
  EXPECT_EQ(expanded("{{ humanizeDuration $value }}", 90061), "1d 1h 1m 1s");
  EXPECT_EQ(expanded("{{ humanizeDuration $value }}", 0.05), "50ms");
  EXPECT_EQ(expanded("{{ humanizeTimestamp $value }}", 1435065584.128), "2015-06-23 13:19:44.128 +0000 UTC");
}

TEST(RuleTemplate, WhatItDoesNotKnowIsAnErrorWhenTheFileIsRead) {
  for (const char* wrong :
       {"{{ query \"up\" }}", "{{ range $x }}{{ end }}", "{{ $foo }}", "{{ $labels }}", "{{ if $value }}", "{{ end }}",
        "{{ $value", "{{ humanize }}", "{{ $value | \"x\" }}", "{{ humanizee $value }}", "{{ (($value }}", "{{ \"x }}"})
    EXPECT_TRUE(expanded(wrong).starts_with("refused: ")) << wrong;
  EXPECT_TRUE(expanded(std::string("{{ ") + std::string(5000, '(') + "1 }}").starts_with("refused"));
  EXPECT_NE(expanded("{{ humanizee $value }}").find("did you mean humanize?"), std::string::npos);
}

TEST(RuleFile, SaysInWhichLineItIsWrong) {
  struct Case {
    const char *text, *line;
  };
  const std::string rules = "groups:\n - name: g\n   rules:\n";
  for (const Case& one : std::initializer_list<Case>{
           {"   - {alert: A, expr: 'up ='}\n", "line 4: expr:"},
           {"   - {alert: A, expr: 'up[5m]'}\n", "line 4: expr must be"},
           {"   - {alert: A, record: b, expr: up}\n", "line 4: a rule has"},
           {"   - {record: 'a-b', expr: up}\n", "no metric's name"},
           {"   - {record: ab, expr: up, for: 5m}\n", "for is for alerting"},
           {"   - {alert: A, expr: up, for: 5x}\n", "line 4: for:"},
           {"   - {alert: A, expr: up, annotations: {summary: '{{ nope }}'}}\n", "function \"nope\""},
           {"   - {alert: A, expr: up, labels: {'a-b': x}}\n", "is no name"},
           {"   - {alert: A, exprs: up}\n", "did you mean expr?"}}) {
    const Result<std::vector<RuleGroup>> read = parse_rule_file(rules + one.text, "f");
    ASSERT_FALSE(read.ok()) << one.text;
    EXPECT_NE(read.error().find(one.line), std::string::npos) << read.error();
  }
  EXPECT_TRUE(parse_rule_file("groups: []", "f").ok());
  EXPECT_FALSE(parse_rule_file("groups:\n - name: g\n - name: g\n", "f").ok());
}

// Prometheus's own states: pending for as long as `for`, firing for as long as keep_firing_for after, then inactive.
TEST(RuleState, WaitsBeforeItFiresAndKeepsFiring) {
  const Result<std::vector<RuleGroup>> groups = parse_rule_file(
      "groups:\n - name: g\n   labels: {team: a}\n   rules:\n"
      "   - {record: 'm:sum', expr: 'sum(m)'}\n"
      "   - {alert: A, expr: 'm:sum > 1', for: 2m, keep_firing_for: 2m, labels: {severity: page},\n"
      "      annotations: {summary: '{{ $value }}'}}\n",
      "f");
  ASSERT_TRUE(groups.ok()) << groups.error();
  RuleGroupState state((*groups)[0]);
  MemoryMetricReader reader;
  std::vector<RuleSample> stored;
  const auto at = [&](int64_t minute, double value) {
    reader.add({{"__name__", "m"}}, minute * 60'000, value);
    stored.clear();
    state.evaluate(minute * 60'000, {reader,
                                     [&](int64_t time, const std::vector<RuleSample>& samples) {
                                       for (const RuleSample& one : samples) {
                                         stored.push_back(one);
                                         reader.add(one.labels, time,
                                                    one.is_stale ? std::bit_cast<double>(kStaleBits) : one.value);
                                       }
                                     },
                                     {}});
    return state.states()[1].worst();
  };
  using enum RuleAlertState;
  EXPECT_EQ(at(0, 1), kInactive);
  EXPECT_EQ(at(1, 2), kPending);
  EXPECT_EQ(at(2, 2), kPending);
  EXPECT_EQ(at(3, 2), kFiring);
  const Labels firing = {
      {"__name__", "ALERTS"}, {"alertname", "A"}, {"alertstate", "firing"}, {"severity", "page"}, {"team", "a"}};
  const Labels pending = {
      {"__name__", "ALERTS"}, {"alertname", "A"}, {"alertstate", "pending"}, {"severity", "page"}, {"team", "a"}};
  const auto find = [&](const Labels& labels) {
    return std::find_if(stored.begin(), stored.end(), [&](const RuleSample& one) { return one.labels == labels; });
  };
  ASSERT_NE(find(firing), stored.end());
  ASSERT_NE(find(pending), stored.end());
  EXPECT_TRUE(find(pending)->is_stale);
  EXPECT_EQ(at(4, 0), kFiring) << "kept";
  EXPECT_EQ(at(5, 0), kFiring);
  EXPECT_EQ(at(6, 0), kInactive);
  EXPECT_EQ(at(7, 2), kPending) << "anew";
  EXPECT_EQ(at(8, 0), kInactive) << "what was only pending leaves nothing";
}

TEST(RuleState, AReloadKeepsWhatIsPending) {
  const char* text = "groups:\n - name: g\n   rules:\n   - {alert: A, expr: 'm > 0', for: 5m}\n";
  MemoryMetricReader reader;
  for (int64_t i = 0; i < 10; ++i) reader.add({{"__name__", "m"}}, i * 60'000, 1);
  RuleGroupState before((*parse_rule_file(text, "f"))[0]);
  const RuleGroupState::Surroundings around{reader, [](int64_t, const auto&) {}, {}};
  before.evaluate(0, around);
  before.evaluate(240'000, around);
  RuleGroupState after((*parse_rule_file(text, "f"))[0]);
  after.take_over(before);
  after.evaluate(300'000, around);
  EXPECT_EQ(after.states()[0].worst(), RuleAlertState::kFiring);
}

TEST(RuleManager, FiresThroughTheRegistryAndEndsWhenTheRuleIsGone) {
  testing::TemporaryFolder folder;
  testing::FakeClock clock;
  Counters counters{kServerCounters};
  Result<std::unique_ptr<StateStore>> state = open_sqlite_state_store(folder.path() + "/s");
  const ClockWitness witness(clock);
  AlertRegistry registry(**state, clock, witness, counters);
  MemoryMetricReader reader;
  size_t pushed = 0;
  RuleManager manager(
      registry, reader,
      [&](std::span<const PushedSeries> series,
          const std::function<Result<Labels>(size_t)>& canonical) -> Result<PushOutcome> {
        for (size_t k = 0; k < series.size(); ++k)
          reader.add(*canonical(k), series[k].times_ms[0], series[k].values[0]);
        pushed += series.size();
        return PushOutcome{.stored = series.size()};
      },
      "", clock, counters);
  manager.reload(
      *parse_rule_file("groups:\n - name: g\n   interval: 10s\n   rules:\n   - {alert: A, expr: 'vector(3)', labels: "
                       "{severity: critical}}\n",
                       "f"));
  const auto pass = [&](int seconds) {
    for (int i = 0; i < seconds; ++i) {
      clock.advance(1'000'000'000);
      manager.evaluate_due([] { return false; });
      registry.tick();
    }
  };
  pass(25);
  ASSERT_EQ(registry.alerts().size(), 1u);
  EXPECT_TRUE(registry.alerts()[0].firing);
  EXPECT_EQ(registry.alerts()[0].severity, AlertSeverity::kCritical);
  EXPECT_EQ(pushed, 4u) << "ALERTS and ALERTS_FOR_STATE, twice";
  EXPECT_EQ(manager.groups().at(0).states.at(0).worst(), RuleAlertState::kFiring);
  manager.reload(
      *parse_rule_file("groups:\n - name: h\n   interval: 10s\n   rules:\n   - {record: b, expr: '1'}\n", "f"));
  pass(25);
  EXPECT_FALSE(registry.alerts()[0].firing);
}

TEST(RuleManager, WhatRulesSaidIsOverWhereThereAreNoneAnyMore) {
  testing::TemporaryFolder folder;
  testing::FakeClock clock;
  Counters counters{kServerCounters};
  Result<std::unique_ptr<StateStore>> state = open_sqlite_state_store(folder.path() + "/s");
  const ClockWitness witness(clock);
  AlertRegistry registry(**state, clock, witness, counters);
  registry.raise({.source = AlertSource::kRule, .fingerprint = "f", .name = "A"});  // as before a restart
  MemoryMetricReader reader;
  RuleManager manager(
      registry, reader, [](auto, const auto&) -> Result<PushOutcome> { return PushOutcome{}; }, "", clock, counters);
  manager.reload({});
  manager.evaluate_due([] { return false; });
  registry.tick();
  EXPECT_FALSE(registry.alerts().at(0).firing);
}

TEST(RuleTemplate, WhatBecomesTooLongIsStoppedBeforeItDoes) {
  const std::string many(30'000, 'x');
  const Labels labels = {{"a", many}};
  for (const std::string& text :
       {"{{ reReplaceAll \"\" \"" + many + "\" $labels.a }}",
        std::string(
            "{{ reReplaceAll \"(.*)\" \"$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1$1\" $labels.a }}")}) {
    const Result<RuleTemplate> parsed = RuleTemplate::parse(text);
    ASSERT_TRUE(parsed.ok()) << parsed.error();
    EXPECT_EQ(parsed->expand({labels, 1}), "<error expanding template: it becomes too long>");
  }
  EXPECT_EQ(RuleTemplate::parse("{{ reReplaceAll \"x+\" \"y\" $labels.a }}")->expand({labels, 1}), "y");
}

TEST(RuleUnitTests, RunsPromtoolsFormatAndSaysWhatDiffers) {
  testing::TemporaryFolder folder;
  std::ofstream(folder.path() + "/rules.yml")
      << "groups:\n - name: g\n   rules:\n   - {alert: Down, expr: 'up == 0', for: 1m, labels: {severity: page}, "
         "annotations: {summary: '{{ $labels.instance }} down'}}\n";
  const auto write = [&](const char* labels) {
    std::ofstream(folder.path() + "/test.yml") << R"(rule_files: [rules.yml]
evaluation_interval: 1m
tests:
 - interval: 1m
   input_series:
    - {series: 'up{instance="a"}', values: '1 0x5'}
   alert_rule_test:
    - {eval_time: 1m, alertname: Down}
    - eval_time: 3m
      alertname: Down
      exp_alerts:
       - exp_labels: )" << labels << R"(
         exp_annotations: {summary: a down}
   promql_expr_test:
    - {expr: 'sum(up)', eval_time: 2m, exp_samples: [{value: 0}]}
)";
  };
  write("{severity: page, instance: a}");
  Result<RuleUnitTests> run = run_rule_unit_tests(folder.path() + "/test.yml");
  ASSERT_TRUE(run.ok()) << run.error();
  EXPECT_EQ(run->checks, 3u);
  EXPECT_TRUE(run->failures.empty()) << run->failures.front();
  write("{severity: page, instance: b}");
  run = run_rule_unit_tests(folder.path() + "/test.yml");
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->failures.size(), 1u);
}

}  // namespace
}  // namespace lockstep
