#include "sources/ownership/gpu_holders.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace lockstep {
namespace {

using Allocated = std::map<std::string, std::vector<Owner>>;

struct Use {
  const Claimant* claimant;
  uint64_t memory_bytes;
};
using Uses = std::map<std::string, std::vector<Use>>;  // by GPU

bool same_pod(const Owner& a, const Owner& b) {
  return !a.pod.empty() && a.pod == b.pod && a.pod_namespace == b.pod_namespace;
}

bool given_to(const Claimant& claimant, const std::vector<Owner>* owners) {
  return owners != nullptr && std::any_of(owners->begin(), owners->end(), [&](const Owner& owner) {
           return same_pod(owner, claimant.who.owner) ||
                  (owner.source == "slurm" &&
                   (owner.job_id == claimant.slurm_job || owner.job_id == claimant.who.owner.job_id));
         });
}

// A pod that holds a GPU with no process of it in sight, and a process in a pod whose name is not known.
bool may_be_its_process(const Claimant& pod, const Claimant& process) {
  return pod.idle && !pod.who.owner.pod.empty() && !process.pod_uid.empty() && process.who.owner.pod.empty();
}

// One piece of work, whatever its processes call themselves.
bool same_work(const Claimant& a, const Claimant& b) {
  if (may_be_its_process(a, b) || may_be_its_process(b, a)) return true;
  if (!a.slurm_job.empty() && a.slurm_job == b.slurm_job) return true;
  if (!a.pod_uid.empty() && a.pod_uid == b.pod_uid) return true;
  if (same_pod(a.who.owner, b.who.owner)) return true;
  return !a.who.owner.job_id.empty() && a.who.owner.job_id == b.who.owner.job_id;
}

bool left_over(const Claimant& one, const Claimant& newest) {
  return one.who.attempt_reported && newest.who.attempt_reported && one.who.owner.job_id == newest.who.owner.job_id &&
         one.who.owner.attempt < newest.who.owner.attempt;
}

bool is_foreign(const Claimant& process, const Claimant& holder) {
  const Owner& theirs = process.who.owner;
  const Owner& ours = holder.who.owner;
  if (process.service || ours.job_id.empty() || &process == &holder) return false;
  if (left_over(process, holder)) return true;
  if (same_work(process, holder)) return false;
  if (!theirs.job_id.empty()) return true;
  // It shows no job: a helper of the same user, as far as can be seen, or somebody else.
  if (holder.idle) return true;
  return !theirs.user.empty() && !ours.user.empty() && theirs.user != ours.user;
}

// Smaller stands for the GPU.
auto standing(const Claimant& claimant, const std::vector<Owner>* given) {
  const Owner& owner = claimant.who.owner;
  return std::make_tuple(!claimant.recorded, !given_to(claimant, given), owner.job_id.empty(), -owner.attempt,
                         owner.rank == kNoRank, owner.rank, claimant.start_ticks, claimant.pid,
                         std::string_view(owner.job_id), std::string_view(owner.pod));
}

std::string own_gpu(const Claimant& claimant, const std::vector<std::pair<std::string, uint64_t>>& uses,
                    const std::vector<GpuInfo>& gpus) {
  if (!claimant.reported_gpu.empty() || uses.empty()) return claimant.reported_gpu;
  uint64_t most = 0;
  for (const auto& [uuid, memory_bytes] : uses) most = std::max(most, memory_bytes);
  std::string first;
  int32_t first_index = INT32_MAX;
  for (const auto& [uuid, memory_bytes] : uses) {
    if (memory_bytes != most) continue;
    const auto gpu =
        std::find_if(gpus.begin(), gpus.end(), [&uuid = uuid](const GpuInfo& info) { return info.uuid == uuid; });
    const int32_t index = gpu == gpus.end() ? INT32_MAX - 1 : gpu->index;
    if (index == claimant.who.local_rank && index >= 0) return uuid;
    if (index < first_index) {
      first = uuid;
      first_index = index;
    }
  }
  return first;
}

// Variables of the launcher are inherited: where two processes on two GPUs say the same rank, they do not tell it.
void drop_doubtful_ranks(std::vector<Claimant>& claimants, const std::map<const Claimant*, std::string>& own) {
  std::map<std::tuple<std::string, int64_t, Rank>, std::set<std::string>> gpus_of_rank;
  auto key = [](const Claimant& claimant) {
    const Owner& owner = claimant.who.owner;
    return std::make_tuple(owner.job_id, owner.attempt, owner.rank);
  };
  for (const Claimant& claimant : claimants) {
    const auto gpu = own.find(&claimant);
    if (claimant.who.owner.rank != kNoRank && gpu != own.end()) gpus_of_rank[key(claimant)].insert(gpu->second);
  }
  for (Claimant& claimant : claimants) {
    if (claimant.recorded || claimant.who.owner.rank == kNoRank) continue;
    const auto gpus = gpus_of_rank.find(key(claimant));
    if (gpus != gpus_of_rank.end() && gpus->second.size() > 1) claimant.who.owner.rank = kNoRank;
  }
}

GpuHolder settle(std::vector<const Claimant*> holders, const std::vector<Use>& uses, const std::vector<Owner>* given) {
  // Whom a scheduler gave it to holds it also while none of its processes does.
  std::vector<Claimant> idle;
  for (const Owner& owner : given != nullptr ? *given : std::vector<Owner>()) {
    Claimant claimant;
    claimant.who.owner = owner;
    claimant.idle = true;
    if (owner.source == "slurm") claimant.slurm_job = owner.job_id;
    const bool there = std::any_of(holders.begin(), holders.end(),
                                   [&](const Claimant* holder) { return same_work(*holder, claimant); });
    if (!there) idle.push_back(std::move(claimant));
  }
  for (const Claimant& claimant : idle) holders.push_back(&claimant);
  std::sort(holders.begin(), holders.end(),
            [&](const Claimant* a, const Claimant* b) { return standing(*a, given) < standing(*b, given); });

  GpuHolder result;
  if (holders.empty()) return result;
  const Claimant& first = *holders.front();
  std::vector<const Claimant*> kept;
  for (const Claimant* holder : holders) {
    // Those who add neither a rank nor a pod of their own are left out: each row more is one more to join with.
    const bool says_less = std::any_of(kept.begin(), kept.end(), [&](const Claimant* other) {
      const Owner& theirs = holder->who.owner;
      const bool same_rank = theirs.rank == kNoRank || theirs.rank == other->who.owner.rank;
      const bool other_pod = !theirs.pod.empty() && !same_pod(theirs, other->who.owner);
      return left_over(*holder, *other) || (same_work(*holder, *other) && same_rank && !other_pod);
    });
    if (holder != &first && (holder->who.owner.job_id.empty() || says_less)) continue;
    kept.push_back(holder);
    const Owner& owner = holder->who.owner;
    if (std::find(result.owners.begin(), result.owners.end(), owner) == result.owners.end())
      result.owners.push_back(owner);
  }
  for (const Use& use : uses) {
    if (!is_foreign(*use.claimant, first)) continue;
    result.foreign.push_back(use.claimant->pid);
    if (given_to(*use.claimant, given)) result.foreign_allowed.push_back(use.claimant->pid);
  }
  return result;
}

}  // namespace

GpuHolders find_gpu_holders(const std::vector<GpuInfo>& gpus, const std::vector<GpuProcess>& on_gpus,
                            std::vector<Claimant> claimants, const Allocated& allocated) {
  std::map<int32_t, const Claimant*> by_pid;
  for (const Claimant& claimant : claimants) {
    if (claimant.pid > 0) by_pid[claimant.pid] = &claimant;
  }
  Uses uses;
  std::map<const Claimant*, std::vector<std::pair<std::string, uint64_t>>> gpus_of;
  for (const GpuProcess& process : on_gpus) {
    const auto claimant = by_pid.find(process.pid);
    if (claimant == by_pid.end()) continue;
    uses[process.gpu_uuid].push_back({claimant->second, process.memory_bytes});
    gpus_of[claimant->second].push_back({process.gpu_uuid, process.memory_bytes});
  }
  std::map<const Claimant*, std::string> own;
  for (const Claimant& claimant : claimants) {
    std::string gpu = claimant.service ? "" : own_gpu(claimant, gpus_of[&claimant], gpus);
    if (!gpu.empty()) own[&claimant] = std::move(gpu);
  }
  drop_doubtful_ranks(claimants, own);

  std::map<std::string, std::vector<const Claimant*>> holders;
  for (const Claimant& claimant : claimants) {
    if (const auto gpu = own.find(&claimant); gpu != own.end()) holders[gpu->second].push_back(&claimant);
  }
  for (const auto& [uuid, all] : uses) {
    if (holders.contains(uuid)) continue;
    const Use* most = nullptr;
    for (const Use& use : all) {
      if (use.claimant->service) continue;
      if (most == nullptr || use.memory_bytes > most->memory_bytes ||
          (use.memory_bytes == most->memory_bytes && use.claimant->pid < most->claimant->pid))
        most = &use;
    }
    if (most != nullptr) holders[uuid].push_back(most->claimant);
  }

  GpuHolders result;
  for (const auto& [uuid, owners] : allocated) holders.try_emplace(uuid);
  for (const auto& [uuid, all] : holders) {
    const auto given = allocated.find(uuid);
    GpuHolder holder = settle(all, uses[uuid], given == allocated.end() ? nullptr : &given->second);
    if (!holder.owners.empty()) result.by_gpu[uuid] = std::move(holder);
  }
  for (const Claimant& claimant : claimants) {
    if (claimant.pid <= 0) continue;
    result.rank_of[claimant.pid] = claimant.who.owner.rank;
    if (const auto gpu = own.find(&claimant); gpu != own.end()) result.gpu_of[claimant.pid] = gpu->second;
  }
  return result;
}

}  // namespace lockstep
