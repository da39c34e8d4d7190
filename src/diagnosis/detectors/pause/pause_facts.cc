#include "diagnosis/detectors/pause/pause_facts.h"

#include <algorithm>
#include <limits>

#include "diagnosis/roles.h"

namespace lockstep::pause {
namespace {

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

}  // namespace

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

// Each list is sorted, so the middle is found by halving the range of values: nobody has to put millions of them into one.
double median_longest_ns(const std::vector<const PauseFacts*>& all) {
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

}  // namespace lockstep::pause
