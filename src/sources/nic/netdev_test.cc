#include "sources/nic/netdev.h"

#include <gtest/gtest.h>

#include "sources/nic/testing.h"

namespace lockstep {
namespace {

using nic_testing::expect_well_formed;
using nic_testing::tick_at;
using nic_testing::Tree;
using nic_testing::value_of;

class NicNetdev : public ::testing::Test {
 protected:
  NicNetdev() : context_(tree_.root()), netdevs_(context_, false) {
    pci_ = tree_.pci("pci0000:00/0000:00:01.0/0000:01:00.0", 1);
    tree_.netdev("eth0", 2, pci_);
  }
  NodeReadings read(double seconds, bool slow = false) {
    NodeReadings out;
    Tick tick = tick_at(seconds, slow);
    if (slow) netdevs_.rescan(tick, used_by_rdma_, out);
    netdevs_.read(tick, out);
    expect_well_formed(out);
    return out;
  }
  void set(const std::string& file, const std::string& text) {
    tree_.write("/sys/class/net/eth0/" + file, text + "\n");
  }

  Tree tree_;
  NicContext context_;
  Netdevs netdevs_;
  std::string pci_;
  std::vector<std::string> used_by_rdma_;
};

TEST_F(NicNetdev, PublishesTrafficLinkAndSpeed) {
  set("statistics/rx_bytes", "1000");
  set("statistics/tx_packets", "3");
  set("statistics/rx_dropped", "2");
  NodeReadings out = read(0, true);
  EXPECT_EQ(value_of(out, "system.network.io", {{"device", "eth0"}, {"direction", "receive"}}), 1000);
  EXPECT_EQ(value_of(out, "system.network.packet.count", {{"direction", "transmit"}}), 3);
  EXPECT_EQ(value_of(out, "system.network.packet.dropped", {{"direction", "receive"}}), 2);
  EXPECT_EQ(value_of(out, "system.network.errors", {{"direction", "receive"}}), 0);
  EXPECT_EQ(value_of(out, "lockstep_nic_carrier"), 1);
  EXPECT_EQ(value_of(out, "lockstep_nic_carrier_changes_total"), 1);
  EXPECT_EQ(value_of(out, "lockstep_nic_speed"), 50e9);
  EXPECT_EQ(value_of(out, "lockstep_nic_mtu"), 9000);
  EXPECT_TRUE(out.events.empty());
  EXPECT_EQ(out.failures, 0);
}

TEST_F(NicNetdev, LeavesVirtualInterfacesAloneUnlessRdmaUsesThem) {
  tree_.netdev("lo", 1, "");
  tree_.netdev("veth12", 3, "");
  tree_.netdev("bond0", 4, "");
  tree_.netdev("rep0", 5, pci_);
  tree_.write("/sys/class/net/rep0/phys_port_name", "pf0vf7\n");
  used_by_rdma_ = {"bond0"};
  NodeReadings out = read(0, true);
  EXPECT_TRUE(value_of(out, "lockstep_nic_carrier", {{"device", "eth0"}}));
  EXPECT_TRUE(value_of(out, "lockstep_nic_carrier", {{"device", "bond0"}}));
  for (const char* name : {"lo", "veth12", "rep0"}) {
    EXPECT_FALSE(value_of(out, "lockstep_nic_carrier", {{"device", name}})) << name;
  }
}

TEST_F(NicNetdev, TellsALinkThatWentDown) {
  read(0, true);
  set("carrier", "0");
  set("carrier_down_count", "1");
  NodeReadings out = read(1);
  ASSERT_EQ(out.events.size(), 1u);
  EXPECT_EQ(out.events[0].name, "link.down");
  EXPECT_EQ(out.events[0].device, "eth0");
  EXPECT_EQ(out.events[0].count, 1);
  EXPECT_EQ(out.events[0].severity, EventSeverity::kCritical);
  EXPECT_EQ(value_of(out, "lockstep_nic_carrier"), 0);
  EXPECT_FALSE(value_of(out, "lockstep_nic_speed")) << "no link, no speed";
  EXPECT_TRUE(read(2).events.empty());
}

TEST_F(NicNetdev, CountsFlapsBetweenTwoReadings) {
  read(0, true);
  set("carrier_down_count", "3");
  set("carrier_up_count", "4");
  NodeReadings out = read(1);
  ASSERT_EQ(out.events.size(), 2u);
  EXPECT_EQ(out.events[0].name, "link.down");
  EXPECT_EQ(out.events[0].count, 3);
  EXPECT_EQ(out.events[0].severity, EventSeverity::kWarn) << "it is back";
  EXPECT_EQ(out.events[1].name, "link.up");
  EXPECT_EQ(out.events[1].count, 3);
}

TEST_F(NicNetdev, KnowsFlapsFromTheirSumOnAnOlderKernel) {
  tree_.remove("/sys/class/net/eth0/carrier_up_count");
  tree_.remove("/sys/class/net/eth0/carrier_down_count");
  set("carrier_changes", "1");
  read(0, true);
  set("carrier_changes", "4");  // down, up, down
  set("carrier", "0");
  NodeReadings out = read(1);
  ASSERT_EQ(out.events.size(), 2u);
  EXPECT_EQ(out.events[0].count, 2);
  EXPECT_EQ(out.events[1].count, 1);
}

TEST_F(NicNetdev, TellsALinkThatTrainedDown) {
  read(0, true);
  set("speed", "200000");
  NodeReadings out = read(1);
  ASSERT_EQ(out.events.size(), 1u);
  EXPECT_EQ(out.events[0].name, "link.degraded");
  EXPECT_EQ(out.events[0].text, "eth0: 400 Gb/s -> 200 Gb/s");
}

TEST_F(NicNetdev, AnUnknownSpeedIsNotASpeed) {
  for (const char* speed : {"-1", "4294967295", ""}) {
    set("speed", speed);
    NodeReadings out = read(0, true);
    EXPECT_FALSE(value_of(out, "lockstep_nic_speed")) << speed;
    EXPECT_TRUE(out.events.empty());
  }
}

TEST_F(NicNetdev, OneBadFileCostsThatReadingAlone) {
  set("statistics/rx_bytes", "many");
  NodeReadings out = read(0, true);
  EXPECT_FALSE(value_of(out, "system.network.io", {{"direction", "receive"}}));
  EXPECT_TRUE(value_of(out, "system.network.io", {{"direction", "transmit"}}));
  EXPECT_EQ(out.failures, 1);
  EXPECT_EQ(out.notes.size(), 1u);
  EXPECT_TRUE(read(1).notes.empty()) << "said once";
}

TEST_F(NicNetdev, AnInterfaceOfTheSameNameIsAnotherOne) {
  read(0, true);
  set("ifindex", "9");
  set("carrier_down_count", "0");
  set("carrier_up_count", "0");
  set("carrier", "0");
  EXPECT_TRUE(read(10, true).events.empty()) << "nothing is known of it yet";
}

TEST_F(NicNetdev, TellsWhetherALostInterfaceLeftTheBus) {
  read(0, true);
  tree_.remove("/sys/class/net/eth0");
  NodeReadings between = read(1);
  EXPECT_TRUE(between.events.empty());
  NodeReadings moved = read(10, true);
  ASSERT_EQ(moved.events.size(), 1u);
  EXPECT_EQ(moved.events[0].name, "nic.lost");
  EXPECT_EQ(moved.events[0].severity, EventSeverity::kInfo) << "its device is still there";

  tree_.netdev("eth0", 3, pci_);
  EXPECT_EQ(read(20, true).events.at(0).name, "nic.appeared");
  tree_.remove("/sys/class/net/eth0");
  tree_.remove("/sys/bus/pci/devices/0000:01:00.0");
  EXPECT_EQ(read(30, true).events.at(0).severity, EventSeverity::kCritical);
}

}  // namespace
}  // namespace lockstep
