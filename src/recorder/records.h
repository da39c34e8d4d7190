// The flight recorder's 64-byte records and the view of its operations-in-flight table. The byte-level page is
// docs/formats/flight-recorder.md; these structs are the same bytes (little endian, static_asserts in records.cc).
//
// Thread rule: Immutable (plain data).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

enum class RecordType : uint8_t {
  kInvalid = 0,
  kCommInit = 1,
  kCommFinalize = 2,
  kColl = 3,       // written when the collective is enqueued
  kP2p = 4,        // likewise
  kKernelCh = 5,   // written when a channel's kernel has stopped
  kProxyOp = 6,    // written when the proxy operation stops
  kProxyStep = 7,  // written when the step stops: the time it spent in each state
  kStepBegin = 8,
  kStepEnd = 9,
  kPhaseBegin = 10,
  kPhaseEnd = 11,
  kScalar = 12,
  kShutdown = 13,
  kText = 14,  // a piece of a text that does not fit a record; the pieces of one text follow each other on their lane
};

enum class Function : uint8_t {
  kUnknown = 0,
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kReduce,
  kSend,
  kRecv,
  kAlltoAll,
  kGather,
  kScatter,
  kSendRecv
};
const char* to_text(Function function);  // "AllReduce", ...; "Unknown"
enum class Datatype : uint8_t {
  kUnknown = 0,
  kInt8,
  kUint8,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kFloat16,
  kFloat32,
  kFloat64,
  kBfloat16,
  kFloat8e4m3,
  kFloat8e5m2
};
const char* to_text(Datatype datatype);           // "float32", ...
constexpr uint32_t bytes_of(Datatype datatype) {  // 0 for unknown
  constexpr uint8_t kBytes[] = {0, 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return static_cast<size_t>(datatype) < sizeof kBytes ? kBytes[static_cast<size_t>(datatype)] : 0;
}

// Common head of every record. `time_ns` is CLOCK_MONOTONIC of the recording process.
struct RecordHead {
  RecordType type;
  uint8_t flags;        // kFlag...
  uint16_t comm_index;  // index into the in-flight table; 0xFFFF: none
  uint32_t reserved;
  uint64_t time_ns;
};
inline constexpr uint8_t kFlagSaturated = 1;    // a value is at its largest; the truth is more
inline constexpr uint8_t kFlagSend = 2;         // kProxyOp, kProxyStep
inline constexpr uint8_t kFlagUnseen = 4;       // kColl, kP2p: no kernel events were asked for: GPU time is not told
inline constexpr uint8_t kFlagGraph = 8;        // kColl, kP2p: from a captured CUDA graph
inline constexpr uint8_t kFlagCopyEngine = 16;  // kColl: by copy engines; NCCL tells its enqueueing only
inline constexpr uint8_t kFlagSymmetric = 32;   // kColl: a symmetric-memory kernel
inline constexpr uint16_t kNoComm = 0xFFFF;

struct OpRecord {  // kColl, kP2p
  RecordHead head;
  uint64_t op_id;  // unique in the process; children name it
  uint64_t seq;    // kColl: NCCL's seqNumber; kP2p: how many went to (or came from) this peer before: pairs both ends
  uint64_t bytes;  // payload of this rank (count x datatype size as NCCL reports them); 0 where the type is unknown
  int32_t peer;    // kP2p: rank in the communicator; kColl: root
  Function function;
  Datatype datatype;
  uint8_t channels;   // 0: not known
  uint8_t algorithm;  // 0 unknown, 1 TREE, 2 RING, 3 COLLNET_DIRECT, 4 COLLNET_CHAIN, 5 NVLS, 6 NVLS_TREE, 7 PAT
  uint64_t ordinal;   // 1, 2, ... per communicator; collectives and p2p counted apart
  uint8_t protocol;   // 0 unknown, 1 LL, 2 LL128, 3 SIMPLE
  uint8_t padding[3];
  uint32_t group;  // the same for operations of one ncclGroup; 0: not known
};

struct KernelChRecord {  // head.time_ns: host time of the stop callback
  RecordHead head;
  uint64_t op_id;
  uint64_t gpu_start_ns;  // %globaltimer; both 0 where NCCL does not tell GPU times (before 2.27)
  uint64_t gpu_stop_ns;
  uint64_t host_start_ns;  // host time of the start callback
  uint8_t channel;
  uint8_t padding[15];
};

struct ProxyOpRecord {  // head.time_ns: stop
  RecordHead head;
  uint64_t op_id;  // the parent collective or p2p; 0 where NCCL gave none
  uint64_t start_ns;
  int32_t peer;
  uint32_t steps;
  uint32_t chunk_bytes;
  uint8_t channel;
  uint8_t padding[19];
};

struct ProxyStepRecord {  // head.time_ns: stop
  RecordHead head;
  uint64_t op_id;
  uint64_t start_ns;
  int32_t peer;
  uint32_t bytes;
  uint32_t
      wait_gpu_ns;  // send: state 8 (own GPU late); receive: state 12 (own GPU slow to drain). Saturates, flag bit 0
  uint32_t wait_peer_ns;  // send: state 20 (receiver late); receive: state 10 (sender late)
  uint32_t wire_ns;       // send: state 9 (on the wire); receive: state 11 (flush)
  uint32_t step;
  uint8_t channel;
  uint8_t padding;
  // Where steps come so fast that the ring would be overwritten before anybody reads it, up to kMergedMax consecutive
  // ones of a proxy operation share a record: start of the first, stop of the last, sums of bytes and waits, and for
  // the wire the time with at least one of them on it.
  uint16_t merged;               // further steps in this record; 0: it is of one step
  uint16_t wire_longest_us;      // of a single one; 0 where merged is 0
  uint16_t wait_gpu_longest_us;  // likewise
};
inline constexpr uint16_t kMergedMax = 15;

enum class TextKind : uint8_t {
  kNote = 1,   // the job's own words
  kGroup = 2,  // a process group: NAME, a tab, its ranks as ranks_text() of model/rank_text.h writes them
};

struct TextRecord {  // kText; head.time_ns: when the whole text was told
  RecordHead head;
  TextKind kind;
  uint8_t bytes;   // of text in this piece
  uint16_t piece;  // 0, 1, ...
  uint16_t pieces;
  uint16_t number;  // of the text on its lane, so that a piece that was lost is noticed
  char text[40];
};

struct MarkRecord {  // kStepBegin/End, kPhaseBegin/End, kScalar, kCommInit/Finalize, kShutdown
  RecordHead head;
  int64_t number;    // step, phase
  double value;      // kScalar
  char name[16];     // kScalar, kPhaseBegin (empty: the phase has no name of its own): NUL-terminated
  uint64_t comm_id;  // kCommInit/Finalize
  uint8_t padding[8];
};

// The words of an OpRecord that hold several values, put together in a register: stored one by one and then copied by
// the word, they would have to be waited for.
constexpr uint64_t op_head_word(RecordType type, uint8_t flags, uint16_t comm_index) {
  return static_cast<uint64_t>(type) | static_cast<uint64_t>(flags) << 8 | static_cast<uint64_t>(comm_index) << 16;
}
constexpr uint64_t op_detail_word(int32_t peer, Function function, Datatype datatype, uint8_t channels,
                                  uint8_t algorithm) {
  return static_cast<uint64_t>(static_cast<uint32_t>(peer)) | static_cast<uint64_t>(function) << 32 |
         static_cast<uint64_t>(datatype) << 40 | static_cast<uint64_t>(channels) << 48 |
         static_cast<uint64_t>(algorithm) << 56;
}
constexpr uint64_t op_last_word(uint8_t protocol, uint32_t group) {
  return protocol | static_cast<uint64_t>(group) << 32;
}

union Record {
  RecordHead head;
  OpRecord op;
  KernelChRecord kernel;
  ProxyOpRecord proxy_op;
  ProxyStepRecord proxy_step;
  MarkRecord mark;
  TextRecord text;
  uint64_t words[8];
};
static_assert(sizeof(Record) == 64);

// Why an event was not recorded.
enum class Refused : uint8_t {
  kHandle = 0,      // stale, repeated, made up, or its event lost its place
  kForeign = 1,     // a proxy operation of another process (PXN)
  kNoSlot = 2,      // no place between start and stop, or an event that was never stopped gave up its place
  kNoRow = 3,       // a communicator that is not followed: more than the table has rows, or finalized
  kNoLane = 4,      // a thread for which there was no lane
  kCompletion = 5,  // an operation whose end never came, and can now not be seen any more
  kText = 6         // a process group that is none, or whose members do not fit into a text
};
inline constexpr size_t kRefusedReasons = 7;
// "handle", "foreign", "no_slot", "no_communicator", "no_lane", "completion", "text"
const char* to_text(Refused reason);

// Identity and clocks from the header of a recorder file.
struct RecorderHeader {
  int32_t pid = 0;
  uint64_t process_start_ticks = 0;  // /proc/PID/stat field 22: tells a reused pid from ours
  std::string job_id;
  int64_t attempt = 0;
  int32_t rank = -1;
  int32_t world_size = 0;
  int32_t local_rank = 0;
  std::string host;
  std::string gpu_uuid;
  int64_t anchor_unix_ns = 0;  // CLOCK_REALTIME and CLOCK_MONOTONIC read together when the recorder was made
  int64_t anchor_monotonic_ns = 0;
  uint64_t lanes_refused = 0;  // threads that found no free lane
  std::array<uint64_t, kRefusedReasons> refused{};
  uint64_t switched_off = 0;    // non-zero: the plugin doubted itself and stopped (a SwitchOff)
  uint32_t mask = 0;            // NCCL event bits asked for now
  uint64_t control = 0;         // the control word as it stands (control.h)
  uint32_t nccl_version = 0;    // as NCCL numbers itself: 22809 is 2.28.9; 0: not known
  uint32_t nccl_interface = 0;  // of its profiler plugins, 1 to 7
  uint64_t refused_total() const;
};

// What the writer's callbacks cost the job, from every kCostEvery-th call of each thread.
inline constexpr uint32_t kCostEvery = 256;
inline constexpr std::array<uint32_t, 8> kCostBoundsNs = {25,  50,   100,  200,
                                                          400, 1000, 5000, 20000};  // the ninth: above
struct RecorderCost {
  uint64_t events = 0;  // callbacks, all of them
  uint64_t samples = 0;
  uint64_t total_ns = 0;  // of the samples
  uint64_t worst_ns = 0;
  std::array<uint64_t, kCostBoundsNs.size() + 1> buckets{};
};

enum class InFlightState : uint8_t { kNone = 0, kEnqueued = 1, kStarted = 2, kCompleted = 3 };

// One recent operation of a communicator, as the in-flight table has it now.
struct InFlightOp {
  InFlightState state = InFlightState::kNone;
  bool p2p = false;
  uint64_t ordinal = 0;
  uint64_t seq = 0;
  Function function = Function::kUnknown;
  Datatype datatype = Datatype::kUnknown;
  uint64_t bytes = 0;
  int32_t peer = -1;
  uint64_t enqueued_ns = 0;  // monotonic
  uint64_t started_ns = 0;   // 0: not seen to start
  bool end_is_seen = true;   // false: NCCL does not tell when it ends (detail was low, copy engines)
};

// Transfers of a communicator that are in one proxy state now.
struct ProxyWait {
  uint8_t state = 0;  // NCCL's number: 8, 20, 9 send; 10, 11, 12 receive
  uint32_t count = 0;
  int32_t peer = -1;      // of the last that entered
  uint64_t since_ns = 0;  // last time one entered or left
};

struct InFlightComm {
  uint16_t comm_index = 0;
  bool live = false;  // between init and finalize
  uint64_t comm_id = 0;
  int32_t size = 0;
  int32_t rank_in_comm = 0;
  int32_t nodes = 0;
  std::string name;
  uint64_t collectives_enqueued = 0;
  uint64_t collectives_completed = 0;
  uint64_t p2p_enqueued = 0;
  uint64_t p2p_completed = 0;
  uint64_t collective_calls = 0;  // calls of NCCL's API, where its version tells them (2.28 on); more than enqueued:
  uint64_t p2p_calls = 0;         // the rest is not visible (symmetric kernels before 2.31, work still grouped)
  std::vector<InFlightOp>
      recent;  // newest operations, oldest first; at least every operation that is not complete fits or is counted
  std::vector<ProxyWait> proxy;
  // The one of them that tells most: what the network side waits for.
  uint8_t proxy_state = 0;  // NCCL's state number, 0 none
  int32_t proxy_peer = -1;
  bool proxy_send = false;
  uint64_t proxy_since_ns = 0;
};

}  // namespace lockstep
