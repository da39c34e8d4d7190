// Any bytes as an OTLP metrics request: what can be read the mapping takes, every point of it is a series or
// refused with a reason, and labels are as the store wants them.
#include <cstdlib>

#include "ingest/counters_table.h"
#include "ingest/otlp/metric_mapping.h"
#include "ingest/testing/fuzz_world.h"
#include "testing/fake_clock.h"
#include "wire/otlp_metric_walk.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static testing::FakeClock clock;  // stands: one log line per reason for the whole run
  static Counters counters(kServerCounters);
  static testing::CheckingWriter writer;
  static const bool quiet = (setenv("LOCKSTEP_LOG", "error", 1), true);
  (void)quiet;
  MetricIntake intake(writer, clock, counters);
  MetricMapping mapping(intake, clock);
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const int64_t before = counters.sum("lockstep_ingest_received_records_total");
  const Result<otlp::MetricsRequest> request = otlp::decode_metrics(bytes);
  if (!request.ok()) return 0;
  if (!mapping.push("otlp_http", *request, clock.unix_ns()).ok()) std::abort();
  const int64_t received = counters.sum("lockstep_ingest_received_records_total");
  if (received - before < static_cast<int64_t>(request->points.size())) std::abort();
  if (otlp::to_batch(*request).record_count() != request->points.size()) std::abort();
  if (received !=
      counters.sum("lockstep_ingest_passed_records_total") + counters.sum("lockstep_ingest_refused_records_total"))
    std::abort();
  return 0;
}
