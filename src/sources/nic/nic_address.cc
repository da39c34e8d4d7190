#include "sources/nic/nic_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>

#include "base/text.h"
#include "sources/nic/sysfs_file.h"

namespace lockstep {
namespace {

constexpr int kGidsMax = 16;  // the table is longer; what is in use stands first

bool is_global(const in6_addr& address) {
  return !IN6_IS_ADDR_LINKLOCAL(&address) && !IN6_IS_ADDR_LOOPBACK(&address) && !IN6_IS_ADDR_UNSPECIFIED(&address) &&
         !IN6_IS_ADDR_MULTICAST(&address);
}

std::string text_of(int family, const void* address) {
  char text[INET6_ADDRSTRLEN] = {};
  return inet_ntop(family, address, text, sizeof text) == nullptr ? "" : text;
}

}  // namespace

std::optional<std::string> address_of_gid(std::string_view gid) {
  const std::string text(trim(gid.substr(0, 64)));
  in6_addr address{};
  if (inet_pton(AF_INET6, text.c_str(), &address) != 1) return std::nullopt;
  if (IN6_IS_ADDR_V4MAPPED(&address)) return text_of(AF_INET, address.s6_addr + 12);
  if (!is_global(address)) return std::nullopt;
  return text_of(AF_INET6, &address);
}

std::string rdma_port_address(const std::string& root, const std::string& device, const std::string& port) {
  const std::string folder = root + "/sys/class/infiniband/" + device + "/ports/" + port;
  std::string global;
  for (int i = 0; i < kGidsMax; ++i) {
    const std::string number = std::to_string(i);
    // An entry that is not in use cannot be read.
    const FileText type = read_small_file(folder + "/gid_attrs/types/" + number);
    if (!type.ok() || !type.text.starts_with("RoCE v2")) continue;
    const FileText gid = read_small_file(folder + "/gids/" + number);
    const std::optional<std::string> address = gid.ok() ? address_of_gid(gid.text) : std::nullopt;
    if (!address) continue;
    if (address->find(':') == std::string::npos) return *address;
    if (global.empty()) global = *address;
  }
  return global;
}

std::string interface_address(const std::string& netdev) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(list, freeifaddrs);
  std::string global;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || netdev != each->ifa_name) continue;
    if (each->ifa_addr->sa_family == AF_INET)
      return text_of(AF_INET, &reinterpret_cast<const sockaddr_in*>(each->ifa_addr)->sin_addr);
    if (each->ifa_addr->sa_family != AF_INET6 || !global.empty()) continue;
    const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(each->ifa_addr)->sin6_addr;
    if (is_global(address)) global = text_of(AF_INET6, &address);
  }
  return global;
}

}  // namespace lockstep
