#include "alert/notify_messages.h"

#include "base/base64.h"
#include "base/json_writer.h"
#include "base/text.h"
#include "base/utc_time.h"
#include "model/runbook.h"

namespace lockstep {
namespace {

constexpr size_t kTextBytesMax = 1500;  // of one alert's sentence in a chat or a mail
constexpr size_t kListedMax = 20;       // alerts in one message
constexpr size_t kPagerDutySummaryMax = 1024;
constexpr size_t kSubjectMax = 160;

std::string cut(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return std::string(text);
  return std::string(utf8_prefix(text, bytes_max - 3)) + "...";
}

std::string sentence_of(const Alert& alert) {
  std::string_view text = alert.annotation("summary");
  if (text.empty()) text = alert.annotation("description");
  return cut(text.empty() ? std::string_view(alert.name) : text, kTextBytesMax);
}

const char* status_of(const Alert& alert) {
  return alert.firing ? "firing" : "resolved";
}

std::string times_of(const Alert& alert) {
  const std::string since = utc_time(alert.starts_unix_ns / 1'000'000, "%Y-%m-%d %H:%M:%S UTC");
  if (alert.firing) return "since " + since;
  return since + " to " + utc_time(alert.ends_unix_ns / 1'000'000, "%H:%M:%S UTC");
}

std::string title_of(std::span<const Delivery> deliveries) {
  const Alert& first = deliveries.front().alert;
  std::string title =
      format("[%s%s] %s", first.firing ? "FIRING" : "RESOLVED",
             deliveries.size() > 1 ? format(":%zu", deliveries.size()).c_str() : "", first.name.c_str());
  for (const char* name : {"job", "host", "service"}) {
    if (deliveries.size() == 1 && !first.label(name).empty()) return title + " " + std::string(first.label(name));
  }
  return title;
}

// Empty where no incident is known.
std::string incident_link(const Alert& alert, std::string_view external_url) {
  const std::string_view path = alert.annotation("incident");
  return path.empty() ? std::string() : absolute_link(path, external_url);
}

// The page on its cause. A rule's own annotation stays: its label "cause" means what its author wants.
std::string runbook_link(const Alert& alert, std::string_view external_url) {
  const std::optional<Cause> cause = term_of<Cause>(alert.label("cause"));
  return alert.from_rule || !cause ? std::string() : absolute_link(runbook_of(*cause), external_url);
}

// Slack's own marks: what others sent must not become a link or call everybody.
std::string slack_text(std::string_view text) {
  std::string safe;
  for (const char one : text) {
    if (one == '&')
      safe += "&amp;";
    else if (one == '<')
      safe += "&lt;";
    else if (one == '>')
      safe += "&gt;";
    else
      safe += one;
  }
  return safe;
}

const char* slack_color(const Alert& alert) {
  if (!alert.firing) return "good";
  return alert.severity == AlertSeverity::kCritical  ? "danger"
         : alert.severity == AlertSeverity::kWarning ? "warning"
                                                     : "#888888";
}

// RFC 2047, so that any text is one harmless line.
std::string encoded_words(std::string_view text) {
  std::string line;
  while (!text.empty()) {
    const std::string_view word = utf8_prefix(text, 45);
    line += (line.empty() ? "" : "\r\n ") + ("=?utf-8?B?" + base64(word) + "?=");
    text.remove_prefix(word.size());
  }
  return line;
}

// Base64 in lines of 76: nothing in it can end the message or begin a command.
std::string encoded_body(std::string_view text) {
  const std::string all = base64(text);
  std::string lines;
  for (size_t at = 0; at < all.size(); at += 76) lines += all.substr(at, 76) + "\r\n";
  return lines;
}

}  // namespace

std::string message_id(std::span<const Delivery> deliveries) {
  Labels ids;
  for (const Delivery& delivery : deliveries) ids.emplace_back("id", delivery.id);
  return fingerprint_of(ids);
}

std::string shown_answer(std::string body, std::initializer_list<std::string_view> secrets) {
  constexpr size_t kPieceBytesMin = 6, kShownBytes = 200;
  for (std::string_view secret : secrets) {
    while (!secret.empty()) {
      const size_t end = std::min(secret.find_first_of("/?&="), secret.size());
      const std::string_view piece = secret.substr(0, end);
      secret.remove_prefix(std::min(end + 1, secret.size()));
      if (piece.size() < kPieceBytesMin) continue;
      for (size_t at = 0; (at = body.find(piece, at)) != std::string::npos; at += 3)
        body.replace(at, piece.size(), "...");
    }
  }
  return as_one_line(utf8_prefix(body, kShownBytes));
}

std::string absolute_link(std::string_view path, std::string_view external_url) {
  while (external_url.ends_with('/')) external_url.remove_suffix(1);
  return std::string(external_url) + std::string(path);
}

std::string link_of(const Alert& alert, std::string_view external_url) {
  return absolute_link(alert.path.empty() ? "/alerts?id=" + alert.fingerprint : alert.path, external_url);
}

Labels annotations_with_link(const Alert& alert, std::string_view external_url) {
  Labels annotations = alert.annotations;
  set_label(annotations, "link", link_of(alert, external_url));
  set_label(annotations, "incident", incident_link(alert, external_url));
  if (const std::string link = runbook_link(alert, external_url); !link.empty())
    set_label(annotations, "runbook_url", link);
  if (alert.flaps > 0)
    set_label(annotations, "flapping", format("came back %lld times", static_cast<long long>(alert.flaps)));
  return annotations;
}

std::string alertmanager_body(std::span<const Alert> alerts, std::string_view external_url, int64_t now_unix_ms,
                              int64_t hold_ms) {
  JsonWriter json;
  json.begin_array();
  for (const Alert& alert : alerts) {
    json.begin_object();
    write_labels(json, "labels", alert.labels);
    write_labels(json, "annotations", annotations_with_link(alert, external_url));
    json.field("startsAt", utc_time(alert.starts_unix_ns / 1'000'000))
        .field("endsAt", utc_time(alert.firing ? now_unix_ms + hold_ms : alert.ends_unix_ns / 1'000'000));
    // A URI, or Alertmanager refuses the whole list.
    if (external_url.starts_with("http")) json.field("generatorURL", link_of(alert, external_url));
    json.end_object();
  }
  json.end_array();
  return json.take();
}

std::string webhook_body(std::span<const Delivery> deliveries, std::string_view external_url) {
  const Alert& first = deliveries.front().alert;
  JsonWriter json;
  json.begin_object()
      .field("version", "4")
      .field("groupKey", format("{}:{alertname=\"%s\"}", first.name.c_str()))
      .field("truncatedAlerts", 0)
      .field("status", status_of(first))
      .field("receiver", deliveries.front().receiver);
  write_labels(json, "groupLabels", {{"alertname", first.name}});
  write_labels(json, "commonLabels", {{"alertname", first.name}});
  write_labels(json, "commonAnnotations", {});
  json.field("externalURL", external_url).key("alerts").begin_array();
  for (const Delivery& delivery : deliveries) {
    const Alert& alert = delivery.alert;
    json.begin_object().field("status", status_of(alert));
    write_labels(json, "labels", alert.labels);
    write_labels(json, "annotations", annotations_with_link(alert, external_url));
    json.field("startsAt", utc_time(alert.starts_unix_ns / 1'000'000))
        .field("endsAt", alert.firing ? "0001-01-01T00:00:00Z" : utc_time(alert.ends_unix_ns / 1'000'000))
        .field("generatorURL", link_of(alert, external_url))
        .field("fingerprint", alert.fingerprint)
        .field("notification", delivery.id)
        .field("verdict", alert.verdict_id)
        .field("lost_gpu_seconds", alert.lost_gpu_seconds)
        .end_object();
  }
  json.end_array().end_object();
  return json.take();
}

std::string slack_body(std::span<const Delivery> deliveries, std::string_view external_url, std::string_view channel) {
  JsonWriter json;
  json.begin_object();
  if (!channel.empty()) json.field("channel", channel);
  json.field("text", slack_text(title_of(deliveries))).key("attachments").begin_array();
  for (size_t i = 0; i < std::min(deliveries.size(), kListedMax); ++i) {
    const Alert& alert = deliveries[i].alert;
    json.begin_object()
        .field("color", slack_color(alert))
        .field("fallback", slack_text(sentence_of(alert)))
        .field("title", slack_text(alert.name))
        .field("title_link", link_of(alert, external_url))
        .field("text", slack_text(sentence_of(alert)))
        .key("fields")
        .begin_array();
    const auto field = [&](const char* name, std::string_view value) {
      if (value.empty()) return;
      json.begin_object()
          .field("title", name)
          .field("value", slack_text(cut(value, 300)))
          .field("short", true)
          .end_object();
    };
    field("When", times_of(alert));
    field("Cost", alert.annotation("cost"));
    field("Do", alert.annotation("action"));
    field("Incident", incident_link(alert, external_url));
    field("Runbook", runbook_link(alert, external_url));
    json.end_array().end_object();
  }
  json.end_array().end_object();
  return json.take();
}

std::string pagerduty_body(const Delivery& delivery, std::string_view external_url, std::string_view routing_key) {
  const Alert& alert = delivery.alert;
  JsonWriter json;
  json.begin_object()
      .field("routing_key", routing_key)
      .field("event_action", alert.firing ? "trigger" : "resolve")
      // Twice the same is one incident there.
      .field("dedup_key",
             format("lockstep-%s-%lld", alert.fingerprint.c_str(), static_cast<long long>(alert.starts_unix_ns)))
      .field("client", "Lockstep")
      .field("client_url", link_of(alert, external_url))
      .key("payload")
      .begin_object()
      .field("summary", cut(sentence_of(alert), kPagerDutySummaryMax))
      .field("source", alert.label("host").empty() ? std::string_view("lockstep") : alert.label("host"))
      .field("severity", to_text(alert.severity))
      .field("timestamp", utc_time(alert.starts_unix_ns / 1'000'000))
      .field("component", alert.label("component"))
      .field("group", alert.job_id)
      .field("class", alert.label("cause").empty() ? std::string_view(alert.name) : alert.label("cause"))
      .key("custom_details")
      .begin_object();
  for (const auto& [name, value] : annotations_with_link(alert, external_url))
    json.field(name, cut(value, kTextBytesMax));
  for (const auto& [name, value] : alert.labels) json.field("label_" + name, cut(value, 300));
  json.end_object().end_object().key("links").begin_array();
  if (external_url.starts_with("http"))
    json.begin_object().field("href", link_of(alert, external_url)).field("text", "Evidence").end_object();
  json.end_array().end_object();
  return json.take();
}

std::string mail_text(std::span<const Delivery> deliveries, std::string_view external_url, std::string_view from,
                      const std::vector<std::string>& to, int64_t now_unix_ms) {
  std::string recipients;
  for (const std::string& one : to) recipients += (recipients.empty() ? "" : ",\r\n ") + one;
  std::string body;
  for (size_t i = 0; i < std::min(deliveries.size(), kListedMax); ++i) {
    const Alert& alert = deliveries[i].alert;
    body += sentence_of(alert) + "\r\n\r\n  " + alert.name + ", " + to_text(alert.severity) + ", " + times_of(alert) +
            "\r\n";
    for (const char* name : {"cost", "action", "runbook"}) {
      if (!alert.annotation(name).empty()) body += format("  %s: ", name) + cut(alert.annotation(name), 600) + "\r\n";
    }
    body += "  evidence: " + link_of(alert, external_url) + "\r\n";
    if (const std::string link = incident_link(alert, external_url); !link.empty())
      body += "  incident: " + link + "\r\n";
    if (const std::string link = runbook_link(alert, external_url); !link.empty())
      body += "  what to do: " + link + "\r\n";
    body += "\r\n";
  }
  if (deliveries.size() > kListedMax) body += format("and %zu more\r\n", deliveries.size() - kListedMax);
  const std::string id = fingerprint_of({{"id", message_id(deliveries)}, {"to", recipients}});
  return "From: " + std::string(from) + "\r\nTo: " + recipients + "\r\nSubject: " +
         encoded_words(
             as_one_line(cut(title_of(deliveries) + ": " + sentence_of(deliveries.front().alert), kSubjectMax))) +
         "\r\nDate: " + utc_time(now_unix_ms, "%a, %d %b %Y %H:%M:%S +0000") +
         // The same in every attempt: mailboxes drop the second.
         "\r\nMessage-ID: <" + id + "@lockstep>" +
         "\r\nAuto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8"
         "\r\nContent-Transfer-Encoding: base64\r\n\r\n" +
         encoded_body(body);
}

}  // namespace lockstep
