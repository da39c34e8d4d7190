#include "diagnosis/detectors/elimination/elimination.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "base/median.h"
#include "base/text.h"
#include "diagnosis/measure.h"
#include "diagnosis/phrasing.h"
#include "diagnosis/roles.h"
#include "model/rank_text.h"

namespace lockstep {
namespace {

// Newest steps, all of them slow; and steps before the slowness that they are compared with.
constexpr size_t kAfter = 4;
constexpr size_t kSure = 6;
constexpr size_t kBefore = 12, kBeforeMin = 6;
constexpr int64_t kSettle = 8;  // a job's first steps are slow for reasons of their own
constexpr double kShareMin = 0.05, kSigmas = 6;
// Of the rise: who is heard of and this late explains it; what groups without a silent member may wait more.
constexpr double kExplains = 0.4;
constexpr double kOpenPart = 0.5, kClosedPart = 0.3;
// Transfers as fast as before, within this.
constexpr double kAsFast = 0.8;

std::vector<Rank> silent_ranks(const JobWindow& window, const std::vector<StepNumber>& steps) {
  const StepFrame& newest = *window.frame(steps.back());
  const size_t heard = newest.known.size() + newest.unknown.size();
  if (window.world_size() <= 0 || heard >= static_cast<size_t>(window.world_size()) ||
      static_cast<size_t>(window.world_size()) - heard > kSilentMax)
    return {};
  std::vector<Rank> silent;
  for (int32_t rank = 0; rank < window.world_size(); ++rank) {
    const bool any =
        std::any_of(steps.begin(), steps.end(), [&](StepNumber step) { return window.has_step(Rank{rank}, step); });
    if (!any && window.is_silent(Rank{rank})) silent.push_back(Rank{rank});
  }
  return silent.size() <= kSilentMax ? silent : std::vector<Rank>{};
}

// What even the last to arrive of those that are heard of spends in a group's collectives, and how many are heard.
struct GroupWait {
  double least_ns = 0;
  int32_t size = 0, heard = 0;
};

std::unordered_map<CommId, GroupWait> waits_in(const StepFrame& frame) {
  std::unordered_map<CommId, GroupWait> waits;
  for (size_t slot = 0; slot < frame.rows.size(); ++slot) {
    if (!frame.knows(slot)) continue;
    for (const CommStep& comm : frame.rows[slot].summary.comms) {
      if (comm.p2p || comm.size < 2) continue;  // in a pipeline everybody waits for somebody
      GroupWait& wait = waits[comm.comm_id];
      const auto ns = static_cast<double>(comm.gpu_ns);
      wait.least_ns = wait.heard == 0 ? ns : std::min(wait.least_ns, ns);
      wait.size = comm.size;
      ++wait.heard;
    }
  }
  return waits;
}

// The median of every group's wait over some steps; those with a silent member apart.
struct Waits {
  std::unordered_map<CommId, double> open, closed;
};

Waits waits_over(const JobWindow& window, const std::vector<StepNumber>& steps, const std::set<CommId>* open_now) {
  std::unordered_map<CommId, std::vector<double>> all;
  std::unordered_map<CommId, bool> is_open;
  for (StepNumber number : steps) {
    for (const auto& [id, wait] : waits_in(*window.frame(number))) {
      all[id].push_back(wait.least_ns);
      is_open[id] = open_now != nullptr ? open_now->contains(id) : wait.heard < wait.size;
    }
  }
  Waits waits;
  for (auto& [id, values] : all) (is_open[id] ? waits.open : waits.closed)[id] = median(std::move(values));
  return waits;
}

struct Rise {
  double ns = 0;
  CommId comm_id;
  double now_ns = 0;
};

Rise largest_rise(const std::unordered_map<CommId, double>& now, const std::unordered_map<CommId, double>& before) {
  Rise most;
  for (const auto& [id, ns] : now) {
    const auto found = before.find(id);
    if (found != before.end() && ns - found->second > most.ns) most = {ns - found->second, id, ns};
  }
  return most;
}

// Bytes per ns of all transfers; 0: none was seen.
double rate_over(const JobWindow& window, const std::vector<StepNumber>& steps) {
  double bytes = 0, wire_ns = 0;
  for (StepNumber number : steps) {
    for (const auto& [rank, row] : *window.step(number)) {
      for (const FlowStep& flow : row.summary.flows) {
        if (!flow.send) continue;
        bytes += static_cast<double>(flow.bytes);
        wire_ns += static_cast<double>(flow.wire_ns);
      }
    }
  }
  return wire_ns > 0 ? bytes / wire_ns : 0;
}

double latest_of_the_heard(const JobWindow& window, const std::vector<StepNumber>& steps) {
  std::vector<double> late;
  for (StepNumber number : steps) late.push_back(lateness(window, *window.frame(number)).latest.ns);
  return median(std::move(late));
}

// "nothing has been heard of it since step 40 (node-12)"
std::string silence_text(const JobWindow& window, const std::vector<Rank>& silent, const std::string& host) {
  StepNumber last = kNoStep;
  for (StepNumber number : window.complete_steps())
    for (Rank rank : silent)
      if (window.has_step(rank, number)) last = std::max(last, number);
  const char* them = silent.size() == 1 ? "it" : "them";
  std::string text =
      last < 0_step ? format("nothing is heard of %s", them)
                    : format("nothing has been heard of %s since step %s", them, with_thousands(last.value()).c_str());
  return host.empty() ? text : text + ", nor of " + host;
}

}  // namespace

std::vector<Finding> find_by_elimination(const JobWindow& window, const std::vector<AttributedRange>&) {
  const std::vector<StepNumber> all = window.complete_steps();
  if (window.comms().empty() || all.size() < kAfter + kBeforeMin) return {};
  const std::vector<StepNumber> newest(all.end() - kAfter, all.end());
  const std::vector<Rank> silent = silent_ranks(window, newest);
  if (silent.empty()) return {};

  // The stretch of slow steps that reaches to now, against the steps before it.
  const std::vector<double> durations = step_durations(window, all);
  const double now_ns = median({durations.end() - kAfter, durations.end()});
  size_t since = all.size();
  double usual = 0;
  for (size_t at = kBeforeMin; at + kAfter <= all.size(); ++at) {
    const size_t from = at > kBefore ? at - kBefore : 0;
    if (all[from] < window.first_step() + kSettle && at < all.size() - kAfter) continue;
    const std::vector<double> before(durations.begin() + static_cast<std::ptrdiff_t>(from),
                                     durations.begin() + static_cast<std::ptrdiff_t>(at));
    const double middle = median(before);
    const double limit = std::max(kShareMin * middle, kSigmas * spread_of(before, middle));
    const bool slow = std::all_of(durations.begin() + static_cast<std::ptrdiff_t>(at), durations.end(),
                                  [&](double ns) { return ns >= middle + limit; });
    if (!slow) continue;
    since = at;
    usual = middle;
    break;
  }
  if (since == all.size()) return {};
  const double rise = now_ns - usual;
  const std::vector<StepNumber> after(all.begin() + static_cast<std::ptrdiff_t>(since), all.end());
  const std::vector<StepNumber> before(all.begin() + static_cast<std::ptrdiff_t>(since > kBefore ? since - kBefore : 0),
                                       all.begin() + static_cast<std::ptrdiff_t>(since));
  const double latest = latest_of_the_heard(window, newest);
  if (latest >= kExplains * rise) return {};

  const Waits waits = waits_over(window, newest, nullptr);
  std::set<CommId> open;
  for (const auto& [id, ns] : waits.open) open.insert(id);
  const Waits waited = waits_over(window, before, &open);
  const Rise in_open = largest_rise(waits.open, waited.open), in_closed = largest_rise(waits.closed, waited.closed);
  if (in_open.ns < kOpenPart * rise || in_closed.ns > kClosedPart * rise) return {};
  const double rate = rate_over(window, newest), rate_before = rate_over(window, before);
  if (rate > 0 && rate < kAsFast * rate_before) return {};  // the network is slower: it may be that

  std::set<std::string> hosts;
  for (Rank rank : silent) {
    const auto known = window.ranks().find(rank);
    hosts.insert(known == window.ranks().end() ? "" : known->second.host);
  }
  const std::string host = hosts.size() == 1 ? *hosts.begin() : "";
  const std::string who = "rank " + human_ranks(silent);
  Finding finding;
  finding.kind = emits<Emitter::kElimination, VerdictKind::kSlow>;
  finding.layer = emits<Emitter::kElimination, Layer::kUnknown>;
  finding.ranks = silent;
  finding.component = host.empty() ? "process or node of " + who : "host " + host;
  finding.since_step = after.front();
  finding.through_step = after.back();
  finding.step_ns = static_cast<int64_t>(now_ns);
  finding.step_without_ns = static_cast<int64_t>(usual);
  finding.lost_ns_per_step = static_cast<int64_t>(rise);
  finding.victims = victims_of(window, silent);
  finding.coverage = coverage_of(window, window.step(newest.back())->size());
  // Without transfers a slow network looks the same.
  finding.sure = after.size() >= kSure && rate > 0;
  finding.confidence = rate > 0 ? 0.7 : 0.4;
  const StepNumber from = newest.front(), to = newest.back();
  finding.chain.push_back(
      claim(emits<Emitter::kElimination, ClaimKind::kWaitsFor>, who,
            format("In the collectives of %s even the last to arrive of those that are heard of waits %s, %s before; "
                   "%s %s a member.",
                   group_name(window, in_open.comm_id).c_str(), per_step(in_open.now_ns).c_str(),
                   human_duration(in_open.now_ns - in_open.ns).c_str(), who.c_str(), silent.size() == 1 ? "is" : "has"),
            in_open.now_ns / 1e6, "ms", (in_open.now_ns - in_open.ns) / 1e6, 0, from, to,
            Measure{.of = "least_wait_ms", .steps = newest, .comm_id = in_open.comm_id}.query()));
  finding.chain.push_back(
      claim(emits<Emitter::kElimination, ClaimKind::kExclusion>, "other ranks",
            format("Nobody else: of the %zu ranks that are heard of the latest is %s behind its peers.",
                   window.step(to)->size(), human_duration(std::max(0.0, latest)).c_str()),
            std::max(0.0, latest) / 1e6, "ms", 0, 0, from, to, Measure{.of = "latest_ms", .steps = newest}.query()));
  if (rate > 0)
    finding.chain.push_back(
        claim(emits<Emitter::kElimination, ClaimKind::kExclusion>, "network",
              format("Not the network: transfers move at %.2f GB/s, %.2f before.", rate, rate_before), rate, "GB/s",
              rate_before, 0, from, to, Measure{.of = "sent_gb_s", .steps = newest}.query()));
  finding.chain.push_back(claim(emits<Emitter::kElimination, ClaimKind::kCounterfactual>, who,
                                format("As before a step would take %s instead of %s.", human_duration(usual).c_str(),
                                       human_duration(now_ns).c_str()),
                                usual / 1e6, "ms", now_ns / 1e6, 0, from, to,
                                Measure{.of = "step_ms", .steps = newest}.query()));
  finding.alternatives.push_back({"the fabric to its host", 0.3, "transfers among the others are as fast as ever",
                                  "what its node reports once its agent runs again"});
  finding.next.push_back({"look at its node: is its agent running, and what does the GPU do there",
                          host.empty() ? "systemctl status lockstep-agent" : "ssh " + shell_word(host)});
  finding.next.push_back({"see what is heard of this job", "lockstep doctor {job}"});
  finding.sentence =
      format("Only %s can be late: %s, and all others wait %s since step {since}: %s of the job.", who.c_str(),
             silence_text(window, silent, host).c_str(), per_step(rise).c_str(), percent(rise / now_ns).c_str());
  return {finding};
}

}  // namespace lockstep
