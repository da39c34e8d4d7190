// For tests: a gRPC client (nghttp2) that shows what came over the wire, and can send what a good client never would.
//
// Thread rule: Confined.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "net/testing/raw_socket.h"

namespace lockstep::testing {

struct GrpcTestResponse {
  std::map<std::string, std::string> headers;
  std::map<std::string, std::string> trailers;  // empty for a trailers-only answer: see headers
  std::string data;                             // with the five-byte frame
  bool finished = false;                        // the stream is closed
  uint32_t reset_code = 0;                      // of RST_STREAM, as the stream closed

  int status() const;  // grpc-status, -1 where none came
  std::string message() const;
  std::string body() const { return data.size() >= 5 ? data.substr(5) : ""; }
};

class GrpcTestClient {
 public:
  explicit GrpcTestClient(const std::string& address);
  ~GrpcTestClient();

  struct Request {
    std::string path;
    std::string data;  // as is; see grpc_frame()
    std::string method = "POST";
    std::string content_type = "application/grpc";
    std::string encoding;
    std::string extra_header_value;  // non-empty: sent as extra_header_name
    std::string extra_header_name = "x-extra";
    bool end_stream = true;
  };
  int32_t start(Request request);
  // Exchanges frames until the stream is closed, the connection is gone, or the time is over.
  GrpcTestResponse wait(int32_t stream, int timeout_ms = 10'000);
  GrpcTestResponse call(const std::string& path, std::string_view message);

  void cancel(int32_t stream);
  bool ping(int timeout_ms = 5'000);
  bool wait_for_goaway(int timeout_ms = 5'000);  // and for the connection's end

 private:
  struct State;
  bool pump(int timeout_ms);  // one round; false when the connection is gone
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::testing
