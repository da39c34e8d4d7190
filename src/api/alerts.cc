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

// In one word: what a list has room for.
std::string delivery_word(const AlertCenter& center, const Alert& alert, bool silenced, bool explained) {
  if (alert.firing && silenced) return "silenced";
  if (alert.firing && explained) return "explained by another";
  bool waiting = false, failed = false, delivered = false;
  for (const DeliveryState& one : alert.deliveries) {
    waiting |= one.state == "waiting";
    failed |= one.state == "failed";
    delivered |= one.state == "delivered";
  }
  if (failed) return "failed";
  if (waiting) return "waiting";
  if (delivered) return "delivered";
  const std::vector<AlertmanagerState> managers = center.alertmanagers();
  if (managers.empty()) return center.receivers().empty() ? "nobody to tell" : "not sent";
  const bool held = std::any_of(managers.begin(), managers.end(), [&](const AlertmanagerState& one) {
    return one.error.empty() && one.sent_unix_ns >= (alert.firing ? alert.starts_unix_ns : alert.ends_unix_ns);
  });
  return held ? "delivered" : "waiting";
}

void write_alert(JsonWriter& json, const AlertCenter& center, const Alert& alert) {
  const bool silenced = center.registry().is_silenced(alert);
  const std::string explained = center.registry().explained_by(alert);
  json.begin_object()
      .field("fingerprint", alert.fingerprint)
      .field("name", alert.name)
      .field("severity", to_text(alert.severity))
      .field("state", alert.firing ? "firing" : "resolved")
      .field("from_rule", alert.from_rule)
      .field("sentence",
             alert.annotation("summary").empty() ? std::string_view(alert.name) : alert.annotation("summary"));
  write_labels(json, "labels", alert.labels);
  write_labels(json, "annotations", annotations_with_link(alert, center.external_url()));
  json.field("path", alert.path.empty() ? "/alerts?id=" + alert.fingerprint : alert.path)
      .field("job_id", alert.job_id)
      .field("verdict_id", alert.verdict_id)
      .field("lost_gpu_seconds", alert.lost_gpu_seconds)
      .field("starts_unix_ns", alert.starts_unix_ns)
      .field("ends_unix_ns", alert.ends_unix_ns)
      .field("episodes", alert.episodes)
      .field("flaps", alert.flaps)
      .field("silenced", silenced)
      .field("explained_by", explained)
      .field("delivery", delivery_word(center, alert, silenced, !explained.empty()));
  write_deliveries(json, alert.deliveries);
  json.end_object();
}

void write_receivers(JsonWriter& json, const AlertCenter& center) {
  json.key("receivers").begin_array();
  for (const AlertCenter::Receiver& one : center.receivers()) {
    json.begin_object()
        .field("name", one.name)
        .field("type", one.type)
        .field("severity", to_text(one.least))
        .field("waiting", static_cast<uint64_t>(one.waiting))
        .end_object();
  }
  json.end_array().key("alertmanagers").begin_array();
  for (const AlertmanagerState& one : center.alertmanagers()) {
    json.begin_object()
        .field("url", one.url)
        .field("sent_unix_ns", one.sent_unix_ns)
        .field("error", one.error)
        .end_object();
  }
  json.end_array();
}

// How often each alert was right, as people said of its verdicts.
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
    json.begin_object()
        .field("name", name)
        .field("episodes", row.episodes)
        .field("flaps", row.flaps)
        .field("right", row.right)
        .field("wrong", row.wrong)
        .key("precision");
    const int64_t judged = row.right + row.wrong;
    judged == 0 ? json.null() : json.number(static_cast<double>(row.right) / static_cast<double>(judged));
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
  std::vector<Alert> alerts = center.registry().alerts();
  if (state != "all") std::erase_if(alerts, [](const Alert& alert) { return !alert.firing; });
  const size_t total = alerts.size();
  if (alerts.size() > static_cast<size_t>(*limit)) alerts.resize(static_cast<size_t>(*limit));
  JsonWriter json;
  json.begin_object();
  write_receivers(json, center);
  json.key("alerts").begin_array();
  for (const Alert& alert : alerts) write_alert(json, center, alert);
  return list_answer(json, total, alerts.size());
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
