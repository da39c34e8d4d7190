// A scenario: a fleet, its jobs, what goes wrong in it and when, what is odd but healthy, and how damaged its telemetry
// is. Read from a YAML file (docs/guide/scenarios.md). A scenario holds the truth, so nothing that judges a job may see
// one: what a fleet sends is ScenarioRun's, what is right to say of it is truth.h's.
//
// Thread rule: Immutable once read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/ids.h"
#include "model/verdict_terms.h"
#include "sim/fleet/job_shape.h"

namespace lockstep::sim {

struct JobPlan {
  std::string job_id = "sim";
  int32_t tp = 1, pp = 1, dp = 1, cp = 1, ep = 1;  // ep divides dp * cp: experts live inside the data-parallel ranks
  int32_t micro_batches = 8;
  Schedule schedule = Schedule::kOneForwardOneBackward;
  int32_t model_chunks = 1;     // per stage, for kInterleaved
  double step_ms = 500;         // a healthy step
  double overlap = 0;           // share of the gradient reduction, or of a sharded job's layers, beside the kernels
  double communication = 0.15;  // share of a healthy step, all groups together
  Sharding sharding = Sharding::kNone;
  int32_t layers = 1;  // of a sharded job; the parser gives it 8 where none is given
  JobNoise noise;
  int32_t first_host = 0;  // the parser puts a job behind the one before where it is not given
  int32_t world_size() const { return tp * pp * dp * cp; }
};

// What can be wrong: the causes that a fleet can play, in the order of the guide. slow-compute is a GPU that is slow
// and shows no reason.
std::span<const Cause> playable_causes();

enum class Shape : uint8_t { kConstant, kPulsed, kRamp, kIntermittent };

// Where: exactly one of these is set (-1: not); none where a whole job is hit (tcp-fallback, code-regression, ...).
struct Target {
  std::string job;  // the parser fills in the first job's name where none is given
  Rank rank = kNoRank;
  int32_t host = -1;    // of the fleet: 7 is node-07; all ranks on it
  int32_t stage = -1;   // a pipeline stage
  int32_t leaf = -1;    // a leaf switch, or its uplinks
  int32_t spine = -1;   // a spine switch; together with leaf: the link between the two
  int32_t expert = -1;  // its owner in each expert-parallel group
};

struct ScenarioFault {
  Cause cause = Cause::kSlowCompute;
  Target target;
  StepNumber from_step = 40_step;  // of the target's job
  int64_t steps = 0;               // 0: to the end
  // By how much what is hit takes longer: 0.2 is 20 % more kernel time, wire time, ... ; for input, host, storage,
  // checkpoint, pauses and flaps the added time as a share of a healthy step; for NaN and hangs without meaning.
  double severity = 0.2;
  Shape shape = Shape::kConstant;
  int64_t period_steps = 8;  // of a pulse; an intermittent one comes at random once in so many steps
  // cpu-contention: of NCCL's proxy thread alone; or alone of what it does with what arrives.
  enum class Thread : uint8_t { kAll, kProxy, kReceiver };
  Thread thread = Thread::kAll;
  double precursor_s = 0;  // for so long before it its signs rise on the node; 0: it comes without any
  int line = 0;            // in the file
};

// Signs of a fault that never comes: they rise for `steps`, to `level` of what such a fault has when it begins, and
// stay there or fall again as slowly.
struct FalseSign {
  ScenarioFault of;  // cause, job and rank, from_step, steps
  double level = 0.4;
  bool falls = false;
};

// Healthy, and yet not uniform: nothing here may be called broken hardware.
enum class OddityKind : uint8_t {
  kPacking,      // sequences of random length: own time differs by rank and step, forward and backward together
  kExpertSkew,   // routing is uneven and changes slowly
  kStageUneven,  // the last stage has the loss layer
  kCompile,      // first steps long on random ranks
  kEvaluation,   // every so many steps, marked as a phase
  kCheckpoints,  // likewise; rank 0 or all write
  kGarbage,      // now and then a random rank stands still for a moment
  kResize,       // elastic: the job restarts with another dp (a new attempt)
  kWarmUp,       // clocks and caches: steps get shorter for a while
  kDailyHeat,    // all clocks drift together by 1-2 %
  kMasterRank,   // rank 0 logs: a few ms more each step
};
const char* to_text(OddityKind kind);

struct Oddity {
  OddityKind kind = OddityKind::kPacking;
  std::string job;
  double amount = 0.1;       // relative, or in healthy steps: docs/guide/scenarios.md; the parser knows each default
  int64_t every_steps = 20;  // where it is periodic
  int line = 0;
};

struct TelemetryDamage {
  double lost_agents = 0;          // share of hosts whose agent sends nothing
  bool guilty_agent_lost = false;  // the agent on the (first) culprit's host among them
  double late_share = 0;           // of requests that come late
  double late_ms = 0;
  double clock_error_us = 50;  // of hosts, standard deviation
  double no_plugin = 0;        // share of ranks without the NCCL plugin (no steps of them)
  double no_metrics = 0;       // share of hosts that send steps but no node metrics
  double metrics_every_s = 5;  // between two readings of a node
  bool all_series = true;      // of a node; false: what tells causes apart, a third of them
  double duplicated = 0;       // share of requests sent twice
};

struct Scenario {
  std::string name;
  uint64_t seed = 1;
  int64_t steps = 120;  // of the first job; others run as long
  Topology topology;
  std::vector<JobPlan> jobs;
  std::vector<ScenarioFault> faults;
  std::vector<Oddity> oddities;
  std::vector<FalseSign> signs;
  TelemetryDamage telemetry;
};

// One clear line with the file's name and line on the first thing that is wrong: unknown words, numbers out of range,
// a target that is not there, a shape of parallelism that does not multiply out.
Result<Scenario> parse_scenario(std::string_view yaml, std::string_view file_name);
Result<Scenario> read_scenario(const std::string& path);
inline constexpr size_t kScenarioBytesMax = 1 << 20;
inline constexpr size_t kScenarioJobsMax = 4'096;

// As the fleet plays it: `dp` may differ from the plan's after an elastic resize.
JobShape shape_of(const Scenario& scenario, const JobPlan& plan, int64_t attempt, int32_t dp);
// The dp of a job between two resizes; the plan's own where it is not resized or cannot be.
int32_t resized_dp(const JobPlan& plan, double amount);
const JobPlan* find_job(const Scenario& scenario, std::string_view job_id);
// The ranks that a target names in a job of this shape; all of them where it names none. For a leaf: the ranks whose
// adapter hangs on it; for a spine or a link: those that send or receive over it.
std::vector<Rank> ranks_of(const Target& target, const JobShape& shape);
bool is_link(const Target& target);  // between two switches
// Hosts of all jobs: the fleet is those before this number.
int32_t fleet_hosts(const Scenario& scenario);
// The file that an operator would give to the server (--topology): how leaves and spines are cabled.
std::string topology_file(const Scenario& scenario);
// What nodes are made from, and how faults show on them.
uint64_t node_seed(const Scenario& scenario);
bool is_hang(Cause cause);  // a rank stops for good: severity has no meaning
// How strong a fault is in a step of its job; 0: not acting. `index` is the fault's place in the scenario.
double amount_at(const Scenario& scenario, size_t index, StepNumber step);
// Does a node show something before such a fault comes?
bool has_signs(Cause cause);
// How far the signs of a fault have risen before it, 0 to 1; 0 once it has begun.
double sign_at(const Scenario& scenario, size_t index, StepNumber step);
double sign_at(const FalseSign& sign, StepNumber step);
// "throttle-thermal on rank 5 of job train, 20 % from step 40 on, pulsed": for people.
std::string describe(const ScenarioFault& fault);

}  // namespace lockstep::sim
