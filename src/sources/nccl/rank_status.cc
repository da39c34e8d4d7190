// RankAssembler: where the rank stands, from its table of operations in flight.
#include "sources/nccl/rank_assembler.h"

namespace lockstep {
namespace {

// What a transfer in NCCL's proxy step state waits for.
const char* proxy_text(uint8_t state) {
  switch (state) {
    case 8:   // to be produced
    case 12:  // to be consumed
      return "own GPU";
    case 20:  // no credit from the receiver
    case 10:  // nothing from the sender
      return "peer";
    case 9:   // sent
    case 11:  // flush
      return "wire";
    default:
      return "";
  }
}

}  // namespace

OpStatus RankAssembler::status_of(const InFlightOp& op) const {
  OpStatus status;
  status.state = static_cast<OpState>(op.state);
  status.ordinal = op.ordinal;
  status.seq = op.seq;
  status.function = to_text(op.function);
  status.datatype = to_text(op.datatype);
  status.bytes = static_cast<int64_t>(op.bytes);
  status.peer = op.peer;
  status.since_unix_ns = static_cast<int64_t>(op.enqueued_ns) + unix_shift_ns_;
  status.end_not_seen = !op.end_is_seen;
  return status;
}

CommStatus RankAssembler::status_of(const InFlightComm& comm) const {
  CommStatus out;
  out.comm_id = CommId{comm.comm_id};
  out.size = comm.size;
  out.rank_in_comm = comm.rank_in_comm;
  out.collectives_enqueued = comm.collectives_enqueued;
  out.collectives_completed = comm.collectives_completed;
  out.p2p_enqueued = comm.p2p_enqueued;
  out.p2p_completed = comm.p2p_completed;
  out.collective_calls = comm.collective_calls;
  out.p2p_calls = comm.p2p_calls;
  for (const InFlightOp& op : comm.recent) {
    OpStatus& slot = op.p2p ? out.p2p : out.collective;
    // The oldest incomplete one stays; but one whose end is not seen may be over, so any after it says more.
    if (!slot.is_in_flight()) slot = status_of(op);
  }
  out.proxy.state = proxy_text(comm.proxy_state);
  if (!out.proxy.state.empty()) {
    out.proxy.send = comm.proxy_send;
    out.proxy.peer = comm.proxy_peer;
    out.proxy.since_unix_ns = static_cast<int64_t>(comm.proxy_since_ns) + unix_shift_ns_;
  }
  return out;
}

RankStatus RankAssembler::status(const std::vector<InFlightComm>& in_flight, int64_t now_unix_ns,
                                 int64_t quiet_ns) const {
  RankStatus status;
  status.time_unix_ns = now_unix_ns;
  status.quiet_ns = quiet_ns;
  status.step = last_step_;
  status.phase = phase_;
  status.finished = shut_down_;
  for (const InFlightComm& comm : in_flight) {
    if (comm.live) status.comms.push_back(status_of(comm));
  }
  if (!in_flight.empty() && status.comms.empty()) status.finished = true;
  return status;
}

}  // namespace lockstep
