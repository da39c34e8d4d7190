#include "diagnosis/detectors/straggler/recurring.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "base/text.h"
#include "diagnosis/detectors/straggler/culprits.h"
#include "diagnosis/detectors/straggler/late_ranks.h"
#include "diagnosis/detectors/straggler/own_time.h"
#include "diagnosis/detectors/straggler/straggler_phrasing.h"
#include "diagnosis/evidence.h"
#include "diagnosis/measure.h"
#include "diagnosis/phrasing.h"
#include "diagnosis/roles.h"
#include "diagnosis/sequential/chance.h"

namespace lockstep::straggler {
namespace {

// Steps looked at, times it came, steps since the last, and the share of the job that it costs.
constexpr size_t kRecurringWindow = 96;
constexpr size_t kRecurringRuns = 3;
constexpr size_t kRecurringQuiet = 16;
constexpr double kRecurringLostMin = 0.015;

// Who was late in one step: a rank alone, or most ranks of one host together.
struct LateInStep {
  std::string host;  // empty: the rank
  std::vector<size_t> slots;
  double ns = 0, next_ns = 0;
};

LateInStep late_in_step(const JobWindow& window, const StepLateness& step,
                        const std::map<std::string, size_t>& ranks_of_host) {
  constexpr double kAlone = 0.6;  // of the latest: who is later than this is late with it
  const Latest latest = step.latest;
  if (latest.ns <= 0) return {};
  if (latest.next_ns <= kAlone * latest.ns) return {"", {latest.slot}, latest.ns, latest.next_ns};
  auto host_of = [&](size_t slot) -> const std::string& { return window.ranks().at(window.rank_of(slot)).host; };
  LateInStep late{host_of(latest.slot), {}, latest.ns, 0};
  for (size_t slot = 0; slot < step.late_ns.size(); ++slot) {
    const auto ns = static_cast<double>(step.late_ns[slot]);
    if (std::isnan(ns)) continue;
    if (host_of(slot) != late.host) {
      late.next_ns = std::max(late.next_ns, ns);
    } else if (ns >= kHostPart * latest.ns) {
      late.slots.push_back(slot);
    }
  }
  const bool together =
      ranks_of_host.size() >= 2 && late.slots.size() >= 2 && late.next_ns <= kAlone * latest.ns &&
      static_cast<double>(late.slots.size()) >= kHostShare * static_cast<double>(ranks_of_host.at(late.host));
  return together ? late : LateInStep{};
}

// How late the latest of the others was.
double largest_but(const StepLateness& step, const std::vector<size_t>& slots) {
  double largest = 0;
  for (size_t slot = 0; slot < step.late_ns.size(); ++slot)
    if (!std::isnan(step.late_ns[slot]) && std::find(slots.begin(), slots.end(), slot) == slots.end())
      largest = std::max(largest, static_cast<double>(step.late_ns[slot]));
  return largest;
}

// Who was the latest, again and again: a rank, or most ranks of one host.
struct Recurring {
  std::string host;        // empty: the rank
  std::vector<size_t> at;  // steps in which it was the latest, and late
  std::vector<size_t> slots;
  double lost_ns = 0;
  size_t hits() const { return at.size(); }
  double per_hit_ns() const { return lost_ns / static_cast<double>(hits()); }
};

// The one that was it most often, among so many times in all. A host is compared with hosts, a rank with ranks.
struct MostRecurring {
  Recurring who;
  size_t all = 0;          // times somebody was it
  size_t alike = 0;        // hosts, or ranks
  size_t alike_times = 0;  // times one of them was it; who hits a host hits ranks
};

MostRecurring most_recurring(const JobWindow& window, const LastSteps& last, double limit) {
  std::map<std::string, size_t> ranks_of_host;
  for (const auto& [rank, identity] : window.ranks()) ++ranks_of_host[identity.host];
  std::map<std::pair<std::string, size_t>, Recurring> hits;  // by host and, for a rank alone, slot
  MostRecurring most;
  for (size_t i = 0; i < last.late.size(); ++i) {
    LateInStep late = late_in_step(window, *last.late[i], ranks_of_host);
    if (late.slots.empty() || late.ns < limit) continue;
    // Who always comes a little later is over a limit oftener than others are, and is not hit.
    const double usual = typical_lateness(window, last.steps, last.late[i]->latest.slot);
    if (late.ns - std::max(0.0, usual) < limit) continue;
    Recurring& who = hits[{late.host, late.host.empty() ? late.slots.front() : 0}];
    who.host = late.host;
    who.at.push_back(i);
    who.lost_ns += late.ns - late.next_ns;
    who.slots = std::move(late.slots);
    ++most.all;
  }
  if (hits.empty()) return most;
  const auto fewer = [](const auto& a, const auto& b) { return a.second.hits() < b.second.hits(); };
  most.who = std::max_element(hits.begin(), hits.end(), fewer)->second;
  const bool a_host = !most.who.host.empty();
  most.alike = a_host ? ranks_of_host.size() : window.slots();
  for (const auto& [place, who] : hits) most.alike_times += !a_host || !who.host.empty() ? who.hits() : 0;
  return most;
}

// It has a verdict already, perhaps with others of its host.
bool has_verdict(const std::vector<AttributedRange>& explained, Rank rank, StepNumber newest) {
  return std::any_of(explained.begin(), explained.end(), [&](const AttributedRange& entry) {
    return entry.sure && entry.rank == rank && entry.to_step + static_cast<int64_t>(kRecurringQuiet) >= newest;
  });
}

// How often it came anew.
size_t runs_of(const std::vector<size_t>& at) {
  size_t runs = 0;
  for (size_t i = 0; i < at.size(); ++i) runs += i == 0 || at[i] > at[i - 1] + 1 ? 1 : 0;
  return runs;
}

// Minus the logarithm of the chance that a healthy one is hit so often.
double nats_of_recurring(const JobWindow& window, const LastSteps& last, const MostRecurring& most) {
  const Recurring& who = most.who;
  const size_t steps = last.late.size();
  // A rate needs a past: what hits since the first steps (a rank that compiles again) counts only by whom it hits.
  const bool has_past = last.steps.front() > window.first_step() + kSettleSteps || 2 * who.at.front() >= steps;
  Repetition seen{.hits = who.hits(),
                  .steps = steps,
                  .size = who.per_hit_ns(),
                  .others_hits = most.alike_times - who.hits(),
                  .others_steps = (most.alike - 1) * steps};
  for (const StepLateness* step : last.late)
    seen.others_largest = std::max(seen.others_largest, who.host.empty() ? step->latest.of_others(who.slots.front())
                                                                         : largest_but(*step, who.slots));
  return std::min(nats_of(seen), has_past ? HUGE_VAL : nats_of_share(who.hits(), most.alike_times, most.alike)) +
         nats_of_windows(steps);
}

// Its cost as a share of the job since it came first.
double share_of(const LastSteps& last, const Recurring& who) {
  return who.lost_ns / (last.step_ns * static_cast<double>(last.late.size() - who.at.front()));
}

void add_claims(const LastSteps& last, const MostRecurring& most, const std::vector<StepNumber>& hit,
                Finding& finding) {
  const size_t hits = most.who.hits(), others = most.all - hits;
  const std::string who = most.who.host.empty() ? format("rank %d", finding.ranks.front().value()) : finding.subject;
  finding.chain.push_back(
      claim(ClaimKind::kExclusion, "other ranks",
            format("Nobody else: in %zu of the %zu steps in which somebody was late alone it was %s.", hits, most.all,
                   who.c_str()),
            {.value = static_cast<double>(hits), .unit = "steps", .peers = static_cast<double>(others)}, hit.front(),
            hit.back(), Measure{.of = "steps", .ranks = finding.ranks, .steps = hit}.query()));
  const double per_hit = most.who.per_hit_ns();
  finding.chain.push_back(
      claim(ClaimKind::kCounterfactual, who,
            format("Without it no step would wait %s for it, as %s does.", human_duration(per_hit).c_str(),
                   one_step_of(1 / std::max(0.01, finding.steps_hit)).c_str()),
            {.value = last.step_ns / 1e6, .unit = "ms", .baseline = (last.step_ns + per_hit) / 1e6}, hit.front(),
            hit.back(), Measure{.of = "step_ms", .steps = last.steps}.query()));
}

// Its ranks, and what it costs; the first of its slots is asked why.
Finding recurring_finding(const JobWindow& window, const LastSteps& last, const MostRecurring& most) {
  const Recurring& who = most.who;
  std::vector<StepNumber> hit;
  for (size_t i : who.at) hit.push_back(last.steps[i]);
  const double per_hit = who.per_hit_ns();
  Finding finding;
  finding.kind = emits<Emitter::kStraggler, VerdictKind::kSlow>;
  for (size_t slot : who.slots) finding.ranks.push_back(window.rank_of(slot));
  std::sort(finding.ranks.begin(), finding.ranks.end());
  if (!who.host.empty()) finding.subject = "host " + who.host;
  finding.since_step = hit.front();
  finding.through_step = hit.back();
  finding.clear_after_steps = 24;
  const double in_steps =
      std::max(1.0, static_cast<double>(std::count_if(last.steps.begin(), last.steps.end(),
                                                      [&](StepNumber number) { return number >= hit.front(); })));
  finding.steps_hit = std::min(0.99, static_cast<double>(who.hits()) / in_steps);
  finding.lost_ns_per_step = static_cast<int64_t>(who.lost_ns / in_steps);
  finding.step_ns = static_cast<int64_t>(last.step_ns + per_hit);
  finding.step_without_ns = static_cast<int64_t>(last.step_ns);
  finding.victims = victims_of(window, finding.ranks);
  add_wait_claims(window, window.rank_of(who.slots.front()), hit, finding);
  explain_own_time(window, finding.ranks, hit, finding);
  add_claims(last, most, hit, finding);
  finding.sentence =
      format("%s {makes|made} everybody wait %s in %s {when}: %s of the job.",
             name_or_host(window, who.host, finding.ranks).c_str(), human_duration(per_hit).c_str(),
             one_step_of(1 / std::max(0.01, finding.steps_hit)).c_str(), percent(share_of(last, who)).c_str());
  finding.coverage = coverage_of(window, window.step(hit.back())->size());
  finding.confidence = std::min(0.9, 0.4 + 0.04 * static_cast<double>(who.hits()));
  return finding;
}

}  // namespace

std::vector<Finding> find_recurring(const JobWindow& window, double limit,
                                    const std::vector<AttributedRange>& explained) {
  std::vector<StepNumber> steps = window.complete_steps();
  std::erase_if(steps, [&](StepNumber number) { return number < window.first_step() + kSettleSteps; });
  if (steps.size() > kRecurringWindow) steps.erase(steps.begin(), steps.end() - kRecurringWindow);
  if (steps.size() < kStepsSuspect) return {};
  const LastSteps last(window, std::move(steps));
  const MostRecurring most = most_recurring(window, last, limit);
  const Recurring& who = most.who;
  if (who.hits() == 0 || has_verdict(explained, window.rank_of(who.slots.front()), last.steps.back())) return {};
  const double share = share_of(last, who);
  if (last.late.size() - 1 - who.at.back() > kRecurringQuiet || share < kHiddenShare) return {};
  const double nats = nats_of_recurring(window, last, most);
  // It comes and goes: one long stretch, or one that is over, is no recurrence.
  const bool often = nats >= window.suspect_nats() && runs_of(who.at) >= kRecurringRuns && share >= kRecurringLostMin;
  if (!often && nats < window.suspect_nats() - witness_nats()) return {};
  Finding finding = recurring_finding(window, last, most);
  finding.sure = often && nats >= window.sure_nats();
  finding.sure_with_signals = nats >= window.sure_nats() - witness_nats();
  finding.only_with_signals = !often;
  return {finding};
}

}  // namespace lockstep::straggler
