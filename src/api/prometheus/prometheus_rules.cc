// /prometheus/api/v1/rules and alerts, in the shape that alert lists read: the built-in alerts as one group (a rule for
// each row of their table; what fires, and suspected verdicts as pending), then the groups of the user's rule files.
#include <algorithm>
#include <charconv>

#include "alert/alert_center.h"
#include "alert/builtin_alerts.h"
#include "alert/notify_messages.h"
#include "api/endpoints.h"
#include "api/prometheus/prometheus_answer.h"
#include "base/text.h"
#include "incident/verdict_cost.h"
#include "model/series_labels.h"
#include "store/metrics/matching.h"

namespace lockstep {
namespace {

constexpr const char* kGroup = "lockstep";
constexpr const char* kFile = "lockstep";

struct AlertView {
  Labels labels, annotations;
  const char* state = "firing";
  int64_t active_unix_ns = 0;
  double value = 0;
};
struct RuleView {
  bool alerting = true;
  std::string name, query;
  double for_s = 0, keep_s = 0;
  Labels labels, annotations;
  std::vector<AlertView> alerts;
  std::string error;
  double seconds = 0;
  int64_t evaluated_unix_ns = 0;
};
struct GroupView {
  std::string name, file;
  std::vector<RuleView> rules;
  double interval_s = 1, seconds = 0;
  uint64_t limit = 0;
  int64_t evaluated_unix_ns = 0;
};

// Where people reach this server: as it was told, else as this request says.
std::string base_of(const ApiContext& context, const ServerRequest& request) {
  if (context.alerts != nullptr && !context.alerts->external_url().empty()) return context.alerts->external_url();
  const std::string_view host = request.header("host");
  if (host.empty()) return {};
  return (request.header("x-forwarded-proto") == "https" ? "https://" : "http://") + std::string(host);
}

AlertView view_of(const Alert& alert, const char* state, const std::string& base) {
  AlertView view{alert.labels, annotations_with_link(alert, base), state, alert.starts_unix_ns, alert.lost_gpu_seconds};
  if (!alert.verdict_id.empty()) set_label(view.annotations, "evidence", "/api/verdicts/" + url_part(alert.verdict_id));
  return view;
}

// As the registry would keep it.
Alert alert_of_verdict(const ApiContext& context, const Verdict& verdict) {
  RaisedAlert raised =
      context.pricing == nullptr
          ? alert_of(verdict)
          : alert_of(verdict, incident::cost_of(incident::loss_of(verdict), context.incidents, *context.pricing));
  Alert alert{.fingerprint = raised.fingerprint,
              .name = raised.name,
              .severity = raised.severity,
              .firing = true,
              .labels = std::move(raised.labels),
              .annotations = std::move(raised.annotations),
              .verdict_id = verdict.id,
              .path = raised.path,
              .lost_gpu_seconds = verdict.lost_gpu_seconds,
              .starts_unix_ns = raised.since_unix_ns};
  set_label(alert.labels, "alertname", alert.name);
  set_label(alert.labels, "severity", to_text(alert.severity));
  return alert;
}

// Those that fire first.
std::vector<AlertView> builtin_views(const ApiContext& context, const std::string& base) {
  std::vector<AlertView> views;
  std::vector<std::string> firing;
  if (context.alerts != nullptr) {
    for (const Alert& alert : context.alerts->registry().alerts()) {
      if (!alert.firing || alert.from_rule) continue;
      views.push_back(view_of(alert, "firing", base));
      firing.push_back(alert.fingerprint);
    }
  }
  for (const Verdict& verdict : context.diagnosis.verdicts("")) {
    const bool confirmed = verdict.state == VerdictState::kConfirmed;
    if (verdict.state == VerdictState::kCleared || (confirmed && context.alerts != nullptr)) continue;
    const Alert alert = alert_of_verdict(context, verdict);
    const bool known = std::find(firing.begin(), firing.end(), alert.fingerprint) != firing.end();
    if (!known) views.push_back(view_of(alert, confirmed ? "firing" : "pending", base));
  }
  return views;
}

GroupView builtin_group(const ApiContext& context, const std::string& base) {
  const int64_t now = context.clock.unix_ns();
  const std::vector<AlertView> alerts = builtin_views(context, base);
  GroupView group{.name = kGroup, .file = kFile, .evaluated_unix_ns = now};
  for (const BuiltinAlert& row : builtin_alerts()) {
    RuleView rule{.name = row.name, .query = "/api/alerts", .evaluated_unix_ns = now};
    rule.labels = {{"severity", to_text(row.severity)}};
    rule.annotations = {{"runbook", row.runbook}, {"summary", row.raised_by}};
    for (const AlertView& alert : alerts) {
      if (label_value(alert.labels, "alertname") == row.name) rule.alerts.push_back(alert);
    }
    group.rules.push_back(std::move(rule));
  }
  return group;
}

Labels texts_of(const std::vector<std::pair<std::string, RuleTemplate>>& templates) {
  Labels texts;
  for (const auto& [name, one] : templates) texts.emplace_back(name, one.text());
  std::sort(texts.begin(), texts.end());
  return texts;
}

GroupView user_group(const RuleManager::GroupView& from) {
  GroupView group{.name = from.group.name,
                  .file = from.group.file,
                  .interval_s = static_cast<double>(from.interval_ms) / 1000,
                  .seconds = from.seconds,
                  .limit = from.group.limit,
                  .evaluated_unix_ns = from.evaluated_ms * 1'000'000};
  for (size_t i = 0; i < from.group.rules.size(); ++i) {
    const Rule& rule = from.group.rules[i];
    const RuleState& state = from.states[i];
    RuleView view{.alerting = rule.alerting,
                  .name = rule.name,
                  .query = rule.query,
                  .for_s = static_cast<double>(rule.for_ms) / 1000,
                  .keep_s = static_cast<double>(rule.keep_firing_ms) / 1000,
                  .labels = texts_of(rule.labels),
                  .annotations = texts_of(rule.annotations),
                  .error = state.error,
                  .seconds = state.seconds,
                  .evaluated_unix_ns = state.evaluated_ms * 1'000'000};
    for (const auto& [labels, alert] : state.alerts) {
      if (alert.state == RuleAlertState::kInactive) continue;
      view.alerts.push_back(
          {labels, alert.annotations, to_text(alert.state), alert.active_ms * 1'000'000, alert.value});
    }
    group.rules.push_back(std::move(view));
  }
  return group;
}

std::vector<GroupView> all_groups(const ApiContext& context, const ServerRequest& request) {
  std::vector<GroupView> groups{builtin_group(context, base_of(context, request))};
  if (context.alerts == nullptr) return groups;
  for (const RuleManager::GroupView& group : context.alerts->rules().groups()) groups.push_back(user_group(group));
  return groups;
}

void write_alert(JsonWriter& json, const AlertView& alert) {
  json.begin_object().key("labels");
  write_prometheus_labels(json, alert.labels);
  json.key("annotations");
  write_prometheus_labels(json, alert.annotations);
  json.field("state", alert.state).field("activeAt", prometheus_moment(alert.active_unix_ns));
  // As Prometheus writes an alert's value.
  char value[32];
  const std::to_chars_result end =
      std::to_chars(value, value + sizeof value, alert.value, std::chars_format::scientific);
  json.field("value", std::string_view(value, static_cast<size_t>(end.ptr - value))).end_object();
}

void write_rule(JsonWriter& json, const RuleView& rule, bool with_alerts) {
  json.begin_object();
  if (rule.alerting) {
    const char* state = "inactive";
    for (const AlertView& alert : rule.alerts) {
      state = alert.state;
      if (std::string_view(state) == "firing") break;
    }
    json.field("state", state);
  }
  json.field("name", rule.name).field("query", rule.query);
  if (rule.alerting) json.field("duration", rule.for_s).field("keepFiringFor", rule.keep_s);
  json.key("labels");
  write_prometheus_labels(json, rule.labels);
  if (rule.alerting) {
    json.key("annotations");
    write_prometheus_labels(json, rule.annotations);
    json.key("alerts");
    if (with_alerts) {
      json.begin_array();
      for (const AlertView& alert : rule.alerts) write_alert(json, alert);
      json.end_array();
    } else {
      json.null();
    }
  }
  json.field("health", !rule.error.empty() ? "err" : rule.evaluated_unix_ns == 0 ? "unknown" : "ok");
  if (!rule.error.empty()) json.field("lastError", rule.error);
  json.field("evaluationTime", rule.seconds)
      .field("lastEvaluation", prometheus_moment(rule.evaluated_unix_ns))
      .field("type", rule.alerting ? "alerting" : "recording")
      .end_object();
}

bool is_asked(const std::vector<std::string>& wanted, std::string_view name) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
}

using MatcherLists = std::vector<metrics::CompiledMatchers>;

// By the labels that a rule itself has; an empty list lets everything through.
bool matches_any(const MatcherLists& any, const RuleView& rule) {
  return any.empty() || std::any_of(any.begin(), any.end(), [&](const metrics::CompiledMatchers& all) {
           return metrics::matches_all(all, rule.labels);
         });
}

Result<MatcherLists> compiled(const PrometheusForm& form) {
  const std::vector<std::vector<LabelMatcher>> lists = LOCKSTEP_TRY(prometheus_matchers(form));
  MatcherLists any;
  for (const std::vector<LabelMatcher>& list : lists) {
    Result<metrics::CompiledMatchers> all = metrics::compile_matchers(list, true);
    if (!all.ok()) return prefixed(all.failure(), "invalid parameter \"match[]\": ");
    any.push_back(std::move(*all));
  }
  return any;
}

}  // namespace

HttpResponse prometheus_rules(const ApiContext& context, const ApiRequest& request) {
  const Result<PrometheusForm> form = PrometheusForm::read(request.http);
  if (!form.ok()) return prometheus_error("bad_data", form.error());
  const std::string type = form->value("type");
  if (!type.empty() && type != "alert" && type != "record")
    return prometheus_error("bad_data", format("invalid parameter \"type\": \"%.40s\" is neither alert nor record",
                                               as_one_line(type).c_str()));
  const std::string excluded = form->value("exclude_alerts");
  static constexpr std::string_view kTrue[] = {"1", "t", "T", "true", "TRUE", "True"};
  static constexpr std::string_view kFalse[] = {"", "0", "f", "F", "false", "FALSE", "False"};
  const bool with_alerts = std::find(std::begin(kTrue), std::end(kTrue), excluded) == std::end(kTrue);
  if (with_alerts && std::find(std::begin(kFalse), std::end(kFalse), excluded) == std::end(kFalse))
    return prometheus_error("bad_data",
                            format("invalid parameter \"exclude_alerts\": \"%.40s\" is neither true nor false",
                                   as_one_line(excluded).c_str()));
  const Result<MatcherLists> any = compiled(*form);
  if (!any.ok()) return prometheus_error("bad_data", any.error());
  std::vector<GroupView> groups = all_groups(context, request.http);
  std::erase_if(groups, [&](GroupView& group) {
    if (!is_asked(form->values("rule_group[]"), group.name) || !is_asked(form->values("file[]"), group.file))
      return true;
    std::erase_if(group.rules, [&](const RuleView& rule) {
      return (!type.empty() && (type == "alert") != rule.alerting) ||
             !is_asked(form->values("rule_name[]"), rule.name) || !matches_any(*any, rule);
    });
    return group.rules.empty();
  });
  return prometheus_answer([&](JsonWriter& json) {
    json.begin_object().key("groups").begin_array();
    for (const GroupView& group : groups) {
      json.begin_object().field("name", group.name).field("file", group.file).key("rules").begin_array();
      for (const RuleView& rule : group.rules) write_rule(json, rule, with_alerts);
      json.end_array()
          .field("interval", group.interval_s)
          .field("limit", group.limit)
          .field("evaluationTime", group.seconds)
          .field("lastEvaluation", prometheus_moment(group.evaluated_unix_ns))
          .end_object();
    }
    json.end_array().end_object();
  });
}

HttpResponse prometheus_alerts(const ApiContext& context, const ApiRequest& request) {
  const std::vector<GroupView> groups = all_groups(context, request.http);
  return prometheus_answer([&](JsonWriter& json) {
    json.begin_object().key("alerts").begin_array();
    for (const GroupView& group : groups) {
      for (const RuleView& rule : group.rules) {
        for (const AlertView& alert : rule.alerts) write_alert(json, alert);
      }
    }
    json.end_array().end_object();
  });
}

}  // namespace lockstep
