// Posts batches to an OTLP/HTTP server the way an agent does: protobuf, zstd where built in, tried again with back-off
// while the server says 429 or 503 or is not there.
//
// Counts:   every request ends as sent or failed; every record as accepted, rejected (the server's partial success) or
// failed.
// Thread rule: Confined, but totals() may be read from anywhere.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include "base/mutex.h"
#include "model/telemetry.h"
#include "net/http_client.h"

namespace lockstep::sim {

struct SendTotals {
  int64_t requests_sent = 0;
  int64_t requests_failed = 0;
  int64_t retries = 0;
  int64_t records_accepted = 0;
  int64_t records_rejected = 0;
  int64_t records_failed = 0;
  int64_t bytes = 0;       // on the wire, compressed
  std::string last_error;  // of the last failure or rejection
};

class OtlpSender {
 public:
  // patience_ms: how long a batch is tried. After one was given up the next are tried once each, until one gets
  // through: a job does not stand still because its telemetry does.
  explicit OtlpSender(Url server, int64_t patience_ms = 15'000);
  // False: given up. A stop ends the waiting between tries, not the first try.
  bool send(const Batch& batch, std::stop_token stop);
  SendTotals totals() const;

 private:
  HttpClient client_;
  const int64_t patience_ms_;
  bool gave_up_ = false;
  mutable Mutex mutex_;
  SendTotals totals_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::sim
