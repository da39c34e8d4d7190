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

}  // namespace

std::vector<Finding> find_less_work(const JobWindow& window, const std::vector<AttributedRange>&) {
  const std::deque<StepFacts>& facts = window.facts();
  if (facts.size() <= kSettle) return {};
  const bool by_flops = facts.back().flops > 0;
  const auto work = [&](const StepFacts& step) { return by_flops ? step.flops : step.tokens; };
  std::vector<double> rates;
  for (size_t i = kSettle; i < facts.size(); ++i) {
    if (!(work(facts[i]) > 0) || !(facts[i].duration_ns > 0)) return {};  // not told in all of them: nothing to compare
    rates.push_back(work(facts[i]) / facts[i].duration_ns);
  }
  const std::optional<Fall> fall = find_fall(rates);
  if (!fall || fall->after > (1 - kFallMin) * fall->before) return {};
  const size_t at = kSettle + fall->at;
  std::vector<double> lengths_before, lengths_after, work_before, work_after;
  for (size_t i = kSettle; i < facts.size(); ++i) {
    (i < at ? lengths_before : lengths_after).push_back(facts[i].duration_ns);
    (i < at ? work_before : work_after).push_back(work(facts[i]));
  }
  const double length_was = median_of(lengths_before), length = median_of(lengths_after);
  if (length > (1 + kSameLength) * length_was) return {};
  const double was = median_of(work_before), is = median_of(work_after);
  if (is > (1 - kFallMin) * was) return {};

  const char* what = by_flops ? "FLOPs" : "tokens";
  const double share = 1 - fall->after / fall->before;
  const bool restarted = facts[at].attempt != facts[kSettle].attempt;
  Finding finding;
  finding.kind = emits<Emitter::kLessWork, VerdictKind::kInefficient>;
  finding.subject = "less work";
  finding.layer = emits<Emitter::kLessWork, Layer::kWorkload>;
  finding.cause = emits<Emitter::kLessWork, Cause::kLessWork>;
  finding.component = "work of a step";
  finding.since_step = facts[at].number;
  finding.through_step = facts.back().number;
  finding.sure = facts.size() - at >= kSure;
  finding.step_ns = static_cast<int64_t>(length);
  finding.lost_ns_per_step = static_cast<int64_t>(share * length);
  finding.step_without_ns = finding.step_ns - finding.lost_ns_per_step;
  finding.coverage =
      coverage_of(window, window.step(finding.through_step) != nullptr ? window.step(finding.through_step)->size() : 0);
  finding.confidence = std::min(0.9, 0.4 + 0.03 * static_cast<double>(facts.size() - at));
  Measure of_these{.of = "work", .name = by_flops ? "flops" : "tokens"};
  for (size_t i = at; i < facts.size(); ++i) of_these.steps.push_back(facts[i].number);
  const std::string query = of_these.query();
  of_these.of = "step_ms";
  of_these.name.clear();
  finding.chain.push_back(
      claim(ClaimKind::kCounter, finding.component,
            format("Since step %s a rank does %.3g %s a step, %.3g before%s.",
                   with_thousands(finding.since_step.value()).c_str(), is, what, was, restarted ? " the restart" : ""),
            {.value = is, .unit = what, .baseline = was}, finding.since_step, finding.through_step, query));
  finding.chain.push_back(claim(ClaimKind::kExclusion, "step time",
                                format("Not slower steps: they take %s, as before (%s).",
                                       human_duration(length).c_str(), human_duration(length_was).c_str()),
                                {.value = length / 1e6, .unit = "ms", .baseline = length_was / 1e6}, finding.since_step,
                                finding.through_step, of_these.query()));
  finding.chain.push_back(claim(ClaimKind::kCounterfactual, finding.component,
                                format("At the rate of before this work would take %s a step instead of %s.",
                                       human_duration(length - share * length).c_str(), human_duration(length).c_str()),
                                {.value = (length - share * length) / 1e6, .unit = "ms", .baseline = length / 1e6},
                                finding.since_step, finding.through_step, of_these.query()));
  finding.next.push_back({"compare batch size, sequence length and data filters with those before this step", ""});
  finding.next.push_back({"see where MFU goes now", "lockstep mfu {job}"});
  finding.sentence =
      format("Steps {take|took} as long as ever and {do|did} less {when}: %.3g %s a rank instead of %.3g, %s less.", is,
             what, was, percent(share).c_str());
  return {finding};
}

}  // namespace lockstep
