#include "diagnosis/detectors/pause/interruptions.h"

#include <algorithm>

#include "diagnosis/roles.h"

namespace lockstep::pause {
namespace {

// An event takes at least this part of a usual step.
constexpr double kEventShare = 0.15;
// A transfer stands still when it takes this many times what the longest transfer of a step usually takes.
constexpr double kStandFactor = 5;
// So many late steps in a row are one stretch, not pauses.
constexpr int64_t kStretchSteps = 3;

// Checkpoint or evaluation, told or seen as a hole between two steps of a rank, explains what happens in this step and,
// since ranks do not end their steps together, in the next. at: of the step among the others.
bool set_aside(const JobWindow& window, const UsualSteps& usual, size_t at) {
  const std::vector<StepNumber>& steps = usual.steps;
  auto explains = [&](const PauseFacts& one) { return one.aside || static_cast<double>(one.hole_ns) > usual.event_ns; };
  if (explains(*usual.facts[at])) return true;
  if (at > 0 && steps[at - 1] == steps[at] - 1) return explains(*usual.facts[at - 1]);
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

// A rank whose transfers stood still in one step.
struct Standing {
  bool inward = false;
  bool outward = false;
  bool undrained = false;
  double ns = 0;
  std::set<Rank> peers;
};

// Goes through the steps and notes each event with whoever has a part in it.
class Collection {
 public:
  Collection(const JobWindow& window, const UsualSteps& usual, const std::vector<AttributedRange>& explained)
      : window_(window), usual_(usual), explained_(explained) {}

  // A step has one event: somebody late, or else somebody quiet, or else transfers that stand.
  void add_step(size_t at) {
    if (!add_late(at) && !add_quiet(at)) add_standing(at);
  }
  Interruptions take();

 private:
  bool has_verdict(Rank rank, StepNumber number) const;
  bool add_late(size_t at);
  bool add_quiet(size_t at);
  void add_standing(size_t at);
  std::map<Rank, Standing> standing_in(size_t at) const;
  void measure_end(const StepSummary& row, size_t at, Standing& how) const;

  const JobWindow& window_;
  const UsualSteps& usual_;
  const std::vector<AttributedRange>& explained_;
  std::map<Rank, Part> parts_;
  std::map<StepNumber, double> late_ns_;  // of whoever was late alone
};

bool Collection::has_verdict(Rank rank, StepNumber number) const {
  return std::any_of(explained_.begin(), explained_.end(), [&](const AttributedRange& entry) {
    return entry.sure && entry.rank == rank && number >= entry.from_step && number <= entry.to_step + 2;
  });
}

bool Collection::add_late(size_t at) {
  const StepNumber number = usual_.steps[at];
  const Latest& late = usual_.facts[at]->latest;
  const Rank latest = late.ns > 0 ? window_.rank_of(late.slot) : kNoRank;
  if (latest == kNoRank || late.ns < usual_.event_ns || late.next_ns >= 0.5 * late.ns || has_verdict(latest, number))
    return false;
  // Who always comes a little later is this late oftener than others are, and does not stop.
  const double always = std::max(0.0, typical_lateness(window_, usual_.steps, late.slot));
  if (late.ns - always < usual_.event_ns) return false;
  parts_[latest].late.push_back(number);
  late_ns_[number] = late.ns;
  return true;
}

bool Collection::add_quiet(size_t at) {
  const StepNumber number = usual_.steps[at];
  const Latest& silent = usual_.facts[at]->quietest;
  if (silent.ns < usual_.event_ns || has_verdict(window_.rank_of(silent.slot), number)) return false;
  Part& part = parts_[window_.rank_of(silent.slot)];
  part.quiet.push_back(number);
  part.lost_ns += silent.ns;
  return true;
}

std::map<Rank, Standing> Collection::standing_in(size_t at) const {
  std::map<Rank, Standing> standing;
  const StepFrame& frame = *window_.frame(usual_.steps[at]);
  for (uint32_t slot : usual_.facts[at]->slots) {
    const Rank rank = window_.rank_of(slot);
    for (const FlowStep& flow : frame.rows[slot].summary.flows) {
      const double ns = static_cast<double>(flow.wire_longest_ns);
      if (!flow.send || ns < usual_.stand_ns) continue;
      const Rank peer = window_.world_rank(flow.comm_id, flow.peer);
      Standing& sender = standing[rank];
      sender.outward = true;
      sender.ns = std::max(sender.ns, ns);
      if (peer == kNoRank) continue;
      sender.peers.insert(peer);
      Standing& receiver = standing[peer];
      receiver.inward = true;
      receiver.ns = std::max(receiver.ns, ns);
      receiver.peers.insert(rank);
    }
  }
  return standing;
}

// What the rank's own row adds about its side.
void Collection::measure_end(const StepSummary& row, size_t at, Standing& how) const {
  // Data that arrived and was not handed on says more of a rank whose transfers stood; alone it only says that its
  // GPU was busy, as in any pipeline.
  for (const FlowStep& flow : row.flows)
    how.undrained |= !flow.send && static_cast<double>(flow.own_gpu_longest_ns) >= 0.7 * how.ns;
  // A transfer is seen to stand only while it is on the wire; the silence around it is the better measure.
  const double longer_ns = usual_.facts[at]->duration_ns - usual_.good_ns;
  how.ns = std::max(how.ns, std::min(longer_ns, static_cast<double>(row.quiet_ns)));
}

void Collection::add_standing(size_t at) {
  const StepNumber number = usual_.steps[at];
  std::map<Rank, Standing> standing = standing_in(at);
  const auto& rows = *window_.step(number);
  if (standing.size() * 2 > rows.size() + 2) return;  // everybody stands: nobody in particular
  // Whoever is at the other end of one that has a verdict stands because of it.
  if (std::any_of(standing.begin(), standing.end(),
                  [&](const auto& entry) { return has_verdict(entry.first, number); }))
    return;
  for (auto& [rank, how] : standing) {
    if (auto row = rows.find(rank); row != rows.end()) measure_end(row->second.summary, at, how);
    Part& part = parts_[rank];
    part.stood.push_back(number);
    part.inward += how.inward;
    part.outward += how.outward;
    part.undrained += how.undrained;
    part.lost_ns += how.ns;
    for (Rank peer : how.peers) ++part.peers[peer];
  }
}

Interruptions Collection::take() {
  Interruptions all{.parts = std::move(parts_)};
  for (auto& [rank, part] : all.parts) {
    drop_stretches(part.late);
    for (StepNumber number : part.late) part.lost_ns += late_ns_[number];
    for (const std::vector<StepNumber>* steps : {&part.late, &part.quiet, &part.stood})
      all.steps.insert(steps->begin(), steps->end());
  }
  return all;
}

}  // namespace

std::vector<StepNumber> Part::steps() const {
  std::vector<StepNumber> all(late);
  all.insert(all.end(), quiet.begin(), quiet.end());
  all.insert(all.end(), stood.begin(), stood.end());
  std::sort(all.begin(), all.end());
  return all;
}

UsualSteps usual_in(const JobWindow& window, std::vector<StepNumber> steps) {
  UsualSteps usual{.steps = std::move(steps)};
  std::vector<double> durations;
  for (StepNumber number : usual.steps) {
    usual.facts.push_back(&facts_in(window, *window.frame(number)));
    usual.ranks_seen = std::max(usual.ranks_seen, window.step(number)->size());
    durations.push_back(usual.facts.back()->duration_ns);
    usual.total_ns += durations.back();
  }
  usual.longest_ns = median_longest_ns(usual.facts);
  usual.good_ns = quantile(durations, 0.25);
  usual.event_ns = std::max(kEventMinNs, kEventShare * usual.good_ns);
  usual.stand_ns = std::max(usual.event_ns, kStandFactor * usual.longest_ns);
  return usual;
}

Interruptions interruptions_in(const JobWindow& window, const UsualSteps& usual,
                               const std::vector<AttributedRange>& explained) {
  Collection collection(window, usual, explained);
  for (size_t at = 0; at < usual.steps.size(); ++at)
    if (!set_aside(window, usual, at)) collection.add_step(at);
  return collection.take();
}

}  // namespace lockstep::pause
