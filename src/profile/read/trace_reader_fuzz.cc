// Any bytes: reading and analysing a trace ends without a crash; every event is counted once; a failure is one line.
#include "profile/read/trace_reader.h"
#include "profile/testing/read_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace lockstep::profile;
  if (size < 1) return 0;
  ReadOptions options;
  options.window_bytes = data[0] % 2 == 0 ? 256 : 1 << 16;
  options.keep_python = data[0] % 4 < 2;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  if (!testing::check_read(read_trace(bytes_in_memory(bytes), options))) return 0;
  testing::check_analysis(
      {.label = "a", .open = [bytes] { return Result<std::unique_ptr<ByteSource>>(bytes_in_memory(bytes)); }}, {});
  return 0;
}
