// What a receiver lets in, record by record. A record is refused, and the rest of its batch kept, if
//   - its time is more than kAheadMaxNs ahead of the latest that is credible (future_time; base/clock_witness.h): one
//     wrong clock must not move "now" for a job;
//   - it is a train.step, rank.status or comm.init event that cannot be read (bad_train_step, bad_rank_status,
//     bad_comm_init), or whose resource names no job and rank (bad_identity).
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/clock_witness.h"
#include "model/step_report.h"
#include "model/telemetry.h"
#include "store/spans/span_columns.h"
#include "wire/otlp_metric_walk.h"

namespace lockstep {

inline constexpr int64_t kAheadMaxNs = ClockWitness::kToleranceNs;

struct AdmissionReport {
  int64_t received = 0;
  int64_t refused = 0;
  std::map<std::string, int64_t> refused_by_reason;
  // One line for the sender and the log, empty where nothing was refused: the first refused record, why, and the
  // counts.
  std::string message;
  std::string first_reason;
};

// Takes refused records out of the batch, which is one of logs or spans. server_unix_ns: the latest time that it may be.
AdmissionReport admit(Batch& batch, int64_t server_unix_ns);
AdmissionReport admit(LogsRequest& request, int64_t server_unix_ns);
AdmissionReport admit(otlp::MetricsRequest& request, int64_t server_unix_ns);
// Spans: latest_unix_ns is the latest of their starts and ends, unsigned; they are looked at one by one only where that
// is too late.
AdmissionReport admit(spans::SpanColumns& columns, uint64_t latest_unix_ns, int64_t server_unix_ns);

}  // namespace lockstep
