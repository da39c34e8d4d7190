#include "ingest/otlp/otlp_receivers.h"

#include "ingest/otlp/otlp_handler.h"
#include "ingest/uploads/upload_receiver.h"
#include "net/grpc_server.h"
#include "net/http_server.h"
#include "wire/commands.h"
#include "wire/compression.h"

namespace lockstep {
namespace {

// Exporters of metrics call once a minute by default: longer, so that they keep their connection.
constexpr int64_t kIdleTimeoutMs = 300'000;

constexpr int kNotNowRetryS = 1;

// What asks nobody who sends: everything goes to one sink.
class OneSink final : public OtlpRouter {
 public:
  OneSink(const OtlpReceiversOptions& options, IngestSink& sink, const Clock& clock, Counters& counters,
          AgentCommands* commands)
      : handler_(sink, clock, counters, options.body_bytes_max, options.witness, options.memory, options.owners),
        commands_(commands) {}
  IngestTarget find(const Caller&) override { return {&handler_, commands_}; }
  void close() override {
    if (commands_ != nullptr) commands_->close();
  }

 private:
  OtlpHandler handler_;
  AgentCommands* const commands_;
};

// Messages are decompressed before they are anybody's: for the process, and by a handler that never gets a batch.
class NoSink final : public IngestSink {
  AcceptResult accept(Signal, Batch, std::string_view, int64_t) override { return {AcceptError::kUnavailable, 0, ""}; }
};

class TwoReceivers final : public OtlpReceivers {
 public:
  TwoReceivers(const OtlpReceiversOptions& options, OtlpRouter& router, const Clock& clock, Counters& counters,
               std::unique_ptr<OtlpRouter> own = nullptr)
      : own_router_(std::move(own)),
        router_(router),
        ports_(options.ports),
        decompressor_(no_sink_, clock, counters, options.body_bytes_max, nullptr, options.memory) {}
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
    http.tls = options.tls;
    http.cross_site.hosts = options.allowed_hosts;
    // What an agent has taken is pending no more; OTLP itself needs a content type that no form has.
    http.cross_site.changes_state = [](const ServerRequest& request) {
      return request.path == kCommandsPath || UploadReceiver::is_for(request);
    };
    http_server_ = LOCKSTEP_TRY(HttpServer::start(
        http,
        [this](const ServerRequest& request, const std::shared_ptr<HttpResponder>& responder) {
          take_http(request, responder);
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
      return decompressor_.decompress_grpc(encoding, data, bytes_max);
    };
    grpc_server_ = LOCKSTEP_TRY(GrpcServer::start(
        std::move(grpc), [this](const GrpcServerRequest& request) { return take_grpc(request); }, counters));
    return {};
  }

  std::string http_address() const override { return http_server_->address(); }
  std::string grpc_address() const override { return grpc_server_->address(); }

  void stop() override {
    router_.close();
    if (http_server_) http_server_->stop();
    if (grpc_server_) grpc_server_->stop();
  }

 private:
  void take_http(const ServerRequest& request, const std::shared_ptr<HttpResponder>& responder) {
    if (ports_ && request.path == kServerPortsPath && request.method == "GET")
      return responder->answer(
          {200, {{"content-type", "text/plain; charset=utf-8"}}, ports_(Listener::kOtlpHttp, request.peer)});
    const IngestTarget target = router_.find(request.caller);
    if (target.handler == nullptr) {
      return responder->answer(
          {503,
           {{"content-type", "text/plain; charset=utf-8"}, {"retry-after", std::to_string(kNotNowRetryS)}},
           target.line + "\n"});
    }
    if (target.commands != nullptr && request.path == kCommandsPath) return target.commands->poll(request, responder);
    if (target.uploads != nullptr && UploadReceiver::is_for(request))
      return responder->answer(target.uploads->handle(request));
    responder->answer(target.handler->handle_http(request));
  }

  GrpcServerResponse take_grpc(const GrpcServerRequest& request) {
    if (ports_ && request.path == kServerPortsMethod) return {kGrpcOk, "", ports_(Listener::kOtlpGrpc, request.peer)};
    const IngestTarget target = router_.find(request.caller);
    if (target.handler == nullptr) return {kGrpcUnavailable, target.line, "", kNotNowRetryS * 1000};
    return target.handler->handle_grpc(request.path, request.body, request.caller);
  }

  const std::unique_ptr<OtlpRouter> own_router_;
  OtlpRouter& router_;
  const std::function<std::string(Listener, const std::string&)> ports_;
  NoSink no_sink_;
  OtlpHandler decompressor_;
  std::unique_ptr<HttpServer> http_server_;
  std::unique_ptr<GrpcServer> grpc_server_;
};

}  // namespace

Result<std::unique_ptr<OtlpReceivers>> OtlpReceivers::start(OtlpReceiversOptions options, OtlpRouter& router,
                                                            const Clock& clock, Counters& counters) {
  auto receivers = std::make_unique<TwoReceivers>(options, router, clock, counters);
  LOCKSTEP_TRY(receivers->open(options, counters));
  return std::unique_ptr<OtlpReceivers>(std::move(receivers));
}

Result<std::unique_ptr<OtlpReceivers>> OtlpReceivers::start(OtlpReceiversOptions options, IngestSink& sink,
                                                            const Clock& clock, Counters& counters,
                                                            AgentCommands* commands) {
  auto router = std::make_unique<OneSink>(options, sink, clock, counters, commands);
  OtlpRouter& all = *router;
  auto receivers = std::make_unique<TwoReceivers>(options, all, clock, counters, std::move(router));
  LOCKSTEP_TRY(receivers->open(options, counters));
  return std::unique_ptr<OtlpReceivers>(std::move(receivers));
}

}  // namespace lockstep
