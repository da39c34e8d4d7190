#include "sources/nic/ethtool_netlink.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <linux/dcbnl.h>
#include <linux/ethtool_netlink.h>
#include <linux/genetlink.h>

#include <vector>

namespace lockstep {
namespace {

// Answers as the kernel lays them out, by the names of its own headers.
NetlinkPayload generic_answer(uint8_t command) {
  NetlinkPayload answer;
  genlmsghdr header{command, 1, 0};
  answer.append(&header, sizeof header);
  NetlinkPayload device;
  device.attribute_text(ETHTOOL_A_HEADER_DEV_NAME, "eth2");
  answer.nested(ETHTOOL_A_PAUSE_HEADER, device);
  return answer;
}

void attribute_u64(NetlinkPayload& payload, uint16_t type, uint64_t value) {
  payload.attribute(type, &value, sizeof value);
}

TEST(NicEthtoolNetlink, ReadsPauseFrames) {
  NetlinkPayload statistics;
  attribute_u64(statistics, ETHTOOL_A_PAUSE_STAT_TX_FRAMES, 12);
  attribute_u64(statistics, ETHTOOL_A_PAUSE_STAT_RX_FRAMES, 5'000'000'000);
  NetlinkPayload answer = generic_answer(ETHTOOL_MSG_PAUSE_GET_REPLY);
  answer.nested(ETHTOOL_A_PAUSE_STATS, statistics);
  PauseStatistics pause = parse_pause(answer.bytes());
  EXPECT_EQ(pause.sent, 12u);
  EXPECT_EQ(pause.received, 5'000'000'000u);
}

TEST(NicEthtoolNetlink, ADriverWithoutPauseStatisticsTellsNone) {
  PauseStatistics pause = parse_pause(generic_answer(ETHTOOL_MSG_PAUSE_GET_REPLY).bytes());
  EXPECT_FALSE(pause.sent);
  EXPECT_FALSE(pause.received);
}

TEST(NicEthtoolNetlink, ReadsErrorCorrectionSummedOverLanes) {
  const uint64_t corrected[] = {30, 10, 20};
  const uint64_t uncorrectable[] = {2};
  NetlinkPayload statistics;
  statistics.attribute(ETHTOOL_A_FEC_STAT_CORRECTED, corrected, sizeof corrected);
  statistics.attribute(ETHTOOL_A_FEC_STAT_UNCORR, uncorrectable, sizeof uncorrectable);
  statistics.attribute(ETHTOOL_A_FEC_STAT_CORR_BITS, nullptr, 0);
  NetlinkPayload answer = generic_answer(ETHTOOL_MSG_FEC_GET_REPLY);
  answer.nested(ETHTOOL_A_FEC_STATS, statistics);
  FecStatistics fec = parse_fec(answer.bytes());
  EXPECT_EQ(fec.corrected_blocks, 30u);
  EXPECT_EQ(fec.uncorrectable_blocks, 2u);
  EXPECT_FALSE(fec.corrected_bits);
}

TEST(NicEthtoolNetlink, ReadsStandardErrorsOfTheirOwnGroups) {
  auto group = [](uint32_t id, uint16_t statistic, uint64_t value) {
    NetlinkPayload one;
    attribute_u64(one, statistic, value);
    NetlinkPayload inside;
    inside.attribute_u32(ETHTOOL_A_STATS_GRP_ID, id);
    inside.attribute_u32(ETHTOOL_A_STATS_GRP_SS_ID, 17);
    inside.nested(ETHTOOL_A_STATS_GRP_STAT, one);
    return inside;
  };
  NetlinkPayload answer;
  genlmsghdr header{ETHTOOL_MSG_STATS_GET_REPLY, 1, 0};
  answer.append(&header, sizeof header);
  answer.nested(ETHTOOL_A_STATS_GRP, group(ETHTOOL_STATS_ETH_PHY, ETHTOOL_A_STATS_ETH_PHY_5_SYM_ERR, 8));
  answer.nested(ETHTOOL_A_STATS_GRP, group(ETHTOOL_STATS_ETH_MAC, ETHTOOL_A_STATS_ETH_MAC_6_FCS_ERR, 9));
  answer.nested(ETHTOOL_A_STATS_GRP, group(ETHTOOL_STATS_RMON, ETHTOOL_A_STATS_RMON_UNDERSIZE, 1));
  StandardStatistics standard = parse_standard(answer.bytes());
  EXPECT_EQ(standard.symbol_errors, 8u);
  EXPECT_EQ(standard.checksum_errors, 9u);
}

TEST(NicEthtoolNetlink, ReadsPriorityFlowControl) {
  ieee_pfc raw{};
  raw.pfc_en = 1 << 3;
  raw.requests[3] = 70;
  raw.indications[3] = 900;
  NetlinkPayload ieee;
  ieee.attribute(DCB_ATTR_IEEE_PFC, &raw, sizeof raw);
  NetlinkPayload answer;
  dcbmsg header{0, DCB_CMD_IEEE_GET, 0};
  answer.append(&header, sizeof header);
  answer.attribute_text(DCB_ATTR_IFNAME, "eth2");
  answer.nested(DCB_ATTR_IEEE, ieee);
  std::optional<PfcStatistics> pfc = parse_pfc(answer.bytes());
  ASSERT_TRUE(pfc);
  EXPECT_EQ(pfc->enabled, 8);
  EXPECT_EQ(pfc->sent[3], 70u);
  EXPECT_EQ(pfc->received[3], 900u);
}

TEST(NicEthtoolNetlink, CutOffAnswersGiveNothingAndHarmNothing) {
  NetlinkPayload statistics;
  attribute_u64(statistics, ETHTOOL_A_PAUSE_STAT_TX_FRAMES, 12);
  NetlinkPayload answer = generic_answer(ETHTOOL_MSG_PAUSE_GET_REPLY);
  answer.nested(ETHTOOL_A_PAUSE_STATS, statistics);
  const std::vector<uint8_t> whole(answer.bytes().begin(), answer.bytes().end());
  for (size_t size = 0; size < whole.size(); ++size) {
    std::vector<uint8_t> part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(parse_pause(part).sent) << size;
  }
}

TEST(NicEthtoolNetlink, ThisKernelAnswersOrSaysThatItCannot) {
  EthtoolNetlink netlink;
  if (!netlink.has_ethtool()) GTEST_SKIP() << "this kernel has no ethtool netlink";
  // Loopback has none of this; but the questions must be ones that the kernel understands.
  EXPECT_FALSE(netlink.pause("lo").sent);
  EXPECT_EQ(netlink.last_error(), EOPNOTSUPP);
  EXPECT_FALSE(netlink.fec("lo").corrected_bits);
  EXPECT_EQ(netlink.last_error(), EOPNOTSUPP);
  EXPECT_FALSE(netlink.standard("lo").checksum_errors);
  EXPECT_TRUE(netlink.last_error() == 0 || netlink.last_error() == EOPNOTSUPP) << netlink.last_error();
  EXPECT_FALSE(netlink.pfc("lo"));
  EXPECT_EQ(netlink.last_error(), EOPNOTSUPP);
  EXPECT_FALSE(netlink.pause("no-such-device").sent);
  EXPECT_EQ(netlink.last_error(), ENODEV);
}

}  // namespace
}  // namespace lockstep
