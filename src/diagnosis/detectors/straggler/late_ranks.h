// Who is late, and by how much: the straggler's measure.
//
// The last steps are looked at rank by rank, against the peers of each (diagnosis/roles.h). Late is who is so in most of
// them, or clearly in the newest; and who has become slower than it was, or is slower than healthy ranks differ, by more
// than chance explains (sequential/shift_monitor.h).
//
// Thread rule: Thread-safe (pure functions).
#pragma once

#include <cstddef>
#include <set>
#include <vector>

#include "diagnosis/roles.h"
#include "diagnosis/sequential/shift_monitor.h"
#include "diagnosis/window.h"
#include "model/ids.h"

namespace lockstep::straggler {

inline constexpr size_t kStepsSuspect = 4;
// A slowness that has just begun is suspected after so many steps in a row, each clearly slow, by one rank alone.
inline constexpr size_t kStepsFresh = 2;
// A job's first steps are often slow on one rank (compilation, page cache): be sure only after these.
inline constexpr int64_t kSettleSteps = 12;
// Healthy ranks may differ for good, by so much of a step.
inline constexpr double kLastingMax = ShiftMonitor::Options{}.lasting_max;
// Who is late by this part of what the latest is, is late like it.
inline constexpr double kAlikePart = 0.6;

// The last steps, ranks by slot.
struct LastSteps {
  std::vector<StepNumber> steps;
  std::vector<const StepLateness*> late;
  double step_ns = 0;

  LastSteps(const JobWindow& window, std::vector<StepNumber> numbers) : steps(std::move(numbers)) {
    for (StepNumber number : steps) late.push_back(&lateness(window, *window.frame(number)));
    step_ns = median(step_durations(window, steps));
  }
  // Where the rank's times are known, in order.
  void of_slot(size_t slot, std::vector<double>& values) const {
    values.clear();
    for (const StepLateness* step : late) {
      if (slot < step->late_ns.size() && !std::isnan(step->late_ns[slot]))
        values.push_back(static_cast<double>(step->late_ns[slot]));
    }
  }
};

// How late each rank typically is in these, and from where on that counts.
struct Typical {
  std::vector<double> ns;  // by slot; NaN: not known
  size_t known = 0;
  double limit = 0;
  double fresh_limit = 0;  // of what has just begun
};
Typical typical_in(const JobWindow& window, const LastSteps& last);

struct Late {
  Rank rank = kNoRank;
  size_t slot = 0;
  double ns = 0;         // typically
  size_t hits = 0;       // steps in which it was
  bool lasting = false;  // in most of the steps, not only in the newest
  bool goes_on = false;
  bool obvious = false;  // lasting, and so large that it needs no model of the noise
  bool clear = false;    // not for long yet, but beyond doubt
  bool plain = false;    // large, and nobody else was late before
  // What evidence says of it, where it says anything.
  bool evident = false;
  bool by_evidence_alone = false;
  bool nearly_sure = false;  // a signal of the node would do
  bool sure = false;
  ShiftEstimate shift;  // in shares of a step
  StepNumber begin() const { return evident && !shift.lasting ? shift.begin_step : kNoStep; }
};

// Steps from `begin` on, at most the last kStretch of them.
std::vector<StepNumber> stretch_since(const JobWindow& window, StepNumber begin);
// The communicators of a rank that are not the whole job's.
std::set<CommId> small_groups(const JobWindow& window, const StepFrame& frame, size_t slot);

// By limits that need no model of the noise: in most of the last steps, or clearly in the newest. named: who has a
// verdict already.
std::vector<Late> late_by_rule(const JobWindow& window, const LastSteps& last, const Typical& typical,
                               const std::set<Rank>& named);
// By evidence: those that are not among `late` join them, and how late they are goes into `typical`.
void add_evident(const JobWindow& window, double step_ns, std::vector<Late>& late, Typical& typical);

}  // namespace lockstep::straggler
