// Any bytes, and a good export with some bytes changed: reading ends without a crash, every event is counted once, a failure
// is one line.
#include <cstring>

#include "profile/read/nsys_reader.h"
#include "profile/testing/nsys_export.h"
#include "profile/testing/read_checks.h"

namespace {

std::string good_export() {
  lockstep::profile::testing::NsysExport file;
  for (int i = 0; i < 30; ++i) {
    const long long at = i * 10'000;
    file.range(17, "step " + std::to_string(i), at, at + 9'000);
    file.range(17, "aten::mm, seq = 4", at + 500, at + 5'000);
    file.kernel(17, i % 3 == 0 ? "ncclDevKernel_AllReduce" : "gemm", at + 1'000, at + 4'000, at + 9'000);
    file.copy(17, i % 11, 8'000, at, at + 100);
  }
  return file.bytes();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace lockstep::profile;
  if (size < 1) return 0;
  static const std::string kGood = good_export();
  std::string bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] % 4 != 0) {
    std::string changed = kGood;
    for (size_t at = 0; at + 4 <= bytes.size(); at += 4) {
      uint32_t change = 0;
      std::memcpy(&change, bytes.data() + at, sizeof change);
      changed[(change >> 8) % changed.size()] = static_cast<char>(change);
    }
    bytes = std::move(changed);
  }
  ReadOptions options;
  options.events_max = 10'000;
  const Result<TraceEvents> events = read_nsys_bytes(bytes, options);
  if (!testing::check_read(events)) return 0;
  testing::check_analysis({.label = "a", .read = [&](const ReadOptions& with) { return read_nsys_bytes(bytes, with); }},
                          options);
  return 0;
}
