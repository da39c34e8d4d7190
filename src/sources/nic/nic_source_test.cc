#include "sources/nic/nic_source.h"

#include <gtest/gtest.h>

#include "sources/nic/nic_address.h"
#include "sources/nic/nic_metrics.h"
#include "sources/nic/testing.h"

namespace lockstep {
namespace {

using nic_testing::expect_well_formed;
using nic_testing::tick_at;
using nic_testing::Tree;
using nic_testing::value_of;

// Two GPUs and two adapters on switches of their own, and an interface for management.
class NicSourceTree : public ::testing::Test {
 protected:
  NicSourceTree() {
    const std::string left = "pci0000:15/0000:15:01.0/0000:16:00.0/";
    const std::string right = "pci0000:97/0000:97:01.0/0000:98:00.0/";
    tree_.pci(left + "0000:17:00.0/0000:18:00.0", 0);
    tree_.pci(right + "0000:99:00.0/0000:9a:00.0", 1);
    const std::string nic0 = tree_.pci(left + "0000:17:01.0/0000:19:00.0", 0);
    const std::string nic1 = tree_.pci(right + "0000:99:01.0/0000:9b:00.0", 1);
    const std::string management = tree_.pci("pci0000:00/0000:00:03.0", 0);
    tree_.rdma("mlx5_0", nic0, "eth0");
    tree_.rdma("mlx5_1", nic1, "eth1");
    const std::string port = "/sys/class/infiniband/mlx5_1/ports/1/";
    tree_.write(port + "gid_attrs/types/0", "IB/RoCE v1\n");
    tree_.write(port + "gids/0", "0000:0000:0000:0000:0000:ffff:0a1e:0009\n");
    tree_.write(port + "gid_attrs/types/1", "RoCE v2\n");
    tree_.write(port + "gids/1", "fe80:0000:0000:0000:966d:aeff:fe5c:1000\n");
    tree_.write(port + "gid_attrs/types/3", "RoCE v2\n");
    tree_.write(port + "gids/3", "0000:0000:0000:0000:0000:ffff:0a1e:0011\n");
    tree_.netdev("eth0", 2, nic0);
    tree_.netdev("eth1", 3, nic1);
    tree_.netdev("eno1", 4, management);
    tree_.write(nic1 + "/current_link_width", "16\n");
    tree_.write("/run/lockstep-recorded/ethtool/eth1", "NIC statistics:\n     rx_prio3_pause: 9\n");
    const std::string frame = std::string("\x01\x80\xc2\x00\x00\x0e\x02\x11\x22\x33\x44\x55\x88\xcc", 14) +
                              std::string("\x02\x07\x07leaf-1", 9) + std::string("\x04\x05\x05swp7", 7) +
                              std::string("\x06\x02\x00\x78\x00\x00", 6);
    tree_.write("/run/lockstep-recorded/lldp/eth1", frame);
    owners_.gpus.push_back({.uuid = "GPU-0", .pci = "0000:18:00.0"});
    owners_.gpus.push_back({.uuid = "GPU-1", .pci = "0000:9a:00.0"});
    owners_.gpus.push_back({.uuid = "MIG-1", .pci = "0000:9a:00.0", .parent_uuid = "GPU-1"});
    owners_.by_gpu["GPU-1"].job_id = "llama";
    owners_.by_gpu["GPU-1"].rank = 5_rank;
    source_ = open_nic_source({.root = tree_.root()});
  }
  NodeReadings read(double seconds, bool slow = false) {
    NodeReadings out;
    source_->read(tick_at(seconds, slow, &owners_), out);
    expect_well_formed(out);
    return out;
  }

  Tree tree_;
  OwnerTable owners_;
  std::unique_ptr<NicSource> source_;
};

TEST_F(NicSourceTree, JoinsAPortWithItsGpuAndItsSwitchPort) {
  NodeReadings out = read(0);  // the first tick finds what there is, slow or not
  EXPECT_EQ(value_of(out, "lockstep_nic_info",
                     {{"device", "mlx5_1"},
                      {"port", "1"},
                      {"netdev", "eth1"},
                      {"pci", "0000:9b:00.0"},
                      {"link_layer", "Ethernet"},
                      {"firmware", "28.39.1002"},
                      {"numa_node", "1"},
                      {"gpu_uuid", "GPU-1"},
                      {"distance", "PIX"},
                      {"leaf", "leaf-1"},
                      {"leaf_port", "swp7"},
                      {"address", "10.30.0.17"}}),
            1);
  EXPECT_EQ(value_of(out, "lockstep_nic_info", {{"device", "mlx5_0"}, {"gpu_uuid", "GPU-0"}, {"leaf", ""}}), 1);
  EXPECT_EQ(value_of(out, "lockstep_nic_info", {{"device", "eno1"}, {"port", ""}, {"distance", "NODE"}}), 1);
  EXPECT_EQ(value_of(out, "lockstep_gpu_nic_distance", {{"gpu_uuid", "GPU-0"}, {"device", "mlx5_0"}}), 4);
  EXPECT_EQ(value_of(out, "lockstep_gpu_nic_distance", {{"gpu_uuid", "GPU-0"}, {"device", "mlx5_1"}}), 9);
  EXPECT_EQ(value_of(out, "lockstep_gpu_nic_distance", {{"gpu_uuid", "GPU-0"}, {"device", "eno1"}}), 8);
  EXPECT_FALSE(value_of(out, "lockstep_gpu_nic_distance", {{"gpu_uuid", "MIG-1"}, {"device", "mlx5_1"}}));
  EXPECT_EQ(value_of(out, "lockstep_nic_pause_frames_total", {{"device", "eth1"}, {"priority", "3"}}), 9);
  EXPECT_EQ(value_of(out, "lockstep_pcie_link_width", {{"pci", "0000:9b:00.0"}}), 16);
  EXPECT_EQ(out.failures, 0);
  EXPECT_TRUE(out.notes.empty()) << out.notes[0];
  EXPECT_TRUE(out.events.empty());
}

TEST(NicAddress, IsWhatPacketsCarry) {
  EXPECT_EQ(address_of_gid("0000:0000:0000:0000:0000:ffff:0a1e:0011\n"), "10.30.0.17");
  EXPECT_EQ(address_of_gid("2001:0db8:0000:0000:0000:0000:0000:0001"), "2001:db8::1");
  EXPECT_EQ(address_of_gid("fe80:0000:0000:0000:966d:aeff:fe5c:1000"), std::nullopt);
  EXPECT_EQ(address_of_gid("0000:0000:0000:0000:0000:0000:0000:0000"), std::nullopt);
  EXPECT_EQ(address_of_gid("not a GID"), std::nullopt);
  EXPECT_EQ(interface_address("lo"), "127.0.0.1");
  EXPECT_EQ(interface_address("no-such-one"), "");
}

TEST_F(NicSourceTree, AFastTickReadsCountersAloneAndSaysNoMoreThanItMust) {
  read(0, true);
  NodeReadings out = read(1);
  EXPECT_TRUE(value_of(out, "hw.network.up", {{"device", "mlx5_0"}}));
  EXPECT_TRUE(value_of(out, "system.network.io", {{"device", "eno1"}, {"direction", "receive"}}));
  EXPECT_FALSE(value_of(out, "lockstep_nic_info", {{"device", "mlx5_0"}}));
  EXPECT_FALSE(value_of(out, "lockstep_pcie_link_width"));
}

TEST_F(NicSourceTree, AnEventNamesTheJobAndTheSwitchPort) {
  read(0, true);
  tree_.write("/sys/class/net/eth1/carrier", "0\n");
  tree_.write("/sys/class/net/eth1/carrier_down_count", "1\n");
  tree_.write("/sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n");
  NodeReadings out = read(1);
  ASSERT_EQ(out.events.size(), 2u);
  EXPECT_EQ(out.events[0].device, "eth1");
  EXPECT_EQ(out.events[0].text, "eth1: link lost (connected to leaf-1 port swp7)");
  EXPECT_EQ(out.events[0].job_id, "llama");
  EXPECT_EQ(out.events[0].rank, 5_rank);
  EXPECT_FALSE(out.events[0].secondary);
  EXPECT_EQ(out.events[1].device, "mlx5_1/1");
  EXPECT_EQ(out.events[1].job_id, "llama");
  EXPECT_TRUE(out.events[1].secondary);
  EXPECT_EQ(out.events[1].time_unix_ns, tick_at(1).unix_ns);
}

TEST_F(NicSourceTree, PublishesAnotherNeighbourWhenTheCableIsMoved) {
  read(0, true);
  tree_.remove("/run/lockstep-recorded/lldp/eth1");
  NodeReadings out = read(10, true);
  EXPECT_EQ(value_of(out, "lockstep_nic_info", {{"device", "mlx5_1"}, {"leaf", ""}}), 1);
}

TEST_F(NicSourceTree, ChecksWithoutReading) {
  std::vector<SourceCheck> checks = source_->check();
  ASSERT_EQ(checks.size(), 4u);
  for (const SourceCheck& check : checks) EXPECT_TRUE(check.works) << check.what << ": " << check.found;
  EXPECT_EQ(checks[0].found, "2 ports");
  EXPECT_TRUE(read(0).events.empty());
}

TEST(NicSourceNone, AMachineWithoutAnythingIsNoFailureButSaysWhatIsMissing) {
  Tree tree;
  std::unique_ptr<NicSource> source = open_nic_source({.root = tree.root()});
  NodeReadings out;
  source->read(tick_at(0, true), out);  // and without a owners
  EXPECT_TRUE(out.readings.empty());
  EXPECT_LE(out.notes.size(), 1u);
  std::vector<SourceCheck> checks = source->check();
  ASSERT_FALSE(checks.empty());
  EXPECT_EQ(checks[0].what, "RDMA ports");
  EXPECT_FALSE(checks[0].works);
  EXPECT_FALSE(checks[0].todo.empty());
}

TEST(NicSourceRows, HaveNamesOnceAndSumsOfOursEndInTotal) {
  std::set<std::string> names;
  for (const MetricDescriptor& metric : kNicMetrics) {
    const std::string name = metric.name;
    EXPECT_TRUE(names.insert(name).second) << name;
    if (name.starts_with("lockstep_")) {
      EXPECT_EQ(name.ends_with("_total"), metric.kind == MetricKind::kSum) << name;
    }
    EXPECT_NE(*metric.help, '\0') << name;
  }
}

}  // namespace
}  // namespace lockstep
