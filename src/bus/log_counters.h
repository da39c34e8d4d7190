// Rows of the counter table that the durable log counts in.
// received = appended + refused[reason]; after a recovery: appended before = replayed + missing + dropped by retention.
#pragma once

#include "base/counters.h"

namespace lockstep {

inline constexpr CounterDescriptor kLogCounters[] = {
    {"lockstep_log_records_received_total", "counter", Severity::kInfo, "Records handed to the durable log."},
    {"lockstep_log_records_appended_total", "counter", Severity::kInfo, "Records synced to disk."},
    {"lockstep_log_records_refused_total", "counter", Severity::kError,
     "Records the durable log did not take, by reason."},
    {"lockstep_log_bytes_appended_total", "counter", Severity::kInfo, "Bytes synced to disk, record headers included."},
    {"lockstep_log_syncs_total", "counter", Severity::kInfo,
     "Group commits: writes that were followed by one sync to disk."},
    {"lockstep_log_records_replayed_total", "counter", Severity::kInfo, "Records read back at start."},
    {"lockstep_log_records_missing_total", "counter", Severity::kDataLoss,
     "Sequence numbers not found between two segments at start."},
    {"lockstep_log_torn_tails_total", "counter", Severity::kNotice,
     "Unfinished writes cut off the end of the log at start."},
    {"lockstep_log_torn_bytes_total", "counter", Severity::kNotice, "Bytes of unfinished writes cut off at start."},
    {"lockstep_log_corrupt_segments_total", "counter", Severity::kDataLoss,
     "Segments read only up to a record whose checksum does not match."},
    {"lockstep_log_segments_dropped_total", "counter", Severity::kNotice,
     "Oldest segments deleted to keep the log within its size."},
    {"lockstep_log_unsealed_records_dropped_total", "counter", Severity::kDataLoss,
     "Records in deleted segments that the stores had not written to files yet, though they were told to: a crash "
     "before "
     "they do loses them. Raise --log-bytes-max, or see why files cannot be written."},
    {"lockstep_log_bytes", "gauge", Severity::kInfo, "Size of the durable log on disk."},
};

}  // namespace lockstep
