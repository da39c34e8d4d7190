#include "server/recovery.h"

#include <algorithm>
#include <string_view>

#include "base/contained.h"
#include "base/log.h"
#include "base/text.h"
#include "ingest/otlp/span_decode.h"
#include "server/durable_sink.h"
#include "wire/otlp_metric_walk.h"
#include "wire/step_walk.h"

namespace lockstep {
namespace {

constexpr size_t kRollupsAtOnce = 256;

}  // namespace

bool replay(DurableLog& log, const ReadBackInto& into, const Clock& clock, Counters& counters,
            const std::function<bool()>& is_told_to_stop) {
  int64_t last_look_unix_ns = 0;
  int64_t look_cost_ns = 0;
  int64_t looked_at_ns = clock.monotonic_ns();
  int64_t started_ns = clock.monotonic_ns();
  uint64_t records = 0;
  bool stopping = false;
  auto apply = [&](uint64_t sequence, Signal signal, int64_t received_unix_ns, std::string_view payload) {
    if (signal == Signal::kSpans) {
      Result<DecodedSpans> decoded = decode_spans(payload);
      if (decoded.ok()) into.applier.apply_spans(std::move(decoded->columns), received_unix_ns, sequence);
      return decoded.ok();
    }
    if (signal == Signal::kMetrics) {
      Result<otlp::MetricsRequest> request = otlp::decode_metrics(payload);
      if (request.ok())
        into.applier.apply_metrics(heard_of(into.applier, *request), static_cast<int64_t>(request->points.size()),
                                   received_unix_ns, sequence);
      return request.ok();
    }
    Result<LogsRequest> request = otlp::decode_logs(payload);
    if (request.ok()) into.applier.apply_logs(std::move(*request), received_unix_ns, sequence);
    return request.ok();
  };
  Result<void> done =
      log.replay([&](uint64_t sequence, RecordKind kind, int64_t received_unix_ns, std::string_view payload) {
        if (stopping) return;
        if (kind >= RecordKind::kBusMetrics) {
          const std::optional<LogOrigin> origin = take_origin(payload);
          if (!origin) return counters.add("lockstep_replay_undecodable_records_total");
          into.origins.note(kind, *origin);
        }
        if (signal_of(kind) == Signal::kSpans && into.spans.holds(sequence, received_unix_ns))
          return;  // in files already
        if (into.set_aside.is_set_aside(sequence, received_unix_ns)) return;
        const SetAside::Applying applying(into.set_aside, sequence, received_unix_ns);
        bool decoded = true;
        const bool whole = contained("recovery", "a record", [&] {
          decoded = apply(sequence, signal_of(kind), received_unix_ns, payload);
          if (decoded && into.rollups.queued() >= kRollupsAtOnce) into.rollups.write();
        });
        if (!whole) counters.add("lockstep_server_failures_total", "what=\"replay\"");
        if (!decoded) {
          counters.add("lockstep_replay_undecodable_records_total");
          return;
        }
        ++records;
        int64_t now_ns = clock.monotonic_ns();
        if (received_unix_ns - last_look_unix_ns < kLookEveryNs || now_ns - looked_at_ns < look_cost_ns) return;
        const bool looked = contained("recovery", "a look at jobs", [&] {
          into.engine.tick(received_unix_ns);
          into.tail.tick(received_unix_ns);
          // What came while the clock was ahead is no reason to judge what is yet to come.
          into.sle.tick(std::min(received_unix_ns, clock.unix_ns()), clock.unix_ns());
        });
        if (!looked) counters.add("lockstep_server_failures_total", "what=\"look\"");
        last_look_unix_ns = received_unix_ns;
        looked_at_ns = clock.monotonic_ns();
        look_cost_ns = looked_at_ns - now_ns;
        stopping = is_told_to_stop();
      });
  if (!done.ok()) LOCKSTEP_LOG_ERROR("server", "recovery: %s", done.error().c_str());
  if (records > 0) {
    LOCKSTEP_LOG_INFO("server", "recovery: %llu records read back in %s", static_cast<unsigned long long>(records),
                      human_duration(static_cast<double>(clock.monotonic_ns() - started_ns)).c_str());
  }
  return !stopping;
}

}  // namespace lockstep
