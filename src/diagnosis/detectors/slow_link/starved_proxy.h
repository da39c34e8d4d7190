// Slow flows of a rank whose link is well: NCCL's proxy thread, which moves all of the rank's transfers, gets no CPU.
//
// Thread rule: as the window's.
#pragma once

#include <cstdint>
#include <vector>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep {

// How long a rank's proxy takes per transfer that has arrived until it has handed it on, and how long its peers' do.
// The wire has no part in that, only the thread and its CPU; so where it is slow, slow flows of that rank say nothing
// of a link.
struct Handling {
  double own_ns = 0;    // per transfer
  double peers_ns = 0;  // median over the other ranks
  double step_ns = 0;   // the rank's, over a step
  // As much slower as a flow has to be to be called slow, and for half of the time that its flows are.
  bool starved(double slow_flow_ns) const;
};
// Of all ranks over some steps, which are read once.
class Handlings {
 public:
  Handlings(const JobWindow& window, const std::vector<StepNumber>& steps);
  Handling of(Rank rank) const;

 private:
  struct Sum {
    double ns = 0, transfers = 0;
    double steps = 0;  // that tell of its transfers
  };
  const JobWindow& window_;
  std::vector<Sum> of_slot_;
};
// Says that of a finding of slow flows: it is the host of this rank, not its link.
void blame_starved_proxy(const JobWindow& window, const std::vector<StepNumber>& steps, Rank rank,
                         const Handling& handling, Finding& finding);

// Healthy flows of one ring differ by up to two (who shares a switch, a core, a direction); three is another league.
inline constexpr double kSlowTimes = 3;

}  // namespace lockstep
