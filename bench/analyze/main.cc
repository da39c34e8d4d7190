// Analyses traces as `lockstep analyze` does and says what each part of it cost: for bench/analyze/compare.py.
//
//   analyze_bench [--within-steps] [--threads N] [--read-only] TRACE...
//
// The analysis as JSON on standard output; on standard error one line: seconds of reading and of all, CPU seconds, bytes
// of JSON, peak memory.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "profile/analysis.h"
#include "profile/read/trace_reader.h"

using namespace lockstep;
using namespace lockstep::profile;

namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

int main(int argc, char** argv) {
  AnalyzeOptions options;
  options.threads = 1;
  bool read_only = false;
  std::vector<TraceInput> inputs;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--within-steps") {
      options.index.within_steps = true;
    } else if (word == "--read-only") {
      read_only = true;
    } else if (word == "--threads" && i + 1 < argc) {
      options.threads = static_cast<size_t>(std::max(1, std::atoi(argv[++i])));
    } else {
      inputs.push_back({word, std::nullopt, [word] { return open_trace_file(word); }});
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  uint64_t bytes = 0;
  if (read_only) {
    for (const TraceInput& input : inputs) {
      Result<std::unique_ptr<ByteSource>> source = input.open();
      if (!source.ok()) return 1;
      const Result<TraceEvents> events = read_trace(std::move(*source));
      if (!events.ok()) return 1;
      bytes += events->counts.bytes;
    }
  } else {
    const Result<ProfileAnalysis> analysis = analyze(inputs, options);
    if (!analysis.ok()) {
      std::fprintf(stderr, "%s\n", analysis.error().c_str());
      return 1;
    }
    bytes = analysis->bytes;
    std::printf("%s\n", analysis_json(*analysis, 100'000).c_str());
  }
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  std::fprintf(stderr, "{\"wall_s\": %.4f, \"cpu_s\": %.4f, \"json_bytes\": %llu, \"rss_bytes\": %llu}\n",
               seconds_since(begin), seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime),
               static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(usage.ru_maxrss) * 1024);
  return 0;
}
