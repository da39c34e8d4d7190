// One group of rules as it is evaluated: what each rule found, which alerts are pending or fire, and which series it has
// written. Prometheus's state machine (for, keep_firing_for, stale markers, ALERTS and ALERTS_FOR_STATE), without threads,
// clock or disk, so that tests and rule unit tests drive it step by step.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "alert/rules/rule_file.h"
#include "query/promql/query.h"
#include "store/metric_reader.h"

namespace lockstep {

enum class RuleAlertState : uint8_t { kPending, kFiring, kInactive };
const char* to_text(RuleAlertState state);  // "pending", "firing", "inactive"

struct RuleAlert {
  Labels labels;  // with "alertname"; sorted
  Labels annotations;
  RuleAlertState state = RuleAlertState::kPending;
  double value = 0;
  int64_t active_ms = 0;
  int64_t keep_since_ms = 0;  // 0: its expression is true
  int64_t resolved_ms = 0;    // of kInactive
};

struct RuleState {
  std::map<Labels, RuleAlert> alerts;  // by labels
  std::string error;                   // of the last evaluation; empty: it went well
  int64_t evaluated_ms = 0;            // when; 0: never
  double seconds = 0;                  // it took
  RuleAlertState worst() const;
};

// A sample that a rule records; stale_nan where its series has ended.
struct RuleSample {
  Labels labels;  // with "__name__"; sorted
  double value = 0;
  bool is_stale = false;
};

class RuleGroupState {
 public:
  explicit RuleGroupState(RuleGroup group);

  // All rules, one after the other, as of time_ms; `store` takes each rule's samples before the next is evaluated.
  struct Surroundings {
    const MetricReader& reader;
    std::function<void(int64_t time_ms, const std::vector<RuleSample>& samples)> store;
    promql::QueryOptions query;
    std::string external_url = {};
  };
  void evaluate(int64_t time_ms, const Surroundings& around);

  // What the group before a reload knew; rules are the same by name and order.
  void take_over(RuleGroupState& before);
  // Where alerts were pending when the server ended: from ALERTS_FOR_STATE, as Prometheus does it. After the first
  // evaluation.
  void restore(int64_t time_ms, const MetricReader& reader);
  // Series that nobody writes any more.
  std::vector<RuleSample> all_stale() const;

  const RuleGroup& group() const { return group_; }
  int64_t interval_ms() const { return group_.interval_ms > 0 ? group_.interval_ms : kRuleIntervalMs; }
  const std::vector<RuleState>& states() const { return states_; }
  int64_t evaluated_ms() const { return evaluated_ms_; }
  double seconds() const { return seconds_; }

 private:
  std::vector<RuleSample> evaluate_rule(size_t number, int64_t time_ms, const Surroundings& around);
  std::string take_alerts(const Rule& rule, RuleState& state, const promql::QueryResult& result, int64_t time_ms,
                          const Surroundings& around);
  void follow(const Rule& rule, RuleState& state, const std::set<Labels>& active, int64_t time_ms);

  RuleGroup group_;
  std::vector<RuleState> states_;          // of each rule
  std::vector<std::set<Labels>> written_;  // series of each rule's last evaluation
  int64_t evaluated_ms_ = 0;
  double seconds_ = 0;
};

}  // namespace lockstep
