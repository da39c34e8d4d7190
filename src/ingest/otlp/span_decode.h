// OTLP trace requests straight into columns: the receivers' fast way, and how the durable log is read back.
//
// Gives the same spans as otlp::decode() for every request, and fails with the same line. Budget: 2 M collective spans
// per core-second with storing (bench/traces).
// Thread rule: Thread-safe (no state).
#pragma once

#include <string_view>

#include "base/memory_budget.h"
#include "base/result.h"
#include "model/telemetry.h"
#include "store/spans/span_columns.h"

namespace lockstep {

struct DecodedSpans {
  spans::SpanColumns columns;
  uint64_t latest_unix_ns = 0;  // of all starts and ends, unsigned as OTLP has them
};

// lease: where the memory for them is taken from; its owner keeps it as long as the columns.
Result<DecodedSpans> decode_spans(std::string_view otlp_protobuf_bytes, MemoryLease* lease = nullptr);
DecodedSpans to_columns(const Batch& batch);

}  // namespace lockstep
