// What switches and probes report of the network by sFlow, NetFlow v9 and IPFIX, whichever of these it came by: packets
// or flows seen, counters of ports, names of ports.
//
// Bytes and packets of a FlowSample are estimates of what passed: what was seen times the sampling rate at that time.
// Thread rule: Immutable once handed on; the texts are views into the datagram and valid for the call alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "model/ip_address.h"

namespace lockstep {

// Ports are numbered as SNMP does (ifIndex).
inline constexpr uint32_t kPortUnknown = 0;
inline constexpr uint32_t kPortMany = 0xffffffff;     // a packet that went out of several
inline constexpr uint32_t kPortDropped = 0xfffffffe;  // one that went nowhere
inline constexpr uint32_t kNoQueuePair = 0xffffffff;  // numbers have 24 bits
inline bool is_port(uint32_t number) {
  return number != kPortUnknown && number != kPortMany && number != kPortDropped;
}

struct FlowKey {
  IpAddress source, destination;
  uint16_t source_port = 0, destination_port = 0;
  uint8_t protocol = 0;
  uint32_t queue_pair = kNoQueuePair;  // destination's, of RoCEv2

  bool operator==(const FlowKey&) const = default;
};

// Where in the switch it was seen: the same packet may be reported at both.
enum class SeenAt : uint8_t { kUnknown, kIngress, kEgress };

struct FlowSample {
  bool has_key = false;  // else no IP packet, or too little of it
  FlowKey key;
  uint32_t in_port = kPortUnknown, out_port = kPortUnknown;
  std::string_view in_name, out_name;  // empty: not reported here
  SeenAt seen_at = SeenAt::kUnknown;
  uint64_t bytes = 0, packets = 0;  // estimated
  uint32_t sampling_rate = 1;
  uint16_t vlan = 0;
  uint8_t traffic_class = 0;      // of IP: DSCP and, in the last two bits, ECN; 3: marked
  uint8_t roce_opcode = 0;        // with a queue pair alone
  int64_t first_unix_ns = 0;      // 0: when it was received
  int64_t last_unix_ns = 0;       // likewise
  int64_t queue_bytes = -1;       // depth of the queue it left by; -1: not reported
  int64_t transit_delay_ns = -1;  // in the switch; likewise
  int32_t drop_reason = -1;       // of a packet that was dropped (sFlow's list); -1: it was not
  uint32_t source_id = 0;         // what sampled it
  uint32_t dropped_samples = 0;   // by this source for want of resources, since it started

  bool is_marked() const { return (traffic_class & 3) == 3; }
};

// Counters since the switch started. All ones: the switch does not have that counter.
struct PortCounters {
  static constexpr uint32_t kNone32 = 0xffffffff;
  static constexpr uint64_t kNone64 = 0xffffffffffffffff;

  uint32_t port = kPortUnknown;
  std::string_view name;
  bool has_generic = false;  // what follows is set
  uint64_t speed_bits = 0;   // per second
  bool is_up = false;
  uint64_t in_bytes = kNone64, out_bytes = kNone64;
  uint32_t in_packets[3] = {kNone32, kNone32, kNone32},
           out_packets[3] = {kNone32, kNone32, kNone32};  // uni, multi, broad
  uint32_t in_discards = kNone32, out_discards = kNone32;
  uint32_t in_errors = kNone32, out_errors = kNone32;
  bool has_ethernet = false;
  uint32_t fcs_errors = kNone32, symbol_errors = kNone32;
  bool has_buffers = false;
  // Most of its packet buffers that was in use since the report before, in hundredths of a percent.
  uint32_t in_buffer_peak = kNone32, out_buffer_peak = kNone32;
};

struct PortName {
  uint32_t port = kPortUnknown;
  std::string_view name;
};

// Who exports: a switch's address as it says it (sFlow), or as its datagrams show it (IPFIX), and which part of it.
struct Exporter {
  IpAddress address;
  uint32_t domain = 0;  // sub-agent, observation domain, source id

  auto operator<=>(const Exporter&) const = default;
};
struct ExporterHash {
  size_t operator()(const Exporter& exporter) const {
    return std::hash<std::string_view>()({reinterpret_cast<const char*>(exporter.address.bytes.data()), 16}) * 31 +
           exporter.domain;
  }
};

// One datagram. Used again for the next: what it held keeps its room.
struct FlowReport {
  Exporter exporter;
  bool is_restarted = false;  // counters of its ports begin at 0 again (sFlow)
  std::vector<FlowSample> flows;
  std::vector<PortCounters> ports;
  std::vector<PortName> names;
  // What is missing before it, by the exporter's sequence numbers, and one that was missing and comes now.
  uint64_t lost_datagrams = 0, lost_records = 0, late_datagrams = 0;
  uint64_t exporter_drops = 0;         // samples that the exporter could not send
  uint64_t skipped_records = 0;        // of kinds that we do not read
  uint64_t sets_without_template = 0;  // of an unknown number of records
  uint64_t templates_changed = 0;

  void clear() {
    flows.clear();
    ports.clear();
    names.clear();
    exporter = {};
    is_restarted = false;
    lost_datagrams = lost_records = late_datagrams = exporter_drops = 0;
    skipped_records = sets_without_template = templates_changed = 0;
  }
};

class FlowSubscriber {
 public:
  virtual ~FlowSubscriber() = default;
  // From one thread at a time.
  virtual void on_flows(const FlowReport& report, int64_t received_unix_ns) = 0;
};

}  // namespace lockstep
