// Any bytes as a chunk: false or so many values, never a crash; and any doubles come back as they were.
#include <cstdlib>
#include <cstring>

#include "store/metrics/chunk_codec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::metrics;
  if (size == 0) return 0;
  const size_t rows = data[0] % (kChunkRowsMax + 1);
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  double values[kChunkRowsMax];
  int64_t times[kChunkRowsMax];
  ChunkSummary summary;
  (void)decode_values(bytes, rows, values);
  (void)read_summary(bytes, rows, summary);
  (void)decode_times(bytes, rows, times);

  std::vector<double> column(std::min(bytes.size() / 8, kChunkRowsMax));
  if (column.empty()) return 0;
  std::memcpy(column.data(), bytes.data(), column.size() * 8);
  std::string encoded;
  encode_values(column, data[0] % 2 == 0 ? WithSummary::kYes : WithSummary::kNo, encoded);
  if (!decode_values(encoded, column.size(), values)) std::abort();
  if (std::memcmp(values, column.data(), column.size() * 8) != 0) std::abort();
  std::vector<int64_t> ticks(column.size());
  std::memcpy(ticks.data(), column.data(), column.size() * 8);
  encoded.clear();
  encode_times(ticks, encoded);
  if (!decode_times(encoded, ticks.size(), times)) std::abort();
  if (std::memcmp(times, ticks.data(), ticks.size() * 8) != 0) std::abort();
  return 0;
}
