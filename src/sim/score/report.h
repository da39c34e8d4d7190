// The scoreboard: totals over many scenarios, and the tables that people and machines read.
//
// Targets count every fault that is large enough to be noticed (truth.h's below_notice) and did harm; a missed one has
// a wrong rank, layer and cause, and a delay of "never". The severity curve counts the small ones too.
// Thread rule: Thread-safe (no state).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sim/score/scorer.h"

namespace lockstep::sim {

// Shares are 0..1, -1 where there was nothing to judge. Delays in seconds, -1: never.
struct Totals {
  int64_t cases = 0;
  int64_t faults = 0;  // judged
  int64_t detected = 0, confirmed = 0;
  int64_t with_rank = 0, rank_first = 0, rank_among_three = 0;
  int64_t layer = 0, layer_at_last = 0, cause = 0;
  int64_t detected_in_time = 0;   // within kDetectSeconds or kDetectSteps
  int64_t confirmed_in_time = 0;  // within kVerdictSeconds
  double detected_p50_s = -1, detected_p90_s = -1, confirmed_p50_s = -1, confirmed_p90_s = -1;  // missed: never
  double found_p90_s = -1, named_p90_s = -1;  // the same of those alone that were found, and named
  int64_t repeated = 0;
  int64_t wrong = 0;                // confirmed verdicts that name no fault
  int64_t wrong_while_healthy = 0;  // of these: without any fault in the job
  int64_t wrong_suspicions = 0;
  int64_t small_faults = 0, small_detected = 0;  // below notice
  double healthy_hours = 0, played_hours = 0;
  int64_t records = 0;
  double subject_seconds = 0;
};
inline constexpr double kDetectSeconds = 3;
inline constexpr int64_t kDetectSteps = 2;
inline constexpr double kVerdictSeconds = 10;

// which: the faults that count; empty: all.
using FaultFilter = std::function<bool(const CaseScore&, const FaultScore&)>;
Totals total(const std::vector<CaseScore>& cases, const FaultFilter& which = {});

// What one subject made of the set.
struct SubjectScores {
  std::string name;
  std::vector<CaseScore> cases;  // in the order of the files
};

// One line per scenario, while it runs: "ok   name: ..." or "MISS name: ...".
std::string progress_line(const CaseScore& score);
// What was not right about a case, one line each: scenario, truth, what was said. Empty: nothing.
std::vector<std::string> complaints(const CaseScore& score);

// title: "# Score" with what was played. The first subject is ours; the others stand beside it in one table.
std::string markdown(const std::vector<SubjectScores>& subjects, const std::string& title);
// The same for a terminal: the totals, the targets and what was wrong.
std::string terminal(const std::vector<SubjectScores>& subjects);
std::string json(const std::vector<SubjectScores>& subjects);

}  // namespace lockstep::sim
