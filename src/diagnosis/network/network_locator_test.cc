#include "diagnosis/network/network_locator.h"

#include <gtest/gtest.h>

#include <regex>

#include "base/text.h"
#include "diagnosis/detectors/slow_flows/slow_flows.h"
#include "diagnosis/phrasing.h"
#include "diagnosis/testing.h"
#include "store/testing/memory_metric_reader.h"
#include "testing/fake_clock.h"

namespace lockstep {
namespace {

using testing::kEpochNs;
using testing::kSecondNs;
using testing::MadeUpJob;
using testing::RankPlan;

constexpr int32_t kHosts = 4;

// Counts how often it is asked, and has seen nothing.
class Observer final : public fabric::FlowObserver {
 public:
  std::vector<fabric::ObservedPort> observed_ports(const FlowKey&, int64_t, int64_t) const override {
    ++asked;
    return {};
  }
  mutable size_t asked = 0;
};

// Four hosts of eight GPUs; all adapters of a host on one leaf of its own; four spines. Ranks send around a ring, so that
// ranks 7, 15, 23 and 31 send to another host.
class LocatorTest : public ::testing::Test {
 protected:
  LocatorTest() {
    declare(4);
    for (int32_t host = 0; host < kHosts; ++host) report(host, kEpochNs);
    job_.ring_flows = true;
    job_.flow_wire_ms = 20;
    locator_.look_at({&fabric_, &metrics_});
  }

  void declare(int32_t spines, const std::string& up = "up") {
    spines_ = spines;
    fabric::Declared declared;
    for (int32_t leaf = 0; leaf < kHosts; ++leaf) {
      for (int32_t spine = 0; spine < spines; ++spine)
        declared.links.push_back({{format("leaf-%d", leaf), up + std::to_string(spine)},
                                  {format("spine-%d", spine), format("down%d", leaf)},
                                  400});
      declared.nodes.push_back({.name = format("leaf-%d", leaf), .kind = fabric::NodeKind::kLeaf});
    }
    for (int32_t spine = 0; spine < spines; ++spine)
      declared.nodes.push_back({.name = format("spine-%d", spine), .kind = fabric::NodeKind::kSpine});
    fabric_.topology.declare(std::move(declared));
  }

  // Most ranks send to another host: rank 28 to 15, and 15 to 4.
  void scatter() {
    std::vector<Rank>& ranks = job_.groups.front().ranks;
    for (int32_t i = 0; i < kHosts * 8; ++i) ranks[static_cast<size_t>(i)] = Rank(i % kHosts * 8 + i / kHosts);
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
                        {"leaf_port", format("Ethernet1/%d", gpu == moved ? 99 : gpu + 1)},
                        {"address", format("10.0.%d.%d", host, gpu + 1)}};
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
      for (int32_t spine = 0; spine < spines_; ++spine) {
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
  void locate(Finding& finding, int64_t after_ns = 0) {
    const std::string job_id = "job";
    const int64_t now_ns = job_.now_unix_ns() + after_ns;
    locator_.locate({job_id, window_, now_ns - 60 * kSecondNs, now_ns}, finding);
  }
  // How many series the query of its claim about a port finds.
  size_t series_behind(const Finding& finding) {
    for (const Claim& claim : finding.chain) {
      if (claim.kind != ClaimKind::kCounter) continue;
      const size_t from = claim.query.find("query=") + 6;
      const std::string text = from_url_part(claim.query.substr(from, claim.query.find('&') - from)).value_or("");
      const size_t name = text.find("rate(") + 5;
      std::vector<LabelMatcher> matchers = {
          {"__name__", LabelMatcher::Op::kEqual, text.substr(name, text.find('{') - name)}};
      const std::regex label("(\\w+)=\"((?:[^\"\\\\]|\\\\.)*)\""), escaped("\\\\(.)");
      for (std::sregex_iterator at(text.begin(), text.end(), label), end; at != end; ++at)
        matchers.push_back({(*at)[1], LabelMatcher::Op::kEqual, std::regex_replace((*at)[2].str(), escaped, "$1")});
      const auto selected = metrics_.select(matchers, {.from_ms = 0, .to_ms = INT64_MAX});
      return selected.ok() ? (*selected)->size() : 0;
    }
    return 0;
  }

  int32_t spines_ = 0;
  testing::FakeClock clock_;
  fabric::Fabric fabric_{{}, clock_};
  MemoryMetricReader metrics_;
  NetworkLocator locator_;
  MadeUpJob job_{kHosts * 8};
  JobWindow window_;
};

// The one flow of either adapter.
TEST_F(LocatorTest, WhatCannotBeToldApartIsNamedTogether) {
  Finding finding = find({15});
  locate(finding);
  EXPECT_EQ(finding.place, "");
  EXPECT_EQ(finding.component, "one of 2: network adapter mlx5_7 of node-1, network adapter mlx5_0 of node-2");
}

TEST_F(LocatorTest, WhoIsNotAskedForItsPortsDoesNotComeBeforeThoseWhoAre) {
  declare(40);
  auto add_fast = [](StepSummary& row, int32_t peer) {
    FlowStep& fast = row.flows.emplace_back(row.flows.front());
    fast.peer = peer;
    fast.send = true;
    fast.wire_ns = 20'000'000;
  };
  for (StepNumber number = 0_step; number <= 30_step; ++number) {
    auto slow = [](StepNumber step, std::vector<RankPlan>& ranks) { ranks[15].wire_ms = step < 15_step ? 20 : 60; };
    for (auto& [who, row] : job_.step(number, slow)) {
      // What clears the adapters of the slow flow.
      if (who.rank == 15_rank) add_fast(row, 24);
      if (who.rank == 24_rank) add_fast(row, 16);
      window_.add_step(who, row);
    }
  }
  counts_everywhere("lockstep_port_fcs_errors_total", 0);
  Finding finding;
  finding.kind = VerdictKind::kSlow;
  finding.layer = Layer::kSwitch;
  finding.since_step = 15_step;
  finding.ranks = {15_rank};
  locate(finding);
  EXPECT_TRUE(finding.component.starts_with("one of 82: ")) << finding.component;
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

TEST_F(LocatorTest, TheQueryOfAPortsClaimFindsTheSeriesThatItIsAbout) {
  Finding finding = find({15});
  for (int32_t spine = 0; spine < spines_; ++spine)
    counts("leaf-1.dc\"1\\", format("up%d", spine), "lockstep_port_fcs_errors_total", spine == 2 ? 7 : 0);
  locate(finding);
  EXPECT_EQ(finding.place, "link:leaf-1:up2");
  EXPECT_EQ(series_behind(finding), 1u);
}

TEST_F(LocatorTest, AClockThatIsSetBackDoesNotKeepAnAnswer) {
  Finding before = find({15}), finding = before;
  locate(before, 3600 * kSecondNs);
  counts_everywhere("lockstep_port_fcs_errors_total", 0);
  counts("leaf-1", "up2", "lockstep_port_fcs_errors_total", 7);
  locate(finding);
  EXPECT_EQ(finding.place, "link:leaf-1:up2");
}

TEST_F(LocatorTest, WhoeverSamplesPacketsIsAskedForSomeOfManySlowFlows) {
  scatter();
  job_.play(window_, 0_step, 30_step, [&](StepNumber step, std::vector<RankPlan>& ranks) {
    for (RankPlan& rank : ranks) rank.wire_ms = step < 15_step ? 20 : 60;
  });
  const Observer observer;
  fabric_.observer = &observer;
  Finding finding;
  finding.kind = VerdictKind::kSlow;
  finding.layer = Layer::kSwitch;
  finding.since_step = 15_step;
  locate(finding);
  EXPECT_FALSE(finding.component.empty());
  EXPECT_EQ(observer.asked, NetworkLocator::kPairsObserved);
}

TEST_F(LocatorTest, WhatPeopleCopyIsOneWordToAShell) {
  declare(4, "up ");
  Finding finding = find({15});
  for (int32_t spine = 0; spine < spines_; ++spine)
    counts("leaf-1", format("up %d", spine), "lockstep_port_fcs_errors_total", spine == 2 ? 7 : 0);
  locate(finding);
  ASSERT_FALSE(finding.next.empty());
  EXPECT_EQ(finding.next.back().command, "lockstep fabric --affected 'link:leaf-1:up 2'");
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
  scatter();
  report(1, kEpochNs + 400 * kSecondNs, 7);
  Finding finding = find({28, 15});
  finding.ranks = {28_rank};
  finding.victims = victims_of(window_, finding.ranks);
  const std::string job_id = "job";
  locator_.locate({job_id, window_, kEpochNs + 450 * kSecondNs, job_.now_unix_ns()}, finding);
  EXPECT_EQ(finding.place, "nic:node-1:mlx5_7");
  EXPECT_EQ(finding.ranks, std::vector<Rank>{15_rank});
  EXPECT_EQ(finding.victims, victims_of(window_, finding.ranks)) << "without the culprit, and with who seemed to be";
  const auto event = std::find_if(finding.chain.begin(), finding.chain.end(),
                                  [](const Claim& claim) { return claim.kind == ClaimKind::kEvent; });
  ASSERT_NE(event, finding.chain.end());
  EXPECT_EQ(event->claim,
            "node-1:mlx5_7 changed 50 s before it began: leaf-1:Ethernet1/99, before that leaf-1:Ethernet1/8.");
  EXPECT_TRUE(event->query.starts_with("/api/fabric/changes?component=nic%3Anode-1%3Amlx5_7&what=link&from="))
      << event->query;
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
