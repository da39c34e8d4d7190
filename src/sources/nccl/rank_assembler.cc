#include "sources/nccl/rank_assembler.h"

#include <algorithm>
#include <limits>

namespace lockstep {
namespace {

// Callbacks remembered for the mapping of GPU to host time: enough to span seconds of a busy job, few enough to follow
// drift.
constexpr uint64_t kGpuOffsetWindow = 2048;
// An orphan that is still one after so many drains lost its parent to the ring or to another process.
constexpr int kOrphanDrainsMax = 3;

struct Interval {
  int64_t begin;
  int64_t end;
};

int64_t union_length(std::vector<Interval>& intervals) {
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  int64_t total = 0;
  int64_t reach = std::numeric_limits<int64_t>::min();
  for (const Interval& interval : intervals) {
    int64_t begin = std::max(interval.begin, reach);
    if (interval.end > begin) {
      total += interval.end - begin;
      reach = interval.end;
    }
  }
  return total;
}

}  // namespace

double bus_factor(Function function, int32_t size) {
  if (size < 2) return 0;
  double n = size;
  switch (function) {
    case Function::kAllReduce:
      return 2 * (n - 1) / n;
    case Function::kAllGather:
    case Function::kReduceScatter:
      return n - 1;  // the payload here is one rank's part
    case Function::kAlltoAll:
      return (n - 1) / n;
    default:
      return 1;
  }
}

void RankAssembler::note_gpu_offset(int64_t host_ns, int64_t gpu_ns) {
  if (host_ns == 0 || gpu_ns == 0) return;
  int64_t offset = host_ns - gpu_ns;
  uint64_t id = gpu_offset_next_++;
  while (!gpu_offsets_.empty() && gpu_offsets_.back() >= offset) {
    gpu_offsets_.pop_back();
    gpu_offset_ids_.pop_back();
  }
  gpu_offsets_.push_back(offset);
  gpu_offset_ids_.push_back(id);
  while (gpu_offset_ids_.front() + kGpuOffsetWindow <= id) {
    gpu_offsets_.pop_front();
    gpu_offset_ids_.pop_front();
  }
}

int64_t RankAssembler::gpu_to_host_ns() const {
  return gpu_offsets_.empty() ? 0 : gpu_offsets_.front();
}

void RankAssembler::set_comms(const std::vector<InFlightComm>& comms) {
  for (const InFlightComm& comm : comms) comms_[comm.comm_index] = comm;
}

void RankAssembler::count(const Op& op) {
  auto comm = comms_.find(op.comm_index);
  int32_t size = comm == comms_.end() ? 0 : comm->second.size;
  CollectiveTotals& totals = totals_[{op.function, size}];
  ++totals.operations;
  totals.bytes += static_cast<uint64_t>(op.bytes);
  if (op.gpu_stop_ns > op.gpu_start_ns) {
    totals.gpu_ns += static_cast<uint64_t>(op.gpu_stop_ns - op.gpu_start_ns);
    totals.bus_bytes += static_cast<double>(op.bytes) * bus_factor(op.function, size);
  }
}

bool RankAssembler::apply_child(const Record& record) {
  if (record.head.type == RecordType::kKernelCh) {
    auto found = ops_.find(record.kernel.op_id);
    if (found == ops_.end()) return false;
    Op& op = found->second;
    int64_t start = static_cast<int64_t>(record.kernel.gpu_start_ns);
    int64_t stop = static_cast<int64_t>(record.kernel.gpu_stop_ns);
    note_gpu_offset(static_cast<int64_t>(record.kernel.host_start_ns), start);
    note_gpu_offset(static_cast<int64_t>(record.head.time_ns), stop);
    if (op.gpu_start_ns == 0 || start < op.gpu_start_ns) op.gpu_start_ns = start;
    op.gpu_stop_ns = std::max(op.gpu_stop_ns, stop);
    op.last_callback_ns = std::max(op.last_callback_ns, static_cast<int64_t>(record.head.time_ns));
    ++op.channels_stopped;
    // Where NCCL did not say how many channels there are, one stop is all we can wait for.
    if (op.channels_stopped >= std::max<uint8_t>(op.channels, 1) && !op.complete) {
      op.complete = true;
      if (!op.counted) count(op);
      op.counted = true;
    }
    activity_.push_back(static_cast<int64_t>(record.kernel.host_start_ns));
    return true;
  }
  return true;
}

void RankAssembler::apply_mark(const MarkRecord& mark, RecordType type, int64_t now_ns) {
  int64_t time = static_cast<int64_t>(mark.head.time_ns);
  auto end_phase = [&](int64_t at) {
    if (phase_ != Phase::kOther && !steps_.empty() && steps_.back().end_ns == 0 && at > phase_since_ns_) {
      steps_.back().phase_ns[static_cast<size_t>(phase_)] += at - std::max(phase_since_ns_, steps_.back().start_ns);
    }
    phase_ = Phase::kOther;
  };
  switch (type) {
    case RecordType::kStepBegin:
      any_marks_ = true;
      if (!steps_.empty() && steps_.back().end_ns == 0) {  // a begin ends the step before it
        end_phase(time);
        steps_.back().end_ns = time;
        steps_.back().ended_seen_ns = now_ns;
      }
      steps_.push_back({.step = mark.number, .start_ns = time});
      last_step_ = mark.number;
      break;
    case RecordType::kStepEnd:
      any_marks_ = true;
      if (!steps_.empty() && steps_.back().end_ns == 0 && steps_.back().step == mark.number) {
        end_phase(time);
        steps_.back().end_ns = time;
        steps_.back().ended_seen_ns = now_ns;
      }
      break;
    case RecordType::kPhaseBegin:
      end_phase(time);
      if (mark.number > 0 && mark.number < static_cast<int64_t>(kPhaseCount)) phase_ = static_cast<Phase>(mark.number);
      phase_since_ns_ = time;
      break;
    case RecordType::kPhaseEnd:
      end_phase(time);
      break;
    case RecordType::kShutdown:
      shut_down_ = true;
      break;
    default:
      break;
  }
}

void RankAssembler::apply(const Record& record, int64_t now_ns) {
  int64_t time = static_cast<int64_t>(record.head.time_ns);
  activity_.push_back(time);
  switch (record.head.type) {
    case RecordType::kColl:
    case RecordType::kP2p: {
      Op op;
      op.comm_index = record.head.comm_index;
      op.p2p = record.head.type == RecordType::kP2p;
      op.channels = record.op.channels;
      op.function = record.op.function;
      op.bytes = static_cast<int64_t>(record.op.bytes);
      op.enqueued_ns = time;
      op.last_callback_ns = time;
      ops_[record.op.op_id] = op;
      break;
    }
    case RecordType::kKernelCh:
      if (!apply_child(record)) waiting_.emplace_back(record, 0);
      break;
    case RecordType::kProxyStep: {
      const ProxyStepRecord& step = record.proxy_step;
      bool send = (record.head.flags & kFlagSend) != 0;
      flows_.push_back({time,
                        {record.head.comm_index, step.peer, send},
                        step.bytes,
                        step.wait_gpu_ns,
                        step.wait_peer_ns,
                        step.wire_ns});
      activity_.push_back(static_cast<int64_t>(step.start_ns));
      int64_t last_change = send ? step.wire_ns : step.wait_gpu_ns;
      activity_.push_back(time - last_change);
      break;
    }
    case RecordType::kStepBegin:
    case RecordType::kStepEnd:
    case RecordType::kPhaseBegin:
    case RecordType::kPhaseEnd:
    case RecordType::kShutdown:
      apply_mark(record.mark, record.head.type, now_ns);
      break;
    default:
      break;
  }
}

void RankAssembler::end_drain(int64_t now_ns, uint64_t records_lost) {
  std::stable_sort(drained_.begin(), drained_.end(),
                   [](const Record& a, const Record& b) { return a.head.time_ns < b.head.time_ns; });
  for (const Record& record : drained_) apply(record, now_ns);
  drained_.clear();
  // Lanes fill at different speeds: the loss may belong to any step that is open now, those of this drain included.
  for (OpenStep& step : steps_) step.records_lost += records_lost;

  std::vector<std::pair<Record, int>> still;
  for (auto& [record, drains] : waiting_) {
    if (apply_child(record)) continue;
    if (drains + 1 < kOrphanDrainsMax) {
      still.emplace_back(record, drains + 1);
    } else {
      ++orphans_;
    }
  }
  waiting_ = std::move(still);

  std::sort(flows_.begin(), flows_.end(), [](const FlowEvent& a, const FlowEvent& b) { return a.stop_ns < b.stop_ns; });
  std::sort(activity_.begin(), activity_.end());
  while (ops_.size() > kOpsMax) ops_.erase(ops_.begin());
  // A process that marks no steps would keep its detail for ever.
  if (!any_marks_ && !activity_.empty()) forget_before(activity_.back() - 10'000'000'000);
}

bool RankAssembler::ready(const OpenStep& step, int64_t now_ns, bool flush) const {
  if (step.end_ns == 0) return false;
  if (flush || now_ns - step.ended_seen_ns > kCloseAfterNs) return true;
  size_t ended_after = 0;
  for (const OpenStep& other : steps_) ended_after += other.end_ns != 0 && other.step > step.step;
  if (ended_after >= 2 || steps_.size() > kStepsOpenMax) return true;
  if (!waiting_.empty()) return false;
  for (const auto& [id, op] : ops_) {
    if (op.enqueued_ns >= step.start_ns && op.enqueued_ns < step.end_ns && !op.complete) return false;
  }
  return true;
}

StepSummary RankAssembler::close(const OpenStep& step) {
  StepSummary summary;
  summary.step = step.step;
  summary.start_unix_ns = step.start_ns + unix_shift_ns_;
  summary.duration_ns = step.end_ns - step.start_ns;
  summary.phase_ns = step.phase_ns;
  summary.records_lost = static_cast<int64_t>(step.records_lost);

  const int64_t shift = gpu_to_host_ns();
  std::vector<Interval> busy;
  std::vector<Interval> waiting_or_busy;
  std::map<std::pair<uint16_t, bool>, CommStep> comms;
  int64_t first_enqueue = 0;
  int64_t last_done = 0;
  for (const auto& [id, op] : ops_) {
    if (op.gpu_start_ns != 0) {
      Interval interval{std::max(op.gpu_start_ns + shift, step.start_ns),
                        std::min(op.gpu_stop_ns + shift, step.end_ns)};
      if (interval.end > interval.begin) busy.push_back(interval);
    }
    if (op.enqueued_ns < step.start_ns || op.enqueued_ns >= step.end_ns) continue;
    if (first_enqueue == 0 || op.enqueued_ns < first_enqueue) first_enqueue = op.enqueued_ns;
    last_done = std::max(last_done, op.last_callback_ns);
    CommStep& comm = comms[{op.comm_index, op.p2p}];
    ++comm.count;
    comm.bytes += op.bytes;
    if (op.gpu_start_ns == 0) continue;
    int64_t gpu_ns = std::max<int64_t>(0, op.gpu_stop_ns - op.gpu_start_ns);
    comm.gpu_ns += gpu_ns;
    comm.shortest_ns = comm.shortest_ns == 0 ? gpu_ns : std::min(comm.shortest_ns, gpu_ns);
    comm.longest_ns = std::max(comm.longest_ns, gpu_ns);
    int64_t start_unix = op.gpu_start_ns + shift + unix_shift_ns_;
    int64_t stop_unix = op.gpu_stop_ns + shift + unix_shift_ns_;
    if (comm.first_start_unix_ns == 0 || start_unix < comm.first_start_unix_ns) comm.first_start_unix_ns = start_unix;
    comm.last_end_unix_ns = std::max(comm.last_end_unix_ns, stop_unix);
    comm.queue_ns += std::max<int64_t>(0, op.gpu_start_ns + shift - op.enqueued_ns);
    Interval queued{op.enqueued_ns, std::min(op.gpu_start_ns + shift, step.end_ns)};
    if (queued.end > queued.begin) waiting_or_busy.push_back(queued);
  }
  summary.comm_ns = union_length(busy);
  waiting_or_busy.insert(waiting_or_busy.end(), busy.begin(), busy.end());
  summary.queue_ns = union_length(waiting_or_busy) - summary.comm_ns;
  summary.self_ns = summary.duration_ns - summary.comm_ns;

  for (auto& [key, comm] : comms) {
    auto known = comms_.find(key.first);
    if (known != comms_.end()) {
      comm.comm_id = known->second.comm_id;
      comm.size = known->second.size;
      comm.rank_in_comm = known->second.rank_in_comm;
    }
    comm.p2p = key.second;
    summary.comms.push_back(comm);
  }

  std::map<FlowKey, std::pair<FlowStep, std::vector<Interval>>> flows;
  for (const FlowEvent& event : flows_) {
    if (event.stop_ns < step.start_ns || event.stop_ns >= step.end_ns) continue;
    auto& [flow, wire] = flows[event.key];
    ++flow.transfers;
    flow.bytes += event.bytes;
    flow.own_gpu_ns += event.wait_gpu_ns;
    flow.peer_ns += event.wait_peer_ns;
    flow.wire_longest_ns = std::max<int64_t>(flow.wire_longest_ns, event.wire_ns);
    flow.own_gpu_longest_ns = std::max<int64_t>(flow.own_gpu_longest_ns, event.wait_gpu_ns);
    wire.push_back({event.stop_ns - event.wire_ns, event.stop_ns});
  }
  for (auto& [key, entry] : flows) {
    auto& [flow, wire] = entry;
    auto known = comms_.find(key.comm_index);
    flow.comm_id = known == comms_.end() ? 0 : known->second.comm_id;
    flow.peer = key.peer;
    flow.send = key.send;
    flow.wire_ns = union_length(wire);
    summary.flows.push_back(flow);
  }

  // The longest silence between the first enqueue and the last completion of the step's operations.
  if (last_done > first_enqueue && first_enqueue != 0) {
    int64_t from = std::max(first_enqueue, step.start_ns);
    int64_t to = std::min(last_done, step.end_ns);
    int64_t before = from;
    auto at = std::lower_bound(activity_.begin(), activity_.end(), from);
    for (; at != activity_.end() && *at <= to; ++at) {
      if (*at - before > summary.quiet_ns) {
        summary.quiet_ns = *at - before;
        summary.quiet_from_unix_ns = before + unix_shift_ns_;
      }
      before = *at;
    }
  }
  return summary;
}

void RankAssembler::forget_before(int64_t time_ns) {
  while (!flows_.empty() && flows_.front().stop_ns < time_ns) flows_.pop_front();
  while (!activity_.empty() && activity_.front() < time_ns) activity_.pop_front();
  for (auto op = ops_.begin(); op != ops_.end();) {
    // One that never completed lost a record; it must not be waited for in every later step.
    bool over = op->second.enqueued_ns < time_ns && op->second.last_callback_ns < time_ns;
    op = over ? ops_.erase(op) : std::next(op);
  }
}

std::vector<StepSummary> RankAssembler::take_steps(int64_t now_ns, bool flush) {
  std::vector<StepSummary> closed;
  while (!steps_.empty() && ready(steps_.front(), now_ns, flush)) {
    int64_t end_ns = steps_.front().end_ns;
    closed.push_back(close(steps_.front()));
    steps_.pop_front();
    forget_before(steps_.empty() ? end_ns : std::min(end_ns, steps_.front().start_ns));
  }
  return closed;
}

RankStatus RankAssembler::status(const std::vector<InFlightComm>& in_flight, int64_t now_unix_ns,
                                 int64_t quiet_ns) const {
  RankStatus status;
  status.time_unix_ns = now_unix_ns;
  status.quiet_ns = quiet_ns;
  status.step = last_step_;
  status.phase = phase_;
  status.finished = shut_down_;
  bool any_live = false;
  for (const InFlightComm& comm : in_flight) {
    any_live |= comm.live;
    if (!comm.live) continue;
    CommStatus out;
    out.comm_id = comm.comm_id;
    out.size = comm.size;
    out.rank_in_comm = comm.rank_in_comm;
    out.collectives_enqueued = comm.collectives_enqueued;
    out.collectives_completed = comm.collectives_completed;
    out.p2p_enqueued = comm.p2p_enqueued;
    out.p2p_completed = comm.p2p_completed;
    for (const InFlightOp& op : comm.recent) {
      OpStatus& slot = op.p2p ? out.p2p : out.collective;
      bool slot_open = slot.state == OpState::kEnqueued || slot.state == OpState::kStarted;
      if (slot_open) continue;  // the oldest incomplete one stays
      slot.state = static_cast<OpState>(op.state);
      slot.ordinal = op.ordinal;
      slot.seq = op.seq;
      slot.function = to_text(op.function);
      slot.datatype = to_text(op.datatype);
      slot.bytes = static_cast<int64_t>(op.bytes);
      slot.peer = op.peer;
      slot.since_unix_ns = static_cast<int64_t>(op.enqueued_ns) + unix_shift_ns_;
    }
    status.comms.push_back(std::move(out));
  }
  if (!in_flight.empty() && !any_live) status.finished = true;
  return status;
}

}  // namespace lockstep
