#include "sources/nic/ethtool_netlink.h"

#include <linux/netlink.h>
#include <string.h>

namespace lockstep {

namespace {

// The kernel's numbers (linux/genetlink.h, ethtool_netlink.h, dcbnl.h). They never change; a build machine's headers
// may be older than they.
struct GenericHeader {
  uint8_t command;
  uint8_t version;
  uint16_t reserved;
};
constexpr uint16_t kControlFamily = 16;
constexpr uint8_t kGetFamily = 3;
constexpr uint16_t kFamilyId = 1;
constexpr uint16_t kFamilyName = 2;

constexpr uint8_t kPauseGet = 21;
constexpr uint8_t kFecGet = 29;
constexpr uint8_t kStatsGet = 32;
constexpr uint16_t kHeaderDeviceName = 2;
constexpr uint16_t kHeaderFlags = 3;
constexpr uint32_t kFlagStatistics = 1 << 2;
constexpr uint16_t kPauseHeader = 1;
constexpr uint16_t kPauseStatistics = 5;
constexpr uint16_t kPauseSent = 2;
constexpr uint16_t kPauseReceived = 3;
constexpr uint16_t kFecHeader = 1;
constexpr uint16_t kFecStatistics = 5;
constexpr uint16_t kFecCorrected = 2;
constexpr uint16_t kFecUncorrectable = 3;
constexpr uint16_t kFecCorrectedBits = 4;
constexpr uint16_t kStatsHeader = 2;
constexpr uint16_t kStatsGroups = 3;
constexpr uint16_t kStatsGroup = 4;
constexpr uint16_t kGroupId = 2;
constexpr uint16_t kGroupStatistic = 4;
constexpr uint32_t kGroupPhy = 0;
constexpr uint32_t kGroupMac = 1;
constexpr uint16_t kPhySymbolErrors = 0;
constexpr uint16_t kMacChecksumErrors = 4;
constexpr uint16_t kBitsetNoMask = 1;
constexpr uint16_t kBitsetSize = 2;
constexpr uint16_t kBitsetValue = 4;

constexpr int kProtocolRoute = 0;
constexpr int kProtocolGeneric = 16;
constexpr uint16_t kGetDcb = 78;
struct DcbHeader {
  uint8_t family;
  uint8_t command;
  uint16_t padding;
};
constexpr uint8_t kIeeeGet = 21;
constexpr uint16_t kDcbName = 1;
constexpr uint16_t kDcbIeee = 13;
constexpr uint16_t kDcbIeeePfc = 2;
struct DcbPfc {  // struct ieee_pfc
  uint8_t capability;
  uint8_t enabled;
  uint8_t bypass;
  uint16_t delay;
  uint64_t sent[8];
  uint64_t received[8];
};
static_assert(sizeof(DcbPfc) == 136);

Bytes after_header(Bytes payload, size_t header) {
  return payload.size() < header ? Bytes() : payload.subspan(header);
}

// An array of 64-bit numbers, the first of which is the sum over lanes.
std::optional<uint64_t> first_u64(Bytes data) {
  if (data.size() < sizeof(uint64_t)) return std::nullopt;
  uint64_t value;
  memcpy(&value, data.data(), sizeof value);
  return value;
}

}  // namespace

std::optional<uint16_t> parse_family_id(Bytes payload) {
  NetlinkAttributes attributes(after_header(payload, sizeof(GenericHeader)));
  NetlinkAttribute attribute;
  while (attributes.next(attribute)) {
    if (attribute.type == kFamilyId) return attribute.u16();
  }
  return std::nullopt;
}

PauseStatistics parse_pause(Bytes payload) {
  PauseStatistics statistics;
  NetlinkAttributes attributes(after_header(payload, sizeof(GenericHeader)));
  NetlinkAttribute attribute;
  while (attributes.next(attribute)) {
    if (attribute.type != kPauseStatistics) continue;
    NetlinkAttributes inside(attribute.data);
    NetlinkAttribute one;
    while (inside.next(one)) {
      if (one.type == kPauseSent) statistics.sent = one.u64();
      if (one.type == kPauseReceived) statistics.received = one.u64();
    }
  }
  return statistics;
}

FecStatistics parse_fec(Bytes payload) {
  FecStatistics statistics;
  NetlinkAttributes attributes(after_header(payload, sizeof(GenericHeader)));
  NetlinkAttribute attribute;
  while (attributes.next(attribute)) {
    if (attribute.type != kFecStatistics) continue;
    NetlinkAttributes inside(attribute.data);
    NetlinkAttribute one;
    while (inside.next(one)) {
      if (one.type == kFecCorrected) statistics.corrected_blocks = first_u64(one.data);
      if (one.type == kFecUncorrectable) statistics.uncorrectable_blocks = first_u64(one.data);
      if (one.type == kFecCorrectedBits) statistics.corrected_bits = first_u64(one.data);
    }
  }
  return statistics;
}

StandardStatistics parse_standard(Bytes payload) {
  StandardStatistics statistics;
  NetlinkAttributes groups(after_header(payload, sizeof(GenericHeader)));
  NetlinkAttribute group;
  while (groups.next(group)) {
    if (group.type != kStatsGroup) continue;
    std::optional<uint32_t> id;
    NetlinkAttributes inside(group.data);
    NetlinkAttribute one;
    while (inside.next(one)) {
      if (one.type == kGroupId) id = one.u32();
      if (one.type != kGroupStatistic || !id) continue;
      NetlinkAttributes values(one.data);
      NetlinkAttribute value;
      while (values.next(value)) {
        if (*id == kGroupMac && value.type == kMacChecksumErrors) statistics.checksum_errors = value.u64();
        if (*id == kGroupPhy && value.type == kPhySymbolErrors) statistics.symbol_errors = value.u64();
      }
    }
  }
  return statistics;
}

std::optional<PfcStatistics> parse_pfc(Bytes payload) {
  NetlinkAttributes attributes(after_header(payload, sizeof(DcbHeader)));
  NetlinkAttribute attribute;
  while (attributes.next(attribute)) {
    if (attribute.type != kDcbIeee) continue;
    NetlinkAttributes inside(attribute.data);
    NetlinkAttribute one;
    while (inside.next(one)) {
      if (one.type != kDcbIeeePfc || one.data.size() < sizeof(DcbPfc)) continue;
      DcbPfc raw;
      memcpy(&raw, one.data.data(), sizeof raw);
      PfcStatistics statistics;
      statistics.enabled = raw.enabled;
      for (size_t i = 0; i < 8; ++i) {
        statistics.sent[i] = raw.sent[i];
        statistics.received[i] = raw.received[i];
      }
      return statistics;
    }
  }
  return std::nullopt;
}

EthtoolNetlink::EthtoolNetlink() {
  if (Result<NetlinkSocket> socket = NetlinkSocket::open(kProtocolRoute)) route_ = std::move(*socket);
  Result<NetlinkSocket> socket = NetlinkSocket::open(kProtocolGeneric);
  if (!socket) return;
  generic_ = std::move(*socket);
  NetlinkPayload request;
  GenericHeader header{kGetFamily, 1, 0};
  request.append(&header, sizeof header);
  request.attribute_text(kFamilyName, "ethtool");
  (void)generic_->ask(kControlFamily, false, request.bytes(), [&](const NetlinkMessage& message) {
    if (message.type == kControlFamily) family_ = parse_family_id(message.payload);
  });
}

template <typename T>
T EthtoolNetlink::ask(uint8_t command, uint16_t header_attribute, const std::string& netdev, const NetlinkPayload& more,
                      T (*parse)(Bytes)) {
  T answer{};
  if (!family_) return answer;
  NetlinkPayload device;
  device.attribute_text(kHeaderDeviceName, netdev);
  // What consists of statistics alone refuses the flag that asks for them.
  if (command != kStatsGet) device.attribute_u32(kHeaderFlags, kFlagStatistics);
  NetlinkPayload request;
  GenericHeader header{command, 1, 0};
  request.append(&header, sizeof header);
  request.nested(header_attribute, device);
  request.append(more.bytes().data(), more.bytes().size());
  const NetlinkError error = generic_->ask(*family_, false, request.bytes(), [&](const NetlinkMessage& message) {
    if (message.type == *family_) answer = parse(message.payload);
  });
  last_error_ = error.error;
  return answer;
}

PauseStatistics EthtoolNetlink::pause(const std::string& netdev) {
  return ask(kPauseGet, kPauseHeader, netdev, {}, parse_pause);
}

FecStatistics EthtoolNetlink::fec(const std::string& netdev) {
  return ask(kFecGet, kFecHeader, netdev, {}, parse_fec);
}

StandardStatistics EthtoolNetlink::standard(const std::string& netdev) {
  NetlinkPayload bits;
  bits.attribute(kBitsetNoMask, nullptr, 0);
  bits.attribute_u32(kBitsetSize, 2);
  bits.attribute_u32(kBitsetValue, 1u << kGroupPhy | 1u << kGroupMac);
  NetlinkPayload groups;
  groups.nested(kStatsGroups, bits);
  return ask(kStatsGet, kStatsHeader, netdev, groups, parse_standard);
}

std::optional<PfcStatistics> EthtoolNetlink::pfc(const std::string& netdev) {
  std::optional<PfcStatistics> answer;
  if (!route_) return answer;
  NetlinkPayload request;
  DcbHeader header{0, kIeeeGet, 0};
  request.append(&header, sizeof header);
  request.attribute_text(kDcbName, netdev);
  const NetlinkError error = route_->ask(kGetDcb, false, request.bytes(), [&](const NetlinkMessage& message) {
    if (message.type == kGetDcb) answer = parse_pfc(message.payload);
  });
  last_error_ = error.error;
  return answer;
}

}  // namespace lockstep
