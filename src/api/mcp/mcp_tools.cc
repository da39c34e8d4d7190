#include "api/mcp/mcp_tools.h"

#include <algorithm>

#include "api/mcp/bounded_json.h"
#include "api/routes.h"
#include "base/text.h"

namespace lockstep::mcp {
namespace {

constexpr ArgumentKind kText = ArgumentKind::kText, kNumber = ArgumentKind::kInteger;
constexpr ArgumentRow kJob = {"job", kText, true, 0, 0, 0, "name of the job, as in the tool jobs"};
constexpr ArgumentRow kMaxBytes = {"max_bytes",
                                   kNumber,
                                   false,
                                   20'000,
                                   1'000,
                                   200'000,
                                   "longest answer; lists and texts are cut to fit it, and what was cut is said"};

std::string of_job(const Arguments& arguments, const char* rest) {
  return "/api/jobs/" + arguments.text("job") + rest;
}

std::string with(std::string query, const char* name, const std::string& value) {
  return value.empty() ? query : query + (query.empty() ? "" : "&") + name + "=" + url_part(value);
}
std::string with(std::string query, const char* name, int64_t value) {
  return with(std::move(query), name, std::to_string(value));
}

// jobs
constexpr ArgumentRow kJobsArguments[] = {{"limit", kNumber, false, 20, 1, 200, "how many, the worst first"},
                                          kMaxBytes};
Result<std::string> run_jobs(const Asker& api, const Arguments& arguments) {
  return api.get("/api/jobs", with("", "limit", arguments.number("limit")));
}

// why
constexpr ArgumentRow kWhyArguments[] = {kJob, kMaxBytes};
Result<std::string> run_why(const Asker& api, const Arguments& arguments) {
  return api.get(of_job(arguments, "/why"));
}

// evidence
constexpr ArgumentRow kEvidenceArguments[] = {
    {"query", kText, true, 0, 0, 0,
     "the field \"query\" of a claim in an answer of why, as it stands there: /api/... or /prometheus/..."},
    kMaxBytes};
Result<std::string> run_evidence(const Asker& api, const Arguments& arguments) {
  const std::string& query = arguments.text("query");
  const size_t mark = query.find('?');
  const std::string path = from_url_part(query.substr(0, mark)).value_or("");
  if (!path.starts_with("/api/") && !path.starts_with("/prometheus/api/v1/"))
    return Error{"query: it must be the query of a claim, which begins with /api/ or /prometheus/api/v1/"};
  return api.get(path, mark == std::string::npos ? "" : query.substr(mark + 1));
}

// step
constexpr ArgumentRow kStepArguments[] = {
    kJob,
    {"step", kText, false, 0, 0, 0, "number of the step, or latest (default): one that was recorded in detail"},
    {"limit", kNumber, false, 10, 1, 200, "ranks to show, the latest to arrive first"},
    kMaxBytes};
Result<std::string> run_step(const Asker& api, const Arguments& arguments) {
  const std::string& step = arguments.text("step");
  if (step.find('/') != std::string::npos) return Error{"step: a step is a whole number, or latest"};
  return api.get(of_job(arguments, "/steps/") + (step.empty() ? "latest" : step),
                 with("", "limit", arguments.number("limit")));
}

// query
constexpr ArgumentRow kQueryArguments[] = {
    {"query", kText, true, 0, 0, 0, "PromQL, e.g. max by (host) (hw_temperature_celsius)"},
    {"time", kText, false, 0, 0, 0, "at this time: Unix seconds or RFC 3339 (default now)"},
    {"start", kText, false, 0, 0, 0, "over a range instead: from this time on"},
    {"end", kText, false, 0, 0, 0, "to this time"},
    {"step", kText, false, 0, 0, 0, "between two points of the range, e.g. 15s or 1m (default 1m)"},
    {"limit", kNumber, false, 50, 1, 1000, "how many series"},
    kMaxBytes};
Result<std::string> run_query(const Asker& api, const Arguments& arguments) {
  std::string query = with("", "query", arguments.text("query"));
  query = with(std::move(query), "limit", arguments.number("limit"));
  if (arguments.given("start") != arguments.given("end")) return Error{"start and end belong together"};
  if (!arguments.given("start"))
    return api.get("/prometheus/api/v1/query", with(std::move(query), "time", arguments.text("time")));
  query = with(with(std::move(query), "start", arguments.text("start")), "end", arguments.text("end"));
  return api.get("/prometheus/api/v1/query_range",
                 with(std::move(query), "step", arguments.given("step") ? arguments.text("step") : "1m"));
}

// node: what a person would look at first, each by the query that shows it again.
struct NodeQuery {
  const char* what;
  const char* query;  // {host} is the host as a quoted text
};
constexpr NodeQuery kNodeQueries[] = {
    {"SM clock of each GPU, Hz", "max by (gpu_uuid) (lockstep_gpu_clock_hertz{host={host},clock=\"sm\"})"},
    {"temperature of each GPU, degrees",
     "max by (gpu_uuid) (hw_temperature_celsius{host={host},hw_sensor_location=\"gpu\"})"},
    {"power of each GPU, W", "max by (gpu_uuid) (hw_power_watts{host={host}})"},
    {"share of the last minute slowed by heat",
     "max by (gpu_uuid) (rate(lockstep_gpu_throttle_seconds_total{host={host},reason=\"thermal\"}[1m])) > 0"},
    {"share of the last minute at the power limit",
     "max by (gpu_uuid) (rate(lockstep_gpu_throttle_seconds_total{host={host},reason=\"power\"}[1m])) > 0"},
    {"errors of GPUs in the last hour",
     "sum by (gpu_uuid, error_type) (increase(hw_errors_total{host={host}}[1h])) > 0"},
    {"XIDs in the last hour", "sum by (gpu_uuid, xid) (increase(lockstep_gpu_xid_total{host={host}}[1h])) > 0"},
    {"speed of each adapter, bytes/s", "max by (device) (hw_network_bandwidth_limit_bytes_per_second{host={host}})"},
    {"adapters that are down", "max by (device) (hw_network_up_ratio{host={host}}) < 1"},
    {"pressure, share of the last 10 s", "max by (resource) (lockstep_host_pressure{host={host}})"},
};
constexpr ArgumentRow kNodeArguments[] = {{"host", kText, true, 0, 0, 0, "name of the node"}, kMaxBytes};

std::string promql_text(std::string_view text) {
  JsonWriter json;
  return json.string(text).take();  // PromQL takes JSON's escapes
}

void write_node_metrics(JsonWriter& json, const Asker& api, const std::string& host) {
  json.key("metrics").begin_array();
  for (const NodeQuery& row : kNodeQueries) {
    std::string query = row.query;
    query.replace(query.find("{host}"), 6, promql_text(host));
    const Result<std::string> answer = api.get("/prometheus/api/v1/query", with("", "query", query));
    json.begin_object().field("what", row.what).field("query", query);
    const Result<JsonDocument> read =
        answer.ok() ? JsonDocument::parse(*answer) : Result<JsonDocument>(answer.failure());
    const JsonValue result = read.ok() ? read->root()["data"]["result"] : JsonValue();
    json.key("result");
    if (result.present()) {
      json.raw(result.json());
    } else {
      json.null().field("error", answer.ok() ? "no answer" : answer.error());
    }
    json.end_object();
  }
  json.end_array();
}

Result<std::string> run_node(const Asker& api, const Arguments& arguments) {
  const std::string& host = arguments.text("host");
  const std::string node = LOCKSTEP_TRY(api.get("/api/nodes/" + host));
  JsonWriter json;
  json.begin_object().key("node").raw(node);
  // Where no topology is kept, nobody knows who depends on it.
  const Result<std::string> affected = api.get("/api/fabric/affected", with("", "component", "host:" + host));
  json.key("affected");
  affected.ok() ? json.raw(*affected) : json.null();
  write_node_metrics(json, api, host);
  return json.end_object().take();
}

// profile
constexpr ArgumentRow kProfileArguments[] = {
    kJob,
    {"capture", kText, false, 0, 0, 0, "one of them, p-...: what the server found in it; without it, all of the job"},
    {"limit", kNumber, false, 10, 1, 100, "how many, newest first"},
    kMaxBytes};
Result<std::string> run_profile(const Asker& api, const Arguments& arguments) {
  const std::string& capture = arguments.text("capture");
  if (capture.empty()) return api.get(of_job(arguments, "/profiles"), with("", "limit", arguments.number("limit")));
  if (capture.find('/') != std::string::npos) return Error{"capture: it is p- and twelve digits, as in the list"};
  return api.get(of_job(arguments, "/profiles/") + capture + "/summary");
}

// logs
constexpr ArgumentRow kLogsArguments[] = {
    {"job", kText, false, 0, 0, 0, "of this job"},
    {"rank", kText, false, 0, 0, 0, "of this rank"},
    {"host", kText, false, 0, 0, 0, "of this host"},
    {"event", kText, false, 0, 0, 0, "of this event: gpu.xid, link.down, rank.status, ..."},
    {"severity", kText, false, 0, 0, 0, "this bad or worse: trace, debug, info, warn, error, fatal"},
    {"grep", kText, false, 0, 0, 0, "with this text in event, body or attributes"},
    {"from", kText, false, 0, 0, 0, "not older, Unix nanoseconds"},
    {"to", kText, false, 0, 0, 0, "not newer, Unix nanoseconds"},
    {"limit", kNumber, false, 20, 1, 1000, "how many, newest first"},
    kMaxBytes};
Result<std::string> run_logs(const Asker& api, const Arguments& arguments) {
  std::string query = with("", "limit", arguments.number("limit"));
  for (const char* name : {"job", "rank", "host", "event", "severity", "grep", "from", "to"})
    query = with(std::move(query), name, arguments.text(name));
  return api.get("/api/logs", query);
}

// incidents
constexpr ArgumentRow kIncidentsArguments[] = {
    {"incident", kText, false, 0, 0, 0, "one of them, i-...; without it, those that are not resolved"},
    {"limit", kNumber, false, 20, 1, 200, "how many"},
    kMaxBytes};
Result<std::string> run_incidents(const Asker& api, const Arguments& arguments) {
  const std::string& incident = arguments.text("incident");
  if (incident.empty()) return api.get("/api/incidents", with("", "limit", arguments.number("limit")));
  if (incident.find('/') != std::string::npos) return Error{"incident: it is i- and twelve digits, as in the list"};
  return api.get("/api/incidents/" + incident);
}

// order_profile
constexpr ArgumentRow kOrderArguments[] = {
    kJob,
    {"ranks", kText, false, 0, 0, 0, "numbers, or worst, median, all; default worst,median"},
    {"steps", kNumber, false, 2, 1, 100, "how many steps"},
    kMaxBytes};
Result<std::string> run_order_profile(const Asker& api, const Arguments& arguments) {
  return api.post(of_job(arguments, "/profiles"),
                  with(with("", "ranks", arguments.text("ranks")), "steps", arguments.number("steps")));
}

// acknowledge
constexpr ArgumentRow kAcknowledgeArguments[] = {
    {"incident", kText, true, 0, 0, 0, "i-..., as in an answer of why or incidents"},
    {"note", kText, false, 0, 0, 0, "what people should know about it"},
    kMaxBytes};
Result<std::string> run_acknowledge(const Asker& api, const Arguments& arguments) {
  const std::string& incident = arguments.text("incident");
  if (incident.find('/') != std::string::npos) return Error{"incident: it is i- and twelve digits"};
  JsonWriter body;
  body.begin_object().field("note", arguments.text("note")).end_object();
  return api.post("/api/incidents/" + incident + "/acknowledge", "", body.take());
}

constexpr ToolRow kTools[] = {
    {"jobs", "Jobs", "Training jobs that Lockstep knows, the worst first: state, steps, ranks, what is wrong.",
     Role::kRead, kJobsArguments, run_jobs},
    {"why", "Why is a job slow or stuck",
     "What is wrong with a job: verdicts with the guilty rank, host and cause, what it costs, the evidence (each claim "
     "has a "
     "\"query\" for the tool evidence), what was excluded, what to do next; and where the time of a step goes.",
     Role::kRead, kWhyArguments, run_why},
    {"evidence", "Evidence of a claim",
     "The numbers behind a claim of a verdict, computed again from what is stored: steps, signals of nodes, stacks, "
     "logs.",
     Role::kRead, kEvidenceArguments, run_evidence},
    {"step", "One step", "One step of a job: who waited for whom, the critical path, where the time went.", Role::kRead,
     kStepArguments, run_step},
    {"query", "PromQL", "Metrics of GPUs, network adapters, hosts and jobs by PromQL.", Role::kRead, kQueryArguments,
     run_query},
    {"node", "One node",
     "A node: whether its agent reports, its GPUs and who holds them, ranks, verdicts, incidents, events of its "
     "hardware and early warnings of a week, which jobs depend on it; clocks, heat, power, errors, adapters, pressure.",
     Role::kRead, kNodeArguments, run_node},
    {"profile", "Kernel profiles", "Kernel profiles of a job, and what the server found in one of them.", Role::kRead,
     kProfileArguments, run_profile},
    {"logs", "Log records", "What jobs, ranks and nodes logged, and their events (XIDs, links, stacks), newest first.",
     Role::kRead, kLogsArguments, run_logs},
    {"incidents", "Incidents", "What is broken now, since when, whom it hits, what it costs, who takes care of it.",
     Role::kRead, kIncidentsArguments, run_incidents},
    {"order_profile", "Order a kernel profile",
     "Asks the agents for a kernel profile of some ranks of a running job. Needs the role operate; is written to the "
     "audit "
     "log.",
     Role::kOperate, kOrderArguments, run_order_profile},
    {"acknowledge", "Acknowledge an incident",
     "Says that somebody takes care of an incident. Needs the role operate; is written to the audit log.",
     Role::kOperate, kAcknowledgeArguments, run_acknowledge},
};

// The API's own line where it says one: {"error": "..."}, of Prometheus too.
std::string error_line(const HttpResponse& response) {
  const Result<JsonDocument> document = JsonDocument::parse(response.body, {.bytes_max = 1 << 20});
  const std::optional<std::string> line = document.ok() ? document->root()["error"].string() : std::nullopt;
  return line ? *line : format("the server answered %d", response.status);
}

// What is wrong, in the words of verdicts themselves.
std::string sentences_of(std::string_view json) {
  const Result<JsonDocument> document = JsonDocument::parse(json);
  if (!document.ok()) return {};
  std::string lines = document->root()["summary"].string().value_or("");
  for (const JsonValue verdict : document->root()["verdicts"]) {
    if (verdict["state"].string() == "cleared") continue;
    const std::string sentence = verdict["sentence"].string().value_or("");
    if (lines.find(sentence) == std::string::npos) lines += (lines.empty() ? "" : "\n") + sentence;
  }
  return lines;
}

}  // namespace

const std::string& Arguments::text(std::string_view name) const {
  static const std::string kNone;
  const auto found = texts_.find(name);
  return found == texts_.end() ? kNone : found->second;
}

int64_t Arguments::number(std::string_view name) const {
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? 0 : found->second;
}

Result<std::string> Asker::get(const std::string& path, const std::string& query) const {
  return ask("GET", path, query, "");
}

Result<std::string> Asker::post(const std::string& path, const std::string& query, const std::string& body) const {
  return ask("POST", path, query, body);
}

Result<std::string> Asker::ask(const char* method, const std::string& path, const std::string& query,
                               const std::string& body) const {
  ServerRequest inner{.method = method, .path = path, .query = query, .headers = {}, .body = body};
  inner.caller = outer_.caller;
  inner.peer = outer_.peer;
  inner.is_gone = outer_.is_gone;
  inner.waited_ms = outer_.waited_ms;
  // A query never does more than read, whatever the caller may do besides.
  const Role needed = role_of(inner);
  if (inner.method == "GET" ? needed != Role::kRead : needed != Role::kOperate)
    return Error{format("%.200s is not for assistants", as_one_line(path).c_str())};
  if (!may(outer_.caller.roles, needed)) return Error{"this needs a role that the token does not have"};
  HttpResponse response = answer(context_, inner);
  if (response.status < 200 || response.status >= 300) return Error{error_line(response)};
  if (response.source != nullptr || response.header("content-type") != "application/json")
    return Error{"that is a file; get it from the server's page"};
  return std::move(response.body);
}

std::span<const ToolRow> tools() {
  return kTools;
}

const ToolRow* find_tool(std::string_view name) {
  for (const ToolRow& tool : kTools) {
    if (name == tool.name) return &tool;
  }
  return nullptr;
}

Result<void> may_use(const ToolRow& tool, const Caller& caller) {
  if (tool.role == Role::kRead) return {};
  if (caller.name.empty())
    return Error{
        format("%s changes something: it needs a token with the role operate, and this server lets anybody in "
               "without one",
               tool.name)};
  if (!may(caller.roles, tool.role)) return Error{format("%s needs the role operate", tool.name)};
  return {};
}

Result<Arguments> read_arguments(const ToolRow& tool, const JsonValue& given_untrusted) {
  Arguments arguments;
  if (given_untrusted.present() && !given_untrusted.is_object()) return Error{"arguments must be an object"};
  for (const JsonValue field : given_untrusted) {
    const std::string name = field.key();
    const auto row = std::find_if(tool.arguments.begin(), tool.arguments.end(),
                                  [&](const ArgumentRow& one) { return name == one.name; });
    if (row == tool.arguments.end()) {
      std::string known;
      for (const ArgumentRow& one : tool.arguments) known += (known.empty() ? "" : ", ") + std::string(one.name);
      return Error{
          format("%s does not take \"%.40s\"; it takes %s", tool.name, as_one_line(name).c_str(), known.c_str())};
    }
    if (field.json() == "null") continue;
    if (row->kind == ArgumentKind::kInteger) {
      const std::optional<int64_t> number = field.integer();
      if (!number || *number < row->least || *number > row->most)
        return Error{format("%s must be a whole number from %lld to %lld", row->name,
                            static_cast<long long>(row->least), static_cast<long long>(row->most))};
      arguments.numbers_[name] = *number;
    } else {
      // Who writes a step as a number means the same.
      const std::optional<int64_t> number = field.integer();
      const std::optional<std::string> text = number ? std::to_string(*number) : field.string();
      if (!text || text->size() > kArgumentBytesMax)
        return Error{format("%s must be a text of at most %zu bytes", row->name, kArgumentBytesMax)};
      if (text->empty()) continue;
      arguments.texts_[name] = *text;
    }
  }
  for (const ArgumentRow& row : tool.arguments) {
    if (row.required && !arguments.given(row.name)) return Error{format("%s is missing: %s", row.name, row.help)};
    if (row.kind == ArgumentKind::kInteger) arguments.numbers_.try_emplace(row.name, row.fallback);
  }
  return arguments;
}

void write_tool(JsonWriter& json, const ToolRow& tool) {
  json.begin_object().field("name", tool.name).field("title", tool.title).field("description", tool.help);
  json.key("inputSchema").begin_object().field("type", "object").key("properties").begin_object();
  for (const ArgumentRow& row : tool.arguments) {
    json.key(row.name).begin_object();
    json.field("type", row.kind == ArgumentKind::kInteger ? "integer" : "string").field("description", row.help);
    if (row.kind == ArgumentKind::kInteger)
      json.field("minimum", row.least).field("maximum", row.most).field("default", row.fallback);
    json.end_object();
  }
  json.end_object().key("required").begin_array();
  for (const ArgumentRow& row : tool.arguments) {
    if (row.required) json.string(row.name);
  }
  json.end_array().field("additionalProperties", false).end_object();
  json.key("annotations")
      .begin_object()
      .field("title", tool.title)
      .field("readOnlyHint", tool.role == Role::kRead)
      .field("destructiveHint", false)
      .field("openWorldHint", false)
      .end_object()
      .end_object();
}

ToolAnswer call_tool(const ToolRow& tool, const ApiContext& context, const ServerRequest& outer,
                     const JsonValue& arguments_untrusted) {
  auto failed = [](const std::string& line) { return ToolAnswer{.texts = {line}, .is_error = true}; };
  if (const Result<void> allowed = may_use(tool, outer.caller); !allowed.ok()) return failed(allowed.error());
  const Result<Arguments> arguments = read_arguments(tool, arguments_untrusted);
  if (!arguments.ok()) return failed(arguments.error());
  const Result<std::string> json = tool.run(Asker(context, outer), *arguments);
  if (!json.ok()) return failed(json.error());
  Result<BoundedJson> bounded = bounded_json(*json, static_cast<size_t>(arguments->number("max_bytes")));
  if (!bounded.ok()) return failed(bounded.error());
  ToolAnswer answer;
  if (std::string said = tool.run == run_why ? sentences_of(*json) : ""; !said.empty())
    answer.texts.push_back(std::move(said));
  answer.texts.push_back(std::move(bounded->json));
  if (bounded->cut_count > 0) {
    std::string note = "Cut to fit max_bytes: ";
    for (size_t i = 0; i < bounded->cut.size(); ++i) note += (i == 0 ? "" : "; ") + bounded->cut[i];
    if (bounded->cut_count > bounded->cut.size())
      note += format("; and %zu more", bounded->cut_count - bounded->cut.size());
    answer.texts.push_back(note + ".");
  }
  return answer;
}

}  // namespace lockstep::mcp
