#include "analysis/step/comm_roles.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <tuple>

#include "base/characters.h"
#include "base/text.h"

namespace lockstep {
namespace {

// Tensor parallelism talks in every layer, forward and backward; what happens less often is something else.
constexpr int64_t kTensorCollectivesLeast = 8;
constexpr int64_t kStepsLookedAt = 4;

// Words of a name: "TENSOR_MODEL_PARALLEL_GROUP" -> tensor model parallel group; digits are dropped.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  for (char c : name) {
    if (std::isalpha(static_cast<unsigned char>(c))) {
      words.back() += lower_case(c);
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  return words;
}

// Ranks at equal distances: that distance; 0: not so, or not all are known.
int32_t stride_of(const std::vector<Rank>& members) {
  if (members.size() < 2 || members[0] == kNoRank) return 0;
  const int32_t stride = members[1] - members[0];
  for (size_t i = 1; i < members.size(); ++i) {
    if (members[i] == kNoRank || members[i] - members[i - 1] != stride) return 0;
  }
  return stride;
}

// Communicators of one shape: the tp groups of a job are alike.
struct Family {
  std::vector<size_t> roles;
  CommUse use;
  bool one_host = true;
  int32_t size = 0;
  int32_t stride = 0;
};

class Inference {
 public:
  Inference(std::vector<CommRole>& roles, int32_t world_size, const std::map<Rank, const std::string*>& host_of)
      : roles_(roles) {
    std::map<std::pair<int32_t, int32_t>, Family> families;
    for (size_t i = 0; i < roles.size(); ++i) {
      CommRole& role = roles[i];
      if (role.kind != CommKind::kOther) {
        taken_.insert(role.kind);
        continue;
      }
      if (role.size == world_size && world_size > 1) {
        role.kind = CommKind::kWorld;
        continue;
      }
      const int32_t stride = stride_of(role.members);
      Family& family = families[{role.size, stride}];
      family.size = role.size;
      family.stride = stride;
      family.roles.push_back(i);
      family.use.collectives = std::max(family.use.collectives, role.use.collectives);
      family.use.collective_bytes = std::max(family.use.collective_bytes, role.use.collective_bytes);
      family.use.messages = std::max(family.use.messages, role.use.messages);
      family.use.peers = std::max(family.use.peers, role.use.peers);
      family.one_host &= on_one_host(role, host_of);
    }
    for (auto& [shape, family] : families) families_.push_back(std::move(family));
  }

  void run() {
    std::vector<Family*> collective;
    for (Family& family : families_) {
      if (family.use.collectives > 0) {
        collective.push_back(&family);
      } else if (family.use.messages > 0) {
        give(family, family.size > 2 && family.use.peers >= family.size - 1 ? CommKind::kEp : CommKind::kPp);
      }
    }
    std::stable_sort(collective.begin(), collective.end(),
                     [](const Family* a, const Family* b) { return a->use.collectives > b->use.collectives; });
    if (!taken_.contains(CommKind::kTp) && !collective.empty()) {
      Family& most = *collective.front();
      // Across hosts only where nothing else talks nearly as often.
      const int64_t next = collective.size() == 1 ? 0 : collective[1]->use.collectives;
      if (most.stride == 1 && most.use.collectives >= kTensorCollectivesLeast &&
          most.use.collectives >= (most.one_host ? 2 : 4) * next && (most.one_host || next > 0)) {
        give(most, CommKind::kTp);
        collective.erase(collective.begin());
      }
    }
    std::stable_sort(collective.begin(), collective.end(), [](const Family* a, const Family* b) {
      return a->use.collective_bytes > b->use.collective_bytes;
    });
    for (Family* family : collective) give(*family, taken_.contains(CommKind::kDp) ? CommKind::kCp : CommKind::kDp);
  }

 private:
  static bool on_one_host(const CommRole& role, const std::map<Rank, const std::string*>& host_of) {
    if (role.nodes > 0) return role.nodes == 1;
    const std::string* first = nullptr;
    for (Rank rank : role.members) {
      const auto host = host_of.find(rank);
      if (host == host_of.end()) continue;
      if (first != nullptr && *first != *host->second) return false;
      first = host->second;
    }
    return true;
  }
  void give(const Family& family, CommKind kind) {
    for (size_t role : family.roles) roles_[role].kind = kind;
    taken_.insert(kind);
  }

  std::vector<CommRole>& roles_;
  std::vector<Family> families_;
  std::set<CommKind> taken_;
};

}  // namespace

const char* to_text(CommKind kind) {
  switch (kind) {
    case CommKind::kOther:
      return "other";
    case CommKind::kWorld:
      return "world";
    case CommKind::kDp:
      return "dp";
    case CommKind::kTp:
      return "tp";
    case CommKind::kPp:
      return "pp";
    case CommKind::kEp:
      return "ep";
    case CommKind::kCp:
      return "cp";
  }
  return "other";
}

CommKind kind_of_name(std::string_view name) {
  struct Word {
    const char* word;
    CommKind kind;
  };
  // In this order: "expert_data_parallel" is of the experts, "default_pg" is everybody, "dp_cp" counts as dp.
  static constexpr Word kWords[] = {
      {"expert", CommKind::kEp},  {"ep", CommKind::kEp},       {"tensor", CommKind::kTp},
      {"tp", CommKind::kTp},      {"pipeline", CommKind::kPp}, {"pp", CommKind::kPp},
      {"dp", CommKind::kDp},      {"data", CommKind::kDp},     {"fsdp", CommKind::kDp},
      {"ddp", CommKind::kDp},     {"shard", CommKind::kDp},    {"replicate", CommKind::kDp},
      {"context", CommKind::kCp}, {"cp", CommKind::kCp},       {"sequence", CommKind::kCp},
      {"sp", CommKind::kCp},      {"world", CommKind::kWorld}, {"default", CommKind::kWorld}};
  const std::vector<std::string> words = words_of(name);
  for (const Word& known : kWords) {
    if (std::find(words.begin(), words.end(), known.word) != words.end()) return known.kind;
  }
  return CommKind::kOther;
}

std::string CommRole::label() const {
  if (reported && !name.empty()) return name;
  return kind == CommKind::kOther ? "group" : to_text(kind);
}

Rank CommRole::rank_of(int32_t rank_in_comm) const {
  return rank_in_comm < 0 || static_cast<size_t>(rank_in_comm) >= members.size()
             ? kNoRank
             : members[static_cast<size_t>(rank_in_comm)];
}

namespace {

// What ranks have reported of their communicators.
struct Reported {
  explicit Reported(const JobInfo& job) {
    for (const RankInfo& rank : job.ranks) {
      host_of[rank.identity.rank] = &rank.identity.host;
      for (const CommInit& comm : rank.comms) add(comm, rank.identity.rank);
      for (const CommGroup& group : rank.groups) add(group);
    }
  }

  std::map<CommId, CommRole> found;
  std::map<CommId, std::string> nccl_name;
  std::map<Rank, const std::string*> host_of;
  std::map<std::vector<Rank>, std::string> groups;  // members, sorted -> name

 private:
  // From outside: one communicator, and all of them together, as room is made for members that nobody has told of.
  static constexpr int32_t kSizeMax = 1 << 20;
  static constexpr size_t kRoomMax = 16 << 20;

  void add(const CommInit& comm, Rank rank) {
    CommRole& role = found[comm.comm_id];
    role.comm_id = comm.comm_id;
    role.size = std::max(role.size, std::min(comm.size, kSizeMax));
    role.nodes = std::max(role.nodes, comm.nodes);
    if (!comm.name.empty()) nccl_name.try_emplace(comm.comm_id, comm.name);
    if (comm.rank_in_comm < 0 || comm.rank_in_comm >= role.size) return;
    if (role.members.size() < static_cast<size_t>(role.size)) {
      const size_t more = static_cast<size_t>(role.size) - role.members.size();
      if (room_ + more > kRoomMax) return;
      room_ += more;
      role.members.resize(static_cast<size_t>(role.size), kNoRank);
    }
    role.members[static_cast<size_t>(comm.rank_in_comm)] = rank;
  }

  void add(const CommGroup& group) {
    std::vector<Rank> ranks = group.ranks;
    std::sort(ranks.begin(), ranks.end());
    const auto [entry, fresh] = groups.try_emplace(std::move(ranks), group.name);
    // Several names for the same ranks: one that says what they do, else the first by name.
    const auto says = [](const std::string& name) { return kind_of_name(name) != CommKind::kOther; };
    if (!fresh && std::make_pair(!says(group.name), group.name) < std::make_pair(!says(entry->second), entry->second))
      entry->second = group.name;
  }

  size_t room_ = 0;
};

void name_role(CommRole& role, const Reported& reported) {
  std::vector<Rank> ranks = role.members;
  std::sort(ranks.begin(), ranks.end());
  if (const auto group = reported.groups.find(ranks); group != reported.groups.end()) {
    role.reported = true;
    role.name = group->second;
  } else if (const auto name = reported.nccl_name.find(role.comm_id);
             name != reported.nccl_name.end() && kind_of_name(name->second) != CommKind::kOther) {
    role.reported = true;
    role.name = name->second;
  }
  if (role.reported) role.kind = kind_of_name(role.name);
}

Rank lowest_rank(const CommRole& role) {
  Rank least{INT32_MAX};
  for (Rank rank : role.members) least = rank == kNoRank ? least : std::min(least, rank);
  return least;
}

}  // namespace

CommRoles CommRoles::of(const JobInfo& job, const std::map<CommId, CommUse>& uses) {
  Reported reported(job);
  CommRoles out;
  for (auto& [comm_id, role] : reported.found) {
    if (role.members.size() < static_cast<size_t>(std::max(role.size, 0))) continue;  // there was no room for it
    if (const auto use = uses.find(comm_id); use != uses.end()) role.use = use->second;
    name_role(role, reported);
    out.roles_.push_back(std::move(role));
  }
  Inference(out.roles_, job.world_size, reported.host_of).run();
  std::sort(out.roles_.begin(), out.roles_.end(), [](const CommRole& a, const CommRole& b) {
    return std::make_tuple(a.kind, a.name, a.size, lowest_rank(a), a.comm_id) <
           std::make_tuple(b.kind, b.name, b.size, lowest_rank(b), b.comm_id);
  });
  for (size_t i = 0; i < out.roles_.size(); ++i) {
    CommRole& role = out.roles_[i];
    const bool goes_on = i > 0 && out.roles_[i - 1].kind == role.kind && out.roles_[i - 1].name == role.name &&
                         out.roles_[i - 1].size == role.size;
    role.index = goes_on ? out.roles_[i - 1].index + 1 : 0;
    out.by_id_[role.comm_id] = i;
  }
  return out;
}

const CommRole* CommRoles::find(CommId comm_id) const {
  const auto found = by_id_.find(comm_id);
  return found == by_id_.end() ? nullptr : &roles_[found->second];
}

std::map<CommId, CommUse> comm_uses(const StepStore& steps, std::string_view job_id, StepNumber from_step,
                                    StepNumber to_step) {
  std::map<CommId, CommUse> uses;
  steps.visit_steps(job_id, from_step, to_step, [&](const Identity&, const StepSummary& step) {
    for (const CommStep& comm : step.comms) {
      CommUse& use = uses[comm.comm_id];
      if (comm.p2p) {
        use.messages = std::max(use.messages, comm.count);
      } else {
        use.collectives = std::max(use.collectives, comm.count);
        use.collective_bytes = std::max(use.collective_bytes, comm.bytes);
      }
    }
    std::map<CommId, int32_t> peers;
    for (const FlowStep& flow : step.flows) peers[flow.comm_id] += flow.send ? 1 : 0;
    for (const auto& [comm_id, count] : peers) uses[comm_id].peers = std::max(uses[comm_id].peers, count);
  });
  return uses;
}

CommRoles comm_roles(const StepStore& steps, const JobInfo& job) {
  return CommRoles::of(job, comm_uses(steps, job.job_id, job.last_step - kStepsLookedAt, job.last_step));
}

}  // namespace lockstep
