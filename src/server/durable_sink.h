// Where the receivers put a batch: into the durable log and then, in the log's order, into the stores and diagnosis.
// Metrics go into their store alone, which has a log of its own and may refuse some, and then to diagnosis; after a start
// it hears them again from that store (server/heard_metrics.h).
//
// When accept() has returned without an error the batch is on disk (metrics: as --metric-ack says) and seen by every query.
// On error: kOverloaded while more than queued_bytes_max, or than there is memory for, are waiting for the disk; what is
//           worth less is turned away before that (model/data_value.h).
//           kUnavailable when the log refuses
//           (disk full) or close() was called. Nothing of the batch is kept then.
// A record that fails while it is applied (apply/applier.h) is on disk and acknowledged all the same: its turn ends,
// the next ones come. Thread rule: Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apply/applier.h"
#include "base/clock.h"
#include "base/counters.h"
#include "base/memory_budget.h"
#include "base/mutex.h"
#include "base/rate_limited_log.h"
#include "bus/log.h"
#include "bus/telemetry_bus.h"
#include "ingest/otlp/admission.h"
#include "ingest/otlp/metric_mapping.h"
#include "ingest/otlp/sender_clocks.h"
#include "ingest/otlp/sink.h"
#include "model/data_value.h"
#include "server/bus_origins.h"
#include "server/set_aside.h"

namespace lockstep {

RecordKind record_kind_of(Signal signal);
Signal signal_of(RecordKind kind);

// The points of a request that somebody hears, as objects.
Batch heard_of(const Applier& applier, const otlp::MetricsRequest& request);

// The receiver under which MetricIntake counts the samples that OTLP points became.
inline constexpr std::string_view kOtlpSamplesReceiver = "otlp_samples";

class DurableSink final : public IngestSink {
 public:
  // A record that waits for its turn for longer than any request may take waits for one that never ends.
  static constexpr int64_t kStuckNs = 30'000'000'000;

  // After the log has been replayed. set_aside: told which record is being applied; nullptr: nobody is. memory: where
  // what waits for the disk is taken from; nullptr: no limit besides. witness: for take(), as OtlpHandler's.
  DurableSink(DurableLog& log, Applier& applier, MetricMapping& metrics, uint64_t queued_bytes_max, const Clock& clock,
              SetAside* set_aside = nullptr, MemoryBudget* memory = nullptr, ClockWitness* witness = nullptr);

  AcceptResult accept(Signal signal, Batch batch, std::string_view otlp_protobuf_bytes,
                      int64_t received_unix_ns) override;
  AcceptResult accept_logs(LogsRequest request, std::string_view otlp_protobuf_bytes,
                           int64_t received_unix_ns) override;
  AcceptResult accept_metrics(const otlp::MetricsRequest& request, std::string_view otlp_protobuf_bytes,
                              int64_t received_unix_ns) override;
  AcceptResult accept_spans(spans::SpanColumns columns, std::string_view otlp_protobuf_bytes,
                            int64_t received_unix_ns) override;
  // Records of the bus between machines, in its order: how many of them, from the first on, are done with: in the log and
  // applied, or known already, or refused for good (not to be read, over BusWriter::kRecordBytesMax, in need of more than
  // 1 / kRecordMemoryShare of the memory). The others are to be handed over again, for the reason in `line`.
  // What is in them is admitted as receivers do (ingest/otlp/admission.h): not all who write to a bus are our gateways.
  // For one thread. origins: what the log has of the bus. counters: rows kBusCounters and those of ingest, as the receiver
  // kBusReceiver.
  static constexpr const char* kBusReceiver = "kafka";
  static constexpr uint64_t kRecordMemoryShare = 4;
  struct FromBus {
    size_t done = 0;
    std::string line = {};
    bool no_memory = false;  // for the first of the others, by itself
  };
  // before: called before each is applied, with the time at which it was received; may be empty.
  FromBus take(std::span<const TakenRecord> records, BusOrigins& origins, Counters& counters,
               const std::function<void(int64_t received_unix_ns)>& before = {});
  void close() { closed_ = true; }
  // One line that says what does not move; nullopt: records are applied, or none wait. now_ns: Clock::monotonic_ns().
  // Takes no lock, so that it answers while one is held for ever.
  std::optional<std::string> stuck(int64_t now_ns) const;

 private:
  // apply is called with the record's sequence, when all before it have been applied.
  AcceptResult accept_with(Signal signal, DataValue value, std::string_view bytes, int64_t received_unix_ns,
                           const std::function<void(uint64_t sequence)>& apply);
  // Bytes that wait for the disk, as long as this is there.
  class Queued;

  // A record of the bus that is to be applied once it is in the log.
  struct Prepared {
    LogOrigin origin;
    RecordKind kind;  // as the log has it
    std::string logged;
    int64_t received_unix_ns = 0;
    std::function<void(uint64_t sequence)> apply;
  };
  // What became of the records of one take(), besides those that are applied, and of what is in them.
  struct Tally {
    int64_t read_again = 0, sent_again = 0;
    std::map<std::string, int64_t> refused;         // by reason
    std::map<Signal, int64_t> received_within;      // steps, samples, spans
    std::map<std::string, int64_t> refused_within;  // by labels
    std::map<Signal, int64_t> passed_within;
    void add(Signal signal, const AdmissionReport& admission);
    void count(Counters& counters) const;
  };
  struct Decoded {
    std::function<void(uint64_t sequence)> apply = {};  // empty: there is nothing to be applied
    std::optional<std::string> kept = {};               // for the log, where it is not all of the record
    AdmissionReport admission = {};
    bool is_readable = false;
  };
  // What a record says; samples are in their store already. An error: it is to be handed over again.
  Result<Decoded> decode(const TakenRecord& record, MemoryLease& lease);
  Result<Decoded> decode_logs(const TakenRecord& record, MemoryLease& lease);
  Result<Decoded> decode_metrics(const TakenRecord& record, MemoryLease& lease);
  Result<Decoded> decode_spans(const TakenRecord& record, MemoryLease& lease);
  template <typename Request>
  int64_t latest_now(const Request& request, int64_t received_unix_ns);
  // False: it is to be handed over again, as the outcome says.
  bool prepare(const TakenRecord& record, const LogOrigin& origin, MemoryLease& lease, std::vector<Prepared>& prepared,
               Tally& tally, FromBus& outcome);
  FromBus prepare_all(std::span<const TakenRecord> records, const BusOrigins& origins, MemoryLease& lease,
                      std::vector<Prepared>& prepared, Tally& tally);
  void refuse(const TakenRecord& record, const char* reason, const std::string& why, Tally& tally);
  void apply_in_turn(uint64_t sequence, int64_t received_unix_ns, const std::function<void(uint64_t sequence)>& apply);
  class Unapplied;
  class Turn;

  DurableLog& log_;
  Applier& applier_;
  MetricMapping& metrics_;
  const uint64_t queued_bytes_max_;
  const Clock& clock_;
  SetAside* const set_aside_;
  MemoryBudget* const memory_;
  RateLimitedLog bus_log_;
  SenderClocks clocks_;
  std::atomic<uint64_t> queued_bytes_{0};
  std::atomic<bool> closed_{false};

  // Appends return in any order; a record is applied when all before it are.
  Mutex turn_mutex_;
  ConditionVariable turn_changed_;
  std::atomic<uint64_t> next_to_apply_;  // changed under turn_mutex_
  std::atomic<int64_t> waiting_{0};      // what is on disk and not applied
  std::atomic<int64_t> moved_ns_{0};     // a turn began or ended, or the first came to wait
};

}  // namespace lockstep
