// Any bytes: reading and analysing a trace ends without a crash; every event is counted once; a failure is one line.
#include <cstdlib>

#include "profile/analysis.h"
#include "profile/read/trace_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  using namespace lockstep::profile;
  if (size < 1) return 0;
  ReadOptions options;
  options.window_bytes = data[0] % 2 == 0 ? 256 : 1 << 16;
  options.keep_python = data[0] % 4 < 2;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  Result<TraceEvents> events = read_trace(bytes_in_memory(bytes), options);
  if (!events.ok()) {
    if (events.error().empty() || events.error().find('\n') != std::string::npos) std::abort();
    return 0;
  }
  const ReadCounts& counts = events->counts;
  if (counts.events != counts.kept + counts.skipped + counts.bad + counts.too_many) std::abort();
  if (counts.kept != events->size() || events->detail.size() != events->size()) std::abort();
  // As two ranks of a job, so that what needs peers runs too.
  const auto open = [bytes] { return Result<std::unique_ptr<ByteSource>>(bytes_in_memory(bytes)); };
  AnalyzeOptions analyze_options;
  analyze_options.threads = 1;
  const Result<ProfileAnalysis> analysis = analyze({{"a", Rank{0}, open}, {"b", Rank{1}, open}}, analyze_options);
  if (!analysis.ok() || analysis->ranks.size() != 2 || analysis->verdict.sentence.empty()) std::abort();
  if (analysis_json(*analysis).empty()) std::abort();
  return 0;
}
