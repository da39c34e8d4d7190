// gRPC server for unary calls (nghttp2, HTTP/2 with prior knowledge): frames, gzip and identity message encoding,
// trailers with grpc-status and grpc-message. Enough for OTLP/gRPC from any SDK; streaming calls get UNIMPLEMENTED.
//
// Limits and shutdown as in http_server.h; a message over the limit gets RESOURCE_EXHAUSTED.
// Thread rule: Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "net/http_server.h"

namespace lockstep {

struct GrpcReply {
  int status = 0;               // gRPC status code, 0 OK
  std::string message;          // for people, on error
  std::string body;             // response message, on OK
  int64_t retry_after_ms = -1;  // >= 0: google.rpc.RetryInfo in grpc-status-details-bin
};

// path: "/opentelemetry.proto.collector.logs.v1.LogsService/Export"; body: the request message, decompressed.
using GrpcHandler = std::function<GrpcReply(const std::string& path, const std::string& body)>;

class GrpcServer {
 public:
  static Result<std::unique_ptr<GrpcServer>> start(HttpServerOptions options, GrpcHandler handler, Counters& counters);
  virtual ~GrpcServer() = default;
  virtual std::string address() const = 0;
  virtual void stop() = 0;
};

}  // namespace lockstep
