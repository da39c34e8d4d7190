// Sends one request of telemetry to where it belongs and says what came of it, by OTLP's rules: delivered (perhaps in
// part), to be tried again (and not before when), or refused for good. Over HTTP or gRPC, as the target says.
//
// Compression: a server that does not take the best one (415, UNIMPLEMENTED, or a 400 that speaks of it) gets the
// request again in a plainer one at once; what it took is remembered as long as the sender lives.
// Token: where it comes from a file, the file is read again when it has changed.
// Signals that go to the same place share a connection.
// Port: where the address turns out to be another listener of the server, the right one is asked for (other_port.h).
//
// Limits: a server's request to be left alone is honoured up to kRetryAfterMsMax. One try takes the target's timeout at
//         most; plainer compressions, and a token that changed meanwhile, make it a few tries.
// Thread rule: Confined.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "agent/export/otlp_target.h"
#include "base/result.h"
#include "model/telemetry.h"
#include "wire/compression.h"

namespace lockstep {

struct SendResult {
  enum class Outcome { kDelivered, kRetry, kRefused };
  Outcome outcome = Outcome::kRetry;
  std::string code = "0";       // for counters: "200", "grpc_14"; "0" where no answer came
  std::string reason;           // for counters, of a refusal: "http_400", "grpc_3"
  std::string why;              // one line, unless all is well
  bool other_protocol = false;  // who answers speaks another one than was expected
  int64_t rejected = 0;         // records, of a request that was delivered
  int64_t retry_after_ms = -1;  // what the server asked for; -1: nothing
  uint64_t bytes = 0;           // sent, compressed
};

class OtlpTransport;  // HTTP or gRPC to one place

class OtlpSender {
 public:
  static Result<std::unique_ptr<OtlpSender>> open(const OtlpTargets& targets);
  ~OtlpSender();

  // payload: an Export*ServiceRequest, not compressed.
  SendResult send(Signal signal, std::string_view payload);
  // Signals of the same lane go to the same place: if one cannot be delivered, neither can the other.
  size_t lane(Signal signal) const { return ways_[static_cast<size_t>(signal)].lane; }
  // Where it goes now.
  std::string place(Signal signal) const { return ways_[static_cast<size_t>(signal)].target.text(); }
  // What is tried next for this signal.
  Encoding encoding(Signal signal) const { return ways_[static_cast<size_t>(signal)].encoding; }

  static constexpr int64_t kRetryAfterMsMax = 600'000;

 private:
  struct Way {
    OtlpTarget target;
    Encoding encoding = Encoding::kIdentity;
    size_t lane = 0;
    std::array<int64_t, 4> token_stamp{};  // of the token's file, as read
  };
  OtlpSender() = default;
  void connect(size_t lane, const OtlpTarget& target);
  bool read_token_again(Way& way);                                 // true: there is a new one
  bool find_right_port(const Way& way, const SendResult& result);  // true: there is another one

  std::array<Way, 3> ways_;
  std::array<std::unique_ptr<OtlpTransport>, 3> transports_;  // by lane
  std::array<int64_t, 3> ports_asked_ns_{};                   // by lane; 0: never
};

// What a Retry-After header says, in milliseconds from now: seconds or an HTTP date. -1: not understood.
int64_t parse_retry_after(std::string_view value, int64_t now_unix_ns);
// google.rpc.Status: the message, and the delay of a google.rpc.RetryInfo among its details (-1: none).
struct RpcStatus {
  std::string message;
  int64_t retry_after_ms = -1;
};
Result<RpcStatus> decode_rpc_status(std::string_view bytes);

}  // namespace lockstep
