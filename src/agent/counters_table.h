// The agent's counters about itself, one row each.
#pragma once

#include "base/counters.h"
#include "net/tls_server.h"

namespace lockstep {

inline constexpr CounterDescriptor kOwnAgentCounters[] = {
    {"lockstep_agent_recorders", "gauge", Severity::kInfo, "Flight recorders being read now."},
    {"lockstep_agent_recorder_records_total", "counter", Severity::kInfo, "Records read from flight recorders."},
    {"lockstep_agent_recorder_lost_total", "counter", Severity::kDataLoss,
     "Records lost before they were read, by reason: overwritten in the ring, torn by a dying writer, orphaned, "
     "malformed."},
    {"lockstep_agent_poll_late_ms", "gauge", Severity::kNotice,
     "How much later than planned flight recorders were read, in milliseconds: the last time and the most (which). The "
     "agent waits for a free core; rings have room for a second and more."},
    {"lockstep_agent_node_crowded", "gauge", Severity::kInfo,
     "1 while the node's cores are all taken: less than a quarter of their time was idle."},
    {"lockstep_agent_recorder_refused_total", "counter", Severity::kNotice,
     "Files in the recorder folder that could not be read as a recorder."},
    {"lockstep_agent_recorders_kept_total", "counter", Severity::kInfo,
     "Recorders of processes that died, by result: kept (for lockstep postmortem), failed, busy (too many at once)."},
    {"lockstep_agent_user_files_refused_total", "counter", Severity::kNotice,
     "Files that a user's folder or hook named and that were not opened, by reason: link (somewhere in the path), kind "
     "(a pipe, a device, a folder), owner (another user's), too_large, failed."},
    {"lockstep_agent_over_limit_total", "counter", Severity::kNotice,
     "Times that a user was over a limit, by what (recorders, users, names, tries, records, steps, communicators, "
     "memory, "
     "hosts, evidence: left out; time: had to wait for the next poll) and uid."},
    {"lockstep_agent_plugins_switched_off", "gauge", Severity::kDataLoss,
     "Processes whose plugin has stopped recording, because it doubted itself."},
    {"lockstep_agent_detail_changes_total", "counter", Severity::kNotice,
     "Times a process was asked for less (direction down) or more detail (up)."},
    {"lockstep_agent_ras_queries_total", "counter", Severity::kInfo,
     "Questions to NCCL's in-job service (RAS), by result: answered, absent, failed, unsafe (not asked: its NCCL may "
     "not "
     "stand it)."},
    {"lockstep_agent_node_events_total", "counter", Severity::kInfo,
     "Events of this node (XID, link down, OOM kill, ...), by severity: info, app, warn, critical."},
    {"lockstep_agent_source_stuck_seconds", "gauge", Severity::kError,
     "For how long the reading of a source has not come back."},
    {"lockstep_agent_points_held_back_total", "counter", Severity::kNotice,
     "Metric points left out of a report, by reason: network, over the limit for one rank. They come later."},
    {"lockstep_plugin_events_total", "counter", Severity::kInfo, "Callbacks that NCCL made into the plugin."},
    {"lockstep_plugin_records_total", "counter", Severity::kInfo,
     "Records read, by type: coll, p2p, kernel, proxy_op, proxy_step, mark."},
    {"lockstep_plugin_refused_total", "counter", Severity::kDataLoss,
     "Events that could not be recorded, by reason: handle, foreign, no_slot, no_communicator, no_lane, completion, "
     "text."},
    {"lockstep_agent_records_total", "counter", Severity::kInfo,
     "Telemetry records made for export: passed + refused + dropped + queued."},
    {"lockstep_agent_records_passed_total", "counter", Severity::kInfo,
     "Telemetry records the server has acknowledged (or that were written to the export folder)."},
    {"lockstep_agent_records_refused_total", "counter", Severity::kDataLoss,
     "Telemetry records the server refused, by reason."},
    {"lockstep_agent_records_dropped_total", "counter", Severity::kDataLoss,
     "Telemetry records dropped here, by reason (spool_full, disk_full, spool_torn, spool_error, memory_full) and "
     "value "
     "of the data."},
    {"lockstep_agent_records_queued", "gauge", Severity::kInfo, "Telemetry records waiting in memory or in the spool."},
    {"lockstep_agent_spool_bytes", "gauge", Severity::kNotice, "Bytes waiting in the spool on disk."},
    // Steps in detail, counted by step and rank: steps = sent + left_out + held.
    {"lockstep_agent_detail_steps_total", "counter", Severity::kInfo, "Steps of ranks that ended with their detail."},
    {"lockstep_agent_detail_sent_total", "counter", Severity::kInfo,
     "Of those: sent as spans, by reason: periodic (sampled), asked (by the server)."},
    {"lockstep_agent_detail_left_out_total", "counter", Severity::kNotice,
     "Of those: never sent, by reason: age or bytes (kept for a while, and nobody asked), replaced, too_large, off."},
    {"lockstep_agent_detail_held", "gauge", Severity::kInfo, "Of those: kept in memory now."},
    {"lockstep_agent_detail_bytes", "gauge", Severity::kInfo, "Memory that kept detail takes."},
    {"lockstep_agent_detail_spans_total", "counter", Severity::kInfo, "Spans made of detail that was sent, by reason."},
    {"lockstep_agent_detail_asked_total", "counter", Severity::kInfo,
     "Steps of ranks that the server asked for, by result: sent, sent_before, gone (no longer or never here), busy "
     "(too "
     "many at once)."},
    {"lockstep_agent_commands_polls_total", "counter", Severity::kInfo,
     "Times the server was asked for commands, by result: answered, empty, renewed (for other hosts), unknown_path, "
     "refused, malformed, failed."},
    {"lockstep_agent_commands_total", "counter", Severity::kInfo,
     "Commands that came, by result: taken, unknown (of a newer server), too_many."},
    {"lockstep_agent_stacks_total", "counter", Severity::kInfo,
     "Stacks of ranks that were asked for, by result: told (reported to the server), again (within a minute), off "
     "(LOCKSTEP_STACKS=0 or --stacks off), gone (no such rank here), busy (too many at once)."},
    {"lockstep_agent_samples_total", "counter", Severity::kInfo,
     "Ranks whose stacks were to be sampled, by result: told (reported to the server), failed (no Python, or not "
     "permitted), again (too soon), off, gone, busy."},
    {"lockstep_agent_dumps_total", "counter", Severity::kInfo,
     "Dumps of PyTorch's Flight Recorder, by result: told (reported to the server), refused (no dump, or too large), "
     "asked (for one, by the job's pipe)."},
    {"lockstep_agent_uploads_total", "counter", Severity::kNotice,
     "Files of captures that were to be uploaded, by result: done, refused (by the server, the bucket or a limit), "
     "failed (nothing got through for too long), stopped."},
    {"lockstep_agent_evidence_files_total", "counter", Severity::kNotice,
     "Dumps and recorders of a hang or a crash that were to be uploaded, by result: done, failed, busy (too many "
     "wait), "
     "budget (too much in this hour)."},
    {"lockstep_agent_upload_bytes_total", "counter", Severity::kInfo, "Bytes of parts that were taken, compressed."},
    {"lockstep_agent_upload_retries_total", "counter", Severity::kNotice,
     "Times a request of an upload was sent again, because nobody answered or the server could not serve it."},
    {"lockstep_agent_profiles_total", "counter", Severity::kInfo,
     "Profiles of ranks that were asked for, by result: done, failed (its event says why), gone (no such rank here), "
     "busy (too many at once)."},
    {"lockstep_agent_kineto_messages_total", "counter", Severity::kInfo,
     "Messages of PyTorch's profiler, by result: answered, ordered (with a profile to take), refused (malformed, or of "
     "nobody), unanswered (its socket takes no answer)."},
    {"lockstep_agent_export_requests_total", "counter", Severity::kInfo,
     "Export requests by result code: HTTP's, or grpc_N; 0: no answer."},
    {"lockstep_agent_export_bytes_total", "counter", Severity::kInfo, "Bytes sent, compressed."},
};

inline constexpr auto kAgentCounters = join_counters(kOwnAgentCounters, kTlsCounters);

}  // namespace lockstep
