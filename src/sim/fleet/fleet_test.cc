#include "sim/fleet/fleet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace lockstep::sim {
namespace {

constexpr int64_t kStart = 1'700'000'000'000'000'000;

Fault fault_of(FaultKind kind, Rank rank, double severity = 0) {
  return {.kind = kind, .rank = rank, .severity = severity > 0 ? severity : default_severity(kind, 250)};
}

// Plays `steps` steps, the last `faulty` of them under the faults.
Fleet played(JobShape shape, int steps, int faulty = 0, std::vector<Fault> faults = {}) {
  Fleet fleet(shape, kStart);
  for (int i = 0; i < steps; ++i)
    fleet.play_step(i >= steps - faulty ? std::span<const Fault>(faults) : std::span<const Fault>());
  return fleet;
}

double ms(int64_t ns) {
  return static_cast<double>(ns) / 1e6;
}

CommStep comm_of(const Fleet& fleet, Rank rank, Role role) {
  const StepSummary summary = fleet.summary(rank);
  for (const CommStep& comm : summary.comms) {
    if (fleet.role(rank, comm.comm_id) == role) return comm;
  }
  return {};
}

const CommStatus* status_of(const Fleet& fleet, const RankStatus& status, Rank rank, Role role) {
  for (const CommStatus& comm : status.comms) {
    if (fleet.role(rank, comm.comm_id) == role) return &comm;
  }
  return nullptr;
}

// The flows a rank sends to other hosts in its gradient ring.
std::vector<FlowStep> gradient_sends(const Fleet& fleet, Rank rank) {
  std::vector<FlowStep> sends;
  const StepSummary summary = fleet.summary(rank);
  for (const FlowStep& flow : summary.flows) {
    if (flow.send && fleet.role(rank, flow.comm_id) == Role::kDp) sends.push_back(flow);
  }
  return sends;
}

TEST(Fleet, PlaysTheSameJobForTheSameSeedAndAnotherForAnotherSeed) {
  JobShape shape;
  Fleet first = played(shape, 5), second = played(shape, 5);
  shape.seed = 2;
  Fleet third = played(shape, 5);
  for (Rank rank : all_ranks(64)) EXPECT_EQ(first.summary(rank), second.summary(rank));
  EXPECT_NE(first.summary(0_rank), third.summary(0_rank));
}

TEST(Fleet, HealthyStepsTakeAboutTheLengthAskedForOnEveryRank) {
  for (auto [tp, pp, dp] : {std::array{4, 4, 4}, std::array{1, 1, 8}, std::array{2, 2, 4}, std::array{8, 1, 4}}) {
    Fleet fleet = played({.tp = tp, .pp = pp, .dp = dp, .step_ms = 300}, 6);
    for (Rank rank : all_ranks(fleet.shape().world_size())) {
      EXPECT_NEAR(ms(fleet.summary(rank).duration_ns), 300, 40)
          << "tp " << tp << " pp " << pp << " dp " << dp << " rank " << rank;
    }
  }
}

TEST(Fleet, SelfAndCommunicationAndPhasesEachAddUpToTheStep) {
  Fleet fleet(JobShape{}, kStart);
  const std::vector<Fault> faults = {fault_of(FaultKind::kSlowGpu, 3_rank), fault_of(FaultKind::kSlowInput, 9_rank),
                                     fault_of(FaultKind::kSlowLink, 20_rank)};
  std::vector<int64_t> end(64, 0);
  for (int step = 0; step < 6; ++step) {
    fleet.play_step(step >= 3 ? std::span<const Fault>(faults) : std::span<const Fault>());
    for (Rank rank : all_ranks(64)) {
      const StepSummary& summary = fleet.summary(rank);
      EXPECT_EQ(summary.step, StepNumber{step});
      EXPECT_EQ(summary.self_ns + summary.comm_ns, summary.duration_ns);
      EXPECT_GT(summary.self_ns, 0);
      EXPECT_EQ(std::accumulate(summary.phase_ns.begin(), summary.phase_ns.end(), int64_t{0}), summary.duration_ns);
      int64_t in_comms = 0;
      for (const CommStep& comm : summary.comms) {
        in_comms += comm.gpu_ns;
        EXPECT_LE(comm.shortest_ns * comm.count, comm.gpu_ns);
        EXPECT_GE(comm.longest_ns * comm.count, comm.gpu_ns);
        EXPECT_GE(comm.first_start_unix_ns, summary.start_unix_ns);
        EXPECT_LE(comm.last_end_unix_ns, summary.start_unix_ns + summary.duration_ns);
      }
      EXPECT_EQ(in_comms, summary.comm_ns);
      EXPECT_EQ(summary.comms.size(), 4u);  // tp, pp, dp, world
      if (step > 0) {
        EXPECT_EQ(summary.start_unix_ns, end[index_of(rank)]) << "steps follow one another without a hole";
      }
      end[index_of(rank)] = summary.start_unix_ns + summary.duration_ns;
    }
  }
}

TEST(Fleet, DetailTellsTheSameStepAsTheSummary) {
  Fleet fleet(JobShape{}, kStart);
  fleet.play_step({});
  EXPECT_TRUE(fleet.detail(0_rank).ops.empty()) << "not asked for";
  fleet.play_step({}, true);
  for (Rank rank : all_ranks(64)) {
    const StepSummary& summary = fleet.summary(rank);
    const StepDetail& detail = fleet.detail(rank);
    EXPECT_EQ(detail.step, 1_step);
    EXPECT_EQ(detail.start_unix_ns, summary.start_unix_ns);
    EXPECT_EQ(detail.duration_ns, summary.duration_ns);
    int64_t in_ops = 0;
    for (const OpSpan& op : detail.ops) {
      in_ops += op.duration_ns;
      EXPECT_LE(op.enqueued_unix_ns, op.start_unix_ns);
      EXPECT_GE(op.start_unix_ns, summary.start_unix_ns);
      EXPECT_LE(op.start_unix_ns + op.duration_ns, summary.start_unix_ns + summary.duration_ns);
    }
    EXPECT_EQ(in_ops, summary.comm_ns);
    int64_t in_phases = 0;
    for (const PhaseSpan& phase : detail.phases) in_phases += phase.duration_ns;
    EXPECT_EQ(in_phases, summary.duration_ns);
    EXPECT_EQ(std::accumulate(summary.split_ns.begin(), summary.split_ns.end(), int64_t{0}), summary.duration_ns);
    for (int64_t part : summary.split_ns) EXPECT_GE(part, 0);
  }
}

TEST(Fleet, BothEndsOfAMessageCountItAlike) {
  Fleet fleet(JobShape{.tp = 1, .pp = 2, .dp = 1}, kStart);
  fleet.play_step({});
  fleet.play_step({}, true);
  std::vector<uint64_t> sent, received;
  for (const OpSpan& op : fleet.detail(0_rank).ops) {
    if (op.function == "Send") sent.push_back(op.seq);
  }
  for (const OpSpan& op : fleet.detail(1_rank).ops) {
    if (op.function == "Recv") received.push_back(op.seq);
  }
  EXPECT_EQ(sent, received);
  EXPECT_EQ(sent.size(), 8u);  // micro-batches
  EXPECT_EQ(sent.front(), 8u);
}

TEST(Fleet, SummariesSurviveTheWireFormat) {
  Fleet fleet = played(JobShape{}, 3);
  Result<StepSummary> back = step_from_record(to_record(fleet.summary(17_rank)));
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(*back, fleet.summary(17_rank));
}

TEST(Fleet, TheLastToArriveSpendsTheLeastTimeInTheCollective) {
  const Rank guilty = 5_rank;  // its tensor-parallel group is 4..7
  Fleet fleet = played(JobShape{}, 10, 4, {fault_of(FaultKind::kSlowGpu, guilty)});
  for (Rank peer : {4_rank, 6_rank, 7_rank}) {
    EXPECT_GT(comm_of(fleet, peer, Role::kTp).gpu_ns, 3 * comm_of(fleet, guilty, Role::kTp).gpu_ns);
  }
}

TEST(Fleet, ASlowGpuRaisesItsOwnWorkAndQueueAndEverybodysStep) {
  const Rank guilty = 37_rank;
  const Fleet healthy = played(JobShape{}, 10),
              slow = played(JobShape{}, 10, 4, {fault_of(FaultKind::kSlowGpu, guilty, 1.6)});
  const double step_excess = ms(slow.summary(guilty).duration_ns - healthy.summary(guilty).duration_ns);
  EXPECT_GT(step_excess, 50);
  for (Rank rank : all_ranks(64)) {
    EXPECT_NEAR(ms(slow.summary(rank).duration_ns), ms(slow.summary(guilty).duration_ns), 10) << "one pace for all";
    const double self_ratio =
        static_cast<double>(slow.summary(rank).self_ns) / static_cast<double>(healthy.summary(rank).self_ns);
    const double queue_ratio =
        static_cast<double>(slow.summary(rank).queue_ns) / static_cast<double>(healthy.summary(rank).queue_ns);
    EXPECT_NEAR(self_ratio, rank == guilty ? 1.57 : 1.0, 0.03) << "rank " << rank;
    EXPECT_NEAR(queue_ratio, rank == guilty ? 1.6 : 1.0, 0.05) << "rank " << rank;
  }
}

TEST(Fleet, ALateInputRaisesTheInputPhaseOfItsRankAndNoQueue) {
  const Rank guilty = 12_rank;
  const Fleet healthy = played(JobShape{}, 10),
              slow = played(JobShape{}, 10, 4, {fault_of(FaultKind::kSlowInput, guilty, 100)});
  for (Rank rank : all_ranks(64)) {
    const double extra = rank == guilty ? 100 : 0;
    EXPECT_NEAR(ms(slow.summary(rank).phase_ns[static_cast<size_t>(Phase::kInput)]), 5 + extra, 8);
    EXPECT_NEAR(ms(slow.summary(rank).self_ns - healthy.summary(rank).self_ns), extra, 8) << "rank " << rank;
    EXPECT_NEAR(ms(slow.summary(rank).queue_ns), ms(healthy.summary(rank).queue_ns), 1);
    EXPECT_GT(ms(slow.summary(rank).duration_ns - healthy.summary(rank).duration_ns), 60);
  }
}

TEST(Fleet, ASlowLinkLengthensTheWholeRingEquallyAndOnlyItsSendersWire) {
  for (Rank guilty : {0_rank, 21_rank, 63_rank}) {
    const Fleet healthy = played(JobShape{}, 10),
                slow = played(JobShape{}, 10, 4, {fault_of(FaultKind::kSlowLink, guilty, 0.2)});
    int32_t guilty_sends = 0;
    for (Rank rank : all_ranks(64)) {
      EXPECT_NEAR(ms(slow.summary(rank).self_ns), ms(healthy.summary(rank).self_ns), 1)
          << "nobody works longer, nobody arrives late";
      const CommStep gradients = comm_of(slow, rank, Role::kDp);
      const bool in_the_ring = gradients.comm_id == comm_of(slow, guilty, Role::kDp).comm_id;
      EXPECT_NEAR(ms(gradients.gpu_ns), in_the_ring ? 125 : 25, 15) << "rank " << rank;
      for (const FlowStep& flow : gradient_sends(slow, rank)) {
        const double rate = static_cast<double>(flow.bytes) / static_cast<double>(flow.wire_ns);
        EXPECT_NEAR(rate, rank == guilty ? 8 : 40, rank == guilty ? 1 : 4) << "rank " << rank;
        if (rank == guilty) {
          ++guilty_sends;
          EXPECT_GT(ms(flow.wire_ns), 0.9 * ms(gradients.gpu_ns));
        } else {
          EXPECT_LT(ms(flow.wire_ns), 30);
        }
      }
    }
    EXPECT_EQ(guilty_sends, 1);
  }
}

TEST(Fleet, EveryRankOfAJobOnSeveralHostsSendsGradientsToAnotherHost) {
  Fleet fleet = played(JobShape{}, 1);
  for (Rank rank : all_ranks(64)) {
    EXPECT_FALSE(gradient_sends(fleet, rank).empty()) << "rank " << rank;
    EXPECT_TRUE(fleet.check(fault_of(FaultKind::kSlowLink, rank)).ok());
  }
  Fleet one_host({.tp = 1, .pp = 1, .dp = 8}, kStart);
  EXPECT_FALSE(one_host.check(fault_of(FaultKind::kSlowLink, 3_rank)).ok());
  EXPECT_FALSE(one_host.check(fault_of(FaultKind::kSlowGpu, 8_rank)).ok());
}

TEST(Fleet, AMissingRankStopsEveryoneAndIsTheOnlyOneWithNothingInFlight) {
  const Rank guilty = 22_rank;
  Fleet fleet = played(JobShape{}, 5);
  const std::vector<Fault> faults = {fault_of(FaultKind::kMissingRank, guilty)};
  ASSERT_FALSE(fleet.play_step(faults));
  ASSERT_TRUE(fleet.hung());
  const int64_t later = fleet.now_unix_ns() + 5'000'000'000;
  const RankStatus missing = fleet.status(guilty, later);
  const CommId gradients = status_of(fleet, missing, guilty, Role::kDp)->comm_id;
  EXPECT_EQ(missing.phase, Phase::kBackward);
  int32_t waiting_for_gradients = 0, waiting_for_the_world = 0;
  for (Rank rank : all_ranks(64)) {
    const RankStatus status = fleet.status(rank, later);
    EXPECT_GT(status.quiet_ns, 4'900'000'000);
    EXPECT_GT(fleet.status(rank, later + 1'000'000'000).quiet_ns, status.quiet_ns);
    EXPECT_EQ(status.step, 5_step);
    int32_t in_flight = 0;
    for (const CommStatus& comm : status.comms) {
      in_flight += comm.collective.state == OpState::kStarted ? 1 : 0;
      EXPECT_EQ(comm.collectives_enqueued,
                comm.collectives_completed + (comm.collective.state == OpState::kStarted ? 1 : 0));
      EXPECT_EQ(comm.collective.ordinal, comm.collectives_enqueued);
    }
    EXPECT_EQ(in_flight, rank == guilty ? 0 : 1) << "rank " << rank;
    const CommStatus& dp = *status_of(fleet, status, rank, Role::kDp);
    const CommStatus& world = *status_of(fleet, status, rank, Role::kWorld);
    EXPECT_EQ(dp.collectives_enqueued, rank == guilty ? 5u : 6u);
    if (dp.comm_id == gradients && rank != guilty) {
      ++waiting_for_gradients;
      EXPECT_EQ(dp.collective.state, OpState::kStarted);
      EXPECT_EQ(world.collectives_enqueued, 5u);
    } else if (rank != guilty) {
      ++waiting_for_the_world;
      EXPECT_EQ(world.collectives_enqueued, 6u);
    }
  }
  EXPECT_EQ(waiting_for_gradients, 3);
  EXPECT_EQ(waiting_for_the_world, 60);
}

TEST(Fleet, GoesOnWhenTheMissingRankEntersAfterAll) {
  JobShape shape{.tp = 2, .pp = 2, .dp = 4};
  Fleet fleet = played(shape, 3), healthy = played(shape, 4);
  const std::vector<Fault> faults = {fault_of(FaultKind::kMissingRank, 7_rank)};
  ASSERT_FALSE(fleet.play_step(faults));
  fleet.release(fleet.now_unix_ns() + 3'000'000'000);
  EXPECT_FALSE(fleet.hung());
  for (Rank rank : all_ranks(16)) {
    EXPECT_NEAR(ms(fleet.summary(rank).duration_ns - healthy.summary(rank).duration_ns), 3000, 60);
    const RankStatus status = fleet.status(rank, fleet.now_unix_ns());
    for (const CommStatus& comm : status.comms) EXPECT_EQ(comm.collectives_enqueued, comm.collectives_completed);
    EXPECT_EQ(status_of(fleet, status, rank, Role::kDp)->collectives_completed, 4u);
  }
  EXPECT_TRUE(fleet.play_step({}));
}

TEST(Fleet, CommunicatorsAreTheSameOnEveryMemberAndInEveryRun) {
  Fleet fleet(JobShape{}, kStart), again(JobShape{.seed = 9}, kStart + 5);
  std::map<CommId, std::vector<Rank>> members;
  for (Rank rank : all_ranks(64)) {
    EXPECT_EQ(fleet.comm_inits(rank), again.comm_inits(rank));
    for (const CommInit& comm : fleet.comm_inits(rank)) {
      EXPECT_EQ(static_cast<size_t>(comm.rank_in_comm), members[comm.comm_id].size());
      members[comm.comm_id].push_back(rank);
    }
  }
  EXPECT_EQ(members.size(), 16u + 16u + 16u + 1u);
  for (Rank rank : all_ranks(64)) {
    for (const CommInit& comm : fleet.comm_inits(rank))
      EXPECT_EQ(members[comm.comm_id].size(), static_cast<size_t>(comm.size));
  }
  Fleet restarted(JobShape{.attempt = 1}, kStart);
  EXPECT_NE(restarted.comm_inits(0_rank)[0].comm_id, fleet.comm_inits(0_rank)[0].comm_id);
}

JobShape sharded_job() {
  return {.tp = 1,
          .pp = 1,
          .dp = 12,
          .micro_batches = 2,
          .step_ms = 1000,
          .overlap = 0.9,
          .communication = 0.3,
          .sharding = Sharding::kFull,
          .layers = 8,
          .first_step_extra = 0,
          .second_step_extra = 0,
          .topology = {.gpus_per_host = 4}};
}

TEST(Fleet, AShardedJobGathersEveryLayerTwiceAndScattersItOnce) {
  Fleet fleet = played(sharded_job(), 3);
  std::map<std::string, int> functions;
  fleet.play_step({}, true);
  for (const OpSpan& op : fleet.detail(3_rank).ops) ++functions[op.function];
  EXPECT_EQ(functions["AllGather"], 2 * 2 * 8);  // micro-batches, forward and backward, layers
  EXPECT_EQ(functions["ReduceScatter"], 2 * 8);
  EXPECT_EQ(functions["AllReduce"], 1);  // the gradients' norm
  for (Rank rank : all_ranks(12)) EXPECT_NEAR(ms(fleet.summary(rank).duration_ns), 1000, 60) << rank;
}

TEST(Fleet, AShardedJobsTransfersRunBesideItsKernels) {
  JobShape shape = sharded_job();
  auto exposed_share = [](const Fleet& fleet) {
    const StepSummary summary = fleet.summary(5_rank);
    const auto exposed = summary.split_ns[static_cast<size_t>(TimePart::kCommunication)];
    EXPECT_EQ(summary.self_ns + summary.comm_ns, summary.duration_ns);
    EXPECT_EQ(std::accumulate(summary.split_ns.begin(), summary.split_ns.end(), int64_t{0}), summary.duration_ns);
    EXPECT_GE(*std::min_element(summary.split_ns.begin(), summary.split_ns.end()), 0);
    EXPECT_GT(summary.comm_ns, 290'000'000) << "beside kernels or not, it is as much, and waits for others besides";
    EXPECT_LT(summary.comm_ns, 450'000'000);
    return static_cast<double>(exposed) / static_cast<double>(summary.comm_ns);
  };
  EXPECT_LT(exposed_share(played(shape, 4)), 0.3);
  shape.overlap = 0;
  EXPECT_GT(exposed_share(played(shape, 4)), 0.95);
}

TEST(Fleet, AShardedJobWithTensorAndExpertGroupsCountsEachTimeOnce) {
  JobShape shape = sharded_job();
  shape.tp = 4;
  shape.dp = 6;
  shape.ep = 3;
  shape.micro_batches = 1;
  Fleet fleet = played(shape, 4);
  for (Rank rank : all_ranks(24)) {
    const StepSummary summary = fleet.summary(rank);
    EXPECT_NEAR(ms(summary.duration_ns), 1000, 80);
    EXPECT_GE(*std::min_element(summary.split_ns.begin(), summary.split_ns.end()), 0);
    EXPECT_LE(summary.comm_ns, summary.duration_ns);
    EXPECT_GE(summary.queue_ns, 0);
    EXPECT_LE(summary.queue_ns, summary.self_ns) << "nothing is queued while something is on the wire";
    EXPECT_EQ(summary.comms.size(), 4u);  // tp, ep, dp, world
    int64_t phases = std::accumulate(summary.phase_ns.begin(), summary.phase_ns.end(), int64_t{0});
    EXPECT_EQ(phases, summary.duration_ns);
  }
}

TEST(Fleet, ASlowGpuOfAShardedJobQueuesAndKeepsAllWaiting) {
  const Fleet healthy = played(sharded_job(), 6);
  const Fleet slow = played(sharded_job(), 6, 3, {fault_of(FaultKind::kSlowGpu, 5_rank, 1.3)});
  EXPECT_GT(slow.summary(2_rank).duration_ns, 1.15 * static_cast<double>(healthy.summary(2_rank).duration_ns));
  EXPECT_GT(slow.summary(5_rank).self_ns, slow.summary(2_rank).self_ns);
  EXPECT_GT(slow.summary(5_rank).queue_ns, healthy.summary(5_rank).queue_ns);
  for (Rank rank : all_ranks(12)) EXPECT_LE(slow.summary(rank).queue_ns, slow.summary(rank).self_ns) << rank;
  const auto exposed = static_cast<size_t>(TimePart::kCommunication);
  EXPECT_GT(slow.summary(2_rank).split_ns[exposed], healthy.summary(2_rank).split_ns[exposed] + 100'000'000);
}

TEST(Fleet, ASlowLinkOfAShardedJobShowsOnItsSendersWire) {
  const Fleet slow = played(sharded_job(), 6, 3, {fault_of(FaultKind::kSlowLink, 3_rank, 0.1)});
  EXPECT_GT(ms(slow.summary(0_rank).duration_ns), 1500);
  int64_t culprit = 0, other = 0;
  for (const FlowStep& flow : gradient_sends(slow, 3_rank)) culprit = std::max(culprit, flow.wire_ns);
  for (const FlowStep& flow : gradient_sends(slow, 7_rank)) other = std::max(other, flow.wire_ns);
  EXPECT_GT(culprit, 5 * other);
}

TEST(Fleet, AMissingRankStopsAShardedJobAtTheNormOfItsGradients) {
  Fleet fleet = played(sharded_job(), 3);
  const std::vector<Fault> missing = {fault_of(FaultKind::kMissingRank, 7_rank)};
  EXPECT_FALSE(fleet.play_step(missing));
  const int64_t later = fleet.now_unix_ns() + 5'000'000'000;
  for (Rank rank : all_ranks(12)) {
    const RankStatus status = fleet.status(rank, later);
    ASSERT_EQ(status.comms.size(), 1u);
    EXPECT_EQ(status.comms[0].collective.state, rank == 7_rank ? OpState::kCompleted : OpState::kStarted) << rank;
  }
  fleet.release(later);
  EXPECT_FALSE(fleet.hung());
  EXPECT_TRUE(fleet.play_step({}));
}

// Own times of a rank over many steps, as shares of their mean.
std::vector<double> own_times(JobShape shape, int steps = 400) {
  Fleet fleet(shape, kStart);
  std::vector<double> times;
  for (int i = 0; i < steps; ++i) {
    fleet.play_step({});
    times.push_back(static_cast<double>(fleet.summary(1_rank).split_ns[static_cast<size_t>(TimePart::kCompute)]));
  }
  const double mean = std::accumulate(times.begin(), times.end(), 0.0) / steps;
  for (double& time : times) time /= mean;
  return times;
}

double deviation(const std::vector<double>& times) {
  double squares = 0;
  for (double time : times) squares += (time - 1) * (time - 1);
  return std::sqrt(squares / static_cast<double>(times.size()));
}

TEST(Fleet, NoiseIsAsManyTimesTheUsualAsAskedFor) {
  JobShape shape{.tp = 1, .pp = 1, .dp = 4, .first_step_extra = 0, .second_step_extra = 0};
  const double usual = deviation(own_times(shape));
  EXPECT_NEAR(usual, 0.008, 0.002);
  shape.noise.times = 6;
  EXPECT_NEAR(deviation(own_times(shape)), 6 * usual, usual);
}

TEST(Fleet, HeavyTailsHaveTheirWidthAndSomeFarBeyondIt) {
  JobShape shape{.tp = 1, .pp = 1, .dp = 4, .first_step_extra = 0, .second_step_extra = 0};
  shape.noise.times = 3;
  auto beyond = [](const std::vector<double>& times, double share) {
    return std::count_if(times.begin(), times.end(), [&](double time) { return time > 1 + share; });
  };
  const std::vector<double> bell = own_times(shape, 2000);
  shape.noise.heavy_tails = true;
  const std::vector<double> heavy = own_times(shape, 2000);
  EXPECT_NEAR(deviation(heavy), deviation(bell), 0.4 * deviation(bell));
  EXPECT_EQ(beyond(bell, 0.085), 0);  // three and a half deviations
  EXPECT_GE(beyond(heavy, 0.085), 5);
  EXPECT_LE(*std::max_element(heavy.begin(), heavy.end()), 1.25);
}

TEST(Fleet, RanksDifferForGoodByTheirSpread) {
  JobShape shape{.tp = 1, .pp = 1, .dp = 32, .first_step_extra = 0, .second_step_extra = 0};
  shape.noise = {.times = 0, .rank_spread = 0.01};
  Fleet fleet(shape, kStart);
  std::vector<double> first, later;
  for (int step = 0; step < 5; ++step) {
    fleet.play_step({});
    for (Rank rank : all_ranks(32)) {
      const auto own = static_cast<double>(fleet.summary(rank).split_ns[static_cast<size_t>(TimePart::kCompute)]);
      (step == 0 ? first : later).push_back(own);
    }
  }
  const double mean = std::accumulate(first.begin(), first.end(), 0.0) / 32;
  std::vector<double> shares;
  for (double own : first) shares.push_back(own / mean);
  EXPECT_NEAR(deviation(shares), 0.01, 0.004);
  for (size_t i = 0; i < later.size(); ++i) EXPECT_NEAR(later[i] / first[i % 32], 1, 1e-4);
}

TEST(Fleet, AShockSlowsAllRanksTogetherForAFewSteps) {
  JobShape shape{.tp = 1, .pp = 1, .dp = 8, .first_step_extra = 0, .second_step_extra = 0};
  shape.noise.shocks = 0.1;
  Fleet fleet(shape, kStart);
  std::vector<double> means;  // over the ranks, of each step
  for (int step = 0; step < 1000; ++step) {
    fleet.play_step({});
    double sum = 0;
    for (Rank rank : all_ranks(8))
      sum += static_cast<double>(fleet.summary(rank).split_ns[static_cast<size_t>(TimePart::kCompute)]);
    means.push_back(sum / 8);
  }
  std::vector<double> sorted = means;
  std::sort(sorted.begin(), sorted.end());
  int shocked = 0, longest = 0, row = 0;
  for (double mean : means) {
    const bool slow = mean > 1.014 * sorted[sorted.size() / 2];
    row = slow ? row + 1 : 0;
    shocked += slow;
    longest = std::max(longest, row);
  }
  EXPECT_GE(shocked, 25);  // half of a hundred: the others are on the wire
  EXPECT_LE(shocked, 80);
  EXPECT_GE(longest, 2);
  EXPECT_LE(longest, 10);
}

TEST(Fleet, RefusesShapesThatAreNoJob) {
  EXPECT_FALSE(check(JobShape{.tp = 0}).ok());
  EXPECT_FALSE(check(JobShape{.tp = 70000, .pp = 70000}).ok());
  EXPECT_FALSE(check(JobShape{.step_ms = 1}).ok());
  EXPECT_TRUE(check(JobShape{}).ok());
}

TEST(Fault, IsReadFromTheCommandLineAndMistakesAreNamed) {
  Result<Fault> full = parse_fault("slow-link:5:30:20:0.25");
  ASSERT_TRUE(full.ok());
  EXPECT_EQ(*full,
            (Fault{.kind = FaultKind::kSlowLink, .rank = 5_rank, .from_step = 30_step, .steps = 20, .severity = 0.25}));
  Result<Fault> brief = parse_fault("missing-rank:1");
  ASSERT_TRUE(brief.ok());
  EXPECT_EQ(brief->from_step, kDefaultFromStep);
  EXPECT_EQ(brief->steps, 0);
  for (const char* wrong : {"", "slow-gpu", "slow-gpu:", "slow-gpu:x", "slow-gpu:-1", "slow-gpu:1:2:3:0.5",
                            "slow-link:1:2:3:7", "slow-gpu:1:2:3:2:9"}) {
    EXPECT_FALSE(parse_fault(wrong).ok()) << wrong;
  }
  EXPECT_NE(parse_fault("slow-gpo:1").error().find("Did you mean slow-gpu"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::sim
