// What is given up first when there is no room for all: one table for the agent's spool, for a gateway whose brokers are
// away and for a server that cannot keep up. Verdicts live on events: hangs (rank.status), hardware (gpu.xid, ...), ends of
// jobs and gaps are taken to the last byte.
//
// A spool of our own data (the agent's) drops the oldest of the lowest value. Who has promised a sender to keep what it
// took (a server, a gateway) drops nothing: it takes each value up to a share of its room, so that what is left over is
// for what is worth more; who is refused keeps its data and tries again.
// Thread rule: Thread-safe (no state).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "model/step_report.h"
#include "model/telemetry.h"

namespace lockstep {

enum class DataValue : uint8_t { kMetrics, kSpans, kSteps, kEvents };  // the lowest first

struct DataValueRow {
  DataValue value;
  const char* name;
  double taken_below;  // of the room that is bounded
};
inline constexpr std::array kDataValueTable{
    DataValueRow{DataValue::kMetrics, "metrics", 0.60},  // samples: the next one comes in a second
    DataValueRow{DataValue::kSpans, "spans", 0.75},      // steps in detail
    DataValueRow{DataValue::kSteps, "steps", 0.90},      // summaries of steps, and plain lines
    DataValueRow{DataValue::kEvents, "events", 1.00},
};
inline constexpr size_t kDataValues = kDataValueTable.size();

constexpr const DataValueRow& row_of(DataValue value) {
  return kDataValueTable[static_cast<size_t>(value)];
}
constexpr const char* to_text(DataValue value) {
  return row_of(value).name;
}
// How much of a room of room_bytes may be full for this to be taken.
constexpr uint64_t taken_below_bytes(DataValue value, uint64_t room_bytes) {
  return value == DataValue::kEvents
             ? room_bytes
             : static_cast<uint64_t>(static_cast<double>(room_bytes) * row_of(value).taken_below);
}

// Where nothing more is known; of logs kSteps.
DataValue value_of(Signal signal);
// Of logs, steps and plain lines are kSteps, every other event kEvents. The most valuable record decides.
DataValue value_of(const Batch& batch);
DataValue value_of(const LogsRequest& request);

}  // namespace lockstep
