#include "api/routes.h"

#include <algorithm>

#include "api/answer.h"
#include "api/endpoints.h"
#include "base/text.h"

namespace lockstep {
namespace {

// The first that matches answers, so longer patterns stand before shorter ones.
constexpr Route kRoutes[] = {
    {"/api/jobs", "limit", "every job known, worst first", get_jobs},
    {"/api/jobs/{job}/why", "", "the verdicts of a job and, where there are none, why not", get_why},
    {"/api/jobs/{job}/cost", "last", "where the time that a job loses goes; shares add to 100 %", get_cost},
    {"/api/jobs/{job}/mfu", "last", "why MFU is what it is: from the peak to what was achieved", get_mfu},
    {"/api/jobs/{job}/steps/{step}/perfetto", "ranks format", "a step as a Perfetto archive (tar) or file (pftrace)",
     get_perfetto},
    {"/api/jobs/{job}/steps/{step}/detail", "ranks", "ask the agents for a step in detail, as long as they have it",
     post_step_detail, "POST", false, true},
    {"/api/jobs/{job}/steps/{step}/timeline", "from_ns to_ns columns lines ranks spans",
     "the step as a picture: a line per rank, reduced to the screen that asks", get_timeline},
    {"/api/jobs/{job}/steps/{step}", "limit path", "one step: who waited for whom, critical path, where the time went",
     get_step},
    {"/api/jobs/{job}/traced", "limit", "steps of which there is detail, newest first", get_traced},
    {"/api/jobs/{job}/comms", "limit", "communicators: members, and what they are for", get_comms},
    {"/api/jobs/{job}/clocks", "step limit", "how far each rank's clock is off, and how well that is known",
     get_clocks},
    {"/api/jobs/{job}/slowest", "last from to limit",
     "slowest ranks over a window, and how often others waited for them", get_slowest},
    {"/api/jobs/{job}/stacks", "ranks", "stacks of ranks and dumps of PyTorch's Flight Recorder, the newest of each",
     get_stacks},
    {"/api/jobs/{job}/stacks", "ranks", "ask the agents for the stacks of these ranks now", post_stacks, "POST", false,
     true},
    {"/api/jobs/{job}/steps", "last from to rank_from", "rank x step matrix for the heat map", get_steps},
    {"/api/jobs/{job}/ranks", "last limit", "one row per rank over a window of steps, worst first", get_ranks},
    {"/api/jobs/{job}/ranks/{rank}", "last from to", "one rank: its steps, communicators and flows", get_rank},
    {"/api/jobs/{job}", "", "one job", get_job},
    {"/api/verdicts", "state limit", "verdicts of all jobs, newest first", get_verdicts},
    {"/api/verdicts/{name}/feedback", "", "say that a verdict was right or wrong, or take that back",
     post_verdict_feedback, "POST", false, true},
    {"/api/verdicts/{name}", "", "one verdict", get_verdict},
    {"/api/warnings", "job state limit", "early warnings: what will hurt if it goes on, the soonest first",
     get_warnings},
    {"/api/services/{name}", "last_s", "how an inference service does: first token, time per token, queue",
     get_service},
    {"/api/services", "", "services that have sent spans or vLLM metrics", get_services},
    {"/api/agents", "", "agents heard of: host, last seen, records lost", get_agents},
    {"/api/cardinality", "limit", "series, who made the most of them, limits and what was refused", get_cardinality},
    {"/api/metrics", "name from to limit", "series of a metric by exact name; without a name, the list of names",
     get_metrics},
    {"/api/logs", "service event limit", "log records, newest first", get_logs},
    {"/api/spans", "service trace_id limit", "spans of a trace by start, else the newest first", get_spans},
    {"/api/backup", "", "hold everything the server keeps for a copy: its files, as of now", post_backup, "POST", false,
     true},
    {"/api/backup/file", "id name from bytes", "bytes of a file that is held for a copy", get_backup_file},
    {"/api/backup/release", "id", "the copy is made, or given up", post_backup_release, "POST", false, true},
    // Others' clients know these; parameters they add are let through.
    {"/jaeger/api/services", "", "Jaeger: services", get_jaeger_services},
    {"/jaeger/api/services/{name}/operations", "", "Jaeger: names of a service's spans", get_jaeger_service_operations},
    {"/jaeger/api/operations", "service", "Jaeger: names of a service's spans", get_jaeger_operations},
    {"/jaeger/api/traces", "service operation tags minDuration maxDuration start end lookback limit",
     "Jaeger: traces, newest first", get_jaeger_traces},
    {"/jaeger/api/traces/{name}", "", "Jaeger: one trace", get_jaeger_trace},
    {"/jaeger/api/dependencies", "endTs lookback", "Jaeger: which service calls which", get_jaeger_dependencies},
    {"/jaeger/api/v3/services", "", "Jaeger v3: services", get_jaeger_v3_services},
    {"/jaeger/api/v3/operations", "service", "Jaeger v3: names of a service's spans", get_jaeger_v3_operations},
    {"/jaeger/api/v3/traces", "query.service_name query.operation_name query.start_time_min query.start_time_max",
     "Jaeger v3: traces as OTLP", get_jaeger_v3_traces},
    {"/jaeger/api/v3/traces/{name}", "", "Jaeger v3: one trace as OTLP", get_jaeger_v3_trace},
    {"/tempo/api/echo", "", "Tempo: is anybody there", get_tempo_echo},
    {"/tempo/ready", "", "Tempo: is anybody there", get_tempo_ready},
    {"/tempo/api/status/buildinfo", "", "Tempo: version", get_tempo_buildinfo},
    {"/tempo/api/traces/{name}", "start end", "Tempo: one trace, protobuf by Accept", get_tempo_trace},
    {"/tempo/api/v2/traces/{name}", "start end", "Tempo: one trace, protobuf by Accept", get_tempo_v2_trace},
    {"/tempo/api/search", "q tags minDuration maxDuration limit spss start end", "Tempo: traces by TraceQL or tags",
     get_tempo_search},
    {"/tempo/api/search/tags", "limit", "Tempo: names of attributes", get_tempo_tags},
    {"/tempo/api/v2/search/tags", "scope limit", "Tempo: names of attributes by scope", get_tempo_v2_tags},
    {"/tempo/api/search/tag/{name}/values", "limit", "Tempo: values of an attribute", get_tempo_tag_values},
    {"/tempo/api/v2/search/tag/{name}/values", "limit", "Tempo: values of an attribute, typed",
     get_tempo_v2_tag_values},
    {"/tempo/api/metrics/query_range", "", "Tempo: metrics of spans, not served", get_tempo_metrics},
    {"/tempo/api/metrics/query", "", "Tempo: metrics of spans, not served", get_tempo_metrics},
    {"/prometheus/api/v1/query", "query time timeout limit lookback_delta stats", "Prometheus: a query at one time",
     prometheus_query, "GET", true},
    {"/prometheus/api/v1/query", "", "Prometheus: the same, as a form", prometheus_query, "POST", true},
    {"/prometheus/api/v1/query_range", "query start end step timeout limit lookback_delta stats",
     "Prometheus: a query over a range of time", prometheus_query_range, "GET", true},
    {"/prometheus/api/v1/query_range", "", "Prometheus: the same, as a form", prometheus_query_range, "POST", true},
    {"/prometheus/api/v1/query_exemplars", "query start end", "Prometheus: exemplars of a query's series",
     prometheus_query_exemplars, "GET", true},
    {"/prometheus/api/v1/query_exemplars", "", "Prometheus: the same, as a form", prometheus_query_exemplars, "POST",
     true},
    {"/prometheus/api/v1/format_query", "query", "Prometheus: a query in normal form", prometheus_format_query, "GET",
     true},
    {"/prometheus/api/v1/format_query", "", "Prometheus: the same, as a form", prometheus_format_query, "POST", true},
    {"/prometheus/api/v1/parse_query", "query", "Prometheus: a query as a tree", prometheus_parse_query, "GET", true},
    {"/prometheus/api/v1/parse_query", "", "Prometheus: the same, as a form", prometheus_parse_query, "POST", true},
    {"/prometheus/api/v1/series", "match[] start end limit", "Prometheus: label sets of series", prometheus_series,
     "GET", true},
    {"/prometheus/api/v1/series", "", "Prometheus: the same, as a form", prometheus_series, "POST", true},
    {"/prometheus/api/v1/labels", "match[] start end limit", "Prometheus: names of labels", prometheus_labels, "GET",
     true},
    {"/prometheus/api/v1/labels", "", "Prometheus: the same, as a form", prometheus_labels, "POST", true},
    {"/prometheus/api/v1/label/{name}/values", "match[] start end limit", "Prometheus: values of a label",
     prometheus_label_values, "GET", true},
    {"/prometheus/api/v1/metadata", "metric limit limit_per_metric", "Prometheus: type, help and unit of metrics",
     prometheus_metadata},
    {"/prometheus/api/v1/rules", "type rule_name[] rule_group[] file[] exclude_alerts match[]",
     "Prometheus: one rule for each layer that diagnosis may blame", prometheus_rules},
    {"/prometheus/api/v1/alerts", "", "Prometheus: open verdicts as alerts", prometheus_alerts},
    {"/prometheus/api/v1/targets", "state scrapePool", "Prometheus: what is scraped, and how that goes",
     prometheus_targets},
    {"/prometheus/api/v1/scrape_pools", "", "Prometheus: jobs of the scrape configuration", prometheus_scrape_pools},
    {"/prometheus/api/v1/alertmanagers", "", "Prometheus: Alertmanagers; none", prometheus_alertmanagers},
    {"/prometheus/api/v1/admin/tsdb/delete_series", "match[] start end",
     "Prometheus: delete samples of series (with --admin-api)", prometheus_delete_series, "POST", false, true},
    {"/prometheus/api/v1/admin/tsdb/clean_tombstones", "",
     "Prometheus: what was deleted leaves the disk (with --admin-api)", prometheus_clean_tombstones, "POST", false,
     true},
    {"/prometheus/api/v1/admin/tsdb/snapshot", "", "Prometheus: all samples as a copy on disk (with --admin-api)",
     prometheus_snapshot, "POST", false, true},
    {"/prometheus/api/v1/status/buildinfo", "", "Prometheus: which version's API this is", prometheus_buildinfo},
    {"/prometheus/api/v1/status/runtimeinfo", "", "Prometheus: the server's time", prometheus_runtimeinfo},
    {"/prometheus/api/v1/status/flags", "", "Prometheus: flags; none", prometheus_flags},
    {"/prometheus/api/v1/status/config", "", "Prometheus: configuration; none", prometheus_config},
    {"/prometheus/api/v1/status/tsdb", "limit", "Prometheus: which labels make how many series", prometheus_tsdb, "GET",
     true},
    {"/metrics", "", "Lockstep's own metrics, Prometheus text", get_own_metrics},
    {"/healthz", "", "200 when alive", get_healthz},
    {"/readyz", "format", "200 when recovery is done and nothing is wrong, else 503 and what is (format=json)",
     get_readyz},
};

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

bool is_of_route(const ServerRequest& request, bool Route::*property) {
  return std::any_of(std::begin(kRoutes), std::end(kRoutes), [&](const Route& route) {
    ApiRequest matched{request, {}, {}, {}, {}};
    return route.*property && request.method == route.method && matches(route.pattern, request.path, &matched);
  });
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

HttpResponse answer(const ApiContext& context, const ServerRequest& request) {
  const bool is_own = request.path == "/api" || request.path.starts_with("/api/");
  // Receivers for others' clients: what they send besides is their business, not a mistake.
  const bool is_foreign = request.path.starts_with("/jaeger/") || request.path.starts_with("/tempo/") ||
                          request.path.starts_with("/prometheus/");
  const bool is_api = is_own || is_foreign;
  auto only = [&](const char* method) {
    HttpResponse refused =
        error_answer(405, format("%.20s is not served here, only %s is", request.method.c_str(), method));
    refused.headers.emplace_back("allow", method);
    return refused;
  };
  if (request.method != "GET" && request.method != "POST") return only("GET");
  if (is_api && !context.ready) {
    return not_yet("starting: the durable log is being read back; try again in a moment");
  }
  if (is_api && context.memory != nullptr && context.memory->spent()) return not_yet(kMemorySpent);
  for (const Route& route : kRoutes) {
    ApiRequest matched{request, {}, {}, {}, {}};
    if (!matches(route.pattern, request.path, &matched)) continue;
    if (request.method != route.method) {
      const bool has_other = std::any_of(std::begin(kRoutes), std::end(kRoutes), [&](const Route& other) {
        return std::string_view(other.pattern) == route.pattern && request.method == other.method;
      });
      if (has_other) continue;
      return only(route.method);
    }
    if (std::string problem = unknown_parameter(route, request.query); is_own && !problem.empty())
      return error_answer(400, problem);
    return route.handler(context, matched);
  }
  if (request.method != "GET") return only("GET");
  if (is_api) return error_answer(404, format("no such path: %.200s", request.path.c_str()));
  return get_web_file(context, request.path);
}

HttpResponse answer_while_opening(const ServerRequest& request, const std::string& why) {
  if (request.path == "/healthz") return text_answer(200, "text/plain; charset=utf-8", "ok\n");
  return not_yet(why);
}

}  // namespace lockstep
