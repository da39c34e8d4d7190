// Datagrams as switches send them, for tests, fuzzers and benchmarks.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace lockstep::test {

// Bytes in network order, one after the other.
class NetworkBytes {
 public:
  NetworkBytes& u8(uint64_t value) { return put(value, 1); }
  NetworkBytes& u16(uint64_t value) { return put(value, 2); }
  NetworkBytes& u32(uint64_t value) { return put(value, 4); }
  NetworkBytes& u64(uint64_t value) { return put(value, 8); }
  NetworkBytes& text(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  NetworkBytes& words(std::initializer_list<uint32_t> values) {
    for (const uint32_t value : values) u32(value);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  NetworkBytes& put(uint64_t value, int count) {
    for (int i = count - 1; i >= 0; --i) bytes_ += static_cast<char>(value >> 8 * i);
    return *this;
  }
  std::string bytes_;
};

inline std::string record(uint32_t format, const std::string& body) {
  return NetworkBytes().u32(format).u32(body.size()).text(body).bytes();
}

// 10.0.0.1:49152 to 10.0.0.2:4791, RoCEv2 to a queue pair; ecn: the last two bits of its traffic class.
inline std::string roce_packet(uint32_t queue_pair, int ecn = 0, uint8_t opcode = 0x2a, uint16_t source_port = 49152,
                               uint8_t source_host = 1) {
  NetworkBytes ip;
  ip.u8(0x45).u8(104 | ecn).u16(1096).u32(0).u8(64).u8(17).u16(0);
  ip.u32(0x0a000000u + source_host).u32(0x0a000002);
  ip.u16(source_port).u16(4791).u16(1076).u16(0);
  ip.u8(opcode).u8(0).u16(0xffff).u32(queue_pair).u32(7);
  NetworkBytes packet;
  packet.text(std::string(12, '\x02')).u16(0x8100).u16(0x6064).u16(0x0800).text(ip.bytes());
  return packet.text(std::string(128 - packet.bytes().size(), '\0')).bytes();
}

inline std::string raw_header(const std::string& packet, uint32_t frame_bytes = 1118) {
  std::string padded = packet;
  padded.resize((padded.size() + 3) / 4 * 4);
  return record(1, NetworkBytes().words({1, frame_bytes, 4}).u32(packet.size()).text(padded).bytes());
}

struct SampleText {
  uint32_t rate = 1000;
  uint32_t in = 17, out = 18;
  uint32_t drops = 0;
  uint32_t source = 17;
  std::vector<std::string> records = {};
};
inline std::string joined(const std::vector<std::string>& records) {
  NetworkBytes bytes;
  bytes.u32(records.size());
  for (const std::string& one : records) bytes.text(one);
  return bytes.bytes();
}
inline std::string flow_sample(const SampleText& sample) {
  NetworkBytes bytes;
  bytes.words({1, sample.source, sample.rate, 5000, sample.drops, sample.in, sample.out});
  return record(1, bytes.text(joined(sample.records)).bytes());
}
inline std::string expanded_flow_sample(const SampleText& sample) {
  NetworkBytes bytes;
  bytes.words({1, 0, sample.source, sample.rate, 5000, sample.drops, 0, sample.in, 0, sample.out});
  return record(3, bytes.text(joined(sample.records)).bytes());
}

inline std::string generic_counters(uint32_t port, uint64_t in_bytes, uint64_t out_bytes, uint32_t in_packets = 1000,
                                    uint32_t in_discards = 3, uint32_t in_errors = 4) {
  NetworkBytes bytes;
  bytes.u32(port).u32(6).u64(400'000'000'000).u32(1).u32(3);
  bytes.u64(in_bytes).words({in_packets, 20, 30, in_discards, in_errors, 0});
  bytes.u64(out_bytes).words({2000, 21, 31, 5, 6, 0});
  return record(1, bytes.bytes());
}
inline std::string port_name(std::string_view name) {
  std::string padded(name);
  padded.resize((padded.size() + 3) / 4 * 4);
  return record(1005, NetworkBytes().u32(name.size()).text(padded).bytes());
}
inline std::string counter_sample(uint32_t port, const std::vector<std::string>& records) {
  return record(2, NetworkBytes().words({1, port}).text(joined(records)).bytes());
}

inline std::string sflow_datagram(uint32_t sequence, const std::vector<std::string>& samples,
                                  uint32_t uptime_ms = 60'000, uint32_t agent = 0x0a0000fe, uint32_t sub_agent = 0) {
  NetworkBytes bytes;
  bytes.words({5, 1, agent, sub_agent, sequence, uptime_ms});
  return bytes.text(joined(samples)).bytes();
}

// The datagrams of a file in tests/data/flows; none: it cannot be read.
inline std::vector<std::string> captured(const std::string& path) {
  std::vector<std::string> datagrams;
  const Result<std::string> bytes = read_file(path, 1 << 20);
  for (size_t at = 0; bytes.ok() && at + 2 <= bytes->size();) {
    const size_t size = static_cast<uint8_t>((*bytes)[at]) | static_cast<size_t>(static_cast<uint8_t>((*bytes)[at + 1]))
                                                                 << 8;
    datagrams.push_back(bytes->substr(at + 2, size));
    at += 2 + size;
  }
  return datagrams;
}

}  // namespace lockstep::test
