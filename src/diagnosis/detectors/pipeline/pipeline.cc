#include "diagnosis/detectors/pipeline/pipeline.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/text.h"
#include "diagnosis/detectors/slow_link/starved_proxy.h"
#include "diagnosis/flow_steps.h"
#include "diagnosis/measure.h"
#include "diagnosis/phrasing.h"
#include "diagnosis/roles.h"
#include "model/rank_text.h"

namespace lockstep {
namespace {

// Steps with transfers that are looked at back in time, and how many of the newest have to say the same.
constexpr size_t kLook = 64;
constexpr size_t kStepsSuspect = 3;
constexpr size_t kStepsSure = 6;
// Neighbours wait for it so many times as long as it waits for them. In healthy pipelines it is about once.
constexpr double kWaitTimes = 3;
// What costs less of a step is nobody's concern; what stages differ by from the beginning, by twice that.
constexpr double kShareMin = 0.05;
// Steps so many times as long as the good ones are slow; waits of less than this part of a good step are none.
constexpr double kSlowStep = 1.1;
constexpr double kLeastWait = 0.002;
// Transfers of a step from which on a flow counts.
constexpr int64_t kTransfersMin = 4;
// A job's first steps: what is so from then on was always so.
constexpr int64_t kFirstSteps = 12;
// Steps that say what was before, and what is now.
constexpr size_t kBeside = 16;
// Its proxy is slow for so much of what is lost: it is that, and nothing else is asked.
constexpr double kStarvedPart = 0.4;

struct Bottleneck {
  Rank rank = kNoRank;
  double others_wait_ns = 0;  // for it, a transfer: the neighbour that waits least
  double waits_ns = 0;        // for a neighbour: the one it waits for most
  // Its link is slow, not the rank: its neighbour waits for it as it waits for that neighbour.
  bool is_link = false;
  Rank other_end = kNoRank;  // kNoRank: its links to all neighbours are slow, or it has one
};

// How long a transfer from one rank to another was waited for, a step; by receiver and sender (kNoRank: one that was never
// heard of). Nothing where not all ranks of the pipelines that are heard of told of their transfers.
struct Waits {
  std::map<std::pair<Rank, Rank>, double> ns;
};
Waits waits_of(const JobWindow& window, const StepFrame& frame) {
  const Pipelines pipelines(window, frame);
  Waits waits;
  size_t members = 0, reported = 0;
  for (size_t slot = 0; slot < frame.rows.size(); ++slot) {
    if (!frame.knows(slot)) continue;
    const Rank rank = window.rank_of(slot);
    members += pipelines.stage_of(frame.rows[slot].summary) >= 0 ? 1 : 0;
    bool has_waits = false;
    for (const FlowStep& flow : frame.rows[slot].summary.flows) {
      if (flow.send || flow.transfers < kTransfersMin || !pipelines.contains(flow.comm_id)) continue;
      const Rank sender = window.world_rank(flow.comm_id, flow.peer);
      waits.ns[{rank, sender}] += static_cast<double>(flow.peer_ns) / static_cast<double>(flow.transfers);
      has_waits = true;
    }
    reported += has_waits ? 1 : 0;
  }
  if (reported < members) waits.ns.clear();
  return waits;
}

// Made once for a step.
const Waits& waits_in(const JobWindow& window, const StepFrame& frame) {
  return frame.derived<Waits>([&] { return waits_of(window, frame); });
}

// The rank that all its neighbours wait for and that waits for none of them, beyond what was usual; kNoRank: there is
// none, or it has an equal. Waits shorter than `least_ns` are none.
Bottleneck bottleneck_of(const JobWindow& window, const StepFrame& frame, const Waits& waits, const Waits& usual,
                         double least_ns) {
  struct Sums {
    double for_it_ns = -1, its_own_ns = -1;
  };
  std::map<Rank, Sums> ranks;
  for (const auto& [ends, wait_ns] : waits.ns) {
    const auto before = usual.ns.find(ends);
    const double ns = std::max(0.0, wait_ns - (before == usual.ns.end() ? 0 : before->second));
    double& own = ranks[ends.first].its_own_ns;
    own = std::max(own, ns);
    double& others = ranks[ends.second].for_it_ns;
    others = others < 0 ? ns : std::min(others, ns);
  }
  Bottleneck found;
  for (const auto& [rank, sums] : ranks) {
    const int32_t slot = window.slot_of(rank);
    if (slot < 0 || sums.its_own_ns < 0 || !is_alone(window, frame, static_cast<size_t>(slot))) continue;
    if (sums.for_it_ns >= kWaitTimes * std::max(least_ns, sums.its_own_ns) && sums.for_it_ns > found.others_wait_ns)
      found = {rank, sums.for_it_ns, sums.its_own_ns};
  }
  return found;
}

// The link whose two ends wait for each other, beyond what was usual. A slow rank waits for nobody, so nowhere do both
// ends wait; and where a link is slow, all others wait towards it. Which end it is the links beside it may tell.
Bottleneck slow_link_of(const Waits& waits, const Waits& usual, double least_ns) {
  auto beyond_usual = [&](Rank receiver, Rank sender) {
    const auto now = waits.ns.find({receiver, sender});
    const auto before = usual.ns.find({receiver, sender});
    return now == waits.ns.end() || before == usual.ns.end() ? 0 : std::max(0.0, now->second - before->second);
  };
  std::map<std::pair<Rank, Rank>, double> both_ns;  // the lower rank first
  for (const auto& [ends, ns] : waits.ns)
    if (ends.first < ends.second)
      both_ns[ends] = std::min(beyond_usual(ends.first, ends.second), beyond_usual(ends.second, ends.first));
  const auto slowest = std::max_element(both_ns.begin(), both_ns.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
  if (slowest == both_ns.end()) return {};
  const auto [low, high] = slowest->first;
  double beside_low_ns = 0, beside_high_ns = 0, elsewhere_ns = 0;
  for (const auto& [ends, ns] : both_ns) {
    if (ends == slowest->first) continue;
    double& most_ns = ends.first == low || ends.second == low     ? beside_low_ns
                      : ends.first == high || ends.second == high ? beside_high_ns
                                                                  : elsewhere_ns;
    most_ns = std::max(most_ns, ns);
  }
  if (slowest->second < kWaitTimes * std::max(least_ns, elsewhere_ns)) return {};
  Bottleneck found{.rank = low,
                   .others_wait_ns = beyond_usual(high, low),
                   .waits_ns = beyond_usual(low, high),
                   .is_link = true,
                   .other_end = high};
  if (beside_high_ns > beside_low_ns) {
    std::swap(found.rank, found.other_end);
    std::swap(found.others_wait_ns, found.waits_ns);
    std::swap(beside_high_ns, beside_low_ns);
  }
  if (beside_low_ns >= kWaitTimes * std::max(least_ns, beside_high_ns)) found.other_end = kNoRank;
  return found;
}

// What each transfer is waited for in most of these steps; nothing where they are too few.
Waits typical_waits(const std::vector<const Waits*>& steps) {
  std::map<std::pair<Rank, Rank>, std::vector<double>> all;
  if (steps.size() < kStepsSuspect) return {};
  for (const Waits* step : steps)
    for (const auto& [ends, ns] : step->ns) all[ends].push_back(ns);
  Waits typical;
  for (auto& [ends, values] : all) typical.ns[ends] = median(std::move(values));
  return typical;
}

// The same in those of the steps that are not slow.
Waits usual_waits(const std::vector<std::pair<double, const Waits*>>& steps, double slow_ns) {
  std::vector<const Waits*> calm;
  for (const auto& [duration_ns, waits] : steps)
    if (duration_ns < slow_ns) calm.push_back(waits);
  return typical_waits(calm);
}

// Since when it is always the same rank; one step may say nothing.
struct Stretch {
  Bottleneck typical;
  std::vector<StepNumber> steps;
  bool has_before = false;  // it is known how long transfers were waited for before
  StepNumber since;         // of the slow steps in a row that these end; not of all of them transfers are known
};

// The first of the slow steps in a row that end at this one.
StepNumber slow_since(const JobWindow& window, StepNumber step, double good_ns) {
  const std::vector<StepNumber>& all = window.complete_steps();
  auto at = std::lower_bound(all.begin(), all.end(), step);
  while (at != all.begin() && lateness(window, *window.frame(*std::prev(at))).duration_ns >= kSlowStep * good_ns) --at;
  return at == all.end() ? step : *at;
}

// The newest slow steps in a row, if both ends of one link waited for each other in them.
std::optional<Stretch> slow_link_stretch(const JobWindow& window, const std::vector<StepNumber>& numbers,
                                         const std::vector<std::pair<double, const Waits*>>& steps, const Waits& usual,
                                         double good_ns) {
  Stretch stretch{.has_before = true};
  std::vector<const Waits*> slow;
  for (size_t i = numbers.size(); i-- > 0 && steps[i].first >= kSlowStep * good_ns;) {
    stretch.steps.insert(stretch.steps.begin(), numbers[i]);
    slow.push_back(steps[i].second);
  }
  if (usual.ns.empty() || slow.size() < kStepsSuspect) return std::nullopt;
  stretch.typical = slow_link_of(typical_waits(slow), usual, kLeastWait * good_ns);
  if (stretch.typical.rank == kNoRank) return std::nullopt;
  stretch.since = slow_since(window, stretch.steps.front(), good_ns);
  return stretch;
}

std::optional<Stretch> newest_stretch(const JobWindow& window) {
  std::vector<StepNumber> numbers = window.complete_steps();
  if (numbers.empty() || lateness(window, *window.frame(numbers.back())).alone == 0) return std::nullopt;
  const std::vector<StepNumber> with_flows = last_steps_with_flows(window, numbers, kLook);
  numbers.clear();
  std::vector<std::pair<double, const Waits*>> steps;
  for (StepNumber number : with_flows) {
    const Waits& waits = waits_in(window, *window.frame(number));
    if (waits.ns.empty()) continue;
    numbers.push_back(number);
    steps.emplace_back(lateness(window, *window.frame(number)).duration_ns, &waits);
  }
  if (numbers.size() < kStepsSuspect) return std::nullopt;
  std::vector<double> durations;
  for (const StepFacts& facts : window.facts()) durations.push_back(facts.duration_ns);
  const double good_ns = quantile(std::move(durations), 0.25);
  // Steps that are not longer than the good ones may all be slow, from the first on: then the waits themselves tell.
  const bool is_slow = steps.back().first >= kSlowStep * good_ns;
  const Waits usual = is_slow ? usual_waits(steps, kSlowStep * good_ns) : Waits{};
  Stretch stretch{.has_before = !usual.ns.empty()};
  std::vector<double> others, own;
  size_t missed = 0;
  for (size_t i = numbers.size(); i-- > 0 && missed <= 1;) {
    const StepFrame& frame = *window.frame(numbers[i]);
    const Bottleneck here = bottleneck_of(window, frame, *steps[i].second, usual, kLeastWait * good_ns);
    const bool slow = usual.ns.empty() || steps[i].first >= kSlowStep * good_ns;
    if (!slow || here.rank == kNoRank || (!stretch.steps.empty() && here.rank != stretch.typical.rank)) {
      if (stretch.steps.empty() && missed > 0) break;
      ++missed;
      continue;
    }
    missed = 0;
    stretch.typical.rank = here.rank;
    stretch.steps.insert(stretch.steps.begin(), numbers[i]);
    others.push_back(here.others_wait_ns);
    own.push_back(here.waits_ns);
  }
  if (stretch.steps.size() < kStepsSuspect) return slow_link_stretch(window, numbers, steps, usual, good_ns);
  stretch.typical.others_wait_ns = median(std::move(others));
  stretch.typical.waits_ns = median(std::move(own));
  stretch.since = stretch.has_before ? slow_since(window, stretch.steps.front(), good_ns) : stretch.steps.front();
  return stretch;
}

struct OwnTimes {
  double own_ns = 0, queue_ns = 0, input_ns = 0;
};

OwnTimes times_of(const JobWindow& window, const std::vector<StepNumber>& steps, Rank rank) {
  std::vector<double> own, queue, input;
  for (StepNumber number : steps) {
    const RankRows* rows = window.step(number);
    if (rows == nullptr || !rows->contains(rank)) continue;
    const RankStep& row = rows->at(rank);
    own.push_back(static_cast<double>(row.own_ns()));
    queue.push_back(static_cast<double>(row.summary.queue_ns));
    input.push_back(static_cast<double>(row.summary.phase_ns[static_cast<size_t>(Phase::kInput)]));
  }
  return {median(std::move(own)), median(std::move(queue)), median(std::move(input))};
}

// Complete steps from `from` on, or those before it: at most kBeside of them, next to it.
std::vector<StepNumber> beside(const JobWindow& window, StepNumber from, bool before) {
  std::vector<StepNumber> all = window.complete_steps();
  const auto at = std::lower_bound(all.begin(), all.end(), from);
  if (before)
    return {at - static_cast<std::ptrdiff_t>(std::min<size_t>(kBeside, static_cast<size_t>(at - all.begin()))), at};
  return {all.end() - static_cast<std::ptrdiff_t>(std::min<size_t>(kBeside, static_cast<size_t>(all.end() - at))),
          all.end()};
}

void add_claims(const Bottleneck& who, bool has_before, const std::vector<StepNumber>& steps, Finding& finding) {
  const std::string subject = format("rank %d", who.rank.value());
  const char* longer = has_before ? " longer than before" : "";
  finding.chain.push_back(
      claim(ClaimKind::kWaitsFor, subject,
            format(who.is_link ? "Over it a transfer is waited for %s%s at one end and %s%s at the other."
                               : "Its neighbours in the pipeline wait at least %s%s for each of its transfers, it "
                                 "waits at most %s%s for theirs.",
                   human_duration(who.others_wait_ns).c_str(), longer, human_duration(who.waits_ns).c_str(), longer),
            {}, steps.front(), steps.back(), steps_query(steps.front(), steps.back())));
  finding.chain.push_back(claim(ClaimKind::kCounterfactual, subject,
                                format("Without it a step would take %s instead of %s.",
                                       human_duration(static_cast<double>(finding.step_without_ns)).c_str(),
                                       human_duration(static_cast<double>(finding.step_ns)).c_str()),
                                {.value = static_cast<double>(finding.step_without_ns) / 1e6,
                                 .unit = "ms",
                                 .baseline = static_cast<double>(finding.step_ns) / 1e6},
                                steps.front(), steps.back(), Measure{.of = "step_ms", .steps = steps}.query()));
}

// What has become longer on this rank: its input, its GPU, or what its host does.
void explain(const JobWindow& window, Rank rank, const std::vector<StepNumber>& now,
             const std::vector<StepNumber>& before, Finding& finding) {
  const std::string subject = format("rank %d", rank.value());
  const OwnTimes is = times_of(window, now, rank), was = times_of(window, before, rank);
  const StepNumber from = now.front(), to = now.back();
  const auto lost = static_cast<double>(finding.lost_ns_per_step);
  auto self_time = [&](const char* text, const char* of, double was_ns) {
    const Measure measure{.of = of, .ranks = {rank}, .steps = now};
    const double is_ms = measured(window, measure);
    finding.chain.push_back(claim(ClaimKind::kSelfTime, subject,
                                  format(text, per_step(is_ms * 1e6).c_str(), human_duration(was_ns).c_str()),
                                  {.value = is_ms, .unit = "ms", .baseline = was_ns / 1e6}, from, to, measure.query()));
  };
  if (is.input_ns - was.input_ns >= 0.5 * lost) {
    finding.layer = emits<Emitter::kPipeline, Layer::kInput>;
    finding.cause = emits<Emitter::kPipeline, Cause::kDataLoader>;
    finding.component = "input of " + subject;
    self_time("It waits %s for its input, before %s.", "input_ms", was.input_ns);
    finding.next.push_back({"look at its data loader: workers, CPU, the shard it reads", "lockstep lines {job}"});
  } else if (const double more = is.own_ns - was.own_ns; more > 0 && is.queue_ns - was.queue_ns >= 0.5 * more) {
    finding.layer = emits<Emitter::kPipeline, Layer::kGpu>;
    finding.cause = emits<Emitter::kPipeline, Cause::kSlowCompute>;
    finding.component = "GPU of " + subject;
    self_time("Its transfers wait %s behind its own kernels, before %s: the host is on time, the GPU is behind.",
              "queue_ms", was.queue_ns);
    finding.next.push_back({"compare its GPU's clocks, temperature and processes with a peer's",
                            "nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE,PIDS"});
  } else {
    finding.layer = emits<Emitter::kPipeline, Layer::kHost>;
    finding.cause = emits<Emitter::kPipeline, Cause::kCpuContention>;
    finding.component = "host side of " + subject;
    self_time("Nothing is queued on its GPU for longer than before (%s, before %s): the host is behind.", "queue_ms",
              was.queue_ns);
    finding.next.push_back(
        {"look at its host: CPU load, cgroup throttling, other processes, a stack of its main thread",
         "py-spy dump --pid PID"});
  }
}

// Both ends of a link wait for each other.
void blame_link(const JobWindow& window, const Bottleneck& who, const std::vector<StepNumber>& steps,
                Finding& finding) {
  finding.layer = emits<Emitter::kPipeline, Layer::kLink>;
  finding.cause = emits<Emitter::kPipeline, Cause::kNicDegraded>;
  finding.component = who.other_end == kNoRank ? format("link of rank %d", who.rank.value())
                                               : format("link between ranks %s", human_ranks(finding.ranks).c_str());
  finding.sentence = format(
      "The %s {is|was} slow: all %d ranks {wait|waited} %s for its transfers {when}: %s of the job.",
      finding.component.c_str(), window.world_size(), per_step(static_cast<double>(finding.lost_ns_per_step)).c_str(),
      percent(static_cast<double>(finding.lost_ns_per_step) / static_cast<double>(finding.step_ns)).c_str());
  finding.chain.push_back(
      claim(ClaimKind::kExclusion, format("rank %d", who.rank.value()),
            "Not the work of a rank: one that is slow waits for nobody, and here each end waits for "
            "the other.",
            {}, steps.front(), steps.back(), steps_query(steps.front(), steps.back())));
  finding.next.push_back({"check its NIC, cable and switch port: speed, errors, rate limits",
                          "ethtool DEV; ethtool -S DEV; tc -s qdisc show dev DEV"});
}

// It was so from the first step on.
void call_uneven(Rank rank, Finding& finding) {
  finding.kind = emits<Emitter::kPipeline, VerdictKind::kInefficient>;
  finding.layer = emits<Emitter::kPipeline, Layer::kWorkload>;
  finding.cause = emits<Emitter::kPipeline, Cause::kStageImbalance>;
  finding.component = format("pipeline stage of rank %d", rank.value());
  finding.alternatives.push_back({format("GPU of rank %d", rank.value()), 0.4,
                                  "it was so from the first step on: more work and a slower GPU look alike",
                                  "GPU clocks and processes of its host, or a kernel profile of it and one neighbour"});
  finding.next.push_back(
      {"move layers from this stage to others, or split the loss layer off; compare the GPU's clocks first",
       "nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE,PIDS"});
}

}  // namespace

std::vector<Finding> find_slow_stages(const JobWindow& window, const std::vector<AttributedRange>&) {
  const std::optional<Stretch> stretch = newest_stretch(window);
  if (!stretch) return {};
  const Rank rank = stretch->typical.rank;
  const StepNumber since = stretch->since, to = stretch->steps.back();
  const std::vector<StepNumber> now = beside(window, since, false), before = beside(window, since, true);
  const double step_ns = median(step_durations(window, now)), usual_ns = window.step_ns_before(since);
  const bool always = usual_ns <= 0 || (!stretch->has_before && since < window.first_step() + kFirstSteps);
  double lost = step_ns - usual_ns;
  if (always) {
    // What the stage takes more than the typical one behind or before it.
    std::vector<double> others;
    for (const auto& [other, identity] : window.ranks())
      if (other != rank) others.push_back(times_of(window, now, other).own_ns);
    lost = times_of(window, now, rank).own_ns - median(std::move(others));
  }
  if (lost < (always ? 2 : 1) * kShareMin * step_ns) return {};
  Finding finding;
  finding.kind = emits<Emitter::kPipeline, VerdictKind::kSlow>;
  finding.ranks = {rank};
  if (stretch->typical.other_end != kNoRank) finding.ranks.push_back(stretch->typical.other_end);
  std::sort(finding.ranks.begin(), finding.ranks.end());
  finding.since_step = since;
  finding.through_step = to;
  finding.sure = stretch->steps.size() >= kStepsSure && finding.ranks.size() == 1;  // which end, signals may tell
  finding.sure_with_signals = true;
  finding.step_ns = static_cast<int64_t>(step_ns);
  finding.lost_ns_per_step = static_cast<int64_t>(std::min(lost, step_ns));
  finding.step_without_ns = finding.step_ns - finding.lost_ns_per_step;
  finding.victims = victims_of(window, finding.ranks);
  finding.coverage = coverage_of(window, window.step(to)->size());
  finding.confidence = std::min(0.95, 0.5 + 0.05 * static_cast<double>(stretch->steps.size()));
  add_claims(stretch->typical, stretch->has_before, now, finding);
  finding.sentence =
      format("%s {makes|made} all %d ranks wait %s {when}: %s of the job.", name_of(window, rank).c_str(),
             window.world_size(), per_step(lost).c_str(), percent(lost / step_ns).c_str());
  if (always) {
    call_uneven(rank, finding);
    finding.sentence = format(
        "%s {has|had} the slowest stage of the pipeline, which everybody {waits|waited} for since its first steps: %s "
        "a "
        "step, %s of the job.",
        name_of(window, rank).c_str(), human_duration(lost).c_str(), percent(lost / step_ns).c_str());
  } else if (const Handling handling = Handlings(window, stretch->steps).of(rank);
             handling.starved(kStarvedPart * lost)) {
    blame_starved_proxy(window, stretch->steps, rank, handling, finding);
  } else if (stretch->typical.is_link) {
    blame_link(window, stretch->typical, stretch->steps, finding);
  } else {
    explain(window, rank, now, before, finding);
  }
  return {finding};
}

}  // namespace lockstep
