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
    {"/api/jobs/{job}/steps", "last from to rank_from", "rank x step matrix for the heat map", get_steps},
    {"/api/jobs/{job}/ranks", "last limit", "one row per rank over a window of steps, worst first", get_ranks},
    {"/api/jobs/{job}/ranks/{rank}", "last from to", "one rank: its steps, communicators and flows", get_rank},
    {"/api/jobs/{job}", "", "one job", get_job},
    {"/api/verdicts", "state limit", "verdicts of all jobs, newest first", get_verdicts},
    {"/api/agents", "", "agents heard of: host, last seen, records lost", get_agents},
    {"/api/metrics", "name from to limit", "series of a metric by exact name; without a name, the list of names",
     get_metrics},
    {"/api/logs", "service event limit", "log records, newest first", get_logs},
    {"/api/spans", "service trace_id limit", "spans of a trace by start, else the newest first", get_spans},
    {"/metrics", "", "Lockstep's own metrics, Prometheus text", get_own_metrics},
    {"/healthz", "", "200 when alive", get_healthz},
    {"/readyz", "", "200 when every door is open and recovery is done", get_readyz},
};

// {job} takes one or more segments (a job id may hold '/'), everything else exactly one.
bool matches(std::string_view pattern, std::string_view path, ApiRequest* request) {
  std::vector<std::string_view> wanted = split(pattern, '/');
  std::vector<std::string_view> given = split(path, '/');
  if (given.size() < wanted.size()) return false;
  size_t extra = given.size() - wanted.size();
  size_t at = 0;
  for (std::string_view segment : wanted) {
    if (segment == "{job}") {
      const char* begin = given[at].data();
      at += extra;
      request->job = std::string(begin, given[at].data() + given[at].size());
      if (request->job.empty()) return false;
      extra = 0;
    } else if (segment == "{rank}") {
      request->rank = std::string(given[at]);
    } else if (segment == "{step}") {
      request->step = std::string(given[at]);
    } else if (segment == "{name}") {
      request->name = std::string(given[at]);
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

}  // namespace

std::span<const Route> routes() {
  return kRoutes;
}

HttpResponse answer(const ApiContext& context, const ServerRequest& request) {
  const bool is_own = request.path == "/api" || request.path.starts_with("/api/");
  // Doors for others' clients: what they send besides is their business, not a mistake.
  const bool is_foreign = request.path.starts_with("/jaeger/") || request.path.starts_with("/tempo/");
  const bool is_api = is_own || is_foreign;
  if (request.method != "GET") {
    HttpResponse refused = error_answer(405, format("%.20s is not served here, only GET is", request.method.c_str()));
    refused.headers.emplace_back("allow", "GET");
    return refused;
  }
  if (is_api && !context.ready) {
    HttpResponse later = error_answer(503, "starting: the durable log is being read back; try again in a moment");
    later.headers.emplace_back("retry-after", "1");
    return later;
  }
  for (const Route& route : kRoutes) {
    ApiRequest matched{request, {}, {}, {}, {}};
    if (!matches(route.pattern, request.path, &matched)) continue;
    if (std::string problem = unknown_parameter(route, request.query); is_own && !problem.empty())
      return error_answer(400, problem);
    return route.handler(context, matched);
  }
  if (is_api) return error_answer(404, format("no such path: %.200s", request.path.c_str()));
  return get_web_file(context, request.path);
}

}  // namespace lockstep
