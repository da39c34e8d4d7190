// RankAssembler: what a step adds up to once its operations are over.
#include <algorithm>
#include <tuple>

#include "sources/nccl/rank_assembler.h"
#include "sources/nccl/time_split.h"

namespace lockstep {
namespace {

// Operations of one ncclGroup may run in one kernel (a send and a receive with one peer always do) and are then told
// with the same interval each: they count together, for the time in which at least one of them runs. Where the group is
// not known, equal intervals are taken for one kernel. Not done by peer alone: in an AlltoAll all peers are served at
// once.
int64_t gpu_time(std::vector<std::pair<uint32_t, Interval>>& running) {
  std::sort(running.begin(), running.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first, a.second.begin, a.second.end) < std::tie(b.first, b.second.begin, b.second.end);
  });
  int64_t total = 0;
  for (size_t begin = 0; begin < running.size();) {
    std::vector<Interval> together;
    size_t end = begin;
    bool group_known = running[begin].first != 0;
    while (end < running.size() && running[end].first == running[begin].first &&
           (group_known || running[end].second == running[begin].second))
      together.push_back(running[end++].second);
    total += union_length(together);
    begin = end;
  }
  return total;
}

}  // namespace

// One that was enqueued on the same communicator since then has been seen to complete before it.
bool RankAssembler::overtaken(int64_t since_ns, const Op& op) const {
  const auto until = completed_until_.find({op.comm_index, op.p2p});
  return until != completed_until_.end() && until->second >= since_ns;
}

bool RankAssembler::ready(const OpenStep& step, int64_t now_ns, bool flush) const {
  if (step.end_ns == 0) return false;
  if (flush || now_ns - step.ended_seen_ns > kCloseAfterNs || steps_.size() > kStepsOpenMax) return true;
  // Lanes are not read at one moment: what overtook may have been told by another thread.
  size_t ended_after = 0;
  for (const OpenStep& other : steps_) ended_after += other.end_ns != 0 && other.step > step.step;
  const bool is_last = ended_after < 2;
  if (is_last && (!waiting_.empty() || may_come_more(step, now_ns))) return false;
  for (const auto& [arrival, op] : ops_) {
    const bool is_over = op.complete && !waits_for_network(op);
    if (is_over || op.enqueued_ns < step.start_ns || op.enqueued_ns >= step.end_ns) continue;
    if (is_last || !overtaken(step.end_ns, op)) return false;
  }
  return true;
}

void RankAssembler::add_time(const Op& op, CommWork& comm) const {
  CommStep& out = comm.step;
  Interval when = on_host(op);
  int64_t gpu_ns = std::max<int64_t>(0, when.end - when.begin);
  comm.running.emplace_back(op.group, when);
  out.shortest_ns = out.shortest_ns == 0 ? gpu_ns : std::min(out.shortest_ns, gpu_ns);
  out.longest_ns = std::max(out.longest_ns, gpu_ns);
  int64_t start_unix = when.begin + unix_shift_ns_;
  if (out.first_start_unix_ns == 0 || start_unix < out.first_start_unix_ns) out.first_start_unix_ns = start_unix;
  out.last_end_unix_ns = std::max(out.last_end_unix_ns, when.end + unix_shift_ns_);
  out.queue_ns += std::clamp<int64_t>(when.begin - op.enqueued_ns, 0, kOpNsMax);
}

void RankAssembler::add_op(const OpenStep& step, const Op& op, StepWork& work) const {
  Interval when = on_host(op);
  if (op.start_ns != 0) {
    Interval inside{std::max(when.begin, step.start_ns), std::min(when.end, step.end_ns)};
    if (inside.end > inside.begin) work.busy.push_back(inside);
  }
  if (op.to_itself || op.enqueued_ns < step.start_ns || op.enqueued_ns >= step.end_ns) return;
  if (work.first_enqueue_ns == 0 || op.enqueued_ns < work.first_enqueue_ns) work.first_enqueue_ns = op.enqueued_ns;
  work.last_done_ns = std::max(work.last_done_ns, op.last_callback_ns);
  // The parts of an AlltoAll stay sends and receives here, though the totals know better: ranks are compared by this,
  // and a rank that lost a record, or is not the root of a Gather, would not recognise what the others do.
  CommWork& comm = work.comms[{op.comm_index, op.p2p}];
  ++comm.step.count;
  comm.step.bytes += op.bytes;
  if (!op.timed) ++comm.step.unseen;
  if (op.start_ns == 0) return;
  add_time(op, comm);
  Interval queued{op.enqueued_ns, std::min(when.begin, step.end_ns)};
  if (queued.end > queued.begin) work.queued.push_back(queued);
}

void RankAssembler::add_comms(StepWork& work, StepSummary& summary) const {
  for (auto& [key, comm] : work.comms) {
    if (const InFlightComm* known = comm_of(key.first)) {
      comm.step.comm_id = CommId{known->comm_id};
      comm.step.size = known->size;
      comm.step.rank_in_comm = known->rank_in_comm;
    }
    comm.step.p2p = key.second;
    comm.step.gpu_ns = gpu_time(comm.running);
    summary.unseen += comm.step.unseen;
    summary.comms.push_back(comm.step);
  }
}

void RankAssembler::add_flows(const OpenStep& step, StepSummary& summary) const {
  std::map<FlowKey, std::pair<FlowStep, std::vector<Interval>>> flows;
  for (const FlowEvent& event : flows_) {
    if (event.stop_ns < step.start_ns || event.stop_ns >= step.end_ns) continue;
    auto& [flow, wire] = flows[event.key];
    flow.transfers += event.transfers;
    flow.bytes += event.bytes;
    flow.own_gpu_ns += event.wait_gpu_ns;
    flow.peer_ns += event.wait_peer_ns;
    flow.wire_longest_ns = std::max<int64_t>(flow.wire_longest_ns, event.wire_longest_ns);
    flow.own_gpu_longest_ns = std::max<int64_t>(flow.own_gpu_longest_ns, event.wait_gpu_longest_ns);
    wire.push_back({event.stop_ns - event.wire_ns, event.stop_ns});
  }
  for (auto& [key, entry] : flows) {
    auto& [flow, wire] = entry;
    const InFlightComm* known = comm_of(key.comm_index);
    flow.comm_id = known == nullptr ? kNoCommId : CommId{known->comm_id};
    flow.peer = key.peer;
    flow.send = key.send;
    flow.wire_ns = union_length(wire);
    summary.flows.push_back(flow);
  }
}

// The longest silence between the first enqueue and the last completion of the step's operations.
void RankAssembler::add_quiet(const OpenStep& step, const StepWork& work, StepSummary& summary) const {
  if (work.first_enqueue_ns == 0 || work.last_done_ns <= work.first_enqueue_ns) return;
  int64_t before = std::max(work.first_enqueue_ns, step.start_ns);
  int64_t to = std::min(work.last_done_ns, step.end_ns);
  auto at = std::lower_bound(activity_.begin(), activity_.end(), before);
  for (; at != activity_.end() && *at <= to; ++at) {
    if (*at - before > summary.quiet_ns) {
      summary.quiet_ns = *at - before;
      summary.quiet_from_unix_ns = before + unix_shift_ns_;
    }
    before = *at;
  }
}

// Without the GPU time of every operation, communication would pass for the rank's own work: better no split.
void RankAssembler::add_split(const OpenStep& step, StepSummary& summary) const {
  if (!summary.gpu_time_known()) return;
  std::vector<SplitOp> ops;
  for (const auto& [arrival, op] : ops_) {
    if (!op.timed || op.enqueued_ns >= step.end_ns) continue;
    Interval when = on_host(op);
    bool reduces = op.function == Function::kAllReduce || op.function == Function::kReduceScatter ||
                   op.function == Function::kReduce;
    uint32_t chain = uint32_t{op.comm_index} << 8 | static_cast<uint32_t>(op.function);
    if (when.end > step.start_ns) ops.push_back({op.enqueued_ns, when.begin, when.end, chain, reduces});
  }
  std::vector<SplitPhase> phases;
  for (const PhaseSpan& phase : step.phases) {
    int64_t begin = phase.start_unix_ns - unix_shift_ns_;
    phases.push_back({phase.phase, {begin, begin + phase.duration_ns}});
  }
  if (auto split = split_time({{step.start_ns, step.end_ns}, ops, phases})) {
    summary.split_known = true;
    summary.split_ns = *split;
  }
}

// The operations of one ncclGroup run in one kernel: those on other channels tell when it began.
std::map<RankAssembler::GroupKey, int64_t> RankAssembler::group_begins() const {
  std::map<GroupKey, int64_t> begins;
  for (const auto& [arrival, op] : ops_) {
    if (op.start_ns == 0 || op.group == 0 || !miscounted_below_.contains(op.comm_index)) continue;
    const int64_t at_ns = on_host(op).begin;
    auto [first, fresh] = begins.try_emplace({op.comm_index, op.group}, at_ns);
    if (!fresh) first->second = std::min(first->second, at_ns);
  }
  return begins;
}

// What no other of its group tells did not begin before it was asked for, nor before what its communicator did before it.
void RankAssembler::time_by_network(const OpenStep& step) {
  if (miscounted_below_.empty()) return;
  const std::map<GroupKey, int64_t> begins = group_begins();
  std::map<uint16_t, int64_t> ended_ns;  // by communicator
  for (auto& [arrival, op] : ops_) {
    if (op.enqueued_ns >= step.end_ns) continue;  // nearly in order: threads are read one after the other
    const bool is_open = op.miscounted || (op.timed && op.function == Function::kRecv);
    if (is_open && op.network_done_ns != 0) {
      Interval when = on_host(op);
      if (op.start_ns == 0) {
        const auto group = begins.find({op.comm_index, op.group});
        when.begin = group != begins.end() ? group->second : std::max(op.enqueued_ns, ended_ns[op.comm_index]);
        when.end = when.begin;
      }
      op.start_ns = when.begin;
      op.stop_ns = std::max({when.begin, when.end, op.network_done_ns});
      op.host_clock = op.timed = true;
      op.miscounted = false;
    }
    if (op.timed) ended_ns[op.comm_index] = std::max(ended_ns[op.comm_index], on_host(op).end);
  }
}

StepSummary RankAssembler::close(const OpenStep& step) const {
  StepSummary summary;
  summary.step = step.step;
  summary.start_unix_ns = step.start_ns + unix_shift_ns_;
  summary.duration_ns = step.end_ns - step.start_ns;
  summary.phase_ns = step.phase_ns;
  summary.inferred = step.inferred;
  summary.scalars = step.scalars;
  summary.records_lost = static_cast<int64_t>(step.records_lost);
  summary.unseen = step.unseen;

  StepWork work;
  for (const auto& [arrival, op] : ops_) add_op(step, op, work);
  summary.comm_ns = union_length(work.busy);
  std::vector<Interval> queued_or_busy = work.queued;
  queued_or_busy.insert(queued_or_busy.end(), work.busy.begin(), work.busy.end());
  summary.queue_ns = union_length(queued_or_busy) - summary.comm_ns;
  summary.self_ns = summary.duration_ns - summary.comm_ns;
  add_comms(work, summary);
  add_flows(step, summary);
  add_quiet(step, work, summary);
  add_split(step, summary);
  return summary;
}

std::vector<ClosedStep> RankAssembler::take_steps(int64_t now_ns, bool flush) {
  std::vector<ClosedStep> closed;
  if (flush && inference_ != nullptr && !activity_.empty()) {
    inference_->finish(activity_.back());
    take_inferred(now_ns, 0);
  }
  while (!steps_.empty() && ready(steps_.front(), now_ns, flush)) {
    int64_t end_ns = steps_.front().end_ns;
    time_by_network(steps_.front());
    closed.push_back({close(steps_.front()), detail_of(steps_.front())});
    keep_figures(closed.back().summary);
    steps_.pop_front();
    forget_before(steps_.empty() ? end_ns : std::min(end_ns, steps_.front().start_ns));
  }
  count_groups(flush);
  return closed;
}

}  // namespace lockstep
