// Where the listeners of a Lockstep server are. Each of them tells the ports of all to whoever asks, so that any of the
// server's addresses can be given for any purpose: whoever finds that it speaks to the wrong one asks, and goes on at the
// right one of the same host.
//
// Told is nothing but ports, without a token: over HTTP at kServerPortsPath, over gRPC (whose listener speaks no HTTP/1)
// as the answer to kServerPortsMethod. A listener that only the server's own machine reaches is told to nobody else.
//
// Behind a proxy or a forwarded port the server's own ports mean nothing: where the port or TLS that was asked is not what
// the listener says of itself, url_of() gives an error that says so, never a guess.
//
// Limits:      an answer of kServerPortsBytesMax.
// Thread rule: Thread-safe (no state).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/http_client.h"

namespace lockstep {

inline constexpr std::string_view kServerPortsPath = "/.well-known/lockstep";
inline constexpr std::string_view kServerPortsMethod = "/lockstep.v1.Server/Ports";
inline constexpr uint64_t kServerPortsBytesMax = 1024;

enum class Listener { kHttp, kOtlpHttp, kOtlpGrpc };
inline constexpr std::array kListeners = {Listener::kHttp, Listener::kOtlpHttp, Listener::kOtlpGrpc};
// "page and API", "OTLP/HTTP receiver", "OTLP/gRPC receiver".
const char* to_text(Listener listener);
// "--http", "--otlp-http", "--otlp-grpc": of lockstepd.
const char* option_of(Listener listener);

struct ServerPorts {
  Listener asked = Listener::kHttp;  // which of them answers
  bool tls = false;                  // of all
  std::array<uint16_t, 3> ports{};   // 0: not open yet, or not to whoever asks
  uint16_t of(Listener listener) const { return ports[static_cast<size_t>(listener)]; }
};

// "lockstep listener=http tls=no http=7070 otlp_http=4318 otlp_grpc=4317\n"; what is 0 is left out.
std::string to_text(const ServerPorts& ports);
// Words that are not known are skipped.
Result<ServerPorts> parse_server_ports(std::string_view text_untrusted);

// By HTTP, else (ErrorCode::kOtherProtocol) by gRPC. The error says why nobody answered the last of these: it may be no
// Lockstep server, or an older one.
Result<ServerPorts> ask_server_ports(const Url& server, int64_t timeout_ms, const TlsOptions& tls = {});
// The address of that listener, where `asked` gave `ports`. The error says which address to give instead.
Result<Url> url_of(const Url& asked, const ServerPorts& ports, Listener wanted);

}  // namespace lockstep
