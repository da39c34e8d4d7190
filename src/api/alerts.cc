// GET /api/alerts: which alerts fire, which are over, and whether those who should know were told. Silences of them.
#include <algorithm>
#include <map>
#include <set>

#include "alert/alert_center.h"
#include "alert/builtin_alerts.h"
#include "alert/notify_messages.h"
#include "api/answer.h"
#include "api/endpoints.h"
#include "base/text.h"
#include "net/caller.h"

namespace lockstep {
namespace {

HttpResponse no_alerts() {
  return error_answer(501, "this server keeps no alerts");
}

// Whom this server tells.
struct Told {
  std::vector<AlertCenter::Receiver> receivers;
  std::vector<AlertmanagerState> alertmanagers;
};

// In one word: what a list has room for.
std::string delivery_word(const Told& told, const AlertRegistry::View& view) {
  const Alert& alert = view.alert;
  if (view.silenced) return "silenced";
  if (!view.explained_by.empty()) return "explained by another";
  bool waiting = false, failed = false, delivered = false;
  for (const DeliveryState& one : alert.deliveries) {
    waiting |= one.state == "waiting";
    failed |= one.state == "failed";
    delivered |= one.state == "delivered";
  }
  if (failed) return "failed";
  if (waiting) return "waiting";
  if (delivered) return "delivered";
  if (told.alertmanagers.empty()) return told.receivers.empty() ? "nobody to tell" : "not sent";
  const int64_t since = alert.firing ? alert.starts_unix_ns : alert.ends_unix_ns;
  const bool held =
      std::any_of(told.alertmanagers.begin(), told.alertmanagers.end(),
                  [&](const AlertmanagerState& one) { return one.error.empty() && one.sent_unix_ns >= since; });
  return held ? "delivered" : "waiting";
}

void write_alert(JsonWriter& json, const Told& told, const std::string& external_url, const AlertRegistry::View& view) {
  const Alert& alert = view.alert;
  json.begin_object()
      .field("fingerprint", alert.fingerprint)
      .field("name", alert.name)
      .field("severity", to_text(alert.severity))
      .field("state", alert.firing ? "firing" : "resolved")
      .field("from_rule", alert.from_rule)
      .field("sentence",
             alert.annotation("summary").empty() ? std::string_view(alert.name) : alert.annotation("summary"));
  write_labels(json, "labels", alert.labels);
  write_labels(json, "annotations", annotations_with_link(alert, external_url));
  json.field("path", alert.path.empty() ? "/alerts?id=" + alert.fingerprint : alert.path)
      .field("job_id", alert.job_id)
      .field("verdict_id", alert.verdict_id)
      .field("lost_gpu_seconds", alert.lost_gpu_seconds)
      .field("starts_unix_ns", alert.starts_unix_ns)
      .field("ends_unix_ns", alert.ends_unix_ns)
      .field("episodes", alert.episodes)
      .field("flaps", alert.flaps)
      .field("silenced", view.silenced)
      .field("explained_by", view.explained_by)
      .field("delivery", delivery_word(told, view));
  write_deliveries(json, alert.deliveries);
  json.end_object();
}

void write_receivers(JsonWriter& json, const Told& told) {
  json.key("receivers").begin_array();
  for (const AlertCenter::Receiver& one : told.receivers) {
    json.begin_object()
        .field("name", one.name)
        .field("type", one.type)
        .field("severity", to_text(one.least))
        .field("waiting", static_cast<uint64_t>(one.waiting))
        .end_object();
  }
  json.end_array().key("alertmanagers").begin_array();
  for (const AlertmanagerState& one : told.alertmanagers) {
    json.begin_object()
        .field("url", one.url)
        .field("sent_unix_ns", one.sent_unix_ns)
        .field("error", one.error)
        .end_object();
  }
  json.end_array();
}

// null: nobody has said.
void write_precision(JsonWriter& json, int64_t right, int64_t wrong) {
  json.field("right", right).field("wrong", wrong).key("precision");
  right + wrong == 0 ? json.null() : json.number(static_cast<double>(right) / static_cast<double>(right + wrong));
}

// How often each alert was right, and each cause, as people said of verdicts.
HttpResponse noise_answer(const ApiContext& context, const AlertCenter& center) {
  struct Row {
    int64_t episodes = 0, flaps = 0, right = 0, wrong = 0;
  };
  std::map<std::string, Row> rows;
  for (const Alert& alert : center.registry().alerts()) {
    Row& row = rows[alert.name];
    row.episodes += alert.episodes;
    row.flaps += alert.flaps;
    if (context.feedback == nullptr || alert.verdict_id.empty()) continue;
    const std::optional<VerdictFeedback> said = context.feedback->of(alert.verdict_id);
    if (said) ++(said->right ? row.right : row.wrong);
  }
  JsonWriter json;
  json.begin_object().key("noise").begin_array();
  for (const auto& [name, row] : rows) {
    json.begin_object().field("name", name).field("episodes", row.episodes).field("flaps", row.flaps);
    write_precision(json, row.right, row.wrong);
    json.end_object();
  }
  std::map<Cause, Row> causes;
  for (const VerdictFeedback& said : context.state.feedback()) {
    Row& row = causes[said.said];
    ++(said.right ? row.right : row.wrong);
  }
  json.end_array().key("causes").begin_array();
  for (const auto& [cause, row] : causes) {
    json.begin_object().field("cause", to_text(cause));
    write_precision(json, row.right, row.wrong);
    json.end_object();
  }
  json.end_array().end_object();
  return json_answer(json);
}

}  // namespace

HttpResponse get_alerts(const ApiContext& context, const ApiRequest& request) {
  if (context.alerts == nullptr) return no_alerts();
  const AlertCenter& center = *context.alerts;
  const std::string state = request.http.parameter("state");
  const Result<int64_t> limit = int_parameter(request.http, "limit", 500, 1, 10'000);
  if (!limit.ok()) return error_answer(400, limit.error());
  if (state == "noise") return noise_answer(context, center);
  if (!state.empty() && state != "firing" && state != "all") return error_answer(400, "state is firing, all or noise");
  std::vector<AlertRegistry::View> views = center.registry().views(state == "all");
  const size_t total = views.size();
  if (views.size() > static_cast<size_t>(*limit)) views.resize(static_cast<size_t>(*limit));
  const Told told{center.receivers(), center.alertmanagers()};
  JsonWriter json;
  json.begin_object();
  write_receivers(json, told);
  json.key("alerts").begin_array();
  for (const AlertRegistry::View& view : views) write_alert(json, told, center.external_url(), view);
  return list_answer(json, total, views.size());
}

HttpResponse get_alert_table(const ApiContext&, const ApiRequest&) {
  JsonWriter json;
  json.begin_object().key("alerts").begin_array();
  for (const BuiltinAlert& row : builtin_alerts()) {
    json.begin_object()
        .field("name", row.name)
        .field("severity", to_text(row.severity))
        .field("raised_by", row.raised_by)
        .field("within", row.within)
        .field("runbook", row.runbook)
        .end_object();
  }
  json.end_array().end_object();
  return json_answer(json);
}

HttpResponse get_actions(const ApiContext& context, const ApiRequest& request) {
  if (context.alerts == nullptr) return no_alerts();
  const Result<int64_t> limit = int_parameter(request.http, "limit", 100, 1, 1'000);
  if (!limit.ok()) return error_answer(400, limit.error());
  const ActionRunner& runner = context.alerts->actions();
  JsonWriter json;
  json.begin_object().key("actions").begin_array();
  for (const ActionConfig& action : runner.actions()) {
    json.begin_object()
        .field("name", action.name)
        .field("type", action.command.empty() ? "webhook" : "command")
        .field("command", action.command)
        .field("limit", action.limit)
        .field("every_s", action.every_ms / 1'000)
        .key("causes")
        .begin_object();
    for (const auto& [cause, mode] : action.causes) json.field(to_text(cause), to_text(mode));
    json.end_object().end_object();
  }
  json.end_array().key("runs").begin_array();
  std::vector<ActionRun> runs = runner.runs();
  const size_t total = runs.size();
  if (runs.size() > static_cast<size_t>(*limit)) runs.resize(static_cast<size_t>(*limit));
  for (const ActionRun& run : runs) {
    json.begin_object()
        .field("action", run.action)
        .field("state", to_text(run.state))
        .field("verdict_id", run.verdict_id)
        .field("job_id", run.job_id)
        .field("cause", run.cause)
        .field("host", run.host)
        .field("sentence", run.sentence)
        .field("line", run.line)
        .field("at_unix_ns", run.at_unix_ns)
        .end_object();
  }
  return list_answer(json, total, runs.size());
}

HttpResponse get_silences(const ApiContext& context, const ApiRequest&) {
  if (context.alerts == nullptr) return no_alerts();
  JsonWriter json;
  json.begin_object().key("silences").begin_array();
  const int64_t now = context.clock.unix_ns();
  for (const Silence& silence : context.alerts->registry().silences()) write_silence(json, silence, now);
  json.end_array().end_object();
  return json_answer(json);
}

HttpResponse post_silences(const ApiContext& context, const ApiRequest& request) {
  if (context.alerts == nullptr) return no_alerts();
  Result<Silence> asked = silence_from_request(request.http.body, context.clock.unix_ns());
  if (!asked.ok()) return error_answer(400, asked.error());
  asked->created_by = request.http.caller.name;
  request.object = asked->matchers;
  Result<Silence> added = context.alerts->registry().add_silence(std::move(*asked));
  if (!added.ok()) return error_answer(503, added.error());
  JsonWriter json;
  write_silence(json, *added, context.clock.unix_ns());
  return json_answer(json);
}

HttpResponse post_silence_end(const ApiContext& context, const ApiRequest& request) {
  if (context.alerts == nullptr) return no_alerts();
  const Result<void> ended = context.alerts->registry().end_silence(request.name);
  if (!ended.ok()) return error_answer(ended.code() == ErrorCode::kNotFound ? 404 : 503, ended.error());
  return get_silences(context, request);
}

}  // namespace lockstep
