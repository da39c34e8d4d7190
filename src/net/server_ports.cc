#include "net/server_ports.h"

#include "base/text.h"
#include "net/grpc_client.h"

namespace lockstep {
namespace {

constexpr const char* kWords[] = {"http", "otlp_http", "otlp_grpc"};

const char* word_of(Listener listener) {
  return kWords[static_cast<size_t>(listener)];
}

std::optional<Listener> listener_of(std::string_view word) {
  for (Listener listener : kListeners) {
    if (word == word_of(listener)) return listener;
  }
  return std::nullopt;
}

}  // namespace

const char* to_text(Listener listener) {
  switch (listener) {
    case Listener::kHttp:
      return "page and API";
    case Listener::kOtlpHttp:
      return "OTLP/HTTP receiver";
    case Listener::kOtlpGrpc:
      return "OTLP/gRPC receiver";
  }
  return "?";
}

const char* option_of(Listener listener) {
  switch (listener) {
    case Listener::kHttp:
      return "--http";
    case Listener::kOtlpHttp:
      return "--otlp-http";
    case Listener::kOtlpGrpc:
      return "--otlp-grpc";
  }
  return "?";
}

std::string to_text(const ServerPorts& ports) {
  std::string text = format("lockstep listener=%s tls=%s", word_of(ports.asked), ports.tls ? "yes" : "no");
  for (Listener listener : kListeners) {
    if (ports.of(listener) != 0) text += format(" %s=%u", word_of(listener), static_cast<unsigned>(ports.of(listener)));
  }
  return text + "\n";
}

Result<ServerPorts> parse_server_ports(std::string_view text_untrusted) {
  const Error none{"the answer is not that of a Lockstep server"};
  if (text_untrusted.size() > kServerPortsBytesMax) return none;
  const std::vector<std::string_view> words = split(trim(text_untrusted), ' ');
  if (words.empty() || words[0] != "lockstep") return none;
  ServerPorts ports;
  bool asked = false;
  for (std::string_view word : words) {
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = word.substr(0, equals), value = word.substr(equals + 1);
    if (name == "tls") ports.tls = value == "yes";
    if (name == "listener") {
      const std::optional<Listener> listener = listener_of(value);
      if (!listener) return none;
      ports.asked = *listener;
      asked = true;
    }
    if (const std::optional<Listener> listener = listener_of(name)) {
      const std::optional<uint64_t> port = parse_uint(value);
      if (!port || *port == 0 || *port > 65535) return none;
      ports.ports[static_cast<size_t>(*listener)] = static_cast<uint16_t>(*port);
    }
  }
  if (!asked) return none;
  return ports;
}

Result<ServerPorts> ask_server_ports(const Url& server, int64_t timeout_ms, const TlsOptions& tls) {
  HttpClient client(server, timeout_ms, kServerPortsBytesMax, tls);
  HttpRequest request;
  request.path = kServerPortsPath;
  const Result<HttpResponse> answer = client.send(request);
  if (answer.ok() && answer->status == 200) return parse_server_ports(answer->body);
  if (answer.ok()) return Error{format("%s answers %d", origin_of(server).c_str(), answer->status)};
  if (answer.code() != ErrorCode::kOtherProtocol) return answer.failure();  // nobody is there
  // What speaks HTTP/2 alone does not answer as HTTP/1 does.
  GrpcClient grpc({{.host = server.host, .port = server.port, .unix_path = {}}, server.tls, tls}, timeout_ms,
                  kServerPortsBytesMax);
  GrpcRequest call;
  call.path = kServerPortsMethod;
  const GrpcResponse reported = LOCKSTEP_TRY(grpc.call(call));
  if (reported.code != GrpcCode::kOk)
    return Error{format("%s answers %s", origin_of(server).c_str(), to_text(reported.code))};
  return parse_server_ports(reported.body);
}

Result<Url> url_of(const Url& asked, const ServerPorts& ports, Listener wanted) {
  if (ports.asked == wanted) return asked;
  const std::string here = origin_of(asked) + asked.path;
  if (asked.port != ports.of(ports.asked) || asked.tls != ports.tls || !asked.path.empty())
    return Error{
        format("%s leads to the %s of a Lockstep server by a proxy or another port (it is on %u itself); the address "
               "of its %s "
               "is not known: give that address (lockstepd %s)",
               here.c_str(), to_text(ports.asked), static_cast<unsigned>(ports.of(ports.asked)), to_text(wanted),
               option_of(wanted))};
  if (ports.of(wanted) == 0)
    return Error{format("%s is the %s of a Lockstep server, whose %s is not open to this machine (lockstepd %s)",
                        here.c_str(), to_text(ports.asked), to_text(wanted), option_of(wanted))};
  Url url = asked;
  url.port = ports.of(wanted);
  return url;
}

}  // namespace lockstep
