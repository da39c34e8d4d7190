// Any bytes as a remote write request: the answer has a known status, and no sample is lost unseen.
#include <algorithm>
#include <cstdlib>

#include "ingest/counters_table.h"
#include "ingest/remote_write_door.h"
#include "wire/compression.h"

namespace {

using namespace lockstep;

struct FixedClock final : Clock {
  int64_t unix_ns() const override { return 1'700'000'000'000'000'000; }
  int64_t monotonic_ns() const override { return 1; }  // one log line per reason for the whole run
};

struct AskingWriter final : MetricWriter {
  Result<PushOutcome> push(std::string_view, std::span<const PushedSeries> series,
                           const std::function<Result<Labels>(size_t)>& canonical) override {
    PushOutcome outcome;
    for (size_t k = 0; k < series.size(); ++k) {
      Result<Labels> labels = canonical(k);
      if (!labels.ok()) {
        outcome.refused.push_back(
            {"labels_invalid", series[k].times_ms.size(), series[k].histograms.size(), labels.error()});
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
  static AskingWriter writer;
  static MetricIntake intake(writer, clock, counters);
  static RemoteWriteDoor door(intake, clock, counters, 1 << 20);
  static const bool quiet = (setenv("LOCKSTEP_LOG", "error", 1), true);
  (void)quiet;
  if (size < 1) return 0;
  static const char* const kTypes[] = {"application/x-protobuf",
                                       "application/x-protobuf;proto=io.prometheus.write.v2.Request"};
  ServerRequest request;
  request.method = "POST";
  request.headers = {{"content-type", kTypes[data[0] & 1]}, {"content-encoding", "snappy"}};
  request.body.assign(reinterpret_cast<const char*>(data) + 1, size - 1);
  if ((data[0] & 2) != 0) request.body = *snappy_compress(request.body);
  const int status = door.handle(request).status;
  static constexpr int kKnown[] = {204, 400, 413};
  if (std::find(std::begin(kKnown), std::end(kKnown), status) == std::end(kKnown)) std::abort();
  if (counters.sum("lockstep_ingest_received_records_total") !=
      counters.sum("lockstep_ingest_passed_records_total") + counters.sum("lockstep_ingest_refused_records_total"))
    std::abort();
  return 0;
}
