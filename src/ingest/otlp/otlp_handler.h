// An OTLP request to its answer: check, decode, admit, hand to the sink, acknowledge. No sockets in here;
// otlp_receivers.h puts it behind them.
//
// On error (HTTP): 404 path, 405 method (Allow), 415 content type or encoding, 413 too large when decompressed, 400
// malformed,
//   429 overloaded and 503 unavailable (Retry-After). Errors about the content are a google.rpc.Status in the request's
//   own encoding, errors about the envelope one line of text.
// On error (gRPC): UNIMPLEMENTED method, INVALID_ARGUMENT malformed, RESOURCE_EXHAUSTED too large when decompressed, or
//   overloaded (then with RetryInfo), UNAVAILABLE.
// Names: a batch with a host or a job that belongs to another owner (access/name_owners.h) is refused as a whole, 403 or
//   PERMISSION_DENIED with one line that names it.
// Refused records: partial success with one line; the rest of the batch is kept.
// Counts: received = passed + refused[reason] + dropped[reason], per receiver and signal. A request that cannot be
// decoded is
//   counted apart: nobody knows how many records it had.
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "access/name_owners.h"
#include "base/clock.h"
#include "base/clock_witness.h"
#include "base/counters.h"
#include "base/memory_budget.h"
#include "base/rate_limited_log.h"
#include "ingest/otlp/admission.h"
#include "ingest/otlp/sender_clocks.h"
#include "ingest/otlp/sink.h"
#include "net/grpc_server.h"
#include "net/http_server.h"
#include "wire/otlp_metric_walk.h"

namespace lockstep {

inline constexpr std::string_view kOtlpHttpReceiver = "otlp_http";
inline constexpr std::string_view kOtlpGrpcReceiver = "otlp_grpc";

class OtlpHandler {
 public:
  // body_bytes_max: of a request after decompression. witness: hears the senders' clocks and says which time is
  // credible; nullptr: the server's clock alone is. memory: where a request's is taken from until it is answered, and
  // overloaded where there is none; nullptr: no limit for all together. owners:
  // whose hosts and jobs a caller may feed; nullptr: anybody's.
  OtlpHandler(IngestSink& sink, const Clock& clock, Counters& counters, uint64_t body_bytes_max,
              ClockWitness* witness = nullptr, MemoryBudget* memory = nullptr, NameOwners* owners = nullptr);

  HttpResponse handle_http(const ServerRequest& request);
  GrpcServerResponse handle_grpc(const std::string& path, const std::string& body, const Caller& caller = {});
  // The message encodings of gRPC (gzip, zstd).
  GrpcServerResponse decompress_grpc(std::string_view encoding, std::string_view data, uint64_t bytes_max);

 private:
  struct Outcome {
    AcceptError error = AcceptError::kNone;
    int64_t refused = 0;
    std::string message;
    bool is_forbidden = false;  // a host or job in it is another owner's; nothing was taken
  };
  HttpResponse post(Signal signal, const ServerRequest& request);
  struct Request {
    std::string_view receiver;
    Signal signal;
    std::string_view bytes;  // in protobuf, or the whole of it in JSON
    bool json;
    MemoryLease& lease;
    const Caller& caller;
  };
  Result<Outcome> decode_and_ingest(const Request& request);
  Result<Outcome> ingest_json(const Request& request, int64_t now_ns);
  Result<Outcome> ingest_spans(const Request& request, int64_t now_ns);
  Result<Outcome> undecodable(const Request& request, const std::string& error);
  void count_bytes(const Request& request);
  // Nullopt: every host and job named there is the caller's to feed.
  std::optional<Outcome> forbidden(std::string_view receiver, const Attributes& resource, const Caller& caller);
  std::optional<Outcome> forbidden(std::string_view receiver, std::string_view host, std::string_view job_id,
                                   const Caller& caller);
  Outcome no_memory(std::string_view receiver);
  // protobuf: what the request was read from, here and below; empty: it came in JSON.
  Result<Outcome> ingest_logs(std::string_view receiver, LogsRequest request, std::string_view protobuf, int64_t now_ns,
                              const Caller& caller);
  Outcome ingest_metrics(std::string_view receiver, otlp::MetricsRequest& request, std::string_view bytes,
                         int64_t now_ns);
  // An admitted batch: `encode` gives it in protobuf where `bytes` is empty or holds more than was admitted, `accept`
  // hands it to the sink with those bytes.
  Outcome ingest(std::string_view receiver, Signal signal, const AdmissionReport& admission, std::string_view bytes,
                 const std::function<std::string()>& encode,
                 const std::function<AcceptResult(std::string_view bytes)>& accept);
  void count_request(std::string_view receiver, Signal signal, int code);
  void count_undecodable(std::string_view receiver, const char* reason, const std::string& line);

  IngestSink& sink_;
  const Clock& clock_;
  Counters& counters_;
  const uint64_t body_bytes_max_;
  SenderClocks clocks_;
  MemoryBudget* const memory_;
  NameOwners* const owners_;
  RateLimitedLog log_;
};

}  // namespace lockstep
