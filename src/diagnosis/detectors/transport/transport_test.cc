#include "diagnosis/detectors/transport/transport.h"

#include <gtest/gtest.h>

#include "diagnosis/signals/testing/made_up_fleet.h"
#include "diagnosis/testing.h"

namespace lockstep {
namespace {

using testing::MadeUpFleet;
using testing::MadeUpJob;

// A job of four hosts over a fleet of which the test says what its adapters do.
std::optional<Finding> finding_after(const std::function<void(MadeUpFleet&)>& change, double transfer_ms = 40) {
  MadeUpFleet fleet(4);
  change(fleet);
  fleet.run(30);
  MadeUpJob job(32);
  job.groups[0].transfer_ms = transfer_ms;
  JobWindow window;
  job.play(window, 0_step, 12_step);
  window.remember(0);
  return find_tcp_instead_of_rdma(window, fleet.book, fleet.now());
}

void over_tcp(MadeUpFleet& fleet) {
  fleet.set_all("hw.network.io{port=1,direction=transmit}", 0);
  fleet.set_all("system.network.io{direction=transmit}", 1.2e9);
}

TEST(Transport, AJobWhoseBytesGoThroughTheInterfacesWhileRdmaIsIdleIsNamed) {
  std::optional<Finding> finding = finding_after(over_tcp);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->kind, VerdictKind::kInefficient);
  EXPECT_EQ(finding->cause, Cause::kTcpFallback);
  EXPECT_TRUE(finding->ranks.empty());
  EXPECT_TRUE(finding->sure);
  EXPECT_EQ(finding->lost_ns_per_step, 0) << "what it costs cannot be known from this run alone";
}

TEST(Transport, RdmaIsNoFinding) {
  EXPECT_FALSE(finding_after([](MadeUpFleet&) {}));
}

TEST(Transport, StorageTrafficBesideRdmaIsNoFinding) {
  EXPECT_FALSE(
      finding_after([](MadeUpFleet& fleet) { fleet.set_all("system.network.io{direction=transmit}", 1.2e9); }));
}

TEST(Transport, HostsWithoutRdmaAdaptersHaveNothingToFallBackFrom) {
  EXPECT_FALSE(finding_after([](MadeUpFleet& fleet) {
    over_tcp(fleet);
    fleet.left_out = {"hw.network.io{port=1,direction=transmit}"};
  }));
}

TEST(Transport, OneHostOverTcpIsNotTheWholeJob) {
  EXPECT_FALSE(finding_after([](MadeUpFleet& fleet) {
    for (int gpu = 0; gpu < 8; ++gpu) {
      fleet.set(1, gpu, "hw.network.io{port=1,direction=transmit}", 0);
      fleet.set(1, gpu, "system.network.io{direction=transmit}", 1.2e9);
    }
  }));
}

TEST(Transport, AJobThatHardlyCommunicatesHasNothingToGain) {
  EXPECT_FALSE(finding_after(over_tcp, 0.5));
}

}  // namespace
}  // namespace lockstep
