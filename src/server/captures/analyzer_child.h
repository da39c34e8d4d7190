// The process that reads the traces of a capture, and what it and the server say to each other. A trace comes from a
// job: it may be hostile, or larger than the machine. So the server does not read it, a child does, which has a limit of
// memory and CPU time, writes no files, opens none and reaches no network (base/limited_process.h).
//
// To the child, on its standard input: a line with the number of traces, a line for each ("RANK FIRST_STEP BYTES FILE"),
// then the bytes of all of them in that order. From it, on its standard output: frames of a letter, the number of bytes
// (4, little-endian) and these: AnalyzerFrame. It answers nothing before it has read all, or has given up.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/ids.h"

namespace lockstep {

// The first argument that leads lockstepd to run_analyzer_child(); then bytes of memory and seconds of CPU time.
inline constexpr std::string_view kAnalyzerArgument = "analyze-capture";

enum class AnalyzerFrame : char {
  kSummary = 'S',   // a piece of the JSON of `lockstep analyze --json`
  kTimeline = 'T',  // of the timeline (profile/timeline/timeline_file.h)
  kPerfetto = 'P',  // of the Perfetto file, gzip
  kError = 'E',     // one line: there is nothing; the last frame
  kDone = 'D',      // empty; the last frame
};
inline constexpr size_t kFrameHeadBytes = 5;
inline constexpr size_t kFrameBytesMax = 1 << 20;
inline constexpr size_t kErrorLineMax = 500;

struct FrameHead {
  AnalyzerFrame frame = AnalyzerFrame::kDone;
  uint32_t bytes = 0;
};
// Of kFrameHeadBytes bytes; the child may have become anything.
Result<FrameHead> parse_frame_head(std::string_view bytes_untrusted);

struct AnalyzerTrace {
  Rank rank;
  int64_t first_step = -1;  // -1: not known
  uint64_t bytes = 0;
  std::string file;  // "rank-17.json.gz"
};
std::string analyzer_manifest(const std::vector<AnalyzerTrace>& traces);

// The child's main. arguments: behind kAnalyzerArgument. The exit code: 0 once kDone is sent.
int run_analyzer_child(const std::vector<std::string>& arguments);

}  // namespace lockstep
