// A scenario file is read in two passes: each mapping's keys against a table of fields (unknown, repeated and malformed
// ones are refused with the line they stand on), then the numbers against each other.
#include "sim/scenario/scenario.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <set>

#include "base/files.h"
#include "base/text.h"
#include "model/step.h"
#include "sim/fleet/random.h"

namespace lockstep::sim {

namespace {

enum : unsigned { kRank = 1, kHost = 2, kStage = 4, kLeaf = 8, kExpert = 16, kJob = 32, kSpine = 64, kLink = 128 };

struct CauseRow {
  Cause cause;
  unsigned targets;  // what it can hit
  double severity;   // where none is given
};
constexpr CauseRow kCauses[] = {
    {Cause::kSlowCompute, kRank | kHost, 0.2},
    {Cause::kThrottleThermal, kRank | kHost, 0.2},
    {Cause::kThrottlePower, kRank | kHost, 0.2},
    {Cause::kEcc, kRank, 0.2},
    {Cause::kXid, kRank, 1},
    {Cause::kForeignProcess, kRank | kHost, 0.3},
    {Cause::kPcieDegraded, kRank, 1},
    {Cause::kCpuContention, kRank | kHost, 0.2},
    {Cause::kMemoryPressure, kHost, 0.2},
    {Cause::kProcessPaused, kRank | kHost, 0.5},
    {Cause::kGc, kRank | kHost | kJob, 0.3},
    {Cause::kDataLoader, kRank | kHost, 0.2},
    {Cause::kStorage, kHost | kJob, 0.3},
    {Cause::kCheckpoint, kRank | kHost | kJob, 2},
    {Cause::kNvlinkDegraded, kRank, 1},
    {Cause::kNicDegraded, kRank, 1},
    {Cause::kLinkFlap, kRank, 0.5},
    {Cause::kCongestion, kLeaf | kSpine | kLink, 1},
    {Cause::kPfcStorm, kLeaf, 2},
    {Cause::kTcpFallback, kJob, 4},
    {Cause::kStageImbalance, kStage, 0.2},
    {Cause::kSequenceImbalance, kJob, 0.4},
    {Cause::kExpertImbalance, kExpert, 1},
    {Cause::kRankMissing, kRank, 1},
    {Cause::kOpMismatch, kRank, 1},
    {Cause::kDeadlock, kRank, 1},
    {Cause::kRankDead, kRank, 1},
    {Cause::kCodeRegression, kJob, 0.1},
    {Cause::kNanSource, kRank, 1},
    {Cause::kLinkDegraded, kLink, 1},
    {Cause::kSwitchDown, kLeaf, 1},
};

struct OddityRow {
  const char* name;
  double amount, amount_most;
  int64_t every_steps;
};
constexpr OddityRow kOddities[] = {
    {"packing", 0.2, 2, 1},          {"expert-skew", 0.4, 5, 60},   {"stage-uneven", 0.1, 2, 1},
    {"compile", 3, 1000, 20},        {"evaluation", 2, 1000, 40},   {"checkpoints", 1, 1000, 30},
    {"garbage", 0.3, 10, 20},        {"resize", 0.25, 0.9, 60},     {"warm-up", 0.2, 2, 20},
    {"daily-heat", 0.015, 0.1, 400}, {"master-rank", 0.01, 0.2, 1},
};
constexpr size_t kOddityCount = std::size(kOddities);

constexpr const char* kShapes[] = {"constant", "pulsed", "ramp", "intermittent"};
constexpr double kSeverityMax = 1000;

std::string target_words(unsigned targets) {
  std::string words;
  auto add = [&](unsigned bit, const char* word) {
    if (targets & bit) words += (words.empty() ? "" : " or ") + std::string(word);
  };
  add(kRank, "rank");
  add(kHost, "host");
  add(kStage, "stage");
  add(kLeaf, "leaf");
  add(kSpine, "spine");
  add(kLink, "leaf and spine together");
  add(kExpert, "expert");
  add(kJob, "the job as a whole");
  return words;
}

// Thrown inside this file only, at the first thing that is wrong.
struct Wrong {
  int line;
  std::string what;
};

int line_of(const YAML::Node& node) {
  const YAML::Mark mark = node.Mark();
  return mark.is_null() ? 1 : mark.line + 1;
}

std::string shown(const YAML::Node& node) {
  return node.IsScalar() ? "\"" + as_one_line(node.Scalar().substr(0, 60)) + "\"" : "what is there";
}

// The fields of one mapping: asked for by name, then done() refuses whatever nobody asked for.
class Fields {
 public:
  Fields(const YAML::Node& node, const char* what) : node_(node), what_(what) {
    if (!node.IsMap()) throw Wrong{line_of(node), format("%s must be a mapping (key: value)", what)};
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) throw Wrong{line_of(entry.first), format("a key of %s must be a word", what)};
      if (!given_.insert(entry.first.Scalar()).second)
        throw Wrong{line_of(entry.first), format("%s is given twice in %s", shown(entry.first).c_str(), what)};
    }
  }

  std::optional<YAML::Node> take(const char* key) {
    known_.emplace_back(key);
    if (!given_.contains(key)) return std::nullopt;
    for (const auto& entry : node_) {
      if (entry.first.Scalar() == key) return entry.second;
    }
    return std::nullopt;
  }
  template <typename T>
  bool number(const char* key, T& out, double least, double most) {
    constexpr bool kWhole = !std::is_floating_point_v<T>;
    std::optional<YAML::Node> node = take(key);
    if (!node) return false;
    const std::optional<double> value = !node->IsScalar() ? std::nullopt
                                        : kWhole          ? as_double(parse_int(node->Scalar()))
                                                          : parse_double(node->Scalar());
    if (!value || !(*value >= least && *value <= most))
      throw Wrong{line_of(*node), format("%s must be a%s number from %g to %g, not %s", key, kWhole ? " whole" : "",
                                         least, most, shown(*node).c_str())};
    out = static_cast<T>(*value);
    return true;
  }
  bool flag(const char* key, bool& out) {
    std::optional<YAML::Node> node = take(key);
    if (!node) return false;
    const std::string text = node->IsScalar() ? node->Scalar() : "";
    if (text != "true" && text != "false")
      throw Wrong{line_of(*node), format("%s must be true or false, not %s", key, shown(*node).c_str())};
    out = text == "true";
    return true;
  }
  bool text(const char* key, std::string& out, size_t most) {
    std::optional<YAML::Node> node = take(key);
    if (!node) return false;
    if (!node->IsScalar() || node->Scalar().empty() || node->Scalar().size() > most ||
        has_control_characters(node->Scalar()))
      throw Wrong{line_of(*node), format("%s must be a text of 1 to %zu bytes", key, most)};
    out = node->Scalar();
    return true;
  }
  // One of these words; its place in the list.
  std::optional<size_t> word(const char* key, const std::vector<std::string>& words) {
    std::optional<YAML::Node> node = take(key);
    if (!node) return std::nullopt;
    if (node->IsScalar()) {
      for (size_t i = 0; i < words.size(); ++i) {
        if (words[i] == node->Scalar()) return i;
      }
    }
    std::optional<std::string> near = node->IsScalar() ? did_you_mean(node->Scalar(), words) : std::nullopt;
    std::string all;
    for (const std::string& each : words) all += (all.empty() ? "" : ", ") + each;
    throw Wrong{line_of(*node), format("%s: no %s. %s", shown(*node).c_str(), key,
                                       near ? ("Did you mean " + *near + "?").c_str() : ("Known: " + all).c_str())};
  }
  int line(const char* key) const {
    for (const auto& entry : node_) {
      if (entry.first.Scalar() == key) return line_of(entry.second);
    }
    return line_of(node_);
  }
  int line() const { return line_of(node_); }
  void done() const {
    for (const auto& entry : node_) {
      const std::string& key = entry.first.Scalar();
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      std::optional<std::string> near = did_you_mean(key, known_);
      std::string all;
      for (const std::string& each : known_) all += (all.empty() ? "" : ", ") + each;
      throw Wrong{line_of(entry.first),
                  format("%s has no %s. %s", what_, shown(entry.first).c_str(),
                         near ? ("Did you mean " + *near + "?").c_str() : ("It has: " + all).c_str())};
    }
  }

 private:
  static std::optional<double> as_double(std::optional<int64_t> value) {
    return value ? std::optional<double>(static_cast<double>(*value)) : std::nullopt;
  }
  const YAML::Node node_;
  const char* what_;
  std::set<std::string> given_;
  std::vector<std::string> known_;
};

void each(std::optional<YAML::Node> list, const char* what, size_t most,
          const std::function<void(const YAML::Node&)>& read) {
  if (!list || list->IsNull()) return;
  if (!list->IsSequence()) throw Wrong{line_of(*list), format("%s must be a list (- ...)", what)};
  if (list->size() > most) throw Wrong{line_of(*list), format("more than %zu %s", most, what)};
  for (const YAML::Node& node : *list) read(node);
}

std::vector<std::string> cause_names() {
  std::vector<std::string> names;
  for (const CauseRow& row : kCauses) names.emplace_back(to_text(row.cause));
  return names;
}

Topology read_topology(const YAML::Node& node) {
  Topology topology;
  Fields fields(node, "topology");
  fields.number("gpus_per_host", topology.gpus_per_host, 1, 64);
  fields.number("hosts_per_leaf", topology.hosts_per_leaf, 1, 4096);
  fields.flag("rails", topology.rails);
  fields.number("spines", topology.spines, 1, 4096);
  fields.number("nvlink_gb_s", topology.nvlink_gb_s, 1, 100'000);
  fields.number("nic_gb_s", topology.nic_gb_s, 0.1, 10'000);
  fields.flag("switches", topology.switches);
  fields.done();
  return topology;
}

JobNoise read_noise(const YAML::Node& node) {
  JobNoise noise;
  Fields fields(node, "noise");
  fields.number("times", noise.times, 0, 20);
  if (std::optional<size_t> tails = fields.word("tails", {"bell", "heavy"})) noise.heavy_tails = *tails == 1;
  fields.number("rank_spread", noise.rank_spread, 0, 0.1);
  fields.number("shocks", noise.shocks, 0, 0.5);
  fields.done();
  return noise;
}

constexpr int32_t kUsualLayers = 8;

JobPlan read_job(const YAML::Node& node, const Scenario& scenario) {
  JobPlan plan;
  Fields fields(node, "a job");
  fields.text("job", plan.job_id, kIdentityTextMax);
  for (auto [key, out] :
       {std::pair{"tp", &plan.tp}, {"pp", &plan.pp}, {"dp", &plan.dp}, {"cp", &plan.cp}, {"ep", &plan.ep}})
    fields.number(key, *out, 1, kWorldSizeMax);
  fields.number("micro_batches", plan.micro_batches, 1, kMicroBatchesMax);
  if (std::optional<size_t> schedule = fields.word("schedule", {"gpipe", "1f1b", "interleaved"}))
    plan.schedule = static_cast<Schedule>(*schedule);
  if (!fields.number("model_chunks", plan.model_chunks, 1, 64) && plan.schedule == Schedule::kInterleaved)
    plan.model_chunks = 2;
  fields.number("step_ms", plan.step_ms, 10, 600'000);
  fields.number("overlap", plan.overlap, 0, 1);
  fields.number("communication", plan.communication, 0, 0.8);
  if (std::optional<size_t> sharding = fields.word("sharding", {"none", "full"}))
    plan.sharding = static_cast<Sharding>(*sharding);
  if (!fields.number("layers", plan.layers, 1, kLayersMax) && plan.sharding == Sharding::kFull)
    plan.layers = kUsualLayers;
  if (std::optional<YAML::Node> noise = fields.take("noise"); noise && !noise->IsNull())
    plan.noise = read_noise(*noise);
  if (!fields.number("first_host", plan.first_host, 0, 1'000'000)) {
    for (const JobPlan& before : scenario.jobs)
      plan.first_host = std::max(plan.first_host,
                                 before.first_host + (before.world_size() - 1) / scenario.topology.gpus_per_host + 1);
  }
  fields.done();
  if (Result<void> possible = check(shape_of(scenario, plan, 0, plan.dp)); !possible.ok())
    throw Wrong{fields.line(), format("job %s: %s", as_one_line(plan.job_id).c_str(), possible.error().c_str())};
  if (find_job(scenario, plan.job_id) != nullptr)
    throw Wrong{fields.line("job"), format("there are two jobs named %s", as_one_line(plan.job_id).c_str())};
  auto last_host = [&](const JobPlan& job) {
    return job.first_host + (job.world_size() - 1) / scenario.topology.gpus_per_host;
  };
  for (const JobPlan& other : scenario.jobs) {
    if (plan.first_host <= last_host(other) && other.first_host <= last_host(plan))
      throw Wrong{fields.line("first_host"),
                  format("job %s is on hosts %d-%d, where job %s is already", as_one_line(plan.job_id).c_str(),
                         plan.first_host, last_host(plan), as_one_line(other.job_id).c_str())};
  }
  return plan;
}

const JobPlan& job_at(Fields& fields, std::string& job, const Scenario& scenario) {
  if (!fields.text("job", job, kIdentityTextMax)) job = scenario.jobs.front().job_id;
  const JobPlan* plan = find_job(scenario, job);
  if (plan == nullptr) throw Wrong{fields.line("job"), format("there is no job %s", as_one_line(job).c_str())};
  return *plan;
}

// Does the rank itself send to another host: to its neighbours in a ring, or to anybody in an exchange?
bool sends_out(const JobShape& shape, Rank rank, std::initializer_list<Role> roles) {
  for (Role role : roles) {
    const Group group = shape.group(role, rank);
    const int32_t at = shape.index_in(role, rank);
    for (int32_t hop : {1, group.size - 1}) {
      if (shape.host_of(group.member((at + hop) % group.size)) != shape.host_of(rank)) return true;
    }
    if (role == Role::kEp && shape.host_of(group.first) != shape.host_of(group.member(group.size - 1))) return true;
  }
  return false;
}

bool uses_nvlink(const JobShape& shape, Rank rank) {
  for (Role role : {Role::kTp, Role::kCp, Role::kEp, Role::kDp}) {
    const Group group = shape.group(role, rank);
    if (group.size > 1 && shape.host_of(group.first) == shape.host_of(group.member(group.size - 1))) return true;
  }
  return false;
}

// Does any group of the job send through the uplinks of this leaf?
bool leaves_leaf(const JobShape& shape, int32_t leaf) {
  for (Rank rank : all_ranks(shape.world_size())) {
    if (shape.leaf_of(rank) != leaf) continue;
    for (Role role : {Role::kTp, Role::kCp, Role::kEp, Role::kPp, Role::kDp}) {
      const Group group = shape.group(role, rank);
      const int32_t at = shape.index_in(role, rank);
      for (int32_t hop : {1, group.size - 1}) {
        const Rank peer = group.member((at + hop) % group.size);
        if (shape.host_of(peer) != shape.host_of(rank) && shape.leaf_of(peer) != leaf) return true;
      }
    }
  }
  return false;
}

// Does anything that the rank sends or receives go over this spine, or over its link to this leaf?
bool sends_over(const JobShape& shape, Rank rank, const Target& target) {
  const std::vector<Rank> peers = peers_on_other_hosts(shape, rank);
  return std::any_of(peers.begin(), peers.end(), [&](Rank peer) {
    return crosses(shape, rank, peer, target.leaf, target.spine) ||
           crosses(shape, peer, rank, target.leaf, target.spine);
  });
}

// One target, of a kind that the cause can hit, and it is there.
void check_one_target(const CauseRow& row, const Target& target, const JobShape& shape, const JobPlan& plan,
                      const Fields& fields) {
  struct Given {
    unsigned bit;
    const char* name;
    int32_t value, least, below;
  };
  const int32_t first_host = shape.first_host, last_host = first_host + shape.hosts();
  const int32_t leaves = shape.topology.leaves(last_host);
  const Given all[] = {{kRank, "rank", target.rank.value(), 0, shape.world_size()},
                       {kHost, "host", target.host, first_host, last_host},
                       {kStage, "stage", target.stage, 0, shape.pp},
                       {is_link(target) ? kLink : kLeaf, "leaf", target.leaf, 0, leaves},
                       {is_link(target) ? kLink : kSpine, "spine", target.spine, 0, shape.topology.spines},
                       {kExpert, "expert", target.expert, 0, shape.ep}};
  unsigned given = 0;
  for (const Given& each : all) {
    if (each.value < 0) continue;
    if (given != 0 && given != each.bit)
      throw Wrong{fields.line(each.name), format("%s has two targets; give one", to_text(row.cause))};
    given = each.bit;
    if ((row.targets & each.bit) == 0)
      throw Wrong{fields.line(each.name),
                  format("%s cannot hit a %s; it hits %s", to_text(row.cause),
                         each.bit == kLink ? "link of two switches" : each.name, target_words(row.targets).c_str())};
    if (each.value < each.least || each.value >= each.below)
      throw Wrong{fields.line(each.name), format("there is no %s %d in job %s (%d to %d)", each.name, each.value,
                                                 as_one_line(plan.job_id).c_str(), each.least, each.below - 1)};
  }
  if (given == 0 && (row.targets & kJob) == 0)
    throw Wrong{fields.line(), format("%s needs a target: %s", to_text(row.cause), target_words(row.targets).c_str())};
}

// Why the fault would do nothing to a job of that shape; empty: it would.
std::string why_no_effect(Cause cause, const Target& target, const JobShape& shape) {
  if (is_hang(cause) && shape.world_size() == 1) return "a job of one rank waits for nobody";
  switch (cause) {
    case Cause::kNicDegraded:
      if (!sends_out(shape, target.rank, {Role::kTp, Role::kCp, Role::kEp, Role::kPp, Role::kDp}))
        return format("rank %d sends nothing to another host", target.rank.value());
      return {};
    case Cause::kLinkFlap:
      if (!sends_out(shape, target.rank, {Role::kPp, Role::kDp}))
        return format("rank %d sends neither gradients nor activations to another host", target.rank.value());
      return {};
    case Cause::kTcpFallback:
      return shape.hosts() < 2 ? "the job has one host only" : "";
    case Cause::kNvlinkDegraded:
      if (!uses_nvlink(shape, target.rank)) return format("rank %d has no group inside its host", target.rank.value());
      return {};
    case Cause::kCongestion:
    case Cause::kPfcStorm:
    case Cause::kLinkDegraded:
    case Cause::kSwitchDown:
      if (target.spine >= 0 && ranks_of(target, shape).empty())
        return format("nothing of the job goes through %s", is_link(target) ? "that link" : "that spine");
      if (target.spine < 0 && !leaves_leaf(shape, target.leaf))
        return format("nothing of the job goes through the uplinks of leaf %d", target.leaf);
      return {};
    case Cause::kStageImbalance:
      return shape.pp < 2 ? "the job has one stage only" : "";
    case Cause::kSequenceImbalance:
      return shape.dp < 2 ? "needs dp of at least 2" : "";
    case Cause::kExpertImbalance:
      return shape.ep < 2 ? "needs ep of at least 2" : "";
    case Cause::kDeadlock:
      if (!shape.has(Role::kWorld) || !shape.has(Role::kDp)) return "needs a rank in two groups: dp, and tp or pp";
      return {};
    default:
      return {};
  }
}

void check_target(const ScenarioFault& fault, const JobPlan& plan, const Scenario& scenario, const Fields& fields) {
  const CauseRow& row = *std::find_if(std::begin(kCauses), std::end(kCauses),
                                      [&](const CauseRow& one) { return one.cause == fault.cause; });
  const JobShape shape = shape_of(scenario, plan, 0, plan.dp);
  check_one_target(row, fault.target, shape, plan, fields);
  if (const std::string why = why_no_effect(fault.cause, fault.target, shape); !why.empty())
    throw Wrong{fields.line(), format("%s: %s", to_text(row.cause), why.c_str())};
}

void check_signs(const ScenarioFault& fault, const Fields& fields, const char* key) {
  if (!has_signs(fault.cause)) {
    std::string known;
    for (Cause cause : playable_causes()) {
      if (has_signs(cause)) known += (known.empty() ? "" : ", ") + std::string(to_text(cause));
    }
    throw Wrong{fields.line(key),
                format("nothing shows before %s comes; signs have %s", to_text(fault.cause), known.c_str())};
  }
  if (fault.target.rank == kNoRank)
    throw Wrong{fields.line(key), format("signs of %s need a rank that they show on", to_text(fault.cause))};
}

FalseSign read_sign(const YAML::Node& node, const Scenario& scenario) {
  FalseSign sign;
  Fields fields(node, "a sign");
  sign.of.line = fields.line();
  std::optional<size_t> cause = fields.word("cause", cause_names());
  if (!cause) throw Wrong{fields.line(), "a sign needs a cause: of what it would be"};
  sign.of.cause = kCauses[*cause].cause;
  sign.of.from_step = 0_step;
  sign.of.steps = 100;
  const JobPlan& plan = job_at(fields, sign.of.target.job, scenario);
  fields.number("rank", sign.of.target.rank, 0, 10'000'000);
  fields.number("from_step", sign.of.from_step, 0, 1e9);
  fields.number("steps", sign.of.steps, 1, 1e9);
  fields.number("level", sign.level, 0.01, 1);
  if (std::optional<size_t> then = fields.word("then", {"stays", "falls"})) sign.falls = *then == 1;
  fields.done();
  check_signs(sign.of, fields, "cause");
  check_target(sign.of, plan, scenario, fields);
  return sign;
}

ScenarioFault read_fault(const YAML::Node& node, const Scenario& scenario) {
  ScenarioFault fault;
  Fields fields(node, "a fault");
  fault.line = fields.line();
  std::optional<size_t> cause = fields.word("cause", cause_names());
  if (!cause) throw Wrong{fields.line(), "a fault needs a cause"};
  fault.cause = kCauses[*cause].cause;
  fault.severity = kCauses[*cause].severity;
  if (fault.cause == Cause::kTcpFallback) fault.from_step = 0_step;
  const JobPlan& plan = job_at(fields, fault.target.job, scenario);
  fields.number("rank", fault.target.rank, 0, 10'000'000);
  for (auto [key, out] : {std::pair{"host", &fault.target.host},
                          {"stage", &fault.target.stage},
                          {"leaf", &fault.target.leaf},
                          {"spine", &fault.target.spine},
                          {"expert", &fault.target.expert}})
    fields.number(key, *out, 0, 10'000'000);
  fields.number("from_step", fault.from_step, 0, 1e9);
  fields.number("steps", fault.steps, 0, 1e9);
  fields.number("severity", fault.severity, 0.001, kSeverityMax);
  if (std::optional<size_t> shape = fields.word("shape", {std::begin(kShapes), std::end(kShapes)}))
    fault.shape = static_cast<Shape>(*shape);
  fields.number("period_steps", fault.period_steps, 2, 1'000'000);
  fields.number("precursor_s", fault.precursor_s, 0, 1e6);
  if (const std::optional<size_t> thread = fields.word("threads", {"proxy", "receiver"}))
    fault.thread = *thread == 0 ? ScenarioFault::Thread::kProxy : ScenarioFault::Thread::kReceiver;
  fields.done();
  if (fault.thread != ScenarioFault::Thread::kAll && fault.cause != Cause::kCpuContention)
    throw Wrong{fields.line("threads"), format("%s takes no CPU from a thread", to_text(fault.cause))};
  check_target(fault, plan, scenario, fields);
  if (fault.precursor_s > 0) check_signs(fault, fields, "precursor_s");
  if (is_hang(fault.cause) && fault.shape != Shape::kConstant)
    throw Wrong{fields.line("shape"), format("%s happens once; it has no shape", to_text(fault.cause))};
  return fault;
}

Oddity read_oddity(const YAML::Node& node, const Scenario& scenario) {
  Oddity oddity;
  Fields fields(node, "an oddity");
  oddity.line = fields.line();
  std::vector<std::string> names;
  for (const OddityRow& row : kOddities) names.emplace_back(row.name);
  std::optional<size_t> kind = fields.word("kind", names);
  if (!kind) throw Wrong{fields.line(), "an oddity needs a kind"};
  oddity.kind = static_cast<OddityKind>(*kind);
  oddity.amount = kOddities[*kind].amount;
  oddity.every_steps = kOddities[*kind].every_steps;
  const JobPlan& plan = job_at(fields, oddity.job, scenario);
  fields.number("amount", oddity.amount, 0.0001, kOddities[*kind].amount_most);
  fields.number("every_steps", oddity.every_steps, 1, 1'000'000'000);
  fields.done();
  auto refuse = [&](const char* why) { throw Wrong{fields.line(), format("%s: %s", kOddities[*kind].name, why)}; };
  if (oddity.kind == OddityKind::kExpertSkew && plan.ep < 2) refuse("needs ep of at least 2");
  if (oddity.kind == OddityKind::kStageUneven && plan.pp < 2) refuse("needs pp of at least 2");
  if (oddity.kind == OddityKind::kResize && resized_dp(plan, oddity.amount) == plan.dp)
    refuse("there is no smaller dp that this job could have");
  return oddity;
}

TelemetryDamage read_telemetry(const YAML::Node& node) {
  TelemetryDamage damage;
  Fields fields(node, "telemetry");
  fields.number("lost_agents", damage.lost_agents, 0, 1);
  fields.flag("guilty_agent_lost", damage.guilty_agent_lost);
  fields.number("late_share", damage.late_share, 0, 1);
  fields.number("late_ms", damage.late_ms, 0, 600'000);
  fields.number("clock_error_us", damage.clock_error_us, 0, 60e6);
  fields.number("no_plugin", damage.no_plugin, 0, 1);
  fields.number("no_metrics", damage.no_metrics, 0, 1);
  fields.flag("all_series", damage.all_series);
  fields.number("metrics_every_s", damage.metrics_every_s, 1, 3600);
  fields.number("duplicated", damage.duplicated, 0, 1);
  fields.done();
  return damage;
}

Scenario read(const YAML::Node& root) {
  Scenario scenario;
  Fields fields(root, "a scenario");
  fields.text("name", scenario.name, 200);
  fields.number("seed", scenario.seed, 0, 1e15);
  fields.number("steps", scenario.steps, 1, 100'000'000);
  if (std::optional<YAML::Node> topology = fields.take("topology"); topology && !topology->IsNull())
    scenario.topology = read_topology(*topology);
  each(fields.take("jobs"), "jobs", kScenarioJobsMax,
       [&](const YAML::Node& node) { scenario.jobs.push_back(read_job(node, scenario)); });
  if (scenario.jobs.empty()) throw Wrong{fields.line(), "a scenario needs at least one job"};
  each(fields.take("faults"), "faults", 256,
       [&](const YAML::Node& node) { scenario.faults.push_back(read_fault(node, scenario)); });
  each(fields.take("oddities"), "oddities", 64,
       [&](const YAML::Node& node) { scenario.oddities.push_back(read_oddity(node, scenario)); });
  each(fields.take("signs"), "signs", 256,
       [&](const YAML::Node& node) { scenario.signs.push_back(read_sign(node, scenario)); });
  if (std::optional<YAML::Node> telemetry = fields.take("telemetry"); telemetry && !telemetry->IsNull())
    scenario.telemetry = read_telemetry(*telemetry);
  fields.done();
  return scenario;
}

}  // namespace

std::span<const Cause> playable_causes() {
  static constexpr auto kPlayable = [] {
    std::array<Cause, std::size(kCauses)> causes{};
    for (size_t i = 0; i < causes.size(); ++i) causes[i] = kCauses[i].cause;
    return causes;
  }();
  return kPlayable;
}

const char* to_text(OddityKind kind) {
  const auto index = static_cast<size_t>(kind);
  return index < kOddityCount ? kOddities[index].name : "unknown";
}

Result<Scenario> parse_scenario(std::string_view yaml, std::string_view file_name) {
  const std::string file = as_one_line(file_name);
  auto at = [&](int line, const std::string& what) {
    return Error{format("%s:%d: %s", file.c_str(), line, what.c_str())};
  };
  if (yaml.size() > kScenarioBytesMax)
    return at(1, format("%zu bytes are too many for a scenario (limit %zu)", yaml.size(), kScenarioBytesMax));
  try {
    const YAML::Node root = YAML::Load(std::string(yaml));
    if (root.IsNull()) return at(1, "the file is empty");
    Scenario scenario = read(root);
    if (scenario.name.empty()) {
      const size_t slash = file.rfind('/');
      scenario.name = slash == std::string::npos ? file : file.substr(slash + 1);
      if (const size_t dot = scenario.name.rfind(".y"); dot != std::string::npos && dot > 0) scenario.name.resize(dot);
    }
    return scenario;
  } catch (const Wrong& wrong) {
    return at(wrong.line, wrong.what);
  } catch (const YAML::Exception& error) {
    return at(error.mark.is_null() ? 1 : error.mark.line + 1, "not YAML: " + as_one_line(error.msg));
  }
}

Result<Scenario> read_scenario(const std::string& path) {
  std::string text = LOCKSTEP_TRY(read_file(path, kScenarioBytesMax));
  return parse_scenario(text, path);
}

JobShape shape_of(const Scenario& scenario, const JobPlan& plan, int64_t attempt, int32_t dp) {
  JobShape shape;
  shape.job_id = plan.job_id;
  shape.attempt = attempt;
  shape.tp = plan.tp;
  shape.pp = plan.pp;
  shape.dp = dp;
  shape.cp = plan.cp;
  shape.ep = plan.ep;
  shape.micro_batches = plan.micro_batches;
  shape.schedule = plan.schedule;
  shape.model_chunks = plan.model_chunks;
  shape.first_host = plan.first_host;
  shape.step_ms = plan.step_ms;
  shape.overlap = plan.overlap;
  shape.communication = plan.communication;
  shape.sharding = plan.sharding;
  shape.layers = plan.layers;
  shape.noise = plan.noise;
  shape.first_step_extra = shape.second_step_extra = 0;
  shape.clock_error_us = scenario.telemetry.clock_error_us;
  shape.topology = scenario.topology;
  shape.seed = mix(scenario.seed) ^ hash_of(plan.job_id);
  return shape;
}

int32_t resized_dp(const JobPlan& plan, double amount) {
  const auto wanted = static_cast<int32_t>(std::ceil(plan.dp * (1 - amount)));
  const int32_t least = plan.sharding == Sharding::kFull && plan.cp == 1 ? 2 : 1;  // what is sharded needs two
  for (int32_t dp = std::min(wanted, plan.dp - 1); dp >= least; --dp) {
    if (dp * plan.cp % plan.ep == 0) return dp;
  }
  return plan.dp;
}

const JobPlan* find_job(const Scenario& scenario, std::string_view job_id) {
  for (const JobPlan& plan : scenario.jobs) {
    if (plan.job_id == job_id) return &plan;
  }
  return nullptr;
}

bool is_link(const Target& target) {
  return target.leaf >= 0 && target.spine >= 0;
}

int32_t fleet_hosts(const Scenario& scenario) {
  int32_t hosts = 0;
  for (const JobPlan& plan : scenario.jobs)
    hosts = std::max(hosts, plan.first_host + (plan.world_size() - 1) / scenario.topology.gpus_per_host + 1);
  return hosts;
}

std::string topology_file(const Scenario& scenario) {
  const int32_t leaves = scenario.topology.leaves(fleet_hosts(scenario));
  std::string text = "version: 1\nswitches:\n";
  for (int32_t leaf = 0; leaf < leaves; ++leaf) text += format("  - {name: %s, tier: leaf}\n", leaf_name(leaf).c_str());
  for (int32_t spine = 0; spine < scenario.topology.spines; ++spine)
    text += format("  - {name: %s, tier: spine}\n", spine_name(spine).c_str());
  text += "links:\n";
  for (int32_t leaf = 0; leaf < leaves; ++leaf)
    for (int32_t spine = 0; spine < scenario.topology.spines; ++spine)
      text +=
          format("  - {a: \"%s:%s\", b: \"%s:%s\", gbit: %g}\n", leaf_name(leaf).c_str(), uplink_name(spine).c_str(),
                 spine_name(spine).c_str(), downlink_name(leaf).c_str(), 8 * scenario.topology.nic_gb_s);
  return text;
}

std::vector<Rank> ranks_of(const Target& target, const JobShape& shape) {
  std::vector<Rank> ranks;
  if (target.rank != kNoRank) {
    if (target.rank < Rank{shape.world_size()}) ranks.push_back(target.rank);
    return ranks;
  }
  for (Rank rank : all_ranks(shape.world_size())) {
    const bool hit = target.host >= 0     ? shape.first_host + shape.host_of(rank) == target.host
                     : target.stage >= 0  ? shape.stage_of(rank) == target.stage
                     : target.spine >= 0  ? sends_over(shape, rank, target)
                     : target.leaf >= 0   ? shape.leaf_of(rank) == target.leaf
                     : target.expert >= 0 ? shape.index_in(Role::kEp, rank) == target.expert
                                          : true;
    if (hit) ranks.push_back(rank);
  }
  return ranks;
}

uint64_t node_seed(const Scenario& scenario) {
  return mix(scenario.seed ^ 0x40DEull);
}

bool is_hang(Cause cause) {
  return cause == Cause::kXid || cause == Cause::kRankMissing || cause == Cause::kOpMismatch ||
         cause == Cause::kDeadlock || cause == Cause::kRankDead;
}

double amount_at(const Scenario& scenario, size_t index, StepNumber step) {
  const ScenarioFault& fault = scenario.faults[index];
  const int64_t since = step - fault.from_step;
  if (since < 0 || (fault.steps > 0 && since >= fault.steps)) return 0;
  switch (fault.shape) {
    case Shape::kConstant:
      return fault.severity;
    case Shape::kPulsed:
      return since % fault.period_steps < std::max<int64_t>(1, fault.period_steps / 2) ? fault.severity : 0;
    case Shape::kRamp: {
      const int64_t length =
          fault.steps > 0 ? fault.steps : std::max<int64_t>(1, scenario.steps - fault.from_step.value());
      return fault.severity * std::min(1.0, static_cast<double>(since + 1) / static_cast<double>(length));
    }
    case Shape::kIntermittent: {
      const uint64_t drawn = mix(mix(scenario.seed ^ (0xFA01ull + index)) ^ static_cast<uint64_t>(step.value()));
      return drawn % static_cast<uint64_t>(fault.period_steps) == 0 ? fault.severity : 0;
    }
  }
  return 0;
}

bool has_signs(Cause cause) {
  return cause == Cause::kEcc || cause == Cause::kThrottleThermal || cause == Cause::kSlowCompute ||
         cause == Cause::kNvlinkDegraded || cause == Cause::kNicDegraded || cause == Cause::kLinkFlap;
}

double sign_at(const Scenario& scenario, size_t index, StepNumber step) {
  const ScenarioFault& fault = scenario.faults[index];
  const JobPlan* plan = find_job(scenario, fault.target.job);
  if (plan == nullptr || fault.precursor_s <= 0 || step >= fault.from_step) return 0;
  const double left_s = static_cast<double>(fault.from_step - step) * plan->step_ms / 1000;
  return std::max(0.0, 1 - left_s / fault.precursor_s);
}

double sign_at(const FalseSign& sign, StepNumber step) {
  const double risen = static_cast<double>(step - sign.of.from_step) / static_cast<double>(sign.of.steps);
  if (risen <= 0) return 0;
  const double share = risen <= 1 ? risen : sign.falls ? std::max(0.0, 2 - risen) : 1;
  return sign.level * share;
}

std::string describe(const ScenarioFault& fault) {
  const Target& target = fault.target;
  std::string where = target.rank != kNoRank ? format("rank %d of ", target.rank.value())
                      : target.host >= 0     ? format("host %d of ", target.host)
                      : target.stage >= 0    ? format("stage %d of ", target.stage)
                      : is_link(target)   ? format("the link of leaf %d and spine %d under ", target.leaf, target.spine)
                      : target.spine >= 0 ? format("spine %d under ", target.spine)
                      : target.leaf >= 0  ? format("leaf %d under ", target.leaf)
                      : target.expert >= 0 ? format("expert %d of ", target.expert)
                                           : "";
  std::string text = format("%s on %sjob %s", to_text(fault.cause), where.c_str(), target.job.c_str());
  if (!is_hang(fault.cause) && fault.cause != Cause::kNanSource) text += format(", %.3g %%", 100 * fault.severity);
  text += format(", from step %lld", static_cast<long long>(fault.from_step.value()));
  if (fault.steps > 0) text += format(" for %lld steps", static_cast<long long>(fault.steps));
  if (fault.shape != Shape::kConstant) text += format(", %s", kShapes[static_cast<size_t>(fault.shape)]);
  if (fault.precursor_s > 0) text += format(", its signs %.0f s before it", fault.precursor_s);
  return text;
}

}  // namespace lockstep::sim
