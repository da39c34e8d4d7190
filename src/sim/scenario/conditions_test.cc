// Each cause leaves the footprint that it leaves on a real job: who works longer, who waits, where in the step it
// shows.
#include "sim/scenario/conditions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include "base/text.h"

namespace lockstep::sim {
namespace {

constexpr int64_t kStart = 1'700'000'000'000'000'000;
constexpr const char* kThreeD = "tp: 4, pp: 4, dp: 8, micro_batches: 16";  // 128 ranks on 16 hosts

// The last of a few steps, played twice: as the scenario has it, and without its faults.
class Played {
 public:
  explicit Played(const std::string& job, const std::string& fault, const std::string& more = "", int64_t steps = 4)
      : scenario_(parsed(job, fault, more)), healthy_scenario_(scenario_) {
    healthy_scenario_.faults.clear();
    faulty_ = fleet(scenario_, steps);
    healthy_ = fleet(healthy_scenario_, steps);
  }
  StepSummary faulty(Rank rank) const { return faulty_->summary(rank); }
  StepSummary healthy(Rank rank) const { return healthy_->summary(rank); }
  int32_t world() const { return faulty_->shape().world_size(); }
  const Fleet& fleet() const { return *faulty_; }

  double self_ms(Rank rank) const { return ms(faulty(rank).self_ns - healthy(rank).self_ns); }
  double step_ms(Rank rank) const { return ms(faulty(rank).duration_ns - healthy(rank).duration_ns); }
  double phase_ms(Rank rank, Phase phase) const {
    const auto at = static_cast<size_t>(phase);
    return ms(faulty(rank).phase_ns[at] - healthy(rank).phase_ns[at]);
  }
  double part_ms(Rank rank, TimePart part) const {
    const auto at = static_cast<size_t>(part);
    return ms(faulty(rank).split_ns[at] - healthy(rank).split_ns[at]);
  }
  double queue_ms(Rank rank) const { return ms(faulty(rank).queue_ns - healthy(rank).queue_ns); }
  double comm_ratio(Rank rank, Role role) const {
    return static_cast<double>(comm(*faulty_, rank, role).gpu_ns) /
           static_cast<double>(comm(*healthy_, rank, role).gpu_ns);
  }
  CommStep comm(Rank rank, Role role) const { return comm(*faulty_, rank, role); }
  // Of what the rank sends to other hosts: time per byte on the wire, against healthy.
  double wire_ratio(Rank rank) const {
    auto slowest = [](const StepSummary& summary) {
      double most = 0;
      for (const FlowStep& flow : summary.flows) {
        if (flow.send) most = std::max(most, static_cast<double>(flow.wire_ns) / static_cast<double>(flow.bytes));
      }
      return most;
    };
    const double usual = slowest(healthy(rank));
    return usual > 0 ? slowest(faulty(rank)) / usual : 1;
  }
  static double ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }

 private:
  static CommStep comm(const Fleet& fleet, Rank rank, Role role) {
    const StepSummary summary = fleet.summary(rank);
    for (const CommStep& row : summary.comms) {
      if (fleet.role(rank, row.comm_id) == role) return row;
    }
    return {};
  }
  static Scenario parsed(const std::string& job, const std::string& fault, const std::string& more) {
    const std::string yaml = "steps: 100\njobs: [{" + job + ", step_ms: 500}]\n" +
                             (fault.empty() ? "" : "faults: [{from_step: 0, " + fault + "}]\n") + more;
    Result<Scenario> scenario = parse_scenario(yaml, "test.yaml");
    EXPECT_TRUE(scenario.ok()) << scenario.error();
    return scenario.ok() ? *scenario : Scenario{.jobs = {JobPlan{}}};
  }
  static std::unique_ptr<Fleet> fleet(const Scenario& scenario, int64_t steps) {
    const JobPlan& plan = scenario.jobs.front();
    const JobShape shape = shape_of(scenario, plan, 0, plan.dp);
    JobConditions conditions(scenario, plan, shape);
    auto fleet = std::make_unique<Fleet>(shape, kStart);
    for (StepNumber step = 0_step; step < StepNumber{steps}; ++step) {
      JobStep now = conditions.at(step);
      now.conditions.stops = now.stop.stops;
      if (!fleet->play_under(now.conditions) && now.stop.length_ns > 0)
        fleet->release(fleet->now_unix_ns() + now.stop.length_ns);
    }
    return fleet;
  }
  Scenario scenario_, healthy_scenario_;
  std::unique_ptr<Fleet> faulty_, healthy_;
};

TEST(Conditions, ADelayOfOneRankIsWaitedForByItsGroupsAndSpreadsToAll) {
  const Rank guilty = 13_rank;  // tensor group 12-15
  Played played(kThreeD, "cause: slow-compute, rank: 13, severity: 0.5");
  EXPECT_GT(played.self_ms(guilty), 80);
  for (Rank rank : all_ranks(played.world())) {
    EXPECT_NEAR(played.step_ms(rank), played.step_ms(guilty), 12) << "one pace for all";
    if (rank == guilty) continue;
    EXPECT_LT(std::abs(played.self_ms(rank)), 8) << "rank " << rank << " works as ever";
    EXPECT_LT(played.faulty(guilty).comm_ns, played.faulty(rank).comm_ns) << "the culprit waits least";
  }
  for (Rank peer : {12_rank, 14_rank, 15_rank}) EXPECT_GT(played.comm_ratio(peer, Role::kTp), 3);
  EXPECT_LT(played.comm_ratio(guilty, Role::kTp), 1.1);
}

TEST(Conditions, SlowKernelsLengthenForwardAndBackwardAndTheQueue) {
  for (const char* cause : {"slow-compute", "throttle-thermal", "throttle-power", "ecc", "foreign-process"}) {
    Played played(kThreeD, format("cause: %s, rank: 7, severity: 0.4", cause));
    EXPECT_GT(played.part_ms(7_rank, TimePart::kCompute), 60) << cause;
    EXPECT_NEAR(played.part_ms(7_rank, TimePart::kHost), 0, 8) << cause;
    EXPECT_GT(played.queue_ms(7_rank), 0.7 * played.self_ms(7_rank)) << cause;
    EXPECT_NEAR(played.part_ms(7_rank, TimePart::kInput), 0, 1) << cause;
    EXPECT_NEAR(played.part_ms(9_rank, TimePart::kCompute), 0, 1) << cause;
  }
}

TEST(Conditions, AForeignProcessAlsoSlowsTheTransfersOfItsGroups) {
  Played alone("dp: 32", "cause: slow-compute, rank: 7, severity: 0.6"),
      shared("dp: 32", "cause: foreign-process, rank: 7, severity: 0.6");
  // The last to arrive waits for nobody: its time is the transfer alone.
  EXPECT_NEAR(static_cast<double>(shared.comm(7_rank, Role::kDp).gpu_ns) /
                  static_cast<double>(alone.comm(7_rank, Role::kDp).gpu_ns),
              1.3, 0.05);
  EXPECT_NEAR(shared.wire_ratio(7_rank), 1, 0.1) << "the wire itself is as fast as ever";
}

TEST(Conditions, ALateHostIsLateInForwardOnlyAndNothingQueues) {
  Played played(kThreeD, "cause: cpu-contention, rank: 21, severity: 0.4");
  EXPECT_NEAR(played.part_ms(21_rank, TimePart::kHost), 200, 30);
  EXPECT_NEAR(played.self_ms(21_rank), 200, 30);
  EXPECT_NEAR(played.part_ms(21_rank, TimePart::kCompute), 0, 1);
  EXPECT_LT(std::abs(played.queue_ms(21_rank)), 10);
  EXPECT_GT(played.phase_ms(21_rank, Phase::kForward), 150);
  EXPECT_LT(played.phase_ms(21_rank, Phase::kBackward), 10);
  // Also where the host runs far ahead of the GPU.
  Played plain("dp: 16", "cause: cpu-contention, rank: 3, severity: 0.4");
  EXPECT_NEAR(plain.self_ms(3_rank), 200, 30);
  EXPECT_GT(plain.step_ms(11_rank), 150);
}

TEST(Conditions, MemoryPressureHitsAllRanksOfAHostAndTheirInputToo) {
  Played played(kThreeD, "cause: memory-pressure, host: 2, severity: 0.4");
  for (Rank rank : all_ranks(32)) {
    const bool hit = rank.value() / 8 == 2;
    EXPECT_NEAR(played.part_ms(rank, TimePart::kHost), hit ? 140 : 0, 30) << rank;
    EXPECT_NEAR(played.part_ms(rank, TimePart::kInput), hit ? 60 : 0, 10) << rank;
  }
}

TEST(Conditions, ALateInputShowsInTheInputPhase) {
  Played loader(kThreeD, "cause: data-loader, rank: 4, severity: 0.3");
  EXPECT_NEAR(loader.phase_ms(4_rank, Phase::kInput), 150, 20);
  EXPECT_NEAR(loader.phase_ms(5_rank, Phase::kInput), 0, 1);
  Played storage(kThreeD, "cause: storage, severity: 0.3");
  for (Rank rank : all_ranks(storage.world()))
    EXPECT_NEAR(storage.phase_ms(rank, Phase::kInput), 150, 45) << "everybody reads from it";
}

TEST(Conditions, ABadBusSlowsBothTheOwnWorkAndAllTransfersOfTheRank) {
  Played played("tp: 1, pp: 2, dp: 16", "cause: pcie-degraded, rank: 5, severity: 2");
  EXPECT_NEAR(played.self_ms(5_rank), 50, 10);
  EXPECT_NEAR(played.wire_ratio(5_rank), 3, 0.2);
  EXPECT_NEAR(played.wire_ratio(9_rank), 1, 0.2);
}

TEST(Conditions, ADegradedNvlinkLengthensTheTransfersOfItsTensorGroupOnly) {
  Played played("tp: 8, pp: 1, dp: 8", "cause: nvlink-degraded, rank: 19, severity: 1.5");
  for (Rank rank : all_ranks(played.world())) {
    const bool member = rank.value() / 8 == 2;
    EXPECT_NEAR(played.self_ms(rank), 0, 2) << "nobody arrives late";
    if (member) {
      EXPECT_GT(played.comm_ratio(rank, Role::kTp), 1.8) << "rank " << rank;
      EXPECT_LT(played.comm_ratio(rank, Role::kDp), 1.1) << "the last in the gradients' group";
    } else {
      EXPECT_NEAR(played.comm_ratio(rank, Role::kTp), 1, 0.05);
    }
  }
}

TEST(Conditions, ADegradedAdapterSlowsWhatLeavesByItAndNoOther) {
  Played played(kThreeD, "cause: nic-degraded, rank: 33, severity: 2");
  for (Rank rank : all_ranks(played.world())) {
    EXPECT_NEAR(played.self_ms(rank), 0, 2);
    const std::vector<Rank> ring = {33_rank, 37_rank, 41_rank, 45_rank, 49_rank, 53_rank, 57_rank, 61_rank};
    const bool in_ring = std::find(ring.begin(), ring.end(), rank) != ring.end();
    EXPECT_NEAR(played.comm_ratio(rank, Role::kDp), in_ring ? 3 : 1, in_ring ? 0.6 : 0.4) << rank;
  }
  EXPECT_NEAR(played.wire_ratio(33_rank), 3, 0.2);
  EXPECT_NEAR(played.wire_ratio(32_rank), 1, 0.15);
}

TEST(Conditions, AFlappingLinkStandsStillOnce) {
  Played played(kThreeD, "cause: link-flap, rank: 33, severity: 0.6");
  int64_t longest = 0;
  const StepSummary summary = played.faulty(33_rank);
  for (const FlowStep& flow : summary.flows) {
    if (flow.send) longest = std::max(longest, flow.wire_longest_ns);
  }
  EXPECT_NEAR(Played::ms(longest), 300, 30);
  EXPECT_NEAR(played.step_ms(0_rank), 300, 40);
  int64_t others = 0;
  for (const FlowStep& flow : played.faulty(40_rank).flows) others = std::max(others, flow.wire_longest_ns);
  EXPECT_LT(Played::ms(others), 30);
}

constexpr const char* kSmallLeaves = "topology: {hosts_per_leaf: 4}\n";

TEST(Conditions, CongestionSlowsWhatCrossesTheUplinksOfTheLeaf) {
  // Pure data parallel: rank i's neighbours in the ring are one rail apart inside a host, so take whole-host strides.
  Played played("tp: 8, pp: 1, dp: 16", "cause: congestion, leaf: 10, severity: 2", kSmallLeaves);
  // Leaf 10: rail 2 of pod 1, hosts 4 to 7. Its ring goes through all hosts on rail 2.
  int slow = 0;
  for (Rank rank : all_ranks(played.world())) {
    EXPECT_NEAR(played.self_ms(rank), 0, 2);
    const bool rail = rank % 8 == 2;
    const int32_t host = rank.value() / 8;
    const bool at_the_edge = rail && (host == 3 || host == 4 || host == 7 || host == 8);
    EXPECT_NEAR(played.wire_ratio(rank), at_the_edge ? 3 : 1, 0.3) << "rank " << rank;
    slow += played.comm_ratio(rank, Role::kDp) > 2 ? 1 : 0;
  }
  EXPECT_EQ(slow, 16) << "the whole ring of that rail waits";
}

TEST(Conditions, APfcStormHitsEverythingOnTheLeafAndSpreads) {
  Played played("tp: 8, pp: 1, dp: 16", "cause: pfc-storm, leaf: 10, severity: 2", kSmallLeaves);
  EXPECT_NEAR(played.wire_ratio(Rank{5 * 8 + 2}), 3, 0.3) << "inside the leaf";
  EXPECT_NEAR(played.wire_ratio(Rank{11 * 8 + 1}), 1.8, 0.2) << "an uplink of another leaf";
  EXPECT_NEAR(played.wire_ratio(Rank{9 * 8 + 1}), 1, 0.2) << "inside another leaf";
}

TEST(Conditions, AFallbackSlowsEveryTransferBetweenHosts) {
  Played played(kThreeD, "cause: tcp-fallback, severity: 4");
  for (Rank rank : all_ranks(played.world())) {
    EXPECT_NEAR(played.comm_ratio(rank, Role::kDp), 5, 1.2);
    EXPECT_NEAR(played.self_ms(rank), 0, 3);
    EXPECT_NEAR(played.wire_ratio(rank), 5, 0.5);
  }
}

TEST(Conditions, AHeavyStageKeepsTheOthersWaitingForItsMessages) {
  Played played(kThreeD, "cause: stage-imbalance, stage: 3, severity: 0.3");
  for (Rank rank : all_ranks(played.world())) {
    const bool heavy = rank >= 96_rank;
    EXPECT_NEAR(played.part_ms(rank, TimePart::kCompute), heavy ? 95 : 0, heavy ? 25 : 1) << rank;
    if (!heavy) {
      EXPECT_GT(played.comm_ratio(rank, Role::kPp), 1.3) << rank;
    }
  }
}

TEST(Conditions, LongSequencesAreAnotherReplicasEachStepForwardAndBackwardAlike) {
  Played one(kThreeD, "cause: sequence-imbalance, severity: 0.8", "", 3),
      next(kThreeD, "cause: sequence-imbalance, severity: 0.8", "", 4);
  auto longest = [](const Played& played) {
    Rank most = 0_rank;
    for (Rank rank : all_ranks(32)) {
      if (played.self_ms(rank) > played.self_ms(most)) most = rank;
    }
    return most.value() / 4;
  };
  EXPECT_NE(longest(one), longest(next));
  for (const Played* played : {&one, &next}) {
    const Rank rank{4 * longest(*played)};
    const StepSummary with = played->faulty(rank), without = played->healthy(rank);
    auto tokens = [](const StepSummary& summary) {
      for (const StepScalar& scalar : summary.scalars) {
        if (scalar.name == "tokens") return scalar.value;
      }
      return 0.0;
    };
    const double more_tokens = tokens(with) / tokens(without);
    const double more_work = static_cast<double>(with.split_ns[0]) / static_cast<double>(without.split_ns[0]);
    EXPECT_GT(more_tokens, 1.2);
    EXPECT_NEAR(more_work, more_tokens, 0.05) << "the work is what it is because of its tokens";
  }
}

TEST(Conditions, AHotExpertHasMoreBytesAndMoreWorkInProportion) {
  Played played("tp: 2, pp: 1, dp: 32, ep: 8", "cause: expert-imbalance, expert: 3, severity: 1");
  const Played healthy("tp: 2, pp: 1, dp: 32, ep: 8", "");
  for (Rank rank : all_ranks(played.world())) {
    const bool owner = rank.value() / 2 % 8 == 3;
    const double bytes = static_cast<double>(played.comm(rank, Role::kEp).bytes) /
                         static_cast<double>(healthy.comm(rank, Role::kEp).bytes);
    const double work =
        static_cast<double>(played.faulty(rank).split_ns[0]) / static_cast<double>(played.healthy(rank).split_ns[0]);
    // Tokens of the owner: 2 of 9 shares instead of 1 of 8, 1.78 times as many; sent and received count together.
    EXPECT_NEAR(bytes, owner ? 1.33 : 0.95, 0.03) << rank;
    EXPECT_NEAR(work, owner ? 1.30 : 0.96, 0.03) << rank;
  }
  EXPECT_TRUE(played.comm(0_rank, Role::kEp).p2p);
}

TEST(Conditions, ExchangesCountWhatIsSentAndReceived) {
  Played even("tp: 1, pp: 1, dp: 16, ep: 16", "");
  const CommStep row = even.comm(5_rank, Role::kEp);
  const StepSummary summary = even.faulty(5_rank);
  int64_t sent = 0, received = 0;
  for (const FlowStep& flow : summary.flows) {
    if (flow.comm_id != row.comm_id) continue;
    (flow.send ? sent : received) += flow.bytes;
  }
  // 8 of the 15 others are on the other host.
  EXPECT_NEAR(static_cast<double>(sent), static_cast<double>(row.bytes) / 2 * 8 / 15, 0.01 * static_cast<double>(sent));
  EXPECT_EQ(sent, received);
  EXPECT_EQ(row.count, 8 * 2 * 2 * 2 * 15) << "micro-batches, both ways, there and back, send and receive, peers";
}

TEST(Conditions, GarbageCollectionHitsAnotherRankEachTimeInForward) {
  std::set<Rank> hit;
  for (int64_t steps : {3, 4, 5, 6}) {
    Played played(kThreeD, "cause: gc, severity: 0.4", "", steps);
    for (Rank rank : all_ranks(played.world())) {
      if (played.part_ms(rank, TimePart::kHost) < 100) continue;
      hit.insert(rank);
      EXPECT_GT(played.phase_ms(rank, Phase::kForward), 100);
      EXPECT_LT(played.phase_ms(rank, Phase::kBackward), 20);
    }
  }
  EXPECT_GE(hit.size(), 3u);
  EXPECT_LE(hit.size(), 4u);
}

TEST(Conditions, ASlowCheckpointShowsInItsPhase) {
  Played played(kThreeD, "cause: checkpoint, rank: 0, severity: 1, period_steps: 4", "", 4);
  EXPECT_NEAR(played.part_ms(0_rank, TimePart::kCheckpoint), 750, 40) << "half a step for all, one more for the writer";
  EXPECT_NEAR(played.part_ms(9_rank, TimePart::kCheckpoint), 250, 20);
  EXPECT_NEAR(played.phase_ms(9_rank, Phase::kCheckpoint), 750, 40) << "nobody goes on before it is written";
}

TEST(Conditions, NotANumberIsSeenOnTheSourceBeforeItIsReduced) {
  auto value = [](const StepSummary& summary, const char* name) {
    for (const StepScalar& scalar : summary.scalars) {
      if (scalar.name == name) return scalar.value;
    }
    return 0.0;
  };
  Played first(kThreeD, "cause: nan-source, rank: 11", "", 1), later(kThreeD, "cause: nan-source, rank: 11", "", 2);
  for (Rank rank : {0_rank, 11_rank, 60_rank}) {
    EXPECT_EQ(std::isnan(value(first.faulty(rank), "grad_norm_local")), rank == 11_rank);
    EXPECT_TRUE(std::isnan(value(first.faulty(rank), "grad_norm")));
    EXPECT_FALSE(std::isnan(value(first.faulty(rank), "loss")));
    EXPECT_TRUE(std::isnan(value(later.faulty(rank), "grad_norm_local"))) << "the weights are gone";
    EXPECT_TRUE(std::isnan(value(later.faulty(rank), "loss")));
    EXPECT_FALSE(std::isnan(value(first.healthy(rank), "grad_norm_local")));
  }
}

TEST(Conditions, ANewVersionThatIsSlowerIsSlowerEverywhere) {
  Played played(kThreeD, "cause: code-regression, severity: 0.2");
  for (Rank rank : all_ranks(played.world())) EXPECT_NEAR(played.part_ms(rank, TimePart::kCompute), 62, 15);
}

TEST(Conditions, APausedProcessStopsItsTransfersToo) {
  bool in_transfer = false, in_pass = false;
  for (int64_t steps = 1; steps <= 8; ++steps) {
    Played played(kThreeD, "cause: process-paused, rank: 33, severity: 0.6, steps: 1000", "", steps);
    EXPECT_GT(played.step_ms(0_rank), 150);
    int64_t stood = 0, undrained = 0;
    const StepSummary summary = played.faulty(33_rank);
    for (const FlowStep& flow : summary.flows) {
      if (flow.send) stood = std::max(stood, flow.wire_longest_ns);
      if (!flow.send) undrained = std::max(undrained, flow.own_gpu_longest_ns);
    }
    const bool transfer = Played::ms(stood) > 250;
    EXPECT_EQ(transfer, Played::ms(undrained) > 250);
    in_transfer |= transfer;
    in_pass |= played.part_ms(33_rank, TimePart::kHost) > 250;
  }
  EXPECT_TRUE(in_transfer);
  EXPECT_TRUE(in_pass);
}

TEST(Conditions, OverlapHidesGradientsBehindTheBackwardPasses) {
  Played none("tp: 2, pp: 1, dp: 16, communication: 0.2", ""),
      most("tp: 2, pp: 1, dp: 16, communication: 0.2, overlap: 0.9", "");
  auto exposed = [](const StepSummary& summary) {
    return Played::ms(summary.split_ns[static_cast<size_t>(TimePart::kCommunication)]);
  };
  const StepSummary plain = none.faulty(3_rank), hidden = most.faulty(3_rank);
  EXPECT_NEAR(
      static_cast<double>(most.comm(3_rank, Role::kDp).bytes) / static_cast<double>(none.comm(3_rank, Role::kDp).bytes),
      1, 0.01);
  EXPECT_LT(exposed(hidden), exposed(plain) - 30);
  EXPECT_GT(Played::ms(hidden.comm_ns), exposed(hidden) + 30) << "it runs all the same, beside the kernels";
  EXPECT_NEAR(Played::ms(hidden.duration_ns), 500, 40);
  for (const StepSummary& summary : {plain, hidden}) {
    EXPECT_EQ(std::accumulate(summary.split_ns.begin(), summary.split_ns.end(), int64_t{0}), summary.duration_ns);
    for (int64_t part : summary.split_ns) EXPECT_GE(part, 0);
    EXPECT_EQ(summary.self_ns + summary.comm_ns, summary.duration_ns);
  }
}

TEST(Conditions, StepsAreAboutAsLongAsAskedForInEveryShape) {
  for (const char* job : {"dp: 8", "tp: 8, dp: 4", kThreeD, "tp: 2, pp: 4, dp: 4, cp: 2, micro_batches: 16",
                          "tp: 1, pp: 2, dp: 16, ep: 8", "tp: 2, pp: 4, dp: 4, schedule: interleaved, model_chunks: 2",
                          "tp: 4, pp: 2, dp: 4, cp: 2, ep: 8, overlap: 0.8, micro_batches: 16", "dp: 1, tp: 1"}) {
    Played played(job, "");
    for (Rank rank = 0_rank; rank < Rank{played.world()}; rank += 7) {
      const StepSummary summary = played.faulty(rank);
      EXPECT_NEAR(Played::ms(summary.duration_ns), 500, 50) << job << " rank " << rank;
      EXPECT_EQ(std::accumulate(summary.phase_ns.begin(), summary.phase_ns.end(), int64_t{0}), summary.duration_ns)
          << job;
      EXPECT_EQ(std::accumulate(summary.split_ns.begin(), summary.split_ns.end(), int64_t{0}), summary.duration_ns)
          << job;
    }
  }
}

TEST(Conditions, InterleavingMakesTheWaitForMessagesShorter) {
  Played plain("tp: 1, pp: 8, dp: 2, micro_batches: 16", ""),
      interleaved("tp: 1, pp: 8, dp: 2, micro_batches: 16, schedule: interleaved, model_chunks: 4", "");
  double waits = 0, waits_interleaved = 0;
  for (Rank rank : all_ranks(16)) {
    waits += Played::ms(plain.comm(rank, Role::kPp).gpu_ns);
    waits_interleaved += Played::ms(interleaved.comm(rank, Role::kPp).gpu_ns);
  }
  EXPECT_LT(waits_interleaved, 0.7 * waits);
}

TEST(Conditions, OdditiesAreUnevenAndNobodysFault) {
  Played packing(kThreeD, "", "oddities: [{kind: packing, amount: 0.3}]\n"), plain(kThreeD, "");
  double least = 1e9, most = 0;
  for (Rank rank : all_ranks(32)) {
    const double work = Played::ms(packing.faulty(rank).split_ns[0]);
    least = std::min(least, work);
    most = std::max(most, work);
  }
  EXPECT_GT(most / least, 1.2);
  Played last(kThreeD, "", "oddities: [{kind: stage-uneven, amount: 0.2}]\n");
  EXPECT_NEAR(
      static_cast<double>(last.faulty(127_rank).split_ns[0]) / static_cast<double>(plain.faulty(127_rank).split_ns[0]),
      1.2, 0.01);
  EXPECT_NEAR(
      static_cast<double>(last.faulty(3_rank).split_ns[0]) / static_cast<double>(plain.faulty(3_rank).split_ns[0]), 1,
      0.01);
  Played evaluation(kThreeD, "", "oddities: [{kind: evaluation, amount: 2, every_steps: 4}]\n");
  EXPECT_NEAR(Played::ms(evaluation.faulty(5_rank).phase_ns[static_cast<size_t>(Phase::kEval)]), 1000, 60);
  Played warm(kThreeD, "", "oddities: [{kind: warm-up, amount: 0.5}]\n", 1), cold(kThreeD, "", "", 1);
  EXPECT_NEAR(
      static_cast<double>(warm.faulty(5_rank).split_ns[0]) / static_cast<double>(cold.faulty(5_rank).split_ns[0]), 1.5,
      0.01);
  Played master(kThreeD, "", "oddities: [{kind: master-rank, amount: 0.02}]\n");
  EXPECT_NEAR(Played::ms(master.faulty(0_rank).split_ns[3] - plain.faulty(0_rank).split_ns[3]), 10, 1);
}

// The flows between hosts that take longer than on a healthy wire, by sender and receiver.
std::set<std::pair<Rank, Rank>> slow_flows(const std::string& fault) {
  Result<Scenario> scenario = parse_scenario(
      "topology: {hosts_per_leaf: 2}\njobs: [{tp: 2, dp: 32, ep: 16, communication: 0.3}]\nfaults: [" + fault + "]\n",
      "test.yaml");
  EXPECT_TRUE(scenario.ok()) << scenario.error();
  std::set<std::pair<Rank, Rank>> slow;
  if (!scenario.ok()) return slow;
  const JobShape shape = shape_of(*scenario, scenario->jobs[0], 0, 32);
  const JobConditions conditions(*scenario, scenario->jobs[0], shape);
  Fleet with(shape, 0), without(shape, 0);
  with.play_under(conditions.at(50_step).conditions);
  without.play_under({});
  for (Rank rank : all_ranks(shape.world_size())) {
    const StepSummary now = with.summary(rank), before = without.summary(rank);
    const Group group = shape.group(Role::kEp, rank);
    for (size_t i = 0; i < now.flows.size(); ++i) {
      const FlowStep& flow = now.flows[i];
      if (!flow.send || with.role(rank, flow.comm_id) != Role::kEp) continue;
      if (static_cast<double>(flow.wire_ns) > 1.5 * static_cast<double>(before.flows[i].wire_ns))
        slow.emplace(rank, group.member(flow.peer));
    }
  }
  return slow;
}

TEST(Conditions, ABadLinkOfTwoSwitchesSlowsTheFlowsThatAreHashedToItAndNoOther) {
  JobShape shape;
  Result<Scenario> scenario = parse_scenario(
      "topology: {hosts_per_leaf: 2}\njobs: [{tp: 2, dp: 32, ep: 16}]\nfaults: [{cause: link-degraded, leaf: 3, spine: "
      "1, severity: 4}]\n",
      "test.yaml");
  ASSERT_TRUE(scenario.ok()) << scenario.error();
  shape = shape_of(*scenario, scenario->jobs[0], 0, 32);
  const std::set<std::pair<Rank, Rank>> slow = slow_flows("{cause: link-degraded, leaf: 3, spine: 1, severity: 4}");
  ASSERT_FALSE(slow.empty());
  for (const auto& [from, to] : slow) EXPECT_TRUE(crosses(shape, from, to, 3, 1)) << from << " " << to;
  const std::vector<Rank> hit = ranks_of(scenario->faults[0].target, shape);
  for (const auto& [from, to] : slow) {
    EXPECT_NE(std::find(hit.begin(), hit.end(), from), hit.end());
    EXPECT_NE(std::find(hit.begin(), hit.end(), to), hit.end());
  }
  EXPECT_GT(slow_flows("{cause: congestion, spine: 1, severity: 4}").size(), slow.size());
}

// Time on the wire of what a rank sends, or receives, while a thread of rank 5 gets no CPU.
double wire_of(const char* threads, Rank rank, bool send) {
  Result<Scenario> scenario = parse_scenario(
      std::string("jobs: [{tp: 8, dp: 8, communication: 0.3}]\nfaults: [{cause: cpu-contention, rank: 5, "
                  "severity: 5, threads: ") +
          threads + "}]\n",
      "test.yaml");
  EXPECT_TRUE(scenario.ok()) << scenario.error();
  if (!scenario.ok()) return 0;
  const JobShape shape = shape_of(*scenario, scenario->jobs[0], 0, 8);
  const JobConditions conditions(*scenario, scenario->jobs[0], shape);
  Fleet fleet(shape, 0);
  fleet.play_under(conditions.at(50_step).conditions);
  double sum = 0;
  for (const FlowStep& flow : fleet.summary(rank).flows)
    if (flow.send == send) sum += static_cast<double>(flow.wire_ns);
  return sum;
}

TEST(Conditions, ASlowReceiverHandsOnLateAndEveryWireIsAsFastAsEver) {
  EXPECT_GT(wire_of("receiver", 5_rank, false), 20 * wire_of("receiver", 6_rank, false));
  for (const Rank rank : {5_rank, 13_rank})
    EXPECT_NEAR(wire_of("receiver", rank, true) / wire_of("receiver", 6_rank, true), 1, 0.2) << rank;
}

TEST(Conditions, AStarvedProxySlowsWhatTheRankSendsAndHandsOnAndNothingElse) {
  const auto wire = [](Rank rank, bool send) { return wire_of("proxy", rank, send); };
  EXPECT_GT(wire(5_rank, true), 4 * wire(6_rank, true));
  EXPECT_GT(wire(5_rank, false), 20 * wire(6_rank, false));
  EXPECT_NEAR(wire(13_rank, true) / wire(6_rank, true), 1, 0.2) << "its neighbour sends as ever";
}

}  // namespace
}  // namespace lockstep::sim
