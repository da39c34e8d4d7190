// RoCEv2 as it is on the wire: its UDP ports, by which switches choose among equal paths, and its opcodes.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>

namespace lockstep {

inline constexpr uint16_t kRocePort = 4791;  // UDP, where it goes to, always
inline constexpr uint8_t kRoceCnp = 0x81;    // opcode of a congestion notification

// Of a connection without a flow label of its own, as the kernel's helper computes it for drivers; NCCL sets no flow
// label. From the numbers of both queue pairs; both ends get the same. 49152-65535.
inline uint16_t roce_udp_source_port(uint32_t local_number, uint32_t remote_number) {
  uint64_t value = static_cast<uint64_t>(local_number) * remote_number;
  value ^= value >> 20;
  value ^= value >> 40;
  const auto flow_label = static_cast<uint32_t>(value & 0xfffff);
  return static_cast<uint16_t>(((flow_label & 0x3fff) ^ (flow_label >> 14)) | 0xc000);
}

}  // namespace lockstep
