#include "apps/server/counters_table.h"

#include <vector>

#include "bus/log_counters.h"
#include "store/store_counters.h"

namespace lockstep {
namespace {

constexpr CounterDescriptor kDoorCounters[] = {
    {"lockstep_http_requests_total", "counter", Severity::kInfo, "Requests answered, by door and status code."},
    {"lockstep_http_bad_requests_total", "counter", Severity::kNotice,
     "Requests refused before a handler saw them, by door and reason."},
    {"lockstep_http_connections", "gauge", Severity::kInfo, "Open connections, by door."},
    {"lockstep_ingest_requests_total", "counter", Severity::kInfo,
     "OTLP requests answered, by door, signal and status code."},
    {"lockstep_ingest_bytes_total", "counter", Severity::kInfo, "Bytes of OTLP requests after decompression, by door."},
    {"lockstep_ingest_undecodable_requests_total", "counter", Severity::kDataLoss,
     "OTLP requests that could not be read, by door and reason."},
    {"lockstep_ingest_received_records_total", "counter", Severity::kInfo,
     "Records in OTLP requests, by door and signal."},
    {"lockstep_ingest_passed_records_total", "counter", Severity::kInfo,
     "Records made durable and stored, by door and signal."},
    {"lockstep_ingest_refused_records_total", "counter", Severity::kDataLoss,
     "Records refused, by door, signal and reason; senders were told."},
    {"lockstep_replay_undecodable_records_total", "counter", Severity::kDataLoss,
     "Records of the durable log that could not be decoded at start."},
};

}  // namespace

std::span<const CounterDescriptor> server_counters() {
  static const std::vector<CounterDescriptor> table = [] {
    std::vector<CounterDescriptor> rows(std::begin(kDoorCounters), std::end(kDoorCounters));
    rows.insert(rows.end(), std::begin(kLogCounters), std::end(kLogCounters));
    rows.insert(rows.end(), std::begin(kStoreCounters), std::end(kStoreCounters));
    return rows;
  }();
  return table;
}

}  // namespace lockstep
