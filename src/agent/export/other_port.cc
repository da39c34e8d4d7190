#include "agent/export/other_port.h"

#include "net/server_ports.h"

namespace lockstep {

std::optional<OtlpTarget> at_right_port(const OtlpTarget& target, std::string& why) {
  constexpr int64_t kAskMs = 2'000;
  why.clear();
  if (!target.address.unix_path.empty()) return std::nullopt;
  const Url here{target.address.host, target.address.port, "", target.tls};
  const Result<ServerPorts> ports = ask_server_ports(here, kAskMs, target.tls_options);
  if (!ports.ok()) return std::nullopt;
  const Result<Url> right =
      url_of(here, *ports, target.protocol == OtlpProtocol::kGrpc ? Listener::kOtlpGrpc : Listener::kOtlpHttp);
  if (!right.ok()) {
    why = right.error();
    return std::nullopt;
  }
  if (right->port == here.port) return std::nullopt;
  OtlpTarget moved = target;
  moved.address.port = right->port;
  return moved;
}

}  // namespace lockstep
