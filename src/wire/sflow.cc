#include "wire/sflow.h"

#include <algorithm>
#include <cstdlib>

#include "base/text.h"
#include "wire/network_order.h"
#include "wire/sflow_packet.h"

namespace lockstep {
namespace {

enum SampleFormat : uint32_t { kFlow = 1, kCounters = 2, kFlowExpanded = 3, kCountersExpanded = 4, kDiscarded = 5 };
enum FlowRecord : uint32_t {
  kRawHeader = 1,
  kIpv4 = 3,
  kIpv6 = 4,
  kSwitch = 1001,
  kTransitDelay = 1039,
  kQueueDepth = 1040,
};
enum CounterRecord : uint32_t { kGeneric = 1, kEthernet = 2, kPortName = 1005, kBufferPeaks = 4413u << 12 | 2 };
constexpr uint32_t kSourcePort = 0;  // type of a source that is an interface

// format: what the number is. All ones: none, of 30 bits as plain samples have and of 32.
uint32_t port_of(uint32_t format, uint32_t value) {
  if (format == 1) return kPortDropped;
  if (format == 2) return kPortMany;
  return format == 0 && value != 0x3fffffff && value <= 0x7fffffff ? value : kPortUnknown;
}
uint32_t port_of(uint32_t packed) {
  return port_of(packed >> 30, packed & 0x3fffffff);
}

void read_raw_header(NetworkReader record, FlowSample& sample, uint32_t& frame_bytes) {
  const uint32_t protocol = record.u32();
  const uint32_t length = record.u32();
  record.skip(4);  // stripped
  const uint32_t header_bytes_untrusted = record.u32();
  const std::string_view header = record.bytes(std::min<size_t>(header_bytes_untrusted, record.left()));
  if (!record.ok()) return;
  frame_bytes = length;
  constexpr uint32_t kProtocolEthernet = 1, kProtocolIpv4 = 11, kProtocolIpv6 = 12;
  if (protocol == kProtocolEthernet) read_ethernet_packet(header, sample);
  if (protocol == kProtocolIpv4 || protocol == kProtocolIpv6) read_ip_packet(header, sample);
}

// The packet as fields: from switches that do not send its header.
void read_ip_fields(NetworkReader record, bool is_v4, FlowSample& sample, uint32_t& frame_bytes) {
  const uint32_t length = record.u32();
  const uint32_t protocol = record.u32();
  const std::string_view source = record.bytes(is_v4 ? 4 : 16), destination = record.bytes(is_v4 ? 4 : 16);
  const uint32_t source_port = record.u32(), destination_port = record.u32();
  record.skip(4);  // TCP flags
  const uint32_t traffic_class = record.u32();
  if (!record.ok() || sample.has_key) return;
  sample.has_key = true;
  sample.key.protocol = static_cast<uint8_t>(protocol);
  sample.key.source = is_v4 ? ip_of_v4(source.data()) : ip_of_v6(source.data());
  sample.key.destination = is_v4 ? ip_of_v4(destination.data()) : ip_of_v6(destination.data());
  sample.key.source_port = static_cast<uint16_t>(source_port);
  sample.key.destination_port = static_cast<uint16_t>(destination_port);
  sample.traffic_class = static_cast<uint8_t>(traffic_class);
  if (frame_bytes == 0) frame_bytes = length;
}

bool read_flow_records(NetworkReader& bytes, FlowSample& sample, uint32_t& frame_bytes, uint64_t& skipped) {
  for (uint32_t left = bytes.u32(); left > 0 && bytes.ok(); --left) {
    const uint32_t format = bytes.u32();
    const uint32_t length_untrusted = bytes.u32();
    NetworkReader record(bytes.bytes(length_untrusted));
    if (!bytes.ok()) return false;
    switch (format) {
      case kRawHeader:
        read_raw_header(record, sample, frame_bytes);
        break;
      case kIpv4:
        read_ip_fields(record, true, sample, frame_bytes);
        break;
      case kIpv6:
        read_ip_fields(record, false, sample, frame_bytes);
        break;
      case kSwitch:
        if (const uint32_t vlan = record.u32(); record.ok()) sample.vlan = vlan & 0xfff;
        break;
      case kTransitDelay:
        if (const uint32_t delay_ns = record.u32(); record.ok() && delay_ns != UINT32_MAX)
          sample.transit_delay_ns = delay_ns;
        break;
      case kQueueDepth:
        if (const uint32_t depth = record.u32(); record.ok()) sample.queue_bytes = depth;
        break;
      default:
        ++skipped;
    }
  }
  return bytes.ok();
}

struct SampleSource {
  uint32_t type = 0, index = 0;
};
SampleSource read_source(NetworkReader& bytes, bool is_expanded) {
  const uint32_t first = bytes.u32();
  if (is_expanded) return {first, bytes.u32()};
  return {first >> 24, first & 0xffffff};
}

bool read_flow_sample(NetworkReader bytes, bool is_expanded, FlowReport& report) {
  FlowSample sample;
  bytes.skip(4);  // sequence of the source
  const SampleSource source = read_source(bytes, is_expanded);
  sample.source_id = source.type << 24 ^ source.index;
  const uint32_t rate = bytes.u32();
  bytes.skip(4);  // pool
  sample.dropped_samples = bytes.u32();
  if (is_expanded) {
    const uint32_t in_format = bytes.u32(), in = bytes.u32(), out_format = bytes.u32(), out = bytes.u32();
    sample.in_port = port_of(in_format, in);
    sample.out_port = port_of(out_format, out);
  } else {
    sample.in_port = port_of(bytes.u32());
    sample.out_port = port_of(bytes.u32());
  }
  uint32_t frame_bytes = 0;
  if (!read_flow_records(bytes, sample, frame_bytes, report.skipped_records)) return false;
  if (frame_bytes == 0 || frame_bytes > SflowDecoder::kFrameBytesMax) {
    ++report.skipped_records;  // says nothing of a packet
    return true;
  }
  if (source.type == kSourcePort && source.index == sample.in_port) sample.seen_at = SeenAt::kIngress;
  if (source.type == kSourcePort && source.index == sample.out_port) sample.seen_at = SeenAt::kEgress;
  sample.sampling_rate = std::max(1u, rate);
  sample.packets = sample.sampling_rate;
  sample.bytes = static_cast<uint64_t>(frame_bytes) * sample.sampling_rate;
  report.flows.push_back(sample);
  return true;
}

// Every dropped packet is told by itself, not one of many.
bool read_discarded(NetworkReader bytes, FlowReport& report) {
  FlowSample sample;
  bytes.skip(4);  // sequence of the source
  const SampleSource source = read_source(bytes, true);
  sample.source_id = source.type << 24 ^ source.index ^ 0x80000000;
  sample.dropped_samples = bytes.u32();
  sample.in_port = port_of(0, bytes.u32());
  sample.out_port = port_of(0, bytes.u32());
  sample.drop_reason = static_cast<int32_t>(bytes.u32() & 0x7fffffff);
  uint32_t frame_bytes = 0;
  if (!read_flow_records(bytes, sample, frame_bytes, report.skipped_records)) return false;
  sample.packets = 1;
  sample.bytes = std::min(frame_bytes, SflowDecoder::kFrameBytesMax);
  report.flows.push_back(sample);
  return true;
}

void read_generic(NetworkReader record, PortCounters& port) {
  const uint32_t number = record.u32();
  record.skip(4);  // type
  const uint64_t speed_bits = record.u64();
  record.skip(4);  // direction
  const uint32_t status = record.u32();
  PortCounters read = port;
  read.in_bytes = record.u64();
  for (uint32_t& packets : read.in_packets) packets = record.u32();
  read.in_discards = record.u32();
  read.in_errors = record.u32();
  record.skip(4);  // of unknown protocols
  read.out_bytes = record.u64();
  for (uint32_t& packets : read.out_packets) packets = record.u32();
  read.out_discards = record.u32();
  read.out_errors = record.u32();
  if (!record.ok()) return;
  read.port = number;
  read.speed_bits = speed_bits;
  read.is_up = (status & 2) != 0;  // bit 0: what it is meant to be
  read.has_generic = true;
  port = read;
}

void read_ethernet(NetworkReader record, PortCounters& port) {
  record.skip(4);
  const uint32_t fcs_errors = record.u32();
  record.skip(40);
  const uint32_t symbol_errors = record.u32();
  if (!record.ok()) return;
  port.fcs_errors = fcs_errors;
  port.symbol_errors = symbol_errors;
  port.has_ethernet = true;
}

void read_buffer_peaks(NetworkReader record, PortCounters& port) {
  constexpr uint32_t kAll = 10'000;
  // Unicast and multicast by themselves; all ones: not known.
  auto larger = [&] {
    uint32_t peak = PortCounters::kNone32;
    for (int i = 0; i < 2; ++i) {
      const uint32_t one = record.u32();
      if (one != PortCounters::kNone32) peak = std::max(peak == PortCounters::kNone32 ? 0 : peak, std::min(one, kAll));
    }
    return peak;
  };
  const uint32_t in = larger(), out = larger();
  if (!record.ok()) return;
  port.in_buffer_peak = in;
  port.out_buffer_peak = out;
  port.has_buffers = true;
}

bool read_counter_sample(NetworkReader bytes, bool is_expanded, FlowReport& report) {
  PortCounters port;
  bytes.skip(4);  // sequence of the source
  const SampleSource source = read_source(bytes, is_expanded);
  if (source.type == kSourcePort) port.port = source.index;
  for (uint32_t left = bytes.u32(); left > 0 && bytes.ok(); --left) {
    const uint32_t format = bytes.u32();
    const uint32_t length_untrusted = bytes.u32();
    NetworkReader record(bytes.bytes(length_untrusted));
    if (!bytes.ok()) return false;
    if (format == kGeneric) {
      read_generic(record, port);
    } else if (format == kEthernet) {
      read_ethernet(record, port);
    } else if (format == kBufferPeaks) {
      read_buffer_peaks(record, port);
    } else if (format == kPortName) {
      const uint32_t name_bytes_untrusted = record.u32();
      port.name = record.bytes(name_bytes_untrusted);
    } else {
      ++report.skipped_records;
    }
  }
  if (!bytes.ok()) return false;
  if (is_port(port.port) && (port.has_generic || port.has_ethernet || port.has_buffers)) report.ports.push_back(port);
  return true;
}

bool read_sample(uint32_t format, NetworkReader sample, FlowReport& report) {
  switch (format) {
    case kFlow:
      return read_flow_sample(sample, false, report);
    case kFlowExpanded:
      return read_flow_sample(sample, true, report);
    case kCounters:
      return read_counter_sample(sample, false, report);
    case kCountersExpanded:
      return read_counter_sample(sample, true, report);
    case kDiscarded:
      return read_discarded(sample, report);
    default:
      ++report.skipped_records;
      return true;
  }
}

Error malformed(FlowReport& report, const char* what) {
  report.clear();
  return Error{format("sFlow: %s", what)};
}

}  // namespace

SequenceGaps::Seen SequenceGaps::next(uint32_t sequence) {
  const auto ahead = static_cast<int64_t>(static_cast<int32_t>(sequence - expected_));
  Seen seen;
  if (is_known_ && ahead < 0 && ahead >= -kLateMax) {
    seen.is_late = true;
    return seen;
  }
  if (is_known_ && ahead > 0 && ahead <= kJumpMax) seen.lost = static_cast<uint64_t>(ahead);
  is_known_ = true;
  expected_ = sequence + 1;
  return seen;
}

bool SflowDecoder::make_room(int64_t now_ns) {
  if (agents_.size() < kAgentsMax) return true;
  std::erase_if(agents_, [&](const auto& agent) { return now_ns - agent.second.heard_ns > kForgetNs; });
  return agents_.size() < kAgentsMax;
}

bool SflowDecoder::has_restarted(const Agent& agent, uint32_t uptime_ms, int64_t now_ns) {
  // Datagrams wait in queues, and overtake each other, for less than this.
  constexpr uint64_t kSlackMs = 5'000;
  const auto silent_ms = static_cast<uint64_t>(std::max<int64_t>(0, now_ns - agent.heard_ns) / 1'000'000);
  const auto expected_ms = static_cast<uint32_t>(agent.uptime_ms + silent_ms);
  const auto behind_ms = static_cast<int32_t>(expected_ms - uptime_ms);
  const bool is_as_expected = std::abs(static_cast<int64_t>(behind_ms)) <= static_cast<int64_t>(kSlackMs);
  return !is_as_expected && uptime_ms <= silent_ms + kSlackMs;
}

Result<void> SflowDecoder::decode(std::string_view datagram, int64_t now_ns, FlowReport& report) {
  report.clear();
  NetworkReader bytes(datagram);
  const uint32_t version = bytes.u32();
  if (!bytes.ok() || version != 5) return malformed(report, "not version 5");
  const uint32_t kind = bytes.u32();
  if (kind != 1 && kind != 2) return malformed(report, "the agent's address is neither IPv4 nor IPv6");
  const std::string_view address = bytes.bytes(kind == 1 ? 4 : 16);
  report.exporter.domain = bytes.u32();
  const uint32_t sequence = bytes.u32(), uptime_ms = bytes.u32();
  const uint32_t samples_untrusted = bytes.u32();
  if (!bytes.ok()) return malformed(report, "the header is cut off");
  report.exporter.address = kind == 1 ? ip_of_v4(address.data()) : ip_of_v6(address.data());
  if (samples_untrusted > kSamplesMax) return malformed(report, "more samples than a datagram holds");
  for (uint32_t i = 0; i < samples_untrusted; ++i) {
    const uint32_t format = bytes.u32();
    const uint32_t length_untrusted = bytes.u32();
    const std::string_view sample = bytes.bytes(length_untrusted);
    if (!bytes.ok()) return malformed(report, "a sample is cut off");
    if (!read_sample(format, NetworkReader(sample), report))
      return malformed(report, "a record of a sample is cut off");
  }

  auto agent = agents_.find(report.exporter);
  if (agent == agents_.end()) {
    if (!make_room(now_ns)) {
      report.clear();
      return Error{format("sFlow: more than %zu agents", kAgentsMax), ErrorCode::kTooLarge};
    }
    agent = agents_.try_emplace(report.exporter).first;
    agent->second.uptime_ms = uptime_ms;
    agent->second.heard_ns = now_ns;
  }
  Agent& state = agent->second;
  report.is_restarted = has_restarted(state, uptime_ms, now_ns);
  if (report.is_restarted) {
    state.datagrams.restart();
    state.drops.clear();
  }
  const SequenceGaps::Seen seen = state.datagrams.next(sequence);
  report.lost_datagrams = seen.lost;
  report.late_datagrams = seen.is_late ? 1 : 0;
  if (!seen.is_late) {
    state.uptime_ms = uptime_ms;
    state.heard_ns = now_ns;
  }
  for (const FlowSample& sample : report.flows) {
    auto known = state.drops.find(sample.source_id);
    if (known == state.drops.end()) {
      if (state.drops.size() < kSourcesMax) state.drops.emplace(sample.source_id, sample.dropped_samples);
      continue;
    }
    const auto more = static_cast<int32_t>(sample.dropped_samples - known->second);
    if (more > 0) report.exporter_drops += static_cast<uint64_t>(more);
    if (more > 0) known->second = sample.dropped_samples;
  }
  return {};
}

}  // namespace lockstep
