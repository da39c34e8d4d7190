#include "net/listen_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/text.h"

namespace lockstep {
namespace {

std::string to_text(const sockaddr_storage& address) {
  char host[INET6_ADDRSTRLEN] = "?";
  if (address.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
      inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], host, sizeof host);
      return format("%s:%u", host, ntohs(v6.sin6_port));
    }
    inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof host);
    return format("[%s]:%u", host, ntohs(v6.sin6_port));
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
  inet_ntop(AF_INET, &v4.sin_addr, host, sizeof host);
  return format("%s:%u", host, ntohs(v4.sin_port));
}

using Prepare = std::function<void(int fd)>;

Result<ListenSocket> bind_to(const addrinfo& target, bool dual_stack, const Prepare& prepare) {
  UniqueFd fd(socket(target.ai_family, target.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Error{std::strerror(errno)};
  int on = 1;
  int off = 0;
  if (target.ai_family == AF_INET6) {
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, dual_stack ? &off : &on, sizeof on);
  }
  prepare(fd.get());
  if (bind(fd.get(), target.ai_addr, target.ai_addrlen) != 0) return Error{std::strerror(errno)};
  if (target.ai_socktype == SOCK_STREAM && listen(fd.get(), 1024) != 0) return Error{std::strerror(errno)};
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) return Error{std::strerror(errno)};
  return ListenSocket{std::move(fd), to_text(bound), target.ai_family == AF_INET6};
}

// The first of its addresses that can be taken.
Result<ListenSocket> bind_first(const ListenAddress& address, int type, const Prepare& prepare) {
  addrinfo hints{};
  hints.ai_socktype = type;
  hints.ai_flags = AI_PASSIVE;
  // All addresses: one IPv6 socket that takes IPv4 too; a machine without IPv6 falls back to IPv4 below.
  bool any = address.host.empty();
  std::string port = std::to_string(address.port);
  std::string where =
      (address.host.find(':') == std::string::npos ? address.host : "[" + address.host + "]") + ":" + port;
  std::string last = "no address found";
  for (int family : {any ? AF_INET6 : AF_UNSPEC, AF_INET}) {
    hints.ai_family = family;
    addrinfo* found = nullptr;
    int failed = getaddrinfo(any ? nullptr : address.host.c_str(), port.c_str(), &hints, &found);
    if (failed != 0) {
      last = gai_strerror(failed);
      continue;
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, &freeaddrinfo);
    for (const addrinfo* target = found; target != nullptr; target = target->ai_next) {
      Result<ListenSocket> socket = bind_to(*target, any, prepare);
      if (socket) return socket;
      last = socket.error();
    }
    if (!any) break;
  }
  return Error{format("cannot listen on %s%s: %s", where.c_str(), type == SOCK_DGRAM ? " (UDP)" : "", last.c_str())};
}

}  // namespace

Result<ListenAddress> parse_listen_address(std::string_view text) {
  auto wrong = [&](const char* why) {
    return Error{format("address '%.*s' %s: write HOST:PORT, [IPV6]:PORT or :PORT", static_cast<int>(text.size()),
                        text.data(), why)};
  };
  size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return wrong("has no port");
  std::string_view host = text.substr(0, colon);
  std::optional<uint64_t> port = parse_uint(text.substr(colon + 1));
  if (!port || *port > 65535) return wrong("has a port that is not a number up to 65535");
  if (!host.empty() && host.front() == '[') {
    if (host.back() != ']' || host.size() < 3) return wrong("has a bracket that is not closed");
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return wrong("is IPv6 without brackets");
  }
  return ListenAddress{std::string(host), static_cast<uint16_t>(*port)};
}

bool is_loopback(const ListenAddress& address) {
  if (address.host == "localhost") return true;
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, address.host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  return inet_pton(AF_INET6, address.host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

Result<ListenSocket> listen_on(const ListenAddress& address) {
  return bind_first(address, SOCK_STREAM, [](int fd) {
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  });
}

Result<ListenSocket> bind_datagrams(const ListenAddress& address, const std::function<void(int fd)>& prepare) {
  return bind_first(address, SOCK_DGRAM, prepare);
}

std::string peer_address(int fd) {
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) return "?";
  return to_text(peer);
}

}  // namespace lockstep
