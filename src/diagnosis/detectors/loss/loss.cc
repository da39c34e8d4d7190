#include "diagnosis/detectors/loss/loss.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

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

// What the last steps say together.
struct LastValues {
  std::vector<StepNumber> steps;
  StepNumber first = kNoStep, last = kNoStep;  // in which something is not finite
  StepNumber first_local = kNoStep;            // a rank's own value is not
  std::string what;                            // the first of the job's values that is not
  std::vector<Rank> sources, reported;         // whose own value was the first, and who first told the job's
  std::map<std::string, std::vector<double>> typical;
};

LastValues values_over(const JobWindow& window, std::vector<StepNumber> steps) {
  LastValues all{.steps = std::move(steps)};
  for (StepNumber number : all.steps) {
    const ReportedValues& here =
        window.frame(number)->derived<ReportedValues>([&] { return values_of(*window.step(number)); });
    if (all.what.empty()) all.what = here.what;
    for (const auto& [name, value] : here.typical) all.typical[name].push_back(value);
    if (!here.local.empty() && all.first_local < 0_step) {
      all.first_local = number;
      all.sources = here.local;
    }
    if (here.reported.empty() && here.local.empty()) continue;
    if (all.first < 0_step) all.first = number;
    all.last = number;
    if (all.reported.empty()) all.reported = here.reported;
  }
  return all;
}

Finding bad_loss(const JobWindow& window, const LastValues& values, Cause cause) {
  Finding finding;
  finding.kind = emits<Emitter::kLoss, VerdictKind::kIncorrect>;
  finding.subject = "loss";
  finding.layer = emits<Emitter::kLoss, Layer::kUnknown>;
  finding.cause = cause;
  finding.coverage = coverage_of(window, window.step(values.steps.back())->size());
  return finding;
}

// Where it came from, as far as that was told.
struct Source {
  std::vector<Rank> ranks;
  Measure measure;  // whose values are not finite
};

Source source_of(const JobWindow& window, const LastValues& values, const std::string& what) {
  const auto few = [&](const std::vector<Rank>& ranks, StepNumber in) {
    return !ranks.empty() && ranks.size() * 4 <= window.step(in)->size() + 3;
  };
  Source source{.measure = {.of = "not_finite", .steps = {values.first}, .name = what}};
  // All ranks at once: the source is not among what was told.
  if (values.first_local <= values.first && few(values.sources, values.first_local)) {
    source = {values.sources, {.of = "not_finite", .steps = {values.first_local}}};
  } else if (few(values.reported, values.first)) {
    source.ranks = values.reported;  // a rank that tells a bad loss of its own before anybody else does
  }
  std::sort(source.ranks.begin(), source.ranks.end());
  if (source.ranks.size() > kRanksNamedMax) source.ranks.resize(kRanksNamedMax);
  return source;
}

Claim where_from(const JobWindow& window, StepNumber first, const Source& source) {
  if (source.ranks.empty())
    return claim(ClaimKind::kExclusion, "ranks",
                 "Which rank it came from is not known: no rank reports its own values before the reduction.", {},
                 first, first, steps_query(first, first));
  return claim(ClaimKind::kExclusion, "other ranks",
               format("Before the reduction only %zu of %zu ranks had it: the others' own values are finite.",
                      source.ranks.size(), window.step(first)->size()),
               {.value = static_cast<double>(source.ranks.size()), .unit = "ranks"}, first, first,
               source.measure.query());
}

// Something is not finite: wrong from then on.
Finding not_finite(const JobWindow& window, const LastValues& values) {
  const std::string what = values.what.empty() ? "local gradient norm" : values.what;
  const Source source = source_of(window, values, what);
  Finding finding = bad_loss(window, values, emits<Emitter::kLoss, Cause::kNanSource>);
  const StepNumber first = values.first;
  finding.ranks = source.ranks;
  finding.since_step = first;
  finding.through_step = values.last;
  finding.sure = true;
  finding.clear_after_steps = 8;
  const bool known = !source.ranks.empty();
  finding.component = known ? format("gradients of rank %d", source.ranks.front().value()) : "loss of the job";
  finding.confidence = known ? 0.9 : 0.5;
  finding.chain.push_back(
      claim(ClaimKind::kEvent, finding.component,
            format("%s is not a finite number since step %s.", what.c_str(), with_thousands(first.value()).c_str()),
            {.value = static_cast<double>(values.reported.size()), .unit = "ranks"}, first, first,
            Measure{.of = "not_finite", .steps = {first}, .name = what}.query()));
  finding.chain.push_back(where_from(window, first, source));
  finding.alternatives.push_back(
      {"a silent error of the GPU", 0.3, "no sign of one so far", "the same batch once more on another GPU"});
  finding.next.push_back({"run the batch of this step again, on this rank and on another", ""});
  finding.sentence =
      known
          ? format("%s produced a value that is not a number in step {since}, and the reduction gave it to everybody.",
                   name_of(window, source.ranks.front()).c_str())
          : format("The job's %s {is|was} not a number {when}; which rank it came from is not reported.", what.c_str());
  return finding;
}

// A value that was about so much until the newest step.
struct Jump {
  std::string name;
  double before = 0, now = 0;
};

std::optional<Jump> jump_in(const LastValues& values) {
  for (const auto& [name, typical] : values.typical) {
    if (typical.size() < kUsualSteps + 1) continue;
    const double before = median({typical.end() - static_cast<std::ptrdiff_t>(kUsualSteps) - 1, typical.end() - 1});
    if (before > 0 && typical.back() >= kJump * before) return Jump{name, before, typical.back()};
  }
  return std::nullopt;
}

Finding jumped(const JobWindow& window, const LastValues& values, const Jump& jump) {
  Finding finding = bad_loss(window, values, emits<Emitter::kLoss, Cause::kLossSpike>);
  const StepNumber newest = values.steps.back();
  finding.since_step = finding.through_step = newest;
  finding.component = jump.name + " of the job";
  finding.confidence = 0.4;
  finding.chain.push_back(claim(
      ClaimKind::kEvent, finding.component,
      format("%s is %.3g, in the %zu steps before about %.3g.", jump.name.c_str(), jump.now, kUsualSteps, jump.before),
      {.value = jump.now, .baseline = jump.before}, newest, newest,
      Measure{.of = "scalar", .steps = {newest}, .name = jump.name}.query()));
  finding.chain.push_back(claim(ClaimKind::kExclusion, finding.component,
                                "Not a number that is not finite: it may recover.", {}, newest, newest,
                                steps_query(newest, newest)));
  finding.sentence = format("%s jumped from %.3g to %.3g in step {since}.", jump.name.c_str(), jump.before, jump.now);
  return finding;
}

}  // namespace

std::vector<Finding> find_bad_loss(const JobWindow& window, const std::vector<AttributedRange>&) {
  std::vector<StepNumber> steps = window.complete_steps();
  if (steps.size() > kWindow) steps.erase(steps.begin(), steps.end() - kWindow);
  if (steps.empty()) return {};
  const LastValues values = values_over(window, std::move(steps));
  if (values.first >= 0_step) return {not_finite(window, values)};
  if (const std::optional<Jump> jump = jump_in(values)) return {jumped(window, values, *jump)};
  return {};
}

}  // namespace lockstep
