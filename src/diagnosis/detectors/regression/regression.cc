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

double duration_of(const StepFacts& step) {
  return step.duration_ns;
}

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
    const double least = kEarlyTimes * median(column(facts, kEarlySettle, end, duration_of));
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

// The stretch of slow steps that reaches to now; a single quick one does not end it.
struct SlowStretch {
  size_t since = 0;  // the first of them
  size_t steps = 0;  // so many are slow
};
SlowStretch slow_until_now(const std::deque<StepFacts>& facts, size_t baseline_end, double least_ns) {
  SlowStretch slow{.since = facts.size()};
  size_t quick = 0;
  for (size_t i = facts.size(); i-- > baseline_end;) {
    if (facts[i].duration_ns >= least_ns) {
      slow.since = i;
      ++slow.steps;
      quick = 0;
    } else if (++quick > 2 || i + 1 == facts.size()) {
      break;
    }
  }
  return slow;
}

// By how much steps have become longer, and what of them.
struct Rise {
  Before before;
  SlowStretch slow;
  double usual_ns = 0;   // a step before
  double now_ns = 0;     // and since
  double total_ns = 0;   // without what a late rank explains
  double late_ns = 0;    // of whoever has the most to do beside its peers
  bool plain = false;    // far beyond how these steps differ
  bool by_rank = false;  // a rank or stage that is late explains a good part
};

// What lies in the median step between the baseline and now.
template <typename Of>
double rise_of(const std::deque<StepFacts>& facts, const Rise& rise, Of of) {
  return median(column(facts, rise.slow.since, facts.size(), of)) -
         median(column(facts, rise.before.begin, rise.before.end, of));
}

// Nothing where steps take as long as before.
std::optional<Rise> measure_rise(const std::deque<StepFacts>& facts) {
  const std::optional<Before> compared = baseline_of(facts);
  if (!compared) return std::nullopt;
  Rise rise{.before = *compared};
  const std::vector<double> before = column(facts, compared->begin, compared->end, duration_of);
  rise.usual_ns = median(before);
  if (rise.usual_ns <= 0) return std::nullopt;
  const double spread = spread_of(before, rise.usual_ns);
  const double limit = std::max(kShareMin * rise.usual_ns, kSigmas * spread);
  rise.slow = slow_until_now(facts, compared->end, rise.usual_ns + limit);
  const size_t slow = rise.slow.steps;
  if (slow < kAfterPlain) return std::nullopt;
  rise.now_ns = median(column(facts, rise.slow.since, facts.size(), duration_of));
  rise.total_ns = rise.now_ns - rise.usual_ns;
  rise.plain = rise.total_ns >= kPlainTimes * limit;
  const bool steady = rise.total_ns >= kSigmasPlain * spread;  // the job's steps hardly differed before
  if (rise.total_ns < limit || (slow < kAfter && rise.total_ns < 2 * limit && !steady) ||
      (slow < kAfterClear && !rise.plain && !steady))
    return std::nullopt;
  rise.late_ns = rise_of(facts, rise, [](const StepFacts& step) { return step.most_own_ns; });
  // What one slow rank or stage adds is that one's; the rest is the job's.
  rise.by_rank = rise.late_ns > kLateShare * rise.total_ns;
  if (rise.by_rank) rise.total_ns -= rise.late_ns;
  if (rise.total_ns < limit) return std::nullopt;
  return rise;
}

// Whose the rise is.
struct Blame {
  const char* what;  // in one half sentence
  Layer layer;
  Cause cause = Cause::kNone;
  const char* subject = "job";
  const char* component;
  NextAction next;
  std::vector<Alternative> alternatives = {};

  void put_into(Finding& finding) const {
    finding.layer = layer;
    finding.cause = cause;
    finding.subject = subject;
    finding.component = component;
    finding.next.push_back(next);
    finding.alternatives = alternatives;
  }
};

Blame input_to_blame() {
  return {.what = "all ranks wait longer for their input",
          .layer = emits<Emitter::kRegression, Layer::kInput>,
          .cause = emits<Emitter::kRegression, Cause::kStorage>,
          .component = "input of all ranks",
          .next = {"look at the storage that all ranks read from: latency, bandwidth, other readers", ""}};
}

Blame code_to_blame() {
  return {.what = "all ranks take longer for their own work, alike",
          .layer = emits<Emitter::kRegression, Layer::kSoftware>,
          .cause = emits<Emitter::kRegression, Cause::kCodeRegression>,
          .component = "work of all ranks",
          .next = {"compare code, libraries and configuration with those before this step", ""},
          .alternatives = {{"clocks of all GPUs", 0.3, "all ranks are slower by the same amount",
                            "SM clocks, power and temperature of the job's GPUs before and after"}}};
}

Blame fabric_to_blame() {
  return {.what = "communication takes longer on all ranks, and nobody arrives late",
          .layer = emits<Emitter::kRegression, Layer::kSwitch>,
          .cause = emits<Emitter::kRegression, Cause::kCongestion>,
          .subject = kInTheFabric,  // as where single flows show it
          .component = "fabric between the job's hosts",
          .next = {"look at the uplinks: use, ECN marks, pause frames, other jobs on them", ""},
          .alternatives = {{"another setting of the communication library", 0.3, "it began while the job ran",
                            "NCCL_DEBUG=INFO of both runs"}}};
}

// As far as is known, but healthy it is not.
Blame nobody_to_blame() {
  return {.what = "nothing that is measured says why",
          .layer = emits<Emitter::kRegression, Layer::kUnknown>,
          .component = "job",
          .next = {"take a kernel profile of a few ranks, and compare with what changed at this step",
                   "lockstep profile {job} --ranks worst,median --steps 3 --wait"}};
}

// By what of a step became longer. Nothing where that is too little to name anything.
std::optional<Blame> blame(const JobWindow& window, const Rise& rise) {
  const std::deque<StepFacts>& facts = window.facts();
  const double most = 0.5 * rise.total_ns;
  if (rise_of(facts, rise, [](const StepFacts& step) { return step.input_ns; }) >= most) return input_to_blame();
  if (rise_of(facts, rise, [](const StepFacts& step) { return step.own_ns; }) >= most && has_equals(window))
    return code_to_blame();
  if (rise.by_rank) return std::nullopt;
  if (rise_of(facts, rise, [](const StepFacts& step) { return step.comm_ns; }) >= most &&
      rise.slow.steps >= (rise.plain ? kAfterCommPlain : kAfterComm))
    return fabric_to_blame();
  return rise.plain ? std::optional(nobody_to_blame()) : std::nullopt;
}

void set_certainty(const std::deque<StepFacts>& facts, const Rise& rise, Finding& finding) {
  const size_t slow = rise.slow.steps;
  const auto enough = [&](size_t steps) { return enough_steps(steps, kSure, rise.plain, rise.now_ns, kSurePlain); };
  const size_t as_before = kLongerTimes * longest_stretch(facts, rise.slow.since, rise.usual_ns + 0.5 * rise.total_ns);
  finding.sure = slow > as_before && enough(slow - as_before);
  // Communication that is long on all ranks has many reasons, a rank that stops inside it among them: what the fabric
  // says decides. And a rank that tells nothing may be whom all the others wait for.
  if (finding.layer == Layer::kSwitch) {
    finding.sure_with_signals = finding.coverage >= 1 && enough(slow);
    finding.sure = false;
  }
  if (finding.layer == Layer::kUnknown || rise.before.early) finding.sure = false;
  finding.confidence = std::min(0.9, 0.4 + 0.03 * static_cast<double>(slow));
}

void add_claims(const std::deque<StepFacts>& facts, const Rise& rise, const char* what, Finding& finding) {
  const StepNumber from = finding.since_step, to = finding.through_step;
  const auto query = [&](const char* of) {
    Measure measure{.of = of};
    for (size_t i = rise.slow.since; i < facts.size(); ++i) measure.steps.push_back(facts[i].number);
    return measure.query();
  };
  const bool restarted = facts[rise.slow.since].attempt != facts[rise.before.begin].attempt;
  const std::string now = human_duration(rise.now_ns), usual = human_duration(rise.usual_ns);
  finding.chain.push_back(
      claim(ClaimKind::kSelfTime, finding.component,
            format("Since step %s a step takes %s instead of %s%s: %s.", with_thousands(from.value()).c_str(),
                   now.c_str(), usual.c_str(), restarted ? " before the restart" : "", what),
            {.value = rise.now_ns / 1e6, .unit = "ms", .baseline = rise.usual_ns / 1e6}, from, to, query("step_ms")));
  const double latest =
      median(column(facts, rise.slow.since, facts.size(), [](const StepFacts& step) { return step.most_own_ns; }));
  const double latest_before = latest - rise.late_ns;
  finding.chain.push_back(claim(
      ClaimKind::kExclusion, "ranks",
      format("Not one rank: the one with the most to do takes %s more than most, %s before; the step is %s longer.",
             human_duration(latest).c_str(), human_duration(latest_before).c_str(),
             human_duration(rise.total_ns).c_str()),
      {.value = latest / 1e6, .unit = "ms", .baseline = latest_before / 1e6}, from, to, query("most_own_ms")));
  finding.chain.push_back(claim(ClaimKind::kCounterfactual, finding.component,
                                format("As before a step would take %s instead of %s.", usual.c_str(), now.c_str()),
                                {.value = rise.usual_ns / 1e6, .unit = "ms", .baseline = rise.now_ns / 1e6}, from, to,
                                query("step_ms")));
  finding.sentence =
      format("The whole job {is|was} slower {when}: %s, and a step {takes|took} %s instead of %s: %s of the job.", what,
             now.c_str(), usual.c_str(), percent(rise.total_ns / rise.now_ns).c_str());
}

}  // namespace

std::vector<Finding> find_regressions(const JobWindow& window, const std::vector<AttributedRange>&) {
  const std::deque<StepFacts>& facts = window.facts();
  const std::optional<Rise> rise = measure_rise(facts);
  if (!rise) return {};
  const std::optional<Blame> blamed = blame(window, *rise);
  if (!blamed) return {};
  Finding finding;
  finding.kind = emits<Emitter::kRegression, VerdictKind::kSlow>;
  blamed->put_into(finding);
  finding.since_step = facts[rise->slow.since].number;
  finding.through_step = facts.back().number;
  finding.step_ns = static_cast<int64_t>(rise->now_ns);
  finding.step_without_ns = static_cast<int64_t>(rise->usual_ns);
  finding.lost_ns_per_step = static_cast<int64_t>(rise->total_ns);
  const RankRows* newest = window.step(finding.through_step);
  finding.coverage = newest != nullptr ? coverage_of(window, newest->size()) : 1;
  set_certainty(facts, *rise, finding);
  add_claims(facts, *rise, blamed->what, finding);
  return {finding};
}

}  // namespace lockstep
