// Any bytes: no crash, one line on error, and what was read is written and read again as the same.
#include <cstdlib>

#include "wire/otlp.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (Signal signal : {Signal::kMetrics, Signal::kLogs, Signal::kSpans}) {
    Result<Batch> batch = otlp::decode(signal, bytes);
    if (!batch.ok()) {
      if (batch.error().empty() || batch.error().find('\n') != std::string::npos) std::abort();
      continue;
    }
    // Compared as bytes: NaN is equal to itself there.
    std::string encoded = otlp::encode(*batch);
    Result<Batch> again = otlp::decode(signal, encoded);
    if (!again.ok() || otlp::encode(*again) != encoded || again->record_count() != batch->record_count()) std::abort();
  }
  (void)otlp::decode_response(bytes);
  return 0;
}
