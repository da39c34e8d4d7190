#include "sources/ownership/ownership.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "recorder/layout.h"
#include "sources/ownership/variables.h"

namespace lockstep {
namespace {

namespace names = identity_variables;

// As long as a recorder can hold it: else the same job would have two ids.
constexpr size_t kJobIdMax = sizeof(layout::FileHeader::job_id) - 1;

std::optional<int64_t> number_of(const ProcessFacts& process, names::Names variables) {
  for (const char* name : variables) {
    if (const auto number = parse_int(process.variable(name))) return number;
  }
  return std::nullopt;
}

int32_t small(int64_t value) {
  return static_cast<int32_t>(std::clamp<int64_t>(value, -1, INT32_MAX));
}

// The alphabet that Kubernetes makes its suffixes from: no vowels, nothing that is read wrong.
bool is_hash(std::string_view part, size_t shortest, size_t longest) {
  return part.size() >= shortest && part.size() <= longest &&
         part.find_first_not_of("bcdfghjklmnpqrstvwxz2456789") == std::string_view::npos;
}

bool is_index(std::string_view part) {
  return !part.empty() && part.size() <= 5 && part.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_role(std::string_view part) {
  static constexpr std::array<std::string_view, 7> kRoles = {"worker", "workers", "master",   "launcher",
                                                             "chief",  "ps",      "evaluator"};
  return std::find(kRoles.begin(), kRoles.end(), part) != kRoles.end();
}

void set_job(Owner& owner, std::string_view id, const char* source) {
  owner.job_id = clean_text(id, kJobIdMax);
  owner.source = source;
}

void name_job(const ProcessFacts& process, const std::optional<PodRef>& pod, Owner& owner) {
  if (const std::string& reported = process.variable(names::kJobId); !reported.empty())
    return set_job(owner, reported, "environment");
  if (!process.cgroup.slurm_job.empty()) return set_job(owner, process.cgroup.slurm_job, "slurm");
  if (const std::string& reported = process.variable(names::kSlurmJobId); !reported.empty())
    return set_job(owner, reported, "slurm");
  if (const std::string& reported = process.variable(names::kElasticJobId);
      !reported.empty() && reported != names::kNoElasticJob)
    return set_job(owner, reported, "torchelastic");
  if (!pod) return;
  const std::string& job = process.variable(kPodJobName);
  const std::string prefix = pod->pod_namespace.empty() ? "" : pod->pod_namespace + "/";
  set_job(owner, job.empty() ? job_of_pod(pod->pod_namespace, pod->pod) : prefix + job, "kubernetes");
}

void place(const PodRef& pod, Owner& owner) {
  owner.pod_namespace = pod.pod_namespace;
  owner.pod = pod.pod;
  owner.container = pod.container;
}

}  // namespace

std::string job_of_pod(std::string_view pod_namespace, std::string_view pod) {
  std::string_view name = pod;
  auto last = [&] { return name.substr(name.rfind('-') + 1); };
  auto drop = [&] { name.remove_suffix(last().size() + 1); };
  auto more = [&] { return name.find('-') != std::string_view::npos && name.rfind('-') > 0; };
  // From the end: a pod's own hash, a ReplicaSet's hash before it, then indices and the role that was numbered.
  if (more() && is_hash(last(), 5, 5)) {
    drop();
    if (more() && is_hash(last(), 8, 10)) drop();
  }
  while (more() && is_index(last())) drop();
  if (more() && is_role(last())) drop();
  return (pod_namespace.empty() ? "" : std::string(pod_namespace) + "/") + std::string(name);
}

ProcessOwner owner_from_process(const ProcessFacts& process, const std::optional<PodRef>& pod) {
  ProcessOwner found;
  Owner& owner = found.owner;
  owner.user = process.user;
  if (pod) {
    place(*pod, owner);
  } else if (!process.cgroup.container_id.empty() && process.cgroup.pod_uid.empty()) {
    owner.container = process.cgroup.container_id.substr(0, 12);  // as docker ps shows it
  }
  name_job(process, pod, owner);
  if (const auto attempt = number_of(process, names::kAttempt); attempt && *attempt >= 0) {
    owner.attempt = *attempt;
    found.attempt_reported = true;
  }
  auto rank = number_of(process, names::kRank);
  if (!rank && pod) rank = number_of(process, {kPodJobIndex});
  owner.rank = Rank{small(rank.value_or(-1))};
  found.local_rank = small(number_of(process, names::kLocalRank).value_or(-1));
  return found;
}

ProcessOwner with_recorder(ProcessOwner from_process, const Identity& recorder) {
  ProcessOwner found = std::move(from_process);
  Owner& owner = found.owner;
  const bool named = !recorder.job_id.empty() && !recorder.job_id.starts_with(names::kUnknownJobPrefix);
  if ((named && owner.job_id != recorder.job_id) || owner.job_id.empty())
    set_job(owner, recorder.job_id, recorder.job_id.empty() ? "" : "recorder");
  if (recorder.rank >= 0_rank) owner.rank = recorder.rank;
  owner.attempt = recorder.attempt;
  found.attempt_reported = true;
  found.local_rank = recorder.local_rank;
  return found;
}

Owner owner_from_pod(const PodRef& pod) {
  Owner owner;
  place(pod, owner);
  set_job(owner, job_of_pod(pod.pod_namespace, pod.pod), "kubernetes");
  return owner;
}

Owner owner_from_slurm(std::string_view job) {
  Owner owner;
  set_job(owner, job, "slurm");
  return owner;
}

std::string gpu_from_environment(const ProcessFacts& process, int32_t local_rank, const std::vector<GpuInfo>& gpus) {
  if (const std::string& reported = process.variable(names::kGpuUuid); !reported.empty()) return reported;
  const std::string& in_order = process.variable(kGpusInOrder);
  const std::string& value = in_order.empty() ? process.variable(kGpusInAnyOrder) : in_order;
  const std::vector<std::string_view> shown = split(value, ',');
  size_t place_of_ours = 0;
  if (shown.size() > 1) {
    if (in_order.empty() || local_rank < 0 || static_cast<size_t>(local_rank) >= shown.size()) return "";
    place_of_ours = static_cast<size_t>(local_rank);
  }
  const std::string_view wanted = trim(shown[place_of_ours]);
  if (!wanted.starts_with("GPU-") && !wanted.starts_with("MIG-")) return "";
  std::string found;  // CUDA takes the first letters of a uuid, too
  for (const GpuInfo& gpu : gpus) {
    if (!gpu.uuid.starts_with(wanted)) continue;
    if (!found.empty()) return "";
    found = gpu.uuid;
  }
  return found;
}

}  // namespace lockstep
