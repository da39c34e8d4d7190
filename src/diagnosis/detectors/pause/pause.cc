#include "diagnosis/detectors/pause/pause.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "base/text.h"
#include "diagnosis/detectors/pause/seen_stopped.h"
#include "diagnosis/detectors/straggler/own_time.h"
#include "diagnosis/measure.h"
#include "diagnosis/phrasing.h"
#include "diagnosis/roles.h"
#include "diagnosis/sequential/chance.h"

namespace lockstep {
namespace {

constexpr size_t kWindow = 96;
constexpr size_t kStepsMin = 8;
// An event takes at least this part of a usual step, and at least this long: shorter ones are noise.
constexpr double kEventShare = 0.15;
constexpr double kEventMinNs = 20e6;
// A transfer stands still when it takes this many times what the longest transfer of a step usually takes.
constexpr double kStandFactor = 5;
constexpr int64_t kRecentSteps = 16;
// One pair alone may be half of the picture of a paused process: to call it a link takes more.
constexpr size_t kEventsSureLink = 12;
// They cost the job something.
constexpr double kLostShareMin = 0.03;
constexpr double kLostShareSignals = 0.01;  // with signals that explain it
// So many late steps in a row are one stretch, not pauses.
constexpr int64_t kStretchSteps = 3;
// Nothing is concluded from a job's first steps.
constexpr int64_t kSettleSteps = 6;

struct Part {
  std::vector<StepNumber> late;   // steps in which the rank alone was late
  std::vector<StepNumber> quiet;  // steps in which its process alone made no call
  std::vector<StepNumber> stood;  // steps in which a transfer from or to it stood still
  size_t inward = 0;              // of those: towards it
  size_t outward = 0;             // of those: from it
  size_t undrained = 0;           // of those: data that had arrived was not handed to its GPU meanwhile
  double lost_ns = 0;
  std::map<Rank, size_t> peers;  // who was at the other end
  size_t events() const { return late.size() + quiet.size() + stood.size(); }
  std::vector<StepNumber> steps() const {
    std::vector<StepNumber> all(late);
    all.insert(all.end(), quiet.begin(), quiet.end());
    all.insert(all.end(), stood.begin(), stood.end());
    std::sort(all.begin(), all.end());
    return all;
  }
};

// What one step says of pauses.
struct PauseFacts {
  double duration_ns = 0;             // median over the ranks
  std::vector<int64_t> longest_ns;    // of each rank the longest transfer that it sent; sorted
  std::vector<uint32_t> slots;        // by rank, of those whose longest may be one that stood still
  bool aside = false;                 // a rank told of a checkpoint or an evaluation
  Latest quietest;                    // quietest_of
  Latest latest;                      // of the ranks' lateness
  const StepFrame* before = nullptr;  // the step before, with so many rows, and
  size_t before_rows = 0;
  int64_t hole_ns = 0;  // the longest time between it and this one on a rank
};

// It goes through collectives with others of which nobody is heard of: they would be quiet when it is, whoever they all
// wait for, and nobody else can be asked.
bool is_heard_alone(const StepFrame& frame, size_t of_slot) {
  const std::vector<CommStep>& groups = frame.rows[of_slot].summary.comms;
  return std::any_of(groups.begin(), groups.end(), [&](const CommStep& group) {
    if (group.p2p || group.size < 2) return false;
    for (size_t slot = 0; slot < frame.rows.size(); ++slot) {
      if (slot == of_slot || frame.state[slot] == 0) continue;
      for (const CommStep& comm : frame.rows[slot].summary.comms)
        if (comm.comm_id == group.comm_id) return false;
    }
    return true;
  });
}

// The process that made no call for longest while it had operations in flight: how much longer than any other.
// Whoever waits for a process that stands still is quiet too, but begins later. Ranks that have nobody of their role to
// compare with are left out: a stage of a pipeline may wait long by its place. So are those whose companions are not
// heard of.
Latest quietest_of(const JobWindow& window, const StepFrame& frame) {
  constexpr size_t kPeersMin = 3;
  const std::vector<uint32_t>& role = lateness(window, frame).role;
  std::vector<float> quiet_ns(frame.rows.size(), std::numeric_limits<float>::quiet_NaN());
  for (size_t slot = 0; slot < frame.rows.size(); ++slot)
    if (frame.knows(slot)) quiet_ns[slot] = static_cast<float>(frame.rows[slot].summary.quiet_ns);
  const Latest most = largest_of(quiet_ns);
  if (most.ns <= 0) return {};
  size_t peers = 0;
  const bool detailed = !frame.rows[most.slot].summary.flows.empty();
  for (size_t slot = 0; slot < frame.rows.size(); ++slot)
    peers += frame.knows(slot) && role[slot] == role[most.slot] && !frame.rows[slot].summary.flows.empty() == detailed;
  return peers >= kPeersMin && !is_heard_alone(frame, most.slot)
             ? Latest{most.slot, most.ns - most.next_ns, most.next_ns}
             : Latest{};
}

PauseFacts facts_of(const JobWindow& window, const StepFrame& frame) {
  PauseFacts facts;
  std::vector<double> durations;
  for (uint32_t slot : window.order()) {
    if (slot >= frame.rows.size() || frame.state[slot] == 0) continue;
    // Phases and step marks come from the host: they hold where GPU times are unknown.
    const StepSummary& step = frame.rows[slot].summary;
    const int64_t aside =
        step.phase_ns[static_cast<size_t>(Phase::kCheckpoint)] + step.phase_ns[static_cast<size_t>(Phase::kEval)];
    facts.aside |= aside * 20 > step.duration_ns;
    if (!frame.knows(slot)) continue;
    durations.push_back(static_cast<double>(step.duration_ns));
    int64_t most = 0;
    for (const FlowStep& flow : step.flows) {
      if (flow.send) most = std::max(most, flow.wire_longest_ns);
    }
    facts.longest_ns.push_back(most);
    if (static_cast<double>(most) >= kEventMinNs) facts.slots.push_back(slot);
  }
  std::sort(facts.longest_ns.begin(), facts.longest_ns.end());
  facts.duration_ns = median(std::move(durations));
  facts.quietest = quietest_of(window, frame);
  facts.latest = lateness(window, frame).latest;
  facts.before = window.frame(frame.number - 1);
  if (facts.before == nullptr) return facts;
  facts.before_rows = facts.before->known.size() + facts.before->unknown.size();
  for (size_t slot = 0; slot < std::min(frame.rows.size(), facts.before->rows.size()); ++slot) {
    if (frame.state[slot] == 0 || facts.before->state[slot] == 0) continue;
    const StepSummary& previous = facts.before->rows[slot].summary;
    facts.hole_ns =
        std::max(facts.hole_ns, frame.rows[slot].summary.start_unix_ns - previous.start_unix_ns - previous.duration_ns);
  }
  return facts;
}

const PauseFacts& facts_in(const JobWindow& window, const StepFrame& frame) {
  auto make = [&] { return facts_of(window, frame); };
  const PauseFacts& facts = frame.derived<PauseFacts>(make);
  // A late word about the step before changes what is between the two.
  const StepFrame* before = window.frame(frame.number - 1);
  if (before == facts.before &&
      (before == nullptr || before->known.size() + before->unknown.size() == facts.before_rows))
    return facts;
  frame.forget<PauseFacts>();
  return frame.derived<PauseFacts>(make);
}

// The median over all of these, each of them sorted: found by halving the range of values, so that nobody has to put
// millions of them into one list.
double median_over(const std::vector<const PauseFacts*>& all) {
  size_t count = 0;
  int64_t most = 0;
  for (const PauseFacts* one : all) {
    count += one->longest_ns.size();
    if (!one->longest_ns.empty()) most = std::max(most, one->longest_ns.back());
  }
  if (count == 0) return 0;
  auto nth = [&](size_t n) {  // the least value that more than n are not above
    int64_t low = 0, high = most;
    while (low < high) {
      const int64_t half = low + (high - low) / 2;
      size_t below = 0;
      for (const PauseFacts* one : all)
        below += static_cast<size_t>(std::upper_bound(one->longest_ns.begin(), one->longest_ns.end(), half) -
                                     one->longest_ns.begin());
      if (below > n) {
        high = half;
      } else {
        low = half + 1;
      }
    }
    return static_cast<double>(low);
  };
  return count % 2 == 1 ? nth(count / 2) : (nth(count / 2) + nth(count / 2 - 1)) / 2;
}

// Checkpoint or evaluation, told or seen as a hole between two steps of a rank, explains what happens in this step and,
// since ranks do not end their steps together, in the next. at: of the step whose facts these are among the others'.
bool set_aside(const JobWindow& window, const std::vector<StepNumber>& steps,
               const std::vector<const PauseFacts*>& facts, size_t at, double event_ns) {
  auto explains = [&](const PauseFacts& one) { return one.aside || static_cast<double>(one.hole_ns) > event_ns; };
  if (explains(*facts[at])) return true;
  if (at > 0 && steps[at - 1] == steps[at] - 1) return explains(*facts[at - 1]);
  const StepFrame* before = window.frame(steps[at] - 1);
  return before != nullptr && explains(facts_in(window, *before));
}

// Drops the steps that belong to a stretch of kStretchSteps or more neighbours.
void drop_stretches(std::vector<StepNumber>& steps) {
  std::vector<StepNumber> kept;
  for (size_t begin = 0; begin < steps.size();) {
    size_t end = begin + 1;
    while (end < steps.size() && steps[end] <= steps[end - 1] + 1) ++end;
    if (static_cast<int64_t>(end - begin) < kStretchSteps)
      kept.insert(kept.end(), steps.begin() + static_cast<std::ptrdiff_t>(begin),
                  steps.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
  }
  steps = std::move(kept);
}

}  // namespace

std::vector<Finding> find_pauses(const JobWindow& window, const std::vector<AttributedRange>& explained) {
  // While one is seen to be stopped, that others stand still too is its echo.
  if (std::vector<Finding> seen = find_seen_stopped(window); !seen.empty()) return seen;
  std::vector<StepNumber> steps = window.complete_steps();
  std::erase_if(steps, [&](StepNumber number) { return number < window.first_step() + kSettleSteps; });
  if (steps.size() > kWindow) steps.erase(steps.begin(), steps.end() - kWindow);
  if (steps.size() < kStepsMin) return {};

  // What is usual here: how long a step takes, and how long the longest transfer of a rank's step does.
  std::vector<double> durations;
  std::vector<const PauseFacts*> facts;
  std::map<StepNumber, double> duration;
  size_t ranks_seen = 0;
  for (StepNumber number : steps) {
    facts.push_back(&facts_in(window, *window.frame(number)));
    ranks_seen = std::max(ranks_seen, window.step(number)->size());
    durations.push_back(facts.back()->duration_ns);
    duration[number] = durations.back();
  }
  const double longest_ns = median_over(facts);
  const double good_ns = quantile(durations, 0.25);
  if (good_ns <= 0) return {};
  const double event_ns = std::max(kEventMinNs, kEventShare * good_ns);
  const double stand_ns = std::max(event_ns, kStandFactor * longest_ns);
  double total_ns = 0;
  for (double ns : durations) total_ns += ns;

  auto has_verdict = [&](Rank rank, StepNumber number) {
    return std::any_of(explained.begin(), explained.end(), [&](const AttributedRange& entry) {
      return entry.sure && entry.rank == rank && number >= entry.from_step && number <= entry.to_step + 2;
    });
  };
  std::map<Rank, Part> parts;
  std::map<StepNumber, std::map<Rank, double>> late_in;  // step -> rank -> how late
  for (size_t at = 0; at < steps.size(); ++at) {
    const StepNumber number = steps[at];
    if (set_aside(window, steps, facts, at, event_ns)) continue;
    const Latest& late = facts[at]->latest;
    const Rank latest = late.ns > 0 ? window.rank_of(late.slot) : kNoRank;
    if (latest != kNoRank && late.ns >= event_ns && late.next_ns < 0.5 * late.ns && !has_verdict(latest, number)) {
      parts[latest].late.push_back(number);
      late_in[number][latest] = late.ns;
      continue;
    }
    const Latest& silent = facts[at]->quietest;
    if (silent.ns >= event_ns && !has_verdict(window.rank_of(silent.slot), number)) {
      Part& part = parts[window.rank_of(silent.slot)];
      part.quiet.push_back(number);
      part.lost_ns += silent.ns;
      continue;
    }
    struct Stood {
      bool inward = false;
      bool outward = false;
      bool undrained = false;
      double ns = 0;
      std::set<Rank> peers;
    };
    std::map<Rank, Stood> stood;
    const auto& rows = *window.step(number);
    for (uint32_t slot : facts[at]->slots) {
      const Rank rank = window.rank_of(slot);
      for (const FlowStep& flow : window.frame(number)->rows[slot].summary.flows) {
        double ns = static_cast<double>(flow.wire_longest_ns);
        if (!flow.send || ns < stand_ns) continue;
        Rank peer = window.world_rank(flow.comm_id, flow.peer);
        stood[rank].outward = true;
        stood[rank].ns = std::max(stood[rank].ns, ns);
        if (peer != kNoRank) {
          stood[rank].peers.insert(peer);
          stood[peer].inward = true;
          stood[peer].ns = std::max(stood[peer].ns, ns);
          stood[peer].peers.insert(rank);
        }
      }
    }
    if (stood.size() * 2 > rows.size() + 2) continue;  // everybody stands: nobody in particular
    // Whoever is at the other end of one that has a verdict stands because of it.
    if (std::any_of(stood.begin(), stood.end(), [&](const auto& entry) { return has_verdict(entry.first, number); }))
      continue;
    for (auto& [rank, how] : stood) {
      // Data that arrived and was not handed on says more of a rank whose transfers stood; alone it only says that its
      // GPU was busy, as in any pipeline.
      if (auto row = rows.find(rank); row != rows.end()) {
        for (const FlowStep& flow : row->second.summary.flows)
          how.undrained |= !flow.send && static_cast<double>(flow.own_gpu_longest_ns) >= 0.7 * how.ns;
      }
      // A transfer is seen to stand only while it is on the wire; the silence around it is the better measure.
      if (auto row = rows.find(rank); row != rows.end()) {
        how.ns =
            std::max(how.ns, std::min(duration[number] - good_ns, static_cast<double>(row->second.summary.quiet_ns)));
      }
      Part& part = parts[rank];
      part.stood.push_back(number);
      part.inward += how.inward;
      part.outward += how.outward;
      part.undrained += how.undrained;
      part.lost_ns += how.ns;
      for (Rank peer : how.peers) ++part.peers[peer];
    }
  }
  std::set<StepNumber> eventful;
  for (auto& [rank, part] : parts) {
    drop_stretches(part.late);
    for (StepNumber number : part.late) part.lost_ns += late_in[number][rank];
    eventful.insert(part.late.begin(), part.late.end());
    eventful.insert(part.quiet.begin(), part.quiet.end());
    eventful.insert(part.stood.begin(), part.stood.end());
  }
  if (eventful.empty()) return {};

  Rank culprit = kNoRank;
  size_t most_events = 0, most_own = 0;
  for (const auto& [rank, part] : parts) {
    // A transfer that stands accuses both ends alike; what tells them apart is which end left arrived data lying or was
    // late itself, or stands between two of them. Of a single link, the sender is named.
    size_t own = (part.undrained + part.late.size() + part.quiet.size()) * 3 + (part.peers.size() >= 2 ? 2 : 0) +
                 (part.outward > 0 ? 1 : 0);
    if (part.events() > most_events || (part.events() == most_events && own > most_own)) {
      culprit = rank;
      most_events = part.events();
      most_own = own;
    }
  }
  if (culprit == kNoRank) return {};
  const Part& part = parts[culprit];
  if (part.events() == 0) return {};
  Repetition seen{.hits = most_events,
                  .steps = steps.size(),
                  .size = part.lost_ns / static_cast<double>(most_events),
                  .others_hits = eventful.size() - most_events,
                  .others_steps = (window.slots() - 1) * steps.size()};
  const auto slot = static_cast<size_t>(window.slot_of(culprit));
  for (const PauseFacts* one : facts)
    seen.others_largest = std::max({seen.others_largest, one->latest.of_others(slot), one->quietest.of_others(slot)});
  // Transfers have no size that could be compared with that.
  if (!part.stood.empty()) seen.size = 0;
  const double nats = nats_of(seen) + nats_of_windows(steps.size());
  const bool often = nats >= window.suspect_nats() && part.lost_ns >= kLostShareMin * total_ns;
  const bool large = nats >= window.suspect_nats() - witness_nats() && part.lost_ns >= kLostShareSignals * total_ns &&
                     part.steps().back() + kRecentSteps >= steps.back();
  if (!often && !large) return {};
  bool own_side =
      part.undrained > 0 || !part.late.empty() || !part.quiet.empty() || (part.inward > 0 && part.outward > 0);

  Finding finding;
  finding.kind = emits<Emitter::kPause, VerdictKind::kSlow>;
  finding.ranks = {culprit};
  finding.sure = often && nats >= window.sure_nats() && (own_side || most_events >= kEventsSureLink);
  finding.sure_with_signals = nats >= window.sure_nats() - witness_nats();
  finding.only_with_signals = !often;
  std::vector<StepNumber> hit = part.steps();
  finding.since_step = hit.front();
  finding.through_step = hit.back();
  finding.clear_after_steps = 40;
  double in_steps = static_cast<double>(
      std::count_if(steps.begin(), steps.end(), [&](StepNumber number) { return number >= hit.front(); }));
  finding.steps_hit = std::min(0.99, static_cast<double>(hit.size()) / std::max(1.0, in_steps));
  double per_hit = part.lost_ns / static_cast<double>(most_events);
  finding.lost_ns_per_step = static_cast<int64_t>(part.lost_ns / std::max(1.0, in_steps));
  finding.step_ns = static_cast<int64_t>(good_ns + per_hit);
  finding.step_without_ns = static_cast<int64_t>(good_ns);
  finding.victims = victims_of(window, finding.ranks);
  finding.coverage = coverage_of(window, ranks_seen);
  finding.confidence = std::min(0.95, 0.4 + 0.05 * static_cast<double>(most_events));
  double share = part.lost_ns / total_ns;
  StepNumber from = hit.front(), to = hit.back();
  std::string subject = format("rank %d", culprit.value());
  const std::string good_query = Measure{.of = "step_quarter_ms", .steps = steps}.query();
  const Measure stood{.of = "stood_ms", .ranks = {culprit}, .steps = hit};
  const double stood_ms = measured(window, stood);
  double every = 1 / std::max(0.001, finding.steps_hit);

  finding.chain.push_back(
      claim(ClaimKind::kWaitsFor, subject,
            format("Rank %d has a part in %zu of the %zu interruptions since step %s.", culprit.value(), most_events,
                   eventful.size(), with_thousands((*eventful.begin()).value()).c_str()),
            {.value = static_cast<double>(most_events),
             .unit = "steps",
             .peers = static_cast<double>(eventful.size() - most_events)},
            from, to, Measure{.of = "steps", .ranks = {culprit}, .steps = hit}.query()));
  if (own_side && part.stood.empty() && part.quiet.empty()) {
    explain_own_time(window, {culprit}, part.late, finding);
  } else if (own_side) {
    finding.layer = emits<Emitter::kPause, Layer::kHost>;
    finding.cause = emits<Emitter::kPause, Cause::kProcessPaused>;
    finding.component = format("process of rank %d", culprit.value());
    std::string still;
    if (!part.quiet.empty())
      still = format("In %zu steps it made no call for longer than any other rank, with operations in flight",
                     part.quiet.size());
    if (!part.stood.empty())
      still += format("%s from and to it stood still in %zu steps", still.empty() ? "Transfers" : "; transfers",
                      part.stood.size());
    finding.chain.push_back(
        claim(ClaimKind::kSelfTime, subject,
              format("%s%s, %s at a time: the process was not running.", still.c_str(),
                     part.late.empty() ? "" : format(", and it was late itself in %zu", part.late.size()).c_str(),
                     human_duration(stood_ms * 1e6).c_str()),
              {.value = stood_ms, .unit = "ms", .peers = longest_ns / 1e6}, from, to, stood.query()));
    finding.alternatives.push_back({format("NIC of rank %d", culprit.value()), 0.3,
                                    "data that had arrived was not handed on either: that is the process, not the wire",
                                    "NIC counters of its host"});
    finding.next.push_back(
        {"look for what stops the process: SIGSTOP, cgroup freezer or CPU quota, a debugger, swapping",
         "cat /sys/fs/cgroup/.../cpu.stat"});
  } else {
    finding.layer = emits<Emitter::kPause, Layer::kLink>;
    finding.cause = emits<Emitter::kPause, Cause::kLinkFlap>;
    Rank peer = part.peers.empty()
                    ? kNoRank
                    : std::max_element(part.peers.begin(), part.peers.end(), [](const auto& a, const auto& b) {
                        return a.second < b.second;
                      })->first;
    finding.component = format("link between rank %d and rank %d", culprit.value(), peer.value());
    finding.chain.push_back(
        claim(ClaimKind::kSelfTime, subject,
              format("Transfers between rank %d and rank %d stood still in %zu steps, %s at a time; "
                     "each rank's own work took as long as ever.",
                     culprit.value(), peer.value(), part.stood.size(), human_duration(stood_ms * 1e6).c_str()),
              {.value = stood_ms, .unit = "ms", .peers = longest_ns / 1e6}, from, to, stood.query()));
    finding.next.push_back({"look at the link's error and flap counters on both hosts", "ethtool -S DEV"});
  }
  finding.chain.push_back(claim(ClaimKind::kExclusion, subject,
                                format("Not a steady slowness: in the other steps its own time and its transfers are "
                                       "like its peers'; a step takes %s then.",
                                       human_duration(good_ns).c_str()),
                                {.value = good_ns / 1e6, .unit = "ms"}, steps.front(), steps.back(), good_query));
  finding.chain.push_back(claim(ClaimKind::kCounterfactual, subject,
                                format("Without the pauses no step would wait %s for it, as %s does now.",
                                       human_duration(per_hit).c_str(), one_step_of(every).c_str()),
                                {.value = good_ns / 1e6, .unit = "ms", .baseline = (good_ns + per_hit) / 1e6}, from, to,
                                good_query));
  finding.sentence =
      format("%s {stops|stopped} now and then and {makes|made} everybody wait %s in %s {when}: %s of the job.",
             name_of(window, culprit).c_str(), human_duration(per_hit).c_str(), one_step_of(every).c_str(),
             percent(share).c_str());
  return {finding};
}

}  // namespace lockstep
