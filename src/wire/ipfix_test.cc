#include "wire/ipfix.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "model/roce.h"
#include "wire/sflow_testing.h"

namespace lockstep {
namespace {

using namespace lockstep::test;

constexpr int64_t kNow = 1'000'000'000'000;
constexpr uint32_t kExportSeconds = 1'700'000'000;

std::string set(uint16_t id, const std::string& body) {
  return NetworkBytes().u16(id).u16(body.size() + 4).text(body).bytes();
}
std::string ipfix(uint32_t sequence, const std::string& sets, uint32_t domain = 7) {
  return NetworkBytes().u16(10).u16(16 + sets.size()).u32(kExportSeconds).u32(sequence).u32(domain).text(sets).bytes();
}
std::string netflow9(uint32_t sequence, const std::string& sets, uint32_t uptime_ms = 500'000) {
  return NetworkBytes().u16(9).u16(1).u32(uptime_ms).u32(kExportSeconds).u32(sequence).u32(7).text(sets).bytes();
}
struct FieldText {
  uint16_t element, length;
  uint32_t enterprise = 0;
};
std::string layout(uint16_t id, const std::vector<FieldText>& fields, int scopes = -1) {
  NetworkBytes bytes;
  bytes.u16(id).u16(fields.size());
  if (scopes >= 0) bytes.u16(static_cast<uint64_t>(scopes));
  for (const FieldText& field : fields) {
    bytes.u16(field.element | (field.enterprise != 0 ? 0x8000 : 0)).u16(field.length);
    if (field.enterprise != 0) bytes.u32(field.enterprise);
  }
  return bytes.bytes();
}
// Addresses, ports, protocol, interfaces, bytes, packets.
const std::vector<FieldText> kPlain = {{8, 4}, {12, 4}, {7, 2}, {11, 2}, {4, 1}, {10, 4}, {14, 4}, {1, 8}, {2, 4}};
std::string plain_record(uint64_t bytes, uint32_t packets, uint16_t source_port = 1000) {
  return NetworkBytes()
      .u32(0x0a000001)
      .u32(0x0a000002)
      .u16(source_port)
      .u16(80)
      .u8(6)
      .u32(17)
      .u32(18)
      .u64(bytes)
      .u32(packets)
      .bytes();
}

struct World {
  IpfixDecoder decoder;
  FlowReport report;
  IpAddress from = *parse_ip("10.0.0.254");
  int64_t now_ns = kNow;
  std::string sent;  // that names of the report are views of

  // Empty: taken.
  std::string send(std::string datagram) {
    sent = std::move(datagram);
    const Result<void> done = decoder.decode(from, sent, now_ns, report);
    return done.ok() ? "" : done.error();
  }
};

TEST(Ipfix, ReadsRecordsByTheirTemplate) {
  World world;
  ASSERT_EQ(
      world.send(ipfix(0, set(2, layout(300, kPlain)) + set(300, plain_record(5000, 10) + plain_record(7, 1, 2000)))),
      "");
  ASSERT_EQ(world.report.flows.size(), 2u);
  const FlowSample& flow = world.report.flows[0];
  EXPECT_EQ(to_text(flow.key.source), "10.0.0.1");
  EXPECT_EQ(to_text(flow.key.destination), "10.0.0.2");
  EXPECT_EQ(flow.key.source_port, 1000);
  EXPECT_EQ(flow.key.destination_port, 80);
  EXPECT_EQ(flow.key.protocol, 6);
  EXPECT_EQ(flow.in_port, 17u);
  EXPECT_EQ(flow.out_port, 18u);
  EXPECT_EQ(flow.bytes, 5000u);
  EXPECT_EQ(flow.packets, 10u);
  EXPECT_EQ(world.report.exporter.domain, 7u);
}

TEST(Ipfix, TemplatesBelongToOneExporterAndDomain) {
  World world;
  world.send(ipfix(0, set(2, layout(300, kPlain))));
  EXPECT_EQ(world.send(ipfix(0, set(300, plain_record(1, 1)), 8)), "");
  EXPECT_EQ(world.report.sets_without_template, 1u);
  EXPECT_TRUE(world.report.flows.empty());
  world.from = *parse_ip("10.0.0.253");
  world.send(ipfix(0, set(300, plain_record(1, 1))));
  EXPECT_EQ(world.report.sets_without_template, 1u);
  world.from = *parse_ip("10.0.0.254");
  world.send(ipfix(0, set(300, plain_record(1, 1))));
  EXPECT_EQ(world.report.flows.size(), 1u);
}

TEST(Ipfix, ATemplateThatChangesReplacesTheOneBefore) {
  World world;
  world.send(ipfix(0, set(2, layout(300, kPlain))));
  world.send(ipfix(0, set(2, layout(300, {{8, 4}, {1, 4}}))));
  EXPECT_EQ(world.report.templates_changed, 1u);
  EXPECT_EQ(world.decoder.templates(), 1u);
  world.send(ipfix(0, set(300, NetworkBytes().u32(0x0a000009).u32(42).bytes())));
  ASSERT_EQ(world.report.flows.size(), 1u);
  EXPECT_EQ(world.report.flows[0].bytes, 42u);
  EXPECT_EQ(to_text(world.report.flows[0].key.source), "10.0.0.9");
  world.send(ipfix(1, set(2, layout(300, {{8, 4}, {1, 4}}))));
  EXPECT_EQ(world.report.templates_changed, 0u) << "the same again";
}

TEST(Ipfix, WithdrawsOneTemplateAndAllOfAKind) {
  World world;
  world.send(ipfix(0, set(2, layout(300, kPlain) + layout(301, kPlain) + layout(302, kPlain)) +
                          set(3, layout(400, {{149, 4}, {34, 4}}, 1))));
  EXPECT_EQ(world.decoder.templates(), 4u);
  world.send(ipfix(0, set(2, NetworkBytes().u16(301).u16(0).bytes())));
  EXPECT_EQ(world.decoder.templates(), 3u);
  world.send(ipfix(0, set(301, plain_record(1, 1))));
  EXPECT_EQ(world.report.sets_without_template, 1u);
  world.send(ipfix(0, set(2, NetworkBytes().u16(2).u16(0).bytes())));
  EXPECT_EQ(world.decoder.templates(), 1u) << "the options template stays";
}

TEST(Ipfix, ForgetsATemplateThatIsNotRepeated) {
  World world;
  world.send(ipfix(0, set(2, layout(300, kPlain))));
  world.now_ns += IpfixDecoder::kTemplateNs + 1;
  world.send(ipfix(0, set(300, plain_record(1, 1))));
  EXPECT_EQ(world.report.sets_without_template, 1u);
  EXPECT_EQ(world.decoder.templates(), 0u);
}

TEST(Ipfix, SkipsFieldsOfEnterprisesAndOfVariableLength) {
  World world;
  const std::string record = NetworkBytes()
                                 .u8(5)
                                 .text("hello")
                                 .u32(0xdeadbeef)
                                 .u32(17)
                                 .u8(3)
                                 .text("et1")
                                 .u32(18)
                                 .u8(255)
                                 .u16(300)
                                 .text(std::string(300, 'x'))
                                 .u64(99)
                                 .u32(0x0a000001)
                                 .bytes();
  ASSERT_EQ(
      world.send(ipfix(
          0,
          set(2,
              layout(300,
                     {{892, 65535, 6876}, {1, 4, 6876}, {10, 4}, {82, 65535}, {14, 4}, {82, 65535}, {1, 8}, {8, 4}})) +
              set(300, record))),
      "");
  ASSERT_EQ(world.report.flows.size(), 1u);
  EXPECT_EQ(world.report.flows[0].bytes, 99u) << "field 1 of an enterprise is not ours";
  EXPECT_EQ(world.report.flows[0].in_name, "et1");
  EXPECT_EQ(world.report.flows[0].out_name, std::string(300, 'x'));
}

TEST(Ipfix, BothDirectionsOfAFlowAreTwoFlows) {
  World world;
  const std::string record =
      NetworkBytes().u32(0x0a000001).u32(0x0a000002).u32(17).u32(18).u32(100).u32(5).u32(900).u32(9).bytes();
  world.send(
      ipfix(0, set(2, layout(300, {{8, 4}, {12, 4}, {10, 4}, {14, 4}, {1, 4}, {2, 4}, {1, 4, 29305}, {2, 4, 29305}})) +
                   set(300, record)));
  ASSERT_EQ(world.report.flows.size(), 2u);
  EXPECT_EQ(world.report.flows[1].key.source, world.report.flows[0].key.destination);
  EXPECT_EQ(world.report.flows[1].in_port, 18u);
  EXPECT_EQ(world.report.flows[1].bytes, 900u);
  EXPECT_EQ(world.report.flows[1].packets, 9u);
}

TEST(Ipfix, ScalesByTheSamplingRateInForce) {
  World world;
  auto rate = [](uint32_t interval) { return set(400, NetworkBytes().u32(7).u32(1).u32(interval - 1).bytes()); };
  world.send(
      ipfix(0, set(2, layout(300, kPlain)) + set(3, layout(400, {{149, 4}, {305, 4}, {306, 4}}, 1)) + rate(1000)));
  world.send(ipfix(1, set(300, plain_record(10, 1))));
  EXPECT_EQ(world.report.flows.at(0).bytes, 10'000u);
  EXPECT_EQ(world.report.flows.at(0).packets, 1000u);
  EXPECT_EQ(world.report.flows.at(0).sampling_rate, 1000u);
  world.send(ipfix(2, rate(50)));
  world.send(ipfix(3, set(300, plain_record(10, 1))));
  EXPECT_EQ(world.report.flows.at(0).bytes, 500u);
}

TEST(Ipfix, EverySamplerHasItsOwnRate) {
  World world;
  const std::string samplers = NetworkBytes().u32(7).u16(1).u32(10).u32(7).u16(2).u32(100).bytes();
  std::vector<FieldText> fields = kPlain;
  fields.push_back({302, 2});
  world.send(ipfix(
      0, set(2, layout(300, fields)) + set(3, layout(400, {{149, 4}, {302, 2}, {34, 4}}, 1)) + set(400, samplers)));
  world.send(
      ipfix(2, set(300, plain_record(5, 1) + NetworkBytes().u16(1).bytes() + plain_record(5, 1) +
                            NetworkBytes().u16(2).bytes() + plain_record(5, 1) + NetworkBytes().u16(3).bytes())));
  ASSERT_EQ(world.report.flows.size(), 3u);
  EXPECT_EQ(world.report.flows[0].bytes, 50u);
  EXPECT_EQ(world.report.flows[1].bytes, 500u);
  EXPECT_EQ(world.report.flows[2].bytes, 5u) << "of this one nothing is known";
}

TEST(Ipfix, ReadsSampledPackets) {
  World world;
  const std::string packet = roce_packet(0x77, 3);
  world.send(
      ipfix(0, set(2, layout(300, {{10, 4}, {312, 2}, {305, 4}, {306, 4}, {315, 65535}})) +
                   set(300, NetworkBytes().u32(17).u16(1118).u32(1).u32(99).u8(packet.size()).text(packet).bytes())));
  ASSERT_EQ(world.report.flows.size(), 1u);
  EXPECT_EQ(world.report.flows[0].key.queue_pair, 0x77u);
  EXPECT_EQ(world.report.flows[0].bytes, 111'800u);
  EXPECT_EQ(world.report.flows[0].packets, 100u);
  EXPECT_TRUE(world.report.flows[0].is_marked());
}

TEST(Ipfix, NamesPortsFromOptions) {
  World world;
  world.send(ipfix(0, set(3, layout(400, {{10, 4}, {82, 8}}, 1)) + set(400, NetworkBytes()
                                                                                .u32(17)
                                                                                .text(std::string("et-0/0/1", 8))
                                                                                .u32(18)
                                                                                .text(std::string("et2\0\0\0\0\0", 8))
                                                                                .bytes())));
  ASSERT_EQ(world.report.names.size(), 2u);
  EXPECT_EQ(world.report.names[0].port, 17u);
  EXPECT_EQ(world.report.names[0].name, "et-0/0/1");
  EXPECT_EQ(world.report.names[1].name, "et2");
}

TEST(Ipfix, CountsLostRecords) {
  World world;
  world.send(ipfix(100, set(2, layout(300, kPlain)) + set(300, plain_record(1, 1) + plain_record(2, 2))));
  world.send(ipfix(102, set(300, plain_record(1, 1))));
  EXPECT_EQ(world.report.lost_records, 0u);
  world.send(ipfix(113, set(300, plain_record(1, 1))));
  EXPECT_EQ(world.report.lost_records, 10u);
  world.send(ipfix(103, set(300, plain_record(1, 1))));
  EXPECT_EQ(world.report.late_datagrams, 1u);
  world.send(ipfix(114, set(300, plain_record(1, 1))));
  EXPECT_EQ(world.report.lost_records, 0u);
}

TEST(Ipfix, AnExporterThatCountsAnewHasNotRestartedItsPorts) {
  World world;
  world.send(ipfix(100'000, set(2, layout(300, kPlain)) + set(300, plain_record(1, 1))));
  world.send(ipfix(1, set(300, plain_record(1, 1))));
  EXPECT_EQ(world.report.lost_records, 0u);
  EXPECT_FALSE(world.report.is_restarted) << "its process may have; counters of ports are the switch's";
}

TEST(Ipfix, LearnsThatAnExporterNumbersByTheEndOfAMessage) {
  World world;
  uint32_t sequence = 0;
  uint64_t lost = 0;
  for (int i = 0; i < 20; ++i) {
    std::string records;
    const int count = 1 + i * 7 % 5;
    for (int j = 0; j < count; ++j) records += plain_record(1, 1);
    sequence += static_cast<uint32_t>(count);
    world.send(ipfix(sequence, set(2, layout(300, kPlain)) + set(300, records)));
    if (i > 1) lost += world.report.lost_records;
  }
  EXPECT_EQ(lost, 0u);
}

TEST(Netflow9, ReadsTemplatesOptionsAndTimes) {
  World world;
  std::vector<FieldText> fields = kPlain;
  fields.push_back({22, 4});
  fields.push_back({21, 4});
  const std::string options = NetworkBytes().u16(256).u16(4).u16(8).u16(1).u16(4).u16(34).u16(4).u16(35).u16(1).bytes();
  const std::string record = plain_record(10, 1) + NetworkBytes().u32(400'000).u32(450'000).bytes();
  ASSERT_EQ(
      world.send(netflow9(1, set(0, layout(300, fields)) + set(1, options) +
                                 set(256, NetworkBytes().u32(0).u32(64).u8(1).text(std::string(3, '\0')).bytes()) +
                                 set(300, record))),
      "");
  ASSERT_EQ(world.report.flows.size(), 1u);
  EXPECT_EQ(world.report.flows[0].bytes, 640u);
  EXPECT_EQ(world.report.flows[0].last_unix_ns, (kExportSeconds - 50) * 1'000'000'000ll);
  EXPECT_EQ(world.report.flows[0].first_unix_ns, (kExportSeconds - 100) * 1'000'000'000ll);
  world.send(netflow9(5, set(300, record)));
  EXPECT_EQ(world.report.lost_datagrams, 3u);
}

TEST(Ipfix, RefusesWhatIsCutOffAnywhere) {
  const std::string whole =
      ipfix(0, set(2, layout(300, kPlain)) + set(3, layout(400, {{10, 4}, {82, 65535}}, 1)) +
                   set(300, plain_record(1, 1)) + set(400, NetworkBytes().u32(1).u8(3).text("et1").bytes()));
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    World world;
    EXPECT_NE(world.send(whole.substr(0, bytes)), "") << bytes;
    EXPECT_TRUE(world.report.flows.empty());
  }
  // A length inside that says more than there is.
  for (size_t at = 16; at + 1 < whole.size(); ++at) {
    World world;
    std::string changed = whole;
    changed[at] = '\xff';
    world.send(changed);
    EXPECT_LE(world.report.flows.size(), 2u);
  }
}

TEST(Ipfix, RefusesHostileTemplates) {
  for (const std::string& sets : {set(2, layout(300, {{8, 0}, {12, 0}})), set(2, layout(5, kPlain)),
                                  set(2, NetworkBytes().u16(300).u16(65535).bytes()),
                                  set(2, NetworkBytes().u16(300).u16(200).u16(8).u16(4).bytes()),
                                  set(3, NetworkBytes().u16(300).u16(9).bytes())}) {
    World world;
    EXPECT_NE(world.send(ipfix(0, sets)), "");
    EXPECT_EQ(world.decoder.templates(), 0u);
  }
  World world;
  EXPECT_NE(world.send(ipfix(0, NetworkBytes().u16(300).u16(3).u32(0).bytes())), "") << "a set shorter than its header";
  EXPECT_NE(world.send(std::string(1400, '\xff')), "");
  // Fields without a byte cost nothing, however many there are.
  std::vector<FieldText> empty(200, FieldText{8, 0});
  empty.push_back({1, 4});
  EXPECT_EQ(world.send(ipfix(0, set(2, layout(301, empty)) + set(301, NetworkBytes().u32(77).bytes()))), "");
  ASSERT_EQ(world.report.flows.size(), 1u);
  EXPECT_EQ(world.report.flows[0].bytes, 77u);
  // Records of one byte: more than a datagram honestly holds.
  world.send(ipfix(0, set(2, layout(300, {{4, 1}}))));
  EXPECT_NE(world.send(ipfix(0, set(300, std::string(60'000, 'x')))), "");
  EXPECT_TRUE(world.report.flows.empty());
}

TEST(Ipfix, HoldsABoundedNumberOfTemplatesAndDomains) {
  World world;
  for (uint32_t id = 256; id < 256 + IpfixDecoder::kTemplatesMax + 100; ++id)
    world.send(ipfix(0, set(2, layout(static_cast<uint16_t>(id), kPlain))));
  EXPECT_EQ(world.decoder.templates(), IpfixDecoder::kTemplatesMax);
  EXPECT_EQ(world.report.skipped_records, 1u);
  for (uint32_t domain = 8; world.decoder.domains() < IpfixDecoder::kDomainsMax; ++domain)
    world.send(ipfix(0, set(2, layout(300, kPlain)), domain));
  const Result<void> refused = world.decoder.decode(world.from, ipfix(0, "", 1'000'000), world.now_ns, world.report);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.code(), ErrorCode::kTooLarge);
  world.now_ns += IpfixDecoder::kForgetNs + 1;
  EXPECT_EQ(world.send(ipfix(0, "", 1'000'000)), "");
  EXPECT_EQ(world.decoder.domains(), 1u);
  EXPECT_EQ(world.decoder.templates(), 0u);
}

TEST(Ipfix, ReadsOpenVswitch) {
  World world;
  uint64_t lost = 0, late = 0, without = 0, flows = 0;
  std::set<std::string> ports;
  for (const std::string& datagram : captured(LOCKSTEP_TEST_DATA "/flows/ovs.ipfix")) {
    ASSERT_EQ(world.send(datagram), "");
    lost += world.report.lost_records;
    late += world.report.late_datagrams;
    without += world.report.sets_without_template;
    for (const FlowSample& flow : world.report.flows) {
      ++flows;
      if (flow.key.destination_port != 5001) continue;
      EXPECT_EQ(flow.packets, 4u) << "it scales by its rate itself";
      EXPECT_NE(flow.seen_at, SeenAt::kUnknown);
      ports.insert(std::string(flow.in_name) + ">" + std::string(flow.out_name));
    }
  }
  EXPECT_EQ(world.decoder.templates(), 89u);
  EXPECT_EQ(lost, 0u);
  EXPECT_EQ(late, 0u);
  EXPECT_EQ(without, 0u);
  EXPECT_GT(flows, 20u);
  EXPECT_EQ(ports, (std::set<std::string>{"h1>", "h1>h2"}));
}

TEST(Ipfix, ReadsSoftflowd) {
  for (const char* file : {"/flows/softflowd.netflow9", "/flows/softflowd.ipfix"}) {
    World world;
    uint64_t lost = 0, tcp_bytes = 0, roce_packets = 0;
    for (const std::string& datagram : captured(std::string(LOCKSTEP_TEST_DATA) + file)) {
      ASSERT_EQ(world.send(datagram), "") << file;
      lost += world.report.lost_records + world.report.lost_datagrams;
      for (const FlowSample& flow : world.report.flows) {
        EXPECT_EQ(flow.sampling_rate, 4u) << file;
        EXPECT_GT(flow.last_unix_ns, 1'600'000'000'000'000'000) << file;
        if (flow.key.destination_port == 5001) tcp_bytes += flow.bytes;
        if (flow.key.destination_port == kRocePort) roce_packets += flow.packets;
      }
    }
    EXPECT_EQ(lost, 0u) << file;
    EXPECT_NEAR(static_cast<double>(tcp_bytes), 2e6, 5e5) << file;
    EXPECT_NEAR(static_cast<double>(roce_packets), 200, 60) << file;
  }
}

}  // namespace
}  // namespace lockstep
