#include "server/durable_sink.h"

#include <algorithm>
#include <memory>
#include <set>

#include "base/contained.h"
#include "base/text.h"
#include "ingest/otlp/span_decode.h"
#include "wire/otlp.h"
#include "wire/step_walk.h"

namespace lockstep {

RecordKind record_kind_of(Signal signal) {
  switch (signal) {
    case Signal::kMetrics:
      return RecordKind::kOtlpMetrics;
    case Signal::kLogs:
      return RecordKind::kOtlpLogs;
    case Signal::kSpans:
      return RecordKind::kOtlpSpans;
  }
  return RecordKind::kOtlpLogs;
}

Signal signal_of(RecordKind kind) {
  switch (kind) {
    case RecordKind::kOtlpMetrics:
    case RecordKind::kBusMetrics:
    case RecordKind::kSpooledMetrics:
      return Signal::kMetrics;
    case RecordKind::kOtlpLogs:
    case RecordKind::kBusLogs:
    case RecordKind::kSpooledLogs:
      return Signal::kLogs;
    case RecordKind::kOtlpSpans:
    case RecordKind::kBusSpans:
    case RecordKind::kSpooledSpans:
      return Signal::kSpans;
  }
  return Signal::kLogs;
}

RecordKind bus_kind_of(Signal signal) {
  switch (signal) {
    case Signal::kMetrics:
      return RecordKind::kBusMetrics;
    case Signal::kLogs:
      return RecordKind::kBusLogs;
    case Signal::kSpans:
      return RecordKind::kBusSpans;
  }
  return RecordKind::kBusLogs;
}

Batch heard_of(const Applier& applier, const otlp::MetricsRequest& request) {
  return otlp::to_batch(request, [&](std::string_view name) { return applier.hears_metric(name); });
}

// A record of the bus that was received so shortly ago says what time it is where it comes from.
constexpr int64_t kNewsNs = 5'000'000'000;

// On disk and not applied yet: stuck() looks at how long nothing moves.
class DurableSink::Unapplied {
 public:
  explicit Unapplied(DurableSink& sink) : sink_(sink) {
    if (sink_.waiting_.fetch_add(1) == 0) sink_.moved_ns_ = sink_.clock_.monotonic_ns();
  }
  ~Unapplied() {
    sink_.moved_ns_ = sink_.clock_.monotonic_ns();
    sink_.waiting_.fetch_sub(1);
  }
  Unapplied(const Unapplied&) = delete;
  Unapplied& operator=(const Unapplied&) = delete;

 private:
  DurableSink& sink_;
};

// A record's turn to be applied. However it ends, the next one has its turn after it.
class LOCKSTEP_SCOPED_CAPABILITY DurableSink::Turn {
 public:
  Turn(DurableSink& sink, uint64_t sequence) LOCKSTEP_ACQUIRE(sink.turn_mutex_) : sink_(sink), unapplied_(sink) {
    sink_.turn_mutex_.lock();
    sink_.turn_changed_.wait(sink_.turn_mutex_, [&] { return sink_.next_to_apply_ == sequence; });
    sink_.moved_ns_ = sink_.clock_.monotonic_ns();
  }
  ~Turn() LOCKSTEP_RELEASE() {
    ++sink_.next_to_apply_;
    sink_.turn_mutex_.unlock();
    sink_.turn_changed_.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  DurableSink& sink_;
  const Unapplied unapplied_;
};

// Refused where there is no room behind what waits already.
class DurableSink::Queued {
 public:
  Queued(DurableSink& sink, DataValue value, uint64_t bytes) : sink_(sink), lease_(sink.memory_, MemoryUse::kQueue) {
    if (!lease_.hold(bytes)) {
      refused_ = AcceptResult{AcceptError::kOverloaded, 0, kMemorySpent};
      return;
    }
    bytes_ = bytes;
    const uint64_t waiting = sink_.queued_bytes_.fetch_add(bytes);
    const uint64_t limit = taken_below_bytes(value, sink_.queued_bytes_max_);
    if (waiting == 0 || waiting + bytes <= limit) return;  // one alone always fits
    refused_ = AcceptResult{
        AcceptError::kOverloaded, 0,
        format("%llu bytes are waiting for the disk (limit for %s %llu); try again",
               static_cast<unsigned long long>(waiting), to_text(value), static_cast<unsigned long long>(limit))};
  }
  ~Queued() { sink_.queued_bytes_.fetch_sub(bytes_); }
  Queued(const Queued&) = delete;
  Queued& operator=(const Queued&) = delete;

  std::optional<AcceptResult>& refused() { return refused_; }

 private:
  DurableSink& sink_;
  MemoryLease lease_;
  uint64_t bytes_ = 0;
  std::optional<AcceptResult> refused_;
};

DurableSink::DurableSink(DurableLog& log, Applier& applier, MetricMapping& metrics, uint64_t queued_bytes_max,
                         const Clock& clock, SetAside* set_aside, MemoryBudget* memory, ClockWitness* witness)
    : log_(log),
      applier_(applier),
      metrics_(metrics),
      queued_bytes_max_(queued_bytes_max),
      clock_(clock),
      set_aside_(set_aside),
      memory_(memory),
      bus_log_(clock, "bus"),
      clocks_(witness),
      next_to_apply_(log.next_sequence()) {}

AcceptResult DurableSink::accept(Signal signal, Batch batch, std::string_view otlp_protobuf_bytes,
                                 int64_t received_unix_ns) {
  if (signal == Signal::kMetrics) {
    Result<otlp::MetricsRequest> request = otlp::decode_metrics(otlp_protobuf_bytes);
    if (!request.ok()) return {AcceptError::kUnavailable, 0, request.error()};
    return accept_metrics(*request, otlp_protobuf_bytes, received_unix_ns);
  }
  return accept_with(signal, value_of(batch), otlp_protobuf_bytes, received_unix_ns,
                     [&](uint64_t sequence) { applier_.apply(signal, std::move(batch), received_unix_ns, sequence); });
}

AcceptResult DurableSink::accept_logs(LogsRequest request, std::string_view otlp_protobuf_bytes,
                                      int64_t received_unix_ns) {
  return accept_with(Signal::kLogs, value_of(request), otlp_protobuf_bytes, received_unix_ns,
                     [&](uint64_t sequence) { applier_.apply_logs(std::move(request), received_unix_ns, sequence); });
}

AcceptResult DurableSink::accept_metrics(const otlp::MetricsRequest& request, std::string_view otlp_protobuf_bytes,
                                         int64_t received_unix_ns) {
  if (closed_) return {AcceptError::kUnavailable, 0, "the server is shutting down"};
  Result<MetricMapping::Outcome> stored = Error{"not stored"};
  {
    Queued queued(*this, DataValue::kMetrics, otlp_protobuf_bytes.size());
    if (queued.refused()) return std::move(*queued.refused());
    stored = metrics_.push(kOtlpSamplesReceiver, request, received_unix_ns);
  }
  if (!stored.ok()) return {AcceptError::kUnavailable, 0, stored.error()};
  const int64_t points = static_cast<int64_t>(request.points.size());
  const Unapplied unapplied(*this);
  contained("apply", "metrics",
            [&] { applier_.apply_metrics(heard_of(applier_, request), points, received_unix_ns, 0); });
  // A point may be several samples.
  return {AcceptError::kNone, std::min(static_cast<int64_t>(stored->refused), points), std::move(stored->line)};
}

AcceptResult DurableSink::accept_spans(spans::SpanColumns columns, std::string_view otlp_protobuf_bytes,
                                       int64_t received_unix_ns) {
  return accept_with(Signal::kSpans, DataValue::kSpans, otlp_protobuf_bytes, received_unix_ns,
                     [&](uint64_t sequence) { applier_.apply_spans(std::move(columns), received_unix_ns, sequence); });
}

AcceptResult DurableSink::accept_with(Signal signal, DataValue value, std::string_view otlp_protobuf_bytes,
                                      int64_t received_unix_ns, const std::function<void(uint64_t sequence)>& apply) {
  if (closed_) return {AcceptError::kUnavailable, 0, "the server is shutting down"};
  Result<uint64_t> sequence = Error{"not appended"};
  {
    Queued queued(*this, value, otlp_protobuf_bytes.size());
    if (queued.refused()) return std::move(*queued.refused());
    sequence = log_.append(record_kind_of(signal), received_unix_ns, otlp_protobuf_bytes);
  }
  if (!sequence.ok()) return {AcceptError::kUnavailable, 0, sequence.error()};

  apply_in_turn(*sequence, received_unix_ns, apply);
  return {};
}

void DurableSink::apply_in_turn(uint64_t sequence, int64_t received_unix_ns,
                                const std::function<void(uint64_t sequence)>& apply) {
  const Turn turn(*this, sequence);
  std::optional<SetAside::Applying> applying;
  if (set_aside_ != nullptr) applying.emplace(*set_aside_, sequence, received_unix_ns);
  contained("apply", "a record of the log", [&] { apply(sequence); });
}

// History says nothing of its senders' clocks now.
template <typename Request>
int64_t DurableSink::latest_now(const Request& request, int64_t received_unix_ns) {
  const int64_t now_ns = clock_.unix_ns();
  return now_ns - received_unix_ns < kNewsNs ? clocks_.latest_now(request, now_ns) : clocks_.latest_now(now_ns);
}

Result<DurableSink::Decoded> DurableSink::decode_spans(const TakenRecord& record, MemoryLease& lease) {
  Result<DecodedSpans> spans = lockstep::decode_spans(record.payload, &lease);
  if (!spans.ok()) return Decoded();
  Decoded decoded{.is_readable = true};
  decoded.admission = admit(spans->columns, spans->latest_unix_ns, latest_now(*spans, record.received_unix_ns));
  if (decoded.admission.refused > 0) decoded.kept = otlp::encode(spans::to_batch(spans->columns));
  auto columns = std::make_shared<spans::SpanColumns>(std::move(spans->columns));
  decoded.apply = [this, columns, received = record.received_unix_ns](uint64_t sequence) {
    applier_.apply_spans(std::move(*columns), received, sequence);
  };
  return decoded;
}

Result<DurableSink::Decoded> DurableSink::decode_metrics(const TakenRecord& record, MemoryLease& lease) {
  Result<otlp::MetricsRequest> request = otlp::decode_metrics(record.payload, &lease);
  if (!request.ok()) return Decoded();
  Decoded decoded{.is_readable = true};
  decoded.admission = admit(*request, latest_now(*request, record.received_unix_ns));
  decoded.kept = "";  // where it stood on the bus is enough: its samples are in their store
  LOCKSTEP_TRY(metrics_.push(kOtlpSamplesReceiver, *request, record.received_unix_ns));
  auto heard = std::make_shared<Batch>(heard_of(applier_, *request));
  const auto points = static_cast<int64_t>(request->points.size());
  decoded.apply = [this, heard, points, received = record.received_unix_ns](uint64_t sequence) {
    applier_.apply_metrics(std::move(*heard), points, received, sequence);
  };
  return decoded;
}

Result<DurableSink::Decoded> DurableSink::decode_logs(const TakenRecord& record, MemoryLease& lease) {
  Result<LogsRequest> request = otlp::decode_logs(record.payload, &lease);
  if (!request.ok()) return Decoded();
  Decoded decoded{.is_readable = true};
  decoded.admission = admit(*request, latest_now(*request, record.received_unix_ns));
  if (decoded.admission.refused > 0) decoded.kept = otlp::encode(to_batch(*request));
  auto logs = std::make_shared<LogsRequest>(std::move(*request));
  decoded.apply = [this, logs, received = record.received_unix_ns](uint64_t sequence) {
    applier_.apply_logs(std::move(*logs), received, sequence);
  };
  return decoded;
}

Result<DurableSink::Decoded> DurableSink::decode(const TakenRecord& record, MemoryLease& lease) {
  if (!lease.add(record.payload.size())) return Error{kMemorySpent};  // as it goes into the log
  const Signal signal = signal_of(record.place.kind);
  Result<Decoded> decoded = signal == Signal::kSpans     ? decode_spans(record, lease)
                            : signal == Signal::kMetrics ? decode_metrics(record, lease)
                                                         : decode_logs(record, lease);
  if (decoded.ok() && !decoded->is_readable && lease.was_refused()) return Error{kMemorySpent};
  return decoded;
}

void DurableSink::refuse(const TakenRecord& record, const char* reason, const std::string& why, Tally& tally) {
  ++tally.refused[reason];
  bus_log_.warn(reason,
                format("%s, partition %d, offset %lld: %s; it is passed over", to_text(signal_of(record.place.kind)),
                       record.place.partition, static_cast<long long>(record.offset), why.c_str()));
}

bool DurableSink::prepare(const TakenRecord& record, const LogOrigin& origin, MemoryLease& lease,
                          std::vector<Prepared>& prepared, Tally& tally, FromBus& outcome) {
  Result<Decoded> decoded = decode(record, lease);
  if (!decoded.ok()) {
    const bool is_alone = lease.was_refused() && prepared.empty();
    if (!is_alone || lease.wanted() <= memory_->bytes_max() / kRecordMemoryShare) {
      outcome.line = decoded.error();
      outcome.no_memory = is_alone;
      return false;
    }
    // There will not be so much by waiting.
    refuse(record, "memory", "it takes more memory than there is for one (--memory-max)", tally);
    lease = MemoryLease(memory_, MemoryUse::kQueue);
    return true;
  }
  const AdmissionReport& admission = decoded->admission;
  const Signal signal = signal_of(record.place.kind);
  if (!decoded->is_readable) {
    refuse(record, "undecodable", "it cannot be read", tally);
  } else if (admission.refused > 0 && admission.refused == admission.received) {
    refuse(record, "not_admitted", admission.message, tally);
    tally.add(signal, admission);
  } else {
    if (admission.refused > 0)
      bus_log_.warn(admission.first_reason, format("%s: %s", to_text(signal), admission.message.c_str()));
    tally.add(signal, admission);
    const std::string_view bytes = decoded->kept ? std::string_view(*decoded->kept) : record.payload;
    prepared.push_back(
        {origin, bus_kind_of(signal), with_origin(origin, bytes), record.received_unix_ns, std::move(decoded->apply)});
  }
  return true;
}

DurableSink::FromBus DurableSink::prepare_all(std::span<const TakenRecord> records, const BusOrigins& origins,
                                              MemoryLease& lease, std::vector<Prepared>& prepared, Tally& tally) {
  uint64_t logged_bytes = 0;
  std::set<std::array<uint8_t, 16>> digests;
  FromBus outcome;
  for (const TakenRecord& record : records) {
    if (closed_) return {outcome.done, "the server is shutting down"};
    const RecordKind kind = bus_kind_of(signal_of(record.place.kind));
    LogOrigin origin{record.cluster, record.place.partition, record.offset, {}};
    if (origins.is_read_again(kind, origin)) {
      ++tally.read_again;
    } else if (record.payload.size() > BusWriter::kRecordBytesMax) {
      refuse(record, "too_large", "it is longer than any request may be", tally);
    } else {
      origin.digest = digest_of(record.payload);
      const bool is_sent_again = origins.is_sent_again(origin) || digests.contains(origin.digest);
      if (is_sent_again) {
        ++tally.sent_again;
      } else {
        logged_bytes += sizeof origin + record.payload.size();
        if (logged_bytes > DurableLog::kRecordBytesMax) return outcome;  // together: the rest next time
        if (!prepare(record, origin, lease, prepared, tally, outcome)) return outcome;
        digests.insert(origin.digest);
      }
    }
    ++outcome.done;
  }
  return outcome;
}

void DurableSink::Tally::add(Signal signal, const AdmissionReport& admission) {
  received_within[signal] += admission.received;
  passed_within[signal] += admission.received - admission.refused;
  for (const auto& [reason, count] : admission.refused_by_reason)
    refused_within[format("receiver=\"%s\",signal=\"%s\",reason=\"%s\"", kBusReceiver, to_text(signal),
                          reason.c_str())] += count;
}

void DurableSink::Tally::count(Counters& counters) const {
  const auto add = [&](const char* name, const std::string& labels, int64_t count) {
    if (count > 0) counters.add(name, labels, count);
  };
  const auto labels_of = [](Signal signal) {
    return format("receiver=\"%s\",signal=\"%s\"", kBusReceiver, to_text(signal));
  };
  add("lockstep_bus_records_dropped_total", "reason=\"read_again\"", read_again);
  add("lockstep_bus_records_dropped_total", "reason=\"sent_again\"", sent_again);
  for (const auto& [reason, count] : refused)
    add("lockstep_bus_records_refused_total", format("reason=\"%s\"", reason.c_str()), count);
  for (const auto& [signal, count] : received_within)
    add("lockstep_ingest_received_records_total", labels_of(signal), count);
  for (const auto& [labels, count] : refused_within) add("lockstep_ingest_refused_records_total", labels, count);
  for (const auto& [signal, count] : passed_within)
    add("lockstep_ingest_passed_records_total", labels_of(signal), count);
}

DurableSink::FromBus DurableSink::take(std::span<const TakenRecord> records, BusOrigins& origins, Counters& counters,
                                       const std::function<void(int64_t received_unix_ns)>& before) {
  MemoryLease lease(memory_, MemoryUse::kQueue);
  std::vector<Prepared> prepared;
  Tally tally;
  FromBus outcome = prepare_all(records, origins, lease, prepared, tally);
  if (!prepared.empty()) {
    std::vector<AppendedRecord> entries;
    for (const Prepared& one : prepared) entries.push_back({one.kind, one.received_unix_ns, one.logged});
    Result<uint64_t> first = log_.append_all(entries);
    if (!first.ok()) return {0, first.error()};
    // They are in the log: whatever fails, each has its turn, or nobody's would ever come again.
    for (size_t i = 0; i < prepared.size(); ++i) {
      contained("bus", "noting a record", [&] { origins.note(prepared[i].kind, prepared[i].origin); });
      if (before) contained("bus", "a look at history", [&] { before(prepared[i].received_unix_ns); });
      apply_in_turn(*first + i, prepared[i].received_unix_ns, prepared[i].apply);
    }
  }
  counters.add("lockstep_bus_records_applied_total", "", static_cast<int64_t>(prepared.size()));
  tally.count(counters);
  return outcome;
}

std::optional<std::string> DurableSink::stuck(int64_t now_ns) const {
  const int64_t waiting = waiting_;
  const int64_t still_ns = now_ns - moved_ns_;
  if (waiting == 0 || still_ns < kStuckNs) return std::nullopt;
  return format("nothing was applied for %s: record %llu of the log, and %lld wait",
                human_duration(static_cast<double>(still_ns)).c_str(),
                static_cast<unsigned long long>(next_to_apply_.load()), static_cast<long long>(waiting));
}

}  // namespace lockstep
