#include "ingest/otlp/otlp_receivers.h"

#include "ingest/otlp/otlp_handler.h"
#include "net/grpc_server.h"
#include "net/http_server.h"
#include "wire/commands.h"
#include "wire/compression.h"

namespace lockstep {
namespace {

// Exporters of metrics call once a minute by default: longer, so that they keep their connection.
constexpr int64_t kIdleTimeoutMs = 300'000;

class TwoReceivers final : public OtlpReceivers {
 public:
  TwoReceivers(const OtlpReceiversOptions& options, IngestSink& sink, const Clock& clock, Counters& counters,
               AgentCommands* commands)
      : handler_(sink, clock, counters, options.body_bytes_max, options.witness, options.memory, options.owners),
        commands_(commands) {}
  ~TwoReceivers() override { stop(); }

  Result<void> open(const OtlpReceiversOptions& options, Counters& counters) {
    HttpServerOptions http;
    http.address = options.http;
    http.name = kOtlpHttpReceiver;
    http.body_bytes_max = options.body_bytes_max;
    http.bodies_bytes_max = options.queued_bytes_max;
    http.connections_max = options.connections_max;
    http.threads = options.threads;
    http.memory = options.memory;
    http.idle_timeout_ms = kIdleTimeoutMs;
    http.deferred_max = options.commands_waiting_max;
    http.gatekeeper = options.gatekeeper;
    http.cross_site.hosts = options.allowed_hosts;
    // What an agent has taken is pending no more; OTLP itself needs a content type that no form has.
    http.cross_site.changes_state = [](const ServerRequest& request) { return request.path == kCommandsPath; };
    http_server_ = LOCKSTEP_TRY(HttpServer::start(
        http,
        [this](const ServerRequest& request, const std::shared_ptr<HttpResponder>& responder) {
          if (commands_ != nullptr && request.path == kCommandsPath) return commands_->poll(request, responder);
          responder->answer(handler_.handle_http(request));
        },
        counters));

    GrpcServerOptions grpc;
    grpc.http = http;
    grpc.http.address = options.grpc;
    grpc.http.name = kOtlpGrpcReceiver;
    for (Encoding encoding : {Encoding::kGzip, Encoding::kZstd}) {
      if (available(encoding)) grpc.encodings.emplace_back(to_text(encoding));
    }
    grpc.decompress = [this](std::string_view encoding, std::string_view data, uint64_t bytes_max) {
      return handler_.decompress_grpc(encoding, data, bytes_max);
    };
    grpc_server_ = LOCKSTEP_TRY(GrpcServer::start(
        std::move(grpc),
        [this](const GrpcServerRequest& request) {
          return handler_.handle_grpc(request.path, request.body, request.caller);
        },
        counters));
    return {};
  }

  std::string http_address() const override { return http_server_->address(); }
  std::string grpc_address() const override { return grpc_server_->address(); }

  void stop() override {
    if (commands_ != nullptr) commands_->close();
    if (http_server_) http_server_->stop();
    if (grpc_server_) grpc_server_->stop();
  }

 private:
  OtlpHandler handler_;
  AgentCommands* const commands_;
  std::unique_ptr<HttpServer> http_server_;
  std::unique_ptr<GrpcServer> grpc_server_;
};

}  // namespace

Result<std::unique_ptr<OtlpReceivers>> OtlpReceivers::start(OtlpReceiversOptions options, IngestSink& sink,
                                                            const Clock& clock, Counters& counters,
                                                            AgentCommands* commands) {
  auto receivers = std::make_unique<TwoReceivers>(options, sink, clock, counters, commands);
  LOCKSTEP_TRY(receivers->open(options, counters));
  return std::unique_ptr<OtlpReceivers>(std::move(receivers));
}

}  // namespace lockstep
