#include "fabric/flows/flow_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "fabric/flows/table_observer.h"
#include "model/roce.h"

namespace lockstep {
namespace {

constexpr int64_t kNow = 1'700'000'000'000'000'000;
constexpr int64_t kSecond = 1'000'000'000;

FlowKey key_of(uint32_t queue_pair, uint16_t source_port = 49152, const char* source = "10.0.0.1") {
  FlowKey key;
  key.source = *parse_ip(source);
  key.destination = *parse_ip("10.0.0.2");
  key.source_port = source_port;
  key.destination_port = kRocePort;
  key.protocol = 17;
  key.queue_pair = queue_pair;
  return key;
}
FlowSample sample_of(const FlowKey& key, uint32_t in_port, uint32_t out_port, uint64_t bytes = 1000) {
  FlowSample sample;
  sample.has_key = true;
  sample.key = key;
  sample.in_port = in_port;
  sample.out_port = out_port;
  sample.bytes = bytes;
  sample.packets = 10;
  return sample;
}

struct World {
  SwitchDirectory directory{*parse_switch_names({"10.1.0.1=leaf1", "10.1.0.2=spine1", "10.1.0.3=leaf2"})};
  FlowTable table{directory};
  SwitchNumber number(const char* address) { return directory.find_or_add({*parse_ip(address), 0}, kNow); }
  void add(const char* address, const FlowSample& sample, int64_t unix_ns) {
    table.add(number(address), std::span(&sample, 1), unix_ns);
  }
};

TEST(SwitchDirectory, NamesSwitchesByAddressAndDomain) {
  SwitchDirectory directory(*parse_switch_names({"10.0.0.1=leaf1", "10.0.0.1/7=leaf1b"}));
  auto name = [&](const char* address, uint32_t domain) {
    return directory.switch_name(directory.find_or_add({*parse_ip(address), domain}, kNow));
  };
  EXPECT_EQ(name("10.0.0.1", 0), "leaf1");
  EXPECT_EQ(name("10.0.0.1", 3), "leaf1") << "line cards of one switch";
  EXPECT_EQ(name("10.0.0.1", 7), "leaf1b");
  EXPECT_EQ(name("10.0.0.9", 4), "10.0.0.9");
  for (const char* wrong : {"leaf1", "=leaf1", "10.0.0.1=", "10.0.0=leaf", "10.0.0.1/x=leaf", "10.0.0.1=a\nb"})
    EXPECT_FALSE(parse_switch_names({wrong}).ok()) << wrong;
}

TEST(SwitchDirectory, NamesPortsAsTheSwitchDoesAndTakesNoGarbage) {
  SwitchDirectory directory;
  const SwitchNumber number = directory.find_or_add({*parse_ip("10.0.0.1"), 0}, kNow);
  EXPECT_EQ(directory.port_name(number, 17), "17");
  directory.set_port_name(number, 17, "Ethernet17");
  EXPECT_EQ(directory.port_name(number, 17), "Ethernet17");
  for (const std::string& garbage :
       {std::string("a\nb"), std::string("\xff\xfe"), std::string(1000, 'x'), std::string()}) {
    directory.set_port_name(number, 17, garbage);
    EXPECT_EQ(directory.port_name(number, 17), "Ethernet17");
  }
  EXPECT_EQ(directory.port_name(number, kPortMany), "many");
  EXPECT_EQ(directory.port_name(number, kPortDropped), "dropped");
}

TEST(SwitchDirectory, ForgetsSwitchesThatAreSilentAndGivesNobodyTheirNumber) {
  SwitchDirectory directory;
  const Exporter silent{*parse_ip("10.0.0.1"), 0}, live{*parse_ip("10.0.0.2"), 0};
  const SwitchNumber first = directory.find_or_add(silent, kNow);
  directory.set_port_name(first, 1, "Ethernet1");
  const int64_t later = kNow + SwitchDirectory::kForgetNs + kSecond;
  const SwitchNumber second = directory.find_or_add(live, later);
  directory.forget_silent(later);
  EXPECT_EQ(directory.switch_name(first), "");
  EXPECT_EQ(directory.find("10.0.0.1"), kNoSwitch);
  EXPECT_EQ(directory.find("10.0.0.2"), second);
  const SwitchNumber again = directory.find_or_add(silent, later);
  EXPECT_NE(again, first);
  EXPECT_EQ(directory.port_name(again, 1), "1");
}

TEST(SwitchDirectory, OneSwitchNamesABoundedNumberOfPorts) {
  SwitchDirectory directory;
  const SwitchNumber number = directory.find_or_add({*parse_ip("10.0.0.1"), 0}, kNow);
  for (uint32_t port = 1; port <= SwitchDirectory::kPortsPerSwitchMax + 1; ++port)
    directory.set_port_name(number, port, "x");
  EXPECT_EQ(directory.port_name(number, SwitchDirectory::kPortsPerSwitchMax), "x");
  EXPECT_EQ(directory.port_name(number, SwitchDirectory::kPortsPerSwitchMax + 1), "8193");
}

TEST(FlowTable, SaysWhichPortsAFiveTupleCrossed) {
  World world;
  const FlowKey key = key_of(7);
  world.add("10.1.0.1", sample_of(key, 1, 9), kNow);
  world.add("10.1.0.2", sample_of(key, 3, 4), kNow + 1);
  world.add("10.1.0.3", sample_of(key, 9, 2), kNow + 2);
  world.add("10.1.0.1", sample_of(key_of(8, 50000), 1, 8), kNow + 3);
  world.add("10.1.0.1", sample_of(key, 1, 9, 500), kNow + 4);
  const std::vector<FlowSighting> path = world.table.crossed(key, kNow - kSecond, kNow + kSecond);
  ASSERT_EQ(path.size(), 3u);
  EXPECT_EQ(path[0].switch_name, "leaf1");
  EXPECT_EQ(path[0].in_port, "1");
  EXPECT_EQ(path[0].out_port, "9");
  EXPECT_EQ(path[0].bytes, 1500u);
  EXPECT_EQ(path[0].samples, 2u);
  EXPECT_EQ(path[1].switch_name, "spine1");
  EXPECT_EQ(path[2].switch_name, "leaf2");
  FlowKey any = key;
  any.queue_pair = kNoQueuePair;
  EXPECT_EQ(world.table.crossed(any, 0, INT64_MAX).size(), 3u) << "who knows no queue pair asks for all";
  any.queue_pair = 9;
  EXPECT_TRUE(world.table.crossed(any, 0, INT64_MAX).empty());
  EXPECT_TRUE(world.table.crossed(key, kNow + kSecond, INT64_MAX).empty());
}

TEST(TableObserver, SaysOnWhichPortsAFiveTupleWasSampled) {
  World world;
  const TableObserver observer(world.table);
  world.add("10.1.0.1", sample_of(key_of(7), 1, 9), kNow);
  world.add("10.1.0.1", sample_of(key_of(8), 1, 9), kNow);
  world.add("10.1.0.2", sample_of(key_of(7), 3, kPortDropped), kNow);
  world.add("10.1.0.2", sample_of(key_of(7, 50000), 3, 4), kNow);
  auto ask = [&](uint8_t protocol, uint16_t source_port, uint16_t destination_port) {
    const FlowKey flow{*parse_ip("10.0.0.1"), *parse_ip("10.0.0.2"), source_port, destination_port, protocol};
    std::string text;
    for (const fabric::ObservedPort& port : observer.observed_ports(flow, kNow - kSecond, kNow + kSecond))
      text += port.switch_name + (port.out ? ">" : "<") + port.port + "x" + std::to_string(port.packets) + " ";
    return text;
  };
  EXPECT_EQ(ask(17, 49152, kRocePort), "leaf1<1x2 leaf1>9x2 spine1<3x1 ");
  EXPECT_EQ(ask(17, 0, kRocePort), "leaf1<1x2 leaf1>9x2 spine1<3x2 spine1>4x1 ");
  EXPECT_EQ(ask(6, 0, 0), "");
}

TEST(FlowTable, JoinsWindowsAndForgetsOldOnes) {
  World world;
  for (int minute = 0; minute < 60; ++minute)
    world.add("10.1.0.1", sample_of(key_of(7), 1, 9), kNow + minute * FlowTable::kWindowNs);
  EXPECT_EQ(world.table.rows(), FlowTable::kWindows);
  const FlowTable::Found found = world.table.find({}, 10);
  ASSERT_EQ(found.total, 1u);
  EXPECT_EQ(found.flows[0].bytes, 1000u * FlowTable::kWindows);
  EXPECT_EQ(found.flows[0].last_unix_ns, kNow + 59 * FlowTable::kWindowNs);
}

TEST(FlowTable, FindsByAddressSwitchPortAndTime) {
  World world;
  const SwitchNumber leaf = world.number("10.1.0.1");
  world.directory.set_port_name(leaf, 9, "Ethernet9");
  world.add("10.1.0.1", sample_of(key_of(1, 1, "10.0.0.1"), 1, 9, 100), kNow);
  world.add("10.1.0.1", sample_of(key_of(2, 2, "10.0.3.4"), 2, 9, 900), kNow + kSecond);
  world.add("10.1.0.2", sample_of(key_of(3, 3, "fd00::1"), 3, 4, 500), kNow + 2 * kSecond);
  auto count = [&](const FlowQuery& query) { return world.table.find(query, 100).total; };
  EXPECT_EQ(count({}), 3u);
  EXPECT_EQ(world.table.find({}, 1).flows.size(), 1u);
  EXPECT_EQ(world.table.find({}, 1).flows[0].bytes, 900u) << "largest first";
  EXPECT_EQ(count({.source = parse_ip_prefix("10.0.0.0/24")}), 1u);
  EXPECT_EQ(count({.source = parse_ip_prefix("10.0.0.0/8")}), 2u);
  EXPECT_EQ(count({.destination = parse_ip_prefix("10.0.0.2")}), 3u);
  EXPECT_EQ(count({.switch_name = "spine1"}), 1u);
  EXPECT_EQ(count({.port = "Ethernet9"}), 2u);
  EXPECT_EQ(count({.port = "9"}), 2u);
  EXPECT_EQ(count({.switch_name = "spine1", .port = "Ethernet9"}), 0u);
  EXPECT_EQ(count({.from_unix_ns = kNow + kSecond}), 2u);
  EXPECT_EQ(count({.to_unix_ns = kNow}), 1u);
  EXPECT_EQ(count({.queue_pair = 2}), 1u);
  EXPECT_EQ(count({.either_end = {*parse_ip("10.0.3.4")}}), 1u);
  EXPECT_EQ(count({.either_end = {*parse_ip("10.0.0.2")}}), 3u) << "whoever it is sent to";
}

TEST(FlowTable, AClockThatIsSetBackLeavesNoFuture) {
  World world;
  world.add("10.1.0.1", sample_of(key_of(1), 1, 9), kNow + 3600 * kSecond);
  world.add("10.1.0.1", sample_of(key_of(2), 1, 9), kNow);
  world.add("10.1.0.1", sample_of(key_of(3), 1, 9), kNow + FlowTable::kWindowNs);
  EXPECT_EQ(world.table.find({.to_unix_ns = kNow}, 10).total, 1u);
  EXPECT_EQ(world.table.find({}, 10).total, 2u) << "what was stamped with times to come is gone";
  world.add("10.1.0.1", sample_of(key_of(4), 1, 9), kNow + FlowTable::kWindowNs - 1);
  EXPECT_EQ(world.table.find({}, 10).total, 3u) << "a little out of order is no clock that was set";
}

// Of worth under a sanitizer of threads, or of memory: find() reads all windows but the newest without the lock.
TEST(FlowTable, AClockThatIsSetBackWritesNothingThatIsRead) {
  World world;
  uint16_t source_port = 0;
  auto add_some = [&](int64_t minute, int flows) {
    for (int i = 0; i < flows; ++i)
      world.add("10.1.0.1", sample_of(key_of(7, ++source_port), 1, 9), kNow + minute * FlowTable::kWindowNs);
  };
  add_some(0, 2'000);
  std::atomic<bool> is_over = false;
  std::atomic<int> begun = 0;
  std::thread reader([&] {
    while (!is_over) {
      ++begun;
      begun.notify_one();
      world.table.find({}, 1);
    }
  });
  for (int round = 0; round < 20; ++round) {
    add_some(2, 1);
    // The second of them began after that.
    for (int i = 0, seen = begun; i < 2; ++i, seen = begun) begun.wait(seen);
    add_some(0, 100);
  }
  is_over = true;
  reader.join();
  EXPECT_EQ(world.table.find({}, 1).total, 4'000u);
}

TEST(FlowTable, SumsStayAtTheLargestNumber) {
  World world;
  for (int minute = 0; minute < 2; ++minute)
    for (int i = 0; i < 2; ++i)
      world.add("10.1.0.1", sample_of(key_of(1), 1, 9, UINT64_MAX - 5), kNow + minute * FlowTable::kWindowNs);
  EXPECT_EQ(world.table.find({}, 1).flows.at(0).bytes, UINT64_MAX);
}

TEST(FlowTable, CountsAPacketOnceThatIsSeenOnItsWayInAndOut) {
  World world;
  FlowSample sample = sample_of(key_of(7), 1, 9, 1000);
  sample.seen_at = SeenAt::kIngress;
  world.add("10.1.0.1", sample, kNow);
  sample.seen_at = SeenAt::kEgress;
  sample.bytes = 1100;
  world.add("10.1.0.1", sample, kNow);
  EXPECT_EQ(world.table.find({}, 1).flows.at(0).bytes, 1100u);
}

TEST(FlowTable, BelievesAnExportersTimesWhereTheyCanBe) {
  World world;
  FlowSample sample = sample_of(key_of(7), 1, 9);
  sample.first_unix_ns = kNow - 20 * kSecond;
  sample.last_unix_ns = kNow - 10 * kSecond;
  world.add("10.1.0.1", sample, kNow);
  EXPECT_EQ(world.table.find({}, 1).flows.at(0).first_unix_ns, kNow - 20 * kSecond);
  sample.key.queue_pair = 8;
  sample.first_unix_ns = sample.last_unix_ns = kNow + 3600 * kSecond;
  world.add("10.1.0.1", sample, kNow);
  EXPECT_EQ(world.table.crossed(sample.key, 0, INT64_MAX).at(0).last_unix_ns, kNow);
}

TEST(FlowTable, KeepsTheLargeFlowsWhereThereAreTooMany) {
  World world;
  FlowTable table(world.directory, 1000);
  const SwitchNumber leaf = world.number("10.1.0.1");
  auto add = [&](const FlowSample& sample, int64_t unix_ns) { table.add(leaf, std::span(&sample, 1), unix_ns); };
  // 100 large ones among 20,000, each of them seen now and then.
  for (uint32_t i = 0; i < 20'000; ++i) {
    add(sample_of(key_of(1, static_cast<uint16_t>(1000 + i)), 1, 2, 100), kNow + i);
    add(sample_of(key_of(1, static_cast<uint16_t>(i % 100)), 1, 2, 100'000), kNow + i);
  }
  EXPECT_EQ(table.rows(), 1000u);
  EXPECT_GT(table.replaced(), 15'000u);
  for (uint16_t i = 0; i < 100; ++i) EXPECT_EQ(table.crossed(key_of(1, i), 0, INT64_MAX).size(), 1u) << i;
}

TEST(FlowTable, WhoSendsToEverNewQueuePairsTakesABoundedNumberOfRows) {
  World world;
  world.add("10.1.0.1", sample_of(key_of(0), 1, 2, 1'000'000), kNow);
  for (uint32_t i = 1; i < 20'000; ++i) world.add("10.1.0.1", sample_of(key_of(i), 1, 2, 100), kNow);
  EXPECT_LE(world.table.rows(), FlowTable::kChainMax + 1);
  EXPECT_EQ(world.table.crossed(key_of(0), 0, INT64_MAX).size(), 1u) << "the large one stays";
}

}  // namespace
}  // namespace lockstep
