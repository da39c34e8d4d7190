// The server's counters about itself, of which every tenant has a set of its own: /metrics, the docs and the code read
// this one table. A part with many rows keeps them beside its code and is joined in at the end. What the operator alone
// is told of tenants: server/tenant_counters.h.
//
// Thread rule: Immutable.
#pragma once

#include "access/access_counters.h"
#include "base/counters.h"
#include "base/memory_budget.h"
#include "bus/bus_counters.h"
#include "bus/log_counters.h"
#include "ingest/flow/flow_counters.h"
#include "net/tls_server.h"
#include "store/blobs/blob_counters.h"
#include "store/sle_counters.h"
#include "store/store_counters.h"

namespace lockstep {

inline constexpr CounterDescriptor kIngestCounters[] = {
    {"lockstep_build_info", "gauge", Severity::kInfo, "Always 1; the labels say which build this is."},

    {"lockstep_ready", "gauge", Severity::kError,
     "1: well, 0: not, by check; /readyz says why. The server is ready where all are 1 that are no warnings (clock)."},
    {"lockstep_clock_off_ms", "gauge", Severity::kNotice,
     "How far clocks are apart, by which: senders (the time of most of them less the server's; 0 where they are too "
     "few "
     "or do not agree), jump (how far the server's clock has jumped and is not believed yet)."},
    {"lockstep_clock_senders", "gauge", Severity::kInfo, "Senders whose clocks were heard in the last minutes."},

    {"lockstep_http_requests_total", "counter", Severity::kInfo,
     "Requests answered, by receiver and HTTP status (gRPC receivers: gRPC status)."},
    {"lockstep_http_connections", "gauge", Severity::kInfo, "Connections open now, by receiver."},
    {"lockstep_http_deferred", "gauge", Severity::kInfo,
     "Requests whose answer comes later (long polls, queries), by receiver."},
    {"lockstep_http_bad_requests_total", "counter", Severity::kNotice,
     "Requests and connections refused before a handler saw them, by receiver and reason: malformed, truncated, "
     "timeout, "
     "too_large, overloaded, connections_max, foreign_host and cross_site (403: net/cross_site.h), gave_way (a "
     "connection without a whole request, closed because all were taken), failed (an exception; that connection is "
     "closed), unauthenticated, forbidden and throttled (net/caller.h), ..."},

    // received = passed + refused + dropped, per receiver and signal.
    {"lockstep_ingest_received_records_total", "counter", Severity::kInfo,
     "Records in requests that could be decoded, by receiver and signal."},
    {"lockstep_ingest_passed_records_total", "counter", Severity::kInfo,
     "Records made durable and acknowledged, by receiver and signal."},
    {"lockstep_ingest_refused_records_total", "counter", Severity::kNotice,
     "Records refused, their sender told, by receiver, signal and reason: future_time, bad_train_step, "
     "bad_rank_status, "
     "bad_comm_init, bad_identity, store; of metrics: bad_histogram, no_value, delta_repeated, delta_limit, and what "
     "the store refuses (series_limit, "
     "job_limit, metric_limit, tenant_limit, agent_limit, memory_limit, too_old, future, label_forbidden, "
     "labels_invalid); "
     "overloaded and unavailable: the sender keeps them and tries again."},
    {"lockstep_ingest_dropped_records_total", "counter", Severity::kDataLoss,
     "Records lost after they were received, by receiver, signal and reason."},
    {"lockstep_ingest_requests_total", "counter", Severity::kInfo,
     "Requests by receiver, signal and answer (HTTP or gRPC status)."},
    {"lockstep_ingest_undecodable_requests_total", "counter", Severity::kNotice,
     "Requests with an unknown number of records that could not be decoded, by receiver and reason: content_type, "
     "content_encoding, tenant, compression, too_large, memory, protobuf, json, owner (a host or job in it is "
     "another's)."},
    {"lockstep_ingest_bytes_total", "counter", Severity::kInfo,
     "Bytes of decoded requests after decompression, by receiver."},

    {"lockstep_alias_points_total", "counter", Severity::kInfo,
     "Points that came under dcgm-exporter's names and were reported to diagnosis under ours."},
    {"lockstep_alias_series_left_out_total", "counter", Severity::kNotice,
     "Series under dcgm-exporter's names that are not reported to diagnosis, by reason: no_identity (no GPU or no "
     "host), "
     "limit."},
    // Those that came = total + running + waiting.
    {"lockstep_queries_total", "counter", Severity::kInfo,
     "PromQL queries and lists of series, by result: answered, refused (a mistake, or over a limit), timeout, "
     "cancelled "
     "(the client went away), turned_away (too many wait), memory (there was none), failed."},
    {"lockstep_queries", "gauge", Severity::kInfo, "PromQL queries now, by state: running, waiting for their turn."},

    {"lockstep_scrapes_total", "counter", Severity::kInfo,
     "Pages of targets, by result: read, failed (unreachable, malformed, over a limit), left_out (its turn was over)."},
    {"lockstep_scrape_targets", "gauge", Severity::kInfo, "Targets that are scraped now."},
    {"lockstep_scrape_config_loads_total", "counter", Severity::kNotice,
     "How often the file of --scrape was read again, by result: read, refused (it is wrong; nothing changed)."},
    {"lockstep_scrape_targets_refused_total", "counter", Severity::kNotice,
     "Listed targets that relabelling left without a usable address, scheme, path or interval; not scraped."},
    {"lockstep_scrape_lists_refused_total", "counter", Severity::kNotice,
     "Lists of targets (files, HTTP) that could not be read; the targets stay as they were."},

    // Of src/alert.
    {"lockstep_alerts_firing", "gauge", Severity::kNotice, "Alerts that fire now, by severity."},
    {"lockstep_alerts_total", "counter", Severity::kNotice,
     "Alerts that began to fire, by alertname (rule: any of the user's)."},
    {"lockstep_alerts_refused_total", "counter", Severity::kError,
     "Alerts that were not taken because too many fire at once."},
    {"lockstep_alert_notifications_total", "counter", Severity::kInfo,
     "Notifications, by receiver and result: queued = delivered + failed + waiting; attempts to be repeated are "
     "again."},
    {"lockstep_alert_notifications_lost_total", "counter", Severity::kDataLoss,
     "Notifications that were given up, by receiver and reason: refused, expired, queue_full, receiver_gone."},
    {"lockstep_alert_notifications_waiting", "gauge", Severity::kNotice,
     "Notifications that are still to be delivered."},
    {"lockstep_alert_mail_addresses_refused_total", "counter", Severity::kNotice,
     "Addresses that a mail server refused for good while it took the mail for others, by receiver."},
    {"lockstep_actions_total", "counter", Severity::kNotice,
     "What was decided and done for verdicts, by action and result: done, failed, interrupted, dry-run, limited, "
     "silenced, "
     "refused; left_out: too many at once."},
    {"lockstep_alert_silences", "gauge", Severity::kInfo, "Silences that are active."},
    // Of src/incident.
    {"lockstep_incidents", "gauge", Severity::kNotice, "Incidents that are kept, by state."},
    {"lockstep_incidents_total", "counter", Severity::kNotice, "Incidents that were opened."},
    {"lockstep_incidents_reopened_total", "counter", Severity::kNotice,
     "Incidents that were resolved and have been seen again."},
    {"lockstep_incidents_dropped_total", "counter", Severity::kDataLoss,
     "Incidents that were dropped because too many are kept: the one resolved longest ago goes first."},
    {"lockstep_alertmanager_posts_total", "counter", Severity::kNotice,
     "Lists of alerts sent to Alertmanagers, by address and result: sent, failed."},
    {"lockstep_rule_evaluations_total", "counter", Severity::kInfo, "Evaluations of rules, by result: ok, failed."},
    {"lockstep_rule_groups_missed_total", "counter", Severity::kNotice,
     "Evaluations of rule groups that were left out because the one before took too long."},
    {"lockstep_rule_samples_total", "counter", Severity::kInfo, "Samples that rules recorded, ALERTS among them."},
    {"lockstep_rule_loads_total", "counter", Severity::kNotice, "Readings of rule files, by result: read, refused."},

    {"lockstep_remote_write_out_samples_total", "counter", Severity::kNotice,
     "Samples for the server of --remote-write, by result: queued (= sent + refused + those that wait), sent, refused "
     "there, dropped (the queue was full, or the server stopped)."},

    // total = acknowledged + expired + refused + forwarded + pending.
    {"lockstep_commands_total", "counter", Severity::kInfo,
     "Commands for agents: a request for detail to one host each."},
    {"lockstep_commands_acknowledged_total", "counter", Severity::kInfo, "Commands that an agent has taken."},
    {"lockstep_commands_expired_total", "counter", Severity::kNotice,
     "Commands that no agent fetched within a minute: it is away, or sends by gRPC and asks nobody."},
    {"lockstep_commands_refused_total", "counter", Severity::kNotice,
     "Commands not given out, by reason: again (the same is pending), too_large, host_full, full, closed, "
     "bus (it cannot be brought to gateways now)."},
    {"lockstep_commands_forwarded_total", "counter", Severity::kInfo,
     "Commands that went to gateways, which agents ask. Each of these has all of them, and counts as expired what an "
     "agent "
     "took at another one."},
    {"lockstep_commands_pending", "gauge", Severity::kInfo, "Commands that wait to be taken."},
    {"lockstep_commands_polls_total", "counter", Severity::kInfo,
     "Agents' requests for commands answered, by result: answered, empty, bad, full, closed, forbidden."},

    {"lockstep_replay_undecodable_records_total", "counter", Severity::kDataLoss,
     "Records of the durable log that could not be decoded at start."},
    {"lockstep_replay_records_set_aside_total", "counter", Severity::kDataLoss,
     "Records of the durable log left out because the server ended several times while it applied them."},
    {"lockstep_server_failures_total", "counter", Severity::kError,
     "Work of the server's own that threw and was given up, by what: look (diagnosis), replay; the server goes on."},
    {"lockstep_backups_total", "counter", Severity::kInfo, "Backups begun."},
    {"lockstep_backups_held", "gauge", Severity::kInfo,
     "Backups being read now; files that retention removes meanwhile stay on disk until they are released."},
    {"lockstep_backup_bytes_total", "counter", Severity::kInfo, "Bytes of files given to backups."},
    {"lockstep_backup_refused_total", "counter", Severity::kError,
     "Backups that could not be begun or read, by reason: limit (too many at a time), failed (the disk), read."},
    {"lockstep_backup_leases_ended_total", "counter", Severity::kNotice,
     "Backups released because nobody read from them any more."},
    {"lockstep_diagnosis_look_ms", "gauge", Severity::kInfo,
     "How long diagnosis took to look at new steps, the last time and at most, by which."},
    {"lockstep_diagnosis_delay_ms", "gauge", Severity::kInfo,
     "From the last rank's report of a step until diagnosis had looked at it, the last time and at most, by which."},
    {"lockstep_verdicts_total", "counter", Severity::kInfo, "Verdicts that came into a state, by kind and state."},
};

inline constexpr auto kServerCounters =
    join_counters(kIngestCounters, kAccessCounters, kTlsCounters, kMemoryCounters, kLogCounters, kBusCounters,
                  kStoreCounters, kBlobCounters, kFlowCounters, kSleCounters);

}  // namespace lockstep
