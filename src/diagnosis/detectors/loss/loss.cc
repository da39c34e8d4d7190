#include "diagnosis/detectors/loss/loss.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"
#include "diagnosis/measure.h"
#include "diagnosis/phrasing.h"

namespace lockstep {
namespace {

constexpr size_t kWindow = 32;
constexpr double kJump = 5;
constexpr size_t kUsualSteps = 16;
constexpr size_t kRanksNamedMax = 64;

bool is_reported_by_job(const std::string& name) {
  return name == "loss" || name == "grad_norm";
}

bool is_local(const std::string& name) {
  return name.ends_with("_local");
}

// What was told in one step.
struct ReportedValues {
  std::vector<Rank> local, reported;      // ranks whose own value, or the job's as they tell it, is not finite
  std::string what;                       // the first of the job's that is not
  std::map<std::string, double> typical;  // of those that are, over the ranks
};

ReportedValues values_of(const RankRows& rows) {
  ReportedValues values;
  std::map<std::string, std::vector<double>> finite;
  for (const auto& [rank, row] : rows) {
    for (const StepScalar& scalar : row.summary.scalars) {
      if (is_local(scalar.name) && !std::isfinite(scalar.value)) values.local.push_back(rank);
      if (!is_reported_by_job(scalar.name)) continue;
      if (std::isfinite(scalar.value)) {
        finite[scalar.name].push_back(scalar.value);
      } else {
        values.reported.push_back(rank);
        if (values.what.empty()) values.what = scalar.name;
      }
    }
  }
  for (auto& [name, of_ranks] : finite) values.typical[name] = median(std::move(of_ranks));
  return values;
}

}  // namespace

std::vector<Finding> find_bad_loss(const JobWindow& window, const std::vector<AttributedRange>&) {
  std::vector<StepNumber> steps = window.complete_steps();
  if (steps.size() > kWindow) steps.erase(steps.begin(), steps.end() - kWindow);
  if (steps.empty()) return {};
  // The first step in which something is not finite, as far as the window remembers, and whose local value is not.
  StepNumber first = kNoStep, first_local = kNoStep, last = kNoStep;
  std::string what;
  std::vector<Rank> sources, all_bad;
  std::map<std::string, std::vector<double>> history;
  for (StepNumber number : steps) {
    const ReportedValues& here =
        window.frame(number)->derived<ReportedValues>([&] { return values_of(*window.step(number)); });
    const std::vector<Rank>&local = here.local, &reported = here.reported;
    if (what.empty()) what = here.what;
    for (const auto& [name, value] : here.typical) history[name].push_back(value);
    if (!local.empty() && first_local < 0_step) {
      first_local = number;
      sources = local;
    }
    if (!reported.empty() || !local.empty()) {
      if (first < 0_step) first = number;
      last = number;
      if (all_bad.empty()) all_bad = reported;
    }
  }
  Finding finding;
  finding.kind = emits<Emitter::kLoss, VerdictKind::kIncorrect>;
  finding.subject = "loss";
  finding.layer = emits<Emitter::kLoss, Layer::kUnknown>;
  finding.cause = emits<Emitter::kLoss, Cause::kNanSource>;
  finding.coverage = coverage_of(window, window.step(steps.back())->size());
  if (first >= 0_step) {
    finding.since_step = first;
    finding.through_step = last;
    finding.sure = true;
    finding.clear_after_steps = 8;
    // All ranks at once: the source is not among what was told.
    const bool source_known =
        !sources.empty() && first_local <= first && sources.size() * 4 <= window.step(first_local)->size() + 3;
    if (source_known) {
      finding.ranks = sources;
    } else if (!all_bad.empty() && all_bad.size() * 4 <= window.step(first)->size() + 3) {
      finding.ranks = all_bad;  // a rank that tells a bad loss of its own before anybody else does
    }
    std::sort(finding.ranks.begin(), finding.ranks.end());
    if (finding.ranks.size() > kRanksNamedMax) finding.ranks.resize(kRanksNamedMax);
    if (what.empty()) what = "local gradient norm";
    const std::string who = finding.ranks.empty() ? "the job" : name_of(window, finding.ranks.front());
    finding.component =
        finding.ranks.empty() ? "loss of the job" : format("gradients of rank %d", finding.ranks.front().value());
    finding.confidence = finding.ranks.empty() ? 0.5 : 0.9;
    finding.chain.push_back(
        claim(ClaimKind::kEvent, finding.component,
              format("%s is not a finite number since step %s.", what.c_str(), with_thousands(first.value()).c_str()),
              {.value = static_cast<double>(all_bad.size()), .unit = "ranks"}, first, first,
              Measure{.of = "not_finite", .steps = {first}, .name = what}.query()));
    if (!finding.ranks.empty()) {
      finding.chain.push_back(claim(
          ClaimKind::kExclusion, "other ranks",
          format("Before the reduction only %zu of %zu ranks had it: the others' own values are finite.",
                 finding.ranks.size(), window.step(first)->size()),
          {.value = static_cast<double>(finding.ranks.size()), .unit = "ranks"}, first, first,
          Measure{.of = "not_finite", .steps = {source_known ? first_local : first}, .name = source_known ? "" : what}
              .query()));
    } else {
      finding.chain.push_back(
          claim(ClaimKind::kExclusion, "ranks",
                "Which rank it came from is not known: no rank reports its own values before the reduction.", {}, first,
                first, steps_query(first, first)));
    }
    finding.alternatives.push_back(
        {"a silent error of the GPU", 0.3, "no sign of one so far", "the same batch once more on another GPU"});
    finding.next.push_back({"run the batch of this step again, on this rank and on another", ""});
    finding.sentence =
        finding.ranks.empty()
            ? format("The job's %s {is|was} not a number {when}; which rank it came from is not reported.",
                     what.c_str())
            : format(
                  "%s produced a value that is not a number in step {since}, and the reduction gave it to everybody.",
                  who.c_str());
    return {finding};
  }
  for (auto& [name, values] : history) {
    if (values.size() < kUsualSteps + 1) continue;
    std::vector<double> usual(values.end() - static_cast<std::ptrdiff_t>(kUsualSteps) - 1, values.end() - 1);
    const double before = median(usual);
    if (before <= 0 || values.back() < kJump * before) continue;
    finding.since_step = finding.through_step = steps.back();
    finding.component = name + " of the job";
    finding.cause = emits<Emitter::kLoss, Cause::kLossSpike>;
    finding.confidence = 0.4;
    finding.chain.push_back(claim(
        ClaimKind::kEvent, finding.component,
        format("%s is %.3g, in the %zu steps before about %.3g.", name.c_str(), values.back(), kUsualSteps, before),
        {.value = values.back(), .baseline = before}, steps.back(), steps.back(),
        Measure{.of = "scalar", .steps = {steps.back()}, .name = name}.query()));
    finding.chain.push_back(claim(ClaimKind::kExclusion, finding.component,
                                  "Not a number that is not finite: it may recover.", {}, steps.back(), steps.back(),
                                  steps_query(steps.back(), steps.back())));
    finding.sentence = format("%s jumped from %.3g to %.3g in step {since}.", name.c_str(), before, values.back());
    return {finding};
  }
  return {};
}

}  // namespace lockstep
