// How the clocks of one communicator's members lie against each other, from the ends of its operations:
//     end = moment + offset + edge * tau + noise
// with one unknown moment per operation and, per member, an offset (at tau = 0) and what it gains until tau = 1.
// Some ends are far too late (a rank whose process was held up, operations that are no barrier): ends that do not fit
// count less, by rounds of reweighting that never drop a member altogether.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

// Ends of one communicator, operation by operation. Every member must be connected with every other through operations.
struct MemberEnds {
  size_t members = 0;
  std::vector<uint32_t> begin;   // of each operation in the two below, and the end of the last
  std::vector<uint32_t> member;  // 0 .. members - 1
  std::vector<double> end_ns;
  std::vector<double> tau;        // of each operation: its moment, -1 to 1 over the time looked at
  std::vector<double> spread_ns;  // of each operation: how far its ends may truly lie apart, as a standard deviation
};

struct MemberClock {
  double offset_ns = 0;  // against the mean of the members
  double edge_ns = 0;
  double offset_variance = 0;
  double edge_variance = 0;
  size_t ends = 0;
};

struct MemberFit {
  std::vector<MemberClock> clocks;  // by member
  double noise_ns = 0;              // of a single end
  double spread_ns = 0;             // of MemberEnds, as the ends were weighed
};

// edge_prior_ns: standard deviation of what clocks gain; holds the fit where there is little to go by.
MemberFit fit_members(const MemberEnds& ends, double edge_prior_ns, int rounds);

}  // namespace lockstep
