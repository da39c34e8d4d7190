#include "recorder/records.h"

#include <cstddef>
#include <type_traits>

namespace lockstep {
namespace {

static_assert(sizeof(RecordHead) == 16 && offsetof(RecordHead, comm_index) == 2);
static_assert(offsetof(RecordHead, reserved) == 4 && offsetof(RecordHead, time_ns) == 8);
static_assert(sizeof(OpRecord) == 64 && offsetof(OpRecord, op_id) == 16 && offsetof(OpRecord, seq) == 24);
static_assert(offsetof(OpRecord, bytes) == 32 && offsetof(OpRecord, peer) == 40 && offsetof(OpRecord, function) == 44);
static_assert(offsetof(OpRecord, datatype) == 45 && offsetof(OpRecord, channels) == 46);
static_assert(offsetof(OpRecord, algorithm) == 47 && offsetof(OpRecord, ordinal) == 48);
static_assert(offsetof(OpRecord, protocol) == 56 && offsetof(OpRecord, group) == 60);
static_assert(sizeof(KernelChRecord) == 64 && offsetof(KernelChRecord, op_id) == 16);
static_assert(offsetof(KernelChRecord, gpu_start_ns) == 24 && offsetof(KernelChRecord, gpu_stop_ns) == 32);
static_assert(offsetof(KernelChRecord, host_start_ns) == 40 && offsetof(KernelChRecord, channel) == 48);
static_assert(sizeof(ProxyOpRecord) == 64 && offsetof(ProxyOpRecord, op_id) == 16);
static_assert(offsetof(ProxyOpRecord, start_ns) == 24 && offsetof(ProxyOpRecord, peer) == 32);
static_assert(offsetof(ProxyOpRecord, steps) == 36 && offsetof(ProxyOpRecord, chunk_bytes) == 40);
static_assert(offsetof(ProxyOpRecord, channel) == 44);
static_assert(sizeof(ProxyStepRecord) == 64 && offsetof(ProxyStepRecord, op_id) == 16);
static_assert(offsetof(ProxyStepRecord, start_ns) == 24 && offsetof(ProxyStepRecord, peer) == 32);
static_assert(offsetof(ProxyStepRecord, bytes) == 36 && offsetof(ProxyStepRecord, wait_gpu_ns) == 40);
static_assert(offsetof(ProxyStepRecord, wait_peer_ns) == 44 && offsetof(ProxyStepRecord, wire_ns) == 48);
static_assert(offsetof(ProxyStepRecord, step) == 52 && offsetof(ProxyStepRecord, channel) == 56);
static_assert(offsetof(ProxyStepRecord, merged) == 58 && offsetof(ProxyStepRecord, wire_longest_us) == 60);
static_assert(offsetof(ProxyStepRecord, wait_gpu_longest_us) == 62);
static_assert(sizeof(MarkRecord) == 64 && offsetof(MarkRecord, number) == 16 && offsetof(MarkRecord, value) == 24);
static_assert(offsetof(MarkRecord, name) == 32 && offsetof(MarkRecord, comm_id) == 48);
static_assert(sizeof(TextRecord) == 64 && offsetof(TextRecord, kind) == 16 && offsetof(TextRecord, text) == 24);
static_assert(std::is_trivially_copyable_v<Record>);

}  // namespace

const char* to_text(Refused reason) {
  switch (reason) {
    case Refused::kHandle:
      return "handle";
    case Refused::kForeign:
      return "foreign";
    case Refused::kNoSlot:
      return "no_slot";
    case Refused::kNoRow:
      return "no_communicator";
    case Refused::kNoLane:
      return "no_lane";
    case Refused::kCompletion:
      return "completion";
    case Refused::kText:
      return "text";
  }
  return "unknown";
}

uint64_t RecorderHeader::refused_total() const {
  uint64_t total = 0;
  for (uint64_t count : refused) total += count;
  return total;
}

const char* to_text(Function function) {
  switch (function) {
    case Function::kUnknown:
      return "Unknown";
    case Function::kAllReduce:
      return "AllReduce";
    case Function::kAllGather:
      return "AllGather";
    case Function::kReduceScatter:
      return "ReduceScatter";
    case Function::kBroadcast:
      return "Broadcast";
    case Function::kReduce:
      return "Reduce";
    case Function::kSend:
      return "Send";
    case Function::kRecv:
      return "Recv";
    case Function::kAlltoAll:
      return "AlltoAll";
    case Function::kGather:
      return "Gather";
    case Function::kScatter:
      return "Scatter";
    case Function::kSendRecv:
      return "SendRecv";
  }
  return "Unknown";
}

const char* to_text(Datatype datatype) {
  switch (datatype) {
    case Datatype::kUnknown:
      return "unknown";
    case Datatype::kInt8:
      return "int8";
    case Datatype::kUint8:
      return "uint8";
    case Datatype::kInt32:
      return "int32";
    case Datatype::kUint32:
      return "uint32";
    case Datatype::kInt64:
      return "int64";
    case Datatype::kUint64:
      return "uint64";
    case Datatype::kFloat16:
      return "float16";
    case Datatype::kFloat32:
      return "float32";
    case Datatype::kFloat64:
      return "float64";
    case Datatype::kBfloat16:
      return "bfloat16";
    case Datatype::kFloat8e4m3:
      return "float8e4m3";
    case Datatype::kFloat8e5m2:
      return "float8e5m2";
  }
  return "unknown";
}

}  // namespace lockstep
