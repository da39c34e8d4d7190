// Where a server listens: the text of a flag to an address, and an address to a listening socket.
//
// On error: one clear line (address in use, no such host, not a port).
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/files.h"
#include "base/result.h"

namespace lockstep {

// "127.0.0.1:7070", "[::1]:0", ":4318" (all addresses). Port 0 takes a free port.
struct ListenAddress {
  std::string host;
  uint16_t port = 0;
};
Result<ListenAddress> parse_listen_address(std::string_view text);
// Whether nobody but this machine reaches it: localhost and addresses in digits that say so. Other names may point
// anywhere.
bool is_loopback(const ListenAddress& address);

struct ListenSocket {
  UniqueFd fd;        // non-blocking, close-on-exec
  std::string bound;  // "127.0.0.1:7070": with the port that was taken
  bool ipv6 = false;
};
Result<ListenSocket> listen_on(const ListenAddress& address);
// A UDP socket there; prepare: sets its options before it is bound.
Result<ListenSocket> bind_datagrams(const ListenAddress& address, const std::function<void(int fd)>& prepare);
// Who is at the other end of a connected socket: "203.0.113.9:5123", also where IPv4 came in over an IPv6 socket. "?":
// gone already.
std::string peer_address(int fd);

}  // namespace lockstep
