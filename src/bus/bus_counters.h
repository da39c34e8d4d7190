// Rows of the counter table that the bus between machines counts in.
// written: asked = written + refused. read: received = applied + refused + dropped.
#pragma once

#include "base/counters.h"

namespace lockstep {

inline constexpr CounterDescriptor kBusCounters[] = {
    {"lockstep_bus_records_asked_total", "counter", Severity::kInfo, "Records a gateway was to write to the bus."},
    {"lockstep_bus_records_written_total", "counter", Severity::kInfo,
     "Records that the brokers of the bus have confirmed, by topic."},
    {"lockstep_bus_records_refused_total", "counter", Severity::kNotice,
     "Records that did not get onto the bus or off it, by reason: full, down, too_large (by a gateway: its sender was "
     "told), undecodable, not_admitted (nothing in them is), memory (one that takes more than there is), tenant (a "
     "tenant that cannot be opened here, or "
     "is over --tenants-max), failed (an error of ours, again and again)."},
    {"lockstep_bus_records_spooled_total", "counter", Severity::kNotice,
     "Records a gateway kept on disk, and acknowledged, because the bus did not take them."},
    {"lockstep_bus_records_forwarded_total", "counter", Severity::kInfo,
     "Records that were kept on disk and are on the bus now."},
    {"lockstep_bus_records_shed_total", "counter", Severity::kNotice,
     "Records a gateway refused because the bus did not take them and its spool has no room for what is worth so "
     "little, by value: metrics, spans, steps, events. Their senders were told to try again."},
    {"lockstep_bus_spool_records", "gauge", Severity::kNotice, "Records kept on disk that the bus does not have."},
    {"lockstep_bus_spool_bytes", "gauge", Severity::kInfo, "What they take on disk."},
    {"lockstep_bus_spool_bytes_max", "gauge", Severity::kInfo, "What they may take on disk (--spool-bytes-max)."},
    {"lockstep_bus_records_received_total", "counter", Severity::kInfo, "Records read from the bus."},
    {"lockstep_bus_records_applied_total", "counter", Severity::kInfo,
     "Records of the bus that are in the durable log and the stores here."},
    {"lockstep_bus_records_dropped_total", "counter", Severity::kInfo,
     "Records of the bus that were here already, by reason: read_again (after a restart), sent_again (the same request "
     "a "
     "second time: its sender had no answer)."},
    {"lockstep_bus_records_missing_total", "counter", Severity::kDataLoss,
     "Records that the bus had deleted before they were read. Raise the retention of its topics."},
    {"lockstep_bus_record_times_corrected_total", "counter", Severity::kNotice,
     "Records of the bus that say they were received in the future, or years ago: the time of the one before them, or "
     "now, was taken instead."},
    {"lockstep_bus_partitions", "gauge", Severity::kInfo, "Partitions of the bus that are read here."},
    {"lockstep_bus_waiting_records", "gauge", Severity::kNotice,
     "Records of a partition that is read here which were not read yet, of all topics, by partition."},
    {"lockstep_bus_read_bytes_total", "counter", Severity::kInfo, "Bytes read from the bus, by partition."},
    {"lockstep_bus_behind_ms", "gauge", Severity::kNotice,
     "How old the record of the bus is that was applied last, while others wait; 0: none wait."},
};

}  // namespace lockstep
