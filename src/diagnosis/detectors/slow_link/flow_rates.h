// How fast each rank's transfers to each other rank are: the measure of slow flows.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "diagnosis/window.h"

namespace lockstep::slow_link {

struct Flow {
  Rank from = kNoRank;
  Rank to = kNoRank;
  CommId comm_id;
  int32_t peer = -1;             // the receiver's rank in the communicator
  std::vector<StepNumber> step;  // in which it moved anything, and in each of them:
  std::vector<double> bytes_in;  // bytes
  std::vector<double> rate;      // bytes per ns
  std::vector<double> wire;      // ns
  std::vector<bool> stood;       // it was one transfer that took the time: a pause, not a slow link
  double bytes = 0;              // per step
  double typical_rate = 0;
  double typical_wire = 0;
};
bool is_same(const Flow& a, const Flow& b);

// What each sender moved to each receiver in these steps, step by step.
std::vector<Flow> measure_flows(const JobWindow& window, const std::vector<StepNumber>& steps);
// Of the same from that step on, with what is typical there. Flows of too few steps are left out.
std::vector<Flow> flows_since(const std::vector<Flow>& measured, StepNumber from, size_t steps_min);
// How sure it is that a flow is slower than its like since that step: in each step it is compared with what carries
// about as much there, and how these differ tells what is unusual. `slow`: flows that are accused as well.
double nats_of_flow(const std::vector<Flow>& measured, const Flow& flow, const std::vector<Flow>& slow,
                    StepNumber since);

// What these steps took.
struct ComparedSteps {
  std::vector<StepNumber> steps;
  double step_ns = 0;
  size_t ranks_seen = 0;
};
ComparedSteps compared_steps(const JobWindow& window, std::vector<StepNumber> steps);

// What is slow is set apart as well: this part as fast, at most, as everything comparable that has no rank in common
// with it.
inline constexpr double kApartMax = 0.6;

}  // namespace lockstep::slow_link
