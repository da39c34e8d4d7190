// Any bytes as an OTLP metrics request: what otlp::decode() takes the mapping takes, every point of it is a series or
// refused with a reason, and labels are as the store wants them.
#include <cstdlib>

#include "ingest/counters_table.h"
#include "ingest/otlp/metric_mapping.h"
#include "ingest/testing/fuzz_world.h"
#include "testing/fake_clock.h"
#include "wire/otlp.h"

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
  Result<Batch> batch = otlp::decode(Signal::kMetrics, bytes);
  Result<MetricMapping::Outcome> outcome = mapping.push("otlp_http", bytes, clock.unix_ns());
  if (batch.ok() && !outcome.ok()) std::abort();
  const int64_t received = counters.sum("lockstep_ingest_received_records_total");
  if (batch.ok() && received - before < static_cast<int64_t>(batch->record_count())) std::abort();
  if (received !=
      counters.sum("lockstep_ingest_passed_records_total") + counters.sum("lockstep_ingest_refused_records_total"))
    std::abort();
  return 0;
}
