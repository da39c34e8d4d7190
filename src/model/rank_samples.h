// Where a rank's threads spend their time: its Python stacks, looked at many times a second for some seconds and counted.
// Travels as one event, bounded (docs/formats/events.md).
//
// A rank has its own process and those it started to load data: a slow loader is in one of the latter. Which of them a
// thread is in is its role.
//
// Thread rule: Immutable once handed on; functions are Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/rank_evidence.h"
#include "model/telemetry.h"

namespace lockstep {

inline constexpr std::string_view kEventRankSamples = "rank.samples";

inline constexpr size_t kSampleThreadsMax = 64;
inline constexpr size_t kSampleStacksMax = 1024;  // different ones; the rarest are left out and counted
inline constexpr size_t kSampleFramesMax = 2048;  // different lines
inline constexpr size_t kSampleDepthMax = 64;
inline constexpr size_t kSampleBytesMax = 128u << 10;  // of one event, about

enum class ThreadRole {
  kMain,    // the main thread of the rank
  kThread,  // another of its threads
  kWorker,  // of a process that the rank started
};
const char* to_text(ThreadRole role);  // "main thread", "another thread", "worker process"

struct SampledThread {
  ThreadRole role = ThreadRole::kThread;
  int32_t pid = -1;
  int32_t tid = -1;      // -1: which of the process's threads it is, is not known
  std::string name;      // as the kernel has it
  char state = '?';      // when it was last looked at, as in /proc
  std::string wchan;     // likewise: what it slept in
  int64_t looks = 0;     // times it was seen in Python
  int64_t running = 0;   // of these: the kernel had it running or ready to
  int64_t with_gil = 0;  // of these: it held the interpreter's lock
  int64_t cpu_ms = 0;    // it used meanwhile
  bool operator==(const SampledThread&) const = default;
};

struct CountedStack {
  uint32_t thread = 0;           // of `threads`
  std::vector<uint32_t> frames;  // of `frames`, innermost first
  int64_t count = 0;
  int64_t running = 0;
  bool operator==(const CountedStack&) const = default;
};

struct RankSamples {
  int64_t time_unix_ns = 0;  // the first look
  int64_t duration_ms = 0;
  int64_t looks = 0;  // at the whole rank; a thread's share of time is its count of these
  int64_t hz = 0;     // as asked
  int32_t pid = -1;
  std::string version;  // of Python
  std::string note;     // one line where something could not be had, and why
  // Stacks of threads: read whole; cut where the thread ran on; dropped as they made no sense.
  int64_t whole = 0, cut = 0, dropped = 0;
  int64_t left_out = 0;  // looks whose stacks are not in `stacks`, by its limits
  std::vector<SampledThread> threads;
  std::vector<StackFrame> frames;
  std::vector<CountedStack> stacks;  // the most frequent first
  bool operator==(const RankSamples&) const = default;
};

LogRecord to_record(const RankSamples& samples);
// From bytes we did not write: every field is checked, one clear line on error.
Result<RankSamples> rank_samples_from_record(const LogRecord& record);
// Leaves out the rarest stacks, and the threads and frames that nobody uses any more, until it is within the limits.
void fit(RankSamples& samples);

}  // namespace lockstep
