#include "server/durable_sink.h"

#include <algorithm>

#include "base/text.h"

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
      return Signal::kMetrics;
    case RecordKind::kOtlpLogs:
      return Signal::kLogs;
    case RecordKind::kOtlpSpans:
      return Signal::kSpans;
  }
  return Signal::kLogs;
}

Batch heard_of(const Applier& applier, const otlp::MetricsRequest& request) {
  return otlp::to_batch(request, [&](std::string_view name) { return applier.hears_metric(name); });
}

// A record's turn to be applied. However it ends, the next one has its turn after it.
class LOCKSTEP_SCOPED_CAPABILITY DurableSink::Turn {
 public:
  Turn(DurableSink& sink, uint64_t sequence) LOCKSTEP_ACQUIRE(sink.turn_mutex_) : sink_(sink) {
    if (sink_.waiting_.fetch_add(1) == 0) sink_.moved_ns_ = sink_.clock_.monotonic_ns();
    sink_.turn_mutex_.lock();
    sink_.turn_changed_.wait(sink_.turn_mutex_, [&] { return sink_.next_to_apply_ == sequence; });
    sink_.moved_ns_ = sink_.clock_.monotonic_ns();
  }
  ~Turn() LOCKSTEP_RELEASE() {
    ++sink_.next_to_apply_;
    sink_.moved_ns_ = sink_.clock_.monotonic_ns();
    sink_.waiting_.fetch_sub(1);
    sink_.turn_mutex_.unlock();
    sink_.turn_changed_.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  DurableSink& sink_;
};

DurableSink::DurableSink(DurableLog& log, Applier& applier, MetricMapping& metrics, uint64_t queued_bytes_max,
                         const Clock& clock, SetAside* set_aside, MemoryBudget* memory)
    : log_(log),
      applier_(applier),
      metrics_(metrics),
      queued_bytes_max_(queued_bytes_max),
      clock_(clock),
      set_aside_(set_aside),
      memory_(memory),
      next_to_apply_(log.next_sequence()) {}

AcceptResult DurableSink::accept(Signal signal, Batch batch, std::string_view otlp_protobuf_bytes,
                                 int64_t received_unix_ns) {
  if (signal == Signal::kMetrics) {
    Result<otlp::MetricsRequest> request = otlp::decode_metrics(otlp_protobuf_bytes);
    if (!request.ok()) return {AcceptError::kUnavailable, 0, request.error()};
    return accept_metrics(*request, otlp_protobuf_bytes, received_unix_ns);
  }
  return accept_with(signal, otlp_protobuf_bytes, received_unix_ns,
                     [&](uint64_t sequence) { applier_.apply(signal, std::move(batch), received_unix_ns, sequence); });
}

AcceptResult DurableSink::accept_logs(LogsRequest request, std::string_view otlp_protobuf_bytes,
                                      int64_t received_unix_ns) {
  return accept_with(Signal::kLogs, otlp_protobuf_bytes, received_unix_ns,
                     [&](uint64_t sequence) { applier_.apply_logs(std::move(request), received_unix_ns, sequence); });
}

AcceptResult DurableSink::accept_metrics(const otlp::MetricsRequest& request, std::string_view otlp_protobuf_bytes,
                                         int64_t received_unix_ns) {
  if (closed_) return {AcceptError::kUnavailable, 0, "the server is shutting down"};
  Result<MetricMapping::Outcome> stored = metrics_.push(kOtlpSamplesReceiver, request, received_unix_ns);
  if (!stored.ok()) return {AcceptError::kUnavailable, 0, stored.error()};
  const int64_t points = static_cast<int64_t>(request.points.size());
  Batch heard = heard_of(applier_, request);
  AcceptResult logged = accept_with(Signal::kMetrics, otlp_protobuf_bytes, received_unix_ns, [&](uint64_t sequence) {
    applier_.apply_metrics(std::move(heard), points, received_unix_ns, sequence);
  });
  if (logged.error != AcceptError::kNone) return logged;
  // A point may be several samples.
  return {AcceptError::kNone, std::min(static_cast<int64_t>(stored->refused), points), std::move(stored->line)};
}

AcceptResult DurableSink::accept_spans(spans::SpanColumns columns, std::string_view otlp_protobuf_bytes,
                                       int64_t received_unix_ns) {
  return accept_with(Signal::kSpans, otlp_protobuf_bytes, received_unix_ns,
                     [&](uint64_t sequence) { applier_.apply_spans(std::move(columns), received_unix_ns, sequence); });
}

AcceptResult DurableSink::accept_with(Signal signal, std::string_view otlp_protobuf_bytes, int64_t received_unix_ns,
                                      const std::function<void(uint64_t sequence)>& apply) {
  if (closed_) return {AcceptError::kUnavailable, 0, "the server is shutting down"};
  uint64_t bytes = otlp_protobuf_bytes.size();
  MemoryLease queued(memory_, MemoryUse::kQueue);
  if (!queued.hold(bytes)) return {AcceptError::kOverloaded, 0, kMemorySpent};
  uint64_t before = queued_bytes_.fetch_add(bytes);
  if (before > 0 && before + bytes > queued_bytes_max_) {  // one alone always fits
    queued_bytes_.fetch_sub(bytes);
    return {AcceptError::kOverloaded, 0,
            format("%llu bytes are waiting for the disk (limit %llu); try again",
                   static_cast<unsigned long long>(before), static_cast<unsigned long long>(queued_bytes_max_))};
  }
  Result<uint64_t> sequence = Error{"not appended"};
  {
    struct GiveBack {  // however this ends
      std::atomic<uint64_t>& queued;
      uint64_t bytes;
      ~GiveBack() { queued.fetch_sub(bytes); }
    } give_back{queued_bytes_, bytes};
    sequence = log_.append(record_kind_of(signal), received_unix_ns, otlp_protobuf_bytes);
  }
  queued.reset();
  if (!sequence.ok()) return {AcceptError::kUnavailable, 0, sequence.error()};

  const Turn turn(*this, *sequence);
  std::optional<SetAside::Applying> applying;
  if (set_aside_ != nullptr) applying.emplace(*set_aside_, *sequence, received_unix_ns);
  apply(*sequence);
  return {};
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
