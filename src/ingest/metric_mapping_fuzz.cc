// Any bytes as an OTLP metrics request: what otlp::decode() takes the mapping takes, every point of it is a series or
// refused with a reason, and labels are as the store wants them.
#include <algorithm>
#include <cstdlib>

#include "ingest/counters_table.h"
#include "ingest/metric_mapping.h"
#include "model/series_labels.h"
#include "wire/otlp.h"

namespace {

using namespace lockstep;

struct FixedClock final : Clock {
  int64_t unix_ns() const override { return 1'700'000'000'000'000'000; }
  int64_t monotonic_ns() const override { return 1; }
};

struct CheckingWriter final : MetricWriter {
  Result<PushOutcome> push(std::string_view, std::span<const PushedSeries> series,
                           const std::function<Result<Labels>(size_t)>& canonical) override {
    PushOutcome outcome;
    for (size_t k = 0; k < series.size(); ++k) {
      if (series[k].values.size() + series[k].histograms.size() != series[k].times_ms.size()) std::abort();
      Result<Labels> labels = canonical(k);
      if (!labels.ok()) {
        outcome.refused.push_back({"labels_invalid", 1, series[k].histograms.size(), labels.error()});
      } else if (!std::is_sorted(labels->begin(), labels->end()) || *canonical_labels(*labels) != *labels) {
        std::abort();
      }
    }
    return outcome;
  }
  void set_metadata(std::string_view, std::string_view, std::string_view, std::string_view) override {}
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static FixedClock clock;
  static Counters counters(kServerCounters);
  static CheckingWriter writer;
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
