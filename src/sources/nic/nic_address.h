// The address that packets of an adapter carry: what joins a sampled packet with the adapter it came from.
//
// Of an RDMA port the address of its first RoCE v2 entry (a GID that is an IPv4 address, else a global IPv6 one); of an
// interface without RDMA its IPv4 address, else a global IPv6 one. InfiniBand has none that switches could sample.
// Thread rule: Thread-safe (no state).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// "0000:0000:0000:0000:0000:ffff:0a1e:0011" is 10.30.0.17; a link-local GID and anything else is nullopt.
std::optional<std::string> address_of_gid(std::string_view gid);

// Empty: it has none.
std::string rdma_port_address(const std::string& root, const std::string& device, const std::string& port);
std::string interface_address(const std::string& netdev);

}  // namespace lockstep
