// The agent's counters about itself, one row each.
#pragma once

#include <span>

#include "base/counters.h"

namespace lockstep {

inline constexpr CounterDescriptor kAgentCounters[] = {
    {"lockstep_agent_recorders", "gauge", Severity::kInfo, "Flight recorders being read now."},
    {"lockstep_agent_recorder_records_total", "counter", Severity::kInfo, "Records read from flight recorders."},
    {"lockstep_agent_recorder_lost_total", "counter", Severity::kDataLoss,
     "Records lost before they were read, by reason: overwritten in the ring, torn by a dying writer, orphaned."},
    {"lockstep_agent_recorder_refused_total", "counter", Severity::kNotice,
     "Files in the recorder folder that could not be read as a recorder."},
    {"lockstep_agent_plugin_refused_total", "counter", Severity::kDataLoss,
     "Events the plugin could not record (no free lane or handle), by reason, over all processes."},
    {"lockstep_agent_records_total", "counter", Severity::kInfo,
     "Telemetry records made for export: passed + refused + dropped + queued."},
    {"lockstep_agent_records_passed_total", "counter", Severity::kInfo,
     "Telemetry records the server has acknowledged (or that were written to the export folder)."},
    {"lockstep_agent_records_refused_total", "counter", Severity::kDataLoss,
     "Telemetry records the server refused, by reason."},
    {"lockstep_agent_records_dropped_total", "counter", Severity::kDataLoss,
     "Telemetry records dropped here, by reason."},
    {"lockstep_agent_records_queued", "gauge", Severity::kInfo, "Telemetry records waiting in memory or in the spool."},
    {"lockstep_agent_spool_bytes", "gauge", Severity::kNotice, "Bytes waiting in the spool on disk."},
    {"lockstep_agent_export_requests_total", "counter", Severity::kInfo,
     "Export requests by result code (0: no answer)."},
    {"lockstep_agent_export_bytes_total", "counter", Severity::kInfo, "Bytes sent, compressed."},
};

}  // namespace lockstep
