// The two exported vtables, thin adapters over one Tracker. Whatever happens, NCCL hears "success": an error from init
// makes some NCCL releases drop the plugin for the whole process and others call it with a context it never made.
#include <mutex>
#include <string>

#include "plugin/nccl/names.h"
#include "plugin/nccl/profiler_abi.h"
#include "plugin/nccl/tracker.h"
#include "recorder/writer.h"

namespace lockstep::nccl {
namespace {

constinit std::atomic<Tracker*> tracker{nullptr};
constinit std::mutex init_mutex;

Tracker* active() {
  Tracker* here = tracker.load(std::memory_order_acquire);
  return here != nullptr && !here->off() ? here : nullptr;
}

Tracker::Word word_of(const void* pointer) {
  return reinterpret_cast<Tracker::Word>(pointer);
}
void* pointer_of(Tracker::Word word) {
  return reinterpret_cast<void*>(word);
}

Tracker* tracker_for_init(DebugLogger log) {
  const std::lock_guard lock(init_mutex);
  static bool said = false;
  RecorderWriter* recorder = process_recorder();
  if (recorder != nullptr && !recorder->header_intact()) {
    recorder->switch_off(SwitchOff::kHeaderChanged);
    recorder = nullptr;
  }
  if (recorder == nullptr) {
    if (!said && log != nullptr) {
      said = true;
      const std::string fault = process_recorder_fault();
      log(kLogInfo, kLogFlagInit | kLogFlagProfile, __FILE__, __LINE__, "Lockstep does not record: %s",
          fault.empty() ? "switched off" : fault.c_str());
    }
    return nullptr;
  }
  if (tracker.load(std::memory_order_relaxed) == nullptr)
    tracker.store(new Tracker(*recorder), std::memory_order_release);
  return active();
}

int init(void** context, int* mask, const InFlightTable::Comm& comm, DebugLogger log) {
  if (context != nullptr) *context = nullptr;
  if (mask != nullptr) *mask = 0;
  if (context == nullptr || mask == nullptr) return kNcclSuccess;
  try {
    if (Tracker* here = tracker_for_init(log)) {
      // One mask for the whole process: every communicator writes the same value.
      *mask = here->mask();
      *context = pointer_of(here->comm_init(comm));
    }
  } catch (...) {  // out of memory: this communicator is not followed, and its events find no context
  }
  return kNcclSuccess;
}

int finalize(void* context) {
  if (Tracker* here = active(); here != nullptr && context != nullptr) here->comm_finalize(word_of(context));
  return kNcclSuccess;
}

template <typename Fields>
OpRecord op_record(RecordType type, const Fields& fields, uint8_t channels) {
  OpRecord record{};
  record.head.type = type;
  record.function = function_of(fields.func);
  record.datatype = datatype_of(fields.datatype);
  record.channels = channels;
  if (__builtin_mul_overflow(uint64_t{fields.count}, uint64_t{bytes_of(record.datatype)}, &record.bytes)) {
    record.bytes = UINT64_MAX;
    record.head.flags |= kFlagSaturated;
  }
  return record;
}

template <typename Descriptor>
Tracker::Word start_event(Tracker& here, Tracker::Word context, const Descriptor& descriptor, bool p2p_channels_known) {
  const Tracker::Word parent = word_of(descriptor.parentObj);
  switch (descriptor.type) {
    case kEventColl: {
      OpRecord record = op_record(RecordType::kColl, descriptor.coll, descriptor.coll.nChannels);
      record.seq = descriptor.coll.seqNumber;
      record.peer = descriptor.coll.root;
      record.algorithm = algorithm_of(descriptor.coll.algo);
      record.protocol = protocol_of(descriptor.coll.proto);
      return here.op_start(context, record);
    }
    case kEventP2p: {
      OpRecord record = op_record(RecordType::kP2p, descriptor.p2p, p2p_channels_known ? descriptor.p2p.nChannels : 0);
      record.peer = descriptor.p2p.peer;
      return here.op_start(context, record);
    }
    case kEventKernelCh:
      return here.kernel_start(parent, descriptor.kernelCh);
    case kEventProxyOp:
      return here.proxy_op_start(context, parent, descriptor.proxyOp);
    case kEventProxyStep:
      return here.proxy_step_start(parent, descriptor.proxyStep);
    default:
      return 0;  // a parent that NCCL sends along with what was asked for; not followed
  }
}

template <typename Descriptor, bool kP2pChannelsKnown>
int start(void* context, void** handle, Descriptor* descriptor) {
  if (handle == nullptr) return kNcclSuccess;
  *handle = nullptr;  // NCCL leaves an old value there
  Tracker* here = active();
  if (here != nullptr && descriptor != nullptr) {
    *handle = pointer_of(start_event(*here, word_of(context), *descriptor, kP2pChannelsKnown));
  }
  return kNcclSuccess;
}

int stop(void* handle) {
  if (handle == nullptr) return kNcclSuccess;  // what start() itself gave for an event that is not followed
  if (Tracker* here = active()) here->stop(word_of(handle));
  return kNcclSuccess;
}

int record_state(void* handle, int state, EventStateArgs* args) {
  if (handle == nullptr) return kNcclSuccess;
  if (Tracker* here = active()) here->state(word_of(handle), state, args);
  return kNcclSuccess;
}

int init_v4(void** context, int* mask, const char* name, uint64_t hash, int nodes, int ranks, int rank,
            DebugLogger log) {
  return init(context, mask, {hash, ranks, rank, nodes, name}, log);
}

int init_v5(void** context, uint64_t id, int* mask, const char* name, int nodes, int ranks, int rank, DebugLogger log) {
  return init(context, mask, {id, ranks, rank, nodes, name}, log);
}

}  // namespace
}  // namespace lockstep::nccl

#define LOCKSTEP_EXPORT extern "C" __attribute__((visibility("default")))

LOCKSTEP_EXPORT lockstep::nccl::ProfilerV4 ncclProfiler_v4;
lockstep::nccl::ProfilerV4 ncclProfiler_v4 = {
    .name = "Lockstep",
    .init = lockstep::nccl::init_v4,
    .startEvent = lockstep::nccl::start<lockstep::nccl::EventDescrV4, false>,
    .stopEvent = lockstep::nccl::stop,
    .recordEventState = lockstep::nccl::record_state,
    .finalize = lockstep::nccl::finalize,
};

LOCKSTEP_EXPORT lockstep::nccl::ProfilerV5 ncclProfiler_v5;
lockstep::nccl::ProfilerV5 ncclProfiler_v5 = {
    .name = "Lockstep",
    .init = lockstep::nccl::init_v5,
    .startEvent = lockstep::nccl::start<lockstep::nccl::EventDescrV5, true>,
    .stopEvent = lockstep::nccl::stop,
    .recordEventState = lockstep::nccl::record_state,
    .finalize = lockstep::nccl::finalize,
};

// For replay and tests: every time stamp from here on is what now_ns says; null goes back to the system's clock.
LOCKSTEP_EXPORT void lockstep_use_clock(uint64_t (*now_ns)(void)) {
  lockstep::use_recorder_clock(now_ns);
}
