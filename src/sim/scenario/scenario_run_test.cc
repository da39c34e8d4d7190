#include "sim/scenario/scenario_run.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/text.h"
#include "model/events.h"
#include "wire/otlp.h"

namespace lockstep::sim {
namespace {

constexpr int64_t kStart = 1'700'000'000'000'000'000;
constexpr int64_t kSecondNs = 1'000'000'000;

Scenario scenario_of(const std::string& yaml) {
  Result<Scenario> scenario = parse_scenario(yaml, "test.yaml");
  EXPECT_TRUE(scenario.ok()) << scenario.error();
  return scenario.ok() ? *scenario : Scenario{.steps = 1, .jobs = {JobPlan{}}};
}

struct Status {
  Identity who;
  int64_t at_ns = 0;
  RankStatus status;
};

// Everything a run sent.
struct Heard {
  std::vector<int64_t> times;
  std::map<std::string, std::map<Rank, int64_t>> events;  // event -> rank -> how often
  std::vector<Status> statuses;
  std::map<StepNumber, std::map<Rank, StepSummary>> steps;
  std::map<StepNumber, int64_t> step_attempt;
  std::set<std::string> hosts, metric_hosts, versions;
  std::map<std::string, std::pair<int64_t, int64_t>> ends;  // job -> clean, unclean
  std::map<int64_t, int32_t> world;                         // by attempt
  int64_t requests = 0;
  std::string bytes;
  std::vector<ScenarioRun::Onset> onsets;

  explicit Heard(const Scenario& scenario, bool keep_bytes = false) {
    ScenarioRun run(scenario, kStart);
    while (std::optional<Sent> sent = run.next()) {
      ++requests;
      times.push_back(sent->at_unix_ns);
      if (keep_bytes) bytes += otlp::encode(sent->batch);
      for (const ResourceGroup& group : sent->batch.groups) take(*sent, group);
    }
    onsets = run.onsets();
  }
  void take(const Sent& sent, const ResourceGroup& group) {
    if (!group.points.empty()) metric_hosts.insert(std::string(find_string(group.resource, "host.name")));
    Result<Identity> who = identity_from_resource(group.resource);
    for (const LogRecord& record : group.logs) {
      if (!who.ok()) continue;  // of a node, not of a job
      hosts.insert(who->host);
      ++events[record.event_name][who->rank];
      if (record.event_name == kEventTrainStep) {
        Result<StepSummary> step = step_from_record(record);
        ASSERT_TRUE(step.ok()) << step.error();
        step_attempt[step->step] = who->attempt;
        world[who->attempt] = who->world_size;
        steps[step->step][who->rank] = *step;
      } else if (record.event_name == kEventRankStatus) {
        Result<RankStatus> status = status_from_record(record);
        ASSERT_TRUE(status.ok()) << status.error();
        statuses.push_back({*who, sent.at_unix_ns, *status});
      } else if (record.event_name == kEventJobEnd) {
        auto& [clean, unclean] = ends[who->job_id];
        ++(std::get<bool>(find(record.attributes, "clean")->data) ? clean : unclean);
      } else if (record.event_name == kEventJobStart) {
        versions.insert(std::string(find_string(record.attributes, "version")));
      }
    }
  }
};

TEST(ScenarioRun, TellsWhatTheAgentsOfAHealthyFleetTellInOrder) {
  const Heard heard(scenario_of("steps: 30\njobs: [{tp: 2, pp: 2, dp: 4}]\n"));
  EXPECT_TRUE(std::is_sorted(heard.times.begin(), heard.times.end()));
  for (Rank rank : all_ranks(16)) {
    EXPECT_EQ(heard.events.at("job.start").at(rank), 1);
    EXPECT_EQ(heard.events.at("comm.init").at(rank), 4);
    EXPECT_EQ(heard.events.at("comm.group").at(rank), 4);
    EXPECT_EQ(heard.events.at("train.step").at(rank), 30);
    EXPECT_EQ(heard.events.at("job.end").at(rank), 1);
  }
  EXPECT_TRUE(heard.statuses.empty());
  EXPECT_EQ(heard.ends.at("sim").first, 16);
  EXPECT_EQ(heard.metric_hosts, (std::set<std::string>{"node-00", "node-01"}));
  EXPECT_NEAR(static_cast<double>(heard.times.back() - kStart) / 1e9, 15.5, 1) << "30 steps of half a second";
}

TEST(ScenarioRun, TheSameScenarioGivesTheSameBytes) {
  const std::string yaml =
      "steps: 40\nseed: 5\njobs: [{tp: 2, dp: 8, step_ms: 200}, {job: b, pp: 2, dp: 4, step_ms: 300}]\n"
      "faults: [{cause: throttle-power, rank: 3, from_step: 10}, {cause: rank-dead, job: b, rank: 2, from_step: 20, "
      "steps: 10}]\n"
      "oddities: [{kind: packing}, {kind: garbage, job: b}]\n"
      "telemetry: {late_share: 0.2, late_ms: 700, duplicated: 0.1, lost_agents: 0.3}\n";
  const Heard one(scenario_of(yaml), true), two(scenario_of(yaml), true);
  EXPECT_GT(one.bytes.size(), 100'000u);
  EXPECT_EQ(one.bytes, two.bytes);
  EXPECT_EQ(one.times, two.times);
  Scenario other = scenario_of(yaml);
  other.seed = 6;
  EXPECT_NE(Heard(other, true).bytes, one.bytes);
}

TEST(ScenarioRun, SaysWhenEachFaultBeganAndEnded) {
  const Heard heard(
      scenario_of("steps: 60\njobs: [{dp: 8}]\n"
                  "faults: [{cause: ecc, rank: 3, from_step: 20, steps: 20},\n"
                  "         {cause: data-loader, rank: 1, from_step: 50},\n"
                  "         {cause: gc, from_step: 1000}]\n"));
  ASSERT_EQ(heard.onsets.size(), 3u);
  ASSERT_EQ(heard.onsets[0].harmed.size(), 20u);
  EXPECT_EQ(heard.onsets[0].harmed.front(), 20_step);
  EXPECT_NEAR(static_cast<double>(heard.onsets[0].began_unix_ns - kStart) / 1e9, 10, 1);
  EXPECT_GT(heard.onsets[0].ended_unix_ns, heard.onsets[0].began_unix_ns + 9 * kSecondNs);
  EXPECT_EQ(heard.onsets[1].harmed.front(), 50_step);
  EXPECT_EQ(heard.onsets[1].ended_unix_ns, 0) << "to the end";
  EXPECT_EQ(heard.onsets[2].began_unix_ns, 0);
}

TEST(ScenarioRun, SaysInWhichStepsAFaultDidHarm) {
  const Heard heard(
      scenario_of("steps: 60\njobs: [{dp: 8}]\n"
                  "faults: [{cause: ecc, rank: 3, from_step: 20, shape: pulsed, period_steps: 10}]\n"));
  ASSERT_EQ(heard.onsets[0].harmed.size(), 20u);
  EXPECT_EQ(heard.onsets[0].harmed[4], 24_step);
  EXPECT_EQ(heard.onsets[0].harmed[5], 30_step);
}

TEST(ScenarioRun, LostAgentsAndPluginsAreSilentInTheirNumber) {
  const Heard heard(
      scenario_of("steps: 10\njobs: [{dp: 160}]\n"
                  "telemetry: {lost_agents: 0.25, no_plugin: 0.1, no_metrics: 0.5}\n"));
  EXPECT_EQ(heard.hosts.size(), 15u) << "of 20";
  EXPECT_NEAR(static_cast<double>(heard.events.at("train.step").size()), 15 * 8 * 0.9, 6);
  EXPECT_LE(heard.metric_hosts.size(), 10u);
  for (const std::string& host : heard.metric_hosts) EXPECT_TRUE(heard.hosts.contains(host));
  const Heard guilty(
      scenario_of("steps: 10\njobs: [{dp: 160}]\nfaults: [{cause: ecc, rank: 77, from_step: 2}]\n"
                  "telemetry: {guilty_agent_lost: true}\n"));
  EXPECT_EQ(guilty.hosts.size(), 19u);
  EXPECT_FALSE(guilty.hosts.contains("node-09"));
}

TEST(ScenarioRun, LateAndRepeatedRequestsAreLateAndRepeated) {
  const std::string job = "steps: 100\njobs: [{dp: 64, step_ms: 200}]\ntelemetry: {no_metrics: 1, ";
  const Heard plain(scenario_of(job + "}\n")), twice(scenario_of(job + "duplicated: 0.25}\n")),
      late(scenario_of(job + "late_share: 0.25, late_ms: 5000}\n"));
  EXPECT_EQ(late.requests, plain.requests);
  EXPECT_NEAR(static_cast<double>(twice.requests) / static_cast<double>(plain.requests), 1.25, 0.05);
  EXPECT_GT(late.times.back(), plain.times.back() + 3 * kSecondNs);
  EXPECT_TRUE(std::is_sorted(late.times.begin(), late.times.end()));
}

// The ranks that a status says are inside an operation, and the one that is not.
struct Standstill {
  std::set<Rank> waiting, idle, dead, stopped;
  explicit Standstill(const Heard& heard) {
    for (const Status& status : heard.statuses) {
      bool waits = false;
      for (const CommStatus& comm : status.status.comms)
        waits |= comm.collective.state == OpState::kStarted || comm.p2p.state == OpState::kStarted;
      const Rank rank = status.who.rank;
      if (!status.status.process_alive) dead.insert(rank);
      if (status.status.process_stopped) stopped.insert(rank);
      (waits ? waiting : idle).insert(rank);
    }
  }
};

TEST(ScenarioRun, AMissingRankIsTheOnlyOneInNoOperationAndTheJobEndsUnclean) {
  const Heard heard(
      scenario_of("steps: 100\njobs: [{tp: 2, pp: 2, dp: 4}]\n"
                  "faults: [{cause: rank-missing, rank: 6, from_step: 20}]\n"));
  EXPECT_EQ(heard.steps.size(), 20u);
  const Standstill at(heard);
  EXPECT_EQ(at.idle, std::set<Rank>{6_rank});
  EXPECT_EQ(at.waiting.size(), 15u);
  EXPECT_EQ(heard.ends.at("sim").second, 16);
  ASSERT_NE(heard.onsets[0].began_unix_ns, 0);
  const int64_t first = heard.statuses.front().at_ns - heard.onsets[0].began_unix_ns;
  EXPECT_GE(first, 2 * kSecondNs);
  EXPECT_LE(first, 3 * kSecondNs) << "agents tell of quiet ranks after two seconds";
  EXPECT_GE(heard.times.back() - heard.onsets[0].began_unix_ns, 35 * kSecondNs) << "watched to the end";
}

TEST(ScenarioRun, AMissingRankThatEntersAfterAllLetsTheJobGoOn) {
  const Heard heard(
      scenario_of("steps: 60\njobs: [{tp: 2, pp: 2, dp: 4}]\n"
                  "faults: [{cause: rank-missing, rank: 6, from_step: 20, steps: 16}]\n"));
  EXPECT_EQ(heard.steps.size(), 60u);
  EXPECT_EQ(heard.ends.at("sim").first, 16);
  EXPECT_NEAR(static_cast<double>(heard.steps.at(20_step).at(0_rank).duration_ns) / 1e9, 8.5, 0.3);
  EXPECT_NEAR(static_cast<double>(heard.steps.at(21_step).at(0_rank).duration_ns) / 1e9, 0.5, 0.1);
  EXPECT_EQ(heard.statuses.back().status.quiet_ns, 0) << "moving again";
}

TEST(ScenarioRun, ADeadRankIsToldDeadAndTheJobIsRestarted) {
  const Heard heard(
      scenario_of("steps: 60\njobs: [{tp: 2, pp: 2, dp: 4}]\n"
                  "faults: [{cause: rank-dead, rank: 6, from_step: 20, steps: 20}]\n"));
  const Standstill at(heard);
  EXPECT_TRUE(at.dead.contains(6_rank));
  const Status* first_dead = nullptr;
  for (const Status& status : heard.statuses) {
    if (!status.status.process_alive && first_dead == nullptr) first_dead = &status;
  }
  ASSERT_NE(first_dead, nullptr);
  EXPECT_EQ(first_dead->who.rank, 6_rank);
  EXPECT_LE(first_dead->at_ns - heard.onsets[0].began_unix_ns, 2 * kSecondNs);
  EXPECT_EQ(heard.steps.size(), 60u);
  EXPECT_EQ(heard.step_attempt.at(19_step), 0);
  EXPECT_EQ(heard.step_attempt.at(59_step), 1);
  EXPECT_EQ(heard.ends.at("sim"), (std::pair<int64_t, int64_t>{16, 16}));
}

TEST(ScenarioRun, AMismatchShowsTwoOperationsAtTheSamePlace) {
  const Heard heard(
      scenario_of("steps: 40\njobs: [{dp: 8}]\nfaults: [{cause: op-mismatch, rank: 3, from_step: 20}]\n"));
  std::map<std::string, std::set<Rank>> functions;
  std::set<uint64_t> ordinals;
  for (const Status& status : heard.statuses) {
    const OpStatus& op = status.status.comms.at(0).collective;
    EXPECT_EQ(op.state, OpState::kStarted);
    functions[op.function].insert(status.who.rank);
    ordinals.insert(op.ordinal);
  }
  EXPECT_EQ(functions["AllGather"], std::set<Rank>{3_rank});
  EXPECT_EQ(functions["AllReduce"].size(), 7u);
  EXPECT_EQ(ordinals.size(), 1u);
}

TEST(ScenarioRun, ADeadlockIsACircleOfTwoGroups) {
  const Heard heard(
      scenario_of("steps: 40\njobs: [{tp: 2, dp: 4}]\nfaults: [{cause: deadlock, rank: 3, from_step: 20}]\n"));
  const Standstill at(heard);
  EXPECT_EQ(at.waiting.size(), 8u);
  EXPECT_TRUE(at.idle.empty());
  std::map<Rank, int32_t> waits_in;  // rank -> size of the group it waits in
  for (const Status& status : heard.statuses) {
    for (const CommStatus& comm : status.status.comms) {
      if (comm.collective.state == OpState::kStarted) waits_in[status.who.rank] = comm.size;
    }
  }
  EXPECT_EQ(waits_in[3_rank], 8) << "the whole job";
  for (Rank peer : {1_rank, 5_rank, 7_rank}) EXPECT_EQ(waits_in[peer], 4) << "its gradient group, which waits for it";
}

TEST(ScenarioRun, AStoppedProcessIsToldStopped) {
  const Heard heard(
      scenario_of("steps: 40\njobs: [{tp: 2, pp: 2, dp: 4}]\n"
                  "faults: [{cause: process-paused, rank: 9, from_step: 20}]\n"));
  EXPECT_EQ(Standstill(heard).stopped, std::set<Rank>{9_rank});
  EXPECT_EQ(heard.steps.size(), 20u);
  // A long pause is told while it lasts, and is over.
  const Heard pause(
      scenario_of("steps: 40\njobs: [{tp: 2, pp: 2, dp: 4}]\n"
                  "faults: [{cause: process-paused, rank: 9, from_step: 20, steps: 1, severity: 10}]\n"));
  EXPECT_EQ(Standstill(pause).stopped, std::set<Rank>{9_rank});
  EXPECT_EQ(pause.steps.size(), 40u);
  EXPECT_NEAR(static_cast<double>(pause.steps.at(20_step).at(0_rank).duration_ns) / 1e9, 5.5, 0.3);
}

TEST(ScenarioRun, AnXidKillsItsRankAndIsInTheKernelLog) {
  const Heard heard(scenario_of("steps: 40\njobs: [{tp: 2, dp: 8}]\nfaults: [{cause: xid, rank: 5, from_step: 10}]\n"));
  EXPECT_TRUE(Standstill(heard).dead.contains(5_rank));
  EXPECT_TRUE(heard.events.contains("gpu.xid"));
}

TEST(ScenarioRun, LongEvaluationsAreToldAsSuchWithNothingInFlight) {
  const Heard heard(
      scenario_of("steps: 24\njobs: [{tp: 2, pp: 2, dp: 4}]\n"
                  "oddities: [{kind: evaluation, amount: 12, every_steps: 10}]\n"));
  EXPECT_EQ(heard.steps.size(), 24u);
  ASSERT_FALSE(heard.statuses.empty());
  int64_t quiet = 0;
  for (const Status& status : heard.statuses) {
    if (status.status.quiet_ns == 0) continue;
    ++quiet;
    EXPECT_EQ(status.status.phase, Phase::kEval);
    for (const CommStatus& comm : status.status.comms) EXPECT_NE(comm.collective.state, OpState::kStarted);
  }
  EXPECT_GT(quiet, 16);
  EXPECT_NEAR(static_cast<double>(heard.steps.at(9_step).at(3_rank).phase_ns[static_cast<size_t>(Phase::kEval)]) / 1e9,
              6, 0.1);
}

TEST(ScenarioRun, ANewVersionIsANewAttempt) {
  const Heard heard(
      scenario_of("steps: 40\njobs: [{dp: 8}]\nfaults: [{cause: code-regression, from_step: 20, severity: 0.3}]\n"));
  EXPECT_EQ(heard.steps.size(), 40u);
  EXPECT_EQ(heard.step_attempt.at(19_step), 0);
  EXPECT_EQ(heard.step_attempt.at(20_step), 1);
  EXPECT_EQ(heard.versions, (std::set<std::string>{"v1", "v2"}));
  EXPECT_GT(heard.steps.at(30_step).at(0_rank).duration_ns, heard.steps.at(10_step).at(0_rank).duration_ns * 1.15);
}

TEST(ScenarioRun, AnElasticJobComesBackSmaller) {
  const Heard heard(
      scenario_of("steps: 50\njobs: [{tp: 2, dp: 8}]\noddities: [{kind: resize, every_steps: 20, amount: 0.25}]\n"));
  EXPECT_EQ(heard.steps.size(), 50u);
  EXPECT_EQ(heard.world.at(0), 16);
  EXPECT_EQ(heard.world.at(1), 12);
  EXPECT_EQ(heard.world.at(2), 16);
  EXPECT_EQ(heard.steps.at(30_step).size(), 12u);
}

TEST(ScenarioRun, JobsRunBesideEachOtherForTheSameTime) {
  Scenario scenario = scenario_of("steps: 40\njobs: [{dp: 8, step_ms: 500}, {job: fast, dp: 8, step_ms: 100}]\n");
  ScenarioRun run(scenario, kStart);
  std::map<std::string, int64_t> steps;
  std::map<std::string, int64_t> last;
  while (std::optional<Sent> sent = run.next()) {
    for (const ResourceGroup& group : sent->batch.groups) {
      for (const LogRecord& record : group.logs) {
        if (record.event_name != kEventTrainStep) continue;
        const std::string job(find_string(group.resource, "lockstep.job_id"));
        ++steps[job];
        last[job] = sent->at_unix_ns;
      }
    }
  }
  EXPECT_EQ(steps["sim"], 40 * 8);
  EXPECT_EQ(steps["fast"], 200 * 8);
  EXPECT_LT(std::abs(last["sim"] - last["fast"]), 4 * kSecondNs);
}

}  // namespace
}  // namespace lockstep::sim
