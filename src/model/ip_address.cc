#include "model/ip_address.h"

#include <arpa/inet.h>

#include "base/text.h"

namespace lockstep {

IpAddress ip_of_v4(const void* bytes) {
  IpAddress address;
  std::memcpy(address.bytes.data(), IpAddress::kV4Prefix, sizeof IpAddress::kV4Prefix);
  std::memcpy(address.bytes.data() + sizeof IpAddress::kV4Prefix, bytes, 4);
  return address;
}

IpAddress ip_of_v6(const void* bytes) {
  IpAddress address;
  std::memcpy(address.bytes.data(), bytes, 16);
  return address;
}

std::optional<IpAddress> parse_ip(std::string_view text) {
  const std::string ended(text);
  uint8_t bytes[16];
  if (inet_pton(AF_INET, ended.c_str(), bytes) == 1) return ip_of_v4(bytes);
  if (inet_pton(AF_INET6, ended.c_str(), bytes) == 1) return ip_of_v6(bytes);
  return std::nullopt;
}

std::string to_text(const IpAddress& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (address.is_v4()) {
    inet_ntop(AF_INET, address.bytes.data() + sizeof IpAddress::kV4Prefix, text, sizeof text);
  } else {
    inet_ntop(AF_INET6, address.bytes.data(), text, sizeof text);
  }
  return text;
}

bool IpPrefix::contains(const IpAddress& other) const {
  const auto whole = static_cast<size_t>(bits) / 8;
  if (std::memcmp(address.bytes.data(), other.bytes.data(), whole) != 0) return false;
  if (bits % 8 == 0) return true;
  const int shift = 8 - bits % 8;
  return address.bytes[whole] >> shift == other.bytes[whole] >> shift;
}

std::optional<IpPrefix> parse_ip_prefix(std::string_view text) {
  const size_t slash = text.find('/');
  const std::optional<IpAddress> address = parse_ip(text.substr(0, slash));
  if (!address) return std::nullopt;
  const bool is_v4 = address->is_v4() && text.find(':') == std::string_view::npos;
  if (slash == std::string_view::npos) return IpPrefix{*address, 128};
  const std::optional<uint64_t> bits = parse_uint(text.substr(slash + 1));
  if (!bits || *bits > (is_v4 ? 32u : 128u)) return std::nullopt;
  return IpPrefix{*address, static_cast<int>(*bits) + (is_v4 ? 96 : 0)};
}

}  // namespace lockstep
