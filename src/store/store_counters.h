// Rows of the counter table that the stores and the applier count in. Tables: steps logs events spans samples.
// Per table: received = held (lockstep_store_rows) + replaced + dropped[reason] + refused[reason].
// Applier, per signal: received = passed + refused[reason].
#pragma once

#include "base/counters.h"

namespace lockstep {

inline constexpr CounterDescriptor kStoreCounters[] = {
    {"lockstep_apply_records_received_total", "counter", Severity::kInfo,
     "Decoded records handed to the stores, by signal."},
    {"lockstep_apply_records_passed_total", "counter", Severity::kInfo,
     "Decoded records understood and stored, by signal."},
    {"lockstep_apply_records_refused_total", "counter", Severity::kDataLoss,
     "Records that name a Lockstep event and cannot be read as one, by signal and reason; kept as plain log records."},
    {"lockstep_apply_points_reduced_total", "counter", Severity::kNotice,
     "Exponential histogram points of which only sum and count are kept."},
    {"lockstep_store_rows_received_total", "counter", Severity::kInfo, "Rows given to a store, by table."},
    {"lockstep_store_rows_replaced_total", "counter", Severity::kInfo,
     "Rows that took the place of one with the same key (delivered again), by table."},
    {"lockstep_store_rows_dropped_total", "counter", Severity::kNotice,
     "Oldest rows dropped to stay within a limit, by table and reason."},
    {"lockstep_store_rows_refused_total", "counter", Severity::kDataLoss,
     "Rows a store did not take, by table and reason."},
    {"lockstep_store_rows", "gauge", Severity::kInfo, "Rows held, by table."},
    {"lockstep_store_bytes", "gauge", Severity::kInfo, "Estimated memory of the rows held, by table."},
    {"lockstep_store_series", "gauge", Severity::kInfo, "Metric series held."},
    {"lockstep_store_jobs_dropped_total", "counter", Severity::kNotice,
     "Jobs forgotten because of the limit on jobs or ranks, longest silent first."},
};

}  // namespace lockstep
