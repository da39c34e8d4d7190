#include "sources/nic/rdma_netlink.h"

#include <gtest/gtest.h>
#include <rdma/rdma_netlink.h>

#include "sources/nic/testing.h"

namespace lockstep {
namespace {

NetlinkPayload entry(uint32_t local, uint32_t remote, uint8_t type, uint8_t state, uint32_t pid) {
  NetlinkPayload payload;
  payload.attribute_u32(RDMA_NLDEV_ATTR_PORT_INDEX, 1);
  payload.attribute_u32(RDMA_NLDEV_ATTR_RES_LQPN, local);
  if (remote != 0) payload.attribute_u32(RDMA_NLDEV_ATTR_RES_RQPN, remote);
  payload.attribute_u32(RDMA_NLDEV_ATTR_RES_SQ_PSN, 77);
  payload.attribute(RDMA_NLDEV_ATTR_RES_TYPE, &type, 1);
  payload.attribute(RDMA_NLDEV_ATTR_RES_STATE, &state, 1);
  if (pid != 0) {
    payload.attribute_u32(RDMA_NLDEV_ATTR_RES_PID, pid);
  } else {
    payload.attribute_text(RDMA_NLDEV_ATTR_RES_KERN_NAME, "ib_core");
  }
  return payload;
}

NetlinkPayload dump() {
  NetlinkPayload table;
  table.nested(RDMA_NLDEV_ATTR_RES_QP_ENTRY, entry(0x121, 0x9a3, 2, 3, 4711));
  table.nested(RDMA_NLDEV_ATTR_RES_QP_ENTRY, entry(1, 0, 1, 3, 0));
  NetlinkPayload message;
  message.attribute_u32(RDMA_NLDEV_ATTR_DEV_INDEX, 3);
  message.attribute_text(RDMA_NLDEV_ATTR_DEV_NAME, "mlx5_3");
  message.nested(RDMA_NLDEV_ATTR_RES_QP, table);
  return message;
}

TEST(NicRdmaNetlink, ListsQueuePairsWithBothEndsAndTheirProcess) {
  std::vector<QueuePair> pairs;
  parse_queue_pairs(dump().bytes(), pairs);
  ASSERT_EQ(pairs.size(), 2u);
  QueuePair expected;
  expected.device = "mlx5_3";
  expected.port = 1;
  expected.local_number = 0x121;
  expected.remote_number = 0x9a3;
  expected.send_psn = 77;
  expected.type = 2;
  expected.state = 3;
  expected.pid = 4711;
  EXPECT_EQ(pairs[0], expected);
  EXPECT_STREQ(queue_pair_type(pairs[0].type), "RC");
  EXPECT_STREQ(queue_pair_state(pairs[0].state), "RTS");
  EXPECT_EQ(pairs[1].pid, -1);
  EXPECT_EQ(pairs[1].kernel, "ib_core");
  EXPECT_FALSE(pairs[1].remote_number);
}

TEST(NicRdmaNetlink, ReadsTheNameOfADevice) {
  std::optional<RdmaDeviceName> device = parse_rdma_device(dump().bytes());
  ASSERT_TRUE(device);
  EXPECT_EQ(device->index, 3u);
  EXPECT_EQ(device->name, "mlx5_3");
  NetlinkPayload nameless;
  nameless.attribute_u32(RDMA_NLDEV_ATTR_DEV_INDEX, 3);
  EXPECT_FALSE(parse_rdma_device(nameless.bytes()));
}

TEST(NicRdmaNetlink, CutOffAnswersHarmNothing) {
  NetlinkPayload message = dump();
  const std::vector<uint8_t> whole(message.bytes().begin(), message.bytes().end());
  for (size_t size = 0; size < whole.size(); ++size) {
    std::vector<uint8_t> part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    std::vector<QueuePair> pairs;
    parse_queue_pairs(part, pairs);
    EXPECT_TRUE(pairs.empty()) << size;
  }
}

TEST(NicRdmaNetlink, BothEndsOfAConnectionHaveTheSameSourcePort) {
  for (uint32_t local : {0u, 1u, 0x121u, 0xffffffu}) {
    for (uint32_t remote : {0u, 5u, 0x9a3u, 0xabcdefu}) {
      const uint16_t port = roce_udp_source_port(local, remote);
      EXPECT_EQ(port, roce_udp_source_port(remote, local));
      EXPECT_GE(port, 0xc000);
    }
  }
}

TEST(NicRdmaNetlink, ComputesTheSourcePortAsTheKernelDoes) {
  // Worked by hand: 3 * 5 = 15, nothing to fold.
  EXPECT_EQ(roce_udp_source_port(3, 5), 0xc00f);
  // 0x4000 * 1: bit 14 is folded onto bit 0.
  EXPECT_EQ(roce_udp_source_port(0x4000, 1), 0xc001);
  // 0x100000 * 1: bit 20 comes to bit 0 of the label.
  EXPECT_EQ(roce_udp_source_port(0x100000, 1), 0xc001);
  // 0x800000 * 0x20000 = bit 40; >>20 sets bit 20, >>40 sets bit 0; the label keeps bit 0.
  EXPECT_EQ(roce_udp_source_port(0x800000, 0x20000), 0xc001);
  // 0x123 * 0x456 = 0x4edc2: label 0x4edc2, low 0x2dc2, high 0x13.
  EXPECT_EQ(roce_udp_source_port(0x123, 0x456), 0xc000 | (0x2dc2 ^ 0x13));
}

TEST(NicRdmaNetlink, ThisKernelAnswersOrSaysWhyNot) {
  RdmaResources resources;
  NodeReadings out;
  resources.read(nic_testing::tick_at(0, true), out);
  if (!resources.why_not().empty()) {
    EXPECT_NE(resources.why_not().find("netlink"), std::string::npos);
    EXPECT_TRUE(out.readings.empty());
    EXPECT_EQ(out.failures, 0) << "a kernel without RDMA is no failure";
  } else {
    EXPECT_EQ(out.failures, 0) << (out.notes.empty() ? "" : out.notes[0]);
  }
}

}  // namespace
}  // namespace lockstep
