#include "alert/rules/rule_state.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "alert/alert.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr int64_t kResolvedKeptMs = 15 * 60'000;
constexpr int64_t kRestoreWithinMs = 3'600'000;  // a longer outage begins anew
constexpr int64_t kGraceMs = 600'000;

double seconds_since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

struct Found {
  Labels labels;  // with the name
  double value = 0;
};

// A scalar is a vector of one series without labels. Histograms are no values of rules here.
std::vector<Found> samples_of(const promql::QueryResult& result) {
  std::vector<Found> found;
  if (result.type == promql::ValueType::kScalar) return {{{}, result.scalar}};
  for (const promql::ResultSeries& series : result.series) {
    if (series.values.empty() || (!series.histograms.empty() && series.histograms.front() != nullptr)) continue;
    Labels labels = series.labels;
    std::sort(labels.begin(), labels.end());
    found.push_back({std::move(labels), series.values.front()});
  }
  return found;
}

Labels without_name(Labels labels) {
  std::erase_if(labels, [](const auto& one) { return one.first == "__name__"; });
  return labels;
}

}  // namespace

const char* to_text(RuleAlertState state) {
  static constexpr const char* kNames[] = {"pending", "firing", "inactive"};
  return kNames[static_cast<size_t>(state)];
}

RuleAlertState RuleState::worst() const {
  RuleAlertState worst = RuleAlertState::kInactive;
  for (const auto& [labels, alert] : alerts) {
    if (alert.state == RuleAlertState::kFiring) return RuleAlertState::kFiring;
    if (alert.state == RuleAlertState::kPending) worst = RuleAlertState::kPending;
  }
  return worst;
}

RuleGroupState::RuleGroupState(RuleGroup group)
    : group_(std::move(group)), states_(group_.rules.size()), written_(group_.rules.size()) {}

void RuleGroupState::evaluate(int64_t time_ms, const Surroundings& around) {
  const auto began = std::chrono::steady_clock::now();
  for (size_t i = 0; i < group_.rules.size(); ++i) {
    const auto rule_began = std::chrono::steady_clock::now();
    const std::vector<RuleSample> samples = evaluate_rule(i, time_ms, around);
    if (!samples.empty()) around.store(time_ms, samples);
    states_[i].evaluated_ms = time_ms;
    states_[i].seconds = seconds_since(rule_began);
  }
  evaluated_ms_ = time_ms;
  seconds_ = seconds_since(began);
}

std::string RuleGroupState::take_alerts(const Rule& rule, RuleState& state, const promql::QueryResult& result,
                                        int64_t time_ms, const Surroundings& around) {
  std::map<Labels, RuleAlert> now;
  for (const Found& found : samples_of(result)) {
    const TemplateData data{found.labels, found.value, around.external_url};
    RuleAlert alert{.labels = without_name(found.labels), .value = found.value, .active_ms = time_ms};
    for (const auto& [name, text] : rule.labels) set_label(alert.labels, name, text.expand(data));
    set_label(alert.labels, "alertname", rule.name);
    for (const auto& [name, text] : rule.annotations) set_label(alert.annotations, name, text.expand(data));
    Labels key = alert.labels;
    if (!now.emplace(std::move(key), std::move(alert)).second)
      return "vector contains metrics with the same labelset after applying alert labels";
  }
  std::set<Labels> active;
  for (auto& [labels, alert] : now) {
    active.insert(labels);
    const auto known = state.alerts.find(labels);
    if (known != state.alerts.end() && known->second.state != RuleAlertState::kInactive) {
      known->second.value = alert.value;
      known->second.annotations = std::move(alert.annotations);
    } else {
      state.alerts.insert_or_assign(labels, std::move(alert));
    }
  }
  follow(rule, state, active, time_ms);
  const size_t count = static_cast<size_t>(std::count_if(state.alerts.begin(), state.alerts.end(), [](const auto& one) {
    return one.second.state != RuleAlertState::kInactive;
  }));
  if (group_.limit > 0 && count > group_.limit) {
    state.alerts.clear();
    return format("exceeded limit of %llu with %zu alerts", static_cast<unsigned long long>(group_.limit), count);
  }
  return {};
}

void RuleGroupState::follow(const Rule& rule, RuleState& state, const std::set<Labels>& active, int64_t time_ms) {
  for (auto one = state.alerts.begin(); one != state.alerts.end();) {
    const auto here = one++;
    RuleAlert& alert = here->second;
    if (active.contains(here->first)) {
      alert.keep_since_ms = 0;
    } else {
      bool kept = false;
      if (alert.state == RuleAlertState::kFiring && rule.keep_firing_ms > 0) {
        if (alert.keep_since_ms == 0) alert.keep_since_ms = time_ms;
        kept = time_ms - alert.keep_since_ms < rule.keep_firing_ms;
      }
      const bool old = alert.resolved_ms != 0 && time_ms - alert.resolved_ms > kResolvedKeptMs;
      if (alert.state == RuleAlertState::kPending || old) {
        state.alerts.erase(here);
        continue;
      }
      if (alert.state != RuleAlertState::kInactive && !kept) {
        alert.state = RuleAlertState::kInactive;
        alert.resolved_ms = time_ms;
      }
      if (!kept) continue;
    }
    if (alert.state == RuleAlertState::kPending && time_ms - alert.active_ms >= rule.for_ms)
      alert.state = RuleAlertState::kFiring;
  }
}

std::vector<RuleSample> RuleGroupState::evaluate_rule(size_t number, int64_t time_ms, const Surroundings& around) {
  const Rule& rule = group_.rules[number];
  RuleState& state = states_[number];
  const int64_t at = time_ms - group_.offset_ms;
  const promql::QueryResult result = promql::run_query(rule.query, around.reader, {at, at, 0}, around.query);
  state.error = result.ok() ? "" : result.error;
  std::map<Labels, double> samples;
  if (result.ok() && rule.alerting) {
    state.error = take_alerts(rule, state, result, time_ms, around);
    for (const auto& [labels, alert] : state.alerts) {
      if (alert.state == RuleAlertState::kInactive) continue;
      Labels series = labels;
      set_label(series, "__name__", "ALERTS_FOR_STATE");
      samples[series] = static_cast<double>(alert.active_ms / 1000);
      set_label(series, "__name__", "ALERTS");
      set_label(series, "alertstate", to_text(alert.state));
      samples[series] = 1;
    }
  } else if (result.ok()) {
    for (const Found& found : samples_of(result)) {
      Labels labels = without_name(found.labels);
      for (const auto& [name, text] : rule.labels) set_label(labels, name, text.text());
      set_label(labels, "__name__", rule.name);
      if (!samples.emplace(std::move(labels), found.value).second) {
        state.error = "vector contains metrics with the same labelset after applying rule labels";
        break;
      }
    }
    if (group_.limit > 0 && samples.size() > group_.limit)
      state.error = format("exceeded limit of %llu with %zu series", static_cast<unsigned long long>(group_.limit),
                           samples.size());
  }
  std::vector<RuleSample> list;
  // Nothing is known of a rule that failed: its series are not ended either.
  if (!state.error.empty()) return list;
  std::set<Labels> written;
  for (const auto& [labels, value] : samples) {
    list.push_back({labels, value});
    written.insert(labels);
  }
  for (const Labels& labels : written_[number]) {
    if (!written.contains(labels)) list.push_back({labels, 0, true});
  }
  written_[number] = std::move(written);
  return list;
}

void RuleGroupState::take_over(RuleGroupState& before) {
  std::vector<bool> taken(before.group_.rules.size());
  for (size_t i = 0; i < group_.rules.size(); ++i) {
    for (size_t k = 0; k < before.group_.rules.size(); ++k) {
      const Rule &now = group_.rules[i], &was = before.group_.rules[k];
      if (taken[k] || now.name != was.name || now.alerting != was.alerting) continue;
      taken[k] = true;
      states_[i] = std::move(before.states_[k]);
      written_[i] = std::move(before.written_[k]);
      before.written_[k].clear();
      break;
    }
  }
  evaluated_ms_ = before.evaluated_ms_;
}

void RuleGroupState::restore(int64_t time_ms, const MetricReader& reader) {
  for (size_t i = 0; i < group_.rules.size(); ++i) {
    const Rule& rule = group_.rules[i];
    if (!rule.alerting || rule.for_ms == 0) continue;
    for (auto& [labels, alert] : states_[i].alerts) {
      std::vector<LabelMatcher> matchers{label_is("__name__", "ALERTS_FOR_STATE")};
      for (const auto& [name, value] : labels) matchers.push_back(label_is(name, value));
      const int64_t from = time_ms - kRestoreWithinMs, to = time_ms - 1;
      const Result<std::unique_ptr<MetricSelection>> found = reader.select(matchers, {.from_ms = from, .to_ms = to});
      if (!found.ok()) continue;
      for (size_t k = 0; k < (*found)->size(); ++k) {
        SampleColumns samples;
        if ((*found)->labels(k).size() != labels.size() + 1 || !(*found)->samples(k, from, to, samples).ok()) continue;
        while (!samples.values.empty() && std::isnan(samples.values.back())) {
          samples.values.pop_back();
          samples.times_ms.pop_back();
        }
        if (samples.values.empty()) continue;
        const int64_t down_ms = samples.times_ms.back();
        int64_t active_ms = static_cast<int64_t>(samples.values.back()) * 1000;
        const int64_t left_ms = rule.for_ms - (down_ms - active_ms);
        // It fired when the server ended: the next evaluation says so again. Else it has still so long to wait, and at
        // least the grace, in which what was not seen meanwhile may show.
        if (left_ms > 0)
          active_ms = left_ms < kGraceMs && rule.for_ms > kGraceMs ? time_ms + kGraceMs - rule.for_ms
                                                                   : active_ms + time_ms - down_ms;
        alert.active_ms = std::min(active_ms, time_ms);
      }
    }
  }
}

std::vector<RuleSample> RuleGroupState::all_stale() const {
  std::vector<RuleSample> list;
  for (const std::set<Labels>& written : written_) {
    for (const Labels& labels : written) list.push_back({labels, 0, true});
  }
  return list;
}

}  // namespace lockstep
