#include "wire/ipfix.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/text.h"
#include "wire/network_order.h"
#include "wire/sflow_packet.h"

namespace lockstep {
namespace {

constexpr uint16_t kVariable = 65535;
constexpr uint16_t kNetflow9 = 9, kIpfix = 10;
constexpr uint16_t kFirstDataSet = 256;
constexpr uint32_t kReverse = 29305;  // enterprise number of the other direction (RFC 5103)

// What a field means to us. Those before kNumbers are numbers and kept by their meaning.
enum Meaning : uint16_t {
  kOctets,
  kLayer2Octets,
  kPackets,
  kReverseOctets,
  kReversePackets,
  kFrameBytes,
  kProtocol,
  kTrafficClass,
  kSourcePort,
  kDestinationPort,
  kIngress,
  kEgress,
  kVlan,
  kDirection,
  kFirstUptimeMs,
  kLastUptimeMs,
  kFirstSeconds,
  kLastSeconds,
  kFirstMs,
  kLastMs,
  kLastBeforeUs,
  kBootMs,
  kSampler,
  kSamplingInterval,
  kPacketInterval,
  kPacketSpace,
  kSampleSize,
  kPopulation,
  kScopeInterface,
  kNumbers,
  kSourceV4,
  kDestinationV4,
  kSourceV6,
  kDestinationV6,
  kInterfaceName,
  kProbability,
  kIpSection,
  kFrameSection,
  kNothing,
};

// Information elements by their number (IANA); NetFlow version 9 has the same up to 127.
struct Element {
  uint16_t number;
  Meaning meaning;
  uint32_t enterprise = 0;
};
constexpr Element kElements[] = {
    {1, kOctets},
    {2, kPackets},
    {4, kProtocol},
    {5, kTrafficClass},
    {7, kSourcePort},
    {8, kSourceV4},
    {10, kIngress},
    {11, kDestinationPort},
    {12, kDestinationV4},
    {14, kEgress},
    {21, kLastUptimeMs},
    {22, kFirstUptimeMs},
    {27, kSourceV6},
    {28, kDestinationV6},
    {34, kSamplingInterval},
    {48, kSampler},
    {50, kSamplingInterval},
    {58, kVlan},
    {61, kDirection},
    {82, kInterfaceName},
    {150, kFirstSeconds},
    {151, kLastSeconds},
    {152, kFirstMs},
    {153, kLastMs},
    {159, kLastBeforeUs},
    {160, kBootMs},
    {180, kSourcePort},
    {181, kDestinationPort},
    {182, kSourcePort},
    {183, kDestinationPort},
    {243, kVlan},
    {302, kSampler},
    {305, kPacketInterval},
    {306, kPacketSpace},
    {309, kSampleSize},
    {310, kPopulation},
    {311, kProbability},
    {312, kFrameBytes},
    {313, kIpSection},
    {315, kFrameSection},
    {352, kLayer2Octets},
    {1, kReverseOctets, kReverse},
    {2, kReversePackets, kReverse},
};

Meaning meaning_of(uint16_t number, uint32_t enterprise) {
  for (const Element& element : kElements) {
    if (element.number == number && element.enterprise == enterprise) return element.meaning;
  }
  return kNothing;
}

// A rate that can be: 1 in 2^32 at most.
double sound_rate(double rate) {
  return std::isfinite(rate) && rate >= 1 && rate <= 4294967296.0 ? rate : 1;
}

uint64_t scaled(uint64_t count, double rate) {
  const double all = static_cast<double>(count) * rate;
  return all < 9e18 ? static_cast<uint64_t>(all) : 0;
}

}  // namespace

struct IpfixDecoder::Message {
  Domain* domain = nullptr;
  bool is_v9 = false;
  int64_t now_ns = 0;
  int64_t export_unix_ns = 0;
  uint64_t boot_unix_ms = 0;
  uint32_t sequence = 0;
  uint32_t records = 0;
};

// The fields of one record that mean something to us.
struct IpfixDecoder::Record {
  FlowSample sample;
  std::array<uint64_t, kNumbers> numbers{};
  uint64_t present = 0;  // a bit each
  double probability = 0;
  bool has_section = false;
  std::string_view name;
  Meaning port_before = kNothing;  // the interface that a name stands behind

  static_assert(kNumbers <= 64);
  uint64_t get(Meaning meaning) const { return numbers[meaning]; }
  bool has(Meaning meaning) const { return (present >> meaning & 1) != 0; }

  bool has_rate() const {
    return get(kPacketInterval) > 0 || get(kSampleSize) > 0 || probability > 0 || get(kSamplingInterval) > 0;
  }
  double rate() const {
    auto number = [this](Meaning meaning) { return static_cast<double>(get(meaning)); };
    if (get(kPacketInterval) > 0)
      return sound_rate((number(kPacketInterval) + number(kPacketSpace)) / number(kPacketInterval));
    if (get(kSampleSize) > 0) return sound_rate(number(kPopulation) / number(kSampleSize));
    if (probability > 0) return sound_rate(1 / probability);
    return sound_rate(number(kSamplingInterval));
  }

  void take(uint16_t meaning, std::string_view bytes) {
    if (meaning < kNumbers) {
      if (bytes.size() > 8) return;
      numbers[meaning] = number_of(bytes);
      present |= 1ull << meaning;
      if (meaning == kIngress || meaning == kEgress) port_before = static_cast<Meaning>(meaning);
      return;
    }
    take_other(static_cast<Meaning>(meaning), bytes);
  }
  void take_other(Meaning meaning, std::string_view bytes) {
    FlowKey& key = sample.key;
    if (meaning == kSourceV4 || meaning == kDestinationV4) {
      if (bytes.size() != 4) return;
      (meaning == kSourceV4 ? key.source : key.destination) = ip_of_v4(bytes.data());
      sample.has_key = true;
    } else if (meaning == kSourceV6 || meaning == kDestinationV6) {
      if (bytes.size() != 16) return;
      (meaning == kSourceV6 ? key.source : key.destination) = ip_of_v6(bytes.data());
      sample.has_key = true;
    } else if (meaning == kInterfaceName) {
      name = bytes.substr(0, bytes.find('\0'));  // some exporters fill it up to its length
      if (port_before == kIngress) sample.in_name = name;
      if (port_before == kEgress) sample.out_name = name;
    } else if (meaning == kIpSection || meaning == kFrameSection) {
      meaning == kIpSection ? read_ip_packet(bytes, sample) : read_ethernet_packet(bytes, sample);
      has_section = true;
    } else if (meaning == kProbability) {
      if (bytes.size() == 8) probability = std::bit_cast<double>(number_of(bytes));
      if (bytes.size() == 4) probability = std::bit_cast<float>(static_cast<uint32_t>(number_of(bytes)));
    }
  }
  // The numbers that a sample has too.
  void finish() {
    FlowKey& key = sample.key;
    if (has(kProtocol)) key.protocol = static_cast<uint8_t>(get(kProtocol));
    if (has(kTrafficClass)) sample.traffic_class = static_cast<uint8_t>(get(kTrafficClass));
    if (has(kSourcePort)) key.source_port = static_cast<uint16_t>(get(kSourcePort));
    if (has(kDestinationPort)) key.destination_port = static_cast<uint16_t>(get(kDestinationPort));
    if (has(kVlan)) sample.vlan = get(kVlan) & 0xfff;
    sample.in_port = static_cast<uint32_t>(get(kIngress));
    sample.out_port = static_cast<uint32_t>(get(kEgress));
    if (has(kDirection)) sample.seen_at = get(kDirection) == 1 ? SeenAt::kEgress : SeenAt::kIngress;
  }
};

IpfixDecoder::Domain* IpfixDecoder::domain_of(const Exporter& exporter, int64_t now_ns) {
  const auto known = domains_.find(exporter);
  if (known != domains_.end()) {
    known->second.heard_ns = now_ns;
    return &known->second;
  }
  if (domains_.size() >= kDomainsMax) {
    for (auto at = domains_.begin(); at != domains_.end();) {
      if (now_ns - at->second.heard_ns <= kForgetNs) {
        ++at;
        continue;
      }
      while (!at->second.templates.empty()) forget(at->second, at->second.templates.begin()->first);
      at = domains_.erase(at);
    }
    if (domains_.size() >= kDomainsMax) return nullptr;
  }
  Domain& domain = domains_[exporter];
  domain.heard_ns = now_ns;
  return &domain;
}

void IpfixDecoder::forget(Domain& domain, uint16_t id) {
  const auto known = domain.templates.find(id);
  if (known == domain.templates.end()) return;
  fields_ -= known->second.fields.size();
  --templates_;
  domain.templates.erase(known);
}

void IpfixDecoder::learn(uint16_t id, Template layout, Message& message, FlowReport& report) {
  Domain& domain = *message.domain;
  const auto known = domain.templates.find(id);
  if (known != domain.templates.end()) {
    if (known->second.fields == layout.fields && known->second.is_options == layout.is_options) {
      known->second.learned_ns = message.now_ns;
      return;
    }
    ++report.templates_changed;
    forget(domain, id);
  }
  if (domain.templates.size() >= kTemplatesMax) {
    std::vector<uint16_t> old;
    for (const auto& [number, one] : domain.templates) {
      if (message.now_ns - one.learned_ns > kTemplateNs) old.push_back(number);
    }
    for (const uint16_t number : old) forget(domain, number);
  }
  if (domain.templates.size() >= kTemplatesMax || fields_ + layout.fields.size() > kFieldsTotalMax) {
    ++report.skipped_records;
    return;
  }
  fields_ += layout.fields.size();
  ++templates_;
  domain.templates.emplace(id, std::move(layout));
}

const char* IpfixDecoder::read_templates(NetworkReader& set, bool is_options, Message& message, FlowReport& report) {
  while (set.left() >= 4) {
    const uint16_t id = set.u16();
    uint16_t fields = set.u16();  // of options of NetFlow 9: bytes of the scope
    if (id == 0) return nullptr;  // padding
    if (fields == 0 && !message.is_v9) {
      // Withdrawn; the number of the set itself: all of its kind.
      if (id >= kFirstDataSet) {
        forget(*message.domain, id);
      } else {
        std::vector<uint16_t> all;
        for (const auto& [number, one] : message.domain->templates) {
          if (one.is_options == is_options) all.push_back(number);
        }
        for (const uint16_t number : all) forget(*message.domain, number);
      }
      continue;
    }
    if (id < kFirstDataSet) return "a template has a number of a set";
    uint16_t scopes = 0;
    if (is_options) {
      scopes = set.u16();  // of NetFlow 9: bytes of the other fields
      if (message.is_v9) {
        const uint32_t both = (static_cast<uint32_t>(fields) + scopes) / 4;
        scopes = fields / 4;
        fields = static_cast<uint16_t>(both);
      }
    }
    if (fields > kFieldsMax) return "a template has more fields than we read";
    Template layout{{}, 0, is_options, message.now_ns};
    layout.fields.reserve(fields);
    for (uint16_t i = 0; i < fields; ++i) {
      const uint16_t element = set.u16();
      const uint16_t length = set.u16();
      const bool is_enterprise = !message.is_v9 && (element & 0x8000) != 0;
      const uint32_t enterprise = is_enterprise ? set.u32() : 0;
      Meaning meaning = meaning_of(element & (message.is_v9 ? 0xffff : 0x7fff), enterprise);
      if (message.is_v9 && i < scopes) meaning = element == 2 ? kScopeInterface : kNothing;
      const bool is_variable = length == kVariable && !message.is_v9;
      layout.record_bytes_min += is_variable ? 1 : length;
      // Every field that is walked has a byte of its own, so that a datagram costs what its size is; and those that say
      // nothing to us are one.
      Field* before = layout.fields.empty() ? nullptr : &layout.fields.back();
      if (length == 0) continue;
      if (before != nullptr && meaning == kNothing && before->meaning == kNothing && !is_variable &&
          before->length != kVariable && before->length + static_cast<uint32_t>(length) < kVariable) {
        before->length = static_cast<uint16_t>(before->length + length);
      } else {
        layout.fields.push_back({length, meaning});
      }
    }
    if (!set.ok()) return "a template is cut off";
    if (layout.record_bytes_min == 0) return "a template describes records without a byte";
    learn(id, std::move(layout), message, report);
  }
  return nullptr;
}

void IpfixDecoder::take_options(const Record& record, Domain& domain, FlowReport& report) {
  if (record.has(kBootMs)) domain.boot_unix_ms = record.get(kBootMs);
  if (record.has_rate()) {
    const uint64_t id = record.get(kSampler);
    auto known = std::find_if(domain.samplers.begin(), domain.samplers.end(),
                              [&](const Sampler& sampler) { return sampler.id == id; });
    if (known == domain.samplers.end() && domain.samplers.size() < kSamplersMax)
      known = domain.samplers.insert(known, {id, 1});
    if (known != domain.samplers.end()) known->rate = record.rate();
  }
  const uint32_t port = record.sample.in_port != kPortUnknown ? record.sample.in_port
                                                              : static_cast<uint32_t>(record.get(kScopeInterface));
  if (!record.name.empty() && is_port(port)) report.names.push_back({port, record.name});
}

void IpfixDecoder::take_flow(const Record& record, const Message& message, FlowReport& report) {
  const Domain& domain = *message.domain;
  FlowSample sample = record.sample;
  double rate = 1;
  if (record.has_rate()) {
    rate = record.rate();
  } else if (!domain.samplers.empty()) {
    for (const Sampler& sampler : domain.samplers) {
      if (sampler.id == record.get(kSampler)) rate = sampler.rate;
    }
    // One sampler, which its records do not name.
    if (!record.has(kSampler) && domain.samplers.size() == 1) rate = domain.samplers[0].rate;
  }
  // Layer 2, where it is there, is what ports count.
  uint64_t octets = record.get(kLayer2Octets) > 0 ? record.get(kLayer2Octets) : record.get(kOctets);
  uint64_t packets = record.get(kPackets);
  if (record.has_section && packets == 0) {
    packets = 1;
    if (octets == 0) octets = record.get(kFrameBytes);
  }
  sample.sampling_rate = static_cast<uint32_t>(std::min(rate, 4294967295.0));
  sample.bytes = scaled(octets, rate);
  sample.packets = scaled(packets, rate);

  constexpr uint64_t kMsMax = 4'000'000'000'000;  // the year 2096
  const uint64_t boot_ms = message.is_v9 ? message.boot_unix_ms : domain.boot_unix_ms;
  uint64_t first_ms = record.has(kFirstMs) ? record.get(kFirstMs) : record.get(kFirstSeconds) * 1000;
  uint64_t last_ms = record.has(kLastMs) ? record.get(kLastMs) : record.get(kLastSeconds) * 1000;
  if (record.has(kLastUptimeMs) && boot_ms > 0) {
    first_ms = boot_ms + record.get(kFirstUptimeMs);
    last_ms = boot_ms + record.get(kLastUptimeMs);
  }
  if (first_ms <= kMsMax) sample.first_unix_ns = static_cast<int64_t>(first_ms) * 1'000'000;
  if (last_ms <= kMsMax) sample.last_unix_ns = static_cast<int64_t>(last_ms) * 1'000'000;
  if (record.has(kLastBeforeUs) && record.get(kLastBeforeUs) < 3'600'000'000)
    sample.last_unix_ns = message.export_unix_ns - static_cast<int64_t>(record.get(kLastBeforeUs)) * 1000;

  if (sample.packets > 0 || sample.bytes > 0) report.flows.push_back(sample);
  if (record.get(kReverseOctets) > 0 || record.get(kReversePackets) > 0) {
    FlowSample back = sample;
    std::swap(back.key.source, back.key.destination);
    std::swap(back.key.source_port, back.key.destination_port);
    std::swap(back.in_port, back.out_port);
    std::swap(back.in_name, back.out_name);
    back.bytes = scaled(record.get(kReverseOctets), rate);
    back.packets = scaled(record.get(kReversePackets), rate);
    report.flows.push_back(back);
  }
}

const char* IpfixDecoder::read_records(const Template& layout, NetworkReader& set, Message& message,
                                       FlowReport& report) {
  while (set.left() >= layout.record_bytes_min) {
    Record record;
    for (const Field& field : layout.fields) {
      size_t length = field.length;
      if (length == kVariable && !message.is_v9) {
        length = set.u8();
        if (length == 255) length = set.u16();
      }
      const std::string_view bytes = set.bytes(length);
      if (!set.ok()) return "a record is cut off";
      if (field.meaning != kNothing) record.take(field.meaning, bytes);
    }
    if (++message.records > kRecordsMax) return "more records than a datagram holds";
    record.finish();
    if (layout.is_options) {
      take_options(record, *message.domain, report);
    } else {
      take_flow(record, message, report);
    }
  }
  return nullptr;
}

const char* IpfixDecoder::read_set(uint16_t id, NetworkReader& set, Message& message, FlowReport& report) {
  const uint16_t templates = message.is_v9 ? 0 : 2, options = message.is_v9 ? 1 : 3;
  if (id == templates || id == options) return read_templates(set, id == options, message, report);
  if (id < kFirstDataSet) {
    ++report.skipped_records;
    return nullptr;
  }
  const auto layout = message.domain->templates.find(id);
  if (layout != message.domain->templates.end() && message.now_ns - layout->second.learned_ns > kTemplateNs) {
    forget(*message.domain, id);
    ++report.sets_without_template;
    return nullptr;
  }
  if (layout == message.domain->templates.end()) {
    ++report.sets_without_template;
    return nullptr;
  }
  return read_records(layout->second, set, message, report);
}

void IpfixDecoder::follow_sequence(const Message& message, FlowReport& report) {
  Domain& domain = *message.domain;
  const uint32_t records = message.is_v9 ? 1 : message.records;
  const bool is_counted = message.is_v9 || report.sets_without_template == 0;
  const uint32_t sequence_before = domain.sequence, records_before = domain.records_before;
  const bool can_tell = domain.is_known && domain.was_counted && (is_counted || !domain.counts_itself);
  domain.is_known = true;
  domain.was_counted = is_counted;
  domain.sequence = message.sequence;
  domain.records_before = records;
  if (!can_tell) return;
  const uint32_t ahead = message.sequence - sequence_before;
  if (is_counted && records != records_before) {
    if (ahead == records_before) domain.counts_itself = false;
    if (ahead == records) domain.counts_itself = true;
  }
  const auto missing =
      static_cast<int64_t>(static_cast<int32_t>(ahead - (domain.counts_itself ? records : records_before)));
  constexpr int64_t kJumpMax = 1'000'000, kLateMax = 4096;
  if (missing > 0 && missing <= kJumpMax)
    (message.is_v9 ? report.lost_datagrams : report.lost_records) += static_cast<uint64_t>(missing);
  if (missing < 0 && missing >= -kLateMax) {
    // Overtaken by others: the newest of them counts.
    ++report.late_datagrams;
    domain.sequence = sequence_before;
    domain.records_before = records_before;
  }
}

Result<void> IpfixDecoder::decode(const IpAddress& from, std::string_view datagram, int64_t now_ns,
                                  FlowReport& report) {
  report.clear();
  auto refused = [&](const char* what) {
    report.clear();
    return Error{format("IPFIX and NetFlow: %s", what)};
  };
  NetworkReader bytes(datagram);
  const uint16_t version = bytes.u16();
  const uint16_t length_untrusted = bytes.u16();  // of NetFlow 9: a number of records, which few count alike
  if (!bytes.ok() || (version != kNetflow9 && version != kIpfix)) return refused("neither version 9 nor 10");
  Message message;
  message.is_v9 = version == kNetflow9;
  message.now_ns = now_ns;
  const uint32_t uptime_ms = message.is_v9 ? bytes.u32() : 0;
  const uint32_t export_unix_s = bytes.u32();
  message.export_unix_ns = static_cast<int64_t>(export_unix_s) * 1'000'000'000;
  message.boot_unix_ms = static_cast<uint64_t>(export_unix_s) * 1000 -
                         std::min<uint64_t>(uptime_ms, static_cast<uint64_t>(export_unix_s) * 1000);
  message.sequence = bytes.u32();
  report.exporter = {from, bytes.u32()};
  if (!bytes.ok()) return refused("the header is cut off");
  if (!message.is_v9) {
    constexpr uint16_t kHeaderBytes = 16;
    if (length_untrusted < kHeaderBytes || length_untrusted > datagram.size()) return refused("a message is cut off");
    bytes = NetworkReader(datagram.substr(kHeaderBytes, length_untrusted - kHeaderBytes));
  }
  message.domain = domain_of(report.exporter, now_ns);
  if (message.domain == nullptr) {
    report.clear();
    return Error{format("IPFIX and NetFlow: more than %zu exporters and domains", kDomainsMax), ErrorCode::kTooLarge};
  }
  while (bytes.left() >= 4) {
    const uint16_t id = bytes.u16();
    const uint16_t set_bytes_untrusted = bytes.u16();
    if (set_bytes_untrusted < 4) {
      if (id == 0 && set_bytes_untrusted == 0) break;  // padding
      return refused("a set is shorter than its header");
    }
    NetworkReader set(bytes.bytes(set_bytes_untrusted - 4u));
    if (!bytes.ok()) return refused("a set is cut off");
    if (const char* fault = read_set(id, set, message, report)) return refused(fault);
  }
  follow_sequence(message, report);
  return {};
}

}  // namespace lockstep
