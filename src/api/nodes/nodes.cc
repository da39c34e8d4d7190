// GET /api/nodes: every node, worst first. GET /api/nodes/{host}, GET /api/gpus/{uuid}: one node or GPU: who runs there
// now, and what happened there this week.
#include <algorithm>

#include "api/answer.h"
#include "api/endpoints.h"
#include "api/jobs/job_view.h"
#include "api/nodes/node_view.h"
#include "api/warnings.h"
#include "base/text.h"

namespace lockstep {
namespace {

constexpr size_t kRanksShownMax = 256;
constexpr size_t kGpusShownMax = 256;
constexpr size_t kHoldersShownMax = 16;
constexpr size_t kJobsNamedMax = 8;
constexpr int64_t kDayNs = 86'400'000'000'000;

void write_gpu(JsonWriter& json, const NodeGpu& gpu, const char* state) {
  json.begin_object()
      .field("gpu_uuid", gpu.uuid)
      .field("index", gpu.index)
      .field("model", gpu.model)
      .field("state", state)
      .key("holders")
      .begin_array();
  for (size_t i = 0; i < std::min(gpu.holders.size(), kHoldersShownMax); ++i) {
    const GpuHolder& holder = gpu.holders[i];
    json.begin_object()
        .field("job_id", holder.job_id)
        .field("rank", holder.rank.value())
        .field("user", holder.user)
        .end_object();
  }
  json.end_array().field("holders_total", static_cast<uint64_t>(gpu.holders.size())).end_object();
}

void write_gpus(JsonWriter& json, const NodeView& node, const std::string& only_uuid, int64_t now) {
  json.key("gpus").begin_array();
  size_t shown = 0, total = 0;
  for (const NodeGpu& gpu : node.gpus) {
    if (!only_uuid.empty() && gpu.uuid != only_uuid) continue;
    ++total;
    if (shown == kGpusShownMax) continue;
    ++shown;
    write_gpu(json, gpu, state_of(gpu, node, now));
  }
  json.end_array().field("gpus_total", static_cast<uint64_t>(total));
}

void write_ranks(JsonWriter& json, const NodeView& node, const std::string& only_uuid, int64_t now) {
  json.key("ranks").begin_array();
  size_t shown = 0, total = 0;
  for (const NodeRank& rank : node.ranks) {
    const Identity& identity = rank.info.identity;
    if (!only_uuid.empty() && identity.gpu_uuid != only_uuid) continue;
    ++total;
    if (shown == kRanksShownMax) continue;
    ++shown;
    json.begin_object()
        .field("job_id", rank.job_id)
        .field("rank", identity.rank.value())
        .field("local_rank", identity.local_rank)
        .field("gpu_uuid", identity.gpu_uuid)
        .field("last_step", rank.info.last_step.value())
        .field("last_seen_unix_ns", rank.info.last_seen_unix_ns)
        .field("status", rank_state(rank.info, now))
        .end_object();
  }
  json.end_array().field("ranks_total", static_cast<uint64_t>(total));
}

void write_warnings(JsonWriter& json, const ApiContext& context, const PlaceAsked& asked) {
  json.key("warnings").begin_array();
  for (const WarningView& view : warnings_of(context, "", false)) {
    const EarlyWarning& warning = view.warning;
    if (asked.gpu_uuid.empty() ? warning.host == asked.host : warning.gpu_uuid == asked.gpu_uuid)
      write_warning(json, view);
  }
  json.end_array();
}

void write_state(JsonWriter& json, const NodeView& node, int64_t now) {
  json.field("host", node.host)
      .field("state", state_of(node, now))
      .field("last_seen_unix_ns", node.last_seen_unix_ns)
      .field("has_agent", node.agent.has_value())
      .field("records_lost", node.agent ? node.agent->records_lost : 0);
}

// 404, with a suggestion where one is near.
HttpResponse unknown_node(const ApiContext& context, const std::string& host) {
  std::vector<std::string> names;
  for (const auto& [name, node] : nodes_of(context, context.steps.jobs())) names.push_back(name);
  const std::optional<std::string> near = host.size() <= kIdentityTextMax ? did_you_mean(host, names) : std::nullopt;
  const std::string line = format("no node \"%.256s\" is known", as_one_line(host).c_str());
  return error_answer(404,
                      near ? line + format("; did you mean \"%s\"?", near->c_str()) : line + "; /api/nodes lists all");
}

HttpResponse place_answer(const ApiContext& context, const ApiRequest& request, const std::string& host,
                          const std::string& gpu_uuid) {
  const Result<int64_t> days = int_parameter(request.http, "days", 7, 1, 90);
  if (!days.ok()) return error_answer(400, days.error());
  Nodes nodes = host.empty() ? Nodes{} : nodes_of(context, context.steps.jobs(), host);
  if (nodes.empty()) return unknown_node(context, host);
  const NodeView& node = nodes.begin()->second;
  const int64_t now = context.clock.unix_ns();
  const PlaceAsked asked{host, gpu_uuid, now - *days * kDayNs};
  JsonWriter json;
  json.begin_object();
  write_state(json, node, now);
  if (!gpu_uuid.empty()) json.field("gpu_uuid", gpu_uuid);
  json.field("days", *days);
  write_gpus(json, node, gpu_uuid, now);
  write_ranks(json, node, gpu_uuid, now);
  write_verdicts(json, context, asked);
  write_incidents(json, context, asked);
  write_events(json, context, asked);
  write_warnings(json, context, asked);
  json.end_object();
  return json_answer(json);
}

bool is_worse(const NodeView& a, const NodeView& b, int64_t now) {
  if (a.verdicts_open != b.verdicts_open) return a.verdicts_open > b.verdicts_open;
  if (a.incidents_open != b.incidents_open) return a.incidents_open > b.incidents_open;
  const bool a_silent = std::string_view(state_of(a, now)) == "silent";
  const bool b_silent = std::string_view(state_of(b, now)) == "silent";
  return a_silent != b_silent ? a_silent : a.host < b.host;
}

void write_row(JsonWriter& json, const NodeView& node, int64_t now) {
  std::vector<std::string> jobs;
  for (const NodeRank& rank : node.ranks) {
    if (std::find(jobs.begin(), jobs.end(), rank.job_id) == jobs.end()) jobs.push_back(rank.job_id);
  }
  json.begin_object();
  write_state(json, node, now);
  json.field("gpus", static_cast<uint64_t>(node.gpus.size()))
      .field("gpus_idle", static_cast<uint64_t>(node.gpus_idle(now)))
      .field("ranks", static_cast<uint64_t>(node.ranks.size()))
      .field("verdicts_open", static_cast<uint64_t>(node.verdicts_open))
      .field("incidents_open", static_cast<uint64_t>(node.incidents_open))
      .key("job_ids")
      .begin_array();
  for (size_t i = 0; i < std::min(jobs.size(), kJobsNamedMax); ++i) json.string(jobs[i]);
  json.end_array().field("jobs_total", static_cast<uint64_t>(jobs.size())).end_object();
}

}  // namespace

HttpResponse get_nodes(const ApiContext& context, const ApiRequest& request) {
  const Result<int64_t> limit = int_parameter(request.http, "limit", 1000, 1, 100'000);
  if (!limit.ok()) return error_answer(400, limit.error());
  const std::string part = request.http.parameter("host");
  const int64_t now = context.clock.unix_ns();
  Nodes nodes = nodes_of(context, context.steps.jobs());
  count_findings(nodes, context);
  std::vector<const NodeView*> order;
  uint64_t gpus = 0, idle = 0;
  for (const auto& [host, node] : nodes) {
    if (!part.empty() && host.find(part) == std::string::npos) continue;
    order.push_back(&node);
    gpus += node.gpus.size();
    idle += node.gpus_idle(now);
  }
  std::sort(order.begin(), order.end(), [&](const auto* a, const auto* b) { return is_worse(*a, *b, now); });
  const size_t shown = std::min(order.size(), static_cast<size_t>(*limit));
  JsonWriter json;
  json.begin_object().field("gpus", gpus).field("gpus_idle", idle).key("nodes").begin_array();
  for (size_t i = 0; i < shown; ++i) write_row(json, *order[i], now);
  return list_answer(json, order.size(), shown);
}

HttpResponse get_node(const ApiContext& context, const ApiRequest& request) {
  return place_answer(context, request, request.name, "");
}

HttpResponse get_gpu(const ApiContext& context, const ApiRequest& request) {
  const std::string host = host_of_gpu(context, request.name);
  if (host.empty())
    return error_answer(404, format("no GPU \"%.256s\" is known; /api/nodes/HOST lists those of a node",
                                    as_one_line(request.name).c_str()));
  return place_answer(context, request, host, request.name);
}

}  // namespace lockstep
