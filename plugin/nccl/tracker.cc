// When is an operation over? NCCL says so only through the GPU's channels: every channel's kernel event has stopped.
// Where those events are masked off, the last proxy operation that stops has to do, which a shared-memory transfer does
// not have.
//
// Which thread calls what (NCCL 2.27 to 2.30): operations start and stop on the thread that enqueues; kernel, proxy
// operation and proxy step events come from the proxy thread. So an operation's slot is filled by one thread and
// counted up by another, and outlives its stop until its place is needed again.
#include "plugin/nccl/tracker.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace lockstep::nccl {
namespace {

int mask_from_environment() {
  const char* told = std::getenv("LOCKSTEP_NCCL_MASK");
  if (told == nullptr || *told == '\0') return kMaskDefault;
  char* end = nullptr;
  const unsigned long mask = std::strtoul(told, &end, 0);
  // Only what this plugin follows: a bit more would make NCCL call for nothing.
  return *end == '\0' ? static_cast<int>(mask & static_cast<unsigned long>(kMaskDefault)) : kMaskDefault;
}

uint32_t saturated(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, UINT32_MAX));
}

constexpr uint8_t kSendBit = 0x80;  // in StepSlot::state

uint64_t elapsed(uint64_t from_ns, uint64_t to_ns) {
  return to_ns > from_ns ? to_ns - from_ns : 0;
}

}  // namespace

Tracker::Tracker(RecorderWriter& recorder)
    : recorder_(recorder),
      table_(recorder.in_flight()),
      mask_(mask_from_environment()),
      pid_(::getpid()),
      salt_(static_cast<uint8_t>(static_cast<uint32_t>(pid_) * 2654435761u >> 24)) {}

void Tracker::mark(RecordType type, uint32_t row, const InFlightTable::Comm& comm) {
  Record record{};
  record.mark.head = {.type = type, .comm_index = static_cast<uint16_t>(row), .time_ns = recorder_now_ns()};
  record.mark.number = comm.size;
  record.mark.comm_id = comm.comm_id;
  if (comm.name != nullptr) std::memcpy(record.mark.name, comm.name, strnlen(comm.name, sizeof record.mark.name - 1));
  recorder_.write(record);
}

Tracker::Word Tracker::comm_init(const InFlightTable::Comm& comm) {
  const auto claim = table_.claim(comm);
  if (claim.row < 0) return refused();
  const auto row = static_cast<uint32_t>(claim.row);
  Comm* slots = comms_[row].load(std::memory_order_acquire);
  if (slots == nullptr) {
    comms_[row].store(new Comm, std::memory_order_release);
  } else {
    slots->ops.forget_all();  // of the communicator that had this row before
  }
  if (comm.rank_in_comm >= 0 && std::getenv("RANK") == nullptr && std::getenv("LOCKSTEP_RANK") == nullptr &&
      std::getenv("SLURM_PROCID") == nullptr && std::getenv("OMPI_COMM_WORLD_RANK") == nullptr) {
    recorder_.learn_world(comm.rank_in_comm, comm.size);
  }
  mark(RecordType::kCommInit, row, comm);
  return Handle{HandleKind::kContext, row, claim.epoch}.packed(salt_);
}

void Tracker::comm_finalize(Word context) {
  const Handle handle = unpacked(context);
  if (handle.kind != HandleKind::kContext || !table_.live(handle.row, handle.position)) {
    recorder_.count_refused();
    return;
  }
  mark(RecordType::kCommFinalize, handle.row, table_.comm(handle.row));
  table_.finalize(handle.row, handle.position);
}

InFlightTable::Ticket Tracker::ticket_of(const OpSlot& slot) {
  return {.op_id = slot.op_id, .position = slot.table_position, .entry = slot.table_entry, .p2p = slot.p2p != 0};
}

Tracker::Word Tracker::op_start(Word context, OpRecord record) {
  const Handle comm = unpacked(context);
  if (comm.kind != HandleKind::kContext || !table_.live(comm.row, comm.position)) return refused();
  auto& ops = comms_[comm.row].load(std::memory_order_acquire)->ops;
  const auto claim = ops.claim();
  if (claim.slot == nullptr) return refused();
  OpSlot& slot = *claim.slot;
  const bool completion_is_seen = (mask_ & kEventKernelCh) != 0;
  if (claim.evicted && completion_is_seen && slot.completed == 0) {
    recorder_.count_refused();  // its completion never came, and can now not be seen any more
    op_completed(comm.row, slot);
  }

  record.head.comm_index = static_cast<uint16_t>(comm.row);
  record.head.time_ns = recorder_now_ns();
  record.op_id = last_op_id_.fetch_add(1, std::memory_order_relaxed) + 1;
  const bool p2p = record.head.type == RecordType::kP2p;
  const auto ticket = table_.enqueue(comm.row,
                                     {.op_id = record.op_id,
                                      .seq = record.seq,
                                      .bytes = record.bytes,
                                      .now_ns = record.head.time_ns,
                                      .peer = record.peer,
                                      .function = record.function,
                                      .datatype = record.datatype,
                                      .p2p = p2p},
                                     completion_is_seen);
  record.ordinal = ticket.ordinal;

  slot.op_id = record.op_id;
  slot.table_position = ticket.position;
  slot.epoch = static_cast<uint32_t>(comm.position);
  slot.table_entry = ticket.entry;
  slot.kernels_started = 0;
  slot.kernels_stopped = 0;
  slot.proxy_ops_open = 0;
  slot.p2p = p2p ? 1 : 0;
  slot.channels = record.channels;
  slot.enqueued = 0;
  slot.completed = 0;
  ops.publish(claim);

  Record out;
  out.op = record;
  recorder_.write(out);
  return Handle{HandleKind::kOp, comm.row, claim.position}.packed(salt_);
}

Tracker::OpSlot* Tracker::find_op(const Handle& handle) {
  if (handle.kind != HandleKind::kOp || handle.row >= layout::kCommsMax) return nullptr;
  Comm* comm = comms_[handle.row].load(std::memory_order_acquire);
  return comm != nullptr ? comm->ops.find(handle.position) : nullptr;
}

void Tracker::op_started(uint32_t row, OpSlot& slot, uint64_t now_ns) {
  if (table_.live(row, slot.epoch)) table_.started(row, ticket_of(slot), now_ns);
}

void Tracker::op_completed(uint32_t row, OpSlot& slot) {
  if (slot.completed.exchange(1) == 0 && table_.live(row, slot.epoch)) table_.completed(row, ticket_of(slot));
}

Tracker::Word Tracker::kernel_start(Word op, const KernelChFields& fields) {
  const Handle parent = unpacked(op);
  OpSlot* op_slot = find_op(parent);
  if (op_slot == nullptr) return refused();
  const auto claim = kernels_.claim();
  if (claim.slot == nullptr) return refused();
  if (claim.evicted) recorder_.count_refused();
  KernelSlot& slot = *claim.slot;
  const uint64_t now = recorder_now_ns();
  slot.op = op;
  slot.op_id = op_slot->op_id;
  slot.gpu_start_ns = fields.pTimer;
  slot.gpu_stop_ns = 0;
  slot.host_start_ns = now;
  slot.row = static_cast<uint16_t>(parent.row);
  slot.channel = fields.channelId;
  kernels_.publish(claim);
  if (op_slot->kernels_started.add(1) == 1) op_started(parent.row, *op_slot, now);
  return Handle{HandleKind::kKernelCh, 0, claim.position}.packed(salt_);
}

void Tracker::kernel_stop(const Handle& handle) {
  KernelSlot* slot = kernels_.find(handle.position);
  if (slot == nullptr) return recorder_.count_refused();
  const Word op = slot->op;
  Record record{};
  record.kernel.head = {.type = RecordType::kKernelCh, .comm_index = slot->row, .time_ns = recorder_now_ns()};
  record.kernel.op_id = slot->op_id;
  record.kernel.gpu_start_ns = slot->gpu_start_ns;
  record.kernel.gpu_stop_ns = slot->gpu_stop_ns;
  record.kernel.host_start_ns = slot->host_start_ns;
  record.kernel.channel = slot->channel;
  if (!kernels_.release(slot, handle.position)) return recorder_.count_refused();
  recorder_.write(record);

  const Handle parent = unpacked(op);
  OpSlot* op_slot = find_op(parent);
  if (op_slot == nullptr) return;
  const uint32_t stopped = op_slot->kernels_stopped.add(1);
  const uint32_t channels = op_slot->channels;
  // Not told how many channels there are (p2p in interface v4): all that began have ended is the best there is.
  if (channels != 0 ? stopped == channels : stopped == op_slot->kernels_started) op_completed(parent.row, *op_slot);
}

Tracker::Word Tracker::proxy_op_start(Word context, Word op, const ProxyOpFields& fields) {
  // First of all: of another process (PXN) nothing else in the call means anything here, the context neither.
  if (fields.pid != pid_) return refused();
  uint32_t row = 0;
  uint64_t op_id = 0;
  uint32_t epoch = 0;
  OpSlot* op_slot = nullptr;
  if (op != 0) {
    const Handle parent = unpacked(op);
    op_slot = find_op(parent);
    if (op_slot == nullptr) return refused();
    row = parent.row;
    op_id = op_slot->op_id;
    epoch = op_slot->epoch;
  } else {
    const Handle comm = unpacked(context);
    if (comm.kind != HandleKind::kContext || !table_.live(comm.row, comm.position)) return refused();
    row = comm.row;
    epoch = static_cast<uint32_t>(comm.position);
  }
  const auto claim = proxy_ops_.claim();
  if (claim.slot == nullptr) return refused();
  if (claim.evicted) recorder_.count_refused();
  ProxyOpSlot& slot = *claim.slot;
  const uint64_t now = recorder_now_ns();
  slot.op = op;
  slot.op_id = op_id;
  slot.epoch = epoch;
  slot.start_ns = now;
  slot.peer = fields.peer;
  slot.steps = static_cast<uint32_t>(std::max(fields.nSteps, 0));
  slot.chunk_bytes = static_cast<uint32_t>(std::max(fields.chunkSize, 0));
  slot.row = static_cast<uint16_t>(row);
  slot.channel = fields.channelId;
  slot.send = fields.isSend != 0 ? 1 : 0;
  proxy_ops_.publish(claim);
  if (op_slot != nullptr && (mask_ & kEventKernelCh) == 0) {
    op_slot->proxy_ops_open.add(1);
    op_started(row, *op_slot, now);
  }
  return Handle{HandleKind::kProxyOp, 0, claim.position}.packed(salt_);
}

void Tracker::proxy_op_stop(const Handle& handle) {
  ProxyOpSlot* slot = proxy_ops_.find(handle.position);
  if (slot == nullptr) return recorder_.count_refused();
  const Word op = slot->op;
  Record record{};
  record.proxy_op.head = {.type = RecordType::kProxyOp,
                          .flags = slot->send != 0 ? kFlagSend : uint8_t{0},
                          .comm_index = slot->row,
                          .time_ns = recorder_now_ns()};
  record.proxy_op.op_id = slot->op_id;
  record.proxy_op.start_ns = slot->start_ns;
  record.proxy_op.peer = slot->peer;
  record.proxy_op.steps = slot->steps;
  record.proxy_op.chunk_bytes = slot->chunk_bytes;
  record.proxy_op.channel = slot->channel;
  if (!proxy_ops_.release(slot, handle.position)) return recorder_.count_refused();
  recorder_.write(record);

  if ((mask_ & kEventKernelCh) != 0 || op == 0) return;
  const Handle parent = unpacked(op);
  OpSlot* op_slot = find_op(parent);
  if (op_slot != nullptr && op_slot->proxy_ops_open.add(-1) == 0) op_completed(parent.row, *op_slot);
}

Tracker::Word Tracker::proxy_step_start(Word proxy_op, const ProxyStepFields& fields) {
  const Handle handle = unpacked(proxy_op);
  ProxyOpSlot* parent = handle.kind == HandleKind::kProxyOp ? proxy_ops_.find(handle.position) : nullptr;
  if (parent == nullptr) return refused();
  const auto claim = steps_.claim();
  if (claim.slot == nullptr) return refused();
  StepSlot& slot = *claim.slot;
  const uint64_t now = recorder_now_ns();
  if (claim.evicted) {
    recorder_.count_refused();
    end_step_state(slot, now);
  }
  slot.op_id = parent->op_id;
  slot.epoch = parent->epoch;
  slot.start_ns = now;
  slot.state_since_ns = now;
  slot.wait_gpu_ns = 0;
  slot.wait_peer_ns = 0;
  slot.wire_ns = 0;
  slot.bytes = 0;
  slot.peer = parent->peer;
  slot.step = static_cast<uint32_t>(std::max(fields.step, 0));
  slot.row = parent->row;
  slot.channel = parent->channel;
  slot.state = parent->send != 0 ? kSendBit : uint8_t{0};
  steps_.publish(claim);
  return Handle{HandleKind::kProxyStep, 0, claim.position}.packed(salt_);
}

void Tracker::step_state(StepSlot& slot, int state, const EventStateArgs* args) {
  // NCCL repeats "waiting for the peer" at every poll; the first one counts, and costs no look at the clock.
  const uint8_t send = slot.state & kSendBit;
  if (state == (slot.state & ~kSendBit)) return;
  if (state != kStateStepSendPeerWait && (state < kStateStepSendGpuWait || state > kStateStepRecvGpuWait)) return;
  const uint64_t now = recorder_now_ns();
  end_step_state(slot, now);
  slot.state = static_cast<uint8_t>(state | send);
  slot.state_since_ns = now;
  if (args != nullptr && (state == kStateStepSendWait || state == kStateStepRecvFlushWait)) {
    slot.bytes = saturated(args->proxyStep.transSize);
  }
  if (table_.live(slot.row, slot.epoch)) table_.proxy_enter(slot.row, state, slot.peer, now);
}

void Tracker::end_step_state(StepSlot& slot, uint64_t now_ns) {
  const int state = slot.state & ~kSendBit;
  if (state == 0) return;
  const uint64_t spent = elapsed(slot.state_since_ns, now_ns);
  if (state == kStateStepSendGpuWait || state == kStateStepRecvGpuWait) {
    slot.wait_gpu_ns = saturated(slot.wait_gpu_ns + spent);
  } else if (state == kStateStepSendPeerWait || state == kStateStepRecvWait) {
    slot.wait_peer_ns = saturated(slot.wait_peer_ns + spent);
  } else {
    slot.wire_ns = saturated(slot.wire_ns + spent);
  }
  if (table_.live(slot.row, slot.epoch)) table_.proxy_leave(slot.row, state, now_ns);
}

void Tracker::proxy_step_stop(const Handle& handle) {
  StepSlot* slot = steps_.find(handle.position);
  if (slot == nullptr) return recorder_.count_refused();
  const uint64_t now = recorder_now_ns();
  end_step_state(*slot, now);
  uint8_t flags = (slot->state & kSendBit) != 0 ? kFlagSend : uint8_t{0};
  slot->state = 0;
  Record record{};
  record.proxy_step.op_id = slot->op_id;
  record.proxy_step.start_ns = slot->start_ns;
  record.proxy_step.peer = slot->peer;
  record.proxy_step.bytes = slot->bytes;
  record.proxy_step.wait_gpu_ns = slot->wait_gpu_ns;
  record.proxy_step.wait_peer_ns = slot->wait_peer_ns;
  record.proxy_step.wire_ns = slot->wire_ns;
  record.proxy_step.step = slot->step;
  record.proxy_step.channel = slot->channel;
  for (uint32_t value : {record.proxy_step.bytes, record.proxy_step.wait_gpu_ns, record.proxy_step.wait_peer_ns,
                         record.proxy_step.wire_ns}) {
    if (value == UINT32_MAX) flags |= kFlagSaturated;
  }
  record.proxy_step.head = {.type = RecordType::kProxyStep, .flags = flags, .comm_index = slot->row, .time_ns = now};
  if (!steps_.release(slot, handle.position)) return recorder_.count_refused();
  recorder_.write(record);
}

void Tracker::op_stop(const Handle& handle) {
  OpSlot* slot = find_op(handle);
  if (slot == nullptr || slot->enqueued.exchange(1) != 0) recorder_.count_refused();
}

void Tracker::state(Word word, int state, const EventStateArgs* args) {
  const Handle handle = unpacked(word);
  if (handle.kind == HandleKind::kProxyStep) {
    StepSlot* slot = steps_.find(handle.position);
    if (slot == nullptr) return recorder_.count_refused();
    step_state(*slot, state, args);
  } else if (handle.kind == HandleKind::kKernelCh) {
    KernelSlot* slot = kernels_.find(handle.position);
    if (slot == nullptr) return recorder_.count_refused();
    if (state == kStateKernelChStop && args != nullptr && slot->gpu_stop_ns == 0)
      slot->gpu_stop_ns = args->kernelCh.pTimer;
  } else if (handle.kind == HandleKind::kNone || handle.kind == HandleKind::kContext) {
    recorder_.count_refused();
  }
  // States of operations and proxy operations say nothing that their start and stop do not.
}

void Tracker::stop(Word word) {
  const Handle handle = unpacked(word);
  switch (handle.kind) {
    case HandleKind::kOp:
      return op_stop(handle);
    case HandleKind::kKernelCh:
      return kernel_stop(handle);
    case HandleKind::kProxyOp:
      return proxy_op_stop(handle);
    case HandleKind::kProxyStep:
      return proxy_step_stop(handle);
    case HandleKind::kNone:
    case HandleKind::kContext:
      return recorder_.count_refused();
  }
}

}  // namespace lockstep::nccl
