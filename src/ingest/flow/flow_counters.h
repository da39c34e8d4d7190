// Rows of the counter table that receivers of network telemetry, and what they feed, count in.
//
// Thread rule: Immutable.
#pragma once

#include "base/counters.h"

namespace lockstep {

inline constexpr CounterDescriptor kFlowCounters[] = {
    // received = decoded + refused + dropped + those in the queue.
    {"lockstep_flow_datagrams_total", "counter", Severity::kInfo,
     "Datagrams of sFlow, NetFlow and IPFIX that were read from the socket, by receiver (sflow, ipfix)."},
    {"lockstep_flow_datagrams_decoded_total", "counter", Severity::kInfo, "Those that were decoded, by receiver."},
    {"lockstep_flow_datagrams_refused_total", "counter", Severity::kNotice,
     "Those that were refused, by receiver and reason: exporter (not in --flow-exporters), malformed, limit (too many "
     "exporters), failed (an exception)."},
    {"lockstep_flow_datagrams_dropped_total", "counter", Severity::kDataLoss,
     "Those that were dropped because the queue was full, by receiver."},
    {"lockstep_flow_kernel_drops_total", "counter", Severity::kDataLoss,
     "Datagrams that the kernel dropped because nobody read them in time, by receiver."},
    {"lockstep_flow_lost_total", "counter", Severity::kDataLoss,
     "What is missing by the exporters' sequence numbers, by receiver and what: datagrams, records (IPFIX)."},
    {"lockstep_flow_late_total", "counter", Severity::kInfo,
     "Datagrams that came behind later ones, by receiver: they were counted as lost before."},
    {"lockstep_flow_exporter_drops_total", "counter", Severity::kNotice,
     "Samples that switches had and could not send, by receiver."},
    {"lockstep_flow_samples_total", "counter", Severity::kInfo,
     "What was in them, by receiver and what: flows, ports (counters of one), skipped (kinds that are not read)."},
    {"lockstep_flow_sets_without_template_total", "counter", Severity::kNotice,
     "Sets of an unknown number of records whose template has not come yet (NetFlow, IPFIX)."},
    {"lockstep_flow_templates_changed_total", "counter", Severity::kNotice,
     "Templates that came again with other fields."},
    {"lockstep_flow_templates", "gauge", Severity::kInfo, "Templates that are held (NetFlow, IPFIX)."},
    {"lockstep_flow_exporters", "gauge", Severity::kInfo, "Exporters and their domains that are known, by receiver."},
    {"lockstep_flow_rows", "gauge", Severity::kInfo, "Rows in the table of recent flows."},
    {"lockstep_flow_rows_replaced_total", "counter", Severity::kNotice,
     "Rows of that table, small ones, that gave way because a minute had too many."},
    {"lockstep_flow_ports", "gauge", Severity::kInfo, "Ports of switches that are known."},
    {"lockstep_flow_switches_left_out_total", "counter", Severity::kDataLoss,
     "Datagrams of switches beyond the limit on their number."},
    {"lockstep_port_samples_dropped_total", "counter", Severity::kDataLoss,
     "Samples of ports that were not written: too many ports or samples at a time, or the store took none."},
};

}  // namespace lockstep
