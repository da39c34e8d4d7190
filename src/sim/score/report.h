// The scoreboard: totals over many scenarios, and the tables that people and machines read.
//
// Targets count every fault that is large enough to be noticed (truth.h's below_notice) and did harm; a missed one has
// a wrong rank, layer and cause, and a delay of "never". The curve of small faults counts the small ones too: it goes by
// what a fault costs the job, played, not by the severity that was written down, of which noise may swallow most.
// Thread rule: Thread-safe (no state).
#pragma once

#include <array>
#include <cstdint>
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
  int64_t with_place = 0, place_first = 0;  // in the network
  int64_t decoys = 0, decoyed = 0;  // scenarios whose switches report and nothing is wrong with the network; of these
                                    // some where it was blamed
  int64_t plain = 0;                // of the judged: cost kPlainShare or more
  int64_t detected_in_time = 0;     // of the plain ones: within kDetectSeconds or kDetectSteps
  int64_t confirmed_in_time = 0;    // within kVerdictSeconds or kVerdictSteps
  double detected_p50_s = -1, detected_p90_s = -1, confirmed_p50_s = -1, confirmed_p90_s = -1;  // missed: never
  double found_p90_s = -1, named_p90_s = -1;          // the same of those alone that were found, and named
  int64_t priced = 0;                                 // verdicts whose price can be compared with the truth
  double price_error_p50 = -1, price_error_p90 = -1;  // of these, as a share of a step; -1: none
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
inline constexpr int64_t kVerdictSteps = 4;
// "20 % and more": a little less, as the noise of the others always hides some of a delay.
inline constexpr double kPlainShare = 0.18;

// Of constant slow faults that cost about `cost` of a step, in jobs with this noise: how soon they were found (suspected
// or confirmed, with the right rank).
inline constexpr std::array<double, 5> kCurveCosts = {0.02, 0.04, 0.08, 0.2, 0.5};
inline constexpr std::array<int64_t, 4> kCurveSteps = {2, 6, 20, 60};
struct CurvePoint {
  double cost = 0, noise = 1;  // a cost of kCurveCosts
  int64_t faults = 0;
  std::array<int64_t, kCurveSteps.size()> found_within{};
  int64_t found = 0, confirmed = 0;
};
// By noise, then cost; only points that have faults. A fault that costs less than 1 % of a step is nowhere in it.
std::vector<CurvePoint> small_fault_curve(const std::vector<CaseScore>& cases);

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
