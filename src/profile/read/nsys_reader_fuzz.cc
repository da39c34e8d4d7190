// Any bytes, and a good export with some bytes changed: reading ends without a crash, every event is counted once, a failure
// is one line.
#include <cstdlib>
#include <cstring>

#include "profile/analysis.h"
#include "profile/read/nsys_reader.h"
#include "profile/testing/nsys_export.h"

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
  if (!events.ok()) {
    if (events.error().empty() || events.error().find('\n') != std::string::npos) std::abort();
    return 0;
  }
  const ReadCounts& counts = events->counts;
  if (counts.events != counts.kept + counts.skipped + counts.bad + counts.too_many) std::abort();
  if (counts.kept != events->size() || events->detail.size() != events->size()) std::abort();
  const auto read = [&](const ReadOptions& with) { return read_nsys_bytes(bytes, with); };
  AnalyzeOptions analyze_options;
  analyze_options.threads = 1;
  analyze_options.read = options;
  const Result<ProfileAnalysis> analysis =
      analyze({{"a", Rank{0}, nullptr, read}, {"b", Rank{1}, nullptr, read}}, analyze_options);
  if (!analysis.ok() || analysis_json(*analysis).empty()) std::abort();
  return 0;
}
