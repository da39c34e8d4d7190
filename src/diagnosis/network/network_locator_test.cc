#include "diagnosis/network/network_locator.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "diagnosis/detectors/slow_flows/slow_flows.h"
#include "diagnosis/testing.h"
#include "store/testing/memory_metric_reader.h"
#include "testing/fake_clock.h"

namespace lockstep {
namespace {

using testing::kEpochNs;
using testing::kSecondNs;
using testing::MadeUpJob;
using testing::RankPlan;

constexpr int32_t kHosts = 4, kSpines = 4;

// Four hosts of eight GPUs; all adapters of a host on one leaf of its own; four spines. Ranks send around a ring, so that
// ranks 7, 15, 23 and 31 send to another leaf.
class LocatorTest : public ::testing::Test {
 protected:
  LocatorTest() {
    fabric::Declared declared;
    for (int32_t leaf = 0; leaf < kHosts; ++leaf) {
      for (int32_t spine = 0; spine < kSpines; ++spine)
        declared.links.push_back({{format("leaf-%d", leaf), format("up%d", spine)},
                                  {format("spine-%d", spine), format("down%d", leaf)},
                                  400});
      declared.nodes.push_back({.name = format("leaf-%d", leaf), .kind = fabric::NodeKind::kLeaf});
    }
    for (int32_t spine = 0; spine < kSpines; ++spine)
      declared.nodes.push_back({.name = format("spine-%d", spine), .kind = fabric::NodeKind::kSpine});
    fabric_.topology.declare(std::move(declared));
    for (int32_t host = 0; host < kHosts; ++host) report(host, kEpochNs);
    job_.ring_flows = true;
    job_.flow_wire_ms = 20;
    locator_.look_at({&fabric_, &metrics_});
  }

  void report(int32_t host, int64_t at_unix_ns, int32_t moved = -1) {
    std::vector<MetricPoint> points;
    for (int32_t gpu = 0; gpu < 8; ++gpu) {
      const std::string uuid = format("GPU-%d", host * 8 + gpu);
      MetricPoint& info = points.emplace_back();
      info.name = "lockstep_gpu_info";
      info.attributes = {{"gpu_uuid", uuid}, {"index", std::to_string(gpu)}};
      info.value = 1;
      MetricPoint& nic = points.emplace_back();
      nic.name = "lockstep_nic_info";
      nic.attributes = {{"device", format("mlx5_%d", gpu)},
                        {"port", "1"},
                        {"gpu_uuid", uuid},
                        {"distance", "PIX"},
                        {"leaf", format("leaf-%d", host)},
                        {"leaf_port", format("Ethernet1/%d", gpu == moved ? 99 : gpu + 1)}};
      nic.value = 1;
    }
    fabric_.topology.on_metrics({{"host.name", format("node-%d", host)}}, points, at_unix_ns);
  }

  // A counter of a port over the last two minutes, so many a second.
  void counts(const std::string& of, const std::string& port, const char* name, double per_second) {
    const int64_t now_ms = job_.now_unix_ns() / 1'000'000;
    for (int64_t second = 120; second >= 0; second -= 10)
      metrics_.add({{"__name__", name}, {"switch", of}, {"port", port}, {"direction", "in"}}, now_ms - second * 1000,
                   per_second * static_cast<double>(120 - second));
  }
  void counts_everywhere(const char* name, double per_second) {
    for (int32_t leaf = 0; leaf < kHosts; ++leaf)
      for (int32_t spine = 0; spine < kSpines; ++spine) {
        counts(format("leaf-%d", leaf), format("up%d", spine), name, per_second);
        counts(format("spine-%d", spine), format("down%d", leaf), name, per_second);
      }
  }

  // The finding of these slow senders.
  Finding find(std::vector<size_t> slow) {
    job_.play(window_, 0_step, 30_step, [&](StepNumber step, std::vector<RankPlan>& ranks) {
      if (step < 15_step) return;
      for (size_t rank : slow) ranks[rank].wire_ms = 60;
    });
    std::vector<Finding> findings = find_slow_flows_of_large_jobs(window_, {});
    EXPECT_EQ(findings.size(), 1u);
    return findings.empty() ? Finding() : std::move(findings.front());
  }
  void locate(Finding& finding) {
    const std::string job_id = "job";
    locator_.locate({job_id, window_, job_.now_unix_ns() - 60 * kSecondNs, job_.now_unix_ns()}, finding);
  }

  testing::FakeClock clock_;
  fabric::Fabric fabric_{{}, clock_};
  MemoryMetricReader metrics_;
  NetworkLocator locator_;
  MadeUpJob job_{kHosts * 8};
  JobWindow window_;
};

// One flow between two leaves, by one of four spines: either adapter in one direction, or any of eight links.
TEST_F(LocatorTest, WhatCannotBeToldApartIsNamedTogether) {
  Finding finding = find({15});
  locate(finding);
  EXPECT_EQ(finding.place, "");
  EXPECT_TRUE(finding.component.starts_with("one of 10: ")) << finding.component;
}

TEST_F(LocatorTest, NamesTheLinkWhosePortsCountErrors) {
  Finding finding = find({15});
  counts_everywhere("lockstep_port_fcs_errors_total", 0);
  counts("leaf-1", "up2", "lockstep_port_fcs_errors_total", 7);
  locate(finding);
  EXPECT_EQ(finding.place, "link:leaf-1:up2");
  EXPECT_EQ(finding.layer, Layer::kLink);
  EXPECT_EQ(finding.cause, Cause::kLinkDegraded);
  EXPECT_EQ(finding.component, "link leaf-1:up2 - spine-2:down1");
  const auto counter = std::find_if(finding.chain.begin(), finding.chain.end(),
                                    [](const Claim& claim) { return claim.kind == ClaimKind::kCounter; });
  ASSERT_NE(counter, finding.chain.end());
  EXPECT_NEAR(counter->value, 7, 0.1);
  EXPECT_TRUE(counter->query.starts_with("/prometheus/api/v1/query?query=sum%28rate%28lockstep_port_fcs"))
      << counter->query;
  EXPECT_TRUE(std::any_of(finding.next.begin(), finding.next.end(), [](const NextAction& next) {
    return next.command == "lockstep fabric --affected link:leaf-1:up2";
  }));
}

TEST_F(LocatorTest, MarksOfCongestionAreNoDamage) {
  Finding finding = find({15});
  counts_everywhere("lockstep_port_ecn_marked_packets_total", 3);
  counts("leaf-2", "up0", "lockstep_port_ecn_marked_packets_total", 4000);
  locate(finding);
  EXPECT_EQ(finding.place, "link:leaf-2:up0");
  EXPECT_EQ(finding.layer, Layer::kSwitch);
  EXPECT_EQ(finding.cause, Cause::kCongestion);
}

TEST_F(LocatorTest, AnAdapterAllOfWhoseFlowsAreSlowIsNamedWithWhatChangedThere) {
  report(1, kEpochNs + 400 * kSecondNs, 7);
  Finding finding = find({14, 15});
  const std::string job_id = "job";
  locator_.locate({job_id, window_, kEpochNs + 450 * kSecondNs, job_.now_unix_ns()}, finding);
  EXPECT_EQ(finding.place, "nic:node-1:mlx5_7");
  EXPECT_EQ(finding.ranks, std::vector<Rank>{15_rank});
  const auto event = std::find_if(finding.chain.begin(), finding.chain.end(),
                                  [](const Claim& claim) { return claim.kind == ClaimKind::kEvent; });
  ASSERT_NE(event, finding.chain.end());
  EXPECT_EQ(event->claim,
            "node-1:mlx5_7 changed 50 s before it began: leaf-1:Ethernet1/99, before that leaf-1:Ethernet1/8.");
}

TEST_F(LocatorTest, FindingsOfOtherLayersAndJobsWithoutATopologyAreLeftAlone) {
  Finding finding = find({15});
  Finding host = finding;
  host.layer = Layer::kHost;
  locate(host);
  EXPECT_EQ(host.component, finding.component);
  NetworkLocator blind;
  const std::string job_id = "job";
  Finding same = finding;
  blind.locate({job_id, window_, 0, job_.now_unix_ns()}, same);
  EXPECT_EQ(same.component, finding.component);
  EXPECT_EQ(same.sentence, finding.sentence);
}

}  // namespace
}  // namespace lockstep
