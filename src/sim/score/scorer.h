// Compares what clients saw with what was true: the only place where the two meet, after everything has been played.
//
// A verdict belongs to a fault of its job when it was first seen after the fault began to act, not more than
// kLateNs or kLateSteps after it ended, is of its kind (slow and inefficient are one, hang and fail are one), and names
// one of its ranks first. A fault of no rank (a whole job, a leaf) is named by a verdict of its kind that has one of
// its layers, or that accuses no rank. A second verdict for the same fault is repeated, not wrong; so is one of another
// kind that names the same rank. Every other verdict that was ever confirmed is wrong, unless truth.h allows it; one
// that was only suspected is counted apart.
//
// A place in the network is judged by the first that a confirmed verdict of the fault names: before switches have
// reported it may name none. Where no fault of a job is in the network, every confirmed verdict that blames an adapter, a
// link or a switch of it is a decoy that worked.
//
// Rank and layer are judged by the first confirmed verdict. Rank top-1 is strict: where a wrong verdict was confirmed
// before the right one, the first answer was wrong. A fault that was missed has no right rank, layer or cause.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "model/ids.h"
#include "sim/scenario/scenario.h"
#include "sim/scenario/scenario_run.h"
#include "sim/scenario/truth.h"
#include "sim/score/observe.h"

namespace lockstep::sim {

inline constexpr int64_t kLateNs = 30'000'000'000;
inline constexpr int64_t kLateSteps = 10;

// One fault and what became of it. Delays count from the moment it first did harm; -1: never.
struct FaultScore {
  std::string job, cause, shape;
  VerdictKind kind = VerdictKind::kSlow;
  double severity = 0;
  double cost = 0;              // of a healthy step, as truth.h has it
  bool from_the_start = false;  // it was there in the job's first step
  bool below_notice = false;
  bool has_ranks = false;       // false: no rank is to blame, so none is judged
  std::vector<Rank> ranks;      // that are right
  bool began = false;           // it did harm before the run ended
  double detected_s = -1;       // first suspected or confirmed
  int64_t detected_steps = -1;  // steps with harm that had been reported by then, and those after the last
  double confirmed_s = -1;
  int64_t confirmed_steps = -1;
  bool rank_first = false;        // top-1
  bool rank_among_three = false;  // named by its own verdict, or among the first two alternatives of a wrong one
  bool layer = false, cause_right = false;
  bool layer_at_last = false;  // as the verdict stood when it was last seen open
  bool has_place = false;      // it is somewhere in the network, and switches report
  bool place_first = false;    // the first place that its verdict named, confirmed, is the right one
  std::string place, said_place;
  int repeated = 0;
  // How far what the verdict says it costs is from the truth, as a share of the step with the fault, at last; -1: there is
  // nothing to compare (no verdict, other faults beside it, or it comes and goes).
  double price_error = -1;
  std::string said_layer, said_cause, sentence;  // of the first confirmed verdict
  bool detected() const { return detected_s >= 0; }
  bool confirmed() const { return confirmed_s >= 0; }
};

struct WrongVerdict {
  std::string job, kind, layer, cause, sentence;
  std::vector<Rank> ranks;
  double at_s = 0;  // since the job's first request
  StepNumber step = kNoStep;
  bool while_healthy = false;  // no fault of the job was on
};

struct CaseScore {
  std::string name, file;
  std::string parallelism;          // of the first job: "tp8 pp8 dp16"
  int64_t ranks = 0;                // of all jobs
  std::vector<std::string> damage;  // to the telemetry; empty: none
  bool odd = false;                 // healthy oddities
  double noise = 1;                 // JobNoise::times of the first job
  bool heavy_tails = false;         // likewise
  std::vector<FaultScore> faults;
  std::vector<WrongVerdict> wrong;             // confirmed
  std::vector<WrongVerdict> wrong_suspicions;  // never more than suspected
  int allowed = 0;
  bool switches = false;              // report: the network's side is told
  std::vector<WrongVerdict> decoyed;  // confirmed verdicts that blame the network though nothing of it is wrong
  double healthy_s = 0;               // of jobs, without a fault
  double played_s = 0;                // of jobs
  int64_t records = 0;
  double subject_seconds = 0;
  std::string problem;  // why it could not be scored
  WarningCase ahead;
};

// What is right, as truth.h has it; by value, so that tests can make it up.
struct Answers {
  std::vector<Truth> truths;
  std::function<bool(const std::string& job, std::optional<Layer> layer)> allowed;
};
Answers answers_of(const Scenario& scenario);

// Words for the tables.
std::string parallelism_of(const Scenario& scenario);
std::vector<std::string> damage_of(const TelemetryDamage& damage);
const char* shape_text(Shape shape);

// The comparison. onsets: one per fault of the scenario, as ScenarioRun has them at the end.
CaseScore compare(const Scenario& scenario, const Answers& answers, const std::vector<ScenarioRun::Onset>& onsets,
                  const Observed& observed);

}  // namespace lockstep::sim
