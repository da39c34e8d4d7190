#include "incident/fault_place.h"

#include <map>
#include <set>

#include "fabric/graph.h"
#include "model/series_labels.h"

namespace lockstep::incident {
namespace {

using fabric::kNone;
using fabric::NodeIndex;
using fabric::NodeKind;
using fabric::Topology;

constexpr size_t kRanksLookedAt = 64;

std::string graph_name(const Topology& topology, NodeIndex node) {
  return std::string(to_text(topology.nodes()[node].kind)) + ":" + topology.name(node);
}

// The adapter and the leaf of each culprit; kNone among them where one is not known.
struct Ways {
  std::set<NodeIndex> nics, leaves;
};

Ways ways_of(const Verdict& verdict, const Topology& topology, const fabric::JobPlaces& places, int64_t now_unix_ns) {
  Ways ways;
  size_t looked = 0;
  for (const Rank rank : verdict.culprit.ranks) {
    if (++looked > kRanksLookedAt) break;
    const std::optional<fabric::RankPlace> place = places.find(verdict.job_id, rank, now_unix_ns);
    const std::optional<NodeIndex> gpu = place ? topology.find(place->gpu_uuid) : std::nullopt;
    const std::optional<Topology::Adapter> adapter = gpu ? topology.adapter_of(*gpu) : std::nullopt;
    ways.nics.insert(adapter && adapter->as_near == 1 ? adapter->nic : kNone);
    ways.leaves.insert(gpu ? fabric::leaf_of_gpu(topology, *gpu) : kNone);
  }
  return ways;
}

// Of several hosts none is the place. A rank that nobody has placed is no other host's.
bool is_on_one_host(const Verdict& verdict, const fabric::JobPlaces& places, int64_t now_unix_ns) {
  size_t looked = 0;
  for (const Rank rank : verdict.culprit.ranks) {
    if (++looked > kRanksLookedAt) break;
    const std::optional<fabric::RankPlace> place = places.find(verdict.job_id, rank, now_unix_ns);
    if (place && place->host != verdict.culprit.host) return false;
  }
  return looked > 0 && !verdict.culprit.host.empty();
}

// The one that all share.
NodeIndex only_one(const std::set<NodeIndex>& nodes) {
  return nodes.size() == 1 ? *nodes.begin() : kNone;
}

// An adapter and its cable are one place: which of them it is, only the one who pulls it learns.
const char* part_of(Layer layer) {
  return to_text(layer == Layer::kLink ? Layer::kNic : layer);
}

FaultPlace host_place(const std::string& host, const char* part) {
  return {"host:" + host, part, host, ""};
}

}  // namespace

FaultPlace place_of(const Verdict& verdict, const Topology& topology, const fabric::JobPlaces& places,
                    int64_t now_unix_ns) {
  const Culprit& culprit = verdict.culprit;
  const char* part = part_of(culprit.layer);
  FaultPlace of_job{"job:" + verdict.job_id, part + std::string(" ") + to_text(culprit.cause), culprit.host, ""};
  switch (culprit.layer) {
    case Layer::kGpu:
    case Layer::kNvlink:
      if (!culprit.gpu_uuid.empty() && culprit.ranks.size() == 1)
        return {"gpu:" + culprit.gpu_uuid, part, culprit.host, culprit.gpu_uuid};
      break;
    case Layer::kNic:
    case Layer::kLink: {
      const NodeIndex nic = only_one(ways_of(verdict, topology, places, now_unix_ns).nics);
      if (nic != kNone) return {graph_name(topology, nic), part, culprit.host, ""};
      // Between two hosts it is neither's alone.
      if (!is_on_one_host(verdict, places, now_unix_ns)) of_job.part += " " + culprit.component;
      break;
    }
    case Layer::kSwitch: {
      const NodeIndex leaf = only_one(ways_of(verdict, topology, places, now_unix_ns).leaves);
      return leaf != kNone ? FaultPlace{graph_name(topology, leaf), part, "", ""} : of_job;
    }
    case Layer::kSoftware:
    case Layer::kWorkload:
    case Layer::kUnknown:
      return of_job;
    case Layer::kHost:
    case Layer::kInput:
      break;
  }
  return is_on_one_host(verdict, places, now_unix_ns) ? host_place(culprit.host, part) : of_job;
}

FaultPlace place_of(const Labels& labels, const Topology& topology) {
  const std::string host(label_value(labels, "host")), gpu(label_value(labels, "gpu"));
  const std::string device(label_value(labels, "device"));
  const Cause cause = term_of<Cause>(label_value(labels, "cause")).value_or(Cause::kNone);
  const char* part = part_of(cause == Cause::kNvlinkDegraded ? Layer::kNvlink
                             : cause == Cause::kLinkFlap     ? Layer::kNic
                                                             : Layer::kGpu);
  if (!gpu.empty()) return {"gpu:" + gpu, part, host, gpu};
  if (cause == Cause::kLinkFlap && !device.empty()) {
    // "mlx5_0/1": a port of an adapter; or its interface.
    const std::string name = host + ":" + device.substr(0, device.find('/'));
    const std::optional<NodeIndex> nic = topology.find(name);
    return {nic ? graph_name(topology, *nic) : "nic:" + name, part, host, ""};
  }
  return host_place(host, part);
}

BlastRadius radius_of(const FaultPlace& place, const Topology& topology, const fabric::JobPlaces& places,
                      int64_t at_unix_ns) {
  BlastRadius radius{.at_unix_ns = at_unix_ns, .jobs = {}, .note = {}};
  const std::string_view component = place.component;
  if (place.is_hardware()) {
    const Result<fabric::Affected> affected = fabric::find_affected(topology, places, component, at_unix_ns);
    if (affected.ok() && !affected->jobs.empty()) {
      radius.is_known = true;
      radius.gpus = static_cast<int64_t>(affected->gpus);
      radius.hosts = static_cast<int64_t>(affected->hosts);
      radius.jobs_total = static_cast<int64_t>(affected->jobs.size());
      radius.note = affected->note;
      for (const fabric::AffectedJob& job : affected->jobs) {
        if (radius.jobs.size() < kRadiusJobsMax) radius.jobs.push_back({job.job, job.ranks_hit, job.ranks});
      }
      return radius;
    }
    // An idle component is known, and nobody depends on it.
    radius.is_known = affected.ok();
  }
  // Graph names of what runs on it without a topology: a host, a GPU, or all of a job.
  const bool is_host = component.starts_with("host:"), is_gpu = component.starts_with("gpu:");
  const bool is_job = component.starts_with("job:");
  if (!is_host && !is_gpu && !is_job) return radius;
  const std::string_view name = component.substr(component.find(':') + 1);
  std::map<std::string, BlastRadius::Job> jobs;
  std::set<std::string> gpus, hosts;
  places.visit(is_job ? name : "", at_unix_ns, [&](const fabric::JobPlaces::View& view) {
    if (!is_job && (is_host ? view.host : view.gpu_uuid) != name) return;
    BlastRadius::Job& job = jobs[std::string(view.job)];
    ++job.ranks_hit;
    const bool is_named = !view.gpu_uuid.empty();
    gpus.insert(is_named ? std::string(view.gpu_uuid) : std::string(view.host) + ":" + std::to_string(view.local_rank));
    hosts.insert(std::string(view.host));
  });
  radius.is_known = radius.is_known || !jobs.empty();
  radius.gpus = static_cast<int64_t>(gpus.size());
  radius.hosts = static_cast<int64_t>(hosts.size());
  radius.jobs_total = static_cast<int64_t>(jobs.size());
  for (auto& [job_id, job] : jobs) {
    if (radius.jobs.size() == kRadiusJobsMax) break;
    job.job_id = job_id;
    job.ranks = places.rank_count(job_id, at_unix_ns);
    radius.jobs.push_back(std::move(job));
  }
  return radius;
}

}  // namespace lockstep::incident
