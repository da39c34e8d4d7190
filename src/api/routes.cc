#include "api/routes.h"

#include <algorithm>

#include "access/audit_log.h"
#include "access/token_store.h"
#include "api/answer.h"
#include "api/endpoints.h"
#include "api/loki/loki_answer.h"
#include "base/text.h"
#include "ingest/receiver_paths.h"

namespace lockstep {
namespace {

constexpr const char* kSleParameters =
    "hours from to job ranks group host gpu nic rail switch link ledger classifier sub limit";

// The first that matches answers, so longer patterns stand before shorter ones.
constexpr Route kRoutes[] = {
    {"/api/jobs", "job host user state health cause limit", "every job known, worst first", Role::kRead, get_jobs},
    {"/api/fleet", "", "the fleet in a few numbers: jobs, GPUs, ranks, open verdicts, GPU time lost in a day",
     Role::kRead, get_fleet, "GET", true},
    {"/api/overhead", "from to",
     "what Lockstep itself costs: CPU, network and disk of agents and server, as a share of the fleet", Role::kRead,
     get_overhead, "GET", true},
    {"/api/jobs/{job}/why", "", "the verdicts of a job and, where there are none, why not", Role::kRead, get_why},
    {"/api/jobs/{job}/cost", "last", "where the time that a job loses goes; shares add to 100 %", Role::kRead,
     get_cost},
    {"/api/jobs/{job}/mfu", "last", "why MFU is what it is: from the peak to what was achieved", Role::kRead, get_mfu},
    {"/api/jobs/{job}/steps/{step}/perfetto", "ranks format", "a step as a Perfetto archive (tar) or file (pftrace)",
     Role::kRead, get_perfetto},
    {"/api/jobs/{job}/steps/{step}/detail", "ranks", "ask the agents for a step in detail, as long as they have it",
     Role::kOperate, post_step_detail, "POST", false, true},
    {"/api/jobs/{job}/steps/{step}/timeline", "from_ns to_ns columns lines ranks spans",
     "the step as a picture: a line per rank, reduced to the screen that asks", Role::kRead, get_timeline},
    {"/api/jobs/{job}/steps/{step}", "limit path", "one step: who waited for whom, critical path, where the time went",
     Role::kRead, get_step},
    {"/api/jobs/{job}/traced", "limit", "steps of which there is detail, newest first", Role::kRead, get_traced},
    {"/api/jobs/{job}/comms", "limit", "communicators: members, and what they are for", Role::kRead, get_comms},
    {"/api/jobs/{job}/clocks", "step limit", "how far each rank's clock is off, and how well that is known",
     Role::kRead, get_clocks},
    {"/api/jobs/{job}/slowest", "last from to limit",
     "slowest ranks over a window, and how often others waited for them", Role::kRead, get_slowest},
    {"/api/jobs/{job}/stacks", "ranks", "stacks of ranks and dumps of PyTorch's Flight Recorder, the newest of each",
     Role::kRead, get_stacks},
    {"/api/jobs/{job}/stacks", "ranks", "ask the agents for the stacks of these ranks now", Role::kOperate, post_stacks,
     "POST", false, true},
    {"/api/jobs/{job}/profiles/{capture}/files/{file}", "", "a file of a capture, or a range of its bytes", Role::kRead,
     get_capture_file},
    {"/api/jobs/{job}/profiles/{capture}/files", "", "files of a capture that are stored", Role::kRead,
     get_capture_files},
    {"/api/jobs/{job}/profiles/{capture}/summary", "", "what the server has found in a kernel profile", Role::kRead,
     get_profile_summary},
    {"/api/jobs/{job}/profiles/{capture}/timeline", "from_ns to_ns width ranks",
     "a kernel profile as a picture: its ranks on one axis, reduced to the screen that asks", Role::kRead,
     get_profile_timeline},
    {"/api/jobs/{job}/profiles/{capture}/perfetto", "", "a kernel profile as a Perfetto file, gzip", Role::kRead,
     get_profile_perfetto},
    {"/api/jobs/{job}/profiles/{capture}/remove", "", "remove the files of a capture", Role::kOperate,
     post_capture_remove, "POST", false, true},
    {"/api/jobs/{job}/profiles/{name}", "", "one kernel profile: where each of its ranks stands, and its files",
     Role::kRead, get_profile},
    {"/api/jobs/{job}/profiles", "limit", "kernel profiles of a job, newest first", Role::kRead, get_profiles},
    {"/api/jobs/{job}/profiles", "ranks steps shapes stacks limit_s mb",
     "order a kernel profile: some ranks (numbers, worst, median, all), all from the same step on", Role::kOperate,
     post_profiles, "POST", false, true},
    {"/api/jobs/{job}/auto-profile", "on",
     "profile by itself on a confirmed verdict, until the server is started again", Role::kOperate, post_auto_profile,
     "POST", false, true},
    {"/api/jobs/{job}/samples", "ranks format",
     "where ranks spend their time, and the line that makes one of them slow", Role::kRead, get_samples, "GET", true},
    {"/api/jobs/{job}/samples", "ranks seconds hz", "ask the agents to sample the stacks of these ranks now",
     Role::kOperate, post_samples, "POST", false, true},
    {"/api/jobs/{job}/coverage", "", "what can and cannot be judged of a job, why, and how to switch it on",
     Role::kRead, get_coverage},
    {"/api/jobs/{job}/evidence", "of ranks steps comm peer stage name at",
     "the number of a claim, computed again from stored steps", Role::kRead, get_evidence, "GET", true},
    {"/api/jobs/{job}/steps", "last from to rank_from", "rank x step matrix for the heat map", Role::kRead, get_steps},
    {"/api/jobs/{job}/ranks", "last limit", "one row per rank over a window of steps, worst first", Role::kRead,
     get_ranks},
    {"/api/jobs/{job}/ranks/{rank}", "last from to", "one rank: its steps, communicators and flows", Role::kRead,
     get_rank},
    {"/api/jobs/{job}", "", "one job", Role::kRead, get_job},
    {"/api/verdicts", "state limit", "verdicts of all jobs, newest first", Role::kRead, get_verdicts},
    {"/api/verdicts/{name}/feedback", "", "say that a verdict was right or wrong, or take that back", Role::kOperate,
     post_verdict_feedback, "POST", false, true},
    {"/api/verdicts/{name}", "", "one verdict", Role::kRead, get_verdict},
    {"/api/warnings", "job state limit", "early warnings: what will hurt if it goes on, the soonest first", Role::kRead,
     get_warnings},
    {"/api/sle/{name}", kSleParameters, "one SLE: over time, by classifier, who was hurt and who is charged",
     Role::kRead, get_sle},
    {"/api/sle", kSleParameters,
     "minutes of GPUs by SLE: good, degraded, unknown, and what the degraded are charged to", Role::kRead, get_sles},
    {"/api/alerts", "state limit", "alerts: firing ones first, with who was told (state: firing, all or noise)",
     Role::kRead, get_alerts},
    {"/api/alerts/builtin", "", "the alerts that are there without configuration: what raises each, within which time",
     Role::kRead, get_alert_table},
    {"/api/actions", "limit", "what the server may do for verdicts, what it did, and what it would have done",
     Role::kRead, get_actions},
    {"/api/incidents", "state job component limit",
     "incidents: what is broken, since when, whom it hits, what it costs; components that are guilty again",
     Role::kRead, get_incidents},
    {"/api/incidents/{name}/markdown", "", "an incident as Markdown, to paste into a ticket", Role::kRead,
     get_incident_markdown},
    {"/api/incidents/{name}/acknowledge", "", "say that somebody takes care of an incident", Role::kOperate,
     post_incident_acknowledge, "POST", false, true},
    {"/api/incidents/{name}/resolve", "", "say that an incident is over", Role::kOperate, post_incident_resolve, "POST",
     false, true},
    {"/api/incidents/{name}/reopen", "", "say that an incident is not over", Role::kOperate, post_incident_reopen,
     "POST", false, true},
    {"/api/incidents/{name}/feedback", "", "say that an incident's main verdict was right or wrong, or take that back",
     Role::kOperate, post_incident_feedback, "POST", false, true},
    {"/api/incidents/{name}", "", "one incident: timeline, evidence, blast radius, cost, history", Role::kRead,
     get_incident},
    {"/api/silences", "", "silences and maintenance windows: which alerts are sent to nobody, until when", Role::kRead,
     get_silences},
    {"/api/silences", "", "silence alerts for a while, now or from a given time on", Role::kOperate, post_silences,
     "POST", false, true},
    {"/api/silences/{name}/end", "", "end a silence now", Role::kOperate, post_silence_end, "POST", false, true},
    {"/api/services/{name}", "last_s", "how an inference service does: first token, time per token, queue", Role::kRead,
     get_service},
    {"/api/services", "", "services that have sent spans or vLLM metrics", Role::kRead, get_services},
    {"/api/fabric/path", "job a b at qp source_port", "the way from one GPU or rank to another, hop by hop",
     Role::kRead, get_path},
    {"/api/fabric/changes", "component what from to began limit",
     "versions that became others, and parts that hang elsewhere, newest first", Role::kRead, get_changes},
    {"/api/fabric/affected", "component at limit", "who depends on a GPU, adapter, host, link or switch", Role::kRead,
     get_affected},
    {"/api/fabric", "limit", "the topology: what it has, where file and fabric differ, what changed", Role::kRead,
     get_fabric},
    {"/api/graph", "focus depth window at limit", "what depends on what, from a focus outwards, the worst first",
     Role::kRead, get_graph},
    {"/api/nodes/{name}/series", "to last_s points",
     "how a node did over a time, beside the steps of its ranks: one time axis for all rows", Role::kRead,
     get_node_series, "GET", true},
    {"/api/nodes/{name}", "days", "one node: its GPUs, who runs there, its verdicts, incidents and events", Role::kRead,
     get_node, "GET", true},
    {"/api/nodes", "host limit", "nodes, worst first: GPUs, those idle, ranks, what is open there", Role::kRead,
     get_nodes, "GET", true},
    {"/api/gpus/{name}/series", "to last_s points", "how a GPU and its node did over a time, beside its steps",
     Role::kRead, get_gpu_series, "GET", true},
    {"/api/gpus/{name}", "days", "one GPU: who holds it, its verdicts, incidents and events", Role::kRead, get_gpu,
     "GET", true},
    {"/api/agents", "host at", "agents heard of: host, last seen, records lost", Role::kRead, get_agents},
    {"/api/cardinality", "limit", "series, who made the most of them, limits and what was refused", Role::kRead,
     get_cardinality},
    {"/api/metrics", "name from to limit", "series of a metric by exact name; without a name, the list of names",
     Role::kRead, get_metrics},
    {"/api/signals", "signal host gpu device from to",
     "a signal of one GPU, adapter or host as diagnosis reads it, from stored metrics", Role::kRead, get_signals, "GET",
     true},
    {"/api/fabric/flows", "job src dst queue_pair switch port from to limit",
     "flows that switches saw in the last half hour, and whose they are, the largest first", Role::kRead,
     get_fabric_flows, "GET", true},
    {"/api/logs", "service event job rank host gpu from to limit severity grep match order after",
     "log records and events, newest first, by whom, when, how bad and what they say", Role::kRead, get_logs, "GET",
     true},
    {"/api/spans", "service trace_id limit", "spans of a trace by start, else the newest first", Role::kRead,
     get_spans},
    {"/api/backup", "", "hold everything the server keeps for a copy: its files, as of now", Role::kAdmin, post_backup,
     "POST", false, true},
    {"/api/backup/file", "id name from bytes", "bytes of a file that is held for a copy", Role::kAdmin,
     get_backup_file},
    {"/api/backup/release", "id", "the copy is made, or given up", Role::kAdmin, post_backup_release, "POST", false,
     true},
    {"/api/tokens", "", "tokens of your tenants: who may do what, until when", Role::kAdmin, get_tokens},
    {"/api/tokens", "", "make a token; its secret is in the answer and nowhere else", Role::kAdmin, post_tokens, "POST",
     false, true},
    {"/api/tokens/{name}/revoke", "", "end a token", Role::kAdmin, post_token_revoke, "POST", false, true},
    {"/api/session", "", "who you are to this server", Role::kAnyone, get_session},
    {"/api/session", "", "sign in with a token: a cookie for the page", Role::kAnyone, post_session, "POST", false,
     true},
    {"/api/session/oidc", "return", "sign in through the issuer: leads to its page", Role::kAnyone, get_session_oidc},
    {"/api/session/oidc/callback", "code state iss error error_description error_uri session_state scope",
     "where the issuer's page leads back to", Role::kAnyone, get_session_oidc_callback},
    {"/api/session/end", "", "sign out", Role::kAnyone, post_session_end, "POST", false, true},
    {"/api/audit", "who action since limit", "what was done by whom, newest first", Role::kAdmin, get_audit},
    {"/api/owners", "limit", "which hosts and jobs belong to whom", Role::kRead, get_owners},
    {"/api/owners/takeover", "", "give a host or job to another owner", Role::kOperate, post_owner_takeover, "POST",
     false, true},
    // Others' clients know these; parameters they add are let through.
    {"/mcp", "", "Model Context Protocol: tools for assistants", Role::kRead, post_mcp, "POST", true, true},
    {"/jaeger/api/services", "", "Jaeger: services", Role::kRead, get_jaeger_services},
    {"/jaeger/api/services/{name}/operations", "", "Jaeger: names of a service's spans", Role::kRead,
     get_jaeger_service_operations},
    {"/jaeger/api/operations", "service", "Jaeger: names of a service's spans", Role::kRead, get_jaeger_operations},
    {"/jaeger/api/traces", "service operation tags minDuration maxDuration start end lookback limit",
     "Jaeger: traces, newest first", Role::kRead, get_jaeger_traces},
    {"/jaeger/api/traces/{name}", "", "Jaeger: one trace", Role::kRead, get_jaeger_trace},
    {"/jaeger/api/dependencies", "endTs lookback", "Jaeger: which service calls which", Role::kRead,
     get_jaeger_dependencies},
    {"/jaeger/api/v3/services", "", "Jaeger v3: services", Role::kRead, get_jaeger_v3_services},
    {"/jaeger/api/v3/operations", "service", "Jaeger v3: names of a service's spans", Role::kRead,
     get_jaeger_v3_operations},
    {"/jaeger/api/v3/traces", "query.service_name query.operation_name query.start_time_min query.start_time_max",
     "Jaeger v3: traces as OTLP", Role::kRead, get_jaeger_v3_traces},
    {"/jaeger/api/v3/traces/{name}", "", "Jaeger v3: one trace as OTLP", Role::kRead, get_jaeger_v3_trace},
    {"/tempo/api/echo", "", "Tempo: is anybody there", Role::kRead, get_tempo_echo},
    {"/tempo/ready", "", "Tempo: is anybody there", Role::kRead, get_tempo_ready},
    {"/tempo/api/status/buildinfo", "", "Tempo: version", Role::kRead, get_tempo_buildinfo},
    {"/tempo/api/traces/{name}", "start end", "Tempo: one trace, protobuf by Accept", Role::kRead, get_tempo_trace},
    {"/tempo/api/v2/traces/{name}", "start end", "Tempo: one trace, protobuf by Accept", Role::kRead,
     get_tempo_v2_trace},
    {"/tempo/api/search", "q tags minDuration maxDuration limit spss start end", "Tempo: traces by TraceQL or tags",
     Role::kRead, get_tempo_search},
    {"/tempo/api/search/tags", "limit", "Tempo: names of attributes", Role::kRead, get_tempo_tags},
    {"/tempo/api/v2/search/tags", "scope limit", "Tempo: names of attributes by scope", Role::kRead, get_tempo_v2_tags},
    {"/tempo/api/search/tag/{name}/values", "limit", "Tempo: values of an attribute", Role::kRead,
     get_tempo_tag_values},
    {"/tempo/api/v2/search/tag/{name}/values", "limit", "Tempo: values of an attribute, typed", Role::kRead,
     get_tempo_v2_tag_values},
    {"/tempo/api/metrics/query_range", "", "Tempo: metrics of spans, not served", Role::kRead, get_tempo_metrics},
    {"/tempo/api/metrics/query", "", "Tempo: metrics of spans, not served", Role::kRead, get_tempo_metrics},
    {"/loki/api/v1/query_range", "query start end since step limit direction timeout",
     "Loki: log records, or counts of them over time, by LogQL", Role::kRead, loki_query_range, "GET", true},
    {"/loki/api/v1/query_range", "", "Loki: the same, as a form", Role::kRead, loki_query_range, "POST", true},
    {"/loki/api/v1/query", "query time timeout", "Loki: counts of log records at one time, by LogQL", Role::kRead,
     loki_query, "GET", true},
    {"/loki/api/v1/query", "", "Loki: the same, as a form", Role::kRead, loki_query, "POST", true},
    {"/loki/api/v1/labels", "query start end since timeout", "Loki: names of labels", Role::kRead, loki_labels, "GET",
     true},
    {"/loki/api/v1/labels", "", "Loki: the same, as a form", Role::kRead, loki_labels, "POST", true},
    {"/loki/api/v1/label/{name}/values", "query start end since timeout", "Loki: values of a label", Role::kRead,
     loki_label_values, "GET", true},
    {"/loki/api/v1/label/{name}/values", "", "Loki: the same, as a form", Role::kRead, loki_label_values, "POST", true},
    {"/loki/api/v1/series", "match[] start end since timeout", "Loki: label sets of streams", Role::kRead, loki_series,
     "GET", true},
    {"/loki/api/v1/series", "", "Loki: the same, as a form", Role::kRead, loki_series, "POST", true},
    {"/loki/api/v1/index/stats", "query start end since timeout", "Loki: how much a selector selects", Role::kRead,
     loki_index_stats, "GET", true},
    {"/loki/api/v1/index/stats", "", "Loki: the same, as a form", Role::kRead, loki_index_stats, "POST", true},
    {"/loki/api/v1/index/volume", "query start end since limit targetLabels aggregateBy timeout",
     "Loki: bytes of log records by labels", Role::kRead, loki_index_volume, "GET", true},
    {"/loki/api/v1/index/volume", "", "Loki: the same, as a form", Role::kRead, loki_index_volume, "POST", true},
    {"/loki/api/v1/format_query", "query", "Loki: a query in normal form", Role::kRead, loki_format_query},
    {"/loki/api/v1/format_query", "", "Loki: the same, as a form", Role::kRead, loki_format_query, "POST"},
    {"/loki/api/v1/status/buildinfo", "", "Loki: version", Role::kRead, loki_buildinfo},
    {"/prometheus/api/v1/query", "query time timeout limit lookback_delta stats", "Prometheus: a query at one time",
     Role::kRead, prometheus_query, "GET", true},
    {"/prometheus/api/v1/query", "", "Prometheus: the same, as a form", Role::kRead, prometheus_query, "POST", true},
    {"/prometheus/api/v1/query_range", "query start end step timeout limit lookback_delta stats",
     "Prometheus: a query over a range of time", Role::kRead, prometheus_query_range, "GET", true},
    {"/prometheus/api/v1/query_range", "", "Prometheus: the same, as a form", Role::kRead, prometheus_query_range,
     "POST", true},
    {"/prometheus/api/v1/query_exemplars", "query start end", "Prometheus: exemplars of a query's series", Role::kRead,
     prometheus_query_exemplars, "GET", true},
    {"/prometheus/api/v1/query_exemplars", "", "Prometheus: the same, as a form", Role::kRead,
     prometheus_query_exemplars, "POST", true},
    {"/prometheus/api/v1/format_query", "query", "Prometheus: a query in normal form", Role::kRead,
     prometheus_format_query, "GET", true},
    {"/prometheus/api/v1/format_query", "", "Prometheus: the same, as a form", Role::kRead, prometheus_format_query,
     "POST", true},
    {"/prometheus/api/v1/parse_query", "query", "Prometheus: a query as a tree", Role::kRead, prometheus_parse_query,
     "GET", true},
    {"/prometheus/api/v1/parse_query", "", "Prometheus: the same, as a form", Role::kRead, prometheus_parse_query,
     "POST", true},
    {"/prometheus/api/v1/series", "match[] start end limit", "Prometheus: label sets of series", Role::kRead,
     prometheus_series, "GET", true},
    {"/prometheus/api/v1/series", "", "Prometheus: the same, as a form", Role::kRead, prometheus_series, "POST", true},
    {"/prometheus/api/v1/labels", "match[] start end limit", "Prometheus: names of labels", Role::kRead,
     prometheus_labels, "GET", true},
    {"/prometheus/api/v1/labels", "", "Prometheus: the same, as a form", Role::kRead, prometheus_labels, "POST", true},
    {"/prometheus/api/v1/label/{name}/values", "match[] start end limit", "Prometheus: values of a label", Role::kRead,
     prometheus_label_values, "GET", true},
    {"/prometheus/api/v1/metadata", "metric limit limit_per_metric", "Prometheus: type, help and unit of metrics",
     Role::kRead, prometheus_metadata},
    {"/prometheus/api/v1/rules", "type rule_name[] rule_group[] file[] exclude_alerts match[]",
     "Prometheus: the built-in alerts and the rules of --rules", Role::kRead, prometheus_rules},
    {"/prometheus/api/v1/alerts", "", "Prometheus: alerts that fire or are pending", Role::kRead, prometheus_alerts},
    {"/prometheus/api/v1/targets", "state scrapePool", "Prometheus: what is scraped, and how that goes", Role::kRead,
     prometheus_targets},
    {"/prometheus/api/v1/scrape_pools", "", "Prometheus: jobs of the scrape configuration", Role::kRead,
     prometheus_scrape_pools},
    {"/prometheus/api/v1/alertmanagers", "", "Prometheus: Alertmanagers that are told of alerts", Role::kRead,
     prometheus_alertmanagers},
    {"/prometheus/api/v1/admin/tsdb/delete_series", "match[] start end",
     "Prometheus: delete samples of series (with --admin-api)", Role::kAdmin, prometheus_delete_series, "POST", false,
     true},
    {"/prometheus/api/v1/admin/tsdb/clean_tombstones", "",
     "Prometheus: what was deleted leaves the disk (with --admin-api)", Role::kAdmin, prometheus_clean_tombstones,
     "POST", false, true},
    {"/prometheus/api/v1/admin/tsdb/snapshot", "", "Prometheus: all samples as a copy on disk (with --admin-api)",
     Role::kAdmin, prometheus_snapshot, "POST", false, true},
    {"/prometheus/api/v1/status/buildinfo", "", "Prometheus: which version's API this is", Role::kRead,
     prometheus_buildinfo},
    {"/prometheus/api/v1/status/runtimeinfo", "", "Prometheus: the server's time", Role::kRead, prometheus_runtimeinfo},
    {"/prometheus/api/v1/status/flags", "", "Prometheus: flags; none", Role::kRead, prometheus_flags},
    {"/prometheus/api/v1/status/config", "", "Prometheus: configuration; none", Role::kRead, prometheus_config},
    {"/prometheus/api/v1/status/tsdb", "limit", "Prometheus: which labels make how many series", Role::kRead,
     prometheus_tsdb, "GET", true},
    {"/prometheus/federate", "match[]", "Prometheus: the newest sample of each series, for another one to scrape",
     Role::kRead, prometheus_federate, "GET", true},
    {"/federate", "match[]", "Prometheus: the same, where its own has it", Role::kRead, prometheus_federate, "GET",
     true},
    {"/metrics", "", "Lockstep's own metrics, Prometheus text", Role::kRead, get_own_metrics},
    {"/healthz", "", "200 when alive", Role::kAnyone, get_healthz},
    {"/readyz", "format", "200 when recovery is done and nothing is wrong, else 503 and what is (format=json)",
     Role::kAnyone, get_readyz},
};

// Nobody is let in to a row that forgot its role, so none may.
static_assert(std::all_of(std::begin(kRoutes), std::end(kRoutes), [](const Route& route) {
  return route.role != Role::kUnset && route.role != Role::kIngest;
}));

// {job} and {name} take one or more segments (a job id, a service or a tag may hold '/'), everything else exactly one.
bool matches(std::string_view pattern, std::string_view path, ApiRequest* request) {
  std::vector<std::string_view> wanted = split(pattern, '/');
  std::vector<std::string_view> given = split(path, '/');
  if (given.size() < wanted.size()) return false;
  size_t extra = given.size() - wanted.size();
  size_t at = 0;
  for (std::string_view segment : wanted) {
    if (segment == "{job}" || segment == "{name}") {
      std::string& value = segment == "{job}" ? request->job : request->name;
      const char* begin = given[at].data();
      at += extra;
      value = std::string(begin, given[at].data() + given[at].size());
      if (value.empty()) return false;
      extra = 0;
    } else if (segment == "{rank}") {
      request->rank = std::string(given[at]);
    } else if (segment == "{step}") {
      request->step = std::string(given[at]);
    } else if (segment == "{capture}") {
      request->capture = std::string(given[at]);
    } else if (segment == "{file}") {
      request->file = std::string(given[at]);
    } else if (segment != given[at]) {
      return false;
    }
    ++at;
  }
  return at == given.size();
}

// Empty: every parameter given is one the route knows.
std::string unknown_parameter(const Route& route, std::string_view query) {
  std::vector<std::string_view> known = split(route.parameters, ' ');
  for (std::string_view pair : split(query, '&')) {
    std::string_view name = pair.substr(0, pair.find('='));
    if (name.empty() || std::find(known.begin(), known.end(), name) != known.end()) continue;
    std::string names;
    for (std::string_view one : known) names += (names.empty() ? "" : ", ") + std::string(one);
    return format("parameter \"%.40s\" is not known here; %s", std::string(name).c_str(),
                  names.empty() ? "this path takes none" : ("known: " + names).c_str());
  }
  return {};
}

bool is_below(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

bool is_own_api(std::string_view path) {
  return is_below(path, "/api");
}

// Receivers for others' clients: what they send besides is their business, not a mistake.
bool is_foreign_api(std::string_view path) {
  return path.starts_with("/jaeger/") || path.starts_with("/tempo/") || path.starts_with("/prometheus/") ||
         path.starts_with("/loki/") || path == "/federate" || path == "/mcp";
}

// The row that answers a request; of a path that is served with other methods only, the row that says which.
struct Found {
  const Route* route = nullptr;  // nullptr: no row has this path
  bool has_method = false;
};
Found find_route(const ServerRequest& request, ApiRequest* matched) {
  for (const Route& route : kRoutes) {
    if (!matches(route.pattern, request.path, matched)) continue;
    if (request.method == route.method) return {&route, true};
    const bool has_other = std::any_of(std::begin(kRoutes), std::end(kRoutes), [&](const Route& other) {
      return std::string_view(other.pattern) == route.pattern && request.method == other.method;
    });
    if (!has_other) return {&route, false};
  }
  return {};
}

bool is_of_route(const ServerRequest& request, bool Route::*property) {
  return std::any_of(std::begin(kRoutes), std::end(kRoutes), [&](const Route& route) {
    ApiRequest matched{request, {}, {}, {}, {}};
    return route.*property && request.method == route.method && matches(route.pattern, request.path, &matched);
  });
}

// The path's own names: what a request acts on. Not what somebody took for the id of a token.
std::string object_of(const Route& route, const ApiRequest& request) {
  if (std::string_view(route.pattern).starts_with("/api/tokens") && !is_token_id(request.name)) return {};
  std::string object = request.job.empty() ? request.name : "job " + request.job;
  if (!request.step.empty()) object += " step " + request.step;
  if (!request.capture.empty()) object += " capture " + request.capture;
  return object;
}

HttpResponse handled(const ApiContext& context, const Route& route, const ApiRequest& request) {
  if (context.audit == nullptr || (route.role != Role::kOperate && route.role != Role::kAdmin))
    return route.handler(context, request);
  const std::string object = object_of(route, request);
  const Result<int64_t> row = context.audit->begin(request.http.caller, route.role, request.http.peer,
                                                   std::string(route.method) + " " + route.pattern, object);
  if (!row.ok()) return error_answer(503, row.error());
  HttpResponse response = route.handler(context, request);
  context.audit->finish(*row, request.object.empty() ? object : request.object, response.status);
  return response;
}

HttpResponse not_yet(const std::string& why) {
  HttpResponse later = error_answer(503, why);
  later.headers.emplace_back("retry-after", "1");
  return later;
}

}  // namespace

std::span<const Route> routes() {
  return kRoutes;
}

bool takes_turns(const ServerRequest& request) {
  return is_of_route(request, &Route::takes_turns);
}

bool changes_state(const ServerRequest& request) {
  return is_of_route(request, &Route::changes_state);
}

Role role_of(const ServerRequest& request) {
  if (const ReceiverPath* receiver = find_receiver(request.path)) return receiver->role;
  ApiRequest matched{request, {}, {}, {}, {}};
  if (const Found found = find_route(request, &matched); found.route != nullptr) return found.route->role;
  const bool is_web_file = (request.method == "GET" || request.method == "HEAD") && !is_own_api(request.path) &&
                           !is_foreign_api(request.path);
  return is_web_file ? Role::kAnyone : Role::kRead;
}

std::string endpoint_of(const ServerRequest& request) {
  if (const ReceiverPath* receiver = find_receiver(request.path))
    return std::string(receiver->method) + " " + std::string(receiver->path);
  ApiRequest matched{request, {}, {}, {}, {}};
  const Found found = find_route(request, &matched);
  if (found.route == nullptr) return "what is not there";
  return std::string(found.route->method) + " " + found.route->pattern + (found.has_method ? "" : " by another method");
}

HttpResponse answer(const ApiContext& context, const ServerRequest& request) {
  const bool is_own = is_own_api(request.path);
  const bool is_api = is_own || is_foreign_api(request.path);
  auto only = [&](const char* method) {
    HttpResponse refused =
        error_answer(405, format("%.20s is not served here, only %s is", request.method.c_str(), method));
    refused.headers.emplace_back("allow", method);
    return refused;
  };
  if (request.method != "GET" && request.method != "POST") {
    ApiRequest other{request, {}, {}, {}, {}};
    const Found found = find_route(request, &other);
    return only(found.route != nullptr ? found.route->method : "GET");
  }
  if (is_api && !context.ready) {
    return not_yet("starting: the durable log is being read back; try again in a moment");
  }
  if (is_api && context.memory != nullptr && context.memory->spent()) return not_yet(kMemorySpent);
  ApiRequest matched{request, {}, {}, {}, {}};
  if (const Found found = find_route(request, &matched); found.route != nullptr) {
    if (!found.has_method) return only(found.route->method);
    if (std::string problem = unknown_parameter(*found.route, request.query); is_own && !problem.empty())
      return error_answer(400, problem);
    return handled(context, *found.route, matched);
  }
  if (request.method != "GET") return only("GET");
  if (request.path.starts_with("/loki/")) return loki_not_served(request.path);
  if (is_api) return error_answer(404, format("no such path: %.200s", request.path.c_str()));
  return get_web_file(context, request.path, request.depth);
}

HttpResponse answer_while_opening(const ServerRequest& request, const std::string& why) {
  if (request.path == "/healthz") return text_answer(200, "text/plain; charset=utf-8", "ok\n");
  return not_yet(why);
}

}  // namespace lockstep
