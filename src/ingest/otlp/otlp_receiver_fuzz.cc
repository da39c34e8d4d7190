// Any bytes as an OTLP/HTTP request: the answer has a known status, what the sink gets is what the log gets, and no
// record is lost unseen.
#include <algorithm>
#include <cstdlib>

#include "ingest/counters_table.h"
#include "ingest/otlp/otlp_handler.h"
#include "testing/fake_clock.h"
#include "wire/otlp.h"

namespace {

using namespace lockstep;

struct CheckingSink final : IngestSink {
  AcceptResult accept(Signal signal, Batch batch, std::string_view bytes, int64_t) override {
    Result<Batch> logged = otlp::decode(signal, bytes);
    if (!logged || logged->record_count() != batch.record_count() || batch.record_count() == 0) std::abort();
    return {};
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static testing::FakeClock clock;  // stands: one log line per reason for the whole run
  static CheckingSink sink;
  static Counters counters(kServerCounters);
  static OtlpHandler handler(sink, clock, counters, 1 << 20);
  static const bool quiet = (setenv("LOCKSTEP_LOG", "error", 1), true);
  (void)quiet;
  if (size < 1) return 0;
  static const char* const kPaths[] = {"/v1/metrics", "/v1/logs", "/v1/traces", "/v1/other"};
  static const char* const kTypes[] = {"application/x-protobuf", "application/json; charset=utf-8"};
  static const char* const kEncodings[] = {"", "gzip", "zstd", "br"};
  ServerRequest request;
  request.method = "POST";
  request.path = kPaths[data[0] & 3];
  request.headers = {{"content-type", kTypes[data[0] >> 2 & 1]}, {"content-encoding", kEncodings[data[0] >> 3 & 3]}};
  request.body.assign(reinterpret_cast<const char*>(data) + 1, size - 1);
  int status = handler.handle_http(request).status;
  static constexpr int kKnown[] = {200, 400, 404, 413, 415};
  if (std::find(std::begin(kKnown), std::end(kKnown), status) == std::end(kKnown)) std::abort();
  if (status == 200 && (data[0] >> 2 & 1) == 0)
    handler.handle_grpc("/opentelemetry.proto.collector.logs.v1.LogsService/Export", request.body);
  int64_t received = counters.sum("lockstep_ingest_received_records_total");
  if (received !=
      counters.sum("lockstep_ingest_passed_records_total") + counters.sum("lockstep_ingest_refused_records_total"))
    std::abort();
  return 0;
}
