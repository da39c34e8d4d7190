// Turns a decoded batch into appends to the stores and then tells the subscribers. The same code runs when a door has
// accepted a batch and when the durable log is replayed, so both give the same stores.
//
// Metrics: subscribers hear of them; they are stored by their own doors (ingest/metric_mapping.h), whose store has a
// log
//   of its own.
// Logs: Lockstep's events (model/events.h) become rows; every record is also kept as a log record. A record that has a
//   Lockstep event name and cannot be read as one is counted, and kept as a log record only.
//
// Order: batches are applied one after the other in the order of the calls; the caller keeps log order.
// Thread rule: Thread-safe (one mutex). subscribe() before the first apply().
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/counters.h"
#include "model/telemetry.h"
#include "store/agent_registry.h"
#include "store/span_store.h"
#include "store/step_store.h"
#include "store/subscriber.h"

namespace lockstep {

class Applier {
 public:
  Applier(StepStore& steps, SpanStore& spans, AgentRegistry& agents, Counters& counters)
      : steps_(steps), spans_(spans), agents_(agents), counters_(counters) {}

  void subscribe(StoreSubscriber& subscriber) { subscribers_.push_back(&subscriber); }
  // log_sequence: of the record of the durable log; 0: of none.
  void apply(Signal signal, Batch batch, int64_t received_unix_ns, uint64_t log_sequence = 0);
  // Spans as columns. log_sequence: as for SpanStore::append().
  void apply_spans(spans::SpanColumns columns, int64_t received_unix_ns, uint64_t log_sequence);
  // The last record of the durable log that is in the stores. Records that were passed over need not be told one by
  // one.
  uint64_t applied_through() const { return applied_through_; }
  void set_applied_through(uint64_t log_sequence) { applied_through_ = log_sequence; }

 private:
  void note_agent(const Attributes& resource, int64_t received_unix_ns, int64_t records_lost);
  // How many records the sender says were lost; the reason in *refused where the record cannot be read as its event.
  int64_t apply_event(const LogRecord& record, const Attributes& resource, int64_t received_unix_ns,
                      const char** refused);

  StepStore& steps_;
  SpanStore& spans_;
  AgentRegistry& agents_;
  Counters& counters_;
  std::vector<StoreSubscriber*> subscribers_;
  std::atomic<uint64_t> applied_through_{0};
  std::mutex mutex_;  // one batch at a time
};

}  // namespace lockstep
