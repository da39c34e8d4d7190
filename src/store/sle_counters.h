// Rows of the counter table of the SLE ledger.
// Step rows: received = taken + repeated + late + future + left_out.
#pragma once

#include "base/counters.h"

namespace lockstep {

inline constexpr CounterDescriptor kSleCounters[] = {
    {"lockstep_sle_rows_total", "counter", Severity::kInfo,
     "Step summaries heard for the SLE ledger, by result: received, taken, repeated (delivered again), late (of a "
     "minute "
     "that is no longer measured), future (of a clock that is ahead), left_out (beyond a limit, or absurd)."},
    {"lockstep_sle_minutes_total", "counter", Severity::kInfo,
     "Judgements of a minute of a job, by result: new, replaced, same, fewer_rows (what is there was judged from "
     "more), "
     "closed (older than an hour before the job's newest), jobs_full, owners_full, tables_full (beyond a limit), "
     "no_memory (the memory budget has no room for it)."},
    {"lockstep_sle_days_dropped_total", "counter", Severity::kDataLoss,
     "Days that left the SLE ledger before their time, to stay within its limit."},
    {"lockstep_sle_files_damaged_total", "counter", Severity::kDataLoss,
     "Files of the SLE ledger that could be read in part only."},
    {"lockstep_sle_runs", "gauge", Severity::kInfo, "Runs of minutes that the SLE ledger holds, 12 bytes each."},
};

}  // namespace lockstep
