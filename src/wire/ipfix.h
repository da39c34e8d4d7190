// IPFIX (RFC 7011) and NetFlow version 9 (RFC 3954): templates, options templates and the records they describe, with
// fields of variable length and of enterprises, both directions of a flow (RFC 5103) and sampled packets (RFC 5477).
//
// Templates belong to an exporter and its observation domain. A template that comes again with other fields replaces
// the one before; IPFIX may withdraw one or all. A set whose template is not known yet is counted and left out: how
// many records it holds nobody can say. Sampling rates come in options records and apply from then on, or stand in the
// record itself; an exporter that says none has scaled its numbers (Open vSwitch) or does not sample. Only what changed
// since the record before is counted (octetDeltaCount and its kin); totals of a flow are not.
// Lost: NetFlow counts datagrams and IPFIX records. Some exporters number a message by the records up to its end and
// not, as they should, up to its beginning: which of the two is learned.
// On error: one line; nothing of that datagram is taken, but templates that stood before the fault stay.
// Limits:   kDomainsMax domains (one not heard of for kForgetNs makes room), kTemplatesMax templates a domain and
//           kFieldsMax fields each, kFieldsTotalMax of all; a template not repeated for kTemplateNs is forgotten.
// Cost:     no allocation per record once `report` has grown to what comes.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "model/flow.h"

namespace lockstep {

class NetworkReader;

class IpfixDecoder {
 public:
  static constexpr size_t kDomainsMax = 16'384;
  static constexpr size_t kTemplatesMax = 1024;
  static constexpr size_t kFieldsMax = 256;
  static constexpr size_t kFieldsTotalMax = 2'000'000;  // 12 MB
  static constexpr size_t kSamplersMax = 64;            // of a domain
  static constexpr size_t kRecordsMax = 4096;           // of a datagram; an honest one has a few hundred
  static constexpr int64_t kForgetNs = 3'600'000'000'000;
  static constexpr int64_t kTemplateNs = 3 * kForgetNs;

  // from: the datagram's sender. now_ns: of any clock that only goes forward.
  Result<void> decode(const IpAddress& from, std::string_view datagram, int64_t now_ns, FlowReport& report);
  size_t domains() const { return domains_.size(); }
  size_t templates() const { return templates_; }

 private:
  struct Field {
    uint16_t length = 0;  // kVariable: each record says
    uint16_t meaning = 0;
    bool operator==(const Field&) const = default;
  };
  struct Template {
    std::vector<Field> fields;
    size_t record_bytes_min = 0;
    bool is_options = false;
    int64_t learned_ns = 0;
  };
  struct Sampler {
    uint64_t id = 0;
    double rate = 1;
  };
  struct Domain {
    std::map<uint16_t, Template> templates;
    std::vector<Sampler> samplers;
    uint64_t boot_unix_ms = 0;  // of the exporter, for times since then; 0: not known
    int64_t heard_ns = 0;
    // Sequence numbers.
    bool is_known = false;
    bool counts_itself = false;  // numbers go up to the end of a message
    bool was_counted = false;    // records_before is known: no set was without template
    uint32_t sequence = 0;
    uint32_t records_before = 0;  // in the message that had it
  };
  struct Message;
  struct Record;

  Domain* domain_of(const Exporter& exporter, int64_t now_ns);
  const char* read_set(uint16_t id, NetworkReader& set, Message& message, FlowReport& report);
  const char* read_templates(NetworkReader& set, bool is_options, Message& message, FlowReport& report);
  const char* read_records(const Template& layout, NetworkReader& set, Message& message, FlowReport& report);
  void learn(uint16_t id, Template layout, Message& message, FlowReport& report);
  void forget(Domain& domain, uint16_t id);
  static void take_flow(const Record& record, const Message& message, FlowReport& report);
  static void take_options(const Record& record, Domain& domain, FlowReport& report);
  static void follow_sequence(const Message& message, FlowReport& report);

  std::unordered_map<Exporter, Domain, ExporterHash> domains_;
  size_t templates_ = 0, fields_ = 0;
};

}  // namespace lockstep
