#include "diagnosis/detectors/regression/regression.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/median.h"
#include "base/text.h"
#include "diagnosis/evidence.h"
#include "diagnosis/measure.h"
#include "diagnosis/phrasing.h"
#include "diagnosis/roles.h"

namespace lockstep {
namespace {

// A job's first steps settle; the baseline is what follows.
constexpr size_t kSettle = 8;
constexpr size_t kBefore = 24;  // steps of the baseline, at least kBeforeMin
constexpr size_t kBeforeMin = 12;
constexpr size_t kAfter = 6;           // newest steps that must all be slower,
constexpr size_t kAfterClear = 3;      // or these, by twice the limit,
constexpr size_t kAfterPlain = 2;      // or these, by three times
constexpr size_t kAfterComm = 8;       // communication has many ways to be slow for a while,
constexpr size_t kAfterCommPlain = 3;  // though hardly by so much
constexpr size_t kSure = 8;
constexpr size_t kSurePlain = 6;
// A job that becomes so many times as slow before it has a baseline: what it showed after its very first steps, at least
// so many, is compared with. That is a suspicion, since first steps differ for many reasons.
constexpr double kEarlyTimes = 2;
constexpr size_t kEarlySettle = 2;
constexpr size_t kEarlyMin = 5;
// So many times as long as the job was as slow before does not count: such stretches come two at a time.
constexpr size_t kLongerTimes = 2;
constexpr double kPlainTimes = 3;
constexpr double kShareMin = 0.05;
constexpr double kSigmas = 6;
constexpr double kSigmasPlain = 18;
// A rise of which a late rank explains this much is that rank's.
constexpr double kLateShare = 0.5;

template <typename Of>
std::vector<double> column(const std::deque<StepFacts>& facts, size_t from, size_t to, Of of) {
  std::vector<double> values;
  for (size_t i = from; i < to; ++i) values.push_back(of(facts[i]));
  return values;
}

// Where most ranks are a stage of a pipeline each, own time has waiting in it that nobody sees: it says nothing of work.
bool has_equals(const JobWindow& window) {
  const std::vector<StepNumber> steps = window.complete_steps();
  if (steps.empty()) return true;
  const StepLateness& late = lateness(window, *window.frame(steps.back()));
  return 2 * static_cast<size_t>(late.alone) < late.late_ns.size();
}

// The longest stretch of steps at least so long, before `until`, in a row.
size_t longest_stretch(const std::deque<StepFacts>& facts, size_t until, double least_ns) {
  size_t longest = 0, length = 0;
  for (size_t i = kSettle; i < until; ++i) {
    length = facts[i].duration_ns >= least_ns ? length + 1 : 0;
    longest = std::max(longest, length);
  }
  return longest;
}

// The steps that are compared with: [begin, end).
struct Before {
  size_t begin = kSettle, end = 0;
  bool early = false;
};

// The first split after which all steps but single ones take kEarlyTimes as long as most before it.
std::optional<Before> early_change(const std::deque<StepFacts>& facts) {
  const size_t last_end = std::min(kSettle + kBefore, facts.size() - std::min(facts.size(), kAfter));
  for (size_t end = kEarlySettle + kEarlyMin; end <= last_end; ++end) {
    const double least =
        kEarlyTimes * median(column(facts, kEarlySettle, end, [](const StepFacts& step) { return step.duration_ns; }));
    const auto quick = std::count_if(facts.begin() + static_cast<std::ptrdiff_t>(end), facts.end(),
                                     [&](const StepFacts& step) { return step.duration_ns < least; });
    if (least > 0 && facts[end].duration_ns >= least && 10 * static_cast<size_t>(quick) <= facts.size() - end)
      return Before{kEarlySettle, end, true};
  }
  return std::nullopt;
}

std::optional<Before> baseline_of(const std::deque<StepFacts>& facts) {
  if (const std::optional<Before> early = early_change(facts)) return early;
  if (facts.size() < kSettle + kBeforeMin + kAfterPlain) return std::nullopt;
  return Before{.end = std::min(kSettle + kBefore, facts.size() - kAfterPlain)};
}

}  // namespace

std::vector<Finding> find_regressions(const JobWindow& window, const std::vector<AttributedRange>&) {
  const std::deque<StepFacts>& facts = window.facts();
  const std::optional<Before> compared = baseline_of(facts);
  if (!compared) return {};
  auto duration = [](const StepFacts& step) { return step.duration_ns; };
  const std::vector<double> before = column(facts, compared->begin, compared->end, duration);
  const double usual = median(before);
  const double spread = spread_of(before, usual);
  const double limit = std::max(kShareMin * usual, kSigmas * spread);
  if (usual <= 0) return {};
  // The stretch of slow steps that reaches to now; a single quick one does not end it.
  size_t since = facts.size();
  size_t slow = 0, quick = 0;
  for (size_t i = facts.size(); i-- > compared->end;) {
    if (facts[i].duration_ns >= usual + limit) {
      since = i;
      ++slow;
      quick = 0;
    } else if (++quick > 2 || i + 1 == facts.size()) {
      break;
    }
  }
  if (slow < kAfterPlain) return {};
  const std::vector<double> after = column(facts, since, facts.size(), duration);
  const double now = median(after);
  double rise = now - usual;
  const bool plain = rise >= kPlainTimes * limit;
  const bool steady = rise >= kSigmasPlain * spread;  // the job's steps hardly differed before
  if (rise < limit || (slow < kAfter && rise < 2 * limit && !steady) || (slow < kAfterClear && !plain && !steady))
    return {};
  auto rise_of = [&](auto of) {
    return median(column(facts, since, facts.size(), of)) - median(column(facts, compared->begin, compared->end, of));
  };
  const double late = rise_of([](const StepFacts& step) { return step.most_own_ns; });
  // What one slow rank or stage adds is that one's; the rest is the job's.
  const bool somebody = late > kLateShare * rise;
  if (somebody) rise -= late;
  if (rise < limit) return {};
  const double input = rise_of([](const StepFacts& step) { return step.input_ns; });
  const double own = rise_of([](const StepFacts& step) { return step.own_ns; });
  const double comm = rise_of([](const StepFacts& step) { return step.comm_ns; });

  Finding finding;
  finding.kind = emits<Emitter::kRegression, VerdictKind::kSlow>;
  finding.subject = "job";
  const bool restarted = facts[since].attempt != facts[compared->begin].attempt;
  const StepNumber from = facts[since].number, to = facts.back().number;
  const char* what = nullptr;
  if (input >= 0.5 * rise) {
    finding.layer = emits<Emitter::kRegression, Layer::kInput>;
    finding.cause = emits<Emitter::kRegression, Cause::kStorage>;
    finding.component = "input of all ranks";
    what = "all ranks wait longer for their input";
    finding.next.push_back({"look at the storage that all ranks read from: latency, bandwidth, other readers", ""});
  } else if (own >= 0.5 * rise && has_equals(window)) {
    finding.layer = emits<Emitter::kRegression, Layer::kSoftware>;
    finding.cause = emits<Emitter::kRegression, Cause::kCodeRegression>;
    finding.component = "work of all ranks";
    what = "all ranks take longer for their own work, alike";
    finding.alternatives.push_back({"clocks of all GPUs", 0.3, "all ranks are slower by the same amount",
                                    "SM clocks, power and temperature of the job's GPUs before and after"});
    finding.next.push_back({"compare code, libraries and configuration with those before this step", ""});
  } else if (comm >= 0.5 * rise && !somebody && slow >= (plain ? kAfterCommPlain : kAfterComm)) {
    finding.subject = kInTheFabric;  // as where single flows show it
    finding.layer = emits<Emitter::kRegression, Layer::kSwitch>;
    finding.cause = emits<Emitter::kRegression, Cause::kCongestion>;
    finding.component = "fabric between the job's hosts";
    what = "communication takes longer on all ranks, and nobody arrives late";
    finding.alternatives.push_back({"another setting of the communication library", 0.3, "it began while the job ran",
                                    "NCCL_DEBUG=INFO of both runs"});
    finding.next.push_back({"look at the uplinks: use, ECN marks, pause frames, other jobs on them", ""});
  } else if (plain && !somebody) {
    // Nobody is to blame as far as is known, but healthy it is not.
    finding.layer = emits<Emitter::kRegression, Layer::kUnknown>;
    finding.component = "job";
    what = "nothing that is measured says why";
    finding.next.push_back({"take a kernel profile of a few ranks, and compare with what changed at this step",
                            "lockstep profile {job} --ranks worst,median --steps 3 --wait"});
  } else {
    return {};
  }
  const size_t as_before = kLongerTimes * longest_stretch(facts, since, usual + 0.5 * rise);
  finding.sure = slow > as_before && enough_steps(slow - as_before, kSure, plain, now, kSurePlain);
  // Communication that is long on all ranks has many reasons, a rank that stops inside it among them: what the fabric
  // says decides.
  if (finding.layer == Layer::kSwitch) {
    finding.sure_with_signals = enough_steps(slow, kSure, plain, now, kSurePlain);
    finding.sure = false;
  }
  if (finding.layer == Layer::kUnknown || compared->early) finding.sure = false;
  finding.since_step = from;
  finding.through_step = to;
  finding.step_ns = static_cast<int64_t>(now);
  finding.step_without_ns = static_cast<int64_t>(usual);
  finding.lost_ns_per_step = static_cast<int64_t>(rise);
  finding.coverage = window.world_size() > 0 && window.step(to) != nullptr
                         ? static_cast<double>(window.step(to)->size()) / window.world_size()
                         : 1;
  // A rank that tells nothing may be whom all the others wait for.
  if (finding.layer == Layer::kSwitch && finding.coverage < 1) finding.sure_with_signals = false;
  finding.confidence = std::min(0.9, 0.4 + 0.03 * static_cast<double>(slow));
  const auto query = [&](const char* of) {
    Measure measure{.of = of};
    for (size_t i = since; i < facts.size(); ++i) measure.steps.push_back(facts[i].number);
    return measure.query();
  };
  const double latest =
      median(column(facts, since, facts.size(), [](const StepFacts& step) { return step.most_own_ns; }));
  finding.chain.push_back(claim(
      ClaimKind::kSelfTime, finding.component,
      format("Since step %s a step takes %s instead of %s%s: %s.", with_thousands(from.value()).c_str(),
             human_duration(now).c_str(), human_duration(usual).c_str(), restarted ? " before the restart" : "", what),
      {.value = now / 1e6, .unit = "ms", .baseline = usual / 1e6}, from, to, query("step_ms")));
  finding.chain.push_back(
      claim(ClaimKind::kExclusion, "ranks",
            format("Not one rank: the one with the most to do takes %s more than most, %s before; "
                   "the step is %s longer.",
                   human_duration(latest).c_str(), human_duration(latest - late).c_str(), human_duration(rise).c_str()),
            {.value = latest / 1e6, .unit = "ms", .baseline = (latest - late) / 1e6}, from, to, query("most_own_ms")));
  finding.chain.push_back(claim(ClaimKind::kCounterfactual, finding.component,
                                format("As before a step would take %s instead of %s.", human_duration(usual).c_str(),
                                       human_duration(now).c_str()),
                                {.value = usual / 1e6, .unit = "ms", .baseline = now / 1e6}, from, to,
                                query("step_ms")));
  finding.sentence =
      format("The whole job {is|was} slower {when}: %s, and a step {takes|took} %s instead of %s: %s of the job.", what,
             human_duration(now).c_str(), human_duration(usual).c_str(), percent(rise / now).c_str());
  return {finding};
}

}  // namespace lockstep
