// Addresses of hosts and switches as packets carry them, and prefixes of them.
//
// Thread rule: Immutable.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// IPv4 is kept as IPv6 writes it (::ffff:10.0.0.1), so that one comparison does for both.
struct IpAddress {
  std::array<uint8_t, 16> bytes{};

  bool is_v4() const { return std::memcmp(bytes.data(), kV4Prefix, sizeof kV4Prefix) == 0; }
  auto operator<=>(const IpAddress&) const = default;

  static constexpr uint8_t kV4Prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
};

// From bytes in network order: 4 and 16 of them.
IpAddress ip_of_v4(const void* bytes);
IpAddress ip_of_v6(const void* bytes);
std::optional<IpAddress> parse_ip(std::string_view text);
std::string to_text(const IpAddress& address);

// "10.0.0.0/8", "fd00::/8", or one address.
struct IpPrefix {
  IpAddress address;
  int bits = 128;  // of 128

  bool contains(const IpAddress& other) const;
};
std::optional<IpPrefix> parse_ip_prefix(std::string_view text);

}  // namespace lockstep
