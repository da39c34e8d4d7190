#include "wire/sflow.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>

#include "model/roce.h"
#include "wire/sflow_packet.h"
#include "wire/sflow_testing.h"

namespace lockstep {
namespace {

using namespace lockstep::test;

constexpr int64_t kNow = 1'000'000'000'000;

struct Decoded : FlowReport {
  std::shared_ptr<const std::string> bytes;  // that its names are views of
  std::string error;
};
Decoded decode(SflowDecoder& decoder, const std::string& datagram, int64_t now_ns = kNow) {
  Decoded report;
  report.bytes = std::make_shared<const std::string>(datagram);
  const Result<void> done = decoder.decode(*report.bytes, now_ns, report);
  if (!done.ok()) report.error = done.error();
  return report;
}
Decoded decode(const std::string& datagram) {
  SflowDecoder decoder;
  return decode(decoder, datagram);
}

TEST(SflowPacket, ReadsTheQueuePairOfRoce) {
  FlowSample sample;
  read_ethernet_packet(roce_packet(0xabcdef, 3, kRoceCnp), sample);
  ASSERT_TRUE(sample.has_key);
  EXPECT_EQ(to_text(sample.key.source), "10.0.0.1");
  EXPECT_EQ(to_text(sample.key.destination), "10.0.0.2");
  EXPECT_EQ(sample.key.source_port, 49152);
  EXPECT_EQ(sample.key.destination_port, kRocePort);
  EXPECT_EQ(sample.key.protocol, 17);
  EXPECT_EQ(sample.key.queue_pair, 0xabcdefu);
  EXPECT_EQ(sample.roce_opcode, kRoceCnp);
  EXPECT_EQ(sample.vlan, 0x64);
  EXPECT_TRUE(sample.is_marked());
}

TEST(SflowPacket, ReadsAsFarAsTheHeaderGoes) {
  const std::string packet = roce_packet(5);
  for (size_t bytes = 0; bytes <= packet.size(); ++bytes) {
    FlowSample sample;
    read_ethernet_packet(packet.substr(0, bytes), sample);
    EXPECT_EQ(sample.has_key, bytes >= 18 + 20) << bytes;
    EXPECT_EQ(sample.key.destination_port, bytes >= 18 + 24 ? kRocePort : 0) << bytes;
    EXPECT_EQ(sample.key.queue_pair, bytes >= 18 + 28 + 8 ? 5 : kNoQueuePair) << bytes;
  }
}

TEST(SflowPacket, ReadsIpv6BehindItsExtensions) {
  NetworkBytes packet;
  packet.text(std::string(12, '\1')).u16(0x86dd).u32(0x60300000).u16(100).u8(0).u8(64);
  packet.text(std::string(15, '\0')).u8(1).text(std::string(15, '\0')).u8(2);
  packet.u8(44).u8(0).text(std::string(6, '\0'));        // hop by hop
  packet.u8(6).u8(0).u16(1).u32(9);                      // first fragment
  packet.u16(1234).u16(80).text(std::string(16, '\0'));  // TCP
  FlowSample sample;
  read_ethernet_packet(packet.bytes(), sample);
  EXPECT_TRUE(sample.has_key);
  EXPECT_EQ(to_text(sample.key.destination), "::2");
  EXPECT_EQ(sample.key.protocol, 6);
  EXPECT_EQ(sample.key.destination_port, 80);
  EXPECT_TRUE(sample.is_marked());
}

TEST(SflowPacket, TakesNoPortsFromTheMiddleOfAFragmentedPacket) {
  std::string packet = roce_packet(5);
  packet[18 + 7] = 1;  // fragment offset
  FlowSample sample;
  read_ethernet_packet(packet, sample);
  EXPECT_TRUE(sample.has_key);
  EXPECT_EQ(sample.key.destination_port, 0);
  EXPECT_EQ(sample.key.queue_pair, kNoQueuePair);
}

TEST(Sflow, EstimatesBytesByTheRateOfEverySample) {
  const Decoded report = decode(sflow_datagram(
      1, {flow_sample({.rate = 1000, .records = {raw_header(roce_packet(7))}}),
          expanded_flow_sample({.rate = 4000, .in = 0x40000001, .out = 9, .records = {raw_header(roce_packet(8))}})}));
  EXPECT_EQ(report.error, "");
  EXPECT_EQ(to_text(report.exporter.address), "10.0.0.254");
  ASSERT_EQ(report.flows.size(), 2u);
  EXPECT_EQ(report.flows[0].bytes, 1'118'000u);
  EXPECT_EQ(report.flows[0].packets, 1000u);
  EXPECT_EQ(report.flows[0].in_port, 17u);
  EXPECT_EQ(report.flows[0].out_port, 18u);
  EXPECT_EQ(report.flows[0].seen_at, SeenAt::kIngress);
  EXPECT_EQ(report.flows[0].key.queue_pair, 7u);
  EXPECT_EQ(report.flows[1].bytes, 4'472'000u);
  EXPECT_EQ(report.flows[1].in_port, 0x40000001u) << "an expanded number has its format beside it";
}

TEST(Sflow, KnowsPacketsThatWentNowhereOrToMany) {
  const Decoded report =
      decode(sflow_datagram(1, {flow_sample({.out = 0x40000000 | 256, .records = {raw_header(roce_packet(7))}}),
                                flow_sample({.out = 0x80000002, .records = {raw_header(roce_packet(7))}})}));
  ASSERT_EQ(report.flows.size(), 2u);
  EXPECT_EQ(report.flows[0].out_port, kPortDropped);
  EXPECT_EQ(report.flows[1].out_port, kPortMany);
}

TEST(Sflow, ReadsQueueDepthTransitDelayAndVlan) {
  const std::string more =
      record(1001, NetworkBytes().words({100, 3, 200, 4}).bytes()) + record(1036, NetworkBytes().u32(3).bytes()) +
      record(1039, NetworkBytes().u32(12'345).bytes()) + record(1040, NetworkBytes().u32(1'500'000).bytes());
  std::string sample =
      NetworkBytes().words({1, 17, 10, 5000, 0, 17, 18, 5}).bytes() + more + raw_header(roce_packet(7));
  const Decoded report = decode(sflow_datagram(1, {record(1, sample)}));
  ASSERT_EQ(report.flows.size(), 1u);
  EXPECT_EQ(report.flows[0].queue_bytes, 1'500'000);
  EXPECT_EQ(report.flows[0].transit_delay_ns, 12'345);
  EXPECT_EQ(report.flows[0].vlan, 0x64) << "the packet's own tag";
  EXPECT_EQ(report.skipped_records, 1u) << "which queue it was";
}

TEST(Sflow, ReadsFieldsWhereASwitchSendsNoHeader) {
  const std::string fields = NetworkBytes().words({1500, 6, 0x0a000001, 0x0a000002, 1000, 2000, 0, 3}).bytes();
  const Decoded report = decode(sflow_datagram(1, {flow_sample({.rate = 2, .records = {record(3, fields)}})}));
  ASSERT_EQ(report.flows.size(), 1u);
  EXPECT_EQ(report.flows[0].bytes, 3000u);
  EXPECT_EQ(report.flows[0].key.source_port, 1000);
  EXPECT_TRUE(report.flows[0].is_marked());
}

TEST(Sflow, ReadsCountersOfAPort) {
  const std::string ethernet = NetworkBytes().words({0, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12}).bytes();
  const Decoded report = decode(sflow_datagram(
      1, {counter_sample(17, {record(2, ethernet), port_name("Ethernet17"), generic_counters(17, 1ull << 40, 99)}),
          counter_sample(0x20003e8, {record(2203, std::string(40, 'x'))})}));
  EXPECT_EQ(report.error, "");
  ASSERT_EQ(report.ports.size(), 1u);
  const PortCounters& port = report.ports[0];
  EXPECT_EQ(port.port, 17u);
  EXPECT_EQ(port.name, "Ethernet17");
  EXPECT_TRUE(port.is_up);
  EXPECT_EQ(port.speed_bits, 400'000'000'000u);
  EXPECT_EQ(port.in_bytes, 1ull << 40);
  EXPECT_EQ(port.out_bytes, 99u);
  EXPECT_EQ(port.in_packets[0], 1000u);
  EXPECT_EQ(port.in_packets[2], 30u);
  EXPECT_EQ(port.in_discards, 3u);
  EXPECT_EQ(port.in_errors, 4u);
  EXPECT_EQ(port.out_discards, 5u);
  EXPECT_EQ(port.out_errors, 6u);
  EXPECT_EQ(port.fcs_errors, 11u);
  EXPECT_EQ(port.symbol_errors, 12u);
  EXPECT_EQ(report.skipped_records, 1u);
}

TEST(Sflow, ReadsPeaksOfAPortsBuffers) {
  auto peaks = [](std::initializer_list<uint32_t> values) {
    return decode(
        sflow_datagram(1, {counter_sample(17, {record(4413u << 12 | 2, NetworkBytes().words(values).bytes())})}));
  };
  const Decoded report = peaks({150, 0, 0xffffffff, 9'000, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0});
  ASSERT_EQ(report.ports.size(), 1u);
  EXPECT_EQ(report.ports[0].port, 17u);
  EXPECT_EQ(report.ports[0].in_buffer_peak, 150u);
  EXPECT_EQ(report.ports[0].out_buffer_peak, 9'000u) << "the larger of unicast and multicast that is known";
  EXPECT_EQ(peaks({0xffffffff, 0xffffffff, 4'000'000'000, 0}).ports.at(0).in_buffer_peak, PortCounters::kNone32);
  EXPECT_EQ(peaks({0, 0, 4'000'000'000, 0}).ports.at(0).out_buffer_peak, 10'000u) << "no more than all of it";
  EXPECT_TRUE(peaks({1, 2, 3}).ports.empty()) << "cut off";
}

TEST(Sflow, ReadsPacketsThatWereDropped) {
  const std::string sample = NetworkBytes().words({1, 0, 17, 0, 17, 0, 260, 1}).bytes() + raw_header(roce_packet(7));
  const Decoded report = decode(sflow_datagram(1, {record(5, sample)}));
  ASSERT_EQ(report.flows.size(), 1u);
  EXPECT_EQ(report.flows[0].drop_reason, 260);
  EXPECT_EQ(report.flows[0].packets, 1u);
  EXPECT_EQ(report.flows[0].in_port, 17u);
}

TEST(Sflow, CountsLostDatagramsOfEverySubAgentByItself) {
  SflowDecoder decoder;
  auto send = [&](uint32_t sequence, uint32_t sub_agent) {
    return decode(decoder, sflow_datagram(sequence, {}, 60'000, 0x0a0000fe, sub_agent));
  };
  EXPECT_EQ(send(100, 0).lost_datagrams, 0u);
  EXPECT_EQ(send(7, 1).lost_datagrams, 0u);
  EXPECT_EQ(send(101, 0).lost_datagrams, 0u);
  EXPECT_EQ(send(105, 0).lost_datagrams, 3u);
  const Decoded late = send(103, 0);
  EXPECT_EQ(late.lost_datagrams, 0u);
  EXPECT_EQ(late.late_datagrams, 1u);
  EXPECT_EQ(send(106, 0).lost_datagrams, 0u);
  EXPECT_EQ(send(8, 1).lost_datagrams, 0u);
  EXPECT_EQ(decoder.agents(), 2u);
}

TEST(Sflow, TakesSequenceNumbersAroundTheirEnd) {
  SflowDecoder decoder;
  decode(decoder, sflow_datagram(0xfffffffe, {}));
  EXPECT_EQ(decode(decoder, sflow_datagram(1, {})).lost_datagrams, 2u);
}

TEST(Sflow, ARestartOfTheSwitchIsNoLoss) {
  SflowDecoder decoder;
  decode(decoder, sflow_datagram(5000, {}, 100'000'000));
  const Decoded report = decode(decoder, sflow_datagram(1, {}, 1000));
  EXPECT_TRUE(report.is_restarted);
  EXPECT_EQ(report.lost_datagrams, 0u);
  EXPECT_EQ(decode(decoder, sflow_datagram(2, {}, 2000)).is_restarted, false);
}

TEST(Sflow, AnUptimeThatGoesAroundIsNoRestart) {
  SflowDecoder decoder;
  constexpr int64_t kSecond = 1'000'000'000;
  decode(decoder, sflow_datagram(1, {}, UINT32_MAX - 9'999), kNow);
  EXPECT_FALSE(decode(decoder, sflow_datagram(2, {}, 10'000), kNow + 20 * kSecond).is_restarted);
  EXPECT_FALSE(decode(decoder, sflow_datagram(3, {}, 12'000), kNow + 22 * kSecond).is_restarted);
}

TEST(Sflow, SeesARestartBehindALongSilence) {
  SflowDecoder decoder;
  constexpr int64_t kSecond = 1'000'000'000;
  decode(decoder, sflow_datagram(1, {}, 60'000), kNow);
  EXPECT_TRUE(decode(decoder, sflow_datagram(1, {}, 300'000), kNow + 600 * kSecond).is_restarted)
      << "up for longer than before, but not for as long as it was silent";
  EXPECT_FALSE(decode(decoder, sflow_datagram(2, {}, 900'000), kNow + 1200 * kSecond).is_restarted);
}

TEST(Sflow, CountsSamplesThatTheSwitchCouldNotSend) {
  SflowDecoder decoder;
  auto send = [&](uint32_t sequence, uint32_t drops, uint32_t source) {
    return decode(decoder,
                  sflow_datagram(
                      sequence,
                      {flow_sample({.drops = drops, .source = source, .records = {raw_header(roce_packet(1))}})}))
        .exporter_drops;
  };
  EXPECT_EQ(send(1, 50, 17), 0u);
  EXPECT_EQ(send(2, 50, 17), 0u);
  EXPECT_EQ(send(3, 57, 17), 7u);
  EXPECT_EQ(send(4, 1000, 18), 0u);
}

TEST(Sflow, RefusesWhatIsCutOffAnywhere) {
  const std::string whole =
      sflow_datagram(1, {flow_sample({.records = {raw_header(roce_packet(7))}}),
                         counter_sample(17, {generic_counters(17, 1, 2), port_name("Ethernet17")})});
  ASSERT_EQ(decode(whole).error, "");
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    const Decoded report = decode(whole.substr(0, bytes));
    EXPECT_NE(report.error, "") << bytes;
    EXPECT_TRUE(report.flows.empty() && report.ports.empty()) << bytes;
  }
}

TEST(Sflow, BelievesNoLengthAndNoCount) {
  EXPECT_NE(decode(NetworkBytes().words({5, 1, 1, 0, 1, 1, 0xffffffff}).bytes()).error, "");
  EXPECT_NE(decode(NetworkBytes().words({5, 1, 1, 0, 1, 1, 1, 1, 0xffffffff}).bytes()).error, "");
  // So many records, none of them there.
  EXPECT_NE(
      decode(sflow_datagram(1, {record(1, NetworkBytes().words({1, 17, 1, 1, 0, 1, 2, 0xffffffff}).bytes())})).error,
      "");
  // A header longer than its record, a frame longer than any: the sample says nothing.
  const std::string liar = record(1, NetworkBytes().words({1, 1500, 0, 0xffffffff}).bytes());
  const Decoded report = decode(sflow_datagram(
      1, {flow_sample({.records = {liar}}), flow_sample({.records = {raw_header(roce_packet(7), 0xfffffff0)}})}));
  EXPECT_EQ(report.error, "");
  ASSERT_EQ(report.flows.size(), 1u);
  EXPECT_FALSE(report.flows[0].has_key);
  EXPECT_NE(decode(std::string(2000, '\xff')).error, "");
  EXPECT_NE(decode("").error, "");
}

TEST(Sflow, HoldsABoundedNumberOfAgents) {
  SflowDecoder decoder;
  for (uint32_t i = 0; i < SflowDecoder::kAgentsMax; ++i) decode(decoder, sflow_datagram(1, {}, 1, i));
  FlowReport report;
  const Result<void> refused = decoder.decode(sflow_datagram(1, {}, 1, 0xffffff), kNow, report);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.code(), ErrorCode::kTooLarge);
  EXPECT_EQ(decode(decoder, sflow_datagram(1, {}, 1, 0xffffff), kNow + SflowDecoder::kForgetNs + 1).error, "");
  EXPECT_EQ(decoder.agents(), 1u);
}

TEST(Sflow, ReadsOpenVswitch) {
  SflowDecoder decoder;
  uint64_t lost = 0, flows = 0, data_bytes = 0, roce = 0;
  std::map<uint32_t, std::string> names;
  std::set<uint32_t> queue_pairs;
  for (const std::string& datagram : captured(LOCKSTEP_TEST_DATA "/flows/ovs.sflow")) {
    const Decoded report = decode(decoder, datagram);
    ASSERT_EQ(report.error, "");
    EXPECT_EQ(to_text(report.exporter.address), "127.0.0.1");
    lost += report.lost_datagrams;
    for (const PortCounters& port : report.ports) names[port.port] = port.name;
    for (const FlowSample& flow : report.flows) {
      ++flows;
      EXPECT_EQ(flow.sampling_rate, 4u);
      if (!flow.has_key) continue;
      if (flow.key.destination_port == 5001) {
        EXPECT_EQ(to_text(flow.key.source), "10.9.0.1");
        EXPECT_EQ(flow.in_port, 4u);
        EXPECT_EQ(flow.out_port, 5u);
        data_bytes += flow.bytes;
      }
      if (flow.key.destination_port == kRocePort) {
        ++roce;
        queue_pairs.insert(flow.key.queue_pair);
      }
    }
  }
  EXPECT_EQ(names, (std::map<uint32_t, std::string>{{3, "leaf1"}, {4, "h1"}, {5, "h2"}}));
  EXPECT_EQ(lost, 54u);
  EXPECT_GT(flows, 40u);
  EXPECT_GT(data_bytes, 100'000u);
  EXPECT_GT(roce, 5u);
  EXPECT_EQ(queue_pairs, std::set<uint32_t>{0x1234});
}

}  // namespace
}  // namespace lockstep
