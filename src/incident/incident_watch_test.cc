#include "incident/incident_watch.h"

#include <gtest/gtest.h>

#include "fabric/testing/fleet.h"
#include "ingest/counters_table.h"
#include "store/sqlite_state_store.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep::incident {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

struct Verdicts final : VerdictSource {
  std::vector<Verdict> list;
  std::vector<Verdict> verdicts(std::string_view) const override { return list; }
  std::string summary(std::string_view) const override { return {}; }
};

class Watch : public ::testing::Test {
 protected:
  Watch() {
    for (int32_t host = 0; host < shape_.hosts; ++host)
      fabric_.topology.on_metrics({{"host.name", fabric::fleet_host(host)}}, fabric::fleet_points(shape_, host),
                                  clock_.unix_ns());
    start();
  }
  void start() {
    watch_.reset();
    registry_.reset();
    registry_ = std::make_unique<IncidentRegistry>(*state_, clock_, witness_, counters_);
    watch_ = std::make_unique<IncidentWatch>(*registry_, IncidentWatch::Reads{verdicts_, alerts_, fabric_}, clock_);
    watch_->go_live();
  }
  // A job with a rank on each of these GPUs of hosts, rail by rail.
  void place(const std::string& job, std::vector<std::pair<int32_t, int32_t>> gpus) {
    for (size_t rank = 0; rank < gpus.size(); ++rank) {
      const auto [host, gpu] = gpus[rank];
      fabric_.places.on_rank_started({job, 0, Rank{static_cast<int32_t>(rank)}, static_cast<int32_t>(gpus.size()), gpu,
                                      fabric::fleet_host(host), fabric::fleet_gpu(host, gpu)},
                                     clock_.unix_ns());
    }
  }
  Verdict& judge(const std::string& id, const std::string& job, Layer layer, Cause cause, std::vector<Rank> ranks) {
    Verdict verdict;
    verdict.id = id;
    verdict.job_id = job;
    verdict.state = VerdictState::kConfirmed;
    verdict.since_unix_ns = verdict.found_unix_ns = clock_.unix_ns();
    verdict.culprit = {.ranks = ranks, .layer = layer, .cause = cause};
    if (const auto at = fabric_.places.find(job, ranks.empty() ? 0_rank : ranks[0], clock_.unix_ns());
        at && !ranks.empty()) {
      verdict.culprit.host = at->host;
      verdict.culprit.gpu_uuid = at->gpu_uuid;
    }
    verdict.lost_gpu_seconds = 60;
    verdict.sentence = "Verdict " + id + ".";
    return verdicts_.list.emplace_back(std::move(verdict));
  }
  NodeEvent xid(const std::string& gpu) {
    return {.name = "gpu.xid",
            .time_unix_ns = clock_.unix_ns() - 5,
            .severity = EventSeverity::kCritical,
            .gpu_uuid = gpu,
            .code = 79,
            .meaning = "GPU fell off the bus",
            .action = "drain the node"};
  }
  void pass(int64_t seconds) {
    for (int64_t i = 0; i < seconds; ++i) {
      clock_.advance(kSecond);
      watch_->tick();
    }
  }
  std::vector<std::string> components() {
    std::vector<std::string> list;
    for (const Incident& one : registry_->incidents()) list.push_back(one.place.component);
    return list;
  }
  using Texts = std::vector<std::string>;

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_;
  Counters counters_{kServerCounters};
  std::unique_ptr<StateStore> state_ = open_sqlite_state_store(folder_.path() + "/state.sqlite").value();
  Verdicts verdicts_;
  ClockWitness witness_{clock_};
  AlertRegistry alerts_{*state_, clock_, witness_, counters_};
  const fabric::FleetShape shape_;
  fabric::Fabric fabric_{fabric::fleet_switches(shape_), clock_};
  std::unique_ptr<IncidentRegistry> registry_;
  std::unique_ptr<IncidentWatch> watch_;
};

TEST_F(Watch, TwoJobsThatSufferFromOneSwitchAreOneIncidentThatNamesItAndAllWhoDependOnIt) {
  place("a", {{0, 3}, {1, 3}});
  place("b", {{0, 3}, {1, 3}, {2, 3}, {3, 3}});
  place("idle", {{1, 3}, {1, 4}});
  judge("va", "a", Layer::kSwitch, Cause::kCongestion, {0_rank, 1_rank});
  judge("vb", "b", Layer::kSwitch, Cause::kCongestion, {0_rank, 1_rank});
  pass(1);
  ASSERT_EQ(components(), Texts{"leaf:leaf-3"});
  const Incident incident = registry_->incidents()[0];
  EXPECT_EQ(costs_of(incident, clock_.unix_ns()).size(), 2u);
  ASSERT_TRUE(incident.radius.is_known);
  EXPECT_EQ(incident.radius.hosts, 2);
  EXPECT_EQ(incident.radius.jobs_total, 3) << "who is on it without a verdict is at risk too";
  EXPECT_EQ(incident.radius.jobs[0].ranks_hit, 2);
}

TEST_F(Watch, AnXidAndTheVerdictsOfTwoJobsOnThatGpuAreOneIncident) {
  const std::string gpu = fabric::fleet_gpu(0, 1);
  place("a", {{0, 1}, {0, 2}});
  place("b", {{0, 1}});
  watch_->on_node_event(fabric::fleet_host(0), xid(gpu), clock_.unix_ns());
  judge("va", "a", Layer::kGpu, Cause::kXid, {0_rank});
  judge("vb", "b", Layer::kGpu, Cause::kSlowCompute, {0_rank});
  pass(1);
  ASSERT_EQ(components(), Texts{"gpu:" + gpu});
  EXPECT_EQ(registry_->incidents()[0].findings.size(), 3u);
  EXPECT_EQ(severity_of(registry_->incidents()[0]), AlertSeverity::kCritical);
  EXPECT_EQ(watch_->path_of({.verdict_id = "vb"}), "/incidents/" + registry_->incidents()[0].id);
}

TEST_F(Watch, AFlappingPortAndTheSlowLinkOfItsRankAreOneIncident) {
  place("a", {{0, 1}, {2, 1}});
  NodeEvent down{.name = "link.down", .time_unix_ns = 7, .severity = EventSeverity::kCritical, .device = "mlx5_1/1"};
  watch_->on_node_event(fabric::fleet_host(0), down, clock_.unix_ns());
  judge("va", "a", Layer::kLink, Cause::kNicDegraded, {0_rank});
  pass(1);
  EXPECT_EQ(components(), Texts{"nic:" + fabric::fleet_host(0) + ":mlx5_1"});
  NodeEvent up = down;
  up.name = "link.up";
  up.time_unix_ns = 9;
  watch_->on_node_event(fabric::fleet_host(0), up, clock_.unix_ns());
  verdicts_.list[0].state = VerdictState::kCleared;
  pass(6);
  EXPECT_FALSE(is_active(registry_->incidents()[0], clock_.unix_ns()));
}

TEST_F(Watch, WhatIsTheJobsOwnIsApartByCauseAndNeverAnotherJobs) {
  place("a", {{0, 0}});
  place("b", {{0, 0}});
  judge("v1", "a", Layer::kSoftware, Cause::kOpMismatch, {0_rank});
  judge("v2", "a", Layer::kUnknown, Cause::kNanSource, {});
  judge("v3", "b", Layer::kSoftware, Cause::kOpMismatch, {0_rank});
  pass(1);
  EXPECT_EQ(registry_->incidents().size(), 3u);
  const Incident incident = *registry_->find(registry_->id_of_finding("v3"));
  EXPECT_EQ(incident.place.component, "job:b");
  EXPECT_EQ(incident.radius.jobs.at(0).ranks, 1);
}

TEST_F(Watch, ASuspicionThatIsWithdrawnAndCulpritsOnSeveralHostsBlameNoMachine) {
  place("a", {{0, 0}, {1, 0}, {0, 1}});
  Verdict withdrawn = judge("v1", "a", Layer::kHost, Cause::kCpuContention, {0_rank});
  verdicts_.list.clear();
  withdrawn.state = VerdictState::kCleared;
  watch_->note({&withdrawn, 1});
  pass(6);
  EXPECT_EQ(components(), Texts{});
  judge("v2", "a", Layer::kHost, Cause::kRankMissing, {0_rank, 1_rank});
  judge("v3", "a", Layer::kHost, Cause::kCpuContention, {0_rank, 2_rank});
  pass(6);
  EXPECT_EQ(registry_->find(registry_->id_of_finding("v2"))->place.component, "job:a");
  EXPECT_EQ(registry_->find(registry_->id_of_finding("v3"))->place.component, "host:" + fabric::fleet_host(0));
}

TEST_F(Watch, SuspicionsAreNoIncidentsAndAFailureIsNewsForAnHour) {
  judge("v1", "a", Layer::kHost, Cause::kCpuContention, {0_rank}).state = VerdictState::kSuspected;
  Verdict& fail = judge("v2", "b", Layer::kHost, Cause::kRankDead, {});
  fail.kind = VerdictKind::kFail;
  pass(5);
  ASSERT_EQ(components(), Texts{"job:b"});
  EXPECT_EQ(registry_->is_lasting("v2"), true);
  clock_.advance(3'600 * kSecond);
  pass(6);
  EXPECT_EQ(registry_->is_lasting("v2"), false);
}

TEST_F(Watch, ARestartAndALogThatIsReadBackChangeNothing) {
  const std::string gpu = fabric::fleet_gpu(0, 1);
  place("a", {{0, 1}});
  const NodeEvent event = xid(gpu);
  const int64_t received = clock_.unix_ns();
  watch_->on_node_event(fabric::fleet_host(0), event, received);
  judge("va", "a", Layer::kGpu, Cause::kXid, {0_rank});
  pass(6);
  const Incident before = registry_->incidents()[0];
  ASSERT_TRUE(registry_->resolve(before.id, "ann", "").ok());
  start();
  watch_->on_node_event(fabric::fleet_host(0), event, received);
  watch_->note(verdicts_.list);
  pass(6);
  ASSERT_EQ(registry_->incidents().size(), 1u);
  const Incident after = registry_->incidents()[0];
  EXPECT_EQ(after.id, before.id);
  EXPECT_EQ(after.state, State::kResolved);
  EXPECT_EQ(after.findings.size(), 2u);
  // The sender repeats itself later.
  watch_->on_node_event(fabric::fleet_host(0), event, clock_.unix_ns());
  pass(1);
  EXPECT_EQ(registry_->incidents()[0].findings.size(), 2u);
  EXPECT_EQ(registry_->incidents()[0].state, State::kResolved);
}

TEST_F(Watch, AVerdictThatDiagnosisHasForgottenIsOver) {
  place("a", {{0, 1}});
  judge("va", "a", Layer::kGpu, Cause::kEcc, {0_rank});
  pass(1);
  verdicts_.list.clear();
  pass(6);
  EXPECT_EQ(registry_->is_lasting("va"), false);
  pass(700);
  EXPECT_EQ(registry_->incidents()[0].state, State::kResolved);
}

TEST_F(Watch, WhatOnlyAMetricSaysIsAnIncidentWhileItsAlertFires) {
  RaisedAlert raised{.source = AlertSource::kMetric, .fingerprint = "f1", .name = "LockstepGpuEcc"};
  raised.labels = {{"cause", "ecc"}, {"component", "gpu GPU-9 of node-9"}, {"gpu", "GPU-9"}, {"host", "node-9"}};
  raised.annotations = {{"summary", "Memory errors on GPU-9."}};
  alerts_.set_incident_path([&](const Alert& alert) { return watch_->path_of(alert); });
  alerts_.raise(raised);
  pass(1);
  ASSERT_EQ(components(), Texts{"gpu:GPU-9"});
  EXPECT_FALSE(registry_->incidents()[0].radius.is_known);
  alerts_.tick();
  EXPECT_EQ(alerts_.alerts()[0].annotation("incident"), "/incidents/" + registry_->incidents()[0].id);
  alerts_.clear(AlertSource::kMetric, "f1");
  for (int i = 0; i < 40; ++i) {
    pass(1);
    alerts_.tick();
  }
  EXPECT_FALSE(is_active(registry_->incidents()[0], clock_.unix_ns()));
}

}  // namespace
}  // namespace lockstep::incident
