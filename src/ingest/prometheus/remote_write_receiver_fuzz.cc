// Any bytes as a remote write request: the answer has a known status, and no sample is lost unseen.
#include <algorithm>
#include <cstdlib>

#include "ingest/counters_table.h"
#include "ingest/prometheus/remote_write_receiver.h"
#include "ingest/testing/fuzz_world.h"
#include "testing/fake_clock.h"
#include "wire/compression.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static testing::FakeClock clock;  // stands: one log line per reason for the whole run
  static Counters counters(kServerCounters);
  static testing::CheckingWriter writer;
  static MetricIntake intake(writer, clock, counters);
  static RemoteWriteReceiver receiver(intake, clock, counters, 1 << 20);
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
  const int status = receiver.handle(request).status;
  static constexpr int kKnown[] = {204, 400, 413};
  if (std::find(std::begin(kKnown), std::end(kKnown), status) == std::end(kKnown)) std::abort();
  if (counters.sum("lockstep_ingest_received_records_total") !=
      counters.sum("lockstep_ingest_passed_records_total") + counters.sum("lockstep_ingest_refused_records_total"))
    std::abort();
  return 0;
}
