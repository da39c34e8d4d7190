// Recorded NCCL profiler callbacks, one rank's `rankR.calls` (docs/formats/calls.md): a line at a time, then a whole
// file.
//
// Lines come from outside, so none is trusted: a line that does not say exactly what the format allows is an error
// that names the file, the line and what was wrong with it. The file's policy (RecordingOptions::skip_bad): the first
// bad line fails the file, or it is left out and counted.
//
// Limits: kCallsBytesMax per file, unpacked.
// Thread rule: Thread-safe (functions), Immutable once made (data).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::replay {

inline constexpr uint64_t kCallsBytesMax = 1ull << 30;
inline constexpr uint32_t kNone = 0xFFFFFFFF;

enum class CallKind : uint8_t { kWho, kInit, kStart, kState, kStop, kFinalize };

// What a line says, as it says it: ids are the recorder's own. Which members count depends on kind and type. Text
// members point into the line.
struct CallLine {
  CallKind kind = CallKind::kWho;
  uint64_t time_ns = 0;
  uint64_t thread = 0;
  uint64_t context = 0;
  uint64_t handle = 0;
  uint64_t type = 0;    // kStart: the interface's event bit
  uint64_t parent = 0;  // kStart: handle id, 0 none
  int32_t rank = 0;     // kStart, kWho: rank; kInit: rank in the communicator
  int32_t state = 0;    // kState
  uint64_t value = 0;   // kState: transfer size or GPU time

  int32_t pid = 0;           // kWho, proxyOp
  int32_t world = 0;         // kWho: ranks of the job; kInit: ranks of the communicator
  int32_t nodes = 0;         // kInit
  uint64_t comm_id = 0;      // kInit
  std::string_view name;     // kWho: host; kInit: communicator's name, empty where it had none
  uint64_t realtime_ns = 0;  // kWho: CLOCK_REALTIME at time_ns

  std::string_view function;  // coll, collApi, p2p, p2pApi
  std::string_view datatype;
  std::string_view algorithm;
  std::string_view protocol;
  uint64_t count = 0;
  uint64_t seq = 0;
  uint64_t stream = 0;
  uint64_t gpu_time_ns = 0;  // kernelCh: pTimer
  uint64_t group = 0;        // coll, p2p: handle id of the group, 0 none
  int32_t root_or_peer = 0;
  int32_t step_count = 0;   // proxyOp
  int32_t chunk_bytes = 0;  // proxyOp
  int32_t number = 0;       // groupApi: depth; proxyStep: step
  uint8_t channel = 0;      // coll, p2p: how many; proxyOp, kernelCh: which
  uint8_t warps = 0;
  bool flag = false;  // groupApi, collApi, p2pApi: captured in a graph; proxyOp: send
};

// One line without its newline. The error says what is wrong, without file and line number.
Result<CallLine> parse_call_line(std::string_view line);

// A call as the replay needs it: ids became indexes, and every object knows the order in which it was used.
struct Call {
  uint64_t time_ns = 0;
  uint64_t value = 0;        // kState
  uint32_t thread = 0;       // index into RankCalls::threads
  uint32_t context = kNone;  // index into RankCalls::inits
  uint32_t object = kNone;   // index of the event object (0 .. RankCalls::object_count - 1)
  uint32_t start = kNone;    // kStart: index into RankCalls::starts
  uint32_t parent = kNone;  // kStart: object index; kNone where the recording has no such object (the plugin gets NULL)
  uint32_t group = kNone;   // likewise
  // Which use of that object this call is (its start is 0): the replay keeps each object's uses in the recorded order.
  // kNone: not a use of its own.
  uint32_t object_turn = kNone;
  uint32_t parent_turn = kNone;
  uint32_t group_turn = kNone;
  // kFinalize: calls on this context (through itself or its objects) that come before it in the file.
  uint32_t calls_before = 0;
  int32_t state = 0;
  CallKind kind = CallKind::kInit;
};

struct RankCalls {
  CallLine who;
  std::vector<uint64_t> threads;  // recorded thread ids, in order of first call
  std::vector<CallLine> inits;    // by context index
  std::vector<CallLine> starts;
  std::vector<Call> calls;  // in the recorded order
  uint32_t object_count = 0;
  uint64_t lines = 0;  // lines = 1 (who) + calls + bad lines
  uint64_t bad_lines = 0;
  std::string first_bad;       // with file and line; empty: none
  bool all_finalized = false;  // every context that was made was also finalized
};

// A whole file. `text` must outlive the result. A first line that is not a good H line is an error in any case: without
// it nobody knows who this is.
Result<RankCalls> parse_calls(std::string_view text, const std::string& file, bool skip_bad);

}  // namespace lockstep::replay
