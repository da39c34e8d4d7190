// When is an operation over? NCCL says so only through the GPU's channels: every channel's kernel event has stopped.
// Where those events are masked off, the last proxy operation that stops has to do, which a shared-memory transfer does
// not have.
//
// Which thread calls what (NCCL 2.27 to 2.30): operations start and stop on the thread that enqueues; kernel, proxy
// operation and proxy step events come from the proxy thread. So an operation's slot is filled by one thread and
// counted up by another, and outlives its stop until its place is needed again and nobody waits for it.
#include "plugin/nccl/tracker.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace lockstep::nccl {
namespace {

uint32_t saturated(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, UINT32_MAX));
}

constexpr uint8_t kSendBit = 0x80;            // in StepSlot::state
constexpr uint32_t kGraphGroup = 0x80000000;  // in the number of a group: its calls were captured into a CUDA graph
// In the row of a group's handle: it is that of one call, and whether kernel events were asked for then. NCCL goes by
// the mask that it saw at the call, for a captured graph for ever.
constexpr uint32_t kOfCall = 2;
constexpr uint32_t kCallReportedKernels = 1;
// It was captured into a graph whose other calls have no kernel events (detail.h). Its end tells that the graph moves;
// its GPU time would pass for all the communication of its step.
constexpr uint32_t kCallAlone = 4;
constexpr int32_t kPeersMax = 65'536;
// A ring that goes round faster than this is written faster than the agent, which looks 20 times a second, can be
// trusted to read it.
constexpr uint64_t kFastRingNs = 250'000'000;

uint64_t elapsed(uint64_t from_ns, uint64_t to_ns) {
  return to_ns > from_ns ? to_ns - from_ns : 0;
}

}  // namespace

Tracker::Tracker(RecorderWriter& recorder, const Policy& policy)
    : recorder_(recorder), table_(recorder.in_flight()), pid_(::getpid()), salt_(new_salt()) {
  merging_ = std::make_unique<Merging[]>(recorder.lanes());
  open_calls_ = std::make_unique<OpenCall[]>(recorder.lanes());
  op_places_ = std::make_unique<std::atomic<OpPlaces*>[]>(recorder.lanes());
  places_ = std::make_unique<std::atomic<Places*>[]>(recorder.lanes());
  detail_.configure(recorder, policy);
}

void Tracker::mark(RecordType type, uint32_t row, const InFlightTable::Comm& comm) {
  Record record{};
  record.mark.head = {.type = type, .comm_index = static_cast<uint16_t>(row), .time_ns = recorder_now_ns()};
  record.mark.number = comm.size;
  record.mark.comm_id = comm.comm_id;
  if (comm.name != nullptr) std::memcpy(record.mark.name, comm.name, strnlen(comm.name, sizeof record.mark.name - 1));
  recorder_.write(record);
}

Tracker::Word Tracker::comm_init(const InFlightTable::Comm& comm, int* nccl_mask) {
  const MutexLock lock(lifecycle_);
  detail_.use_mask(nccl_mask);
  const auto claim = table_.claim(comm);
  if (claim.row < 0) return refused(Refused::kNoRow);
  const auto row = static_cast<uint32_t>(claim.row);
  Comm& here = comms_[row];
  spare_op_places_.refill();
  spare_places_.refill();
  count_peers_anew(here, std::clamp(comm.size, 0, kPeersMax));
  here.comm_id.store(comm.comm_id, std::memory_order_relaxed);
  here.rank.store(comm.rank_in_comm, std::memory_order_relaxed);
  here.miscounts.store(false, std::memory_order_relaxed);
  here.epoch.store(claim.epoch, std::memory_order_release);
  comms_alive_ += 1;
  if (comm.rank_in_comm >= 0 && std::getenv("RANK") == nullptr && std::getenv("LOCKSTEP_RANK") == nullptr &&
      std::getenv("SLURM_PROCID") == nullptr && std::getenv("OMPI_COMM_WORLD_RANK") == nullptr) {
    recorder_.learn_world(comm.rank_in_comm, comm.size);
  }
  mark(RecordType::kCommInit, row, comm);
  return Handle{HandleKind::kContext, row, static_cast<uint32_t>(claim.epoch)}.packed(salt_);
}

Tracker::Comm* Tracker::live_comm(const Handle& handle) {
  if (handle.kind != HandleKind::kContext || handle.row >= layout::kCommsMax) return nullptr;
  return is_live(handle.row, handle.position) ? &comms_[handle.row] : nullptr;
}

bool Tracker::is_live(uint32_t row, uint32_t epoch) {
  const uint64_t now = comms_[row].epoch.load(std::memory_order_acquire);
  return now != 0 && static_cast<uint32_t>(now) == epoch;
}

void Tracker::comm_identity(Word context, uint64_t comm_id, int32_t rank, const char* name) {
  const Handle handle = unpacked(context);
  Comm* comm = live_comm(handle);
  uint64_t none = 0;
  if (comm == nullptr || comm_id == 0 || comm->comm_id.load(std::memory_order_relaxed) != 0) return;
  if (!comm->comm_id.compare_exchange_strong(none, comm_id)) return;
  comm->rank.store(rank, std::memory_order_relaxed);
  table_.identify(handle.row, {.comm_id = comm_id, .rank_in_comm = rank, .name = name});
}

void Tracker::comm_finalize(Word context) {
  const MutexLock lock(lifecycle_);
  const Handle handle = unpacked(context);
  Comm* comm = live_comm(handle);
  if (comm == nullptr) return recorder_.count_refused(Refused::kNoRow);
  mark(RecordType::kCommFinalize, handle.row, table_.comm(handle.row));
  table_.finalize(handle.row, comm->epoch.exchange(0, std::memory_order_acq_rel));
  // NCCL may be unloaded after its last communicator, and its mask with it.
  comms_alive_ -= 1;
  if (comms_alive_ == 0) detail_.use_mask(nullptr);
}

Tracker::Word Tracker::group_start() {
  Call call(recorder_);
  const uint32_t number = recorder_.next_group(call.lane());
  return number != 0 ? Handle{HandleKind::kGroup, 0, number}.packed(salt_) : 0;
}

Tracker::Word Tracker::call_start(Word context, Word parent, bool p2p, bool graph) {
  Call call(recorder_);
  const Handle comm = unpacked(context);
  if (live_comm(comm) != nullptr) {
    if (call.lane().header != nullptr) {
      count_open_call(call);  // one that NCCL did not stop
      table_.fetch_counts(comm.row);
      open_calls_[call.lane().number] = {context, p2p};
    } else {
      table_.count_call(comm.row, p2p);
    }
  }
  const uint32_t reported = (detail_.in_force() & kEventKernelCh) != 0 ? kCallReportedKernels : 0;
  const uint32_t alone = graph && !detail_.kernels_in_graphs() ? kCallAlone : 0;
  detail_.on_call(graph);
  const Handle group = unpacked(parent);
  if (group.kind != HandleKind::kGroup) return 0;
  return Handle{HandleKind::kGroup, kOfCall | reported | alone, group.position | (graph ? kGraphGroup : 0)}.packed(
      salt_);
}

void Tracker::count_open_call(Call& call) {
  if (call.lane().header == nullptr) return;
  OpenCall& open = open_calls_[call.lane().number];
  if (open.context == 0) return;
  const Handle comm = unpacked(open.context);
  open.context = 0;
  if (live_comm(comm) == nullptr) return;
  table_.count_call(comm.row, open.p2p);
  table_.fetch_next_entry(comm.row);  // NCCL launches the kernel now, and then tells of the operation
}

void Tracker::count_peers_anew(Comm& comm, int32_t size) {
  PeerCounts* peers = comm.peers.load(std::memory_order_relaxed);
  if (peers == nullptr || peers->size < size) {
    // The old one stays where it is: who knows who is still looking. Sizes grow, so little is left behind.
    comm.peers.store(new PeerCounts(std::max(size, peers != nullptr ? peers->size * 2 : 0)), std::memory_order_release);
    return;
  }
  for (int32_t i = 0; i < peers->size * 2; ++i) peers->counts[static_cast<size_t>(i)].store(0);
}

uint64_t Tracker::next_of_peer(Comm& comm, uint64_t detail) {
  PeerCounts* peers = comm.peers.load(std::memory_order_acquire);
  const auto peer = static_cast<int32_t>(detail);
  if (peer < 0 || peer >= peers->size) return 0;
  const bool receive = static_cast<Function>(detail >> 32 & 0xFF) == Function::kRecv;
  const int32_t place = peer + (receive ? peers->size : 0);
  return peers->counts[static_cast<size_t>(place)].fetch_add(1, std::memory_order_relaxed);
}

InFlightTable::Ticket Tracker::ticket_of(const OpSlot& slot) {
  return {.op_id = slot.op_id,
          .ordinal = slot.ordinal,
          .position = slot.table_position,
          .entry = slot.table_entry,
          .p2p = slot.p2p != 0,
          .end_is_seen = slot.kernels_reported != 0};
}

Tracker::Word Tracker::op_start(Word context, const Op& op) {
  Call call(recorder_);
  const Handle handle = unpacked(context);
  Comm* comm = live_comm(handle);
  if (comm == nullptr) return refused(Refused::kNoRow);
  const uint64_t now = call.now_ns();
  const uint64_t p2p = static_cast<RecordType>(op.head & 0xFF) == RecordType::kP2p ? 1 : 0;
  uint64_t head = op.head | static_cast<uint64_t>(handle.row) << 16;
  Handle group = unpacked(op.parent);
  const bool of_call = group.kind == HandleKind::kGroup && (group.row & kOfCall) != 0;
  const bool kernels_asked =
      of_call ? (group.row & kCallReportedKernels) != 0 : (detail_.in_force() & kEventKernelCh) != 0;
  OpPlaces* places = places_here(call, op_places_, spare_op_places_);
  // A rank's own part of an AlltoAll is a copy: NCCL tells neither kernels nor transfers of it.
  const bool to_itself = p2p != 0 && static_cast<int32_t>(op.detail) == comm->rank.load(std::memory_order_relaxed);
  if (to_itself && !comm->miscounts.exchange(true)) detail_.keep_proxy_ops();
  const bool kernels_reported =
      kernels_asked && places != nullptr && !to_itself && (head >> 8 & kFlagCopyEngine) == 0;
  const bool untimed = kernels_reported && of_call && (group.row & kCallAlone) != 0;
  if (!kernels_reported || untimed) head |= uint64_t{kFlagUnseen} << 8;
  detail_.on_operation(op.bytes, now);

  if (group.kind == HandleKind::kGroup && (group.position & kGraphGroup) != 0) {
    // Without kernel events only ranks that have network transfers in it are told of a replay: their counts would run
    // away from those of the others.
    if (of_call && !kernels_asked) return 0;
    head |= uint64_t{kFlagGraph} << 8;
    if (const Handle replay = unpacked(op.launch); replay.kind == HandleKind::kGroup) group = replay;
  }
  const uint64_t seq = p2p != 0 ? next_of_peer(*comm, op.detail) : op.seq;

  const auto ticket = table_.enqueue(handle.row, comm->epoch.load(std::memory_order_relaxed),
                                     {.seq = seq,
                                      .bytes = op.bytes,
                                      .now_ns = now,
                                      .detail = op.detail,
                                      .p2p = p2p,
                                      .end_is_seen = kernels_reported ? uint64_t{1} : 0});
  const uint32_t group_number = group.kind == HandleKind::kGroup ? group.position : 0;
  const uint64_t words[8] = {
      head,     now,       ticket.op_id,   seq,
      op.bytes, op.detail, ticket.ordinal, op_last_word(static_cast<uint8_t>(op.protocol), group_number)};
  recorder_.write(call.lane(), words);

  if (places == nullptr) return 0;
  const auto claim = places->ops.claim([this](const OpSlot& old) { return nobody_waits_for(old); });
  if (claim.slot == nullptr) return refused(Refused::kNoSlot);
  OpSlot& slot = *claim.slot;
  if (claim.evicted && slot.kernels_reported != 0 && slot.completed == 0) {
    recorder_.count_refused(Refused::kCompletion);
    op_completed(slot);
  }
  slot.op_id = ticket.op_id;
  slot.table_position = ticket.position;
  slot.ordinal = ticket.ordinal;
  slot.epoch = handle.position;
  slot.table_entry = ticket.entry;
  slot.kernels_started = 0;
  slot.kernels_stopped = 0;
  slot.proxy_ops_open = 0;
  slot.row = static_cast<uint16_t>(handle.row);
  slot.p2p = static_cast<uint8_t>(p2p);
  slot.channels = static_cast<uint8_t>(op.detail >> 48);
  slot.enqueued = 0;
  slot.completed = 0;
  slot.kernels_reported = kernels_reported ? 1 : 0;
  slot.untimed = untimed ? 1 : 0;
  places->ops.publish(claim);
  return Handle{HandleKind::kOp, call.lane().number, claim.position}.packed(salt_);
}

Tracker::OpSlot* Tracker::find_op(const Handle& handle) {
  if (handle.kind != HandleKind::kOp || handle.row >= recorder_.lanes()) return nullptr;
  OpPlaces* places = op_places_[handle.row].load(std::memory_order_acquire);
  return places != nullptr ? places->ops.find(handle.position) : nullptr;
}

bool Tracker::owner_of(const OpSlot* slot, const Handle& handle, OpOwner& owner) {
  if (slot == nullptr) return false;
  owner = {.op_id = slot->op_id.read(), .epoch = slot->epoch.read(), .row = slot->row.read()};
  return SlotRing<OpSlot>::still(slot, handle.position);
}

// An operation that hangs keeps its place however many others its thread makes on other communicators; one whose end
// was lost somewhere does not keep it for ever.
bool Tracker::nobody_waits_for(const OpSlot& slot) {
  if (slot.completed != 0 || slot.kernels_reported == 0) return true;
  return !is_live(slot.row, slot.epoch) || table_.overtaken(slot.row, slot.table_position);
}

void Tracker::op_started(OpSlot& slot, uint64_t now_ns) {
  if (is_live(slot.row, slot.epoch)) table_.started(slot.row, ticket_of(slot), now_ns);
}

void Tracker::op_completed(OpSlot& slot) {
  if (slot.completed.exchange(1) == 0 && is_live(slot.row, slot.epoch)) table_.completed(slot.row, ticket_of(slot));
}

bool Tracker::kernels_over(const OpSlot& slot) const {
  // Not told how many channels there are (p2p in interface v4): all that began have ended is the best there is.
  const uint32_t stopped = slot.kernels_stopped, channels = slot.channels;
  return channels != 0 ? stopped >= channels : stopped >= slot.kernels_started;
}

bool Tracker::waits_for_network(const OpSlot& slot) const {
  return slot.kernels_reported == 0 || comms_[slot.row].miscounts.load(std::memory_order_relaxed);
}

Tracker::Places* Tracker::event_places(Call& call) {
  if (call.lane().header == nullptr) recorder_.count_refused(Refused::kNoLane);
  return places_here(call, places_, spare_places_);
}

Tracker::Word Tracker::kernel_start(Word op, uint8_t channel, uint64_t gpu_start_ns) {
  Call call(recorder_);
  if (op == 0) return 0;  // of an operation that is not followed; what was lost is counted there
  const Handle parent = unpacked(op);
  OpSlot* op_slot = find_op(parent);
  OpOwner owner;
  if (!owner_of(op_slot, parent, owner)) return refused(Refused::kHandle);
  Places* places = event_places(call);
  if (places == nullptr) return 0;
  const uint64_t now = call.now_ns();
  // Before 2.31 NCCL at times stops a channel before it has started it, and then never again.
  const auto over = [this](const KernelSlot& old) {
    const OpSlot* of = find_op(unpacked(old.op));
    return of == nullptr || nobody_waits_for(*of);
  };
  const auto claim = places->kernels.claim(over);
  if (claim.slot == nullptr) return refused(Refused::kNoSlot);
  KernelSlot& slot = *claim.slot;
  if (claim.evicted && !over(slot)) recorder_.count_refused(Refused::kNoSlot);
  slot.op = op;
  slot.op_id = owner.op_id;
  slot.gpu_start_ns = gpu_start_ns;
  slot.gpu_stop_ns = 0;
  slot.host_start_ns = now;
  slot.row = owner.row;
  slot.channel = channel;
  places->kernels.publish(claim);
  // How many have started matters only where NCCL does not say how many there are; else that one has.
  if (op_slot->channels == 0 ? op_slot->kernels_started.add(1) == 1 : op_slot->kernels_started == 0) {
    if (op_slot->channels != 0) op_slot->kernels_started = 1;
    op_started(*op_slot, now);
  }
  return Handle{HandleKind::kKernelCh, call.lane().number, claim.position}.packed(salt_);
}

void Tracker::kernel_stop(Call& call, const Handle& handle) {
  KernelSlot* slot = find_event(&Places::kernels, handle);
  if (slot == nullptr) return recorder_.count_refused(Refused::kHandle);
  const Word op = slot->op;
  Record record{};
  record.kernel.head = {.type = RecordType::kKernelCh, .comm_index = slot->row, .time_ns = call.now_ns()};
  record.kernel.op_id = slot->op_id;
  record.kernel.gpu_start_ns = slot->gpu_start_ns;
  record.kernel.gpu_stop_ns = slot->gpu_stop_ns;
  record.kernel.host_start_ns = slot->host_start_ns;
  record.kernel.channel = slot->channel;
  if (!SlotRing<KernelSlot>::release(slot, handle.position)) return recorder_.count_refused(Refused::kHandle);

  OpSlot* op_slot = find_op(unpacked(op));
  if (op_slot == nullptr || op_slot->untimed == 0) recorder_.write(call.lane(), record);
  if (op_slot == nullptr) return;
  op_slot->kernels_stopped.add(1);
  if (kernels_over(*op_slot) && (op_slot->proxy_ops_open <= 0 || !waits_for_network(*op_slot))) op_completed(*op_slot);
}

Tracker::Word Tracker::proxy_op_start(Word context, Word op, const ProxyOpFields& fields) {
  Call call(recorder_);
  // First of all: of another process (PXN) nothing else in the call means anything here, the context neither.
  if (fields.pid != pid_) return refused(Refused::kForeign);
  uint32_t row = 0;
  uint64_t op_id = 0;
  uint32_t epoch = 0;
  OpSlot* op_slot = nullptr;
  if (op != 0) {
    const Handle parent = unpacked(op);
    op_slot = find_op(parent);
    OpOwner owner;
    if (!owner_of(op_slot, parent, owner)) return refused(Refused::kHandle);
    row = owner.row;
    op_id = owner.op_id;
    epoch = owner.epoch;
  } else {
    const Handle comm = unpacked(context);
    if (live_comm(comm) == nullptr) return refused(Refused::kNoRow);
    row = comm.row;
    epoch = comm.position;
  }
  Places* places = event_places(call);
  if (places == nullptr) return 0;
  const uint64_t now = call.now_ns();
  const auto claim = places->proxy_ops.claim();
  if (claim.slot == nullptr) return refused(Refused::kNoSlot);
  if (claim.evicted) recorder_.count_refused(Refused::kNoSlot);
  ProxyOpSlot& slot = *claim.slot;
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
  places->proxy_ops.publish(claim);
  if (op_slot != nullptr && waits_for_network(*op_slot)) {
    op_slot->proxy_ops_open.add(1);
    op_started(*op_slot, now);
  }
  return Handle{HandleKind::kProxyOp, call.lane().number, claim.position}.packed(salt_);
}

void Tracker::proxy_op_stop(Call& call, const Handle& handle) {
  ProxyOpSlot* slot = find_event(&Places::proxy_ops, handle);
  if (slot == nullptr) return recorder_.count_refused(Refused::kHandle);
  const Word op = slot->op;
  Record record{};
  record.proxy_op.head = {.type = RecordType::kProxyOp,
                          .flags = slot->send != 0 ? kFlagSend : uint8_t{0},
                          .comm_index = slot->row,
                          .time_ns = call.now_ns()};
  record.proxy_op.op_id = slot->op_id;
  record.proxy_op.start_ns = slot->start_ns;
  record.proxy_op.peer = slot->peer;
  record.proxy_op.steps = slot->steps;
  record.proxy_op.chunk_bytes = slot->chunk_bytes;
  record.proxy_op.channel = slot->channel;
  if (!SlotRing<ProxyOpSlot>::release(slot, handle.position)) return recorder_.count_refused(Refused::kHandle);
  if (call.lane().header != nullptr) {
    const bool send = (record.head.flags & kFlagSend) != 0;
    Merging::Entry& steps = merging_entry(call, record.proxy_op.op_id, record.proxy_op.channel, send);
    if (steps.used) flush(call, steps);
  }
  recorder_.write(call.lane(), record);

  if (op == 0) return;
  const Handle parent = unpacked(op);
  OpSlot* op_slot = find_op(parent);
  if (op_slot == nullptr || !waits_for_network(*op_slot)) return;
  const bool last = op_slot->proxy_ops_open.add(-1) == 0;
  if (last && (op_slot->kernels_reported == 0 || kernels_over(*op_slot))) op_completed(*op_slot);
}

Tracker::Word Tracker::proxy_step_start(Word proxy_op, const ProxyStepFields& fields) {
  Call call(recorder_);
  const Handle handle = unpacked(proxy_op);
  ProxyOpSlot* parent = handle.kind == HandleKind::kProxyOp ? find_event(&Places::proxy_ops, handle) : nullptr;
  if (parent == nullptr) return refused(Refused::kHandle);
  Places* places = event_places(call);
  if (places == nullptr) return 0;
  const uint64_t now = call.now_ns();
  const auto claim = places->steps.claim();
  if (claim.slot == nullptr) return refused(Refused::kNoSlot);
  StepSlot& slot = *claim.slot;
  if (claim.evicted) {
    recorder_.count_refused(Refused::kNoSlot);
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
  places->steps.publish(claim);
  return Handle{HandleKind::kProxyStep, call.lane().number, claim.position}.packed(salt_);
}

void Tracker::step_state(Call& call, StepSlot& slot, int state, uint64_t bytes) {
  // NCCL repeats "waiting for the peer" at every poll; the first one counts, and costs no look at the clock.
  const uint8_t send = slot.state & kSendBit;
  if (state == (slot.state & ~kSendBit)) return;
  if (state != kStateStepSendPeerWait && (state < kStateStepSendGpuWait || state > kStateStepRecvGpuWait)) return;
  const uint64_t now = call.now_ns();
  end_step_state(slot, now);
  slot.state = static_cast<uint8_t>(state | send);
  slot.state_since_ns = now;
  if (state == kStateStepSendWait || state == kStateStepRecvFlushWait) slot.bytes = saturated(bytes);
  if (is_live(slot.row, slot.epoch)) table_.proxy_enter(slot.row, state, slot.peer, now);
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
  if (is_live(slot.row, slot.epoch)) table_.proxy_leave(slot.row, state, now_ns);
}

void Tracker::proxy_step_stop(Call& call, const Handle& handle) {
  StepSlot* slot = find_event(&Places::steps, handle);
  if (slot == nullptr) return recorder_.count_refused(Refused::kHandle);
  const uint64_t now = call.now_ns();
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
  if (!SlotRing<StepSlot>::release(slot, handle.position)) return recorder_.count_refused(Refused::kHandle);
  if (RecorderWriter::goes_round_within(call.lane(), now, kFastRingNs)) [[unlikely]]
    return merge(call, record);
  recorder_.write(call.lane(), record);
}

Tracker::Merging::Entry& Tracker::merging_entry(Call& call, uint64_t op_id, uint8_t channel, bool send) {
  const uint64_t mixed = (op_id << 9 | static_cast<uint64_t>(channel) << 1 | (send ? 1 : 0)) * 0x9E3779B97F4A7C15ULL;
  return merging_[call.lane().number].entries[mixed >> 58];
}

void Tracker::flush(Call& call, Merging::Entry& entry) {
  if (entry.used) recorder_.write(call.lane(), entry.record);
  entry.used = false;
}

void Tracker::merge(Call& call, const Record& step) {
  const ProxyStepRecord& next = step.proxy_step;
  const bool send = (next.head.flags & kFlagSend) != 0;
  Merging::Entry& entry = merging_entry(call, next.op_id, next.channel, send);
  ProxyStepRecord& sum = entry.record.proxy_step;
  const bool same = entry.used && sum.op_id == next.op_id && sum.channel == next.channel && sum.peer == next.peer &&
                    ((sum.head.flags ^ next.head.flags) & kFlagSend) == 0 &&
                    sum.head.comm_index == next.head.comm_index;
  const auto in_us = [](uint32_t ns) { return static_cast<uint16_t>(std::min<uint32_t>(ns / 1000, UINT16_MAX)); };
  const uint64_t stop_ns = next.head.time_ns;
  if (!same) {
    flush(call, entry);
    entry = {.record = step, .wire_until_ns = stop_ns, .used = true};
    sum.wire_longest_us = in_us(next.wire_ns);
    sum.wait_gpu_longest_us = in_us(next.wait_gpu_ns);
    return;
  }
  // On the wire together with the one before it, as far as they overlap.
  const uint64_t on_wire_from = std::max(stop_ns - next.wire_ns, entry.wire_until_ns);
  sum.wire_ns = saturated(sum.wire_ns + elapsed(on_wire_from, stop_ns));
  entry.wire_until_ns = std::max(entry.wire_until_ns, stop_ns);
  sum.bytes = saturated(uint64_t{sum.bytes} + next.bytes);
  sum.wait_gpu_ns = saturated(uint64_t{sum.wait_gpu_ns} + next.wait_gpu_ns);
  sum.wait_peer_ns = saturated(uint64_t{sum.wait_peer_ns} + next.wait_peer_ns);
  sum.wire_longest_us = std::max(sum.wire_longest_us, in_us(next.wire_ns));
  sum.wait_gpu_longest_us = std::max(sum.wait_gpu_longest_us, in_us(next.wait_gpu_ns));
  sum.head.flags |= next.head.flags & kFlagSaturated;
  sum.head.time_ns = stop_ns;
  sum.step = next.step;
  sum.merged += 1;
  if (sum.merged == kMergedMax) flush(call, entry);
}

void Tracker::op_stop(const Handle& handle) {
  OpSlot* slot = find_op(handle);
  if (slot == nullptr || slot->enqueued.exchange(1) != 0) recorder_.count_refused(Refused::kHandle);
}

void Tracker::state(Word word, int state, const StateValue& value) {
  Call call(recorder_);
  const Handle handle = unpacked(word);
  if (handle.kind == HandleKind::kProxyStep) {
    StepSlot* slot = find_event(&Places::steps, handle);
    if (slot == nullptr) return recorder_.count_refused(Refused::kHandle);
    step_state(call, *slot, state, value.bytes);
  } else if (handle.kind == HandleKind::kKernelCh) {
    KernelSlot* slot = find_event(&Places::kernels, handle);
    if (slot == nullptr) return recorder_.count_refused(Refused::kHandle);
    if (state == kStateKernelChStop && slot->gpu_stop_ns == 0) slot->gpu_stop_ns = value.gpu_stop_ns;
  } else if (handle.kind == HandleKind::kNone || handle.kind == HandleKind::kContext) {
    recorder_.count_refused(Refused::kHandle);
  }
  // States of groups, operations and proxy operations say nothing that their start and stop do not.
}

void Tracker::stop(Word word) {
  Call call(recorder_);
  const Handle handle = unpacked(word);
  switch (handle.kind) {
    case HandleKind::kOp:
      return op_stop(handle);
    case HandleKind::kKernelCh:
      return kernel_stop(call, handle);
    case HandleKind::kProxyOp:
      return proxy_op_stop(call, handle);
    case HandleKind::kProxyStep:
      return proxy_step_stop(call, handle);
    case HandleKind::kGroup:
      if ((handle.row & kOfCall) != 0) count_open_call(call);
      return;
    case HandleKind::kNone:
    case HandleKind::kContext:
    case HandleKind::kPair:
      return recorder_.count_refused(Refused::kHandle);
  }
}

}  // namespace lockstep::nccl
