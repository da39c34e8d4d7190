#include "diagnosis/detectors/slow_link/last_data.h"

#include <algorithm>
#include <map>

#include "base/median.h"
#include "diagnosis/sequential/chance.h"

namespace lockstep::slow_link {
namespace {

// Of fewer senders one is the last at most receivers too often.
constexpr size_t kSendersMin = 3;
// Steps before it began that tell what is usual, without the very first ones, which settle.
constexpr size_t kBeforeMin = 5;
constexpr size_t kSettle = 2;
constexpr double kShareMin = 0.05;  // of a step that it costs

bool has_come(const FlowStep& flow) {
  return !flow.send && flow.transfers > 0;
}

// What came to a rank from one other, and how long it waited there for the GPU.
struct Came {
  int32_t from = -1;
  double waited_ns = 0;  // a transfer
};

// From whom a rank's data came last in a communicator; -1: two waited alike, or too few send to tell.
int32_t last_of(const std::vector<Came>& came) {
  if (came.size() < kSendersMin) return -1;
  const auto least = std::min_element(came.begin(), came.end(),
                                      [](const Came& a, const Came& b) { return a.waited_ns < b.waited_ns; });
  const auto alike = std::count_if(came.begin(), came.end(),
                                   [&](const Came& one) { return one.waited_ns <= least->waited_ns; });
  return alike == 1 ? least->from : -1;
}

struct Votes {
  size_t last = 0, received = 0;  // receivers at which its data was the last; that had any of it
};

// By communicator: whose data was the last at more than half of those that it came to.
std::map<CommId, int32_t> last_in(const StepFrame& frame) {
  std::map<CommId, std::map<int32_t, Votes>> votes;
  std::map<CommId, std::vector<Came>> came;
  for (size_t slot = 0; slot < frame.rows.size(); ++slot) {
    if (!frame.knows(slot)) continue;
    const std::vector<FlowStep>& flows = frame.rows[slot].summary.flows;
    const auto received = std::count_if(flows.begin(), flows.end(), has_come);
    if (static_cast<size_t>(received) < kSendersMin) continue;  // a ring, at every look of every job
    came.clear();
    for (const FlowStep& flow : flows) {
      if (has_come(flow))
        came[flow.comm_id].push_back(
            {flow.peer, static_cast<double>(flow.own_gpu_ns) / static_cast<double>(flow.transfers)});
    }
    for (const auto& [comm_id, all] : came) {
      const int32_t last = last_of(all);
      if (last < 0) continue;
      std::map<int32_t, Votes>& here = votes[comm_id];
      for (const Came& one : all) ++here[one.from].received;
      ++here[last].last;
    }
  }
  std::map<CommId, int32_t> found;
  for (const auto& [comm_id, senders] : votes) {
    for (const auto& [sender, count] : senders) {
      if (count.received >= kSendersMin && 2 * count.last > count.received) found[comm_id] = sender;
    }
  }
  return found;
}

// Who it is in the newest steps, and since when. The steps of one communicator in which there was anybody, in order.
struct Event {
  StepNumber step;
  int32_t sender;
};
LastData since_when(const std::vector<Event>& events, int32_t sender, size_t alike) {
  LastData best;
  size_t hits = 0, all = 0;
  for (auto event = events.rbegin(); event != events.rend(); ++event) {
    ++all;
    if (event->sender != sender) continue;
    ++hits;
    const double nats = nats_of_share(hits, all, alike);
    if (nats <= best.nats) continue;
    best.nats = nats;
    best.hits = hits;
    best.events = all;
    best.steps = {event->step};
  }
  return best;
}

struct Usual {
  double step_ns = 0, comm_ns = 0;
  size_t steps = 0;
};
Usual usual_in(const JobWindow& window, StepNumber since, bool before) {
  std::vector<double> step, comm;
  size_t settled = 0;
  for (const StepFacts& facts : window.facts()) {
    if ((facts.number < since) != before || (before && settled++ < kSettle)) continue;
    step.push_back(facts.duration_ns);
    comm.push_back(facts.comm_ns);
  }
  const size_t steps = step.size();
  return {median(std::move(step)), median(std::move(comm)), steps};
}

// The rank is not late itself: then its data is the last because of that.
bool is_late(const JobWindow& window, const LastData& last) {
  std::vector<double> own, others;
  for (StepNumber number : last.steps) {
    for (const auto& [rank, row] : *window.step(number))
      (rank == last.rank ? own : others).push_back(static_cast<double>(row.own_ns()));
  }
  return median(std::move(own)) - median(std::move(others)) > 0.5 * last.saved_ns;
}

}  // namespace

std::optional<LastData> whose_data_is_last(const JobWindow& window, const std::vector<StepNumber>& steps) {
  std::map<CommId, std::vector<Event>> events;
  for (StepNumber number : steps) {
    for (const auto& [comm_id, sender] : last_in(*window.frame(number))) events[comm_id].push_back({number, sender});
  }
  LastData found;
  for (const auto& [comm_id, all] : events) {
    const auto comm = window.comms().find(comm_id);
    if (comm == window.comms().end()) continue;
    LastData last = since_when(all, all.back().sender, comm->second.world_rank.size());
    if (last.nats <= found.nats) continue;
    found = std::move(last);
    found.comm_id = comm_id;
    found.rank = window.world_rank(comm_id, all.back().sender);
  }
  if (found.rank == kNoRank || found.nats < window.suspect_nats()) return std::nullopt;
  const StepNumber since = found.steps.front();
  found.steps.assign(std::lower_bound(steps.begin(), steps.end(), since), steps.end());
  const Usual before = usual_in(window, since, true), now = usual_in(window, since, false);
  if (before.steps < kBeforeMin || now.steps == 0) return std::nullopt;
  found.now_ns = now.step_ns;
  const double longer_ns = now.step_ns - before.step_ns;
  found.saved_ns = std::min(longer_ns, now.comm_ns - before.comm_ns);
  if (found.saved_ns < kShareMin * now.step_ns || found.saved_ns < 0.5 * longer_ns || is_late(window, found))
    return std::nullopt;
  return found;
}

}  // namespace lockstep::slow_link
