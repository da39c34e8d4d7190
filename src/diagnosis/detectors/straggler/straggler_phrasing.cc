#include "diagnosis/detectors/straggler/straggler_phrasing.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "diagnosis/detectors/straggler/culprits.h"
#include "diagnosis/detectors/straggler/own_time.h"
#include "diagnosis/evidence.h"
#include "diagnosis/measure.h"
#include "diagnosis/phrasing.h"
#include "diagnosis/price.h"
#include "model/rank_text.h"

namespace lockstep::straggler {
namespace {

// Steps that one has to be late in for it to be sure.
constexpr size_t kStepsSure = 6;

// Since when: the split of the steps that fits best to a rank that is late by so much after it and not before. What is late
// by chance a step or two before that is no part of it. As far as the window remembers.
StepNumber since_step_of(const JobWindow& window, size_t slot, double typical, StepNumber newest) {
  const std::vector<StepNumber>& all = window.steps_to_compare();
  StepNumber since = newest;
  double fit = 0, best = 0;
  constexpr double kThreeSteps = 1.5;  // of not being late at all
  for (auto at = all.rbegin(); at != all.rend() && best - fit < kThreeSteps; ++at) {
    const StepLateness& step = lateness(window, *window.frame(*at));
    const double late =
        slot < step.late_ns.size() && !std::isnan(step.late_ns[slot]) ? static_cast<double>(step.late_ns[slot]) : 0;
    fit += std::clamp(late / std::max(1.0, typical), 0.0, 1.0) - 0.5;
    if (fit <= best) continue;
    best = fit;
    since = *at;
  }
  return since;
}

void add_evidence_claim(const JobWindow& window, const Late& late, const std::vector<StepNumber>& steps, size_t known,
                        Finding& finding) {
  const Measure measure{.of = "late_ms", .ranks = {late.rank}, .steps = steps};
  finding.chain.push_back(
      claim(ClaimKind::kExclusion, format("rank %d", late.rank.value()),
            format("Not chance: it is %s of a step slower than %s, give or take %s. Among %zu healthy ranks as noisy "
                   "as these, chance shows as much less than once in %s hours.",
                   percent(late.shift.size).c_str(), late.shift.lasting ? "its peers, as ever" : "before",
                   percent(late.shift.error).c_str(), known,
                   with_thousands(std::llround(1 / (late.sure ? kConfirmedPerJobHour : kSuspectedPerJobHour))).c_str()),
            {.value = measured(window, measure), .unit = "ms"}, steps.front(), steps.back(), measure.query()));
}

// Whether steps alone are enough to be sure, or with signals of the node.
void decide(const Late& worst, bool settled, Finding& finding) {
  const bool lasting = worst.lasting && worst.goes_on && worst.hits >= kStepsSure;
  const bool by_steps =
      worst.sure || (settled && ((lasting && (worst.obvious || worst.evident)) || (worst.clear && worst.evident)));
  // What costs nothing is confirmed only with a second witness: nobody is to be called for it. Nor for what was never
  // otherwise and costs no more than healthy ranks differ by.
  const bool cheap =
      is_hidden(finding) || (worst.shift.lasting && static_cast<double>(finding.lost_ns_per_step) <
                                                        kLastingMax * static_cast<double>(finding.step_ns));
  finding.sure = by_steps && !cheap;
  finding.sure_with_signals = cheap ? by_steps : worst.nearly_sure || (settled && worst.plain);
}

}  // namespace

std::string name_or_host(const JobWindow& window, const std::string& host, const std::vector<Rank>& ranks) {
  return host.empty() ? name_of(window, ranks.front())
                      : format("Host %s (ranks %s)", host.c_str(), human_ranks(ranks, 4).c_str());
}

double saved_without(const std::vector<double>& typical, const std::vector<Late>& gone, double step_ns) {
  double worst = 0, next = 0;
  for (const Late& entry : gone) worst = std::max(worst, entry.ns);
  for (size_t slot = 0; slot < typical.size(); ++slot) {
    bool accused = std::any_of(gone.begin(), gone.end(), [&](const Late& entry) { return entry.slot == slot; });
    if (!accused) next = std::max(next, typical[slot]);
  }
  return std::clamp(worst - std::max(0.0, next), 0.0, step_ns);
}

bool is_hidden(const Finding& finding) {
  return static_cast<double>(finding.lost_ns_per_step) < kHiddenShare * static_cast<double>(finding.step_ns);
}

Finding finding_of(const JobWindow& window, const std::string& host, std::vector<Late> late, double saved,
                   const LastSteps& last, size_t known) {
  std::sort(late.begin(), late.end(), [](const Late& a, const Late& b) { return a.rank < b.rank; });
  const Late& worst =
      *std::max_element(late.begin(), late.end(), [](const Late& a, const Late& b) { return a.ns < b.ns; });
  const std::vector<StepNumber> steps = worst.begin() == kNoStep ? last.steps : stretch_since(window, worst.begin());
  Finding finding;
  finding.kind = emits<Emitter::kStraggler, VerdictKind::kSlow>;
  for (const Late& entry : late) finding.ranks.push_back(entry.rank);
  if (!host.empty()) finding.subject = "host " + host;
  finding.through_step = steps.back();
  finding.since_step = since_step_of(window, worst.slot, worst.ns, steps.back());
  // Where single steps hardly tell who is late, evidence does.
  if (worst.by_evidence_alone && worst.begin() != kNoStep)
    finding.since_step = std::min(finding.since_step, worst.begin());
  // Where communication runs beside the work, who waits for the late one looks quicker than it is, and that one later.
  // Where it is the input, how much longer that takes is told: its repair saves no more.
  if (const double input = input_excess(window, worst.rank, steps); input >= 0.5 * worst.ns)
    saved = std::min(saved, input);
  // Who is hidden behind others costs nothing, whatever steps take longer since.
  if (saved >= kHiddenShare * last.step_ns) saved = cost_of_a_step(window, finding.since_step, saved, last.step_ns);
  finding.step_ns = static_cast<int64_t>(last.step_ns);
  finding.step_without_ns = static_cast<int64_t>(last.step_ns - saved);
  finding.lost_ns_per_step = static_cast<int64_t>(saved);
  finding.lost_alone_ns = static_cast<int64_t>(std::min(worst.ns, last.step_ns));
  decide(worst, last.steps.back() >= window.first_step() + kSettleSteps, finding);
  finding.victims = victims_of(window, finding.ranks);
  add_wait_claims(window, worst.rank, steps, finding);
  explain_own_time(window, finding.ranks, steps, finding);
  if (worst.by_evidence_alone) add_evidence_claim(window, worst, steps, known, finding);
  add_network_exclusion(window, worst.rank, steps, finding);
  const std::string who = name_or_host(window, host, host.empty() ? std::vector<Rank>{worst.rank} : finding.ranks);
  finding.chain.push_back(
      claim(ClaimKind::kCounterfactual, host.empty() ? format("rank %d", worst.rank.value()) : finding.subject,
            format("Without it a step would take %s instead of %s.", human_duration(last.step_ns - saved).c_str(),
                   human_duration(last.step_ns).c_str()),
            {.value = (last.step_ns - saved) / 1e6, .unit = "ms", .baseline = last.step_ns / 1e6}, last.steps.front(),
            last.steps.back(), Measure{.of = "step_ms", .steps = last.steps}.query()));
  finding.sentence = format("%s {makes|made} %s wait %s {when}: %s of the job.", who.c_str(),
                            finding.victims.size() + finding.ranks.size() >= static_cast<size_t>(window.world_size())
                                ? format("all %d ranks", window.world_size()).c_str()
                                : format("%zu ranks", finding.victims.size()).c_str(),
                            per_step(saved).c_str(), percent(saved / last.step_ns).c_str());
  if (is_hidden(finding)) {
    finding.sentence = format("%s {is|was} %s behind its peers {when}, hidden behind others that {are|were} later.",
                              who.c_str(), per_step(worst.ns).c_str());
  }
  finding.coverage = coverage_of(window, known);
  finding.confidence =
      std::min(0.99, 0.5 + 0.05 * static_cast<double>(worst.hits)) * std::min(1.0, finding.coverage + 0.2);
  return finding;
}

}  // namespace lockstep::straggler
