#include "diagnosis/version_evidence.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/evenly.h"
#include "base/text.h"
#include "diagnosis/phrasing.h"
#include "diagnosis/signals/explain.h"

namespace lockstep {
namespace {

struct LayerRow {
  Layer layer;
  std::vector<std::string_view> of_host, of_adapter, of_gpu, of_job;
};

const LayerRow& row_of(Layer layer) {
  static const std::vector<LayerRow> kRows = {
      {Layer::kGpu, {"driver"}, {}, {"gpu"}, {"code"}}, {Layer::kNvlink, {"driver"}, {}, {"gpu"}, {"nccl"}},
      {Layer::kHost, {"driver"}, {}, {}, {"code"}},     {Layer::kInput, {}, {}, {}, {"code"}},
      {Layer::kNic, {}, {"firmware"}, {}, {"nccl"}},    {Layer::kLink, {}, {"firmware"}, {}, {"nccl"}},
      {Layer::kSwitch, {}, {"firmware"}, {}, {"nccl"}}, {Layer::kSoftware, {"driver"}, {}, {}, {"code", "nccl"}},
      {Layer::kWorkload, {}, {}, {}, {"code"}},         {Layer::kUnknown, {"driver"}, {}, {"gpu"}, {"code", "nccl"}},
  };
  const auto found = std::find_if(kRows.begin(), kRows.end(), [&](const LayerRow& row) { return row.layer == layer; });
  return found == kRows.end() ? kRows.back() : *found;
}

using Wanted = std::set<std::pair<std::string, std::string_view>>;  // component, what

// The adapter that the topology has for a rank's GPU.
std::string adapter_of(const fabric::Topology& topology, const Identity& identity) {
  std::optional<fabric::NodeIndex> gpu = identity.gpu_uuid.empty() ? std::nullopt : topology.find(identity.gpu_uuid);
  if (!gpu) gpu = topology.find_gpu(identity.host, identity.local_rank);
  if (!gpu || topology.nodes()[*gpu].kind != fabric::NodeKind::kGpu) return {};
  const std::optional<fabric::Topology::Adapter> adapter = topology.adapter_of(*gpu);
  return adapter ? "nic:" + topology.name(adapter->nic) : "";
}

Wanted wanted_of(const fabric::Fabric& fabric, const ChangeMoment& moment, const Finding& finding) {
  const LayerRow& row = row_of(finding.layer);
  Wanted wanted;
  for (const std::string_view what : row.of_job) wanted.emplace("job:" + moment.job_id, what);
  if (finding.place.starts_with("nic:"))
    for (const std::string_view what : row.of_adapter) wanted.emplace(finding.place, what);
  const bool is_placed = !finding.place.empty();  // it is that place's fault, not its ranks'
  std::vector<Rank> ranks = finding.ranks;
  if (ranks.empty())
    for (const auto& [rank, identity] : moment.window.ranks()) ranks.push_back(rank);
  const std::shared_ptr<const fabric::Topology> topology =
      row.of_adapter.empty() || is_placed ? nullptr : fabric.topology.topology();
  for (const size_t at : evenly(ranks.size(), kCulpritsMax)) {
    const auto identity = moment.window.ranks().find(ranks[at]);
    if (identity == moment.window.ranks().end()) continue;
    for (const std::string_view what : row.of_host) wanted.emplace("host:" + identity->second.host, what);
    for (const std::string_view what : row.of_gpu) wanted.emplace("gpu:" + identity->second.gpu_uuid, what);
    const std::string adapter = topology ? adapter_of(*topology, identity->second) : "";
    for (const std::string_view what : row.of_adapter)
      if (!adapter.empty()) wanted.emplace(adapter, what);
  }
  return wanted;
}

// "The driver of node-01", "The code of job llama", "node-01:mlx5_0".
std::string words_of(const fabric::Change& change) {
  const std::string_view component = change.component;
  const size_t colon = component.find(':');
  const std::string name(component.substr(colon + 1));
  if (change.what == "link" || change.what == "gpu") return name;
  const std::string what = change.what == "nccl" ? "NCCL" : change.what;
  return "The " + what + " of " + (component.starts_with("job:") ? "job " : "") + name;
}

}  // namespace

Claim change_claim(const fabric::Change& change, int64_t since_unix_ns, const Finding& finding) {
  const double before_s = static_cast<double>(since_unix_ns - change.time_unix_ns) / 1e9;
  const std::string query =
      format("/api/fabric/changes?component=%s&what=%s&from=%lld&to=%lld&began=%lld",
             url_part(change.component).c_str(), change.what.c_str(), static_cast<long long>(change.time_unix_ns),
             static_cast<long long>(change.time_unix_ns), static_cast<long long>(since_unix_ns));
  return claim(ClaimKind::kEvent, change.component,
               format("%s changed %.0f s %s it began: %s, before that %s.", as_one_line(words_of(change)).c_str(),
                      std::fabs(before_s), before_s >= 0 ? "before" : "after",
                      change.after.empty() ? "gone" : change.after.c_str(),
                      change.before.empty() ? "not there" : change.before.c_str()),
               {.value = before_s, .unit = "s"}, finding.since_step, finding.through_step, query);
}

void add_version_evidence(const fabric::Fabric& fabric, const ChangeMoment& moment, Finding& finding) {
  const fabric::Changes changes = fabric::find_changes(fabric.topology, fabric.versions,
                                                       {.from_unix_ns = moment.since_unix_ns - kChangeBeforeNs,
                                                        .to_unix_ns = moment.since_unix_ns + kChangeHeardLateNs,
                                                        .limit = fabric::VersionStore::kChangesMax});
  if (changes.shown.empty()) return;
  const Wanted wanted = wanted_of(fabric, moment, finding);
  std::vector<Claim> claims;
  for (const fabric::Change& change : changes.shown) {
    if (claims.size() == kChangesSaidMax) break;
    if (wanted.contains({change.component, std::string_view(change.what)}))
      claims.push_back(change_claim(change, moment.since_unix_ns, finding));
  }
  const auto at = std::find_if(finding.chain.begin(), finding.chain.end(),
                               [](const Claim& one) { return one.kind == ClaimKind::kCounterfactual; });
  finding.chain.insert(at, claims.begin(), claims.end());
}

}  // namespace lockstep
