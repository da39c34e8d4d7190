#include "diagnosis/detectors/hang/hang.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/text.h"
#include "diagnosis/phrasing.h"

namespace lockstep {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
// Agents report after two seconds of silence; a step loop that takes longer per step gets five of its steps. Where
// these are more than a few seconds people do not want to wait for so many: two and a little, or three.
constexpr int64_t kQuietMin = 2 * kSecond;
constexpr int64_t kStepsQuiet = 5;
constexpr int64_t kStepsQuietLong = 3;
int64_t two_and_a_little(int64_t step_ns) {
  return 2 * step_ns + 3 * kSecond;
}
constexpr int64_t kQuietMost = 120 * kSecond;
// Before the job has found its pace (compilation, first connections) silence means little.
constexpr uint64_t kWarmOperations = 20;
constexpr int64_t kQuietConnecting = 15 * kSecond;
constexpr int64_t kQuietCompiling = 120 * kSecond;
constexpr int64_t kQuietNoSteps = 3 * kSecond;
// A word older than this beside the newest of the job is no word: its agent is gone.
constexpr int64_t kWordLasts = 15 * kSecond;
// Ranks starve one after the other within a millisecond or so of the first; closer than this is no order.
constexpr int64_t kFirstSilentMargin = 100'000;
// Checkpoints and evaluations may take minutes.
constexpr int64_t kQuietBusyPhase = 600 * kSecond;

bool in_flight(const OpStatus& op) {
  return op.state == OpState::kEnqueued || op.state == OpState::kStarted;
}

struct WaitingOp {
  uint64_t comm_id = 0;
  OpStatus op;
};

// Whom everybody waits for who is in the same collective. One for all of them: where a hundred thousand ranks wait for
// a thousand, each with a list of its own would be the end of the server too.
struct Missing {
  std::vector<int32_t> ranks;  // sorted
  bool is_mismatch = false;    // those who are in it called different operations
  enum { kNew, kOnTheWay, kDone } walk = kNew;
};

struct WaitsFor {
  std::vector<Missing*> groups;
  std::set<int32_t> peers;
  bool contains(int32_t rank) const {
    return peers.contains(rank) || std::any_of(groups.begin(), groups.end(), [&](const Missing* group) {
             return std::binary_search(group->ranks.begin(), group->ranks.end(), rank);
           });
  }
};

std::string op_text(const OpStatus& op) {
  if (op.function == "Send" || op.function == "Recv")
    return format("%s (rank %d of its group)", op.function.c_str(), op.peer);
  return format("%s %llu", op.function.c_str(), static_cast<unsigned long long>(op.seq));
}

}  // namespace

int64_t typical_step_ns(const JobWindow& window) {
  std::vector<double> durations;
  int64_t newest = window.newest_step();
  for (int64_t number = std::max(window.first_step() + 1, newest - 40); number <= newest; ++number) {
    for (const auto* rows : {window.step(number), window.unknown(number)}) {
      if (rows == nullptr) continue;
      for (const auto& [rank, row] : *rows) durations.push_back(static_cast<double>(row.summary.duration_ns));
    }
  }
  return static_cast<int64_t>(median(durations));
}

int64_t hang_after_ns(const HangInput& input) {
  if (const int64_t step_ns = input.typical_step_ns; step_ns > 0)
    return std::clamp(std::min(kStepsQuiet * step_ns, std::max(two_and_a_little(step_ns), kStepsQuietLong * step_ns)),
                      kQuietMin, kQuietMost);
  uint64_t completed = 0, begun = 0;
  for (const auto& [rank, status] : input.status) {
    uint64_t ended_here = 0, begun_here = 0;
    for (const CommStatus& comm : status.comms) {
      ended_here += comm.collectives_completed + comm.p2p_completed;
      begun_here += comm.collectives_enqueued + comm.p2p_enqueued;
    }
    completed = std::max(completed, ended_here);
    begun = std::max(begun, begun_here);
  }
  if (completed >= kWarmOperations) return kQuietNoSteps;
  return begun >= kWarmOperations ? kQuietConnecting : kQuietCompiling;
}

std::optional<Finding> find_hang(const JobWindow& window, const HangInput& input) {
  const int64_t limit = hang_after_ns(input);
  int64_t newest_word = 0;
  for (const auto& [rank, status] : input.status) newest_word = std::max(newest_word, status.time_unix_ns);

  // Who stands still, and who waits for whom.
  std::map<int32_t, WaitingOp> waiting;
  std::map<int32_t, WaitsFor> waits_for;
  int64_t shortest_quiet = INT64_MAX, longest_quiet = 0;
  std::map<uint64_t, std::map<int32_t, const CommStatus*>> standing;  // communicator -> rank -> where it stands
  std::map<uint64_t, uint64_t> least_entered;                         // communicator -> collectives of the last one
  for (const auto& [rank, status] : input.status) {
    if (status.finished) continue;
    for (const CommStatus& comm : status.comms) {
      standing[comm.comm_id][rank] = &comm;
      auto [least, fresh] = least_entered.try_emplace(comm.comm_id, comm.collectives_enqueued);
      least->second = std::min(least->second, comm.collectives_enqueued);
    }
  }
  // Where NCCL does not tell the end of an operation, it is surely in flight only while a member has not entered it.
  auto waits_in_collective = [&](const CommStatus& comm) {
    if (!in_flight(comm.collective) || !comm.collective.end_not_seen) return in_flight(comm.collective);
    return least_entered[comm.comm_id] < comm.collective.ordinal;
  };
  auto waits_in_p2p = [](const CommStatus& comm) { return in_flight(comm.p2p) && !comm.p2p.end_not_seen; };
  bool any_waiting = false;
  for (const auto& [rank, status] : input.status) {
    if (status.finished || !status.process_alive || status.quiet_ns < limit) continue;
    for (const CommStatus& comm : status.comms) any_waiting |= waits_in_collective(comm) || waits_in_p2p(comm);
  }
  if (!any_waiting) return std::nullopt;

  std::set<uint64_t> mismatched;
  std::map<std::pair<uint64_t, uint64_t>, Missing> missing;  // communicator and ordinal of its collective
  auto missing_in = [&](const CommMembers& members, const CommStatus& comm) -> Missing& {
    const uint64_t ordinal = comm.collective.ordinal;
    auto [at, fresh] = missing.try_emplace({comm.comm_id, ordinal});
    Missing& found = at->second;
    if (!fresh) return found;
    const std::map<int32_t, const CommStatus*>& entered = standing[comm.comm_id];
    const OpStatus* first = nullptr;
    for (const auto& [in_comm, other] : members.world_rank) {
      auto where = entered.find(other);
      auto status = input.status.find(other);
      const bool reported = status != input.status.end();
      const bool left = reported && status->second.finished;  // without entering
      const bool died = reported && !status->second.process_alive &&
                        (where == entered.end() || where->second->collectives_completed < ordinal);
      // Nothing known of it in this communicator: silent, or never came.
      if (left || died || where == entered.end() || where->second->collectives_enqueued < ordinal) {
        found.ranks.push_back(other);
        continue;
      }
      const OpStatus& op = where->second->collective;
      if (!in_flight(op) || op.ordinal != ordinal) continue;
      if (first == nullptr) first = &op;
      found.is_mismatch |= op.function != first->function || op.datatype != first->datatype ||
                           (op.bytes != first->bytes && op.function == "AllReduce");
    }
    std::sort(found.ranks.begin(), found.ranks.end());
    return found;
  };
  for (const auto& [rank, status] : input.status) {
    if (status.finished || !status.process_alive || status.quiet_ns < limit) continue;
    for (const CommStatus& comm : status.comms) {
      if (waits_in_collective(comm)) {
        if (!waiting.contains(rank) || comm.collective.since_unix_ns < waiting[rank].op.since_unix_ns)
          waiting[rank] = {comm.comm_id, comm.collective};
        auto members = window.comms().find(comm.comm_id);
        if (members == window.comms().end()) continue;
        Missing& group = missing_in(members->second, comm);
        if (group.is_mismatch) mismatched.insert(comm.comm_id);
        if (!group.ranks.empty()) waits_for[rank].groups.push_back(&group);
      }
      if (waits_in_p2p(comm)) {
        int32_t peer = window.world_rank(comm.comm_id, comm.p2p.peer);
        if (!waiting.contains(rank)) waiting[rank] = {comm.comm_id, comm.p2p};
        if (peer >= 0 && peer != rank) {
          auto where = standing[comm.comm_id].find(peer);
          bool meets = where != standing[comm.comm_id].end() && in_flight(where->second->p2p) &&
                       where->second->p2p.peer == comm.rank_in_comm;
          if (!meets) waits_for[rank].peers.insert(peer);
        }
      }
    }
    if (waiting.contains(rank)) {
      shortest_quiet = std::min(shortest_quiet, status.quiet_ns);
      longest_quiet = std::max(longest_quiet, status.quiet_ns);
    }
  }
  if (waiting.empty()) return std::nullopt;

  // Walk from the victims to those who wait for nobody.
  std::set<int32_t> ends, seen;
  std::vector<int32_t> circle;
  std::function<void(int32_t, std::vector<int32_t>&)> walk = [&](int32_t rank, std::vector<int32_t>& path) {
    auto again = std::find(path.begin(), path.end(), rank);
    if (again != path.end()) {
      if (circle.empty()) circle.assign(again, path.end());
      return;
    }
    if (!seen.insert(rank).second) return;
    auto edges = waits_for.find(rank);
    if (edges == waits_for.end()) {
      if (!waiting.contains(rank)) ends.insert(rank);
      return;
    }
    path.push_back(rank);
    for (Missing* group : edges->second.groups) {
      // Whoever else waits for the same ranks has been there, or is on the way: then only a circle is news.
      if (group->walk == Missing::kNew) {
        group->walk = Missing::kOnTheWay;
        for (int32_t next : group->ranks) walk(next, path);
        group->walk = Missing::kDone;
      } else if (group->walk == Missing::kOnTheWay && circle.empty()) {
        auto circled = path.end();
        for (auto at = path.begin(); at != path.end(); ++at) {
          if ((circled == path.end() || *at < *circled) &&
              std::binary_search(group->ranks.begin(), group->ranks.end(), *at))
            circled = at;
        }
        if (circled != path.end()) circle.assign(circled, path.end());
      }
    }
    for (int32_t next : edges->second.peers) walk(next, path);
    path.pop_back();
  };
  for (const auto& [rank, op] : waiting) {
    std::vector<int32_t> path;
    walk(rank, path);
  }

  Finding finding;
  finding.kind = emits<Emitter::kHang, VerdictKind::kHang>;
  finding.layer = emits<Emitter::kHang, Layer::kUnknown>;
  for (const auto& [rank, op] : waiting) finding.victims.push_back(rank);
  finding.sure = shortest_quiet >= limit + kSecond / 2;
  finding.since_step = window.newest_step() + 1;
  finding.through_step = finding.since_step;
  finding.confidence = finding.sure ? 0.95 : 0.6;
  finding.coverage = coverage_of(window, input.status.size());
  finding.lost_ns_per_step = longest_quiet;
  finding.clear_after_steps = 0;

  // The operation that most victims are in.
  std::map<std::string, std::pair<size_t, WaitingOp>> by_op;
  for (const auto& [rank, op] : waiting) {
    auto& entry = by_op[format("%llx/%s/%llu", static_cast<unsigned long long>(op.comm_id), op.op.function.c_str(),
                               static_cast<unsigned long long>(op.op.ordinal))];
    ++entry.first;
    entry.second = op;
  }
  WaitingOp main_op = std::max_element(by_op.begin(), by_op.end(), [](const auto& a, const auto& b) {
                        return a.second.first < b.second.first;
                      })->second.second;
  std::string waits_text = human_duration(static_cast<double>(longest_quiet));

  if (!ends.empty()) {
    // An end that still moves is busy, not hung; one that is saving or evaluating says so.
    std::vector<int32_t> culprits;
    bool dead = false;
    for (int32_t rank : ends) {
      auto status = input.status.find(rank);
      if (status != input.status.end() && newest_word - status->second.time_unix_ns <= kWordLasts) {
        const RankStatus& at = status->second;
        if (at.process_alive && !at.finished && at.quiet_ns < limit) return std::nullopt;
        bool busy = at.phase == Phase::kCheckpoint || at.phase == Phase::kEval;
        if (busy && at.quiet_ns < kQuietBusyPhase) return std::nullopt;
        dead |= !at.process_alive;
      } else if (window.ranks().contains(rank) && longest_quiet < limit + 2 * kSecond) {
        return std::nullopt;  // its own word may still be under way
      }
      culprits.push_back(rank);
    }
    if (dead) {
      std::erase_if(culprits, [&](int32_t rank) {
        auto status = input.status.find(rank);
        return status != input.status.end() && status->second.process_alive;
      });
    }
    if (culprits.size() * 2 > waiting.size() + culprits.size() && culprits.size() > 1)
      return std::nullopt;  // half a job that idles is no culprit
    finding.ranks = culprits;
    int32_t first = culprits.front();
    // The operation to name is one that waits for the culprit itself, not one further up the chain; of several, the
    // first that was entered.
    bool named = false;
    std::map<uint64_t, bool> has_first;  // communicators, and whether it is a member
    for (const auto& [rank, op] : waiting) {
      auto edges = waits_for.find(rank);
      auto members = window.comms().find(op.comm_id);
      if (edges == waits_for.end() || !edges->second.contains(first) || members == window.comms().end()) continue;
      auto [member, unasked] = has_first.try_emplace(op.comm_id, false);
      if (unasked)
        member->second = std::any_of(members->second.world_rank.begin(), members->second.world_rank.end(),
                                     [&](const auto& entry) { return entry.second == first; });
      if (member->second && (!named || op.op.since_unix_ns < main_op.op.since_unix_ns)) {
        main_op = op;
        named = true;
      }
    }
    finding.layer = dead ? emits<Emitter::kHang, Layer::kHost> : emits<Emitter::kHang, Layer::kSoftware>;
    finding.cause = dead ? emits<Emitter::kHang, Cause::kRankDead> : emits<Emitter::kHang, Cause::kRankMissing>;
    finding.component = format("process of rank %s", human_ranks({culprits.begin(), culprits.end()}).c_str());
    std::string who =
        culprits.size() == 1 ? name_of(window, first) : "Ranks " + human_ranks({culprits.begin(), culprits.end()});
    finding.sentence = format("%s %s %s of %s; %zu rank%s waited %sfor it for %s.", who.c_str(),
                              dead ? "died before" : "never entered", op_text(main_op.op).c_str(),
                              group_name(window, main_op.comm_id).c_str(), waiting.size(),
                              waiting.size() == 1 ? " has" : "s have", "", waits_text.c_str());
    for (const auto& [name, entry] : by_op) {
      std::vector<int> members;
      for (const auto& [rank, op] : waiting) {
        if (op.comm_id == entry.second.comm_id && op.op.ordinal == entry.second.op.ordinal &&
            op.op.function == entry.second.op.function)
          members.push_back(rank);
      }
      finding.chain.push_back(claim(
          ClaimKind::kWaitsFor, format("rank %s", human_ranks(members).c_str()),
          format("Rank %s %s in %s of %s (%s, %s).", human_ranks(members).c_str(), members.size() == 1 ? "is" : "are",
                 op_text(entry.second.op).c_str(), group_name(window, entry.second.comm_id).c_str(),
                 human_bytes(static_cast<double>(entry.second.op.bytes)).c_str(), entry.second.op.datatype.c_str()),
          static_cast<double>(longest_quiet) / 1e9, "s", 0, 0, finding.since_step, finding.since_step,
          "/api/jobs/{job}/ranks"));
      if (finding.chain.size() >= 3) break;
    }
    auto status = input.status.find(first);
    if (status != input.status.end()) {
      uint64_t entered = 0;
      int64_t launched = -1;
      for (const CommStatus& comm : status->second.comms) {
        if (comm.comm_id != main_op.comm_id) continue;
        entered = comm.collectives_enqueued;
        launched = comm.launched;
      }
      finding.chain.push_back(claim(
          ClaimKind::kEvent, format("rank %d", first),
          dead ? format("Its process is gone; it had entered %llu collectives of this group, the others are in number "
                        "%llu.",
                        static_cast<unsigned long long>(entered), static_cast<unsigned long long>(main_op.op.ordinal))
               : format("It has entered %llu collectives of this group, the others are in number %llu; it has made no "
                        "call for %s and waits in no operation.",
                        static_cast<unsigned long long>(entered), static_cast<unsigned long long>(main_op.op.ordinal),
                        human_duration(static_cast<double>(status->second.quiet_ns)).c_str()),
          static_cast<double>(entered), "operations", static_cast<double>(main_op.op.ordinal), 0, finding.since_step,
          finding.since_step, format("/api/jobs/{job}/ranks/%d", first)));
      if (launched >= 0) {
        finding.chain.push_back(
            claim(ClaimKind::kEvent, format("rank %d", first),
                  format("NCCL's own count (RAS): it has launched %lld here; %llu by ours.",
                         static_cast<long long>(launched), static_cast<unsigned long long>(entered)),
                  static_cast<double>(launched), "operations", static_cast<double>(entered), 0, finding.since_step,
                  finding.since_step, format("/api/jobs/{job}/ranks/%d", first)));
      }
      std::string phase =
          status->second.phase == Phase::kOther ? "" : format(" (last phase: %s)", to_text(status->second.phase));
      finding.chain.push_back(
          claim(ClaimKind::kSelfTime, format("rank %d", first),
                format("It has been outside of any collective for %s%s.",
                       human_duration(static_cast<double>(status->second.quiet_ns)).c_str(), phase.c_str()),
                static_cast<double>(status->second.quiet_ns) / 1e9, "s", 0, 0, finding.since_step, finding.since_step,
                format("/api/jobs/{job}/ranks/%d", first)));
    } else {
      finding.chain.push_back(
          claim(ClaimKind::kEvent, format("rank %d", first),
                "Nothing has been heard of it: its agent or its process is gone, or the plugin is not loaded there.", 0,
                "", 0, 0, finding.since_step, finding.since_step, "/api/agents"));
    }
    finding.chain.push_back(claim(
        ClaimKind::kExclusion, "network",
        dead ? "Not the network: the process does not exist any more."
             : "Not the network: the operation has not begun on the missing rank, so no transfer of it can be stuck.",
        0, "", 0, 0, finding.since_step, finding.since_step, format("/api/jobs/{job}/ranks/%d", first)));
    finding.chain.push_back(
        claim(ClaimKind::kCounterfactual, format("rank %d", first),
              "As soon as it enters, the operation can complete; until then every rank is lost time.",
              static_cast<double>(longest_quiet) / 1e9, "s", 0, 0, finding.since_step, finding.since_step,
              "/api/jobs/{job}/why"));
    finding.next.push_back(
        dead ? NextAction{"look why the process ended: OOM killer, signal, exception; restart from the last checkpoint",
                          "dmesg -T | tail; journalctl -k"}
             : NextAction{"take a stack of its main thread: it is somewhere the other ranks are not",
                          "py-spy dump --pid PID"});
    finding.alternatives.push_back({"the waiting ranks (took another branch than the rest)", 0.2,
                                    "they are the majority and agree with each other",
                                    "stacks of one waiting rank and of the missing one"});
    return finding;
  }

  if (!mismatched.empty()) {
    uint64_t comm_id = *mismatched.begin();
    std::map<std::string, std::vector<int32_t>> kinds;
    for (const auto& [rank, op] : waiting) {
      if (op.comm_id == comm_id)
        kinds[format("%s of %lld bytes %s", op.op.function.c_str(), static_cast<long long>(op.op.bytes),
                     op.op.datatype.c_str())]
            .push_back(rank);
    }
    auto fewest = std::min_element(kinds.begin(), kinds.end(),
                                   [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    auto most = std::max_element(kinds.begin(), kinds.end(),
                                 [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    finding.ranks = fewest->second;
    finding.layer = emits<Emitter::kHang, Layer::kSoftware>;
    finding.cause = emits<Emitter::kHang, Cause::kOpMismatch>;
    finding.component = format("program of rank %s", human_ranks({finding.ranks.begin(), finding.ranks.end()}).c_str());
    finding.sentence = format("%s called %s where the others of %s called %s; all have waited for %s.",
                              name_of(window, finding.ranks.front()).c_str(), fewest->first.c_str(),
                              group_name(window, comm_id).c_str(), most->first.c_str(), waits_text.c_str());
    finding.chain.push_back(claim(ClaimKind::kWaitsFor, "all",
                                  "Every member is in the same place of the sequence, with different operations.",
                                  static_cast<double>(longest_quiet) / 1e9, "s", 0, 0, finding.since_step,
                                  finding.since_step, "/api/jobs/{job}/ranks"));
    finding.chain.push_back(claim(ClaimKind::kExclusion, "network",
                                  "Not the network: such an operation cannot complete on any network.", 0, "", 0, 0,
                                  finding.since_step, finding.since_step, "/api/jobs/{job}/ranks"));
    finding.next.push_back(
        {"compare the code path of the odd rank with its peers' at this step", "py-spy dump --pid PID"});
    return finding;
  }

  if (!circle.empty()) {
    std::sort(circle.begin(), circle.end());
    finding.ranks = circle;
    finding.layer = emits<Emitter::kHang, Layer::kSoftware>;
    finding.cause = emits<Emitter::kHang, Cause::kDeadlock>;
    finding.component = format("order of operations on ranks %s", human_ranks({circle.begin(), circle.end()}).c_str());
    finding.sentence =
        format("Ranks %s wait for each other in different groups: a deadlock, %zu ranks have stood still for %s.",
               human_ranks({circle.begin(), circle.end()}).c_str(), waiting.size(), waits_text.c_str());
    for (int32_t rank : circle) {
      if (!waiting.contains(rank) || finding.chain.size() >= 4) continue;
      finding.chain.push_back(claim(ClaimKind::kWaitsFor, format("rank %d", rank),
                                    format("Rank %d is in %s of %s.", rank, op_text(waiting[rank].op).c_str(),
                                           group_name(window, waiting[rank].comm_id).c_str()),
                                    static_cast<double>(longest_quiet) / 1e9, "s", 0, 0, finding.since_step,
                                    finding.since_step, format("/api/jobs/{job}/ranks/%d", rank)));
    }
    finding.chain.push_back(claim(ClaimKind::kExclusion, "network",
                                  "Not the network: no member has entered what the next one waits in.", 0, "", 0, 0,
                                  finding.since_step, finding.since_step, "/api/jobs/{job}/ranks"));
    finding.next.push_back({"make all ranks issue operations of different groups in the same order", ""});
    return finding;
  }

  // Everybody is in the same, matching operation: it is stuck inside. A process that does not run holds up all others;
  // without one, whoever fell silent first is the best guess there is.
  if (longest_quiet < 3 * limit) return std::nullopt;
  std::vector<int32_t> stopped;
  std::vector<std::pair<int64_t, int32_t>> silent_since;
  for (const auto& [rank, op] : waiting) {
    const RankStatus& status = input.status.at(rank);
    if (status.process_stopped) stopped.push_back(rank);
    if (status.last_call_unix_ns != 0) silent_since.emplace_back(status.last_call_unix_ns, rank);
  }
  std::sort(silent_since.begin(), silent_since.end());
  std::string group = group_name(window, main_op.comm_id);
  finding.sure = false;
  finding.layer = emits<Emitter::kHang, Layer::kUnknown>;
  finding.cause = emits<Emitter::kHang, Cause::kInOperationStall>;
  finding.component = group;
  finding.confidence = 0.3;
  auto add = [&](ClaimKind kind, std::string subject, std::string text, double value, const char* unit,
                 std::string query) {
    finding.chain.push_back(claim(kind, std::move(subject), std::move(text), value, unit, 0, 0, finding.since_step,
                                  finding.since_step, std::move(query)));
  };
  add(ClaimKind::kWaitsFor, "all", "Every member has entered the same operation.",
      static_cast<double>(longest_quiet) / 1e9, "s", "/api/jobs/{job}/ranks");
  if (!stopped.empty() && stopped.size() < waiting.size()) {
    int32_t first = stopped.front();
    finding.ranks = stopped;
    finding.sure = true;
    finding.layer = emits<Emitter::kHang, Layer::kHost>;
    finding.cause = emits<Emitter::kHang, Cause::kProcessPaused>;
    finding.confidence = 0.95;
    finding.component = format("process of rank %s", human_ranks({stopped.begin(), stopped.end()}).c_str());
    finding.sentence =
        format("%s is stopped inside %s of %s; %zu ranks have waited for it for %s.", name_of(window, first).c_str(),
               op_text(main_op.op).c_str(), group.c_str(), waiting.size() - stopped.size(), waits_text.c_str());
    add(ClaimKind::kEvent, format("rank %d", first), "Its process is stopped by a signal or a debugger.", 1, "",
        format("/api/jobs/{job}/ranks/%d", first));
    finding.next.push_back({"find out who stopped the process; let it go on", "kill -CONT PID"});
  } else if (silent_since.size() >= 2 && silent_since[1].first - silent_since[0].first >= kFirstSilentMargin) {
    int32_t first = silent_since[0].second;
    double margin = static_cast<double>(silent_since[1].first - silent_since[0].first);
    finding.ranks = {first};
    finding.layer = emits<Emitter::kHang, Layer::kHost>;
    finding.confidence = 0.5;
    finding.component = format("rank %d", first);
    finding.sentence =
        format("%s fell silent first inside %s of %s; nothing has moved for %s.", name_of(window, first).c_str(),
               op_text(main_op.op).c_str(), group.c_str(), waits_text.c_str());
    add(ClaimKind::kSelfTime, format("rank %d", first),
        format("Its last call was %s before anybody else's last call, if the hosts' clocks agree that well.",
               human_duration(margin).c_str()),
        margin / 1e6, "ms", format("/api/jobs/{job}/ranks/%d", first));
    finding.alternatives.push_back({"a link or another member of the group", 0.4,
                                    "only the order of falling silent speaks against this rank",
                                    "its process state and stack; NIC counters of the group"});
    finding.next.push_back({"look at its process (running, stopped, in the kernel?) and take a stack",
                            "cat /proc/PID/status; py-spy dump --pid PID"});
  } else {
    finding.sentence = format("All %zu ranks of %s are inside %s and nothing has moved for %s.", waiting.size(),
                              group.c_str(), op_text(main_op.op).c_str(), waits_text.c_str());
    finding.next.push_back({"look at links and NICs of the group; take NCCL's proxy state", "ncclras -v"});
  }
  add(ClaimKind::kExclusion, "program", "Not a missing rank and not a mismatch: all entered, with the same arguments.",
      0, "", "/api/jobs/{job}/ranks");
  return finding;
}

}  // namespace lockstep
