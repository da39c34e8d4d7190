#include "sources/nic/lldp.h"

#include <gtest/gtest.h>

#include "sources/nic/testing.h"

namespace lockstep {
namespace {

using nic_testing::tick_at;
using nic_testing::Tree;

void element(std::string& frame, int type, const std::string& value) {
  frame += static_cast<char>(type << 1 | static_cast<int>(value.size() >> 8));
  frame += static_cast<char>(value.size() & 0xff);
  frame += value;
}

std::string start() {
  std::string frame = "\x01\x80\xc2";
  frame += std::string("\x00\x00\x0e", 3);
  frame += "\x02\x11\x22\x33\x44\x55";
  frame += "\x88\xcc";
  return frame;
}

std::string switch_frame(const std::string& port_id =
                             "\x05"
                             "Ethernet12") {
  std::string frame = start();
  element(frame, 1, std::string("\x04\x0c\x42\xa1\x00\x11\x22", 7));
  element(frame, 2, port_id);
  element(frame, 3, std::string("\x00\x78", 2));
  element(frame, 4, "to node 17");
  element(frame, 5, "leaf-3");
  element(frame, 127, std::string("\x00\x80\xc2\x01\x00\x01", 6));
  element(frame, 0, "");
  return frame;
}

Bytes bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

TEST(NicLldp, NamesTheSwitchAndItsPort) {
  Result<LldpNeighbour> neighbour = parse_lldp_frame(bytes(switch_frame()));
  ASSERT_TRUE(neighbour) << neighbour.error();
  EXPECT_EQ(neighbour->leaf(), "leaf-3");
  EXPECT_EQ(neighbour->leaf_port(), "Ethernet12");
  EXPECT_EQ(neighbour->chassis_id, "0c:42:a1:00:11:22");
  EXPECT_EQ(neighbour->ttl_seconds, 120);
}

TEST(NicLldp, TakesTheDescriptionWhereThePortIsOnlyAnAddress) {
  Result<LldpNeighbour> neighbour =
      parse_lldp_frame(bytes(switch_frame(std::string("\x03\x0c\x42\xa1\x00\x11\x23", 7))));
  ASSERT_TRUE(neighbour);
  EXPECT_EQ(neighbour->leaf_port(), "to node 17");
  EXPECT_EQ(neighbour->port_id, "0c:42:a1:00:11:23");
}

TEST(NicLldp, ReadsAFrameWithAVlanTag) {
  std::string frame = switch_frame();
  frame.insert(12, std::string("\x81\x00\x00\x64", 4));
  EXPECT_TRUE(parse_lldp_frame(bytes(frame)));
}

TEST(NicLldp, MakesTextPlain) {
  std::string frame = start();
  element(frame, 1, "\x07leaf\n\x1b[31m");
  element(frame, 2, "\x07p");
  element(frame, 3, std::string("\x00\x78", 2));
  Result<LldpNeighbour> neighbour = parse_lldp_frame(bytes(frame));
  ASSERT_TRUE(neighbour) << neighbour.error();
  EXPECT_EQ(neighbour->leaf(), "leaf??[31m");
}

TEST(NicLldp, RefusesWhatIsCutOffOrNotLldp) {
  std::string whole = switch_frame();
  size_t refused = 0;
  for (size_t size = 0; size < whole.size(); ++size) refused += !parse_lldp_frame(bytes(whole.substr(0, size)));
  EXPECT_GT(refused, 40u);
  EXPECT_FALSE(parse_lldp_frame(bytes("")));
  std::string other = whole;
  other[12] = 8;
  EXPECT_FALSE(parse_lldp_frame(bytes(other)));
  std::string no_port = start();
  element(no_port, 1, "\x07leaf");
  element(no_port, 3, std::string("\x00\x78", 2));
  EXPECT_FALSE(parse_lldp_frame(bytes(no_port)));
}

TEST(NicLldp, ReadsRecordedFrames) {
  Tree tree;
  tree.write("/run/lockstep-recorded/lldp/eth2", switch_frame());
  tree.write("/run/lockstep-recorded/lldp/eth3", "not a frame");
  std::vector<Netdevs::Netdev> netdevs(2);
  netdevs[0].name = "eth2";
  netdevs[1].name = "eth3";
  NicContext context(tree.root());
  LldpListener listener(context);
  NodeReadings out;
  listener.read(tick_at(0, true), netdevs, out);
  ASSERT_TRUE(listener.neighbour("eth2"));
  EXPECT_EQ(listener.neighbour("eth2")->leaf(), "leaf-3");
  EXPECT_FALSE(listener.neighbour("eth3"));
  EXPECT_EQ(out.failures, 1);
  EXPECT_EQ(out.notes.size(), 1u);
}

}  // namespace
}  // namespace lockstep
