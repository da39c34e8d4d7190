// Turns NCCL's profiler callbacks into flight recorder records and keeps the operations-in-flight table. One per
// process, made by the first init and never destroyed: NCCL's threads may call after the last finalize.
//
// Thread rule: Thread-safe. Every call but comm_init() is O(1), without lock, allocation or system call (budget: 50
// ns). Limits:      kOpSlots operations per communicator, kEventSlots events of each other kind per process, between
// start and
//              stop. Beyond that the oldest loses its place and is counted as refused.
// On error:    a handle of 0 ("not followed"), counted where an event was lost. Handles that name nothing are counted
// too.
#pragma once

#include <cstdint>
#include <memory>

#include "plugin/nccl/profiler_abi.h"
#include "plugin/nccl/slots.h"
#include "recorder/in_flight.h"
#include "recorder/records.h"
#include "recorder/writer.h"

namespace lockstep::nccl {

inline constexpr uint32_t kOpSlots = 1024;
inline constexpr uint32_t kEventSlots = 4096;
inline constexpr int kMaskDefault = kEventColl | kEventP2p | kEventProxyOp | kEventProxyStep | kEventKernelCh;

class Tracker {
 public:
  using Word = uint64_t;  // a packed Handle; 0: none

  explicit Tracker(RecorderWriter& recorder);

  int mask() const { return mask_; }
  bool off() const { return recorder_.off(); }

  Word comm_init(const InFlightTable::Comm& comm);
  void comm_finalize(Word context);

  // A collective or point-to-point operation was enqueued. record: seq, bytes, peer, function, datatype, channels,
  // algorithm and protocol are filled in; the rest is added here.
  Word op_start(Word context, OpRecord record);
  Word kernel_start(Word op, const KernelChFields& fields);
  Word proxy_op_start(Word context, Word op, const ProxyOpFields& fields);
  Word proxy_step_start(Word proxy_op, const ProxyStepFields& fields);

  void state(Word handle, int state, const EventStateArgs* args);
  void stop(Word handle);

 private:
  struct alignas(64) OpSlot {
    std::atomic<uint64_t> key;
    Relaxed<uint64_t> op_id;
    Relaxed<uint64_t> table_position;
    Relaxed<uint32_t> epoch;  // of the communicator, its low half: a process makes no 4 billion of them
    Relaxed<uint32_t> table_entry;
    Relaxed<uint32_t> kernels_started;
    Relaxed<uint32_t> kernels_stopped;
    Relaxed<int32_t> proxy_ops_open;
    Relaxed<uint8_t> p2p;
    Relaxed<uint8_t> channels;
    Relaxed<uint8_t> enqueued;  // NCCL has stopped the event: everything is handed to the GPU and the proxy
    Relaxed<uint8_t> completed;
  };
  struct alignas(64) KernelSlot {
    std::atomic<uint64_t> key;
    Relaxed<uint64_t> op;  // packed handle
    Relaxed<uint64_t> op_id;
    Relaxed<uint64_t> gpu_start_ns;
    Relaxed<uint64_t> gpu_stop_ns;
    Relaxed<uint64_t> host_start_ns;
    Relaxed<uint16_t> row;
    Relaxed<uint8_t> channel;
  };
  struct alignas(64) ProxyOpSlot {
    std::atomic<uint64_t> key;
    Relaxed<uint64_t> op;  // packed handle, 0: none
    Relaxed<uint64_t> op_id;
    Relaxed<uint32_t> epoch;
    Relaxed<uint64_t> start_ns;
    Relaxed<int32_t> peer;
    Relaxed<uint32_t> steps;
    Relaxed<uint32_t> chunk_bytes;
    Relaxed<uint16_t> row;
    Relaxed<uint8_t> channel;
    Relaxed<uint8_t> send;
  };
  struct alignas(64) StepSlot {  // one cache line: there are more steps than anything else
    std::atomic<uint64_t> key;
    Relaxed<uint64_t> op_id;
    Relaxed<uint64_t> start_ns;
    Relaxed<uint64_t> state_since_ns;
    Relaxed<uint32_t> wait_gpu_ns;  // these four stay at their largest value once they reach it
    Relaxed<uint32_t> wait_peer_ns;
    Relaxed<uint32_t> wire_ns;
    Relaxed<uint32_t> bytes;
    Relaxed<int32_t> peer;
    Relaxed<uint32_t> step;
    Relaxed<uint32_t> epoch;
    Relaxed<uint16_t> row;
    Relaxed<uint8_t> channel;
    Relaxed<uint8_t> state;  // NCCL's number; bit 7: send
  };
  static_assert(sizeof(OpSlot) == 64 && sizeof(KernelSlot) == 64 && sizeof(ProxyOpSlot) == 64 &&
                sizeof(StepSlot) == 64);
  struct Comm {
    SlotRing<OpSlot> ops{kOpSlots};
  };

  Handle unpacked(Word word) const { return Handle::unpacked(word, salt_); }
  Word refused() {
    recorder_.count_refused();
    return 0;
  }
  OpSlot* find_op(const Handle& handle);
  void op_stop(const Handle& handle);
  void kernel_stop(const Handle& handle);
  void proxy_op_stop(const Handle& handle);
  void proxy_step_stop(const Handle& handle);
  void step_state(StepSlot& slot, int state, const EventStateArgs* args);
  void end_step_state(StepSlot& slot, uint64_t now_ns);
  void op_started(uint32_t row, OpSlot& slot, uint64_t now_ns);
  void op_completed(uint32_t row, OpSlot& slot);
  void mark(RecordType type, uint32_t row, const InFlightTable::Comm& comm);
  static InFlightTable::Ticket ticket_of(const OpSlot& slot);

  RecorderWriter& recorder_;
  InFlightTable& table_;
  const int mask_;
  const pid_t pid_;
  const uint8_t salt_;
  std::atomic<uint64_t> last_op_id_{0};
  // By row; made when the row is first used, then kept: late callbacks may still name its operations.
  std::atomic<Comm*> comms_[layout::kCommsMax] = {};
  SlotRing<KernelSlot> kernels_{kEventSlots};
  SlotRing<ProxyOpSlot> proxy_ops_{kEventSlots};
  SlotRing<StepSlot> steps_{kEventSlots};
};

}  // namespace lockstep::nccl
