#include "diagnosis/detectors/fail/fail.h"

#include <algorithm>
#include <csignal>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "diagnosis/phrasing.h"
#include "model/rank_text.h"

namespace lockstep {
namespace {

// Deaths are seen one look of an agent apart; within this time their order says nothing.
constexpr int64_t kTogetherNs = 2'000'000'000;
// Clocks of hosts agree within this; who raises because a peer is gone does so later.
constexpr int64_t kRaisedTogetherNs = 50'000'000;

enum class Sort { kFault, kAbort, kAsked, kNone };

struct Death {
  Rank rank = kNoRank;
  RankEnd end;
  Sort sort = Sort::kNone;
};

// It had something to do still.
bool was_at_work(const JobWindow& window, Rank rank, const std::map<Rank, RankStatus>& status) {
  const auto found = status.find(rank);
  if (found == status.end()) return false;
  for (const CommStatus& comm : found->second.comms)
    if (comm.collective.is_in_flight() || comm.p2p.is_in_flight()) return true;
  return found->second.step >= 0_step && !window.has_step(rank, found->second.step);
}

// What others raise when a peer is gone: communication that fails.
bool is_consequence(std::string_view reason) {
  constexpr std::string_view kSigns[] = {"DistBackendError",
                                         "DistNetworkError",
                                         "DistStoreError",
                                         "NCCL",
                                         "nccl",
                                         "gloo",
                                         "ConnectionError",
                                         "Connection closed",
                                         "Connection reset",
                                         "ConnectionReset",
                                         "Broken pipe",
                                         "BrokenPipe",
                                         "Connection refused",
                                         "Socket",
                                         "recvValue failed",
                                         "watchdog"};
  return std::any_of(std::begin(kSigns), std::end(kSigns),
                     [&](std::string_view sign) { return reason.find(sign) != std::string_view::npos; });
}

// When it happened: when the exception was raised, else when its agent saw that the process was gone.
int64_t time_of(const Death& death) {
  return death.end.reason_unix_ns > 0 ? std::min(death.end.reason_unix_ns, death.end.time_unix_ns)
                                      : death.end.time_unix_ns;
}

Sort sort_of(const JobWindow& window, Rank rank, const FailInput& input) {
  const RankEnd& end = input.ended.at(rank);
  if (end.clean) return Sort::kNone;
  if (!end.reason.empty()) return is_consequence(end.reason) ? Sort::kAbort : Sort::kFault;
  if (!end.exit) return was_at_work(window, rank, input.status) ? Sort::kAbort : Sort::kNone;
  switch (end.exit->signal) {
    case 0:
      return end.exit->code != 0 ? Sort::kAbort : Sort::kNone;
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
      return Sort::kAsked;
    case SIGABRT:
    case SIGPIPE:
      return Sort::kAbort;
    default:
      return Sort::kFault;
  }
}

std::string how(const RankEnd& end) {
  if (!end.reason.empty()) return " of " + end.reason;
  if (!end.exit) return "";
  if (end.exit->signal == 0) return format(" with exit status %d", end.exit->code);
  const std::string name = signal_name(end.exit->signal);
  return " of " + (name.empty() ? format("signal %d", end.exit->signal) : name);
}

// Some were killed and some raised. Who is killed makes others raise; who raises makes nobody be killed before its
// process has ended, and then all of them, by whoever started them.
void leave_cause(std::vector<Death>& first) {
  int64_t killed_ns = INT64_MAX;
  int64_t raised_ns = INT64_MAX;
  size_t killed = 0;
  for (const Death& death : first) {
    int64_t& earliest_ns = death.end.reason.empty() ? killed_ns : raised_ns;
    earliest_ns = std::min(earliest_ns, death.end.time_unix_ns);
    killed += death.end.reason.empty() ? 1 : 0;
  }
  if (killed == 0 || killed == first.size()) return;
  const bool kill_came_first = killed_ns < raised_ns || (killed_ns == raised_ns && killed * 2 <= first.size());
  std::erase_if(first, [&](const Death& death) { return death.end.reason.empty() != kill_came_first; });
}

// Those who died first of what is no consequence, in order of rank.
std::vector<Death> first_of(const std::vector<Death>& deaths) {
  int64_t first_ns = INT64_MAX;
  Sort worst = Sort::kNone;
  for (const Death& death : deaths)
    if (death.sort < Sort::kAsked) first_ns = std::min(first_ns, time_of(death));
  for (const Death& death : deaths)
    if (time_of(death) - first_ns <= kTogetherNs) worst = std::min(worst, death.sort);
  std::vector<Death> first;
  for (const Death& death : deaths)
    if (death.sort == worst && worst < Sort::kAsked && time_of(death) - first_ns <= kTogetherNs) first.push_back(death);
  leave_cause(first);
  // When an exception was raised is known well: what came later was raised because of the first.
  const bool raised =
      std::all_of(first.begin(), first.end(), [](const Death& death) { return death.end.reason_unix_ns > 0; });
  if (raised && !first.empty()) {
    const Death& earliest = *std::min_element(first.begin(), first.end(),
                                              [](const Death& a, const Death& b) { return time_of(a) < time_of(b); });
    const int64_t until_ns = time_of(earliest) + kRaisedTogetherNs;
    std::erase_if(first, [&](const Death& death) { return time_of(death) > until_ns; });
  }
  return first;
}

// Everybody has ended, or has said since the first death that it lives. Who has not may have died before, and its agent
// is late; once it is silent it is not waited for.
bool all_are_heard_of(const JobWindow& window, const FailInput& input, const std::vector<Death>& first) {
  int64_t first_ns = INT64_MAX;
  for (const Death& death : first) first_ns = std::min(first_ns, time_of(death));
  if (input.now_unix_ns - first_ns >= JobWindow::kSilentNs) return true;
  return std::all_of(window.ranks().begin(), window.ranks().end(), [&](const auto& entry) {
    const auto status = input.status.find(entry.first);
    return input.ended.contains(entry.first) ||
           (status != input.status.end() && status->second.time_unix_ns >= first_ns);
  });
}

NextAction next_of(const RankEnd& end) {
  if (!end.reason.empty()) return {"read its traceback at the end of its log, and mend what raised it", ""};
  if (!end.exit) return {"look why the process ended: OOM killer, signal, exception", "dmesg -T | tail; journalctl -k"};
  switch (end.exit->signal) {
    case 0:
      return {"read the end of its log: the exception that ended it stands there", ""};
    case SIGKILL:
      return {"look whether the kernel killed it for memory; else who sends SIGKILL: the scheduler, a person",
              "dmesg -T | grep -i -E 'out of memory|killed process'"};
    default:
      return {"look at its core dump, and at the end of its log", "coredumpctl info"};
  }
}

void word(const JobWindow& window, const FailInput& input, const std::vector<Death>& first, Finding& finding) {
  const Death& one = first.front();
  const auto at = input.status.find(one.rank);
  const StepNumber step = at != input.status.end() ? at->second.step : kNoStep;
  const std::string where = step >= 0_step ? " in step " + with_thousands(step.value()) : "";
  const size_t others = input.ended.size() - first.size();
  const std::string rest =
      others == 0 ? "." : format("; %zu other rank%s ended after it.", others, others == 1 ? "" : "s");
  if (finding.ranks.empty()) {
    finding.component = "job";
    finding.sentence =
        format("%zu ranks died%s%s within %s of each other; none stands out.", first.size(), how(one.end).c_str(),
               where.c_str(), human_duration(static_cast<double>(kTogetherNs)).c_str());
  } else {
    const std::vector<Rank>& ranks = finding.ranks;
    finding.component = format("process of rank %s", human_ranks(ranks).c_str());
    finding.sentence = (first.size() == 1 ? name_of(window, one.rank) : "Ranks " + human_ranks(ranks)) + " died" +
                       how(one.end) + where + rest;
  }
  constexpr size_t kClaimsMax = 4;
  for (const Death& death : first) {
    if (finding.chain.size() >= kClaimsMax) break;
    const ExitStatus exit = death.end.exit.value_or(ExitStatus{});
    const double number = exit.signal != 0 ? exit.signal : exit.code;
    const char* unit = exit.signal != 0 ? "signal" : death.end.exit ? "exit status" : "";
    finding.chain.push_back(claim(emits<Emitter::kFail, ClaimKind::kEvent>, format("rank %d", death.rank.value()),
                                  !death.end.reason.empty() ? "It raised " + death.end.reason + "."
                                  : death.end.exit          ? "Its process ended" + how(death.end) + "."
                                                   : "Its process is gone, in the middle of its work; nobody saw how.",
                                  {.value = number, .unit = unit}, finding.since_step, finding.since_step,
                                  format("/api/logs?event=job.end&job={job}&rank=%d&limit=1", death.rank.value())));
  }
  finding.next.push_back(next_of(one.end));
}

}  // namespace

std::optional<Finding> find_failure(const JobWindow& window, const FailInput& input) {
  std::vector<Death> deaths;
  for (const auto& [rank, end] : input.ended) {
    const Sort sort = sort_of(window, rank, input);
    if (sort != Sort::kNone) deaths.push_back({rank, end, sort});
  }
  const std::vector<Death> first = first_of(deaths);
  if (first.empty()) return std::nullopt;
  const size_t world = std::max(window.ranks().size(), size_t{1});
  const bool most = first.size() * 2 > world && world > 1;
  const bool killed = first.front().end.exit && first.front().end.exit->signal == SIGKILL;
  if (most && killed) return std::nullopt;  // all of them: somebody ended the job

  Finding finding;
  finding.kind = emits<Emitter::kFail, VerdictKind::kFail>;
  finding.cause = emits<Emitter::kFail, Cause::kRankDead>;
  finding.layer = killed ? emits<Emitter::kFail, Layer::kHost> : emits<Emitter::kFail, Layer::kSoftware>;
  if (!most) {
    for (const Death& death : first) finding.ranks.push_back(death.rank);
  }
  finding.subject = finding.ranks.empty() ? "job" : "";
  // An abort may be a consequence of a death that is not told yet.
  finding.sure = first.front().sort == Sort::kFault || all_are_heard_of(window, input, first);
  finding.since_step = finding.through_step = window.newest_step() + 1;
  finding.confidence = first.front().end.exit || !first.front().end.reason.empty() ? 0.95 : 0.7;
  finding.coverage = coverage_of(window, window.ranks().size());
  finding.lost_ns_per_step = std::max<int64_t>(0, input.now_unix_ns - first.front().end.time_unix_ns);
  finding.clear_after_steps = 0;
  for (const auto& [rank, identity] : window.ranks()) {
    if (std::find(finding.ranks.begin(), finding.ranks.end(), rank) == finding.ranks.end())
      finding.victims.push_back(rank);
  }
  word(window, input, first, finding);
  return finding;
}

}  // namespace lockstep
