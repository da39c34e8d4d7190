// Rows of the counter table that the stores and the applier count in. Tables: steps logs events spans, and
// hot_steps: the rows of steps that memory holds; what leaves it (reason limit) is on disk by then.
// Per table: received = held (lockstep_store_rows) + replaced + dropped[reason] + refused[reason].
// Applier, per signal: received = passed + refused[reason] + held (logs); a batch that failed is in none of them.
#pragma once

#include "base/counters.h"

namespace lockstep {

inline constexpr CounterDescriptor kStoreCounters[] = {
    {"lockstep_apply_records_received_total", "counter", Severity::kInfo,
     "Decoded records handed to the stores, by signal."},
    {"lockstep_apply_records_passed_total", "counter", Severity::kInfo,
     "Decoded records understood and stored, by signal."},
    {"lockstep_apply_records_refused_total", "counter", Severity::kDataLoss,
     "Records that name a Lockstep event and were not applied as one, by signal and reason: malformed, no_identity, "
     "old_attempt (of an attempt of the job that is over), attempt_not_confirmed (of one that most ranks never were "
     "in), failed (out of memory, a fault of the server); kept as plain log records."},
    {"lockstep_apply_records_held", "gauge", Severity::kInfo,
     "Records of an attempt that few ranks of the job speak of yet; applied when most do."},
    {"lockstep_apply_batches_failed_total", "counter", Severity::kDataLoss,
     "Records of the durable log that could not be applied (out of memory, a fault of the server), by signal; the log "
     "has them, and they are tried again at the next start."},
    {"lockstep_apply_subscriber_failures_total", "counter", Severity::kError,
     "Records that diagnosis or job numbers failed at; the stores have them."},
    {"lockstep_store_failures_total", "counter", Severity::kError,
     "Retention and maintenance of a store that threw and was given up; it is tried again."},
    {"lockstep_store_rows_received_total", "counter", Severity::kInfo, "Rows given to a store, by table."},
    {"lockstep_store_rows_replaced_total", "counter", Severity::kInfo,
     "Rows that took the place of one with the same key, or gave way to it (delivered again), by table."},
    {"lockstep_store_rows_dropped_total", "counter", Severity::kNotice,
     "Rows dropped, by table and reason: oldest first to stay within a limit (limit, retention), what could not be "
     "written and was too much for memory (unsealed), what cannot be read any more (corrupt)."},
    {"lockstep_store_rows_refused_total", "counter", Severity::kDataLoss,
     "Rows a store did not take, by table and reason."},
    {"lockstep_store_rows", "gauge", Severity::kInfo, "Rows held, by table."},
    {"lockstep_store_bytes", "gauge", Severity::kInfo, "Estimated memory of the rows held, by table."},
    {"lockstep_span_files", "gauge", Severity::kInfo, "Files of spans on disk."},
    {"lockstep_span_file_bytes", "gauge", Severity::kInfo, "Bytes of the files of spans on disk."},
    {"lockstep_span_files_refused_total", "counter", Severity::kDataLoss,
     "Files of spans kept out at start: torn or corrupt."},
    {"lockstep_span_row_groups_corrupt_total", "counter", Severity::kDataLoss,
     "Row groups of spans found corrupt when they were read, and kept out from then on.",
     "lockstep_span_row_groups_spoilt_total"},
    {"lockstep_span_seals_failed_total", "counter", Severity::kError,
     "Times a file of spans could not be written; the spans stay in memory and it is tried again."},
    {"lockstep_log_record_files", "gauge", Severity::kInfo, "Files of log records on disk."},
    {"lockstep_log_record_file_bytes", "gauge", Severity::kInfo, "Bytes of the files of log records on disk."},
    {"lockstep_log_record_files_refused_total", "counter", Severity::kDataLoss,
     "Files of log records kept out at start: torn or corrupt."},
    {"lockstep_log_record_groups_corrupt_total", "counter", Severity::kDataLoss,
     "Row groups of log records found corrupt when they were read, and kept out from then on.",
     "lockstep_log_record_groups_spoilt_total"},
    {"lockstep_log_record_seals_failed_total", "counter", Severity::kError,
     "Times a file of log records could not be written; they stay in memory and it is tried again."},
    {"lockstep_log_records_cut_total", "counter", Severity::kNotice,
     "Log records whose body or attributes were too long to be kept whole."},
    {"lockstep_step_files", "gauge", Severity::kInfo, "Files of steps on disk."},
    {"lockstep_step_file_bytes", "gauge", Severity::kInfo, "Bytes of the files of steps on disk."},
    {"lockstep_step_rows_unsealed", "gauge", Severity::kInfo, "Rows of steps in memory that are in no file yet."},
    {"lockstep_step_files_refused_total", "counter", Severity::kDataLoss,
     "Files of steps kept out at start: torn or corrupt."},
    {"lockstep_step_row_groups_corrupt_total", "counter", Severity::kDataLoss,
     "Row groups of steps found corrupt when they were read, and kept out from then on.",
     "lockstep_step_row_groups_spoilt_total"},
    {"lockstep_step_seals_failed_total", "counter", Severity::kError,
     "Times a file of steps could not be written; the steps stay in memory and it is tried again."},
    {"lockstep_metric_samples_received_total", "counter", Severity::kInfo,
     "Samples pushed to the metrics engine; each is stored, replaced, repeated or refused."},
    {"lockstep_metric_samples_stored_total", "counter", Severity::kInfo, "Samples that are new."},
    {"lockstep_metric_samples_replaced_total", "counter", Severity::kInfo,
     "Samples that took the place of one of the same series and time with another value."},
    {"lockstep_metric_samples_repeated_total", "counter", Severity::kInfo, "Samples that were there already."},
    {"lockstep_metric_samples_refused_total", "counter", Severity::kDataLoss,
     "Samples not taken, by reason: series_limit job_limit metric_limit tenant_limit agent_limit memory_limit too_old "
     "future "
     "label_forbidden "
     "labels_invalid reserved_nan series_gone."},
    {"lockstep_metric_metadata_refused_total", "counter", Severity::kNotice,
     "Types, helps and units of metrics not kept: there was no memory for them."},
    {"lockstep_metric_samples_dropped_total", "counter", Severity::kNotice,
     "Samples dropped after they were stored, by reason: retention, limit (bytes), deleted, corrupt (chunks)."},
    {"lockstep_metric_series", "gauge", Severity::kInfo, "Series written to lately, in memory."},
    {"lockstep_metric_series_created_total", "counter", Severity::kInfo, "Series seen for the first time."},
    {"lockstep_metric_head_bytes", "gauge", Severity::kInfo, "Memory of the series in memory and their samples."},
    {"lockstep_metric_blocks", "gauge", Severity::kInfo, "Blocks of metrics on disk, by tier."},
    {"lockstep_metric_block_bytes", "gauge", Severity::kInfo, "Bytes of the blocks of metrics on disk, by tier."},
    {"lockstep_metric_log_bytes_total", "counter", Severity::kInfo, "Bytes written to the metrics' log."},
    {"lockstep_metric_log_torn_total", "counter", Severity::kNotice,
     "Segments of the metrics' log whose end was cut off by a crash; what was acknowledged is before that."},
    {"lockstep_metric_damage_total", "counter", Severity::kDataLoss,
     "Damage found in files of metrics, by where: log, block, chunk. What they held is a gap."},
    {"lockstep_metric_write_failed_total", "counter", Severity::kError,
     "Times something could not be written, by what: log, seal, merge. It is tried again; meanwhile pushes may be "
     "refused as unavailable."},
    {"lockstep_metric_admin_refused_total", "counter", Severity::kNotice,
     "Copies and deletions of metrics that were refused, by what (snapshot, deletion) and reason: limit (their "
     "number), "
     "bytes, disk (too little room)."},
    {"lockstep_store_series", "gauge", Severity::kInfo, "Metric series held."},
    {"lockstep_store_jobs_dropped_total", "counter", Severity::kNotice,
     "Jobs forgotten because of the limit on jobs or ranks, longest silent first."},
    // What is kept of jobs as steps arrive (analysis/cost/job_rollups.h): received = folded + repeated + late +
    // left_out + open.
    {"lockstep_job_rollup_rows_total", "counter", Severity::kInfo,
     "Ranks' steps for the job series, by result: received, folded, repeated (sent again before it was folded), late "
     "(came after), left_out (of ranks far from the others, or numbers that cannot be)."},
    {"lockstep_rank_series_left_out_total", "counter", Severity::kNotice,
     "Steps of ranks beyond the 200,000 of which series are kept."},
    {"lockstep_rank_series_dropped_total", "counter", Severity::kDataLoss,
     "Samples of ranks' step times that the metrics store did not take."},
    {"lockstep_job_rollup_samples_dropped_total", "counter", Severity::kDataLoss,
     "Samples of job series lost because the store took none for too long."},
    {"lockstep_feedback_total", "counter", Severity::kInfo,
     "What people said of verdicts, by answer: right, wrong, taken_back."},
    {"lockstep_feedback_refused_total", "counter", Severity::kNotice,
     "Feedback not taken, by reason: other_site, unknown_verdict, bad_body, store."},
    {"lockstep_warnings", "gauge", Severity::kInfo, "Early warnings raised now."},
    {"lockstep_warnings_left_out", "gauge", Severity::kNotice,
     "Times an early warning was left out because too many are followed already."},
    // Detail asked of agents after the fact (control/detail_requester.h, control/tail_sampler.h).
    {"lockstep_detail_asks_total", "counter", Severity::kInfo,
     "Steps asked of agents after the fact, by reason: verdict, slow_step, person."},
    {"lockstep_captures_total", "counter", Severity::kInfo,
     "Kernel profiles that were ordered, by reason: person, verdict (by itself)."},
    {"lockstep_captures_refused_total", "counter", Severity::kNotice,
     "Kernel profiles that were not ordered, by reason: limit, budget (of those by itself), ranks, unknown_rank, "
     "ended, "
     "malformed."},
    {"lockstep_captures_analysed_total", "counter", Severity::kNotice,
     "Kernel profiles whose traces the server has analysed, by result: ready, failed (its summary says why), again "
     "(they could not be read or the result not be kept; tried again)."},
    {"lockstep_captures_running", "gauge", Severity::kInfo, "Kernel profiles under way."},
    {"lockstep_stack_asks_total", "counter", Severity::kInfo,
     "Ranks whose stacks were asked of agents, by reason: verdict (a hang), person."},
    {"lockstep_sample_asks_total", "counter", Severity::kInfo,
     "Ranks whose stacks were to be sampled by agents, by reason: verdict, person."},
    {"lockstep_sample_asks_refused_total", "counter", Severity::kNotice,
     "Orders to sample stacks that were refused, by reason: job (too many for it in a minute), too_many (for all)."},
    {"lockstep_detail_asks_left_out_total", "counter", Severity::kNotice,
     "Steps worth asking for and not asked, by reason: budget, unknown_ranks, refused."},
};

}  // namespace lockstep
