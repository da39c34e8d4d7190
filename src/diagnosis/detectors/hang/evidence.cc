#include "diagnosis/detectors/hang/evidence.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/text.h"
#include "diagnosis/phrasing.h"
#include "model/rank_text.h"
#include "model/stack_groups.h"

namespace lockstep {
namespace {

// Hosts' clocks differ; evidence of an earlier hang is minutes old.
constexpr int64_t kClocksDifferNs = 30'000'000'000;
constexpr size_t kStacksReported = 5;
constexpr size_t kDumpsReported = 3;
constexpr size_t kRanksGrouped = 3;

bool sizes_must_agree(const std::string& operation) {
  if (operation.find("to_all") != std::string::npos || operation.find("toall") != std::string::npos) return false;
  for (const char* part : {"reduce", "broadcast", "all_gather", "allgather"}) {
    if (operation.find(part) != std::string::npos) return true;
  }
  return false;
}

// What has to be the same on all ranks.
std::string signature(const DumpOp& op) {
  if (!sizes_must_agree(op.name)) return op.name;
  return format("%s/%s/%lld", op.name.c_str(), op.dtype.c_str(), static_cast<long long>(op.elements));
}

std::string op_words(const DumpOp& op) {
  std::string text = op.name;
  if (sizes_must_agree(op.name)) text += format(" of %s %s", op.sizes.c_str(), op.dtype.c_str());
  return text;
}

std::string called_from(const DumpOp& op) {
  return op.caller.file.empty() ? std::string() : " from " + to_text(op.caller);
}

std::string group_words(const std::string& name, const std::string& desc) {
  return desc.empty() || desc == "undefined" ? "group " + name : desc;
}

std::string key_of(const DumpGroup& group) {
  return group.name + "|" + group.ranks;
}

Claim evidence_claim(Rank rank, std::string text, double value, const char* unit, const Finding& finding) {
  return claim(ClaimKind::kEvent, format("rank %d", rank.value()), std::move(text), {.value = value, .unit = unit},
               finding.since_step, finding.since_step, format("/api/jobs/{job}/stacks?ranks=%d", rank.value()));
}

bool is_fresh(int64_t time_unix_ns, int64_t since_unix_ns) {
  return time_unix_ns + kClocksDifferNs >= since_unix_ns;
}

// Who stands at the same place, once enough ranks were looked at that places can differ.
std::optional<Claim> groups_claim(const Finding& finding, const RankStacks& stacks, int64_t since_unix_ns) {
  RankStacks fresh;
  for (const auto& [rank, stack] : stacks) {
    if (!stack.python.empty() && is_fresh(stack.time_unix_ns, since_unix_ns)) fresh.emplace(rank, stack);
  }
  const std::vector<StackGroup> groups = group_stacks(fresh);
  if (fresh.size() < kRanksGrouped || groups.size() == fresh.size()) return std::nullopt;
  return claim(ClaimKind::kEvent, format("%zu ranks", fresh.size()), "Stacks: " + groups_text(groups) + ".",
               {.value = static_cast<double>(groups.size()), .unit = "places"}, finding.since_step, finding.since_step,
               "/api/jobs/{job}/stacks");
}

void become_mismatch(Finding& finding, const DumpMismatch& mismatch) {
  finding.kind = emits<Emitter::kHang, VerdictKind::kHang>;
  finding.cause = emits<Emitter::kHang, Cause::kOpMismatch>;
  finding.layer = emits<Emitter::kHang, Layer::kSoftware>;
  finding.sure = true;
  finding.confidence = mismatch.even ? 0.8 : 0.95;
  finding.ranks = mismatch.odd;
  finding.component = format("program of rank %s", human_ranks(mismatch.odd).c_str());
  finding.sentence =
      format("Rank %s called %s as operation %lld of %s where rank %s called %s.", human_ranks(mismatch.odd).c_str(),
             op_words(mismatch.odd_op).c_str(), static_cast<long long>(mismatch.seq), mismatch.group.c_str(),
             human_ranks(mismatch.usual).c_str(), op_words(mismatch.usual_op).c_str());
  // What spoke for another reason speaks no more.
  std::erase_if(finding.chain, [](const Claim& entry) { return entry.kind != ClaimKind::kWaitsFor; });
  finding.chain.push_back(claim(ClaimKind::kExclusion, "network",
                                "Not the network: such an operation cannot complete on any network.", {},
                                finding.since_step, finding.since_step, "/api/jobs/{job}/stacks"));
  finding.alternatives.clear();
  if (mismatch.even) {
    finding.alternatives.push_back({format("rank %s", human_ranks(mismatch.usual).c_str()), 0.8,
                                    "as many ranks called the one as the other",
                                    "which of the two calls the program should make there"});
  }
  finding.next = {
      {format("compare the code path of rank %d with its peers' at this call", mismatch.odd.front().value()),
       mismatch.odd_op.caller.file.empty()
           ? ""
           : format("%s:%d", mismatch.odd_op.caller.file.c_str(), mismatch.odd_op.caller.line)}};
}

Claim mismatch_claim(const DumpMismatch& mismatch, const Finding& finding) {
  return evidence_claim(mismatch.odd.front(),
                        format("PyTorch's Flight Recorder: rank %s called %s%s, rank %s called %s%s.",
                               human_ranks(mismatch.odd).c_str(), op_words(mismatch.odd_op).c_str(),
                               called_from(mismatch.odd_op).c_str(), human_ranks(mismatch.usual).c_str(),
                               op_words(mismatch.usual_op).c_str(), called_from(mismatch.usual_op).c_str()),
                        static_cast<double>(mismatch.odd.size()), "ranks", finding);
}

// What the culprits called last.
void add_last_calls(const Finding& finding, const FlightDumps& dumps, int64_t since_unix_ns,
                    std::vector<Claim>& claims) {
  size_t reported = 0;
  for (Rank rank : finding.ranks) {
    auto dump = dumps.find(rank);
    if (dump == dumps.end() || dump->second.last.seq < 0 || reported == kDumpsReported ||
        !is_fresh(dump->second.time_unix_ns, since_unix_ns))
      continue;
    ++reported;
    const DumpOp& last = dump->second.last;
    std::string desc;
    for (const DumpGroup& group : dump->second.groups) {
      if (group.name == dump->second.last_group) desc = group.desc;
    }
    claims.push_back(evidence_claim(
        rank,
        format("Rank %d last called %s %lld of %s%s (%s).", rank.value(), last.name.c_str(),
               static_cast<long long>(last.seq), group_words(dump->second.last_group, desc).c_str(),
               called_from(last).c_str(), last.state == OpState::kCompleted ? "completed" : "not complete"),
        static_cast<double>(dump->second.entries), "operations", finding));
  }
}

const RankStack* fresh_stack(const RankStacks& stacks, Rank rank, int64_t since_unix_ns) {
  const auto found = stacks.find(rank);
  return found != stacks.end() && is_fresh(found->second.time_unix_ns, since_unix_ns) ? &found->second : nullptr;
}

// Where the culprits are, and one who waits, to compare with. True: the first culprit's stack is among them.
bool add_stacks(const Finding& finding, const RankStacks& stacks, int64_t since_unix_ns, std::vector<Claim>& claims) {
  std::vector<Rank> whose = finding.ranks;
  if (whose.size() > kStacksReported - 1) whose.resize(kStacksReported - 1);
  const auto waits = std::find_if(finding.victims.begin(), finding.victims.end(), [&](Rank victim) {
    return fresh_stack(stacks, victim, since_unix_ns) != nullptr &&
           std::find(whose.begin(), whose.end(), victim) == whose.end();
  });
  if (waits != finding.victims.end()) whose.push_back(*waits);
  bool seen = false;
  for (Rank rank : whose) {
    const RankStack* stack = fresh_stack(stacks, rank, since_unix_ns);
    if (stack == nullptr) continue;
    std::string text = format("Rank %d: %s", rank.value(), where_text(*stack).c_str());
    if (stack->python.empty() && !stack->note.empty()) text += "; " + stack->note;
    claims.push_back(evidence_claim(rank, text + ".", static_cast<double>(stack->threads_count), "threads", finding));
    seen |= !finding.ranks.empty() && rank == finding.ranks.front();
  }
  return seen;
}

// Instead of taking stacks by hand: read those that were taken (`seen`), or have them taken.
void point_to_stacks(bool seen, Finding& finding) {
  for (NextAction& action : finding.next) {
    if (action.command.find("py-spy") == std::string::npos || finding.ranks.empty()) continue;
    if (seen)
      action = {"read the whole stacks, of the odd rank and of one who waits", "lockstep hang {job}"};
    else
      action.command = format("lockstep hang {job} --stacks %d", finding.ranks.front().value());
  }
}

}  // namespace

std::optional<DumpMismatch> find_mismatch(const FlightDumps& dumps, int64_t since_unix_ns) {
  struct At {
    Rank rank;
    const DumpOp* op;
    const DumpGroup* group;
  };
  std::map<std::string, std::map<int64_t, std::vector<At>>> places;  // group -> seq
  for (const auto& [rank, dump] : dumps) {
    if (!is_fresh(dump.time_unix_ns, since_unix_ns)) continue;
    for (const DumpGroup& group : dump.groups) {
      for (const DumpOp& op : group.ops) {
        if (op.seq < 0) continue;
        std::vector<At>& here = places[key_of(group)][op.seq];
        if (here.empty() || here.back().rank != rank) here.push_back({rank, &op, &group});
      }
    }
  }
  const std::vector<At>* first = nullptr;
  for (const auto& [group, by_seq] : places) {
    for (const auto& [seq, here] : by_seq) {
      const bool differ = std::any_of(here.begin(), here.end(), [expected = signature(*here.front().op)](const At& at) {
        return signature(*at.op) != expected;
      });
      const bool open =
          std::any_of(here.begin(), here.end(), [](const At& at) { return at.op->state != OpState::kCompleted; });
      if (!differ || !open) continue;
      // What was called first went wrong first.
      if (first == nullptr || here.front().op->created_unix_ns < first->front().op->created_unix_ns) first = &here;
      break;  // behind a mismatch nothing can be compared
    }
  }
  if (first == nullptr) return std::nullopt;
  std::map<std::string, std::vector<const At*>> kinds;
  for (const At& at : *first) kinds[signature(*at.op)].push_back(&at);
  auto fewer = [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); };
  const auto usual = std::max_element(kinds.begin(), kinds.end(), fewer);
  auto odd = kinds.begin() == usual ? std::next(kinds.begin()) : kinds.begin();
  for (auto kind = kinds.begin(); kind != kinds.end(); ++kind) {
    if (kind != usual && kind->second.size() < odd->second.size()) odd = kind;
  }
  DumpMismatch mismatch;
  const DumpGroup& group = *first->front().group;
  mismatch.group = group_words(group.name, group.desc);
  mismatch.seq = first->front().op->seq;
  for (const At* at : odd->second) mismatch.odd.push_back(at->rank);
  for (const At* at : usual->second) mismatch.usual.push_back(at->rank);
  mismatch.odd_op = *odd->second.front()->op;
  mismatch.usual_op = *usual->second.front()->op;
  mismatch.even = odd->second.size() == usual->second.size();
  return mismatch;
}

void add_evidence(Finding& finding, const RankStacks& stacks, const FlightDumps& dumps, int64_t since_unix_ns) {
  std::vector<Claim> claims;
  // A process that is dead or stopped explains everything else.
  const bool may_be_mismatch = finding.cause != Cause::kRankDead && finding.cause != Cause::kProcessPaused;
  std::optional<DumpMismatch> mismatch = may_be_mismatch ? find_mismatch(dumps, since_unix_ns) : std::nullopt;
  if (mismatch) {
    become_mismatch(finding, *mismatch);
    claims.push_back(mismatch_claim(*mismatch, finding));
  } else {
    add_last_calls(finding, dumps, since_unix_ns, claims);
  }
  if (std::optional<Claim> groups = groups_claim(finding, stacks, since_unix_ns)) claims.push_back(std::move(*groups));
  const bool seen = add_stacks(finding, stacks, since_unix_ns, claims);
  finding.chain.insert(finding.chain.begin(), claims.begin(), claims.end());
  point_to_stacks(seen, finding);
}

std::vector<Rank> ranks_without_dump(const FlightDumps& dumps) {
  std::set<Rank> members;
  for (const auto& [rank, dump] : dumps) {
    for (const DumpGroup& group : dump.groups) {
      if (group.ranks.empty()) continue;
      Result<std::vector<Rank>> ranks = ranks_from_text(group.ranks, kGroupRanksMax);
      if (ranks.ok()) members.insert(ranks->begin(), ranks->end());
    }
    members.erase(rank);
  }
  std::vector<Rank> missing;
  for (Rank rank : members) {
    if (!dumps.contains(rank)) missing.push_back(rank);
  }
  return missing;
}

std::optional<Finding> find_hang_in_dumps(const FlightDumps& dumps, JobWindow& window) {
  HangInput input;
  int32_t world = 0;
  for (const auto& [rank, dump] : dumps) {
    world = std::max(world, rank.value() + 1);
    for (const DumpGroup& group : dump.groups) world = std::max(world, static_cast<int32_t>(group.size));
  }
  for (Rank rank : ranks_without_dump(dumps)) world = std::max(world, rank.value() + 1);
  for (const auto& [rank, dump] : dumps) {
    const Identity identity{.job_id = "dumps", .rank = rank, .world_size = world};
    window.add_rank(identity);
    RankStatus& status = input.status[rank];
    status.time_unix_ns = dump.time_unix_ns;
    for (const DumpGroup& group : dump.groups) {
      Result<std::vector<Rank>> members = ranks_from_text(group.ranks, kGroupRanksMax);
      if (group.ranks.empty() || !members.ok()) continue;  // who else is in it is not known
      const auto place = std::find(members->begin(), members->end(), rank);
      if (place == members->end()) continue;
      const auto in_comm = static_cast<int32_t>(place - members->begin());
      const CommId comm_id{std::hash<std::string>{}(key_of(group))};
      window.add_comm(
          identity,
          {.comm_id = comm_id, .size = static_cast<int32_t>(group.size), .rank_in_comm = in_comm, .name = group.desc});
      CommStatus comm{.comm_id = comm_id, .size = static_cast<int32_t>(group.size), .rank_in_comm = in_comm};
      // PyTorch numbers from 0 in some releases; here 0 means none yet.
      comm.collectives_enqueued = static_cast<uint64_t>(group.last_enqueued + 1);
      comm.collectives_completed = static_cast<uint64_t>(group.last_completed + 1);
      auto open = std::find_if(group.ops.begin(), group.ops.end(),
                               [](const DumpOp& op) { return op.state != OpState::kCompleted; });
      if (open == group.ops.end() && !group.ops.empty()) --open;
      if (open != group.ops.end()) {
        comm.collective = {.state = open->state,
                           .ordinal = static_cast<uint64_t>(open->seq + 1),
                           .seq = static_cast<uint64_t>(std::max<int64_t>(0, open->seq)),
                           .function = open->name,
                           .datatype = open->dtype,
                           .bytes = open->elements * std::max<int64_t>(1, dtype_bytes(open->dtype)),
                           .since_unix_ns = open->created_unix_ns};
      }
      status.comms.push_back(std::move(comm));
    }
  }
  // Nobody in a dump moves again.
  const int64_t quiet_ns = 4 * hang_after_ns(input);
  for (auto& [rank, status] : input.status) status.quiet_ns = quiet_ns;
  std::optional<Finding> finding = find_hang(window, input);
  if (!finding && find_mismatch(dumps)) {
    finding.emplace();
    for (const auto& [rank, dump] : dumps) finding->victims.push_back(rank);
  }
  if (!finding) return std::nullopt;
  const std::string made_up = " for " + human_duration(static_cast<double>(finding->lost_ns_per_step));
  if (size_t at = finding->sentence.rfind(made_up); at != std::string::npos)
    finding->sentence.erase(at, made_up.size());
  add_evidence(*finding, {}, dumps, 0);
  return finding;
}

}  // namespace lockstep
