#include "sources/nic/ethtool.h"

#include <gtest/gtest.h>

#include "sources/nic/ethtool_names.h"
#include "sources/nic/nic_metrics.h"
#include "sources/nic/testing.h"

namespace lockstep {
namespace {

using nic_testing::expect_well_formed;
using nic_testing::tick_at;
using nic_testing::Tree;
using nic_testing::value_of;

constexpr const char* kMlx5 =
    "NIC statistics:\n"
    "     rx_packets: 100\n"
    "     rx_prio0_bytes: 0\n"
    "     rx_prio0_pause: 0\n"
    "     rx_prio3_bytes: 5000\n"
    "     rx_prio3_pause: 7\n"
    "     rx_prio3_pause_duration: 2500000\n"
    "     tx_prio3_pause: 1\n"
    "     rx_prio3_buf_discard: 4\n"
    "     tx_pause_storm_error_events: 2\n"
    "     outbound_pci_stalled_wr: 25\n"
    "     outbound_pci_stalled_wr_events: 6\n"
    "     rx_corrected_bits_phy: 11\n"
    "     rx_err_lane_2_phy: 3\n"
    "     module_high_temp: 1\n"
    "     rx3_packets: 9\n";

class NicEthtool : public ::testing::Test {
 protected:
  NicEthtool() : context_(tree_.root()), metrics_(context_, recorded_ethtool(tree_.root()), nullptr) {
    Netdevs::Netdev netdev;
    netdev.name = "eth2";
    netdev.ifindex = 4;
    netdevs_.push_back(netdev);
  }
  NodeReadings read(const std::string& text, double seconds) {
    tree_.write("/run/lockstep-recorded/ethtool/eth2", text);
    NodeReadings out;
    metrics_.read(tick_at(seconds), netdevs_, out);
    expect_well_formed(out);
    return out;
  }

  Tree tree_;
  NicContext context_;
  EthtoolMetrics metrics_;
  std::vector<Netdevs::Netdev> netdevs_;
};

TEST_F(NicEthtool, TellsPausesByPriorityInSeconds) {
  NodeReadings out = read(kMlx5, 0);
  const Labels received{{"device", "eth2"}, {"priority", "3"}, {"direction", "receive"}};
  EXPECT_EQ(value_of(out, "lockstep_nic_pause_frames_total", received), 7);
  EXPECT_EQ(value_of(out, "lockstep_nic_pause_seconds_total", received), 2.5);
  EXPECT_EQ(value_of(out, "lockstep_nic_pause_frames_total", {{"priority", "3"}, {"direction", "transmit"}}), 1);
  EXPECT_EQ(value_of(out, "lockstep_nic_priority_discards_total", {{"priority", "3"}, {"reason", "buffer"}}), 4);
  EXPECT_EQ(value_of(out, "lockstep_nic_pause_storm_total", {{"severity", "error"}}), 2);
  EXPECT_EQ(value_of(out, "lockstep_nic_pci_stalled_ratio", {{"direction", "write"}}), 0.25);
  EXPECT_EQ(value_of(out, "lockstep_nic_pci_stalled_seconds_total", {{"direction", "write"}}), 6);
  EXPECT_EQ(value_of(out, "lockstep_nic_fec_corrected_bits_total"), 11);
  EXPECT_EQ(value_of(out, "lockstep_nic_lane_errors_total", {{"lane", "2"}}), 3);
  EXPECT_EQ(value_of(out, "lockstep_nic_module_events_total", {{"event", "high_temp"}}), 1);
  EXPECT_EQ(metrics_.interfaces_with_statistics(), 1u);
}

TEST_F(NicEthtool, LeavesOutPrioritiesThatNobodyUses) {
  EXPECT_FALSE(value_of(read(kMlx5, 0), "lockstep_nic_pause_frames_total", {{"priority", "0"}}));
  std::string used = kMlx5;
  used.replace(used.find("rx_prio0_bytes: 0"), 17, "rx_prio0_bytes: 1");
  EXPECT_EQ(value_of(read(used, 1), "lockstep_nic_pause_frames_total", {{"priority", "0"}}), 0);
  EXPECT_EQ(value_of(read(kMlx5, 2), "lockstep_nic_pause_frames_total", {{"priority", "0"}}), 0)
      << "once told, always told";
}

TEST_F(NicEthtool, FindsNamesAgainWhenQueuesWereAdded) {
  read(kMlx5, 0);
  NodeReadings out = read("NIC statistics:\n  rx0_new_queue: 77\n" + std::string(kMlx5).substr(16), 1);
  EXPECT_EQ(value_of(out, "lockstep_nic_fec_corrected_bits_total"), 11);
  EXPECT_EQ(out.failures, 0);
}

TEST_F(NicEthtool, AnInterfaceWithoutStatisticsIsNoFailure) {
  NodeReadings out;
  metrics_.read(tick_at(0), netdevs_, out);
  EXPECT_TRUE(out.readings.empty());
  EXPECT_EQ(out.failures, 0);
  EXPECT_EQ(metrics_.interfaces_with_statistics(), 0u);
}

// A driver that gives other numbers of names and values each time.
class Restless : public EthtoolStatistics {
 public:
  Result<std::vector<std::string>> names(const std::string& netdev) override {
    if (netdev == "gone") return Error{"ethtool of gone: No such device"};
    return std::vector<std::string>{"rx_discards_phy", "tx_discards_phy"};
  }
  Result<void> values(const std::string&, std::vector<uint64_t>& out) override {
    out.assign(1, 5);
    return {};
  }
};

TEST_F(NicEthtool, NeverReadsAValueByANameOfAnotherPosition) {
  EthtoolMetrics metrics(context_, std::make_unique<Restless>(), nullptr);
  Netdevs::Netdev gone;
  gone.name = "gone";
  netdevs_.push_back(gone);
  NodeReadings out;
  metrics.read(tick_at(0), netdevs_, out);
  EXPECT_TRUE(out.readings.empty());
  EXPECT_EQ(out.failures, 2);
  EXPECT_EQ(out.notes.size(), 2u);
  NodeReadings again;
  metrics.read(tick_at(1), netdevs_, again);
  EXPECT_EQ(again.failures, 2);
  EXPECT_TRUE(again.notes.empty()) << "said once";
}

TEST(NicEthtoolText, ReadsWhatTheToolPrints) {
  EXPECT_EQ(parse_ethtool_text("NIC statistics:\n     a: 1\n [0]: rx_b: 2\n\nbad: x\n: 3\nc 4\nd:18446744073709551615"),
            (std::vector<EthtoolStatistic>{{"a", 1}, {"[0]: rx_b", 2}, {"d", UINT64_MAX}}));
}

TEST(NicEthtoolNames, KnowsTheNamesOfOtherDrivers) {
  for (const char* name : {"rx_prio5_pause", "rx_pfc_ena_frames_pri5", "rx_priority_5_xoff.nic"}) {
    std::optional<EthtoolMeaning> meaning = ethtool_meaning(name);
    ASSERT_TRUE(meaning) << name;
    EXPECT_EQ(meaning->metric, &nic_metric("lockstep_nic_pause_frames_total")) << name;
    EXPECT_EQ(meaning->labels, (Labels{{"priority", "5"}, {"direction", "receive"}})) << name;
    EXPECT_EQ(meaning->priority, 5);
  }
  EXPECT_EQ(ethtool_meaning("tx_global_pause")->labels, (Labels{{"priority", "global"}, {"direction", "transmit"}}));
  EXPECT_EQ(ethtool_meaning("pfc_pri1_tx_duration_us")->scale, 1e-6);
  for (const char* name :
       {"rx_prio8_pause", "rx_priox_pause", "rx_prio12_pause", "rx_prio3_pausex", "", "rx_packets"}) {
    EXPECT_FALSE(ethtool_meaning(name)) << name;
  }
}

TEST(NicEthtoolKernel, AsksThisKernelAboutLoopbackAndAboutNobody) {
  std::unique_ptr<EthtoolStatistics> kernel = kernel_ethtool();
  Result<std::vector<std::string>> loopback = kernel->names("lo");
  ASSERT_TRUE(loopback) << loopback.error();
  EXPECT_TRUE(loopback->empty()) << "lo has no statistics";
  EXPECT_FALSE(kernel->names("no-such-device"));
  EXPECT_FALSE(kernel->names("a-name-that-is-much-too-long-for-an-interface"));
  std::vector<uint64_t> values;
  EXPECT_FALSE(kernel->values("no-such-device", values));
}

}  // namespace
}  // namespace lockstep
