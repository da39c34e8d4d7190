// Something that happened on a node and is worth a line of its own: an XID, a link that went down, an OOM kill. It
// travels as an OTLP log record (docs/formats/events.md); one event may stand for many lines that say the same.
//
// Thread rule: Immutable once handed on.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "model/ids.h"
#include "model/telemetry.h"

namespace lockstep {

// kInfo: nothing to do. kApp: the program's own fault, the hardware is well. kWarn: degraded, watch it. kCritical: act.
enum class EventSeverity : uint8_t { kInfo, kApp, kWarn, kCritical };
const char* to_text(EventSeverity severity);  // "info", "app", "warn", "critical"

struct NodeEvent {
  // "gpu.xid", "gpu.lost", "gpu.appeared", "gpu.hung", "nvswitch.sxid", "pcie.aer", "nic.health", "link.down",
  // "link.up", "host.oom_kill", "host.hung_task", "host.mce", "storage.nfs", "clock.step", "agent.shedding", ...
  std::string name;
  int64_t time_unix_ns = 0;
  EventSeverity severity = EventSeverity::kInfo;
  std::string gpu_uuid;   // where it is about a GPU
  std::string device;     // else what it is about: "mlx5_3/1", "eth4", "0000:1b:00.0", "/data"
  int64_t code = -1;      // XID number; -1: none
  int64_t sub_code = -1;  // sub-unit of an NVLink5 XID, old recovery action, ...
  int64_t count = 1;      // how many alike this one stands for, since the last one was told
  int32_t pid = -1;
  std::string process;  // its name as the kernel gave it
  std::string job_id;   // whose process or GPU it was; empty: nobody's, or not known
  Rank rank = kNoRank;
  std::string text;        // the kernel's line, or ours, without line breaks
  std::string meaning;     // for a person: "GPU fell off the bus"
  std::string action;      // what to do: "drain the node, cold reboot"
  std::string source;      // "kmsg", "driver", "kmsg+driver", "sysfs", "agent"
  bool secondary = false;  // a consequence of another event near it
  bool operator==(const NodeEvent&) const = default;
};

LogRecord to_record(const NodeEvent& event);
// From bytes we did not write: every field is checked, one clear line on error. The name must have a '.'.
Result<NodeEvent> node_event_from_record(const LogRecord& record);

}  // namespace lockstep
