// Hang: nothing moves, and the operations in flight tell who everybody waits for.
//
// The idea: every rank that has made no callback for a while says where it stands. In a communicator, ranks that are in
// an operation wait for the members that have not entered it; a receive waits for its sender. These edges are walked to
// their ends: a rank that waits for nobody is the culprit (never entered, dead); a circle is a deadlock; if everybody
// is in the same operation with different arguments it is a mismatch. If everybody is inside and nothing moves, a
// process that is stopped is the culprit, else the one that fell silent first is suspected (by its clock, so never
// more). A rank that says it is checkpointing or evaluating is busy, not hung.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <map>
#include <optional>
#include <set>

#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep {

struct HangInput {
  std::map<Rank, RankStatus> status;  // newest of each rank; ranks that move have quiet_ns 0
  int64_t typical_step_ns = 0;        // 0: no step has ended yet
  std::set<Rank> left = {};           // ranks that ended by themselves
  bool whole_job = false;             // all nodes report here: who was never heard of is silent, not elsewhere
};

// For HangInput: the median over ranks and the last steps.
int64_t typical_step_ns(const JobWindow& window);

// It says that it is checkpointing or evaluating, which may take minutes, and has not done so for too long.
bool is_busy(const RankStatus& status);

// How long everybody must have been quiet.
int64_t hang_after_ns(const HangInput& input);

std::optional<Finding> find_hang(const JobWindow& window, const HangInput& input);

}  // namespace lockstep
