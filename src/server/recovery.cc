#include "server/recovery.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/contained.h"
#include "base/log.h"
#include "base/text.h"
#include "ingest/otlp/span_decode.h"
#include "server/durable_sink.h"
#include "server/heard_metrics.h"
#include "wire/step_walk.h"

namespace lockstep {
namespace {

constexpr size_t kRollupsAtOnce = 256;
constexpr int64_t kAheadNs = 600'000'000'000;  // a sample may be so far ahead of the clock

// Records of the log into the stores, with a look at the jobs now and then, as it was when they came.
class ReadBack {
 public:
  ReadBack(const ReadBackInto& into, const Clock& clock, Counters& counters,
           const std::function<bool()>& is_told_to_stop)
      : into_(into),
        clock_(clock),
        counters_(counters),
        is_told_to_stop_(is_told_to_stop),
        looked_at_ns_(clock.monotonic_ns()) {}

  void take(uint64_t sequence, RecordKind kind, int64_t received_unix_ns, std::string_view payload) {
    if (stopping_) return;
    if (kind >= RecordKind::kBusMetrics) {
      const std::optional<LogOrigin> origin = take_origin(payload);
      if (!origin) return counters_.add("lockstep_replay_undecodable_records_total");
      into_.origins.note(kind, *origin);
    }
    tell_metrics(received_unix_ns);
    if (signal_of(kind) == Signal::kMetrics) return;  // they are in their store
    if (signal_of(kind) == Signal::kSpans && into_.spans.holds(sequence, received_unix_ns)) return;  // in files already
    if (into_.set_aside.is_set_aside(sequence, received_unix_ns)) return;
    const SetAside::Applying applying(into_.set_aside, sequence, received_unix_ns);
    bool decoded = true;
    const bool whole = contained("recovery", "a record", [&] {
      decoded = apply(sequence, signal_of(kind), received_unix_ns, payload);
      if (decoded && into_.rollups.queued() >= kRollupsAtOnce) into_.rollups.write();
    });
    if (!whole) counters_.add("lockstep_server_failures_total", "what=\"replay\"");
    if (!decoded) {
      counters_.add("lockstep_replay_undecodable_records_total");
      return;
    }
    ++records_;
    look_at_jobs(received_unix_ns);
  }
  // What was heard up to the time of a record, before it; where there is none, up to now.
  void tell_metrics(int64_t through_unix_ns) {
    const bool whole = contained("recovery", "metrics", [&] {
      if (!heard_) {
        const int64_t now_unix_ns = clock_.unix_ns();
        heard_.emplace(into_.metrics, into_.applier, into_.set_aside,
                       std::min(through_unix_ns, now_unix_ns) - kMetricsBeforeNs, now_unix_ns + kAheadNs);
      }
      heard_->tell_through(through_unix_ns);
    });
    if (!whole) counters_.add("lockstep_server_failures_total", "what=\"replay\"");
  }
  void tell_rest() { tell_metrics(clock_.unix_ns() + kAheadNs); }
  bool stopping() const { return stopping_; }
  uint64_t points() const { return heard_ ? heard_->points() : 0; }
  uint64_t records() const { return records_; }

 private:
  // False: it cannot be decoded.
  bool apply(uint64_t sequence, Signal signal, int64_t received_unix_ns, std::string_view payload) {
    if (signal == Signal::kSpans) {
      Result<DecodedSpans> decoded = decode_spans(payload);
      if (decoded.ok()) into_.applier.apply_spans(std::move(decoded->columns), received_unix_ns, sequence);
      return decoded.ok();
    }
    Result<LogsRequest> request = otlp::decode_logs(payload);
    if (request.ok()) into_.applier.apply_logs(std::move(*request), received_unix_ns, sequence);
    return request.ok();
  }

  // Where enough time has passed in the log, and enough here for what the last look took.
  void look_at_jobs(int64_t received_unix_ns) {
    const int64_t now_ns = clock_.monotonic_ns();
    if (received_unix_ns - last_look_unix_ns_ < kLookEveryNs || now_ns - looked_at_ns_ < look_cost_ns_) return;
    const bool looked = contained("recovery", "a look at jobs", [&] {
      into_.engine.tick(received_unix_ns);
      into_.tail.tick(received_unix_ns);
      // What came while the clock was ahead is no reason to judge what is yet to come.
      into_.sle.tick(std::min(received_unix_ns, clock_.unix_ns()), clock_.unix_ns());
    });
    if (!looked) counters_.add("lockstep_server_failures_total", "what=\"look\"");
    last_look_unix_ns_ = received_unix_ns;
    looked_at_ns_ = clock_.monotonic_ns();
    look_cost_ns_ = looked_at_ns_ - now_ns;
    stopping_ = is_told_to_stop_();
  }

  const ReadBackInto& into_;
  const Clock& clock_;
  Counters& counters_;
  const std::function<bool()>& is_told_to_stop_;
  std::optional<HeardMetrics> heard_;
  int64_t last_look_unix_ns_ = 0;
  int64_t look_cost_ns_ = 0;
  int64_t looked_at_ns_;
  uint64_t records_ = 0;
  bool stopping_ = false;
};

}  // namespace

bool replay(DurableLog& log, const ReadBackInto& into, const Clock& clock, Counters& counters,
            const std::function<bool()>& is_told_to_stop) {
  const int64_t started_ns = clock.monotonic_ns();
  ReadBack back(into, clock, counters, is_told_to_stop);
  Result<void> done =
      log.replay([&](uint64_t sequence, RecordKind kind, int64_t received_unix_ns, std::string_view payload) {
        back.take(sequence, kind, received_unix_ns, payload);
      });
  if (!done.ok()) LOCKSTEP_LOG_ERROR("server", "recovery: %s", done.error().c_str());
  if (!back.stopping()) back.tell_rest();
  if (back.records() > 0 || back.points() > 0) {
    LOCKSTEP_LOG_INFO("server", "recovery: %llu records and %llu points of metrics read back in %s",
                      static_cast<unsigned long long>(back.records()), static_cast<unsigned long long>(back.points()),
                      human_duration(static_cast<double>(clock.monotonic_ns() - started_ns)).c_str());
  }
  return !back.stopping();
}

}  // namespace lockstep
