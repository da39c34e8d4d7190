#include "diagnosis/detectors/hang/hang.h"

#include <algorithm>
#include <set>

#include "diagnosis/detectors/hang/hang_phrasing.h"
#include "diagnosis/detectors/hang/silent_job.h"
#include "diagnosis/detectors/hang/wait_graph.h"
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
// Its first steps differ from each other by as much, and one rank alone may compile: who lives is then named for sure
// only after longer than that, and than so many steps. Somebody who was away for long in one step may be so again, the
// sooner the more.
constexpr int64_t kSettleSteps = 6;
constexpr int64_t kStepsQuietFirst = 10;
constexpr uint64_t kSettleOperations = 50;  // where there are no steps
constexpr int64_t kAwayStarting = 600 * kSecond;
// A word older than this beside the newest of the job is no word: its agent is gone.
constexpr int64_t kWordLasts = 15 * kSecond;
// Ranks starve one after the other within a millisecond or so of the first; closer than this is no order.
constexpr int64_t kFirstSilentMargin = 100'000;
// Checkpoints and evaluations may take minutes.
constexpr int64_t kQuietBusyPhase = 600 * kSecond;

bool has_word(const HangInput& input, Rank rank, int64_t newest_word) {
  const auto status = input.status.find(rank);
  if (status == input.status.end()) return false;
  // Who is dead stays so, and says nothing more.
  return !status->second.process_alive || newest_word - status->second.time_unix_ns <= kWordLasts;
}

int64_t newest_word_of(const HangInput& input) {
  int64_t newest = 0;
  for (const auto& [rank, status] : input.status) newest = std::max(newest, status.time_unix_ns);
  return newest;
}

// Who has no word may merely have an agent that is late. It is not suspected beside somebody whose process is stopped, nor,
// for as long as a word lasts, beside one whose own word says that he has not entered: that explains why all others wait.
void leave_who_is_heard_of(const HangInput& input, const WaitGraph& graph, int64_t limit_ns, std::set<Rank>& ends) {
  const int64_t newest_word = newest_word_of(input);
  auto is_heard_of = [&](Rank rank) { return has_word(input, rank, newest_word); };
  const bool is_explained =
      std::any_of(graph.waiting().begin(), graph.waiting().end(),
                  [&](const auto& entry) { return input.status.at(entry.first).process_stopped; }) ||
      (graph.longest_quiet_ns() < limit_ns + kWordLasts && std::any_of(ends.begin(), ends.end(), is_heard_of));
  if (is_explained) std::erase_if(ends, [&](Rank rank) { return !is_heard_of(rank); });
}

// Ranks of which nothing was ever heard, where everybody who is heard of is inside the same operations and some of these
// have members that nobody knows: only they can be missing. Not where they are most of the job.
std::set<Rank> never_heard_of(const JobWindow& window, const WaitGraph& graph) {
  const bool has_unknown_members = std::any_of(graph.waiting().begin(), graph.waiting().end(), [&](const auto& entry) {
    const auto members = window.comms().find(entry.second.comm_id);
    return members != window.comms().end() &&
           members->second.world_rank.size() < static_cast<size_t>(std::max(0, members->second.size));
  });
  std::set<Rank> unheard;
  if (!has_unknown_members) return unheard;
  for (int32_t rank = 0; rank < window.world_size() && unheard.size() <= graph.waiting().size(); ++rank)
    if (!window.ranks().contains(Rank{rank})) unheard.insert(Rank{rank});
  if (unheard.size() > graph.waiting().size()) unheard.clear();
  return unheard;
}

// The ranks that everybody waits for, or none: an end of the walk that still moves is busy, not hung.
struct Culprits {
  std::vector<Rank> ranks;
  Absence absence = Absence::kAway;  // of the worst off, and then these alone are to blame
  bool without_word = false;         // one of them at least
};

Absence absence_of(const RankStatus& status) {
  if (!status.process_alive) return Absence::kDead;
  return status.process_stopped ? Absence::kStopped : Absence::kAway;
}

std::optional<Culprits> culprits_of(const JobWindow& window, const HangInput& input, const WaitGraph& graph,
                                    const std::set<Rank>& ends, int64_t limit_ns) {
  const int64_t newest_word = newest_word_of(input);
  Culprits found;
  for (Rank rank : ends) {
    if (has_word(input, rank, newest_word)) {
      const RankStatus& at = input.status.at(rank);
      if (at.process_alive && !at.finished && at.quiet_ns < limit_ns) return std::nullopt;
      if (is_busy(at)) return std::nullopt;
      found.absence = std::max(found.absence, absence_of(at));
    } else if (window.ranks().contains(rank)) {
      if (graph.longest_quiet_ns() < limit_ns + 2 * kSecond) return std::nullopt;  // its own word may be under way
      found.without_word = true;
    }
    found.ranks.push_back(rank);
  }
  if (found.absence != Absence::kAway) {
    std::erase_if(found.ranks, [&](Rank rank) {
      auto status = input.status.find(rank);
      return status != input.status.end() && absence_of(status->second) != found.absence;
    });
  }
  if (found.ranks.size() * 2 > graph.waiting().size() + found.ranks.size() && found.ranks.size() > 1)
    return std::nullopt;  // half a job that idles is no culprit
  return found;
}

// Several ranks that live are away at the same time, and are not just the ranks of a host: they compile, or read
// something that is slow. What hangs is one rank, or one host.
bool are_away_together(const JobWindow& window, const Culprits& culprits) {
  if (culprits.absence != Absence::kAway || culprits.ranks.size() < 2) return false;
  const std::set<Rank> away(culprits.ranks.begin(), culprits.ranks.end());
  std::set<std::string> hosts;
  for (Rank rank : away)
    if (auto found = window.ranks().find(rank); found != window.ranks().end()) hosts.insert(found->second.host);
  return hosts.size() > 1 || std::any_of(window.ranks().begin(), window.ranks().end(), [&](const auto& entry) {
           return hosts.contains(entry.second.host) && !away.contains(entry.first);
         });
}

// Of the rank that has done most.
struct Operations {
  uint64_t begun = 0, completed = 0;
};
Operations most_operations(const HangInput& input) {
  Operations most;
  for (const auto& [rank, status] : input.status) {
    Operations here;
    for (const CommStatus& comm : status.comms) {
      here.completed += comm.collectives_completed + comm.p2p_completed;
      here.begun += comm.collectives_enqueued + comm.p2p_enqueued;
    }
    most = {std::max(most.begun, here.begun), std::max(most.completed, here.completed)};
  }
  return most;
}

// Of the ranks' steps. Made once for a step: a job that stands is looked at several times a second.
int64_t longest_ns(const StepFrame& frame) {
  struct Longest {
    int64_t ns = 0;
  };
  return frame
      .derived<Longest>([&] {
        Longest longest;
        for (size_t slot = 0; slot < frame.rows.size(); ++slot)
          if (frame.state[slot] != 0) longest.ns = std::max(longest.ns, frame.rows[slot].summary.duration_ns);
        return longest;
      })
      .ns;
}

// How long a rank may be away before it is named for sure, by what this job has shown.
int64_t away_at_most_ns(const JobWindow& window, const HangInput& input) {
  const StepNumber newest = window.newest_step();
  if (newest == kNoStep) {
    // Many operations make a pace where there are no steps; in the first of its steps a job has none.
    const bool marks_steps = std::any_of(input.status.begin(), input.status.end(),
                                         [](const auto& entry) { return entry.second.step >= 0_step; });
    return !marks_steps && most_operations(input).completed >= kSettleOperations ? 0 : kAwayStarting;
  }
  int64_t most = 0;
  if (newest < window.first_step() + kSettleSteps)
    most = std::max(kQuietCompiling, kStepsQuietFirst * input.typical_step_ns);
  for (StepNumber number = std::max(window.first_step(), newest - static_cast<int64_t>(JobWindow::kStepsMax));
       number <= newest; ++number) {
    const StepFrame* frame = window.frame(number);
    if (frame == nullptr) continue;
    most = std::max(most, longest_ns(*frame) * kSettleSteps / (kSettleSteps + newest.value() - number.value()));
  }
  return most;
}

// The operation to name is one that waits for the culprit itself, not one further up the chain; of several, the first
// that was entered. Where none does, the one that most ranks are in.
WaitingOp operation_without(const JobWindow& window, const WaitGraph& graph, Rank culprit) {
  WaitingOp found = graph.most_common_operation();
  bool named = false;
  std::map<CommId, bool> has_culprit;  // communicators, and whether it is a member
  for (const auto& [rank, op] : graph.waiting()) {
    auto members = window.comms().find(op.comm_id);
    if (!graph.waits_for(rank, culprit) || members == window.comms().end()) continue;
    auto [member, unasked] = has_culprit.try_emplace(op.comm_id, false);
    if (unasked)
      member->second = std::any_of(members->second.world_rank.begin(), members->second.world_rank.end(),
                                   [&](const auto& entry) { return entry.second == culprit; });
    if (member->second && (!named || op.op.since_unix_ns < found.op.since_unix_ns)) {
      found = op;
      named = true;
    }
  }
  return found;
}

// Everybody is in the same, matching operation: it is stuck inside. A process that does not run holds up all others;
// without one, whoever fell silent first is the best guess there is.
Finding find_stall_inside(const HangInput& input, const WaitGraph& graph, const HangPhrasing& phrasing) {
  std::vector<Rank> stopped;
  std::vector<std::pair<int64_t, Rank>> silent_since;
  for (const auto& [rank, op] : graph.waiting()) {
    const RankStatus& status = input.status.at(rank);
    if (status.process_stopped) stopped.push_back(rank);
    if (status.last_call_unix_ns != 0) silent_since.emplace_back(status.last_call_unix_ns, rank);
  }
  if (!stopped.empty() && stopped.size() < graph.waiting().size()) return phrasing.stopped_inside(stopped);
  std::sort(silent_since.begin(), silent_since.end());
  if (silent_since.size() >= 2) {
    const int64_t margin_ns = silent_since[1].first - silent_since[0].first;
    if (margin_ns >= kFirstSilentMargin) return phrasing.silent_first(silent_since[0].second, margin_ns);
  }
  return phrasing.stuck_inside();
}

}  // namespace

int64_t typical_step_ns(const JobWindow& window) {
  std::vector<double> durations;
  StepNumber newest = window.newest_step();
  for (StepNumber number = std::max(window.first_step() + 1, newest - 40); number <= newest; ++number) {
    for (const auto* rows : {window.step(number), window.unknown(number)}) {
      if (rows == nullptr) continue;
      for (const auto& [rank, row] : *rows) durations.push_back(static_cast<double>(row.summary.duration_ns));
    }
  }
  return static_cast<int64_t>(median(durations));
}

bool is_busy(const RankStatus& status) {
  return (status.phase == Phase::kCheckpoint || status.phase == Phase::kEval) && status.quiet_ns < kQuietBusyPhase;
}

int64_t hang_after_ns(const HangInput& input) {
  if (const int64_t step_ns = input.typical_step_ns; step_ns > 0)
    return std::clamp(std::min(kStepsQuiet * step_ns, std::max(two_and_a_little(step_ns), kStepsQuietLong * step_ns)),
                      kQuietMin, kQuietMost);
  const Operations most = most_operations(input);
  if (most.completed >= kWarmOperations) return kQuietNoSteps;
  return most.begun >= kWarmOperations ? kQuietConnecting : kQuietCompiling;
}

std::optional<Finding> find_hang(const JobWindow& window, const HangInput& input) {
  const int64_t limit_ns = hang_after_ns(input);
  WaitGraph graph(window, input, limit_ns);
  if (graph.waiting().empty()) return find_silent_job(window, input);
  WaitGraph::Ends ends = graph.walk();
  leave_who_is_heard_of(input, graph, limit_ns, ends.ranks);
  const HangPhrasing phrasing(window, input, graph, limit_ns);
  bool by_elimination = false;
  if (input.whole_job && ends.ranks.empty() && ends.circle.empty() && graph.mismatched().empty()) {
    ends.ranks = never_heard_of(window, graph);
    by_elimination = !ends.ranks.empty();
  }
  if (!ends.ranks.empty()) {
    const std::optional<Culprits> culprits = culprits_of(window, input, graph, ends.ranks, limit_ns);
    if (!culprits) return std::nullopt;
    Finding finding =
        phrasing.missing(culprits->ranks, culprits->absence, operation_without(window, graph, culprits->ranks.front()));
    // Not sooner than a node counts as silent.
    if (culprits->without_word) finding.sure &= graph.longest_quiet_ns() >= limit_ns + JobWindow::kSilentNs;
    finding.sure &= !by_elimination;  // the operation may be stuck inside as well
    finding.sure &= culprits->absence != Absence::kAway || (!are_away_together(window, *culprits) &&
                                                            graph.longest_quiet_ns() >= away_at_most_ns(window, input));
    return finding;
  }
  if (!graph.mismatched().empty()) return phrasing.mismatch(*graph.mismatched().begin());
  if (!ends.circle.empty()) return phrasing.deadlock(ends.circle);
  if (graph.longest_quiet_ns() < 3 * limit_ns) return std::nullopt;
  return find_stall_inside(input, graph, phrasing);
}

}  // namespace lockstep
