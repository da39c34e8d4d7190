#include "alert/alert.h"

#include <algorithm>

#include "base/sha256.h"
#include "model/series_labels.h"

namespace lockstep {

const char* to_text(AlertSeverity severity) {
  static constexpr const char* kNames[] = {"info", "warning", "critical"};
  return kNames[static_cast<size_t>(severity)];
}

AlertSeverity severity_of(std::string_view text) {
  for (const char* name : {"critical", "page", "error", "fatal", "emergency"}) {
    if (text == name) return AlertSeverity::kCritical;
  }
  for (const char* name : {"info", "none", "notice", "debug"}) {
    if (text == name) return AlertSeverity::kInfo;
  }
  return AlertSeverity::kWarning;
}

std::string_view Alert::annotation(std::string_view wanted) const {
  return label_value(annotations, wanted);
}

std::string_view Alert::label(std::string_view wanted) const {
  return label_value(labels, wanted);
}

std::string fingerprint_of(const Labels& parts) {
  std::string bytes;
  for (const auto& [name, value] : parts) {
    bytes.append(name).push_back('\0');
    bytes.append(value).push_back('\0');
  }
  return to_text(sha256(bytes)).substr(0, 16);
}

void write_deliveries(JsonWriter& json, const std::vector<DeliveryState>& deliveries) {
  json.key("deliveries").begin_array();
  for (const DeliveryState& one : deliveries) {
    json.begin_object()
        .field("receiver", one.receiver)
        .field("status", one.status)
        .field("state", one.state)
        .field("at_unix_ns", one.at_unix_ns)
        .field("attempts", one.attempts)
        .field("error", one.error)
        .end_object();
  }
  json.end_array();
}

void write_labels(JsonWriter& json, std::string_view key, const Labels& labels) {
  json.key(key).begin_object();
  for (const auto& [name, value] : labels) json.field(name, value);
  json.end_object();
}

Labels read_labels(const JsonValue& object) {
  Labels labels;
  for (const JsonValue member : object) labels.emplace_back(member.key(), member.string().value_or(""));
  std::sort(labels.begin(), labels.end());
  return labels;
}

void set_label(Labels& labels, std::string_view name, std::string_view value) {
  const auto at = std::lower_bound(labels.begin(), labels.end(), name,
                                   [](const auto& one, auto wanted) { return one.first < wanted; });
  const bool is_there = at != labels.end() && at->first == name;
  if (value.empty()) {
    if (is_there) labels.erase(at);
  } else if (is_there) {
    at->second = value;
  } else {
    labels.emplace(at, name, value);
  }
}

std::string to_json(const Alert& alert) {
  JsonWriter json;
  json.begin_object()
      .field("fingerprint", alert.fingerprint)
      .field("name", alert.name)
      .field("severity", to_text(alert.severity))
      .field("firing", alert.firing)
      .field("from_rule", alert.from_rule);
  write_labels(json, "labels", alert.labels);
  write_labels(json, "annotations", alert.annotations);
  json.field("job_id", alert.job_id)
      .field("verdict_id", alert.verdict_id)
      .field("path", alert.path)
      .field("lost_gpu_seconds", alert.lost_gpu_seconds)
      .field("starts_unix_ns", alert.starts_unix_ns)
      .field("ends_unix_ns", alert.ends_unix_ns)
      .field("updated_unix_ns", alert.updated_unix_ns)
      .field("notified_unix_ns", alert.notified_unix_ns)
      .field("episodes", alert.episodes)
      .field("flaps", alert.flaps)
      .field("sources", static_cast<uint64_t>(alert.sources))
      .field("until_unix_ns", alert.until_unix_ns);
  write_deliveries(json, alert.deliveries);
  json.end_object();
  return json.take();
}

Result<Alert> alert_from_json(const JsonValue& json) {
  Alert alert;
  const auto text = [](const JsonValue& object, std::string_view key) { return object[key].string().value_or(""); };
  const auto number = [](const JsonValue& object, std::string_view key) { return object[key].integer().value_or(0); };
  alert.fingerprint = text(json, "fingerprint");
  alert.name = text(json, "name");
  alert.starts_unix_ns = number(json, "starts_unix_ns");
  if (alert.fingerprint.empty() || alert.name.empty() || alert.starts_unix_ns == 0)
    return Error{"an alert without fingerprint, name or start"};
  alert.severity = severity_of(text(json, "severity"));
  alert.firing = json["firing"].boolean().value_or(false);
  alert.from_rule = json["from_rule"].boolean().value_or(false);
  alert.labels = read_labels(json["labels"]);
  alert.annotations = read_labels(json["annotations"]);
  alert.job_id = text(json, "job_id");
  alert.verdict_id = text(json, "verdict_id");
  alert.path = text(json, "path");
  alert.lost_gpu_seconds = json["lost_gpu_seconds"].number().value_or(0);
  alert.ends_unix_ns = number(json, "ends_unix_ns");
  alert.updated_unix_ns = number(json, "updated_unix_ns");
  alert.notified_unix_ns = number(json, "notified_unix_ns");
  alert.episodes = number(json, "episodes");
  alert.flaps = number(json, "flaps");
  alert.sources = static_cast<uint32_t>(number(json, "sources"));
  alert.until_unix_ns = number(json, "until_unix_ns");
  for (const JsonValue one : json["deliveries"])
    alert.deliveries.push_back({text(one, "receiver"), text(one, "status"), text(one, "state"),
                                number(one, "at_unix_ns"), number(one, "attempts"), text(one, "error")});
  return alert;
}

}  // namespace lockstep
