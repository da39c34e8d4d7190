// Where an admitted batch goes: the durable log and the stores behind it.
//
// Thread rule: Thread-safe; the receivers call accept() from many threads at once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "model/step_report.h"
#include "model/telemetry.h"
#include "store/spans/span_columns.h"
#include "wire/otlp_metric_walk.h"

namespace lockstep {

enum class AcceptError {
  kNone,
  kOverloaded,   // not now, soon: the sender is told to try again (429, RESOURCE_EXHAUSTED)
  kUnavailable,  // disk full, shutting down: the sender is told to try again later (503, UNAVAILABLE)
};

struct AcceptResult {
  AcceptError error = AcceptError::kNone;
  int64_t rejected = 0;  // records of the batch that were not taken, with kNone only
  std::string message;   // one line, why
};

class IngestSink {
 public:
  virtual ~IngestSink() = default;
  // otlp_protobuf_bytes: the batch as an Export*ServiceRequest; valid during the call only. What is accepted is durable
  // when the call returns. On an error nothing of the batch has been taken.
  virtual AcceptResult accept(Signal signal, Batch batch, std::string_view otlp_protobuf_bytes,
                              int64_t received_unix_ns) = 0;
  // Logs come with their steps taken out, from every receiver.
  virtual AcceptResult accept_logs(LogsRequest request, std::string_view otlp_protobuf_bytes,
                                   int64_t received_unix_ns) {
    return accept(Signal::kLogs, to_batch(std::move(request)), otlp_protobuf_bytes, received_unix_ns);
  }
  // Metrics come as they were read, from every receiver. request: valid during the call only, as the bytes are.
  virtual AcceptResult accept_metrics(const otlp::MetricsRequest& request, std::string_view otlp_protobuf_bytes,
                                      int64_t received_unix_ns) {
    return accept(Signal::kMetrics, otlp::to_batch(request), otlp_protobuf_bytes, received_unix_ns);
  }
  // Spans come as columns, from every receiver.
  virtual AcceptResult accept_spans(spans::SpanColumns columns, std::string_view otlp_protobuf_bytes,
                                    int64_t received_unix_ns) {
    return accept(Signal::kSpans, spans::to_batch(columns), otlp_protobuf_bytes, received_unix_ns);
  }
};

}  // namespace lockstep
