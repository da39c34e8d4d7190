#include "api/nodes/node_view.h"

#include <algorithm>

#include "api/jobs/job_view.h"
#include "base/text.h"
#include "incident/incident_registry.h"

namespace lockstep {
namespace {

// What does not change is sent again every two minutes; two of these may be lost.
constexpr int64_t kReportedWithinMs = 300'000;
constexpr int64_t kWeekMs = 7 * 86'400'000;
constexpr int64_t kNsPerMs = 1'000'000;

struct ReportedSeries {
  std::map<std::string, std::string, std::less<>> labels;
  int64_t time_ms = 0;
  double value = 0;
  const std::string& label(std::string_view name) const {
    static const std::string kNone;
    const auto found = labels.find(name);
    return found == labels.end() ? kNone : found->second;
  }
};

// The newest of each series of a metric in that time; of one that has ended, nothing.
std::vector<ReportedSeries> newest_of(const ApiContext& context, std::vector<LabelMatcher> matchers,
                                      int64_t within_ms) {
  std::vector<ReportedSeries> told;
  const int64_t now_ms = context.clock.unix_ns() / kNsPerMs, from_ms = std::max<int64_t>(0, now_ms - within_ms);
  // Clocks of agents may be ahead of ours.
  const int64_t to_ms = now_ms + kReportedWithinMs;
  const auto selected = context.metrics.select(matchers, {.from_ms = from_ms, .to_ms = to_ms});
  if (!selected.ok()) return told;
  SampleColumns columns;
  for (size_t i = 0; i < (*selected)->size(); ++i) {
    if (!(*selected)->newest(i, from_ms, to_ms, columns).ok() || columns.times_ms.empty()) continue;
    if (is_stale(columns.values.back())) continue;
    ReportedSeries one{.labels = {}, .time_ms = columns.times_ms.back(), .value = columns.values.back()};
    for (const LabelSymbols& label : (*selected)->labels(i))
      one.labels.emplace((*selected)->text(label.name), (*selected)->text(label.value));
    told.push_back(std::move(one));
  }
  return told;
}

std::vector<LabelMatcher> of_host(const char* metric, const std::string& host) {
  std::vector<LabelMatcher> matchers = {label_is("__name__", metric)};
  if (!host.empty()) matchers.push_back(label_is("host", host));
  return matchers;
}

NodeView& node_at(Nodes& nodes, const std::string& host) {
  NodeView& node = nodes[host];
  node.host = host;
  return node;
}

NodeGpu& gpu_at(NodeView& node, const std::string& uuid) {
  const auto found =
      std::find_if(node.gpus.begin(), node.gpus.end(), [&](const NodeGpu& gpu) { return gpu.uuid == uuid; });
  if (found != node.gpus.end()) return *found;
  node.gpus.push_back({.uuid = uuid, .model = {}, .holders = {}});
  return node.gpus.back();
}

// The agent reports who holds a GPU from its processes and from the ranks' recorders, and ranks name theirs: one holder,
// with what any of them knows.
void hold(NodeGpu& gpu, GpuHolder holder) {
  const auto known = std::find_if(gpu.holders.begin(), gpu.holders.end(), [&](const GpuHolder& one) {
    return one.job_id == holder.job_id && one.rank == holder.rank;
  });
  if (known == gpu.holders.end()) {
    gpu.holders.push_back(std::move(holder));
  } else if (known->user.empty()) {
    known->user = std::move(holder.user);
  }
}

void add_agents(Nodes& nodes, const ApiContext& context, const std::string& host) {
  for (AgentInfo& agent : context.agents.agents()) {
    if (agent.host.empty() || (!host.empty() && agent.host != host)) continue;
    NodeView& node = node_at(nodes, agent.host);
    node.last_seen_unix_ns = std::max(node.last_seen_unix_ns, agent.last_seen_unix_ns);
    node.agent = std::move(agent);
  }
}

void add_gpus(Nodes& nodes, const ApiContext& context, const std::string& host) {
  for (const ReportedSeries& one : newest_of(context, of_host("lockstep_gpu_info", host), kReportedWithinMs)) {
    if (one.label("host").empty() || one.label("gpu_uuid").empty()) continue;
    if (!one.label("parent").empty()) continue;  // a MIG instance: its GPU is shown
    NodeGpu& gpu = gpu_at(node_at(nodes, one.label("host")), one.label("gpu_uuid"));
    gpu.index = parse_int(one.label("index")).value_or(-1);
    gpu.model = one.label("model");
  }
  for (const ReportedSeries& one : newest_of(context, of_host("lockstep_gpu_up", host), kReportedWithinMs)) {
    const auto node = nodes.find(one.label("host"));
    if (node == nodes.end() || one.value != 0 || one.label("gpu_uuid").empty()) continue;
    gpu_at(node->second, one.label("gpu_uuid")).is_lost = true;
  }
  for (const ReportedSeries& one : newest_of(context, of_host("lockstep_job_gpu_info", host), kReportedWithinMs)) {
    if (one.label("host").empty() || one.label("gpu_uuid").empty()) continue;
    const std::optional<int64_t> rank = parse_int(one.label("rank"));
    const bool has_rank = rank && *rank >= 0 && *rank <= INT32_MAX;
    hold(gpu_at(node_at(nodes, one.label("host")), one.label("gpu_uuid")),
         {one.label("job_id"), has_rank ? Rank{static_cast<int32_t>(*rank)} : kNoRank, one.label("user")});
  }
}

void add_ranks(Nodes& nodes, std::vector<JobInfo> jobs, const std::string& host) {
  for (JobInfo& job : jobs) {
    for (RankInfo& rank : job.ranks) {
      const Identity& identity = rank.identity;
      if (identity.host.empty() || (!host.empty() && identity.host != host)) continue;
      NodeView& node = node_at(nodes, identity.host);
      node.last_seen_unix_ns = std::max(node.last_seen_unix_ns, rank.last_seen_unix_ns);
      if (rank.ended || (rank.status && !rank.status->process_alive)) continue;
      if (!identity.gpu_uuid.empty()) {  // a rank holds the GPU that it names for as long as it runs
        NodeGpu& gpu = gpu_at(node, identity.gpu_uuid);
        hold(gpu, {job.job_id, identity.rank, {}});
        if (gpu.index < 0 && identity.local_rank >= 0) gpu.index = identity.local_rank;
      }
      node.ranks.push_back({job.job_id, std::move(rank)});
    }
  }
}

}  // namespace

void count_findings(Nodes& nodes, const ApiContext& context) {
  for (const Verdict& verdict : context.diagnosis.verdicts("")) {
    const auto node = nodes.find(verdict.culprit.host);
    if (node != nodes.end() && verdict.state != VerdictState::kCleared) ++node->second.verdicts_open;
  }
  if (context.incidents == nullptr) return;
  const auto is_open = [](const incident::Incident& one) {
    return one.state != incident::State::kResolved && !one.place.host.empty();
  };
  for (const incident::Incident& one : context.incidents->incidents(is_open)) {
    const auto node = nodes.find(one.place.host);
    if (node != nodes.end()) ++node->second.incidents_open;
  }
}

size_t NodeView::gpus_idle(int64_t now_unix_ns) const {
  return static_cast<size_t>(std::count_if(gpus.begin(), gpus.end(), [&](const NodeGpu& one) {
    return std::string_view(state_of(one, *this, now_unix_ns)) == "idle";
  }));
}

Nodes nodes_of(const ApiContext& context, std::vector<JobInfo> jobs, const std::string& host) {
  Nodes nodes;
  add_agents(nodes, context, host);
  add_gpus(nodes, context, host);
  add_ranks(nodes, std::move(jobs), host);
  for (auto& [name, node] : nodes) {
    std::sort(node.gpus.begin(), node.gpus.end(), [](const NodeGpu& a, const NodeGpu& b) {
      return a.index != b.index ? a.index < b.index : a.uuid < b.uuid;
    });
  }
  return nodes;
}

std::set<std::string> jobs_of_user(const ApiContext& context, const std::string& part) {
  std::set<std::string> jobs;
  for (const ReportedSeries& one : newest_of(context, of_host("lockstep_job_gpu_info", ""), kReportedWithinMs)) {
    if (one.label("user").find(part) != std::string::npos && !one.label("user").empty())
      jobs.insert(one.label("job_id"));
  }
  return jobs;
}

std::string host_of_gpu(const ApiContext& context, const std::string& gpu_uuid) {
  std::string host;
  int64_t newest_ms = -1;
  for (const ReportedSeries& one :
       newest_of(context, {label_is("__name__", "lockstep_gpu_info"), label_is("gpu_uuid", gpu_uuid)}, kWeekMs)) {
    if (one.time_ms <= newest_ms || one.label("host").empty()) continue;
    newest_ms = one.time_ms;
    host = one.label("host");
  }
  if (!host.empty()) return host;
  int64_t newest_ns = -1;
  for (const JobInfo& job : context.steps.jobs()) {
    for (const RankInfo& rank : job.ranks) {
      if (rank.identity.gpu_uuid != gpu_uuid || rank.last_seen_unix_ns <= newest_ns) continue;
      newest_ns = rank.last_seen_unix_ns;
      host = rank.identity.host;
    }
  }
  return host;
}

const char* state_of(const NodeView& node, int64_t now_unix_ns) {
  return now_unix_ns - node.last_seen_unix_ns > kSilentAfterNs ? "silent" : "ok";
}

const char* state_of(const NodeGpu& gpu, const NodeView& node, int64_t now_unix_ns) {
  if (gpu.is_lost) return "lost";
  if (now_unix_ns - node.last_seen_unix_ns > kSilentAfterNs) return "unknown";
  return gpu.holders.empty() ? "idle" : "busy";
}

}  // namespace lockstep
