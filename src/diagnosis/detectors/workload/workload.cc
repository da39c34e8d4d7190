#include "diagnosis/detectors/workload/workload.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "base/median.h"
#include "base/text.h"
#include "diagnosis/detectors/straggler/own_time.h"
#include "diagnosis/evidence.h"
#include "diagnosis/measure.h"
#include "diagnosis/phrasing.h"
#include "diagnosis/roles.h"
#include "model/rank_text.h"

namespace lockstep {
namespace {

// The window, and the newest steps alone for what is plain to see: so many times the limit.
constexpr size_t kWindow = 12;
constexpr size_t kStepsMin = 6;
constexpr size_t kStepsSure = 12;
constexpr size_t kWindowPlain = 4;
constexpr size_t kWindowFresh = 2;  // to suspect it
constexpr double kPlainTimes = 2;
constexpr size_t kWindowBefore = 8;
constexpr double kBeforeMost = 1.0 / 3;
// Below this part of a step uneven work is how real batches are.
constexpr double kShareMin = 0.05;
// A rank that has nearly the most work in so many steps always has it.
constexpr double kAlwaysShare = 0.5;
// A stage stands out by so much of a step, in so many of the steps.
constexpr double kStageShareMin = 0.06;
constexpr double kErrors = 2;
// Few ranks differ by chance.
constexpr size_t kFewRanks = 8;
constexpr double kFewShareMin = 0.10;
constexpr double kStageStepsShare = 0.8;
// And by more than its own ranks differ in a step.
constexpr double kStageSpreads = 2;
constexpr size_t kRanksNamedMax = 64;

// The steps that are looked at, and how many times the limits count in them.
struct Look {
  std::vector<StepNumber> steps;
  std::vector<StepNumber> before;  // where the newest alone are looked at: those before them
  size_t steps_min = kStepsMin;
  double times = 1;
  double step_ns = 0;

  bool newest_alone() const { return !before.empty(); }
  // What was not there before is plain at the limit already.
  double times_after(double excess_before, double excess) const {
    return newest_alone() && excess_before <= kBeforeMost * excess ? 1 : times;
  }
};

void common(const JobWindow& window, const Look& look, double saved, Finding& finding) {
  const std::vector<StepNumber>& steps = look.steps;
  finding.kind = emits<Emitter::kWorkload, VerdictKind::kInefficient>;
  finding.layer = emits<Emitter::kWorkload, Layer::kWorkload>;
  finding.since_step = steps.front();
  finding.through_step = steps.back();
  finding.step_ns = static_cast<int64_t>(look.step_ns);
  finding.step_without_ns = static_cast<int64_t>(look.step_ns - saved);
  finding.lost_ns_per_step = static_cast<int64_t>(saved);
  finding.sure = enough_steps(steps.size(), kStepsSure, look.newest_alone(), look.step_ns, kWindowPlain) &&
                 steps.back() >= window.first_step() + static_cast<int64_t>(kStepsSure);
  finding.coverage = coverage_of(window, window.step(steps.back())->size());
  finding.confidence = std::min(0.95, 0.5 + 0.02 * static_cast<double>(steps.size()));
  finding.victims = finding.ranks.empty() ? std::vector<Rank>{} : victims_of(window, finding.ranks);
  finding.clear_after_steps = 16;
}

void add_counterfactual(const std::vector<StepNumber>& steps, double step_ns, double saved, Finding& finding) {
  finding.chain.push_back(claim(ClaimKind::kCounterfactual, finding.component,
                                format("With work dealt evenly a step would take %s instead of %s.",
                                       human_duration(step_ns - saved).c_str(), human_duration(step_ns).c_str()),
                                {.value = (step_ns - saved) / 1e6, .unit = "ms", .baseline = step_ns / 1e6},
                                steps.front(), steps.back(), Measure{.of = "step_ms", .steps = steps}.query()));
}

double most_work(const StepLateness& step) {
  double most = 0;
  for (size_t slot = 0; slot < step.work_ns.size(); ++slot)
    if (!std::isnan(step.late_ns[slot])) most = std::max(most, static_cast<double>(step.work_ns[slot]));
  return most;
}

// Who has more work than others, by what tokens and bytes explain.
struct UnevenWork {
  double saved_ns = 0;              // what the rank with the most of it has more, typically
  double late_ns = 0;               // what of the latest rank's time is not explained by it
  std::map<size_t, size_t> latest;  // slot -> steps in which it had the most,
  std::map<size_t, size_t> heavy;   // nearly the most
  size_t by_bytes = 0, steps = 0;   // in so many bytes tell it, of those with any such work
  bool is_of_experts() const { return 2 * by_bytes > steps; }
};

UnevenWork uneven_work(const JobWindow& window, const std::vector<StepNumber>& steps) {
  UnevenWork uneven;
  std::vector<double> most, late;
  for (StepNumber number : steps) {
    const StepLateness& step = lateness(window, *window.frame(number));
    double work = 0, rest = 0;
    size_t who = 0;
    for (size_t slot = 0; slot < step.work_ns.size(); ++slot) {
      if (std::isnan(step.late_ns[slot])) continue;
      if (step.work_ns[slot] > work) {
        work = static_cast<double>(step.work_ns[slot]);
        who = slot;
      }
      rest = std::max(rest, static_cast<double>(step.late_ns[slot]));
    }
    most.push_back(work);
    late.push_back(rest);
    if (work <= 0) continue;
    uneven.by_bytes += step.by_bytes ? 1 : 0;
    ++uneven.steps;
    ++uneven.latest[who];
    for (size_t slot = 0; slot < step.work_ns.size(); ++slot)
      if (static_cast<double>(step.work_ns[slot]) >= 0.5 * work) ++uneven.heavy[slot];
  }
  uneven.saved_ns = median(std::move(most));
  uneven.late_ns = median(std::move(late));
  return uneven;
}

Claim explained_by_work(const std::vector<StepNumber>& steps, const std::string& subject, std::string text, double ns) {
  return claim(ClaimKind::kSelfTime, subject, std::move(text), {.value = ns / 1e6, .unit = "ms"}, steps.front(),
               steps.back(), Measure{.of = "work_ms", .steps = steps}.query());
}

void blame_experts(const JobWindow& window, const Look& look, const UnevenWork& uneven, Finding& finding) {
  const double least = kAlwaysShare * static_cast<double>(look.steps.size());
  for (const auto& [slot, count] : uneven.heavy) {
    if (static_cast<double>(count) >= least && finding.ranks.size() < kRanksNamedMax)
      finding.ranks.push_back(window.rank_of(slot));
  }
  std::sort(finding.ranks.begin(), finding.ranks.end());
  const std::string ranks = human_ranks(finding.ranks, 4);
  const std::string saved = per_step(uneven.saved_ns), share = percent(uneven.saved_ns / look.step_ns);
  finding.subject = "experts";
  finding.cause = emits<Emitter::kWorkload, Cause::kExpertImbalance>;
  finding.component = finding.ranks.empty() ? "routing to experts" : "experts of rank " + ranks;
  finding.chain.push_back(explained_by_work(
      look.steps, finding.component,
      format("What is routed to a rank explains its own time: the rank with the most works %s longer than the mean.",
             saved.c_str()),
      uneven.saved_ns));
  finding.sentence = finding.ranks.empty()
                         ? format(
                               "Tokens {are|were} routed unevenly to the experts, in changing ways: everybody "
                               "{waits|waited} %s {when}: %s of the job.",
                               saved.c_str(), share.c_str())
                         : format(
                               "The experts of rank %s {get|got} more than their share of tokens: everybody "
                               "{waits|waited} %s {when}: %s of the job.",
                               ranks.c_str(), saved.c_str(), share.c_str());
  finding.next.push_back({"balance the experts: capacity factor, auxiliary loss, placement of the hot expert", ""});
}

void blame_packing(const Look& look, const UnevenWork& uneven, Finding& finding) {
  const std::string saved = per_step(uneven.saved_ns);
  finding.subject = "sequences";
  finding.cause = emits<Emitter::kWorkload, Cause::kSequenceImbalance>;
  finding.component = "packing of sequences";
  finding.chain.push_back(
      explained_by_work(look.steps, finding.component,
                        format("The rank with the most tokens is another one each time (%zu in %zu steps); "
                               "what it has more explains %s of its own time.",
                               uneven.latest.size(), look.steps.size(), saved.c_str()),
                        uneven.saved_ns));
  finding.sentence = format(
      "Sequences {are|were} packed unevenly: everybody {waits|waited} %s for the rank with the most tokens, {when}: "
      "%s of the job.",
      saved.c_str(), percent(uneven.saved_ns / look.step_ns).c_str());
  finding.next.push_back({"pack by length, or balance micro-batches by tokens over data-parallel ranks", ""});
}

// Packed sequences, or experts.
void find_uneven_ranks(const JobWindow& window, const Look& look, std::vector<Finding>& findings) {
  const std::vector<StepNumber>& steps = look.steps;
  const UnevenWork uneven = uneven_work(window, steps);
  std::vector<double> most_before;
  for (StepNumber number : look.before) most_before.push_back(most_work(lateness(window, *window.frame(number))));
  const double times = look.times_after(median(std::move(most_before)), uneven.saved_ns);
  if (uneven.saved_ns < times * kShareMin * look.step_ns || uneven.saved_ns < times * uneven.late_ns) return;
  Finding finding;
  if (uneven.is_of_experts()) {
    blame_experts(window, look, uneven, finding);
  } else {
    blame_packing(look, uneven, finding);
  }
  finding.chain.push_back(claim(ClaimKind::kExclusion, finding.component,
                                format("Not a slow GPU: for the same amount of work all ranks take as long, within %s.",
                                       human_duration(uneven.late_ns).c_str()),
                                {.value = uneven.late_ns / 1e6, .unit = "ms"}, steps.front(), steps.back(),
                                Measure{.of = "latest_ms", .steps = steps}.query()));
  common(window, look, uneven.saved_ns, finding);
  add_counterfactual(steps, look.step_ns, uneven.saved_ns, finding);
  findings.push_back(std::move(finding));
}

// The host of all these ranks, where the job has others and this one has no other ranks; else empty.
std::string only_host_of(const JobWindow& window, const std::vector<Rank>& ranks) {
  const std::string& host = window.ranks().at(ranks.front()).host;
  size_t here = 0;
  for (const auto& [rank, identity] : window.ranks()) here += identity.host == host ? 1 : 0;
  const bool all_here =
      std::all_of(ranks.begin(), ranks.end(), [&](Rank rank) { return window.ranks().at(rank).host == host; });
  return all_here && here == ranks.size() && here < window.ranks().size() ? host : "";
}

// A stage that has a host to itself is slow as that host is: only the host can say which of the two it is.
std::shared_ptr<const Finding> slow_host(const JobWindow& window, const std::string& host,
                                         const std::vector<StepNumber>& steps, const Finding& stage) {
  auto slow = std::make_shared<Finding>(stage);
  slow->kind = emits<Emitter::kWorkload, VerdictKind::kSlow>;
  slow->subject = "host " + host;
  slow->next.clear();
  slow->chain.clear();
  explain_own_time(window, slow->ranks, steps, *slow);
  slow->chain.push_back(stage.chain.back());  // the counterfactual
  slow->sentence =
      format("Host %s (ranks %s) {makes|made} everybody wait %s {when}: %s of the job.", host.c_str(),
             human_ranks(slow->ranks, 4).c_str(), per_step(static_cast<double>(stage.lost_ns_per_step)).c_str(),
             percent(static_cast<double>(stage.lost_ns_per_step) / static_cast<double>(stage.step_ns)).c_str());
  return slow;
}

// How far the middle of these may be from what it is about.
double error_of(const std::vector<double>& values, double middle) {
  return spread_of(values, middle) / std::sqrt(static_cast<double>(values.size()));
}

// A stage is known by its place in the groups that send point to point: by the place of any of its ranks.
struct Stage {
  std::vector<double> excess;  // in every step: in those alone in which it is the slowest, noise makes some
  std::vector<StepNumber> slowest_in;
  std::vector<double> own, others, spread;  // in these
};
struct Stages {
  std::map<int32_t, Stage> by_place;
  size_t steps = 0;
};

std::map<int32_t, std::vector<double>> own_by_stage(const StepFrame& frame, const Pipelines& pipelines) {
  std::map<int32_t, std::vector<double>> own;
  for (size_t slot = 0; slot < frame.rows.size(); ++slot) {
    if (!frame.knows(slot)) continue;
    if (const int32_t place = pipelines.stage_of(frame.rows[slot].summary); place >= 0)
      own[place].push_back(static_cast<double>(frame.rows[slot].own_ns()));
  }
  return own;
}

Stages measure_stages(const JobWindow& window, const Pipelines& pipelines, const std::vector<StepNumber>& steps) {
  constexpr size_t kStagesMax = 256;
  Stages stages;
  for (StepNumber number : steps) {
    const std::map<int32_t, std::vector<double>> own = own_by_stage(*window.frame(number), pipelines);
    if (own.size() < 2 || own.size() > kStagesMax) continue;
    ++stages.steps;
    std::vector<std::pair<double, int32_t>> middles;
    for (const auto& [place, times] : own) middles.emplace_back(lower_median(times), place);
    const auto of_others = [&](int32_t place) {
      std::vector<double> others;
      for (const auto& [time, other] : middles)
        if (other != place) others.push_back(time);
      return median(std::move(others));
    };
    for (const auto& [time, place] : middles) stages.by_place[place].excess.push_back(time - of_others(place));
    const auto [time, place] = *std::max_element(middles.begin(), middles.end());
    Stage& slowest = stages.by_place[place];
    slowest.own.push_back(time);
    slowest.slowest_in.push_back(number);
    slowest.others.push_back(of_others(place));
    slowest.spread.push_back(quantile(own.at(place), 0.75) - quantile(own.at(place), 0.25));
  }
  return stages;
}

// `own`: of the ranks of the stage, in the newest step.
void word_stage(int32_t place, const Stage& stage, const std::vector<double>& own, const Look& look, double saved,
                Finding& finding) {
  const StepNumber from = look.steps.front(), to = look.steps.back();
  finding.subject = format("stage %d", place);
  finding.cause = emits<Emitter::kWorkload, Cause::kStageImbalance>;
  finding.component = format("pipeline stage %d", place);
  finding.chain.push_back(
      claim(ClaimKind::kSelfTime, finding.component,
            format("All %zu ranks of stage %d work %s, the other stages %s.", own.size(), place,
                   per_step(median(stage.own)).c_str(), human_duration(median(stage.others)).c_str()),
            {.value = median(stage.own) / 1e6, .unit = "ms", .peers = median(stage.others) / 1e6}, from, to,
            Measure{.of = "stage_ms", .steps = stage.slowest_in, .stage = place}.query()));
  finding.chain.push_back(claim(ClaimKind::kExclusion, finding.component,
                                "Not one slow GPU: the ranks of the stage take as long as each other.",
                                {.value = quantile(own, 0.25) / 1e6, .unit = "ms", .peers = quantile(own, 0.75) / 1e6},
                                from, to, Measure{.of = "stage_quarter_ms", .steps = {to}, .stage = place}.query()));
  finding.sentence = format(
      "Pipeline stage %d {has|had} more work than the others: everybody {waits|waited} %s {when}: %s of the job.",
      place, per_step(saved).c_str(), percent(saved / look.step_ns).c_str());
  finding.next.push_back({"move layers from this stage to others, or split the loss layer off", ""});
}

// All ranks of one stage against the other stages.
void find_uneven_stages(const JobWindow& window, const Look& look, std::vector<Finding>& findings) {
  const std::vector<StepNumber>& steps = look.steps;
  const double step_ns = look.step_ns;
  const Pipelines pipelines(window, *window.frame(steps.back()));
  const Stages stages = measure_stages(window, pipelines, steps);
  for (const auto& [place, stage] : stages.by_place) {
    if (stages.steps < look.steps_min ||
        static_cast<double>(stage.slowest_in.size()) < kStageStepsShare * static_cast<double>(stages.steps))
      continue;
    const double saved = median(stage.excess);
    const double error = error_of(stage.excess, saved);
    const double at_least = saved - kErrors * error;
    if (at_least < kStageShareMin * step_ns) continue;
    const double before = median(measure_stages(window, pipelines, look.before).by_place[place].excess);
    const double times = look.times_after(before, saved);
    if (saved < times * kStageShareMin * step_ns || saved < times * kStageSpreads * median(stage.spread)) continue;
    // The whole stage, not one rank in it: the fastest quarter of it is slow as well.
    std::vector<double> own;
    Finding finding;
    for (const auto& [rank, row] : *window.step(steps.back())) {
      if (pipelines.stage_of(row.summary) != place) continue;
      own.push_back(static_cast<double>(row.own_ns()));
      if (finding.ranks.size() < kRanksNamedMax) finding.ranks.push_back(rank);
    }
    if (own.size() < kFewRanks && at_least < kFewShareMin * step_ns) continue;
    if (own.size() < 2 || quantile(own, 0.25) - median(stage.others) < 0.5 * saved) continue;
    word_stage(place, stage, own, look, saved, finding);
    common(window, look, saved, finding);
    finding.sure &= saved * saved >= 2 * window.sure_nats() * error * error;  // what chance does as seldom as promised
    add_counterfactual(steps, step_ns, saved, finding);
    if (const std::string host = only_host_of(window, finding.ranks); !host.empty())
      finding.fallback = slow_host(window, host, steps, finding);
    findings.push_back(std::move(finding));
  }
}

}  // namespace

std::vector<Finding> find_uneven_work(const JobWindow& window, const std::vector<AttributedRange>&) {
  const std::vector<StepNumber> all = window.complete_steps();
  if (all.size() < kStepsMin) return {};
  std::vector<Finding> findings;
  for (size_t count : {kWindow, kWindowPlain, kWindowFresh}) {
    Look look;
    look.steps.assign(all.end() - static_cast<std::ptrdiff_t>(std::min(count, all.size())), all.end());
    if (count < kWindow) {
      look.steps_min = count;
      look.times = kPlainTimes;
      const size_t until = all.size() - look.steps.size();
      look.before.assign(all.begin() + static_cast<std::ptrdiff_t>(until - std::min(until, kWindowBefore)),
                         all.begin() + static_cast<std::ptrdiff_t>(until));
    }
    std::vector<double> durations;
    for (StepNumber number : look.steps) durations.push_back(lateness(window, *window.frame(number)).duration_ns);
    look.step_ns = median(durations);
    if (look.step_ns <= 0) continue;
    find_uneven_stages(window, look, findings);
    if (findings.empty()) find_uneven_ranks(window, look, findings);
    if (!findings.empty()) break;
  }
  return findings;
}

}  // namespace lockstep
