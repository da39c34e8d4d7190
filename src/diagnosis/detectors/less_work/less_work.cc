#include "diagnosis/detectors/less_work/less_work.h"

#include <algorithm>

#include "analysis/cost/mfu.h"
#include "base/median.h"
#include "base/text.h"
#include "diagnosis/measure.h"
#include "diagnosis/phrasing.h"

namespace lockstep {
namespace {

constexpr size_t kSettle = 8;
constexpr size_t kSure = 12;          // steps
constexpr double kFallMin = 0.10;     // batches differ; a tenth less of them for good does not happen by itself
constexpr double kSameLength = 0.03;  // of the step

// The same before and since.
struct Change {
  double was = 0, is = 0;
};

// What a step did before it did less, and what it does since.
struct LessWork {
  size_t at = 0;  // the first step of those
  bool by_flops = false;
  double share = 0;     // by which less is done in the same time
  Change work, length;  // of a step; its length in ns
  const char* what() const { return by_flops ? "FLOPs" : "tokens"; }
};

template <typename Of>
Change change_at(const std::deque<StepFacts>& facts, size_t at, Of of) {
  std::vector<double> before, after;
  for (size_t i = kSettle; i < facts.size(); ++i) (i < at ? before : after).push_back(of(facts[i]));
  return {median_of(std::move(before)), median_of(std::move(after))};
}

// Nothing where steps do as much as ever, or take longer for it.
std::optional<LessWork> measure_less_work(const std::deque<StepFacts>& facts) {
  if (facts.size() <= kSettle) return std::nullopt;
  LessWork less{.by_flops = facts.back().flops > 0};
  const auto work = [&](const StepFacts& step) { return less.by_flops ? step.flops : step.tokens; };
  std::vector<double> rates;
  for (size_t i = kSettle; i < facts.size(); ++i) {
    // Not told in all of them: nothing to compare.
    if (!(work(facts[i]) > 0) || !(facts[i].duration_ns > 0)) return std::nullopt;
    rates.push_back(work(facts[i]) / facts[i].duration_ns);
  }
  const std::optional<Fall> fall = find_fall(rates);
  if (!fall || fall->after > (1 - kFallMin) * fall->before) return std::nullopt;
  less.at = kSettle + fall->at;
  less.share = 1 - fall->after / fall->before;
  less.length = change_at(facts, less.at, [](const StepFacts& step) { return step.duration_ns; });
  if (less.length.is > (1 + kSameLength) * less.length.was) return std::nullopt;
  less.work = change_at(facts, less.at, work);
  if (less.work.is > (1 - kFallMin) * less.work.was) return std::nullopt;
  return less;
}

void add_claims(const std::deque<StepFacts>& facts, const LessWork& less, Finding& finding) {
  Measure work{.of = "work", .name = less.by_flops ? "flops" : "tokens"};
  for (size_t i = less.at; i < facts.size(); ++i) work.steps.push_back(facts[i].number);
  const Measure step{.of = "step_ms", .steps = work.steps};
  const auto add = [&](ClaimKind kind, const std::string& subject, std::string text, ClaimNumbers numbers,
                       const Measure& measure) {
    finding.chain.push_back(claim(kind, subject, std::move(text), std::move(numbers), finding.since_step,
                                  finding.through_step, measure.query()));
  };
  const bool restarted = facts[less.at].attempt != facts[kSettle].attempt;
  add(ClaimKind::kCounter, finding.component,
      format("Since step %s a rank does %.3g %s a step, %.3g before%s.",
             with_thousands(finding.since_step.value()).c_str(), less.work.is, less.what(), less.work.was,
             restarted ? " the restart" : ""),
      {.value = less.work.is, .unit = less.what(), .baseline = less.work.was}, work);
  const std::string now = human_duration(less.length.is);
  add(ClaimKind::kExclusion, "step time",
      format("Not slower steps: they take %s, as before (%s).", now.c_str(), human_duration(less.length.was).c_str()),
      {.value = less.length.is / 1e6, .unit = "ms", .baseline = less.length.was / 1e6}, step);
  const double at_that_rate = less.length.is - less.share * less.length.is;
  add(ClaimKind::kCounterfactual, finding.component,
      format("At the rate of before this work would take %s a step instead of %s.",
             human_duration(at_that_rate).c_str(), now.c_str()),
      {.value = at_that_rate / 1e6, .unit = "ms", .baseline = less.length.is / 1e6}, step);
}

}  // namespace

std::vector<Finding> find_less_work(const JobWindow& window, const std::vector<AttributedRange>&) {
  const std::deque<StepFacts>& facts = window.facts();
  const std::optional<LessWork> less = measure_less_work(facts);
  if (!less) return {};
  Finding finding;
  finding.kind = emits<Emitter::kLessWork, VerdictKind::kInefficient>;
  finding.subject = "less work";
  finding.layer = emits<Emitter::kLessWork, Layer::kWorkload>;
  finding.cause = emits<Emitter::kLessWork, Cause::kLessWork>;
  finding.component = "work of a step";
  finding.since_step = facts[less->at].number;
  finding.through_step = facts.back().number;
  finding.sure = facts.size() - less->at >= kSure;
  finding.step_ns = static_cast<int64_t>(less->length.is);
  finding.lost_ns_per_step = static_cast<int64_t>(less->share * less->length.is);
  finding.step_without_ns = finding.step_ns - finding.lost_ns_per_step;
  const RankRows* newest = window.step(finding.through_step);
  finding.coverage = coverage_of(window, newest != nullptr ? newest->size() : 0);
  finding.confidence = std::min(0.9, 0.4 + 0.03 * static_cast<double>(facts.size() - less->at));
  add_claims(facts, *less, finding);
  finding.next.push_back({"compare batch size, sequence length and data filters with those before this step", ""});
  finding.next.push_back({"see where MFU goes now", "lockstep mfu {job}"});
  finding.sentence =
      format("Steps {take|took} as long as ever and {do|did} less {when}: %.3g %s a rank instead of %.3g, %s less.",
             less->work.is, less->what(), less->work.was, percent(less->share).c_str());
  return {finding};
}

}  // namespace lockstep
