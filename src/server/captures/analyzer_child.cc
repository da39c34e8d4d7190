#include "server/captures/analyzer_child.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/files.h"
#include "base/limited_process.h"
#include "base/text.h"
#include "profile/analysis.h"
#include "profile/ranks/perfetto_export.h"
#include "profile/timeline/timeline_writer.h"
#include "wire/compression.h"

namespace lockstep {
namespace {

using profile::AnalyzeOptions;
using profile::ByteSource;
using profile::ProfileAnalysis;
using profile::TraceInput;

constexpr size_t kTracesMax = 10'000;
constexpr size_t kManifestLineMax = 400;
// What the process takes before it reads anything, and a trace while it is read.
constexpr uint64_t kOwnMemoryBytes = 256u << 20;
constexpr uint64_t kEventMemoryBytes = 250;  // in columns, indexes and what analyses make of them
constexpr uint64_t kEventsLeast = 10'000;
constexpr uint64_t kJsonBytesMax = 64ull << 30;     // of one trace, inflated
constexpr uint64_t kPerfettoEventsMax = 5'000'000;  // its UI holds all of it in the browser's memory

Result<void> send(AnalyzerFrame frame, std::string_view bytes) {
  do {
    const std::string_view piece = bytes.substr(0, kFrameBytesMax);
    char head[kFrameHeadBytes];
    head[0] = static_cast<char>(frame);
    const auto size = static_cast<uint32_t>(piece.size());
    std::memcpy(head + 1, &size, sizeof size);
    LOCKSTEP_TRY(write_all(STDOUT_FILENO, {head, sizeof head}));
    LOCKSTEP_TRY(write_all(STDOUT_FILENO, piece));
    bytes.remove_prefix(piece.size());
  } while (!bytes.empty());
  return {};
}

// Standard input: lines, then the traces one behind the other.
class Input {
 public:
  Result<std::string> line() {
    std::string text;
    while (text.size() < kManifestLineMax) {
      char one = 0;
      if (LOCKSTEP_TRY(some(&one, 1)) == 0) return Error{"the server has gone"};
      if (one == '\n') return text;
      text += one;
    }
    return Error{"a line that is too long"};
  }
  Result<size_t> some(char* into, size_t bytes) {
    while (true) {
      const ssize_t got = ::read(STDIN_FILENO, into, bytes);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Error{format("cannot read from the server: %s", std::strerror(errno))};
      return static_cast<size_t>(got);
    }
  }
  Result<size_t> of_trace(char* into, size_t bytes_max) {
    const size_t got = LOCKSTEP_TRY(some(into, std::min<uint64_t>(bytes_max, left_)));
    if (got == 0 && left_ > 0 && bytes_max > 0) return Error{"the server has gone"};
    left_ -= got;
    return got;
  }
  // Past what was not wanted of the one before.
  Result<void> next_trace(uint64_t bytes) {
    LOCKSTEP_TRY(skip());
    left_ = bytes;
    return {};
  }
  Result<void> skip() {
    std::string unwanted(left_ > 0 ? 1 << 16 : 0, '\0');
    while (left_ > 0) LOCKSTEP_TRY(of_trace(unwanted.data(), unwanted.size()));
    return {};
  }

 private:
  uint64_t left_ = 0;
};

class TraceBytes final : public ByteSource {
 public:
  explicit TraceBytes(Input& input) : input_(input) {}
  Result<size_t> read(char* into, size_t bytes_max) override { return input_.of_trace(into, bytes_max); }

 private:
  Input& input_;
};

Result<AnalyzerTrace> parse_trace(const std::string& line) {
  const std::vector<std::string_view> words = split(line, ' ');
  if (words.size() != 4) return Error{"a line of the manifest is wrong"};
  const auto rank = parse_int(words[0]), first_step = parse_int(words[1]);
  const auto bytes = parse_uint(words[2]);
  if (!rank || !first_step || !bytes) return Error{"a number of the manifest is wrong"};
  return AnalyzerTrace{Rank{static_cast<int32_t>(*rank)}, *first_step, *bytes, std::string(words[3])};
}

// Traces of a job with many ranks, or long ones, are read up to what the memory holds; the analysis says what it left
// out. Ranks are read one after the other, so that the input is.
AnalyzeOptions options_for(uint64_t memory_bytes, size_t traces) {
  AnalyzeOptions options;
  options.threads = 1;
  const uint64_t room = memory_bytes > kOwnMemoryBytes ? memory_bytes - kOwnMemoryBytes : 0;
  options.read.events_max = std::max(kEventsLeast, room / kEventMemoryBytes / traces);
  options.read.text_bytes_max = std::max<uint64_t>(1 << 20, room / 8 / traces);
  options.read.json_bytes_max = kJsonBytesMax;
  options.read.export_bytes_max = room / 4;  // one at a time is read
  return options;
}

Result<void> send_perfetto(const ProfileAnalysis& analysis) {
  if (analysis.events > kPerfettoEventsMax || !available(Encoding::kGzip)) return {};
  GzipStream gzip;
  std::string packed;
  const auto take = [&](std::string_view piece) -> Result<void> {
    LOCKSTEP_TRY(gzip.add(piece, false, packed));
    if (packed.size() < kFrameBytesMax) return {};
    LOCKSTEP_TRY(send(AnalyzerFrame::kPerfetto, packed));
    packed.clear();
    return {};
  };
  LOCKSTEP_TRY(profile::write_perfetto(analysis, take));
  LOCKSTEP_TRY(gzip.add({}, true, packed));
  return send(AnalyzerFrame::kPerfetto, packed);
}

Result<void> analyze_input(uint64_t memory_bytes) {
  Input input;
  const std::string first = LOCKSTEP_TRY(input.line());
  const std::optional<uint64_t> count = parse_uint(first);
  if (!count || *count == 0 || *count > kTracesMax) return Error{"the manifest has no number of traces"};
  std::vector<TraceInput> inputs;
  profile::TimelineOptions timeline;
  for (uint64_t i = 0; i < *count; ++i) {
    const std::string line = LOCKSTEP_TRY(input.line());
    const AnalyzerTrace trace = LOCKSTEP_TRY(parse_trace(line));
    if (trace.first_step >= 0) timeline.first_steps[trace.rank] = trace.first_step;
    inputs.push_back({trace.file, trace.rank, [&input, trace]() -> Result<std::unique_ptr<ByteSource>> {
                        LOCKSTEP_TRY(input.next_trace(trace.bytes));
                        return std::unique_ptr<ByteSource>(std::make_unique<TraceBytes>(input));
                      }});
  }
  const ProfileAnalysis analysis = LOCKSTEP_TRY(profile::analyze(inputs, options_for(memory_bytes, inputs.size())));
  LOCKSTEP_TRY(input.skip());
  LOCKSTEP_TRY(send(AnalyzerFrame::kSummary, profile::analysis_json(analysis)));
  LOCKSTEP_TRY(profile::write_timeline(analysis, timeline,
                                       [](std::string_view piece) { return send(AnalyzerFrame::kTimeline, piece); }));
  LOCKSTEP_TRY(send_perfetto(analysis));
  return send(AnalyzerFrame::kDone, {});
}

}  // namespace

Result<FrameHead> parse_frame_head(std::string_view bytes) {
  FrameHead head;
  if (bytes.size() != kFrameHeadBytes) return Error{"a frame is cut short"};
  std::memcpy(&head.bytes, bytes.data() + 1, sizeof head.bytes);
  head.frame = static_cast<AnalyzerFrame>(bytes[0]);
  const bool is_known = std::string_view("STPED").find(bytes[0]) != std::string_view::npos;
  const size_t most = head.frame == AnalyzerFrame::kDone    ? 0
                      : head.frame == AnalyzerFrame::kError ? kErrorLineMax
                                                            : kFrameBytesMax;
  if (!is_known || head.bytes > most) return Error{"a frame is none"};
  return head;
}

std::string analyzer_manifest(const std::vector<AnalyzerTrace>& traces) {
  std::string text = format("%zu\n", traces.size());
  for (const AnalyzerTrace& trace : traces)
    text += format("%d %lld %llu %s\n", trace.rank.value(), static_cast<long long>(trace.first_step),
                   static_cast<unsigned long long>(trace.bytes), trace.file.c_str());
  return text;
}

int run_analyzer_child(const std::vector<std::string>& arguments) {
  const std::optional<uint64_t> memory = parse_uint(arguments.size() == 2 ? arguments[0] : "");
  const std::optional<uint64_t> cpu_s = parse_uint(arguments.size() == 2 ? arguments[1] : "");
  if (!memory || !cpu_s) return 2;
  std::string line;
  try {
    Result<void> done = limit_process({*memory, *cpu_s});
    if (done.ok()) done = confine_process();
    if (done.ok()) done = analyze_input(*memory);
    if (done.ok()) return 0;
    line = as_one_line(utf8_prefix(done.error(), kErrorLineMax));
  } catch (const std::bad_alloc&) {
    // Little is free now; this fits what a string holds by itself and a frame's stack.
    static constexpr char kLine[] = "its traces take more memory than --analysis-memory allows";
    (void)send(AnalyzerFrame::kError, {kLine, sizeof kLine - 1});
    return 1;
  } catch (const std::exception& failure) {
    line = as_one_line(utf8_prefix(failure.what(), kErrorLineMax));
  }
  (void)send(AnalyzerFrame::kError, line);
  return 1;
}

}  // namespace lockstep
