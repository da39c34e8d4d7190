#include "wire/sflow_packet.h"

#include "model/roce.h"
#include "wire/network_order.h"

namespace lockstep {
namespace {

constexpr uint16_t kEtherIpv4 = 0x0800, kEtherIpv6 = 0x86dd;
constexpr uint8_t kTcp = 6, kUdp = 17, kSctp = 132;
constexpr int kTagsMax = 4, kMplsLabelsMax = 8, kExtensionsMax = 8;

void read_transport(NetworkReader bytes, FlowSample& sample) {
  const uint8_t protocol = sample.key.protocol;
  if (protocol != kTcp && protocol != kUdp && protocol != kSctp) return;
  const uint16_t source = bytes.u16(), destination = bytes.u16();
  if (!bytes.ok()) return;
  sample.key.source_port = source;
  sample.key.destination_port = destination;
  if (protocol != kUdp || destination != kRocePort) return;
  bytes.skip(4);  // length, checksum
  const uint8_t opcode = bytes.u8();
  bytes.skip(3);  // flags, partition
  const uint32_t queue_pair = bytes.u32() & 0xffffff;
  if (!bytes.ok()) return;
  sample.roce_opcode = opcode;
  sample.key.queue_pair = queue_pair;
}

void read_ipv4(std::string_view packet, FlowSample& sample) {
  NetworkReader bytes(packet);
  const size_t header_bytes = 4 * static_cast<size_t>(bytes.u8() & 15);
  const uint8_t traffic_class = bytes.u8();
  bytes.skip(4);
  const uint16_t fragment = bytes.u16() & 0x1fff;
  bytes.skip(1);
  const uint8_t protocol = bytes.u8();
  bytes.skip(2);
  const std::string_view source = bytes.bytes(4), destination = bytes.bytes(4);
  if (!bytes.ok() || header_bytes < 20) return;
  sample.has_key = true;
  sample.traffic_class = traffic_class;
  sample.key.protocol = protocol;
  sample.key.source = ip_of_v4(source.data());
  sample.key.destination = ip_of_v4(destination.data());
  if (fragment == 0 && header_bytes <= packet.size())
    read_transport(NetworkReader(packet.substr(header_bytes)), sample);
}

void read_ipv6(std::string_view packet, FlowSample& sample) {
  NetworkReader bytes(packet);
  const uint32_t first = bytes.u32();
  bytes.skip(2);
  uint8_t next = bytes.u8();
  bytes.skip(1);
  const std::string_view source = bytes.bytes(16), destination = bytes.bytes(16);
  if (!bytes.ok()) return;
  sample.has_key = true;
  sample.traffic_class = static_cast<uint8_t>(first >> 20);
  sample.key.source = ip_of_v6(source.data());
  sample.key.destination = ip_of_v6(destination.data());
  for (int i = 0; i < kExtensionsMax; ++i) {
    constexpr uint8_t kHopByHop = 0, kRouting = 43, kFragment = 44, kOptions = 60;
    if (next != kHopByHop && next != kRouting && next != kFragment && next != kOptions) break;
    const uint8_t behind = bytes.u8();
    const uint8_t length = bytes.u8();
    if (next == kFragment) {
      const uint16_t offset = bytes.u16() & 0xfff8;
      bytes.skip(4);
      if (offset != 0) {  // what follows is the middle of something
        if (bytes.ok()) sample.key.protocol = behind;
        return;
      }
    } else {
      bytes.skip(8 * static_cast<size_t>(length) + 6);
    }
    if (!bytes.ok()) return;
    next = behind;
  }
  sample.key.protocol = next;
  read_transport(bytes, sample);
}

}  // namespace

void read_ip_packet(std::string_view bytes, FlowSample& sample) {
  if (bytes.empty()) return;
  const int version = static_cast<uint8_t>(bytes[0]) >> 4;
  if (version == 4) read_ipv4(bytes, sample);
  if (version == 6) read_ipv6(bytes, sample);
}

void read_ethernet_packet(std::string_view packet, FlowSample& sample) {
  NetworkReader bytes(packet);
  bytes.skip(12);
  uint16_t type = bytes.u16();
  for (int i = 0; i < kTagsMax && (type == 0x8100 || type == 0x88a8 || type == 0x9100); ++i) {
    const uint16_t tag = bytes.u16();
    if (i == 0) sample.vlan = tag & 0xfff;
    type = bytes.u16();
  }
  if (type == 0x8847 || type == 0x8848) {
    bool is_bottom = false;
    for (int i = 0; i < kMplsLabelsMax && !is_bottom; ++i) is_bottom = (bytes.u32() >> 8 & 1) != 0;
    if (is_bottom && bytes.ok()) read_ip_packet(bytes.bytes(bytes.left()), sample);
    return;
  }
  if (!bytes.ok() || (type != kEtherIpv4 && type != kEtherIpv6)) return;
  read_ip_packet(bytes.bytes(bytes.left()), sample);
}

}  // namespace lockstep
