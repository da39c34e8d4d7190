// gRPC client for unary calls over TCP, TLS or a UNIX socket: HTTP/2 of our own (h2_client.h), libc only, so that the
// agent builds anywhere. The connection is kept for the next call and opened again where the server has closed it.
//
// Messages are not compressed here: who wants that hands in a compressed message and its encoding's name.
// Limits: the deadline covers connect, send and receive together; a message of message_bytes_max comes back.
// On error: call() gives an Error where no answer came (connection refused, timed out after 5 s, not HTTP/2, ...); what
//           a server answered, however badly, is a GrpcResponse with a code.
// Delivery: a call on a kept connection that breaks before any part of the answer, or that the server says it has not
//           looked at, is made once more on a new connection; a server may see such a call twice.
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/h2_client.h"
#include "net/stream_connector.h"

namespace lockstep {

enum class GrpcCode : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};
const char* to_text(GrpcCode code);  // "UNAVAILABLE"

struct GrpcRequest {
  std::string path;         // "/package.Service/Method"
  std::string message;      // protobuf bytes; compressed where `encoding` is given
  std::string encoding;     // grpc-encoding of the message: "gzip", ...; empty: not compressed
  HeaderList metadata;      // names in lower case; values printable
  int64_t timeout_ms = -1;  // of this call; -1: the client's
};

struct GrpcResponse {
  GrpcCode code = GrpcCode::kOk;
  std::string message;                                    // for people, on error
  std::string body;                                       // protobuf bytes, on OK
  HeaderList headers;                                     // names in lower case
  HeaderList trailers;                                    // of an answer without a body: its headers
  std::string_view trailer(std::string_view name) const;  // empty where absent
};

struct GrpcTarget {
  StreamAddress address;
  bool tls = false;
  TlsOptions tls_options;
};
// "http://HOST[:PORT]", "https://HOST[:PORT]", "unix:///PATH" (or "unix:PATH"). A path after the host is an error.
Result<GrpcTarget> parse_grpc_target(std::string_view text, uint16_t default_port);

class GrpcClient {
 public:
  explicit GrpcClient(const GrpcTarget& target, int64_t timeout_ms = 10'000, uint64_t message_bytes_max = 64ull << 20);
  Result<GrpcResponse> call(const GrpcRequest& request);

 private:
  // *again: nothing of an answer came and the call may be made once more.
  Result<GrpcResponse> exchange(const GrpcRequest& request, int64_t timeout_ms, const Deadline& deadline, bool* again);
  void close();

  Connector connector_;
  const std::string where_;      // for error lines
  const std::string authority_;  // as the server is addressed
  int64_t timeout_ms_;
  uint64_t message_bytes_max_;
  std::unique_ptr<Stream> stream_;
  std::optional<H2Client> connection_;
};

// One call and goodbye, as for a socket of this machine.
Result<GrpcResponse> grpc_call(std::string_view target, std::string path, std::string message,
                               int64_t timeout_ms = 5'000);

// Undoes the percent-encoding of grpc-message; what is not well encoded stays as it is.
std::string grpc_percent_decode(std::string_view text);

}  // namespace lockstep
