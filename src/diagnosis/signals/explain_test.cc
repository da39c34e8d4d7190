#include "diagnosis/signals/explain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "diagnosis/signals/explain_finding.h"
#include "diagnosis/signals/testing/made_up_fleet.h"

namespace lockstep {
namespace {

using testing::kBegin;
using testing::kSecond;
using testing::MadeUpFleet;

constexpr Rank kGuilty{11};  // host 1, GPU 3
constexpr int kHost = 1, kGpu = 3;

// Four hosts, healthy for two minutes, then whatever `change` does, looked at `after` seconds later.
struct Reported {
  MadeUpFleet fleet{4};
  CausePriors priors;
  int64_t since = 0;

  template <typename Change>
  Explanation after(uint32_t sign, Change change, int seconds = 30, std::vector<Rank> ranks = {kGuilty}) {
    fleet.run(120);
    since = fleet.now();
    change(fleet);
    fleet.run(seconds);
    return explain(fleet.book, priors, fleet.question(ranks, sign, since));
  }
  // The same once more, by somebody who knows `other`.
  Explanation again(uint32_t sign, const CausePriors& other) const {
    return explain(fleet.book, other, fleet.question({kGuilty}, sign, since));
  }
};

bool mentions(const std::vector<Claim>& claims, const std::string& text) {
  return std::any_of(claims.begin(), claims.end(),
                     [&](const Claim& claim) { return claim.claim.find(text) != std::string::npos; });
}

void expect_named(const Explanation& reported, Layer layer, Cause cause) {
  EXPECT_TRUE(reported.by_signals);
  EXPECT_EQ(reported.layer, layer);
  EXPECT_EQ(reported.cause, cause);
  EXPECT_FALSE(reported.exclusions.empty());
  EXPECT_FALSE(reported.chain.empty());
  EXPECT_FALSE(reported.next.empty());
  EXPECT_GT(reported.confidence, 0.3);
  for (const Claim& claim : reported.chain) {
    EXPECT_TRUE(claim.query.starts_with("/api/")) << claim.claim;
    EXPECT_TRUE(claim.kind == ClaimKind::kCounter || claim.kind == ClaimKind::kEvent) << claim.kind;
  }
}

void expect_unexplained(const Explanation& reported) {
  EXPECT_FALSE(reported.by_signals) << reported.layer << " " << reported.cause;
  EXPECT_EQ(reported.layer, Layer::kWorkload);
  EXPECT_EQ(reported.cause, Cause::kLessWork);
  EXPECT_TRUE(reported.chain.empty());
}

TEST(Explain, WhereStepsNameTheCauseAndNoSignalShowsMoreTheLayerIsTheirs) {
  Reported test;
  test.fleet.run(60);
  for (const Layer layer : {Layer::kInput, Layer::kHost}) {
    Question question = test.fleet.question({kGuilty}, kCheckpointLong, test.fleet.now() - 10'000'000'000);
    question.layer = layer;
    question.cause = Cause::kCheckpoint;
    const Explanation reported = explain(test.fleet.book, test.priors, question);
    EXPECT_TRUE(reported.by_signals);
    EXPECT_EQ(reported.cause, Cause::kCheckpoint);
    EXPECT_EQ(reported.layer, layer);
  }
}

TEST(Explain, NamesHeatWhereThrottleTimeRisesAndTheClockFalls) {
  Reported test;
  Explanation reported = test.after(kGpuBehind, [](MadeUpFleet& fleet) {
    fleet.set(kHost, kGpu, "lockstep_gpu_clock_hertz{clock=sm}", 1.5e9);
    fleet.set(kHost, kGpu, "lockstep_gpu_throttle_seconds_total{reason=hw_thermal}", 0.6);
    fleet.set(kHost, kGpu, "hw.temperature{hw.sensor_location=gpu}", 86);
    fleet.set(kHost, kGpu, "lockstep_gpu_temperature_margin_celsius", 1);
  });
  expect_named(reported, Layer::kGpu, Cause::kThrottleThermal);
  EXPECT_GT(reported.confidence, 0.7);
  EXPECT_TRUE(mentions(reported.chain, "SM clock 1.5"));
  EXPECT_EQ(reported.component, "GPU of rank 11");
  EXPECT_EQ(reported.gpu_uuid, MadeUpFleet::gpu_name(kHost, kGpu));
}

// A request's groups are heard one after the other: what of this moment is still to come is not in the number.
TEST(Explain, AClaimAsksNoFurtherThanWhatWasHeardOfItsOwnGpu) {
  Reported test;
  test.after(kGpuBehind, [](MadeUpFleet& fleet) {
    fleet.set(kHost, kGpu, "lockstep_gpu_clock_hertz{clock=sm}", 1.5e9);
    fleet.set(kHost, kGpu, "lockstep_gpu_throttle_seconds_total{reason=hw_thermal}", 0.6);
  });
  const int64_t heard = test.fleet.now(), next = heard + 5 * kSecond;
  const MetricPoint load = {.name = "lockstep_host_tasks_running", .time_unix_ns = next, .value = 21};
  test.fleet.book.on_metrics({{"host.name", MadeUpFleet::host_name(kHost)}}, {{load}}, next);
  Question question = test.fleet.question({kGuilty}, kGpuBehind, test.since);
  question.through_unix_ns = next;
  const Explanation reported = explain(test.fleet.book, test.priors, question);
  size_t of_the_gpu = 0;
  for (const Claim& claim : reported.chain) {
    if (claim.query.find("&gpu=") == std::string::npos || claim.kind != ClaimKind::kCounter) continue;
    ++of_the_gpu;
    EXPECT_TRUE(claim.query.ends_with(format("&to=%lld", static_cast<long long>(heard)))) << claim.query;
  }
  EXPECT_GT(of_the_gpu, 0u);
}

// Ranks that are late together are late for one reason: what one of them shows is not it.
TEST(Explain, OneGpuOfManyThatAreSlowTogetherExplainsNothing) {
  for (int32_t hot : {1, 8}) {
    Reported test;
    std::vector<Rank> ranks;
    for (int32_t gpu = 0; gpu < 8; ++gpu) ranks.push_back(Rank{8 * kHost + gpu});
    Explanation reported = test.after(
        kGpuBehind,
        [&](MadeUpFleet& fleet) {
          for (int32_t gpu = 0; gpu < hot; ++gpu) {
            fleet.set(kHost, gpu, "lockstep_gpu_clock_hertz{clock=sm}", 1.5e9);
            fleet.set(kHost, gpu, "lockstep_gpu_throttle_seconds_total{reason=hw_thermal}", 0.6);
            fleet.set(kHost, gpu, "hw.temperature{hw.sensor_location=gpu}", 86);
            fleet.set(kHost, gpu, "lockstep_gpu_temperature_margin_celsius", 1);
          }
        },
        30, ranks);
    EXPECT_EQ(reported.by_signals, hot == 8);
  }
}

TEST(Explain, NamesHeatWithoutThrottleCountersFromTemperatureMarginAndClock) {
  Reported test;
  for (const char* reason : {"thermal", "sw_thermal", "hw_thermal", "power", "hw_power_brake"})
    test.fleet.left_out.insert(format("lockstep_gpu_throttle_seconds_total{reason=%s}", reason));
  Explanation reported = test.after(kGpuBehind, [](MadeUpFleet& fleet) {
    fleet.set(kHost, kGpu, "lockstep_gpu_clock_hertz{clock=sm}", 1.4e9);
    fleet.set(kHost, kGpu, "hw.temperature{hw.sensor_location=gpu}", 88);
    fleet.set(kHost, kGpu, "lockstep_gpu_temperature_margin_celsius", 0);
  });
  EXPECT_EQ(reported.layer, Layer::kGpu);
  EXPECT_TRUE(reported.cause == Cause::kThrottleThermal || reported.cause == Cause::kSlowCompute) << reported.cause;
}

TEST(Explain, NamesThePowerLimitThatIsLowerThanItsPeers) {
  Reported test;
  Explanation reported = test.after(kGpuBehind, [](MadeUpFleet& fleet) {
    fleet.set(kHost, kGpu, "lockstep_gpu_clock_hertz{clock=sm}", 1.3e9);
    fleet.set(kHost, kGpu, "lockstep_gpu_throttle_seconds_total{reason=power}", 0.8);
    fleet.set(kHost, kGpu, "lockstep_gpu_power_limit_watts{limit=enforced}", 400);
    fleet.set(kHost, kGpu, "hw.power", 400);
  });
  expect_named(reported, Layer::kGpu, Cause::kThrottlePower);
}

TEST(Explain, NamesThePowerBrake) {
  Reported test;
  Explanation reported = test.after(kGpuBehind, [](MadeUpFleet& fleet) {
    fleet.set(kHost, kGpu, "lockstep_gpu_clock_hertz{clock=sm}", 0.6e9);
    fleet.set(kHost, kGpu, "lockstep_gpu_throttle_seconds_total{reason=hw_power_brake}", 0.9);
  });
  expect_named(reported, Layer::kGpu, Cause::kThrottlePower);
}

TEST(Explain, NamesMemoryErrorsByTheirCounterAndByTheirXid) {
  Reported counter;
  Explanation reported = counter.after(
      kGpuBehind, [](MadeUpFleet& fleet) { fleet.set(kHost, kGpu, "hw.errors{error.type=corrected}", 3); });
  expect_named(reported, Layer::kGpu, Cause::kEcc);
  Reported event;
  reported = event.after(kGpuBehind, [](MadeUpFleet& fleet) {
    NodeEvent xid;
    xid.name = "gpu.xid";
    xid.code = 94;
    xid.severity = EventSeverity::kWarn;
    xid.gpu_uuid = MadeUpFleet::gpu_name(kHost, kGpu);
    xid.meaning = "memory error, contained to its process";
    fleet.event(kHost, xid);
    fleet.set(kHost, kGpu, "lockstep_gpu_row_remap_pending", 1);
  });
  expect_named(reported, Layer::kGpu, Cause::kEcc);
  EXPECT_TRUE(mentions(reported.chain, "gpu.xid 94"));
}

NodeEvent hardware_xid(int gpu) {
  NodeEvent xid;
  xid.name = "gpu.xid";
  xid.code = 119;
  xid.severity = EventSeverity::kCritical;
  xid.gpu_uuid = MadeUpFleet::gpu_name(kHost, gpu);
  return xid;
}

TEST(Explain, NamesAnXidOfItsGpuWhetherItIsSlowOrStalledOrDead) {
  Reported test;
  test.after(kGpuBehind, [](MadeUpFleet& fleet) { fleet.event(kHost, hardware_xid(kGpu)); });
  for (uint32_t sign : {kGpuBehind, kStalled, kDead}) expect_named(test.again(sign, {}), Layer::kGpu, Cause::kXid);
}

TEST(Explain, DoesNotTakeTheXidOfAnotherGpuOfTheHostForItsOwn) {
  Reported test;
  expect_unexplained(test.after(kGpuBehind, [](MadeUpFleet& fleet) { fleet.event(kHost, hardware_xid(kGpu + 1)); }));
}

TEST(Explain, AnEventLongBeforeItBeganExplainsNothing) {
  MadeUpFleet fleet(4);
  fleet.run(60);
  fleet.event(kHost, hardware_xid(kGpu));
  fleet.run(400);
  int64_t since = fleet.now();
  fleet.run(30);
  expect_unexplained(explain(fleet.book, CausePriors(), fleet.question({kGuilty}, kGpuBehind, since)));
}

TEST(Explain, AnEventAfterItBeganCountsLessThanOneBefore) {
  auto confidence_with_event_at = [](int seconds_after) {
    MadeUpFleet fleet(4);
    fleet.run(120);
    int64_t since = fleet.now();
    fleet.run(seconds_after);
    fleet.event(kHost, hardware_xid(kGpu));
    fleet.run(30);
    return explain(fleet.book, CausePriors(), fleet.question({kGuilty}, kGpuBehind, since)).confidence;
  };
  EXPECT_GT(confidence_with_event_at(0), confidence_with_event_at(300));
}

TEST(Explain, NamesAProcessOfSomebodyElse) {
  Reported test;
  Explanation reported = test.after(kGpuBehind, [](MadeUpFleet& fleet) {
    fleet.set(kHost, kGpu, "lockstep_gpu_foreign_processes", 1);
    fleet.set(kHost, kGpu, "lockstep_gpu_processes", 2);
    fleet.set(kHost, kGpu, "hw.gpu.memory.utilization", 0.93);
  });
  expect_named(reported, Layer::kGpu, Cause::kForeignProcess);
}

TEST(Explain, NamesLostPcieLanesOfTheGpuAndSlowFlowsDoNotBlameTheAdapter) {
  for (uint32_t sign : {kGpuBehind, kSlowFlows}) {
    Reported test;
    Explanation reported = test.after(sign, [](MadeUpFleet& fleet) {
      fleet.set(kHost, kGpu, "lockstep_gpu_pcie_width", 4);
      fleet.set(kHost, kGpu, "lockstep_gpu_pcie_replays_total", 5);
    });
    expect_named(reported, Layer::kGpu, Cause::kPcieDegraded);
  }
}

TEST(Explain, NamesCpuContentionFromRunQueueWaitAndQuota) {
  Reported wait;
  expect_named(wait.after(kHostLate,
                          [](MadeUpFleet& fleet) {
                            for (int gpu = 0; gpu < 8; ++gpu)
                              fleet.set(kHost, gpu, "lockstep_thread_runqueue_wait_worst{thread_class=trainer}", 0.3);
                            fleet.set(kHost, -1, "lockstep_host_pressure{resource=cpu,scope=some}", 0.6);
                            fleet.set(kHost, -1, "lockstep_host_tasks_running", 200);
                          }),
               Layer::kHost, Cause::kCpuContention);
  Reported quota;
  expect_named(quota.after(kHostLate,
                           [](MadeUpFleet& fleet) {
                             fleet.set(kHost, kGpu, "lockstep_cgroup_cpu_throttled_seconds_total", 0.3);
                           }),
               Layer::kHost, Cause::kCpuContention);
}

TEST(Explain, NamesMemoryPressureAndAnOutOfMemoryKill) {
  Reported pressure;
  expect_named(pressure.after(kHostLate,
                              [](MadeUpFleet& fleet) {
                                fleet.set(kHost, -1, "lockstep_host_pressure{resource=memory,scope=some}", 0.3);
                                fleet.set(kHost, -1, "lockstep_host_vm_events_total{event=allocstall}", 400);
                                fleet.set(kHost, -1, "system.memory.linux.available", 4e9);
                                fleet.set(kHost, -1, "lockstep_host_pressure{resource=cpu,scope=some}", 0.2);
                              }),
               Layer::kHost, Cause::kMemoryPressure);
  Reported killed;
  expect_named(killed.after(kDead,
                            [](MadeUpFleet& fleet) {
                              NodeEvent kill;
                              kill.name = "host.oom_kill";
                              kill.severity = EventSeverity::kCritical;
                              kill.device = "/kubepods/pod1";
                              fleet.event(kHost, kill);
                            }),
               Layer::kHost, Cause::kMemoryPressure);
}

TEST(Explain, NamesStorageWhereTheFileServerAnswersSlowly) {
  Reported test;
  expect_named(test.after(kInputWaits,
                          [](MadeUpFleet& fleet) {
                            fleet.set(kHost, -1, "lockstep_storage_rtt_seconds{mount=/data,op=read}", 0.08);
                            fleet.set(kHost, -1, "lockstep_host_pressure{resource=io,scope=some}", 0.5);
                          }),
               Layer::kInput, Cause::kStorage);
}

TEST(Explain, NamesTheDataLoaderWhereStorageIsHealthy) {
  Reported test;
  Explanation reported = test.after(kInputWaits, [](MadeUpFleet& fleet) {
    fleet.set(kHost, kGpu, "lockstep_thread_runqueue_wait_worst{thread_class=dataloader}", 0.6);
  });
  expect_named(reported, Layer::kInput, Cause::kDataLoader);
  EXPECT_TRUE(mentions(reported.exclusions, "Not storage"));
}

TEST(Explain, NamesNvlinkAndTheGpuOfTheGroupWhoseLinkIsDown) {
  Reported test;
  Explanation reported = test.after(kGroupTransferSlow,
                                    [](MadeUpFleet& fleet) {
                                      fleet.set(kHost, kGpu, "lockstep_gpu_links_up", 16);
                                      fleet.set(kHost, kGpu, "lockstep_gpu_links_errors_total{type=replay}", 40);
                                    },
                                    30, {8_rank, 9_rank, 10_rank, 11_rank, 12_rank, 13_rank, 14_rank, 15_rank});
  expect_named(reported, Layer::kNvlink, Cause::kNvlinkDegraded);
  EXPECT_EQ(reported.rank, kGuilty);
}

TEST(Explain, NamesTheAdapterThatTrainedToALowerRate) {
  Reported test;
  Explanation reported = test.after(
      kSlowFlows, [](MadeUpFleet& fleet) { fleet.set(kHost, kGpu, "hw.network.bandwidth.limit{port=1}", 12.5e9); });
  expect_named(reported, Layer::kNic, Cause::kNicDegraded);
  EXPECT_EQ(reported.device, "mlx5_3");
}

TEST(Explain, NamesTheAdapterThatLosesPackets) {
  Reported test;
  expect_named(test.after(kSlowFlows,
                          [](MadeUpFleet& fleet) {
                            fleet.set(kHost, kGpu, "lockstep_nic_packet_seq_err_total{port=1}", 300);
                            fleet.set(kHost, kGpu, "lockstep_nic_roce_adp_retrans_total{port=1}", 200);
                            fleet.set(kHost, kGpu, "lockstep_nic_port_xmit_discards_total{port=1}", 80);
                          }),
               Layer::kNic, Cause::kNicDegraded);
}

TEST(Explain, NamesTheCableWhereSymbolsAndErrorCorrectionSuffer) {
  Reported test;
  expect_named(test.after(kSlowFlows,
                          [](MadeUpFleet& fleet) {
                            fleet.set(kHost, kGpu, "lockstep_nic_symbol_error_total{port=1}", 50);
                            fleet.set(kHost, kGpu, "lockstep_nic_fec_blocks_total{result=uncorrectable}", 4);
                            fleet.set(kHost, kGpu, "lockstep_nic_packet_seq_err_total{port=1}", 5);
                          }),
               Layer::kLink, Cause::kNicDegraded);
}

TEST(Explain, NamesAFlappingLinkByItsEventsAndItsCounter) {
  Reported test;
  Explanation reported = test.after(kTransfersPause, [](MadeUpFleet& fleet) {
    NodeEvent down;
    down.name = "link.down";
    down.severity = EventSeverity::kWarn;
    down.device = "eth3";
    fleet.event(kHost, down);
    fleet.set(kHost, kGpu, "lockstep_nic_link_downed_total{port=1}", 0.1);
  });
  expect_named(reported, Layer::kLink, Cause::kLinkFlap);
  EXPECT_EQ(reported.device, "mlx5_3");
}

TEST(Explain, DoesNotTakeTheLinkOfAnotherAdapterForItsOwn) {
  Reported test;
  Explanation reported = test.after(kSlowFlows, [](MadeUpFleet& fleet) {
    NodeEvent down;
    down.name = "link.down";
    down.severity = EventSeverity::kWarn;
    down.device = "mlx5_6/1";
    fleet.event(kHost, down);
  });
  EXPECT_NE(reported.cause, Cause::kLinkFlap);
}

TEST(Explain, NamesCongestionWhereNotificationsRiseFarAboveTheJobsOwn) {
  Reported test;
  expect_named(test.after(kSlowFlows,
                          [](MadeUpFleet& fleet) {
                            fleet.set(kHost, kGpu, "lockstep_nic_rp_cnp_handled_total{port=1}", 40'000);
                            fleet.set(kHost, kGpu, "lockstep_nic_np_ecn_marked_roce_packets_total{port=1}", 60'000);
                          }),
               Layer::kSwitch, Cause::kCongestion);
}

TEST(Explain, NamesAPauseStorm) {
  Reported test;
  expect_named(test.after(kSlowFlows,
                          [](MadeUpFleet& fleet) {
                            fleet.set(kHost, kGpu, "lockstep_nic_pause_seconds_total{direction=receive,priority=3}",
                                      0.4);
                            fleet.set(kHost, kGpu, "lockstep_nic_rp_cnp_handled_total{port=1}", 3'000);
                          }),
               Layer::kSwitch, Cause::kPfcStorm);
}

TEST(Explain, NamesTcpWhereRdmaIsIdleAndTheInterfaceIsBusy) {
  Reported test;
  std::vector<Rank> all;
  for (Rank rank : all_ranks(32)) all.push_back(rank);
  expect_named(test.after(
                   kWholeJob,
                   [](MadeUpFleet& fleet) {
                     fleet.set_all("hw.network.io{port=1,direction=transmit}", 0);
                     fleet.set_all("system.network.io{direction=transmit}", 1.2e9);
                   },
                   30, all),
               Layer::kSoftware, Cause::kTcpFallback);
}

TEST(Explain, NamesTheCodeWhereAllSlowDownAndNoSignalMoves) {
  Reported test;
  std::vector<Rank> all;
  for (Rank rank : all_ranks(32)) all.push_back(rank);
  Explanation reported = test.after(
      kWholeJob, [](MadeUpFleet&) {}, 30, all);
  EXPECT_EQ(reported.layer, Layer::kSoftware);
  EXPECT_EQ(reported.cause, Cause::kCodeRegression);
}

TEST(Explain, NamesHeatOfAWholeJobThatSlowsDownTogether) {
  Reported test;
  std::vector<Rank> all;
  for (Rank rank : all_ranks(32)) all.push_back(rank);
  expect_named(test.after(
                   kWholeJob,
                   [](MadeUpFleet& fleet) {
                     fleet.set_all("lockstep_gpu_clock_hertz{clock=sm}", 1.6e9);
                     fleet.set_all("lockstep_gpu_throttle_seconds_total{reason=sw_thermal}", 0.5);
                     fleet.set_all("lockstep_gpu_temperature_margin_celsius", 1);
                   },
                   30, all),
               Layer::kGpu, Cause::kThrottleThermal);
}

TEST(Explain, NamesTheHostThatFellSilentWithItsRank) {
  Reported test;
  Explanation reported = test.after(
      kDead, [](MadeUpFleet& fleet) { fleet.silent_hosts.insert(kHost); }, 60);
  EXPECT_TRUE(reported.by_signals);
  EXPECT_EQ(reported.layer, Layer::kHost);
  EXPECT_EQ(reported.cause, Cause::kRankDead);
}

TEST(Explain, NamesTheProgramWhereAnXidSaysSo) {
  Reported test;
  expect_named(test.after(kDead,
                          [](MadeUpFleet& fleet) {
                            NodeEvent fault = hardware_xid(kGpu);
                            fault.code = 31;
                            fault.severity = EventSeverity::kApp;
                            fleet.event(kHost, fault);
                          }),
               Layer::kSoftware, Cause::kRankDead);
}

// Healthy, and odd.

TEST(Explain, SaysNothingOfSignalsWhereNothingMoves) {
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    MadeUpFleet fleet(4, seed);
    fleet.run(120);
    int64_t since = fleet.now();
    fleet.run(40);
    for (uint32_t sign : {kGpuBehind, kHostLate, kSlowFlows, kGroupTransferSlow, kTransfersPause, kDead, kStalled}) {
      Explanation reported = explain(fleet.book, CausePriors(), fleet.question({kGuilty}, sign, since));
      expect_unexplained(reported);
      EXPECT_FALSE(reported.exclusions.empty());
      EXPECT_FALSE(reported.decided_by.empty());
    }
  }
}

TEST(Explain, DailyHeatThatAllGpusShareExplainsNothing) {
  Reported test;
  expect_unexplained(test.after(kGpuBehind, [](MadeUpFleet& fleet) {
    fleet.set_all("lockstep_gpu_clock_hertz{clock=sm}", 1.94e9);
    fleet.set_all("hw.temperature{hw.sensor_location=gpu}", 72);
    fleet.set_all("lockstep_gpu_temperature_margin_celsius", 14);
  }));
}

TEST(Explain, ThrottlingOfAllGpusAlikeExplainsNoSingleOne) {
  Reported test;
  expect_unexplained(test.after(kGpuBehind, [](MadeUpFleet& fleet) {
    fleet.set_all("lockstep_gpu_clock_hertz{clock=sm}", 1.7e9);
    fleet.set_all("lockstep_gpu_throttle_seconds_total{reason=power}", 0.6);
  }));
}

TEST(Explain, AFewCorrectedErrorsExplainNothing) {
  Reported test;
  expect_unexplained(test.after(
      kGpuBehind, [](MadeUpFleet& fleet) { fleet.set(kHost, kGpu, "hw.errors{error.type=corrected}", 0.02); }));
}

TEST(Explain, CongestionNotificationsThatRiseEverywhereWithLoadExplainNothing) {
  Reported test;
  expect_unexplained(test.after(kSlowFlows, [](MadeUpFleet& fleet) {
    fleet.set_all("lockstep_nic_rp_cnp_handled_total{port=1}", 5'000);
    fleet.set_all("lockstep_nic_np_ecn_marked_roce_packets_total{port=1}", 8'000);
  }));
}

TEST(Explain, AGpuThatWaitsInCollectivesBusyAtLowPowerIsNotGuilty) {
  Reported test;
  expect_unexplained(test.after(kGpuBehind, [](MadeUpFleet& fleet) {
    fleet.set(kHost, kGpu, "lockstep_gpu_sm_active", 1);
    fleet.set(kHost, kGpu, "lockstep_gpu_tensor_active", 0.05);
    fleet.set(kHost, kGpu, "hw.power", 210);
    fleet.set(kHost, kGpu, "hw.temperature{hw.sensor_location=gpu}", 48);
  }));
}

TEST(Explain, ARowThatWaitsForAResetSinceLongAgoExplainsNothing) {
  MadeUpFleet fleet(4);
  fleet.set(kHost, kGpu, "lockstep_gpu_row_remap_pending", 1);
  fleet.run(180);
  int64_t since = fleet.now();
  fleet.run(30);
  expect_unexplained(explain(fleet.book, CausePriors(), fleet.question({kGuilty}, kGpuBehind, since)));
}

// What is missing.

TEST(Explain, WithoutAnyTelemetryItKeepsWhatTheStepsSayAndSaysWhatWouldDecide) {
  SignalStore empty;
  MadeUpFleet names(4);
  Question question = names.question({kGuilty}, kGpuBehind, kBegin);
  question.layer = Layer::kGpu;
  question.cause = Cause::kSlowCompute;
  Explanation reported = explain(empty, CausePriors(), question);
  EXPECT_FALSE(reported.by_signals);
  EXPECT_EQ(reported.cause, Cause::kSlowCompute);
  EXPECT_TRUE(reported.exclusions.empty());
  EXPECT_FALSE(reported.decided_by.empty());
  EXPECT_FALSE(reported.alternatives.empty());
}

TEST(Explain, MissingThrottleCountersAreNoProofThatThereIsNoThrottling) {
  Reported test;
  for (const char* reason : {"thermal", "sw_thermal", "hw_thermal", "power", "hw_power_brake"})
    test.fleet.left_out.insert(format("lockstep_gpu_throttle_seconds_total{reason=%s}", reason));
  test.fleet.left_out.insert("hw.temperature{hw.sensor_location=gpu}");
  test.fleet.left_out.insert("lockstep_gpu_temperature_margin_celsius");
  Explanation reported = test.after(
      kGpuBehind, [](MadeUpFleet& fleet) { fleet.set(kHost, kGpu, "lockstep_gpu_clock_hertz{clock=sm}", 1.3e9); });
  expect_named(reported, Layer::kGpu, Cause::kSlowCompute);
  EXPECT_FALSE(mentions(reported.exclusions, "Not throttle-thermal"));
  bool heat =
      std::any_of(reported.alternatives.begin(), reported.alternatives.end(), [](const Alternative& alternative) {
        return alternative.culprit.starts_with("throttle-thermal") && !alternative.checked;
      });
  EXPECT_TRUE(heat);
}

TEST(Explain, PeersAloneAreEnoughWhereTheJobHasJustBegun) {
  MadeUpFleet fleet(4);
  fleet.set(kHost, kGpu, "lockstep_gpu_clock_hertz{clock=sm}", 1.2e9);
  fleet.set(kHost, kGpu, "lockstep_gpu_throttle_seconds_total{reason=hw_power_brake}", 0.9);
  fleet.run(40);
  Explanation reported = explain(fleet.book, CausePriors(), fleet.question({kGuilty}, kGpuBehind, kBegin));
  expect_named(reported, Layer::kGpu, Cause::kThrottlePower);
}

TEST(Explain, ItsOwnPastAloneIsEnoughWhereThereAreNoPeers) {
  MadeUpFleet fleet(1);
  fleet.run(120);
  int64_t since = fleet.now();
  fleet.set(0, 3, "lockstep_gpu_clock_hertz{clock=sm}", 1.2e9);
  fleet.set(0, 3, "lockstep_gpu_throttle_seconds_total{reason=hw_thermal}", 0.7);
  fleet.run(30);
  Question question = fleet.question({3_rank}, kGpuBehind, since);
  question.peers.clear();
  expect_named(explain(fleet.book, CausePriors(), question), Layer::kGpu, Cause::kThrottleThermal);
}

TEST(Explain, ContradictingSignalsLowerTheConfidence) {
  Reported plain, torn;
  auto congested = [](MadeUpFleet& fleet) {
    fleet.set(kHost, kGpu, "lockstep_nic_rp_cnp_handled_total{port=1}", 40'000);
  };
  double sure = plain.after(kSlowFlows, congested).confidence;
  Explanation unsure = torn.after(kSlowFlows, [&](MadeUpFleet& fleet) {
    congested(fleet);
    fleet.set(kHost, kGpu, "lockstep_nic_symbol_error_total{port=1}", 80);
  });
  EXPECT_LT(unsure.confidence, sure);
  EXPECT_FALSE(unsure.alternatives.empty());
}

TEST(Explain, TwoCausesAtOnceAreBothTold) {
  Reported test;
  Explanation reported = test.after(kGpuBehind, [](MadeUpFleet& fleet) {
    fleet.set(kHost, kGpu, "lockstep_gpu_clock_hertz{clock=sm}", 1.4e9);
    fleet.set(kHost, kGpu, "lockstep_gpu_throttle_seconds_total{reason=hw_thermal}", 0.6);
    fleet.set(kHost, kGpu, "lockstep_gpu_temperature_margin_celsius", 0);
    fleet.set(kHost, kGpu, "lockstep_gpu_foreign_processes", 2);
    fleet.set(kHost, kGpu, "lockstep_gpu_processes", 3);
  });
  std::set<Cause> causes(reported.also.begin(), reported.also.end());
  causes.insert(reported.cause);
  EXPECT_TRUE(causes.contains(Cause::kThrottleThermal));
  EXPECT_TRUE(causes.contains(Cause::kForeignProcess));
}

// "Wrong, it was X", said so often of verdicts with a cause.
CausePriors said_wrong(Cause said, Cause was, int times) {
  std::vector<VerdictFeedback> all;
  for (int i = 0; i < times; ++i)
    all.push_back({.verdict_id = format("v%d", i), .right = false, .said = said, .cause = was});
  return CausePriors::of(all);
}

TEST(Explain, ThreeTimesWrongItWasXPutsXFirstWhereSignalsLeaveBothOpen) {
  auto both = [](MadeUpFleet& fleet) {
    fleet.set(kHost, kGpu, "lockstep_gpu_foreign_processes", 2);
    fleet.set(kHost, kGpu, "lockstep_gpu_processes", 3);
    fleet.set(kHost, kGpu, "hw.errors{error.type=uncorrected}", 0.2);
    fleet.set(kHost, kGpu, "hw.errors{error.type=corrected}", 30);
  };
  Reported test;
  const Explanation untaught = test.after(kGpuBehind, both);
  ASSERT_EQ(untaught.also.size(), 1u) << untaught.cause;
  const Cause first = untaught.cause, second = untaught.also.front();
  const Explanation reported = test.again(kGpuBehind, said_wrong(first, second, 3));
  EXPECT_EQ(reported.cause, second);
  EXPECT_EQ(reported.also, std::vector<Cause>{first});
  EXPECT_TRUE(reported.by_signals);
  EXPECT_EQ(test.again(kGpuBehind, said_wrong(first, second, 0)).cause, first);
}

TEST(Explain, WhatPeopleSayNeverOverrulesAMissingOrAContradictingSignal) {
  auto hot = [](MadeUpFleet& fleet) {
    fleet.set(kHost, kGpu, "lockstep_gpu_clock_hertz{clock=sm}", 1.4e9);
    fleet.set(kHost, kGpu, "lockstep_gpu_throttle_seconds_total{reason=hw_thermal}", 0.25);
  };
  Reported test;
  EXPECT_EQ(test.after(kGpuBehind, hot).cause, Cause::kThrottleThermal);
  // ecc: nothing shows it. slow-compute: the clock shows it, the throttle time speaks against it.
  for (Cause was : {Cause::kEcc, Cause::kSlowCompute, Cause::kThrottlePower, Cause::kForeignProcess}) {
    for (int times : {3, 1000}) {
      const CausePriors taught = said_wrong(Cause::kThrottleThermal, was, times);
      EXPECT_EQ(test.again(kGpuBehind, taught).cause, Cause::kThrottleThermal) << was << " " << times;
    }
  }
}

// Else the query ends before what is in the number, and gives another one.
TEST(Explain, AReportThatComesWhileItIsExplainedIsInTheNumberAndInItsQuery) {
  Reported test;
  test.after(
      kGpuBehind,
      [](MadeUpFleet& fleet) {
        fleet.set(kHost, kGpu, "lockstep_gpu_clock_hertz{clock=sm}", 1.5e9);
        fleet.set(kHost, kGpu, "lockstep_gpu_throttle_seconds_total{reason=hw_thermal}", 0.6);
      },
      14);
  const Question asked = test.fleet.question({kGuilty}, kGpuBehind, test.since);
  test.fleet.run(5);
  const Explanation reported = explain(test.fleet.book, test.priors, asked);
  ASSERT_FALSE(reported.chain.empty());
  const Identity culprit = test.fleet.identity(kGuilty);
  const int64_t newest = test.fleet.book.read(Place::kGpu, culprit.host, culprit.gpu_uuid, {})->through_unix_ns;
  EXPECT_GT(newest, asked.through_unix_ns);
  for (const Claim& claim : reported.chain)
    EXPECT_TRUE(claim.query.ends_with(format("&to=%lld", static_cast<long long>(newest)))) << claim.query;
}

TEST(Explain, AnswersTenSecondsAfterItBegan) {
  Reported test;
  expect_named(test.after(
                   kGpuBehind,
                   [](MadeUpFleet& fleet) {
                     fleet.set(kHost, kGpu, "lockstep_gpu_clock_hertz{clock=sm}", 1.5e9);
                     fleet.set(kHost, kGpu, "lockstep_gpu_throttle_seconds_total{reason=hw_thermal}", 0.6);
                   },
                   10),
               Layer::kGpu, Cause::kThrottleThermal);
}

TEST(Explain, StillKnowsWhatWasBeforeAfterTenMinutes) {
  Reported test;
  Explanation reported = test.after(
      kGpuBehind,
      [](MadeUpFleet& fleet) {
        fleet.set(kHost, kGpu, "lockstep_gpu_clock_hertz{clock=sm}", 1.5e9);
        fleet.set(kHost, kGpu, "lockstep_gpu_throttle_seconds_total{reason=hw_thermal}", 0.6);
      },
      400);
  expect_named(reported, Layer::kGpu, Cause::kThrottleThermal);
  EXPECT_GT(reported.chain.front().value, 50);
  EXPECT_NEAR(reported.chain.front().baseline, 0, 0.5);
}

TEST(ExplainFinding, GivesTheFindingItsLayerCauseAndEvidenceAndKeepsTheDetectorsClaims) {
  Reported test;
  test.after(kGpuBehind, [](MadeUpFleet& fleet) { fleet.set(kHost, kGpu, "lockstep_gpu_foreign_processes", 1); });
  Finding finding;
  finding.kind = VerdictKind::kSlow;
  finding.ranks = {kGuilty};
  finding.layer = Layer::kGpu;
  finding.cause = Cause::kSlowCompute;
  finding.since_step = 40_step;
  finding.through_step = 60_step;
  finding.chain.push_back({"Its own work takes longer.", ClaimKind::kSelfTime});
  finding.chain.push_back({"Without it a step would take less.", ClaimKind::kCounterfactual});
  FindingContext context;
  context.culprits = {test.fleet.identity(kGuilty)};
  context.peers = test.fleet.all_but({kGuilty});
  context.job_from_unix_ns = kBegin;
  context.since_unix_ns = test.since;
  context.now_unix_ns = test.fleet.now();
  explain_finding(test.fleet.book, test.priors, context, finding);
  EXPECT_EQ(finding.cause, Cause::kForeignProcess);
  EXPECT_EQ(finding.chain.front().kind, ClaimKind::kSelfTime);
  EXPECT_EQ(finding.chain.back().kind, ClaimKind::kCounterfactual);
  EXPECT_GE(finding.chain.size(), 4u);
  EXPECT_EQ(finding.chain[1].from_step, 40_step);
}

TEST(ExplainFinding, LeavesWorkloadAndWrongOperationsAlone) {
  Reported test;
  test.after(kGpuBehind, [](MadeUpFleet& fleet) { fleet.set(kHost, kGpu, "lockstep_gpu_foreign_processes", 1); });
  for (auto [layer, cause] :
       {std::pair{Layer::kWorkload, Cause::kSequenceImbalance}, std::pair{Layer::kSoftware, Cause::kOpMismatch}}) {
    Finding finding;
    finding.kind = VerdictKind::kSlow;
    finding.layer = layer;
    finding.cause = cause;
    FindingContext context;
    context.culprits = {test.fleet.identity(kGuilty)};
    context.since_unix_ns = test.since;
    context.now_unix_ns = test.fleet.now();
    explain_finding(test.fleet.book, test.priors, context, finding);
    EXPECT_EQ(finding.cause, cause);
    EXPECT_TRUE(finding.chain.empty());
  }
}

}  // namespace
}  // namespace lockstep
