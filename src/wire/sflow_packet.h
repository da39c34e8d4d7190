// The beginning of a sampled packet: Ethernet, VLAN, MPLS, IPv4, IPv6, TCP, UDP and the transport header of RoCEv2, as
// far as it goes. A switch samples 64 to 128 bytes, so all of these may be cut off anywhere.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <string_view>

#include "model/flow.h"

namespace lockstep {

// Sets has_key, key, vlan, traffic_class and roce_opcode of the sample where the bytes show them.
void read_ethernet_packet(std::string_view bytes, FlowSample& sample);
void read_ip_packet(std::string_view bytes, FlowSample& sample);

}  // namespace lockstep
