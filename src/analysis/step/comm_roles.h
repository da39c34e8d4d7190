// What the communicators of a job are for: their members by rank, and whether they carry tensor, data, pipeline, expert
// or context parallelism.
//
// Told: the training framework named a process group with the same members (comm.group), or NCCL knows the communicator
// by a name that says it. Else inferred, over all communicators of one shape together, from size, which ranks are in
// it and what it does in a step: all ranks -> world; nothing but sends and receives -> pp (ep where a rank exchanges
// with every other); neighbours on one host that talk most often -> tp; of the rest the one that moves most bytes ->
// dp, further ones -> cp. That is a guess and says so.
// Thread rule: Immutable once made.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/step_store.h"

namespace lockstep {

enum class CommKind : uint8_t { kOther = 0, kWorld = 1, kDp = 2, kTp = 3, kPp = 4, kEp = 5, kCp = 6 };
const char* to_text(CommKind kind);  // "other", "world", "dp", "tp", "pp", "ep", "cp"
// By the words frameworks use: "mesh_tp", "TENSOR_MODEL_PARALLEL_GROUP", "dp_cp"; kOther: none of them.
CommKind kind_of_name(std::string_view name);

// What a communicator does in a step, on one of its ranks.
struct CommUse {
  int64_t collectives = 0;
  int64_t collective_bytes = 0;
  int64_t messages = 0;
  int32_t peers = 0;  // that it has sent to over the network; 0: not known
};

struct CommRole {
  CommId comm_id;
  CommKind kind = CommKind::kOther;
  bool reported = false;
  std::string name;           // as told; else empty
  int32_t index = 0;          // among those of its kind, size and name, by lowest rank
  int32_t size = 0;           // 0: not known
  int32_t nodes = 0;          // 0: not known
  std::vector<Rank> members;  // by rank in the communicator; kNoRank: not known
  CommUse use;
  // "dp": the name where it was told, else the kind; "group" where neither says anything.
  std::string label() const;
  Rank rank_of(int32_t rank_in_comm) const;  // kNoRank: not known
};

class CommRoles {
 public:
  CommRoles() = default;
  // uses: by communicator; what is not in there does nothing that is known of.
  static CommRoles of(const JobInfo& job, const std::map<CommId, CommUse>& uses);

  const CommRole* find(CommId comm_id) const;
  const std::vector<CommRole>& all() const { return roles_; }  // by kind, name, index

 private:
  std::vector<CommRole> roles_;
  std::map<CommId, size_t> by_id_;
};

// From the summaries of these steps: of each communicator the step of the rank that did most.
std::map<CommId, CommUse> comm_uses(const StepStore& steps, std::string_view job_id, StepNumber from_step,
                                    StepNumber to_step);
// Roles of a job as of now, by what its last steps did.
CommRoles comm_roles(const StepStore& steps, const JobInfo& job);

}  // namespace lockstep
