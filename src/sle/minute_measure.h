// What is heard of a job's ranks in one minute, as sums that late steps can still be added to: the input of the judge.
//
// A step counts in each minute that it reaches into, by the seconds it has there; so a step of many minutes is in all of
// them, and nothing is in two.
// Cost: 48 bytes per rank and minute.
// Thread rule: Confined.
#pragma once

#include <cstdint>

#include "base/sparse_rows.h"
#include "model/step.h"

namespace lockstep::sle {

struct RankMinute {
  enum Flag : uint8_t {
    kStep = 1,      // a step of it is here
    kStatus = 2,    // it said where it stands
    kStanding = 4,  // and that it does not move
    kLost = 8,      // records of it are missing
    kLoss = 16,     // it reported a loss
    kLossBad = 32,  // that is not a number
    kInputKnown = 64,
  };
  float covered_s = 0;  // in steps
  float step_s2 = 0;    // these seconds x the duration of their step
  float own_s = 0;      // own time in them,
  float own_of_s = 0;   // where it is known
  float input_s = 0;
  float repeated_s = 0;  // in steps that had been done before
  float reported_s = 0;  // checkpoints and evaluation, as the job says
  float flops = 0;
  float flops_of_s = 0;
  float wire_s = 0;
  float wire_bytes = 0;
  uint8_t flags = 0;

  bool has(Flag flag) const { return (flags & flag) != 0; }
  double step_s() const { return covered_s > 0 ? step_s2 / covered_s : 0; }
};

struct MeasuredMinute {
  int32_t minute = 0;
  uint64_t rows = 0;
  bool dirty = true;  // something came since it was judged
  SparseRows<RankMinute, 64> ranks;
};

// The part of a step that lies in [from_unix_ns, to_unix_ns). is_repeated: the job had done it before.
void add_step(RankMinute& to, const StepSummary& summary, int64_t from_unix_ns, int64_t to_unix_ns, bool is_repeated);

}  // namespace lockstep::sle
