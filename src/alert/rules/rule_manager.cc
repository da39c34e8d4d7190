#include "alert/rules/rule_manager.h"

#include <algorithm>
#include <bit>

#include "base/text.h"
#include "model/series_labels.h"
#include "wire/remote_write.h"

namespace lockstep {
namespace {

constexpr int64_t kEvaluationMaxS = 60;
constexpr uint64_t kQueryBytesMax = 256ull << 20;

}  // namespace

RuleManager::RuleManager(AlertRegistry& alerts, const MetricReader& reader, Push push, std::string external_url,
                         const Clock& clock, Counters& counters)
    : alerts_(alerts),
      reader_(reader),
      push_(std::move(push)),
      external_url_(std::move(external_url)),
      clock_(clock),
      counters_(counters),
      log_(clock, "rules") {}

void RuleManager::reload(std::vector<RuleGroup> groups) {
  MutexLock lock(mutex_);
  new_groups_ = std::move(groups);
  has_new_ = true;
  shown_.clear();
  for (const RuleGroup& group : new_groups_)
    shown_.push_back({group, std::vector<RuleState>(group.rules.size()),
                      group.interval_ms > 0 ? group.interval_ms : kRuleIntervalMs});
}

std::vector<RuleManager::GroupView> RuleManager::groups() const {
  MutexLock lock(mutex_);
  return shown_;
}

bool RuleManager::take_new_groups() {
  std::vector<RuleGroup> groups;
  {
    MutexLock lock(mutex_);
    if (!std::exchange(has_new_, false)) return false;
    groups = std::move(new_groups_);
  }
  const int64_t now_ms = clock_.unix_ns() / 1'000'000;
  std::vector<Running> before = std::move(running_);
  running_.clear();
  for (RuleGroup& group : groups) {
    Running running{.state = RuleGroupState(std::move(group))};
    for (Running& known : before) {
      if (known.state.group().name != running.state.group().name ||
          known.state.group().file != running.state.group().file)
        continue;
      running.state.take_over(known.state);
      running.restored = known.restored;
      if (known.state.interval_ms() == running.state.interval_ms()) running.next_ms = known.next_ms;
    }
    const int64_t interval = running.state.interval_ms();
    if (running.next_ms == 0) running.next_ms = (now_ms / interval + 1) * interval;
    running_.push_back(std::move(running));
  }
  for (const Running& known : before) store(now_ms, known.state.all_stale());
  return true;
}

void RuleManager::evaluate_due(const std::function<bool()>& give_up) {
  bool changed = take_new_groups();
  for (Running& running : running_) {
    if (give_up()) return;
    const int64_t now_ms = clock_.unix_ns() / 1'000'000;
    const int64_t interval = running.state.interval_ms();
    // A clock that was set back must not silence rules until it has caught up.
    if (running.next_ms > now_ms + 2 * interval) running.next_ms = (now_ms / interval + 1) * interval;
    if (now_ms < running.next_ms) continue;
    const int64_t missed = (now_ms - running.next_ms) / interval;
    if (missed > 0) counters_.add("lockstep_rule_groups_missed_total", "", missed);
    const int64_t time_ms = running.next_ms + missed * interval;
    running.next_ms = time_ms + interval;
    evaluate(running, time_ms, give_up);
    changed = true;
  }
  if (!changed) return;
  publish();
  // What no rule says any more: of rules that are gone, or that were over while the server was down.
  const bool all =
      std::all_of(running_.begin(), running_.end(), [](const Running& one) { return one.state.evaluated_ms() != 0; });
  if (!all) return;
  std::set<std::string> firing;
  for (const Running& running : running_) {
    for (const RuleState& state : running.state.states()) {
      for (const auto& [labels, alert] : state.alerts) {
        if (alert.state == RuleAlertState::kFiring) firing.insert(fingerprint_of(labels));
      }
    }
  }
  alerts_.sync(AlertSource::kRule, firing);
}

void RuleManager::evaluate(Running& running, int64_t time_ms, const std::function<bool()>& give_up) {
  promql::QueryOptions options;
  options.limits.bytes_max = kQueryBytesMax;
  options.cancelled = give_up;
  options.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(kEvaluationMaxS);
  running.state.evaluate(
      time_ms, {reader_, [this](int64_t at, const std::vector<RuleSample>& samples) { store(at, samples); }, options,
                external_url_});
  if (!std::exchange(running.restored, true)) {
    running.state.restore(time_ms, reader_);
  }
  for (size_t i = 0; i < running.state.states().size(); ++i) {
    const RuleState& state = running.state.states()[i];
    counters_.add("lockstep_rule_evaluations_total", state.error.empty() ? "result=\"ok\"" : "result=\"failed\"");
    if (!state.error.empty())
      log_.warn("rule", format("rule %s of group %s: %s", running.state.group().rules[i].name.c_str(),
                               running.state.group().name.c_str(), as_one_line(state.error).c_str()));
  }
  report(running.state);
}

void RuleManager::store(int64_t time_ms, const std::vector<RuleSample>& samples) {
  if (samples.empty()) return;
  std::vector<std::string> raw(samples.size());
  std::vector<double> values(samples.size());
  std::vector<PushedSeries> series(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    raw[i] = remote_write::raw_labels_of(samples[i].labels);
    values[i] = samples[i].is_stale ? std::bit_cast<double>(kStaleBits) : samples[i].value;
    series[i].raw_labels = raw[i];
    series[i].times_ms = {&time_ms, 1};
    series[i].values = {&values[i], 1};
  }
  const Result<PushOutcome> pushed = push_(series, [&](size_t k) { return canonical_labels(samples[k].labels); });
  if (!pushed.ok()) {
    log_.warn("store", pushed.error());
    return;
  }
  counters_.add("lockstep_rule_samples_total", "", static_cast<int64_t>(pushed->stored));
}

void RuleManager::report(const RuleGroupState& state) {
  for (size_t i = 0; i < state.states().size(); ++i) {
    if (!state.group().rules[i].alerting) continue;
    for (const auto& [labels, alert] : state.states()[i].alerts) {
      const std::string fingerprint = fingerprint_of(labels);  // two rules that make the same alert make one
      if (alert.state == RuleAlertState::kInactive) {
        alerts_.clear(AlertSource::kRule, fingerprint);
        continue;
      }
      if (alert.state != RuleAlertState::kFiring) continue;
      RaisedAlert raised{.source = AlertSource::kRule,
                         .fingerprint = fingerprint,
                         .name = state.group().rules[i].name,
                         .labels = alert.labels,
                         .annotations = alert.annotations};
      for (const auto& [name, value] : alert.labels) {
        if (name == "severity") raised.severity = severity_of(value);
        if (name == "job_id") raised.job_id = value;
      }
      raised.since_unix_ns = alert.active_ms * 1'000'000;
      alerts_.raise(std::move(raised));
    }
  }
}

void RuleManager::publish() {
  std::vector<GroupView> views;
  for (const Running& running : running_)
    views.push_back({running.state.group(), running.state.states(), running.state.interval_ms(),
                     running.state.evaluated_ms(), running.state.seconds()});
  MutexLock lock(mutex_);
  if (!has_new_) shown_ = std::move(views);
}

}  // namespace lockstep
