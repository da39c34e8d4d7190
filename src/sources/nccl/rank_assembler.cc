#include "sources/nccl/rank_assembler.h"

#include <algorithm>
#include <functional>

namespace lockstep {
namespace {

// Callbacks remembered for the mapping of GPU to host time: enough to span seconds of a busy job, few enough to follow
// drift.
constexpr uint64_t kGpuOffsetWindow = 2048;
// Silences are told in milliseconds: of callbacks closer together than this the first and the last will do.
constexpr int64_t kActivityGrainNs = 20'000;

// The first `sorted` values are in order, and so are the others; puts those among them. What came late by a few
// milliseconds is merged with the few values of that time, so the cost is that of what is new, however much is kept: a
// step may take minutes. Returns where the order may have changed from.
template <typename Values, typename Less>
size_t merge_tail(Values& values, size_t sorted, Less less) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(sorted);
  if (middle == values.end()) return sorted;
  const auto from = std::upper_bound(values.begin(), middle, *middle, less);
  std::inplace_merge(from, middle, values.end(), less);
  return static_cast<size_t>(from - values.begin());
}

template <typename Values, typename Less>
void sort_tail(Values& values, size_t sorted, Less less) {
  std::sort(values.begin() + static_cast<std::ptrdiff_t>(sorted), values.end(), less);
  merge_tail(values, sorted, less);
}

// Leaves out what lies between two others less than kActivityGrainNs apart, from `from` on. No silence longer than that
// changes.
template <typename Times>
void thin_out(Times& times, size_t from) {
  if (times.size() < 3) return;
  size_t kept = std::max<size_t>(from, 1);
  for (size_t at = kept; at < times.size(); ++at) {
    const bool last = at + 1 == times.size();
    if (last || times[at + 1] - times[kept - 1] >= kActivityGrainNs) times[kept++] = times[at];
  }
  times.resize(kept);
}
constexpr size_t kNodeBytes = 64;  // what the containers take for one entry

}  // namespace

double bus_factor(Function function, int32_t size) {
  return bus_factor(to_text(function), size);
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

Interval RankAssembler::on_host(const Op& op) const {
  int64_t shift = op.host_clock ? 0 : gpu_to_host_ns();
  return {op.start_ns + shift, std::min(op.stop_ns, op.start_ns + kOpNsMax) + shift};
}

void RankAssembler::set_comms(const std::vector<InFlightComm>& comms) {
  for (const InFlightComm& comm : comms) {
    auto [known, fresh] = comms_.try_emplace(comm.comm_index, comm);
    if (fresh) continue;
    // A row is used again for another communicator.
    if (known->second.comm_id != comm.comm_id) {
      link_fits_.forget(CommId{known->second.comm_id});
      miscounted_below_.erase(comm.comm_index);
      std::erase_if(on_network_, [&](const auto& one) { return one.first == comm.comm_index; });
    }
    known->second = comm;
  }
}

bool RankAssembler::lacks_comm() const {
  return std::any_of(drained_.begin(), drained_.end(), [&](const Record& record) {
    const bool is_op = record.head.type == RecordType::kColl || record.head.type == RecordType::kP2p;
    return is_op && record.head.comm_index != kNoComm && !comms_.contains(record.head.comm_index);
  });
}

void RankAssembler::add_comms(const std::vector<InFlightComm>& comms) {
  for (const InFlightComm& comm : comms) comms_.try_emplace(comm.comm_index, comm);
}

const InFlightComm* RankAssembler::comm_of(uint16_t index) const {
  auto found = comms_.find(index);
  return found == comms_.end() ? nullptr : &found->second;
}

int32_t RankAssembler::size_of(uint16_t index) const {
  const InFlightComm* comm = comm_of(index);
  return comm == nullptr ? 0 : comm->size;
}

RankAssembler::Op* RankAssembler::find_op(uint64_t op_id) {
  auto arrival = arrival_of_.find(op_id);
  return arrival == arrival_of_.end() ? nullptr : &ops_.at(arrival->second);
}

RankAssembler::Ops::iterator RankAssembler::forget(Ops::iterator op) {
  if (op->second.grouped && !op->second.complete) groups_.lost(op->second.group_key);
  arrival_of_.erase(op->second.op_id);
  return ops_.erase(op);
}

// The step it belongs to has more operations than we can hold: of this one nobody will know the time.
void RankAssembler::give_up_oldest() {
  int64_t enqueued_ns = ops_.begin()->second.enqueued_ns;
  for (OpenStep& step : steps_) {
    if (enqueued_ns >= step.start_ns && (step.end_ns == 0 || enqueued_ns < step.end_ns)) ++step.unseen;
  }
  forget(ops_.begin());
}

// Of a step with more transfers than we can hold the newest are kept, and it is told as one of which records were lost.
void RankAssembler::bound_transfers() {
  while (flows_.size() > kFlowsMax) {
    const int64_t stop_ns = flows_.front().stop_ns;
    for (OpenStep& step : steps_) {
      if (stop_ns >= step.start_ns && (step.end_ns == 0 || stop_ns < step.end_ns)) ++step.records_lost;
    }
    flows_.pop_front();
  }
  while (activity_.size() > kActivityMax) activity_.pop_front();
}

void RankAssembler::count(Function function, int32_t size, int64_t bytes, int64_t gpu_ns) {
  if (totals_.size() >= kTotalsMax && !totals_.contains({function, size})) {
    ++malformed_;
    return;
  }
  CollectiveTotals& totals = totals_[{function, size}];
  ++totals.operations;
  totals.bytes += static_cast<uint64_t>(bytes);
  if (gpu_ns <= 0) return;
  totals.gpu_ns += static_cast<uint64_t>(gpu_ns);
  totals.bus_bytes += static_cast<double>(bytes) * bus_factor(function, size);
}

void RankAssembler::count_groups(bool all) {
  for (const P2pGroups::Settled& group : groups_.settle(all)) {
    const InFlightComm* comm = comm_of(group.comm_index);
    int32_t size = comm == nullptr ? 0 : comm->size;
    GroupWork work = recognise(group.parts, size, comm == nullptr ? -1 : comm->rank_in_comm);
    if (work.function == Function::kUnknown) {
      for (const P2pPart& part : group.parts)
        count(part.send ? Function::kSend : Function::kRecv, size, part.bytes, part.stop_ns - part.start_ns);
      continue;
    }
    CollectiveTotals& totals = totals_[{work.function, size}];
    totals.operations += work.operations;
    totals.bytes += work.bytes;
    totals.gpu_ns += work.gpu_ns;
    totals.bus_bytes += work.bus_bytes;
  }
}

void RankAssembler::completed(Op& op) {
  if (op.complete) return;
  op.complete = true;
  if (op.timed && comm_of(op.comm_index) != nullptr) {  // of which there are so many: an index may be anything
    int64_t& until_ns = completed_until_[{op.comm_index, op.p2p}];
    until_ns = std::max(until_ns, op.enqueued_ns);
  }
  if (op.grouped) {
    const int64_t stop_ns = op.miscounted ? op.start_ns : op.stop_ns;
    groups_.done(op.group_key, {op.function == Function::kSend, op.peer, op.bytes, op.start_ns, stop_ns});
  } else {
    count(op.function, size_of(op.comm_index), op.bytes, op.miscounted ? 0 : op.stop_ns - op.start_ns);
  }
}

void RankAssembler::apply_op(const Record& record) {
  if (auto again = arrival_of_.find(record.op.op_id); again != arrival_of_.end()) forget(ops_.find(again->second));
  Op& op = ops_[++arrivals_];
  arrival_of_[record.op.op_id] = arrivals_;
  op.op_id = record.op.op_id;
  op.comm_index = record.head.comm_index;
  op.p2p = record.head.type == RecordType::kP2p;
  op.channels = record.op.channels;
  op.function = record.op.function;
  op.datatype = record.op.datatype;
  op.seq = record.op.seq;
  op.ordinal = record.op.ordinal;
  op.peer = record.op.peer;
  op.group = record.op.group;
  op.bytes = static_cast<int64_t>(record.op.bytes);
  op.enqueued_ns = op.last_callback_ns = static_cast<int64_t>(record.head.time_ns);
  bool one_way = op.function == Function::kSend || op.function == Function::kRecv;
  const InFlightComm* comm = comm_of(op.comm_index);
  op.to_itself = op.p2p && one_way && comm != nullptr && op.peer == comm->rank_in_comm;
  op.grouped = op.p2p && one_way && op.group != 0 && size_of(op.comm_index) >= kPatternRanksMin;
  if (op.grouped) op.group_key = groups_.opened(op.comm_index, op.group, op.function == Function::kSend, op.peer);
  if (inference_ != nullptr) infer_from(op);
  // NCCL will not tell when these end.
  if ((record.head.flags & (kFlagUnseen | kFlagCopyEngine)) != 0 || op.to_itself) completed(op);
  if (op.to_itself) {  // on its first channels; how many those are is not told before interface v5
    uint8_t& below = miscounted_below_[op.comm_index];
    below = std::max(below, op.channels != 0 ? op.channels : uint8_t{UINT8_MAX});
  }
}

bool RankAssembler::apply_kernel(const Record& record) {
  const KernelChRecord& kernel = record.kernel;
  Op* op = find_op(kernel.op_id);
  if (op == nullptr) return false;
  int64_t host_start = static_cast<int64_t>(kernel.host_start_ns);
  int64_t host_stop = static_cast<int64_t>(record.head.time_ns);
  bool host_clock = kernel.gpu_start_ns == 0 || kernel.gpu_stop_ns == 0;
  int64_t start = host_clock ? host_start : static_cast<int64_t>(kernel.gpu_start_ns);
  int64_t stop = host_clock ? host_stop : static_cast<int64_t>(kernel.gpu_stop_ns);
  const bool miscounted = is_miscounted(op->comm_index, kernel.channel);
  op->miscounted |= miscounted;
  if (!host_clock && !miscounted) {
    note_gpu_offset(host_start, start);
    note_gpu_offset(host_stop, stop);
  }
  if (op->start_ns == 0) op->host_clock = host_clock;
  if (op->host_clock == host_clock && !miscounted) {
    if (op->start_ns == 0 || start < op->start_ns) op->start_ns = start;
    op->stop_ns = std::max(op->stop_ns, stop);
  }
  op->last_callback_ns = std::max(op->last_callback_ns, host_stop);
  called_.push_back(host_start);
  ++op->channels_stopped;
  // Channels are not numbered from 0, so they are only counted. Where NCCL did not say how many there are, one stop is
  // all we can wait for.
  if (op->channels_stopped >= std::max<uint16_t>(op->channels, 1)) {
    op->timed = !op->miscounted;
    completed(*op);
  }
  return true;
}

void RankAssembler::apply_transfer(const ProxyStepRecord& step) {
  int64_t time = static_cast<int64_t>(step.head.time_ns);
  bool send = (step.head.flags & kFlagSend) != 0;
  const bool one = step.merged == 0;
  flows_.push_back({time,
                    {step.head.comm_index, step.peer, send},
                    step.bytes,
                    step.wait_gpu_ns,
                    step.wait_peer_ns,
                    step.wire_ns,
                    uint32_t{step.merged} + 1,
                    one ? step.wire_ns : step.wire_longest_us * 1000u,
                    one ? step.wait_gpu_ns : step.wait_gpu_longest_us * 1000u});
  called_.push_back(static_cast<int64_t>(step.start_ns));
  called_.push_back(time - (send ? step.wire_ns : step.wait_gpu_ns));  // its last change of state

  const InFlightComm* comm = comm_of(step.head.comm_index);
  const Op* op = find_op(step.op_id);
  network_waits_.add({op == nullptr ? Function::kUnknown : op->function, comm == nullptr ? 0 : comm->size, step.peer,
                      step.channel, send},
                     step);
  if (send && one && comm != nullptr && (step.head.flags & kFlagSaturated) == 0)
    link_fits_.add(CommId{comm->comm_id}, step.peer, step.channel, time - step.wire_ns, time, step.bytes);
}

void RankAssembler::apply_network_part(const ProxyOpRecord& part) {
  if (!miscounted_below_.contains(part.head.comm_index)) return;
  Op* op = find_op(part.op_id);
  if (op == nullptr) return;
  if (on_network_.size() < kNetworkPeersMax) on_network_.emplace(op->comm_index, op->p2p ? op->peer : -1);
  ++op->network_parts;
  op->network_done_ns = std::max(op->network_done_ns, static_cast<int64_t>(part.head.time_ns));
  op->last_callback_ns = std::max(op->last_callback_ns, op->network_done_ns);
}

bool RankAssembler::waits_for_network(const Op& op) const {
  return op.miscounted && op.network_parts < std::max<uint16_t>(op.channels, 1) &&
         on_network_.contains({op.comm_index, op.p2p ? op.peer : -1});
}

bool RankAssembler::is_miscounted(uint16_t comm_index, uint8_t channel) const {
  const auto below = miscounted_below_.find(comm_index);
  return below != miscounted_below_.end() && channel < below->second;
}

// Times of any clock stay far from where sums of them overflow, whatever a file says.
bool RankAssembler::is_sound(const Record& record) {
  if (record.head.time_ns > kTimeNsMax) return false;
  switch (record.head.type) {
    case RecordType::kColl:
    case RecordType::kP2p:
      return record.op.bytes <= kOpBytesMax;
    case RecordType::kKernelCh:
      return record.kernel.gpu_start_ns <= kTimeNsMax && record.kernel.gpu_stop_ns <= kTimeNsMax &&
             record.kernel.host_start_ns <= kTimeNsMax;
    case RecordType::kProxyStep:
      return record.proxy_step.start_ns <= kTimeNsMax;
    default:
      return true;
  }
}

void RankAssembler::apply(const Record& record, int64_t now_ns) {
  if (!is_sound(record)) {
    ++malformed_;
    return;
  }
  called_.push_back(static_cast<int64_t>(record.head.time_ns));
  switch (record.head.type) {
    case RecordType::kColl:
    case RecordType::kP2p:
      apply_op(record);
      break;
    case RecordType::kKernelCh:
      if (!apply_kernel(record)) waiting_.emplace_back(record, now_ns);
      break;
    case RecordType::kProxyStep:
      apply_transfer(record.proxy_step);
      break;
    case RecordType::kProxyOp:
      apply_network_part(record.proxy_op);
      break;
    case RecordType::kStepBegin:
    case RecordType::kStepEnd:
    case RecordType::kPhaseBegin:
    case RecordType::kPhaseEnd:
    case RecordType::kShutdown:
      apply_mark(record.mark, record.head.type, now_ns);
      break;
    case RecordType::kScalar:
      apply_scalar(record.mark);
      break;
    case RecordType::kText:
      apply_text(record.text);
      break;
    default:
      break;
  }
}

// A thread that is held up between its call and its record may take as long as any other.
void RankAssembler::retry_orphans(int64_t now_ns) {
  std::erase_if(waiting_, [&](const auto& waiting) { return apply_kernel(waiting.first); });
  size_t over = waiting_.size() - std::min(waiting_.size(), kOpsMax);
  while (over < waiting_.size() && now_ns - waiting_[over].second > kCloseAfterNs) ++over;
  orphans_ += over;
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(over));
}

void RankAssembler::end_drain(int64_t now_ns, uint64_t records_lost) {
  const size_t flows_sorted = flows_.size();
  // Records are four times as large as what they are sorted by.
  order_.clear();
  for (uint32_t at = 0; at < drained_.size(); ++at) order_.emplace_back(drained_[at].head.time_ns, at);
  std::sort(order_.begin(), order_.end());
  for (const auto& [time_ns, at] : order_) apply(drained_[at], now_ns);
  drained_.clear();
  if (drained_.capacity() > kOpsMax) drained_.shrink_to_fit();  // a full ring is drained once, not at every look
  // Lanes fill at different speeds: the loss may belong to any step that is open now, those of this drain included.
  for (OpenStep& step : steps_) step.records_lost += records_lost;
  if (inference_ != nullptr) take_inferred(now_ns, records_lost);
  retry_orphans(now_ns);
  texts_.end_drain();

  sort_tail(flows_, flows_sorted, [](const FlowEvent& a, const FlowEvent& b) { return a.stop_ns < b.stop_ns; });
  add_activity();
  while (ops_.size() > kOpsMax) give_up_oldest();
  bound_transfers();
  // A process that marks no steps would keep its detail for ever.
  if (inference_ != nullptr && !activity_.empty()) forget_before(needed_since_ns());
}

void RankAssembler::add_activity() {
  std::sort(called_.begin(), called_.end());
  thin_out(called_, 0);
  const size_t sorted = activity_.size();
  activity_.insert(activity_.end(), called_.begin(), called_.end());
  called_.clear();
  thin_out(activity_, merge_tail(activity_, sorted, std::less<>()));
}

size_t RankAssembler::memory_bytes() const {
  return ops_.size() * (sizeof(Op) + 2 * kNodeBytes) + flows_.size() * sizeof(FlowEvent) +
         activity_.size() * sizeof(int64_t) + waiting_.size() * sizeof(waiting_[0]);
}

void RankAssembler::shrink_to(size_t bytes) {
  // The oldest half, as often as it takes: what is left of each kind belongs together.
  while (memory_bytes() > bytes) {
    for (size_t left = (ops_.size() + 1) / 2; left > 0; --left) give_up_oldest();
    flows_.erase(flows_.begin(), flows_.begin() + static_cast<std::ptrdiff_t>((flows_.size() + 1) / 2));
    activity_.erase(activity_.begin(), activity_.begin() + static_cast<std::ptrdiff_t>((activity_.size() + 1) / 2));
    orphans_ += waiting_.size();
    waiting_.clear();
  }
  flows_.shrink_to_fit();
  activity_.shrink_to_fit();
}

void RankAssembler::forget_before(int64_t time_ns) {
  while (!flows_.empty() && flows_.front().stop_ns < time_ns) flows_.pop_front();
  while (!activity_.empty() && activity_.front() < time_ns) activity_.pop_front();
  for (auto op = ops_.begin(); op != ops_.end();) {
    const Op& one = op->second;
    const bool old = one.enqueued_ns < time_ns && one.last_callback_ns < time_ns;
    // No step waits for those of before: what ended them may be read when the next step is over, by a thread without a core.
    const bool ended = one.complete || overtaken(time_ns, one) || one.enqueued_ns < time_ns - kCloseAfterNs;
    op = old && ended ? forget(op) : std::next(op);
  }
}

}  // namespace lockstep
