#include "diagnosis/detectors/elimination/elimination.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>
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
// Of the rise: who or what is heard of explains it (a rank this late, or with so much more work of its own; a flow that
// is on the wire for so much longer); what groups without a silent member may wait more.
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

using Flows = std::map<std::tuple<size_t, CommId, int32_t>, std::vector<double>>;

// How long each flow is on the wire, by sender's slot, communicator and receiver, in the steps whose transfers were told.
Flows wires_over(const JobWindow& window, const std::vector<StepNumber>& steps) {
  Flows wires;
  for (StepNumber number : steps) {
    const StepFrame& frame = *window.frame(number);
    for (size_t slot = 0; slot < frame.rows.size(); ++slot) {
      if (!frame.knows(slot)) continue;
      for (const FlowStep& flow : frame.rows[slot].summary.flows)
        if (flow.send) wires[{slot, flow.comm_id, flow.peer}].push_back(static_cast<double>(flow.wire_ns));
    }
  }
  return wires;
}

// The one that rose most. What was not seen before may have been as long as it is now.
double longest_wire_rise(const JobWindow& window, const std::vector<StepNumber>& now,
                         const std::vector<StepNumber>& before) {
  const Flows was = wires_over(window, before);
  double most = 0;
  for (auto& [flow, wire_ns] : wires_over(window, now)) {
    const auto found = was.find(flow);
    most = std::max(most, median(wire_ns) - (found == was.end() ? 0 : median(found->second)));
  }
  return most;
}

// Of each slot, over some steps: its own work, checkpoints and evaluation included; NaN: not known.
std::vector<double> own_over(const JobWindow& window, const std::vector<StepNumber>& steps) {
  std::vector<double> own(window.slots(), std::nan(""));
  for (size_t slot = 0; slot < own.size(); ++slot) {
    std::vector<double> values;
    for (StepNumber number : steps) {
      const StepFrame& frame = *window.frame(number);
      if (frame.knows(slot)) values.push_back(static_cast<double>(frame.rows[slot].summary.self_ns));
    }
    if (!values.empty()) own[slot] = median(std::move(values));
  }
  return own;
}

// The steps that have become slow, those before, and how much longer a step takes.
struct Slowness {
  std::vector<StepNumber> after, newest, before;
  double now_ns = 0, usual_ns = 0;
  double rise_ns() const { return now_ns - usual_ns; }
};

// Work that grows under communication that runs beside it (FSDP) looks like waiting. It is seen to grow where most of it
// stands by itself; else a rise counts as waiting only if all that may be hidden would have to double.
bool work_may_have_grown(const JobWindow& window, const Slowness& slow) {
  const std::vector<double> now = own_over(window, slow.newest), before = own_over(window, slow.before);
  std::vector<double> shown;
  for (size_t slot = 0; slot < now.size(); ++slot) {
    if (std::isnan(now[slot]) || std::isnan(before[slot])) continue;
    if (now[slot] - before[slot] >= kExplains * slow.rise_ns()) return true;
    shown.push_back(before[slot]);
  }
  const double shown_ns = median(std::move(shown)), hidden_ns = slow.usual_ns - shown_ns;
  return hidden_ns > shown_ns && slow.rise_ns() < hidden_ns;
}

// The stretch of slow steps that reaches to now, against the steps before it; nothing: there is none.
std::optional<Slowness> slowness_of(const JobWindow& window) {
  const std::vector<StepNumber>& all = window.complete_steps();
  const std::vector<double> durations = step_durations(window, all);
  for (size_t at = kBeforeMin; at + kAfter <= all.size(); ++at) {
    const auto from = static_cast<std::ptrdiff_t>(at > kBefore ? at - kBefore : 0),
               to = static_cast<std::ptrdiff_t>(at);
    if (all[static_cast<size_t>(from)] < window.first_step() + kSettle && at < all.size() - kAfter) continue;
    const std::vector<double> before(durations.begin() + from, durations.begin() + to);
    const double middle = median(before);
    const double limit = std::max(kShareMin * middle, kSigmas * spread_of(before, middle));
    if (!std::all_of(durations.begin() + to, durations.end(), [&](double ns) { return ns >= middle + limit; }))
      continue;
    return Slowness{.after = {all.begin() + to, all.end()},
                    .newest = {all.end() - kAfter, all.end()},
                    .before = {all.begin() + from, all.begin() + to},
                    .now_ns = median({durations.end() - kAfter, durations.end()}),
                    .usual_ns = middle};
  }
  return std::nullopt;
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

// What is left when everything else has been looked at.
struct Elimination {
  std::vector<Rank> silent;
  Rise waiting;          // in a group with a silent member
  double latest_ns = 0;  // of those that are heard of
  double rate = 0, rate_before = 0;
  // Where transfers were told of only one of the two times, nothing is known of how they have changed.
  bool network_is_seen() const { return rate > 0 && rate_before > 0; }
};

// The host of all these ranks; empty: they have several, or it is not known.
std::string common_host(const JobWindow& window, const std::vector<Rank>& ranks) {
  std::set<std::string> hosts;
  for (Rank rank : ranks) {
    const auto known = window.ranks().find(rank);
    hosts.insert(known == window.ranks().end() ? "" : known->second.host);
  }
  return hosts.size() == 1 ? *hosts.begin() : "";
}

void add_claims(const JobWindow& window, const Slowness& slow, const Elimination& found, const std::string& who,
                Finding& finding) {
  const StepNumber from = slow.newest.front(), to = slow.newest.back();
  const double waits_ns = found.waiting.now_ns, waited_ns = waits_ns - found.waiting.ns;
  finding.chain.push_back(
      claim(emits<Emitter::kElimination, ClaimKind::kWaitsFor>, who,
            format("In the collectives of %s even the last to arrive of those that are heard of waits %s, %s before; "
                   "%s %s a member.",
                   group_name(window, found.waiting.comm_id).c_str(), per_step(waits_ns).c_str(),
                   human_duration(waited_ns).c_str(), who.c_str(), found.silent.size() == 1 ? "is" : "has"),
            {.value = waits_ns / 1e6, .unit = "ms", .baseline = waited_ns / 1e6}, from, to,
            Measure{.of = "least_wait_ms", .steps = slow.newest, .comm_id = found.waiting.comm_id}.query()));
  const double latest_ns = std::max(0.0, found.latest_ns);
  finding.chain.push_back(claim(
      emits<Emitter::kElimination, ClaimKind::kExclusion>, "other ranks",
      format("Nobody else: of the %zu ranks that are heard of the latest is %s behind its peers.",
             window.step(to)->size(), human_duration(latest_ns).c_str()),
      {.value = latest_ns / 1e6, .unit = "ms"}, from, to, Measure{.of = "latest_ms", .steps = slow.newest}.query()));
  if (found.network_is_seen())
    finding.chain.push_back(
        claim(emits<Emitter::kElimination, ClaimKind::kExclusion>, "network",
              format("Not the network: transfers move at %.2f GB/s, %.2f before.", found.rate, found.rate_before),
              {.value = found.rate, .unit = "GB/s", .baseline = found.rate_before}, slow.after.front(), to,
              Measure{.of = "sent_gb_s", .steps = slow.after}.query()));
  finding.chain.push_back(claim(emits<Emitter::kElimination, ClaimKind::kCounterfactual>, who,
                                format("As before a step would take %s instead of %s.",
                                       human_duration(slow.usual_ns).c_str(), human_duration(slow.now_ns).c_str()),
                                {.value = slow.usual_ns / 1e6, .unit = "ms", .baseline = slow.now_ns / 1e6}, from, to,
                                Measure{.of = "step_ms", .steps = slow.newest}.query()));
}

Finding word(const JobWindow& window, const Slowness& slow, const Elimination& found) {
  const std::string host = common_host(window, found.silent);
  const std::string who = "rank " + human_ranks(found.silent);
  Finding finding;
  finding.kind = emits<Emitter::kElimination, VerdictKind::kSlow>;
  finding.layer = emits<Emitter::kElimination, Layer::kUnknown>;
  finding.ranks = found.silent;
  finding.component = host.empty() ? "process or node of " + who : "host " + host;
  finding.since_step = slow.after.front();
  finding.through_step = slow.after.back();
  finding.step_ns = static_cast<int64_t>(slow.now_ns);
  finding.step_without_ns = static_cast<int64_t>(slow.usual_ns);
  finding.lost_ns_per_step = static_cast<int64_t>(slow.rise_ns());
  finding.victims = victims_of(window, found.silent);
  finding.coverage = coverage_of(window, window.step(slow.newest.back())->size());
  // Without transfers a slow network looks the same.
  finding.sure = slow.after.size() >= kSure && found.network_is_seen();
  finding.confidence = found.network_is_seen() ? 0.7 : 0.4;
  add_claims(window, slow, found, who, finding);
  finding.alternatives.push_back({"the fabric to its host", 0.3, "transfers among the others are as fast as ever",
                                  "what its node reports once its agent runs again"});
  finding.next.push_back({"look at its node: is its agent running, and what does the GPU do there",
                          host.empty() ? "systemctl status lockstep-agent" : "ssh " + shell_word(host)});
  finding.next.push_back({"see what is heard of this job", "lockstep doctor {job}"});
  finding.sentence =
      format("Only %s {can be|could have been} late: %s, and all others {wait|waited} %s {when}: %s of the job.",
             who.c_str(), silence_text(window, found.silent, host).c_str(), per_step(slow.rise_ns()).c_str(),
             percent(slow.rise_ns() / slow.now_ns).c_str());
  return finding;
}

}  // namespace

std::vector<Finding> find_by_elimination(const JobWindow& window, const std::vector<AttributedRange>& explained) {
  const std::vector<StepNumber>& all = window.complete_steps();
  if (window.comms().empty() || all.size() < kAfter + kBeforeMin) return {};
  const std::vector<Rank> silent = silent_ranks(window, {all.end() - kAfter, all.end()});
  if (silent.empty()) return {};
  const std::optional<Slowness> slow = slowness_of(window);
  if (!slow) return {};
  // Somebody who is heard of became slow when the job did, and is.
  const bool is_explained = std::any_of(explained.begin(), explained.end(), [&](const AttributedRange& range) {
    return range.sure && range.from_step >= slow->before.front() && range.to_step >= slow->newest.front() &&
           std::find(silent.begin(), silent.end(), range.rank) == silent.end();
  });
  if (is_explained) return {};
  const double rise = slow->rise_ns();
  Elimination found{.silent = silent, .latest_ns = latest_of_the_heard(window, slow->newest)};
  if (found.latest_ns >= kExplains * rise || work_may_have_grown(window, *slow)) return {};

  const Waits waits = waits_over(window, slow->newest, nullptr);
  std::set<CommId> open;
  for (const auto& [id, ns] : waits.open) open.insert(id);
  const Waits waited = waits_over(window, slow->before, &open);
  found.waiting = largest_rise(waits.open, waited.open);
  const Rise in_closed = largest_rise(waits.closed, waited.closed);
  if (found.waiting.ns < kOpenPart * rise || in_closed.ns > kClosedPart * rise) return {};
  // The network is slower, or one of its flows: it may be that.
  found.rate = rate_over(window, slow->after);
  found.rate_before = rate_over(window, slow->before);
  if (found.network_is_seen() && found.rate < kAsFast * found.rate_before) return {};
  if (longest_wire_rise(window, slow->after, slow->before) >= kExplains * rise) return {};
  return {word(window, *slow, found)};
}

}  // namespace lockstep
