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

}  // namespace

std::vector<Finding> find_recurring(const JobWindow& window, double limit,
                                    const std::vector<AttributedRange>& explained) {
  std::vector<StepNumber> steps = window.complete_steps();
  std::erase_if(steps, [&](StepNumber number) { return number < window.first_step() + kSettleSteps; });
  if (steps.size() > kRecurringWindow) steps.erase(steps.begin(), steps.end() - kRecurringWindow);
  if (steps.size() < kStepsSuspect) return {};
  const LastSteps last(window, std::move(steps));
  std::map<std::string, size_t> ranks_of_host;
  for (const auto& [rank, identity] : window.ranks()) ++ranks_of_host[identity.host];
  struct Recurring {
    std::vector<size_t> at;  // steps in which it was the latest, and late
    std::vector<size_t> slots;
    double lost_ns = 0;
  };
  std::map<std::pair<std::string, size_t>, Recurring> hits;  // by host and, for a rank alone, slot
  size_t all = 0;
  for (size_t i = 0; i < last.late.size(); ++i) {
    LateInStep late = late_in_step(window, *last.late[i], ranks_of_host);
    if (late.slots.empty() || late.ns < limit) continue;
    Recurring& who = hits[{late.host, late.host.empty() ? late.slots.front() : 0}];
    who.at.push_back(i);
    who.lost_ns += late.ns - late.next_ns;
    who.slots = std::move(late.slots);
    ++all;
  }
  if (hits.empty()) return {};
  const auto most = std::max_element(
      hits.begin(), hits.end(), [](const auto& a, const auto& b) { return a.second.at.size() < b.second.at.size(); });
  const std::string& host = most->first.first;
  const Recurring& culprit = most->second;
  const size_t best = culprit.at.size();
  // It has a verdict already, perhaps with others of its host.
  const Rank rank = window.rank_of(culprit.slots.front());
  for (const AttributedRange& entry : explained)
    if (entry.sure && entry.rank == rank && entry.to_step + static_cast<int64_t>(kRecurringQuiet) >= last.steps.back())
      return {};
  const double share = culprit.lost_ns / (last.step_ns * static_cast<double>(last.late.size() - culprit.at.front()));
  // It comes and goes: one long stretch, or one that is over, is no recurrence.
  size_t runs = 0;
  for (size_t i = 0; i < best; ++i) runs += i == 0 || culprit.at[i] > culprit.at[i - 1] + 1 ? 1 : 0;
  if (last.late.size() - 1 - culprit.at.back() > kRecurringQuiet || share < kHiddenShare) return {};
  // A rate needs a past: what hits since the first steps (a rank that compiles again) counts only by whom it hits.
  const bool has_past =
      last.steps.front() > window.first_step() + kSettleSteps || 2 * culprit.at.front() >= last.late.size();
  Repetition seen{.hits = best,
                  .steps = last.late.size(),
                  .size = culprit.lost_ns / static_cast<double>(best),
                  .others_hits = all - best,
                  .others_steps = (window.slots() - 1) * last.late.size()};
  for (const StepLateness* step : last.late)
    seen.others_largest = std::max(seen.others_largest, host.empty() ? step->latest.of_others(culprit.slots.front())
                                                                     : largest_but(*step, culprit.slots));
  const double nats = std::min(nats_of(seen), has_past ? HUGE_VAL : nats_of_share(best, all, window.slots())) +
                      nats_of_windows(last.late.size());
  const bool often = nats >= window.suspect_nats() && runs >= kRecurringRuns && share >= kRecurringLostMin;
  if (!often && nats < window.suspect_nats() - witness_nats()) return {};
  std::vector<StepNumber> hit;
  for (size_t i : culprit.at) hit.push_back(last.steps[i]);
  const double per_hit = culprit.lost_ns / static_cast<double>(best);
  Finding finding;
  finding.kind = emits<Emitter::kStraggler, VerdictKind::kSlow>;
  for (size_t slot : culprit.slots) finding.ranks.push_back(window.rank_of(slot));
  std::sort(finding.ranks.begin(), finding.ranks.end());
  if (!host.empty()) finding.subject = "host " + host;
  const std::string who = host.empty() ? format("rank %d", rank.value()) : finding.subject;
  finding.since_step = hit.front();
  finding.through_step = hit.back();
  finding.sure = often && nats >= window.sure_nats();
  finding.sure_with_signals = nats >= window.sure_nats() - witness_nats();
  finding.only_with_signals = !often;
  finding.clear_after_steps = 24;
  const double in_steps = static_cast<double>(
      std::count_if(last.steps.begin(), last.steps.end(), [&](StepNumber number) { return number >= hit.front(); }));
  finding.steps_hit = std::min(0.99, static_cast<double>(best) / std::max(1.0, in_steps));
  finding.lost_ns_per_step = static_cast<int64_t>(culprit.lost_ns / std::max(1.0, in_steps));
  finding.step_ns = static_cast<int64_t>(last.step_ns + per_hit);
  finding.step_without_ns = static_cast<int64_t>(last.step_ns);
  finding.victims = victims_of(window, finding.ranks);
  add_wait_claims(window, rank, hit, finding);
  explain_own_time(window, finding.ranks, hit, finding);
  finding.chain.push_back(
      claim(ClaimKind::kExclusion, "other ranks",
            format("Nobody else: in %zu of the %zu steps in which somebody was late alone it was %s.", best, all,
                   who.c_str()),
            {.value = static_cast<double>(best), .unit = "steps", .peers = static_cast<double>(all - best)},
            hit.front(), hit.back(), Measure{.of = "steps", .ranks = finding.ranks, .steps = hit}.query()));
  finding.chain.push_back(
      claim(ClaimKind::kCounterfactual, who,
            format("Without it no step would wait %s for it, as %s does.", human_duration(per_hit).c_str(),
                   one_step_of(1 / std::max(0.01, finding.steps_hit)).c_str()),
            {.value = last.step_ns / 1e6, .unit = "ms", .baseline = (last.step_ns + per_hit) / 1e6}, hit.front(),
            hit.back(), Measure{.of = "step_ms", .steps = last.steps}.query()));
  finding.sentence = format("%s {makes|made} everybody wait %s in %s {when}: %s of the job.",
                            name_or_host(window, host, finding.ranks).c_str(), human_duration(per_hit).c_str(),
                            one_step_of(1 / std::max(0.01, finding.steps_hit)).c_str(), percent(share).c_str());
  finding.coverage = coverage_of(window, window.step(hit.back())->size());
  finding.confidence = std::min(0.9, 0.4 + 0.04 * static_cast<double>(best));
  return {finding};
}

}  // namespace lockstep::straggler
