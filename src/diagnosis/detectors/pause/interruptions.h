// The single events that pauses are recognized by, and which ranks had a part in them.
//
// An event is a sizeable part of a step in which one rank was late alone, or one process alone made no call, or transfers
// stood still far longer than this job's ever take. What a checkpoint explains is none, nor is what a rank that has a
// verdict already does.
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <vector>

#include "diagnosis/detectors/pause/pause_facts.h"
#include "diagnosis/finding.h"
#include "diagnosis/window.h"

namespace lockstep::pause {

// What is usual in these steps: how long one takes, and how long the longest transfer of a rank's step does.
struct UsualSteps {
  std::vector<StepNumber> steps;
  std::vector<const PauseFacts*> facts;  // of each
  size_t ranks_seen = 0;
  double total_ns = 0;
  double good_ns = 0;  // a step without any
  double longest_ns = 0;
  double event_ns = 0;  // an event takes so long, and
  double stand_ns = 0;  // a transfer that stands still
};
UsualSteps usual_in(const JobWindow& window, std::vector<StepNumber> steps);

// What a rank had to do with the events.
struct Part {
  std::vector<StepNumber> late;   // steps in which the rank alone was late
  std::vector<StepNumber> quiet;  // steps in which its process alone made no call
  std::vector<StepNumber> stood;  // steps in which a transfer from or to it stood still
  size_t inward = 0;              // of those: towards it
  size_t outward = 0;             // of those: from it
  size_t undrained = 0;           // of those: data that had arrived was not handed to its GPU meanwhile
  double lost_ns = 0;
  std::map<Rank, size_t> peers;  // who was at the other end
  size_t events() const { return late.size() + quiet.size() + stood.size(); }
  std::vector<StepNumber> steps() const;  // in order
  // It was the rank's own side, not only a link between it and another.
  bool is_own_side() const { return undrained > 0 || !late.empty() || !quiet.empty() || (inward > 0 && outward > 0); }
};

struct Interruptions {
  std::map<Rank, Part> parts;
  std::set<StepNumber> steps;  // in which anybody had a part
};
Interruptions interruptions_in(const JobWindow& window, const UsualSteps& usual,
                               const std::vector<AttributedRange>& explained);

}  // namespace lockstep::pause
