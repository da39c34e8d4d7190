// GET /api/overhead: what Lockstep itself costs, as a share of the fleet it watches.
#include "analysis/cost/own_overhead.h"
#include "api/answer.h"
#include "api/endpoints.h"

namespace lockstep {
namespace {

// Of thousands of hosts an hour of raw samples is a hundred million; what things cost now shows in minutes.
constexpr int64_t kWindowNs = 600'000'000'000;
constexpr int64_t kWindowNsMax = 31 * int64_t{86'400'000'000'000};

void write_agents(JsonWriter& json, const AgentOverhead& agents) {
  const auto number = [&](const char* name, double value) { json.key(name).number(value); };
  json.key("agents").begin_object().field("hosts", static_cast<uint64_t>(agents.hosts));
  number("cpu_cores", agents.cpu_cores);
  json.field("share_hosts", static_cast<uint64_t>(agents.share_hosts));
  number("share_cpu_cores", agents.share_hosts > 0 ? agents.share_cpu_cores : kUnknownCost);
  number("share_of_cores", agents.share_hosts > 0 ? agents.share_of_cores : kUnknownCost);
  number("cpu_share", agents.cpu_share);
  json.field("worst_host", agents.worst_host);
  number("worst_cpu_cores", agents.worst_cpu_cores);
  number("worst_cpu_share", agents.worst_share);
  number("memory_bytes", agents.memory_bytes);
  number("sent_bytes_per_s", agents.sent_bytes_per_s);
  json.field("gpus", static_cast<uint64_t>(agents.gpus));
  number("sent_bytes_per_s_per_gpu", agents.sent_bytes_per_s_per_gpu);
  json.end_object();
}

void write_server(JsonWriter& json, const ServerOverhead& server) {
  const auto number = [&](const char* name, double value) { json.key(name).number(value); };
  json.key("server").begin_object();
  number("cpu_cores", server.cpu_cores);
  number("memory_bytes", server.memory_bytes);
  number("disk_bytes", server.disk_bytes);
  number("disk_bytes_per_gpu", server.disk_bytes_per_gpu);
  number("disk_bytes_per_gpu_day", server.disk_bytes_per_gpu_day);
  json.end_object();
}

}  // namespace

HttpResponse get_overhead(const ApiContext& context, const ApiRequest& request) {
  const int64_t now = context.clock.unix_ns();
  const Result<int64_t> to = int_parameter(request.http, "to", now, 1, now);
  if (!to.ok()) return error_answer(400, to.error());
  const int64_t first = std::max<int64_t>(0, *to - kWindowNsMax);
  const Result<int64_t> from = int_parameter(request.http, "from", std::max(first, *to - kWindowNs), first, *to - 1);
  if (!from.ok()) return error_answer(400, from.error() + " (Unix nanoseconds; before to, by 31 days at most)");
  std::vector<std::string> heard;
  for (const AgentInfo& agent : context.agents.agents()) {
    if (agent.last_seen_unix_ns >= *from && agent.first_seen_unix_ns <= *to) heard.push_back(agent.host);
  }
  const Result<Overhead> overhead = overhead_of(context.metrics, heard, *from, *to);
  if (!overhead.ok()) return error_answer(500, overhead.error());
  JsonWriter json;
  json.begin_object().field("from_unix_ns", *from).field("to_unix_ns", *to).field("sentence", overhead->sentence);
  write_agents(json, overhead->agents);
  write_server(json, overhead->server);
  json.key("unknown").begin_array();
  for (const UnknownCost& row : overhead->unknown) {
    json.begin_object().field("what", row.what).field("hosts", static_cast<uint64_t>(row.hosts));
    json.field("example", row.example).field("sentence", row.sentence).end_object();
  }
  json.end_array().end_object();
  return json_answer(json);
}

}  // namespace lockstep
