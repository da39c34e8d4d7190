#include "diagnosis/detectors/slow_link/flow_rates.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "diagnosis/sequential/new_level.h"

namespace lockstep::slow_link {
namespace {

// With fewer transfers in a step one of them is always a good part.
constexpr int64_t kTransfersMin = 4;

}  // namespace

bool is_same(const Flow& a, const Flow& b) {
  return a.from == b.from && a.peer == b.peer && a.comm_id == b.comm_id;
}

std::vector<Flow> measure_flows(const JobWindow& window, const std::vector<StepNumber>& steps) {
  std::map<std::tuple<Rank, int32_t, CommId>, Flow> by_key;  // sender, receiver's rank in the communicator
  for (StepNumber number : steps) {
    for (const auto& [rank, row] : *window.step(number)) {
      for (const FlowStep& step : row.summary.flows) {
        if (!step.send || step.bytes <= 0 || step.wire_ns <= 0) continue;
        Flow& flow = by_key[{rank, step.peer, step.comm_id}];
        flow.from = rank;
        flow.to = window.world_rank(step.comm_id, step.peer);
        flow.comm_id = step.comm_id;
        flow.peer = step.peer;
        flow.step.push_back(number);
        flow.bytes_in.push_back(static_cast<double>(step.bytes));
        flow.rate.push_back(static_cast<double>(step.bytes) / static_cast<double>(step.wire_ns));
        flow.wire.push_back(static_cast<double>(step.wire_ns));
        flow.stood.push_back(step.transfers >= kTransfersMin && 2 * step.wire_longest_ns >= step.wire_ns);
      }
    }
  }
  std::vector<Flow> flows;
  for (auto& [key, flow] : by_key) flows.push_back(std::move(flow));
  return flows;
}

std::vector<Flow> flows_since(const std::vector<Flow>& measured, StepNumber from, size_t steps_min) {
  std::vector<Flow> flows;
  for (const Flow& all : measured) {
    const auto before = std::lower_bound(all.step.begin(), all.step.end(), from) - all.step.begin();
    if (all.step.size() - static_cast<size_t>(before) < steps_min) continue;
    Flow& flow = flows.emplace_back(Flow{.from = all.from, .to = all.to, .comm_id = all.comm_id, .peer = all.peer});
    flow.rate.assign(all.rate.begin() + before, all.rate.end());
    flow.wire.assign(all.wire.begin() + before, all.wire.end());
    flow.stood.assign(all.stood.begin() + before, all.stood.end());
    flow.bytes =
        std::accumulate(all.bytes_in.begin() + before, all.bytes_in.end(), 0.0) / static_cast<double>(flow.rate.size());
    flow.typical_rate = median(flow.rate);
    flow.typical_wire = median(flow.wire);
  }
  return flows;
}

double nats_of_flow(const std::vector<Flow>& measured, const Flow& flow, const std::vector<Flow>& slow,
                    StepNumber since) {
  std::vector<const Flow*> like;
  const Flow* itself = nullptr;
  for (const Flow& other : measured) {
    const double bytes = median(other.bytes_in);
    if (is_same(other, flow)) {
      itself = &other;
    } else if (bytes < 2 * flow.bytes && flow.bytes < 2 * bytes &&
               std::none_of(slow.begin(), slow.end(), [&](const Flow& one) { return is_same(one, other); })) {
      like.push_back(&other);
    }
  }
  if (itself == nullptr) return 0;
  std::map<StepNumber, std::vector<double>> rates;  // logarithms
  for (const Flow* other : like)
    for (size_t i = 0; i < other->step.size(); ++i) rates[other->step[i]].push_back(std::log(other->rate[i]));
  std::map<StepNumber, double> middle;
  std::vector<double> usual, slower;
  for (const auto& [step, logs] : rates) {
    middle[step] = median(logs);
    for (double log : logs) usual.push_back(middle[step] - log);
  }
  for (size_t i = 0; i < itself->step.size(); ++i) {
    const auto found = middle.find(itself->step[i]);
    if (itself->step[i] >= since && found != middle.end()) slower.push_back(found->second - std::log(itself->rate[i]));
  }
  return nats_of_level(usual_of(std::move(usual)), slower);
}

ComparedSteps compared_steps(const JobWindow& window, std::vector<StepNumber> steps) {
  ComparedSteps compared{.steps = std::move(steps)};
  std::vector<double> durations;
  for (StepNumber number : compared.steps) {
    std::vector<double> of_ranks;
    for (const auto& [rank, row] : *window.step(number))
      of_ranks.push_back(static_cast<double>(row.summary.duration_ns));
    compared.ranks_seen = std::max(compared.ranks_seen, of_ranks.size());
    durations.push_back(median(std::move(of_ranks)));
  }
  compared.step_ns = median(std::move(durations));
  return compared;
}

}  // namespace lockstep::slow_link
