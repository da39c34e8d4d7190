#include "sim/node/job_nodes.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep::sim {
namespace {

bool same(const Fault& left, const Fault& right) {
  return left.kind == right.kind && left.rank == right.rank;
}

// As scenarios measure it: by how much longer what is hit takes, or what is added as a share of a step.
double amount_of(const Fault& fault, double step_ms) {
  const double severity = fault.severity > 0 ? fault.severity : default_severity(fault.kind, step_ms);
  switch (fault.kind) {
    case FaultKind::kSlowGpu:
      return severity - 1;
    case FaultKind::kSlowInput:
      return severity / step_ms;
    case FaultKind::kSlowLink:
      return 1 / severity - 1;
    case FaultKind::kMissingRank:
      return 0;
  }
  return 0;
}

}  // namespace

Cause cause_on_node(FaultKind kind) {
  switch (kind) {
    case FaultKind::kSlowGpu:
      return Cause::kThrottleThermal;
    case FaultKind::kSlowInput:
      return Cause::kDataLoader;
    case FaultKind::kSlowLink:
      return Cause::kNicDegraded;
    case FaultKind::kMissingRank:
      return Cause::kNone;
  }
  return Cause::kNone;
}

JobNodes::JobNodes(const JobShape& shape) : shape_(shape) {
  for (int32_t host = 0; host < shape.hosts(); ++host) {
    const int32_t index = shape.first_host + host;
    nodes_.push_back(
        {.local = host, .telemetry = NodeTelemetry(format("node-%02d", index), index, shape.topology, shape.seed, 0)});
  }
}

void JobNodes::follow(std::span<const Fault> active, int64_t at_unix_ns) {
  std::erase_if(acting_, [&](const Acting& acting) {
    return std::none_of(active.begin(), active.end(), [&](const Fault& fault) { return same(fault, acting.from); });
  });
  for (const Fault& fault : active) {
    const Cause cause = cause_on_node(fault.kind);
    if (cause == Cause::kNone ||
        std::any_of(acting_.begin(), acting_.end(), [&](const Acting& acting) { return same(fault, acting.from); }))
      continue;
    const double amount = amount_of(fault, shape_.step_ms);
    ScenarioFault on_node{.cause = cause, .target = {.job = shape_.job_id, .rank = fault.rank}, .severity = amount};
    acting_.push_back({.from = fault, .fault = std::move(on_node), .amount = amount, .since_ns = at_unix_ns});
  }
}

void JobNodes::read(Node& node, const Fleet& fleet, int64_t at_unix_ns, std::vector<Batch>& out) {
  const int32_t gpus = shape_.topology.gpus_per_host;
  const auto elapsed_ns = static_cast<double>(node.read_ns > 0 ? at_unix_ns - node.read_ns : kReadEveryNs);
  std::vector<GpuActivity> activity(static_cast<size_t>(gpus));
  for (int32_t gpu = 0; gpu < gpus; ++gpu) {
    const Rank rank{node.local * gpus + gpu};
    if (rank >= Rank{shape_.world_size()}) break;
    const Fleet::Activity did = fleet.activity(rank);
    const double steps = did.duration_ns > 0 ? elapsed_ns / static_cast<double>(did.duration_ns) : 0;
    auto carried = [&](int64_t bytes) { return static_cast<int64_t>(static_cast<double>(bytes) * steps); };
    activity[static_cast<size_t>(gpu)] = {.identity = fleet.identity(rank),
                                          .busy = did.busy,
                                          .communicating = did.communicating,
                                          .input = did.input,
                                          .sent_bytes = carried(did.sent_bytes),
                                          .received_bytes = carried(did.received_bytes),
                                          .nvlink_bytes = carried(did.nvlink_bytes)};
  }
  std::vector<ActingFault> here;
  for (const Acting& acting : acting_) {
    if (shape_.host_of(acting.from.rank) == node.local)
      here.push_back({&acting.fault, acting.amount, acting.from.rank % gpus, acting.since_ns});
  }
  out.push_back(node.telemetry.read(at_unix_ns, activity, here));
  out.push_back(node.telemetry.events(at_unix_ns, activity, here));
  node.read_ns = at_unix_ns;
  node.due_ns = at_unix_ns + kReadEveryNs;
}

std::vector<Batch> JobNodes::due(const Fleet& fleet, std::span<const Fault> active, int64_t at_unix_ns) {
  if (!nodes_.empty() && nodes_.front().due_ns == 0) {  // one after the other from here on
    for (size_t i = 0; i < nodes_.size(); ++i)
      nodes_[i].due_ns = at_unix_ns + kReadEveryNs * static_cast<int64_t>(i) / static_cast<int64_t>(nodes_.size());
  }
  follow(active, at_unix_ns);
  std::vector<Batch> out;
  for (Node& node : nodes_) {
    if (at_unix_ns >= node.due_ns) read(node, fleet, at_unix_ns, out);
  }
  std::erase_if(out, [](const Batch& batch) { return batch.record_count() == 0; });
  return out;
}

}  // namespace lockstep::sim
