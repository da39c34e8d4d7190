// The flight recorder's 64-byte records and the view of its operations-in-flight table. The byte-level page is
// docs/formats/flight-recorder.md; these structs are the same bytes (little endian, static_asserts in records.cc).
//
// Thread rule: Immutable (plain data).
#pragma once

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
const char* to_text(Datatype datatype);  // "float32", ...
uint32_t bytes_of(Datatype datatype);    // 0 for unknown

// Common head of every record. `time_ns` is CLOCK_MONOTONIC of the recording process.
struct RecordHead {
  RecordType type;
  uint8_t flags;        // bit 0: a value below is saturated; bit 1: kProxyStep/kProxyOp: send
  uint16_t comm_index;  // index into the in-flight table; 0xFFFF: none
  uint32_t reserved;
  uint64_t time_ns;
};
inline constexpr uint8_t kFlagSaturated = 1;
inline constexpr uint8_t kFlagSend = 2;
inline constexpr uint16_t kNoComm = 0xFFFF;

struct OpRecord {  // kColl, kP2p
  RecordHead head;
  uint64_t op_id;  // per process, from 1; children name it
  uint64_t seq;    // kColl: NCCL's seqNumber; kP2p: 0
  uint64_t bytes;  // payload of this rank (count x datatype size as NCCL reports them); 0 where the type is unknown
  int32_t peer;    // kP2p: rank in the communicator; kColl: root
  Function function;
  Datatype datatype;
  uint8_t channels;   // 0: not known
  uint8_t algorithm;  // 0 unknown, 1 TREE, 2 RING, 3 COLLNET_DIRECT, 4 COLLNET_CHAIN, 5 NVLS, 6 NVLS_TREE, 7 PAT
  uint64_t ordinal;   // 1, 2, ... per communicator; collectives and p2p counted apart
  uint8_t protocol;   // 0 unknown, 1 LL, 2 LL128, 3 SIMPLE
  uint8_t padding[7];
};

struct KernelChRecord {  // head.time_ns: host time of the stop callback
  RecordHead head;
  uint64_t op_id;
  uint64_t gpu_start_ns;  // %globaltimer
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
  uint8_t padding[7];
};

struct MarkRecord {  // kStepBegin/End, kPhaseBegin/End, kScalar, kCommInit/Finalize, kShutdown
  RecordHead head;
  int64_t number;    // step, phase
  double value;      // kScalar
  char name[16];     // kScalar: NUL-terminated
  uint64_t comm_id;  // kCommInit/Finalize
  uint8_t padding[8];
};

union Record {
  RecordHead head;
  OpRecord op;
  KernelChRecord kernel;
  ProxyOpRecord proxy_op;
  ProxyStepRecord proxy_step;
  MarkRecord mark;
  uint64_t words[8];
};
static_assert(sizeof(Record) == 64);

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
  uint64_t lanes_refused = 0;   // threads that found no free lane
  uint64_t events_refused = 0;  // events that found no handle slot, foreign handles, ...
  uint64_t switched_off = 0;    // non-zero: the plugin doubted itself and stopped (reason code)
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
  std::vector<InFlightOp>
      recent;  // newest operations, oldest first; at least every operation that is not complete fits or is counted
  // Newest proxy step in progress: what the network side waits for.
  uint8_t proxy_state = 0;  // NCCL's state number, 0 none
  int32_t proxy_peer = -1;
  bool proxy_send = false;
  uint64_t proxy_since_ns = 0;
};

}  // namespace lockstep
