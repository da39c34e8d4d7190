// What requests say of their senders' clocks: told to the clock witness (base/clock_witness.h), which says in return how late
// it may be. Admission refuses what is later (admission.h).
//
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/clock_witness.h"
#include "ingest/otlp/span_decode.h"
#include "model/step_report.h"
#include "model/telemetry.h"
#include "wire/otlp_metric_walk.h"

namespace lockstep {

class SenderClocks {
 public:
  // nullptr: nobody is asked, and the server's clock is right.
  explicit SenderClocks(ClockWitness* witness) : witness_(witness) {}

  // The latest time that it may be, now that this has come. now_ns: by the server's clock.
  int64_t latest_now(std::span<const ResourceGroup> groups, int64_t now_ns);
  int64_t latest_now(const LogsRequest& request, int64_t now_ns);
  int64_t latest_now(const otlp::MetricsRequest& request, int64_t now_ns);
  int64_t latest_now(const DecodedSpans& spans, int64_t now_ns);
  // Where what comes says nothing of now.
  int64_t latest_now(int64_t now_ns) const { return witness_ == nullptr ? now_ns : witness_->now().latest_unix_ns; }

 private:
  int64_t latest_now(const Attributes& resource, int64_t sent_unix_ns, int64_t now_ns);
  int64_t latest_now(std::string_view sender, int64_t sent_unix_ns, int64_t now_ns);

  ClockWitness* const witness_;
};

}  // namespace lockstep
