// /prometheus/api/v1/rules and alerts: what diagnosis says, in the shape that alert lists read. There is one group with
// one rule for each layer that may be to blame; open verdicts are its alerts, confirmed ones fire, suspected ones are
// pending. There are no recording rules.
#include <algorithm>
#include <charconv>

#include "api/endpoints.h"
#include "api/prometheus/prometheus_answer.h"
#include "base/text.h"
#include "model/rank_text.h"
#include "store/metrics/matching.h"

namespace lockstep {
namespace {

constexpr const char* kGroup = "lockstep";
constexpr const char* kFile = "lockstep";
constexpr size_t kRanksReported = 8;

struct Rule {
  Layer layer;
  const char* name;
  const char* summary;
};
// The last one takes every layer that has no row.
constexpr Rule kRules[] = {
    {Layer::kGpu, "LockstepGpu", "A GPU holds a job back."},
    {Layer::kHost, "LockstepHost", "A host holds a job back."},
    {Layer::kInput, "LockstepInput", "Input data comes too slowly to a rank."},
    {Layer::kNvlink, "LockstepNvlink", "NVLink holds a job back."},
    {Layer::kNic, "LockstepNic", "A network card holds a job back."},
    {Layer::kLink, "LockstepLink", "A network link holds a job back."},
    {Layer::kSwitch, "LockstepSwitch", "A switch holds a job back."},
    {Layer::kSoftware, "LockstepSoftware", "A job's software holds it back, or stops it."},
    {Layer::kWorkload, "LockstepWorkload", "A job does other work than before."},
    {Layer::kUnknown, "LockstepUnknown", "A job is held back, and nothing says by what."},
};

const Rule& rule_of(const Verdict& verdict) {
  for (const Rule& rule : kRules) {
    if (verdict.culprit.layer == rule.layer) return rule;
  }
  return kRules[std::size(kRules) - 1];
}

const char* state_of(const Verdict& verdict) {
  return verdict.state == VerdictState::kSuspected ? "pending" : "firing";
}

std::vector<Verdict> open_verdicts(const ApiContext& context) {
  std::vector<Verdict> open = context.diagnosis.verdicts("");
  std::erase_if(open, [](const Verdict& verdict) { return verdict.state == VerdictState::kCleared; });
  return open;
}

// Where a person looks at it; whole where the request says under which name this server is reached.
std::string page_of(const Verdict& verdict, const ServerRequest& request) {
  std::string path = "/jobs/" + url_part(verdict.job_id);
  if (!verdict.culprit.ranks.empty()) path += format("?rank=%d", verdict.culprit.ranks.front().value());
  const std::string_view host = request.header("host");
  if (host.empty()) return path;
  const bool tls = request.header("x-forwarded-proto") == "https";
  return (tls ? "https://" : "http://") + std::string(host) + path;
}

void write_alert(JsonWriter& json, const Verdict& verdict, const ServerRequest& request) {
  const Rule& rule = rule_of(verdict);
  std::vector<std::pair<std::string, std::string>> labels{{"alertname", rule.name}};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) labels.emplace_back(name, value);
  };
  add("cause", to_text(verdict.culprit.cause));
  add("gpu", verdict.culprit.gpu_uuid);
  add("host", verdict.culprit.host);
  add("job", verdict.job_id);
  add("kind", to_text(verdict.kind));
  add("layer", to_text(rule.layer));
  add("rank", human_ranks(verdict.culprit.ranks, kRanksReported));
  add("severity", is_standstill(verdict.kind) ? "critical" : "warning");
  add("verdict", verdict.id);
  json.begin_object().key("labels");
  write_prometheus_labels(json, labels);
  json.key("annotations").begin_object().field("summary", verdict.sentence);
  if (!verdict.next.empty()) json.field("action", verdict.next.front().action);
  json.field("link", page_of(verdict, request))
      .field("evidence", "/api/verdicts/" + url_part(verdict.id))
      .end_object()
      .field("state", state_of(verdict))
      .field("activeAt", prometheus_moment(verdict.since_unix_ns > 0 ? verdict.since_unix_ns : verdict.found_unix_ns));
  // The share of the job's time that is lost, as Prometheus writes an alert's value.
  char value[32];
  const std::to_chars_result end =
      std::to_chars(value, value + sizeof value, verdict.lost_share, std::chars_format::scientific);
  json.field("value", std::string_view(value, static_cast<size_t>(end.ptr - value))).end_object();
}

void write_rule(JsonWriter& json, const Rule& rule, const std::vector<Verdict>& verdicts, bool with_alerts,
                const std::string& now, const ServerRequest& request) {
  const char* state = "inactive";
  for (const Verdict& verdict : verdicts) {
    if (&rule_of(verdict) != &rule) continue;
    state = state_of(verdict);
    if (std::string_view(state) == "firing") break;
  }
  json.begin_object()
      .field("state", state)
      .field("name", rule.name)
      .field("query", "/api/verdicts?state=open")
      .field("duration", 0)
      .field("keepFiringFor", 0)
      .key("labels")
      .begin_object()
      .field("layer", to_text(rule.layer))
      .end_object()
      .key("annotations")
      .begin_object()
      .field("summary", rule.summary)
      .end_object()
      .key("alerts");
  if (with_alerts) {
    json.begin_array();
    for (const Verdict& verdict : verdicts) {
      if (&rule_of(verdict) == &rule) write_alert(json, verdict, request);
    }
    json.end_array();
  } else {
    json.null();
  }
  json.field("health", "ok")
      .field("evaluationTime", 0)
      .field("lastEvaluation", now)
      .field("type", "alerting")
      .end_object();
}

bool is_asked(const std::vector<std::string>& wanted, std::string_view name) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
}

using MatcherLists = std::vector<metrics::CompiledMatchers>;

// By the labels that a rule itself has; an empty list lets everything through.
bool matches_any(const MatcherLists& any, const Rule& rule) {
  return any.empty() || std::any_of(any.begin(), any.end(), [&](const metrics::CompiledMatchers& all) {
           return std::all_of(all.begin(), all.end(), [&](const metrics::CompiledMatcher& matcher) {
             return matcher.matches(matcher.name() == "layer" ? to_text(rule.layer) : "");
           });
         });
}

Result<MatcherLists> compiled(const PrometheusForm& form) {
  const std::vector<std::vector<LabelMatcher>> lists = LOCKSTEP_TRY(prometheus_matchers(form));
  MatcherLists any;
  for (const std::vector<LabelMatcher>& list : lists) {
    Result<metrics::CompiledMatchers> all = metrics::compile_matchers(list, true);
    if (!all.ok()) return Error{"invalid parameter \"match[]\": " + all.error()};
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
  const std::vector<std::string> names = form->values("rule_name[]");
  std::vector<const Rule*> rules;
  if (type != "record" && is_asked(form->values("rule_group[]"), kGroup) && is_asked(form->values("file[]"), kFile)) {
    for (const Rule& rule : kRules) {
      if (is_asked(names, rule.name) && matches_any(*any, rule)) rules.push_back(&rule);
    }
  }
  const std::vector<Verdict> verdicts = rules.empty() ? std::vector<Verdict>() : open_verdicts(context);
  const std::string now = prometheus_moment(context.clock.unix_ns());
  return prometheus_answer([&](JsonWriter& json) {
    json.begin_object().key("groups").begin_array();
    if (!rules.empty()) {
      json.begin_object().field("name", kGroup).field("file", kFile).key("rules").begin_array();
      for (const Rule* rule : rules) write_rule(json, *rule, verdicts, with_alerts, now, request.http);
      json.end_array()
          .field("interval", 1)
          .field("limit", 0)
          .field("evaluationTime", 0)
          .field("lastEvaluation", now)
          .end_object();
    }
    json.end_array().end_object();
  });
}

HttpResponse prometheus_alerts(const ApiContext& context, const ApiRequest& request) {
  const std::vector<Verdict> verdicts = open_verdicts(context);
  return prometheus_answer([&](JsonWriter& json) {
    json.begin_object().key("alerts").begin_array();
    for (const Verdict& verdict : verdicts) write_alert(json, verdict, request.http);
    json.end_array().end_object();
  });
}

}  // namespace lockstep
