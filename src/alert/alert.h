// An alert: one cause at one component that somebody should hear of, while it lasts and once it is over.
//
// Labels are what receivers know an alert by (Alertmanager groups and silences by them), so they stay as they were when
// it began to fire; the sentence, the cost and other annotations are brought up to date while it lasts.
// Thread rule: Immutable once handed on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_reader.h"
#include "base/json_writer.h"
#include "base/result.h"
#include "model/metric_descriptor.h"

namespace lockstep {

enum class AlertSeverity : uint8_t { kInfo, kWarning, kCritical };
const char* to_text(AlertSeverity severity);  // "info", "warning", "critical"
// Anything else that a rule's label may say counts as warning.
AlertSeverity severity_of(std::string_view text);

// Who says that it is so. An alert fires while any of them does.
enum class AlertSource : uint8_t { kVerdict, kEvent, kMetric, kMfu, kTelemetry, kWarning, kInference, kRule };
inline constexpr size_t kAlertSources = 8;

// Where one notification stands, for one receiver.
struct DeliveryState {
  std::string receiver;
  std::string status;  // "firing", "resolved": what it says
  std::string state;   // "waiting", "delivered", "failed"
  int64_t at_unix_ns = 0;
  int64_t attempts = 0;
  std::string error;  // of the last attempt; one line, without secrets
  bool operator==(const DeliveryState&) const = default;
};

struct Alert {
  std::string fingerprint;  // of cause and component, or of a rule's labels: 16 hex digits
  std::string name;         // "LockstepHang"
  AlertSeverity severity = AlertSeverity::kWarning;
  bool firing = false;     // else resolved
  bool from_rule = false;  // of a user's rule, which waits by itself (for, keep_firing_for): it is not held
  Labels labels;           // sorted, with "alertname" and "severity"
  Labels annotations;      // "summary" (the sentence), "cost", "action", "runbook"; of a rule: its own
  std::string job_id;      // whose page shows it; empty: none's
  std::string verdict_id;  // the newest verdict that says so; empty: none does
  std::string path;        // of the page with the evidence: "/jobs/llm?rank=5"
  double lost_gpu_seconds = 0;
  int64_t starts_unix_ns = 0;
  int64_t ends_unix_ns = 0;               // 0: it fires
  int64_t updated_unix_ns = 0;            // last seen
  int64_t notified_unix_ns = 0;           // receivers were told of this episode; 0: nobody was
  int64_t episodes = 0;                   // how often it has begun to fire
  int64_t flaps = 0;                      // of these, soon after it was over: it is held longer each time
  uint32_t sources = 0;                   // a bit for each AlertSource that says so now
  int64_t until_unix_ns = 0;              // what kEvent said holds until then
  std::vector<DeliveryState> deliveries;  // of this episode

  bool operator==(const Alert&) const = default;
  std::string_view annotation(std::string_view name) const;
  std::string_view label(std::string_view name) const;
  bool has(AlertSource source) const { return (sources >> static_cast<uint32_t>(source) & 1u) != 0; }
};

std::string fingerprint_of(const Labels& parts);
// {"a":"b"}: labels and annotations as every receiver wants them.
void write_labels(JsonWriter& json, std::string_view key, const Labels& labels);
void write_deliveries(JsonWriter& json, const std::vector<DeliveryState>& deliveries);
Labels read_labels(const JsonValue& object);
void set_label(Labels& labels, std::string_view name, std::string_view value);  // keeps them sorted; "" takes it away

// As it is kept on disk. Reads its own writing and nothing else: an error where a field is missing.
std::string to_json(const Alert& alert);
Result<Alert> alert_from_json(const JsonValue& json);

}  // namespace lockstep
