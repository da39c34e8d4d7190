// How far the account of a job's losses and its MFU are from what was injected: plays a scenario into the product, and
// beside it the same fleet with each set of its faults, which tells what they really cost.
//
// The truth of a fault's share is its Shapley value: what it adds to the time of the run, averaged over the orders in
// which the faults could have come. It adds up to what all cost together and is fair to causes that hide each other.
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>
#include <vector>

#include "sim/scenario/scenario.h"

namespace lockstep {

struct FaultShare {
  std::string fault;  // "throttle-thermal on rank 11"
  double truth = 0;   // of what is lost
  double reported = 0;
};

struct SharesCheck {
  std::string name;
  bool restarted = false;                    // nothing else is filled in
  double lost_truth = 0, lost_reported = 0;  // of the time of the run
  std::vector<FaultShare> faults;
  double other_reported = 0;        // shares of verdicts that are no fault's
  double unexplained_reported = 0;  // the truth is 0: all that is lost was injected
  double sum_reported = 0;          // of all shares
  double mfu_truth = 0, mfu_reported = 0;
  double stragglers_truth = 0, stragglers_reported = 0;  // points of MFU: ranks and links that verdicts may name
  double clocks_reported = 0;
  double bars_sum = 0;  // with what was achieved
  std::string cost_sentence, mfu_sentence, change_sentence;
};

// Of the first job. Faults that stop a job for good cannot be played without their end: they are refused by the caller.
SharesCheck check_shares(const sim::Scenario& scenario);

}  // namespace lockstep
