// What is fetched about a rank when its job hangs: the stacks of its threads, and what PyTorch's own Flight Recorder
// had recorded. Both travel as events (docs/formats/events.md), bounded, so that ten thousand ranks may send theirs.
//
// Thread rule: Immutable once handed on; functions are Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/step.h"
#include "model/telemetry.h"

namespace lockstep {

inline constexpr std::string_view kEventRankStack = "rank.stack";
inline constexpr std::string_view kEventCommDump = "comm.dump";

inline constexpr size_t kStackThreadsMax = 64;
inline constexpr size_t kStackPythonThreadsMax = 32;
inline constexpr size_t kStackFramesMax = 32;  // of one thread
inline constexpr size_t kKernelFramesMax = 16;
inline constexpr size_t kDumpGroupsMax = 64;
inline constexpr size_t kDumpOpsMax = 8;         // of one group
inline constexpr size_t kEvidenceTextMax = 256;  // bytes of a name, a file, a note; longer ones are cut
inline constexpr size_t kDumpRanksTextMax = 4096;

struct StackFrame {
  std::string function;
  std::string file;
  int32_t line = 0;
  bool operator==(const StackFrame&) const = default;
};
// Python's own code or an installed library's, rather than the job's.
bool is_library_frame(const StackFrame& frame);
// The innermost frame that is the job's own code rather than Python's or a library's; the innermost where there is no
// such; nullptr for no frames. Innermost first, as Python and PyTorch tell them.
const StackFrame* users_frame(std::span<const StackFrame> frames);
std::string to_text(const StackFrame& frame);  // "load_batch, loader.py:41"

// A thread as the kernel sees it.
struct ThreadStack {
  int32_t tid = -1;
  std::string name;
  char state = '?';                 // R, S, D, T, t, Z as in /proc
  std::string wchan;                // kernel function it sleeps in; empty: none, or not permitted
  std::string syscall;              // "futex"; empty: none, or not permitted
  std::vector<std::string> kernel;  // innermost first; empty where it is not permitted
  bool operator==(const ThreadStack&) const = default;
};

// A thread as Python sees it.
struct PythonStack {
  uint64_t ident = 0;  // pthread's
  bool main = false;
  std::string name;
  std::vector<StackFrame> frames;  // innermost first
  bool operator==(const PythonStack&) const = default;
};

struct RankStack {
  int64_t time_unix_ns = 0;
  int32_t pid = -1;
  std::string note;                  // one line where something could not be had, and why
  int64_t threads_count = 0;         // of the process; `threads` may be fewer
  std::vector<ThreadStack> threads;  // the main thread first
  std::vector<PythonStack> python;   // the main thread first
  bool operator==(const RankStack&) const = default;
};

// "main thread is in load_batch, loader.py:41, waiting in a futex": the job's own frame, and how the thread waits; what
// is known, never empty.
std::string where_text(const RankStack& stack);

// A collective that PyTorch's Flight Recorder has.
struct DumpOp {
  int64_t seq = -1;   // PyTorch's number in its group; the same on all ranks
  std::string name;   // "all_reduce"
  std::string sizes;  // of its inputs, "[[3, 4]]"
  std::string dtype;  // of its first input, "Float"
  int64_t elements = 0;
  OpState state = OpState::kNone;
  int64_t created_unix_ns = 0;
  StackFrame caller;  // the job's own code that called it; no file: not recorded
  bool operator==(const DumpOp&) const = default;
};

struct DumpGroup {
  std::string name;
  std::string desc;
  int64_t size = 0;   // members; 0: not told
  std::string ranks;  // of the job, in the group's order, as ranks_text() writes them; empty: not told, or too long
  // Collectives; -1: none, or not known.
  int64_t last_enqueued = -1;
  int64_t last_started = -1;
  int64_t last_completed = -1;
  // By seq: the newest completed before the first that is not, the first that are not, and the newest of all.
  std::vector<DumpOp> ops;
  bool operator==(const DumpGroup&) const = default;
};

struct FlightDump {
  int64_t time_unix_ns = 0;  // when it was written
  std::string version;       // of the format, "2.10"
  std::string file;
  int64_t entries = 0;  // operations in the file
  int64_t p2p = 0;      // of these: sends and receives, which are counted and not compared
  std::vector<DumpGroup> groups;
  std::string last_group;          // of the newest operation
  DumpOp last;                     // that operation; seq -1: there is none
  std::vector<StackFrame> frames;  // of its call, innermost first
  bool operator==(const FlightDump&) const = default;
};

int64_t dtype_bytes(std::string_view dtype);  // of PyTorch's name; 0: not known

LogRecord to_record(const RankStack& stack);
LogRecord to_record(const FlightDump& dump);
// From bytes we did not write: every field is checked, one clear line on error.
Result<RankStack> rank_stack_from_record(const LogRecord& record);
Result<FlightDump> flight_dump_from_record(const LogRecord& record);

}  // namespace lockstep
