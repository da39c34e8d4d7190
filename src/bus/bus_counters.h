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
    {"lockstep_bus_behind_ms", "gauge", Severity::kNotice,
     "How old the record of the bus is that was applied last, while others wait; 0: none wait."},
};

}  // namespace lockstep
