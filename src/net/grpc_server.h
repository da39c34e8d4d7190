// gRPC server for unary calls (nghttp2, HTTP/2 with prior knowledge): frames, message encodings by a hook, trailers
// with grpc-status and grpc-message. Enough for OTLP/gRPC from any SDK; streaming calls get UNIMPLEMENTED. Handlers may
// block (a receiver waits for the disk): they run on worker threads, frames go on meanwhile.
//
// Limits, counts and shutdown as in http_server.h, with these differences: a message over body_bytes_max gets
//         RESOURCE_EXHAUSTED; over bodies_bytes_max RESOURCE_EXHAUSTED with RetryInfo; 256 calls at a time per
//         connection; connections over connections_max take the place of the one whose last call is longest ago, or
//         are closed where all are being answered; the label code is the gRPC status; who is not let in (caller.h)
//         gets UNAUTHENTICATED, PERMISSION_DENIED, or RESOURCE_EXHAUSTED with RetryInfo. Clients are told to go
//         (GOAWAY) before an idle connection is closed, and on stop().
// Thread rule: Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "net/http_server.h"

namespace lockstep {

enum GrpcStatus : int {
  kGrpcOk = 0,
  kGrpcInvalidArgument = 3,
  kGrpcPermissionDenied = 7,
  kGrpcResourceExhausted = 8,
  kGrpcUnimplemented = 12,
  kGrpcInternal = 13,
  kGrpcUnavailable = 14,
  kGrpcUnauthenticated = 16,
};

struct GrpcServerRequest {
  std::string path;  // "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
  std::string body;  // the message, decompressed
  Caller caller = {};
  std::string peer = {};  // "203.0.113.9:5123", as connected
};

struct GrpcServerResponse {
  int status = kGrpcOk;
  std::string message;                            // for people, on error
  std::string body;                               // response message, on OK
  int64_t retry_after_ms = -1;                    // >= 0: google.rpc.RetryInfo in grpc-status-details-bin
  std::shared_ptr<MemoryLease> memory = nullptr;  // what the body holds of the budget
};

using GrpcHandler = std::function<GrpcServerResponse(const GrpcServerRequest& request)>;

struct GrpcServerOptions {
  HttpServerOptions http;
  // Message encodings beside identity, as in grpc-encoding; any other gets UNIMPLEMENTED.
  std::vector<std::string> encodings;
  // Undoes one of them: OK with the plain message (at most bytes_max bytes) in body, or the error to answer with.
  std::function<GrpcServerResponse(std::string_view encoding, std::string_view data, uint64_t bytes_max)> decompress;
};

class GrpcServer {
 public:
  static Result<std::unique_ptr<GrpcServer>> start(GrpcServerOptions options, GrpcHandler handler, Counters& counters);
  virtual ~GrpcServer() = default;
  virtual std::string address() const = 0;
  virtual void stop() = 0;
};

}  // namespace lockstep
