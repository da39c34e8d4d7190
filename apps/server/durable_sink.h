// Where the doors put a batch: into the durable log and then, in the log's order, into the stores and diagnosis.
// Metrics go into their store first, which has a log of its own and may refuse some; in the durable log they are for
// diagnosis, which reads its signals back from there.
//
// When accept() has returned without an error the batch is on disk and seen by every query.
// On error: kOverloaded while more than queued_bytes_max, or than there is memory for, are waiting for the disk;
//           kUnavailable when the log refuses
//           (disk full) or close() was called. Nothing of the batch is kept then.
// Thread rule: Thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

#include "base/counters.h"
#include "base/memory_budget.h"
#include "bus/log.h"
#include "ingest/metric_mapping.h"
#include "ingest/sink.h"
#include "store/applier.h"

namespace lockstep {

RecordKind record_kind_of(Signal signal);
Signal signal_of(RecordKind kind);

// The door under which MetricIntake counts the samples that OTLP points became.
inline constexpr std::string_view kOtlpSamplesDoor = "otlp_samples";

class DurableSink final : public IngestSink {
 public:
  // After the log has been replayed. memory: where what waits for the disk is taken from; nullptr: no limit besides.
  DurableSink(DurableLog& log, Applier& applier, MetricMapping& metrics, uint64_t queued_bytes_max,
              MemoryBudget* memory = nullptr);

  AcceptResult accept(Signal signal, Batch batch, std::string_view otlp_protobuf_bytes,
                      int64_t received_unix_ns) override;
  AcceptResult accept_spans(spans::SpanColumns columns, std::string_view otlp_protobuf_bytes,
                            int64_t received_unix_ns) override;
  void close() { closed_ = true; }

 private:
  // apply is called with the record's sequence, when all before it have been applied.
  AcceptResult accept_with(Signal signal, std::string_view bytes, int64_t received_unix_ns,
                           const std::function<void(uint64_t sequence)>& apply);

  DurableLog& log_;
  Applier& applier_;
  MetricMapping& metrics_;
  const uint64_t queued_bytes_max_;
  MemoryBudget* const memory_;
  std::atomic<uint64_t> queued_bytes_{0};
  std::atomic<bool> closed_{false};

  // Appends return in any order; a record is applied when all before it are.
  std::mutex turn_mutex_;
  std::condition_variable turn_changed_;
  uint64_t next_to_apply_;  // under turn_mutex_
};

}  // namespace lockstep
