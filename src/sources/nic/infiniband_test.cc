#include "sources/nic/infiniband.h"

#include <gtest/gtest.h>

#include "sources/nic/nic_metrics.h"
#include "sources/nic/testing.h"

namespace lockstep {
namespace {

using nic_testing::expect_well_formed;
using nic_testing::tick_at;
using nic_testing::Tree;
using nic_testing::value_of;

const std::string kPort = "/sys/class/infiniband/mlx5_0/ports/1";

class NicInfiniband : public ::testing::Test {
 protected:
  NicInfiniband() : context_(tree_.root()), netdevs_(context_, false), ports_(context_) {
    tree_.folder("/sys/class/net");
    tree_.rdma("mlx5_0", "", "");
  }

  NodeReadings read(double seconds, bool slow = false) {
    NodeReadings out;
    Tick tick = tick_at(seconds, slow);
    if (slow) {
      ports_.rescan(tick, out);
      netdevs_.rescan(tick, {}, out);
    }
    netdevs_.read(tick, out);
    ports_.read(tick, netdevs_, out);
    expect_well_formed(out);
    return out;
  }

  Tree tree_;
  NicContext context_;
  Netdevs netdevs_;
  RdmaPorts ports_;
};

const Labels kMlx{{"device", "mlx5_0"}, {"port", "1"}};
Labels sent(const std::string& device = "mlx5_0") {
  return {{"device", device}, {"direction", "transmit"}};
}

TEST_F(NicInfiniband, CountsDataInBytesNotInWords) {
  tree_.write(kPort + "/counters/port_xmit_data", "1000\n");
  tree_.write(kPort + "/counters/port_rcv_data", "25\n");
  tree_.write(kPort + "/counters/port_xmit_packets", "7\n");
  NodeReadings out = read(0, true);
  EXPECT_EQ(value_of(out, "hw.network.io", sent()), 4000);
  EXPECT_EQ(value_of(out, "hw.network.io", {{"direction", "receive"}}), 100);
  EXPECT_EQ(value_of(out, "hw.network.packets", sent()), 7);
  EXPECT_EQ(out.failures, 0);
  EXPECT_TRUE(out.notes.empty());
}

TEST_F(NicInfiniband, TellsStateAndRate) {
  NodeReadings out = read(0, true);
  EXPECT_EQ(value_of(out, "hw.network.up", kMlx), 1);
  EXPECT_EQ(value_of(out, "hw.network.bandwidth.limit", kMlx), 50e9);
  EXPECT_EQ(value_of(out, "lockstep_nic_port_state", kMlx), 4);
  EXPECT_EQ(value_of(out, "lockstep_nic_port_phys_state", kMlx), 5);
}

TEST_F(NicInfiniband, GoesOnThroughAWrapOfA32BitCounter) {
  tree_.write(kPort + "/hw_counters/rx_write_requests", "4294967000\n");
  EXPECT_EQ(value_of(read(0, true), "lockstep_nic_rx_write_requests_total", kMlx), 4294967000.0);
  tree_.write(kPort + "/hw_counters/rx_write_requests", "704\n");
  EXPECT_EQ(value_of(read(1), "lockstep_nic_rx_write_requests_total", kMlx), 4294968000.0);
}

TEST_F(NicInfiniband, ADriverReloadIsAResetAlsoForACounterThatCouldHaveWrapped) {
  tree_.write(kPort + "/counters/port_xmit_packets", "1000000\n");
  tree_.write(kPort + "/hw_counters/out_of_sequence", "4294967000\n");
  read(0, true);
  tree_.write(kPort + "/counters/port_xmit_packets", "12\n");  // 64 bits: this can only be a reset
  tree_.write(kPort + "/hw_counters/out_of_sequence", "3\n");
  NodeReadings out = read(1);
  EXPECT_EQ(value_of(out, "lockstep_nic_out_of_sequence_total", kMlx), 3);
  EXPECT_EQ(value_of(out, "hw.network.packets", sent()), 12);
}

TEST_F(NicInfiniband, CongestionCountersHave64BitsAndAFallIsAReset) {
  tree_.write(kPort + "/hw_counters/np_cnp_sent", "4294967290\n");
  read(0, true);
  tree_.write(kPort + "/hw_counters/np_cnp_sent", "4\n");
  EXPECT_EQ(value_of(read(1), "lockstep_nic_np_cnp_sent_total", kMlx), 4);
}

TEST_F(NicInfiniband, OneOddPortCostsThatPortsReadingsAlone) {
  tree_.rdma("mlx5_1", "", "");
  const std::string odd = "/sys/class/infiniband/mlx5_1/ports/1";
  tree_.write(odd + "/counters/port_xmit_data", "N/A (no PMA)\n");
  tree_.write(odd + "/counters/port_rcv_data", "");
  tree_.write(odd + "/state", "what?\n");
  tree_.write(odd + "/rate", "very fast\n");
  tree_.folder(odd + "/hw_counters/symbol_error");  // a folder where a file is expected
  tree_.write(odd + "/hw_counters/out_of_buffer", "9\n");
  tree_.folder("/sys/class/infiniband/rocep9s0/ports/1");  // nothing in it at all
  tree_.folder("/sys/class/infiniband/empty0");
  tree_.write(kPort + "/counters/port_xmit_data", "10\n");
  NodeReadings out = read(0, true);
  EXPECT_EQ(value_of(out, "hw.network.io", sent("mlx5_0")), 40);
  EXPECT_EQ(value_of(out, "hw.network.up", kMlx), 1);
  EXPECT_FALSE(value_of(out, "hw.network.io", sent("mlx5_1")));
  EXPECT_FALSE(value_of(out, "hw.network.up", {{"device", "mlx5_1"}}));
  EXPECT_EQ(value_of(out, "lockstep_nic_out_of_buffer_total", {{"device", "mlx5_1"}}), 9);
  EXPECT_EQ(out.notes.size(), 2u) << "one line for each odd port";
  EXPECT_GE(out.failures, 4);
  NodeReadings next = read(1);
  EXPECT_TRUE(next.notes.empty()) << "said once";
  EXPECT_EQ(value_of(next, "hw.network.io", sent("mlx5_0")), 40);
}

TEST_F(NicInfiniband, ReadsACounterAgainOnceItAnswers) {
  tree_.write(kPort + "/counters/symbol_error", "N/A (no PMA)\n");
  read(0, true);
  tree_.write(kPort + "/counters/symbol_error", "3\n");
  EXPECT_FALSE(value_of(read(1), "lockstep_nic_symbol_error_total"));
  EXPECT_EQ(value_of(read(2, true), "lockstep_nic_symbol_error_total"), 3);
}

TEST_F(NicInfiniband, TakesTrafficFromHwCountersWhereThereIsNoCountersFolder) {
  tree_.rdma("bnxt_re0", "", "");
  tree_.write("/sys/class/infiniband/bnxt_re0/ports/1/hw_counters/tx_bytes", "1234\n");
  tree_.write("/sys/class/infiniband/bnxt_re0/ports/1/hw_counters/oos_drop_count", "5\n");
  // Both folders have it here: no series twice.
  tree_.write(kPort + "/counters/port_xmit_data", "10\n");
  tree_.write(kPort + "/hw_counters/tx_bytes", "99\n");
  NodeReadings out = read(0, true);
  EXPECT_EQ(value_of(out, "hw.network.io", sent("bnxt_re0")), 1234);
  EXPECT_EQ(value_of(out, "lockstep_nic_counter_total", {{"device", "bnxt_re0"}, {"counter", "oos_drop_count"}}), 5);
  EXPECT_EQ(value_of(out, "hw.network.io", sent("mlx5_0")), 40);
  EXPECT_EQ(value_of(out, "lockstep_nic_counter_total", {{"device", "mlx5_0"}, {"counter", "tx_bytes"}}), 99);
}

TEST_F(NicInfiniband, KeepsOneSeriesWhenTheOtherFolderAppearsLater) {
  tree_.write(kPort + "/hw_counters/tx_bytes", "99\n");
  EXPECT_EQ(value_of(read(0, true), "hw.network.io", sent()), 99);
  tree_.write(kPort + "/counters/port_xmit_data", "10\n");
  EXPECT_EQ(value_of(read(10, true), "hw.network.io", sent()), 40);
}

TEST_F(NicInfiniband, ReadsCountersOfOtherVendorsOnSlowTicksAndNotWithoutEnd) {
  for (int i = 0; i < 100; ++i) {
    tree_.write(kPort + "/hw_counters/ip4InOctets" + std::to_string(i), std::to_string(i) + "\n");
  }
  tree_.write(kPort + "/hw_counters/lifespan", "10\n");
  NodeReadings out = read(0, true);
  size_t others = 0;
  for (const Reading& reading : out.readings) {
    others += reading.metric == &nic_metric("lockstep_nic_counter_total");
  }
  EXPECT_EQ(others, RdmaPorts::kOtherCountersMax);
  EXPECT_EQ(out.notes.size(), 1u);
  EXPECT_FALSE(value_of(out, "lockstep_nic_counter_total", {{"counter", "lifespan"}}));
  EXPECT_FALSE(value_of(read(1), "lockstep_nic_counter_total", {{"counter", "ip4InOctets0"}}));
}

TEST_F(NicInfiniband, DoesNotBelieveAStateThatTheDriverInvents) {
  const std::string pci = tree_.pci("pci0000:00/0000:00:1d.0", 0);
  tree_.folder("/sys/bus/pci/drivers/efa");
  tree_.link(pci + "/driver", "/sys/bus/pci/drivers/efa");
  tree_.rdma("rdmap0s29", pci, "");
  NodeReadings out = read(0, true);
  EXPECT_FALSE(value_of(out, "hw.network.up", {{"device", "rdmap0s29"}}));
  EXPECT_EQ(value_of(out, "hw.network.up", kMlx), 1);
}

TEST_F(NicInfiniband, TellsWhenAPortGoesDownAndComesBackSlower) {
  EXPECT_TRUE(read(0, true).events.empty());
  tree_.write(kPort + "/state", "1: DOWN\n");
  tree_.write(kPort + "/phys_state", "2: Polling\n");
  tree_.write(kPort + "/rate", "10 Gb/sec (4X)\n");
  NodeReadings down = read(1);
  ASSERT_EQ(down.events.size(), 1u);
  EXPECT_EQ(down.events[0].name, "link.down");
  EXPECT_EQ(down.events[0].device, "mlx5_0/1");
  EXPECT_EQ(down.events[0].severity, EventSeverity::kCritical);
  EXPECT_EQ(down.events[0].text, "mlx5_0/1: ACTIVE -> DOWN (LinkUp -> Polling)");
  EXPECT_FALSE(down.events[0].secondary);
  EXPECT_EQ(value_of(down, "hw.network.up", kMlx), 0);
  EXPECT_TRUE(read(2).events.empty()) << "a state is told when it changes";

  tree_.write(kPort + "/state", "4: ACTIVE\n");
  tree_.write(kPort + "/phys_state", "5: LinkUp\n");
  tree_.write(kPort + "/rate", "200 Gb/sec (4X HDR)\n");
  NodeReadings up = read(3);
  ASSERT_EQ(up.events.size(), 2u);
  EXPECT_EQ(up.events[0].name, "link.up");
  EXPECT_EQ(up.events[1].name, "link.degraded");
  EXPECT_EQ(up.events[1].text, "mlx5_0/1: 400 Gb/s -> 200 Gb/s");

  tree_.write(kPort + "/rate", "400 Gb/sec (4X NDR)\n");
  NodeReadings restored = read(4);
  ASSERT_EQ(restored.events.size(), 1u);
  EXPECT_EQ(restored.events[0].name, "link.restored");
}

TEST_F(NicInfiniband, ARoCEPortThatFollowsItsInterfaceIsSecondary) {
  const std::string pci = tree_.pci("pci0000:00/0000:00:01.0", 0);
  tree_.rdma("mlx5_2", pci, "eth2");
  tree_.netdev("eth2", 5, pci);
  read(0, true);
  tree_.write("/sys/class/net/eth2/carrier", "0\n");
  tree_.write("/sys/class/net/eth2/carrier_down_count", "1\n");
  NodeReadings first = read(1);
  ASSERT_EQ(first.events.size(), 1u);
  EXPECT_EQ(first.events[0].device, "eth2");
  tree_.write("/sys/class/infiniband/mlx5_2/ports/1/state", "1: DOWN\n");
  NodeReadings second = read(2);
  ASSERT_EQ(second.events.size(), 1u);
  EXPECT_EQ(second.events[0].device, "mlx5_2/1");
  EXPECT_TRUE(second.events[0].secondary);
}

TEST_F(NicInfiniband, TellsOfPortsThatComeAndGo) {
  read(0, true);
  tree_.rdma("mlx5_1", "", "");
  NodeReadings came = read(10, true);
  ASSERT_EQ(came.events.size(), 1u);
  EXPECT_EQ(came.events[0].name, "nic.appeared");
  EXPECT_EQ(came.events[0].device, "mlx5_1/1");
  EXPECT_EQ(value_of(came, "hw.network.up", {{"device", "mlx5_1"}}), 1);
  tree_.remove("/sys/class/infiniband/mlx5_1");
  NodeReadings went = read(20, true);
  ASSERT_EQ(went.events.size(), 1u);
  EXPECT_EQ(went.events[0].name, "nic.lost");
  EXPECT_EQ(value_of(went, "hw.network.up", kMlx), 1);
}

TEST_F(NicInfiniband, AnAdapterThatLeftTheBusIsCritical) {
  const std::string pci = tree_.pci("pci0000:00/0000:00:01.0", 0);
  tree_.rdma("mlx5_3", pci, "");
  read(0, true);
  tree_.remove("/sys/class/infiniband/mlx5_3");
  tree_.remove("/sys/bus/pci/devices/0000:00:01.0");
  NodeReadings went = read(10, true);
  ASSERT_EQ(went.events.size(), 1u);
  EXPECT_EQ(went.events[0].severity, EventSeverity::kCritical);
}

TEST(NicInfinibandText, UnderstandsStatesAndRates) {
  EXPECT_EQ(parse_port_state("4: ACTIVE"), (PortState{4, "ACTIVE"}));
  EXPECT_EQ(parse_port_state("1: DOWN\n"), (PortState{1, "DOWN"}));
  EXPECT_FALSE(parse_port_state("ACTIVE"));
  EXPECT_FALSE(parse_port_state("x: ACTIVE"));
  EXPECT_FALSE(parse_port_state(""));
  EXPECT_EQ(parse_port_rate("2.5 Gb/sec (1X SDR)"), 2.5e9 / 8);
  EXPECT_EQ(parse_port_rate("800 Gb/sec (4X XDR)"), 100e9);
  EXPECT_FALSE(parse_port_rate("-5 Gb/sec"));
  EXPECT_FALSE(parse_port_rate("N/A"));
}

}  // namespace
}  // namespace lockstep
