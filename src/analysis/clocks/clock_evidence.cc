// What clocks are aligned by: ends of collectives and messages, from summaries and from detail.
#include <algorithm>
#include <map>
#include <tuple>

#include "analysis/clocks/clock_alignment.h"

namespace lockstep {
namespace {

// Nobody leaves these before all have come. A Broadcast's root and whoever gives to a Reduce leave early.
bool is_barrier(const std::string& function) {
  return function == "AllReduce" || function == "AllGather" || function == "ReduceScatter";
}

}  // namespace

std::vector<BarrierEnd> barrier_ends(const StepStore& steps, std::string_view job_id, StepNumber from_step,
                                     StepNumber to_step) {
  std::vector<BarrierEnd> ends;
  steps.visit_steps(job_id, from_step, to_step, [&](const Identity& identity, const StepSummary& step) {
    if (step.records_lost != 0) return;  // the last end may be one of those
    for (const CommStep& comm : step.comms) {
      if (comm.p2p || comm.unseen != 0 || comm.count <= 0 || comm.last_end_unix_ns == 0) continue;
      ends.push_back({comm.comm_id, kStepKey + static_cast<uint64_t>(step.step.value()), identity.rank,
                      comm.last_end_unix_ns, comm.gpu_ns / comm.count});
    }
  });
  return ends;
}

std::vector<BarrierEnd> barrier_ends(std::span<const RankDetail> details) {
  std::vector<BarrierEnd> ends;
  for (const RankDetail& rank : details) {
    for (const OpSpan& op : rank.detail.ops) {
      if (op.p2p || !op.timed || !is_barrier(op.function)) continue;
      int64_t end_unix_ns = 0;
      if (__builtin_add_overflow(op.start_unix_ns, op.duration_ns, &end_unix_ns)) continue;
      ends.push_back({op.comm_id, op.ordinal, rank.identity.rank, end_unix_ns, op.duration_ns});
    }
  }
  return ends;
}

std::vector<MessagePair> message_pairs(std::span<const RankDetail> details) {
  std::map<std::pair<CommId, int32_t>, Rank> rank_of;  // communicator and rank in it
  for (const RankDetail& rank : details) {
    for (const OpSpan& op : rank.detail.ops) {
      if (op.p2p) rank_of.try_emplace({op.comm_id, op.rank_in_comm}, rank.identity.rank);
    }
  }
  // Communicator, sender and receiver in it, which of theirs.
  using Key = std::tuple<CommId, int32_t, int32_t, uint64_t>;
  std::map<Key, int64_t> sent;
  for (const RankDetail& rank : details) {
    for (const OpSpan& op : rank.detail.ops) {
      if (op.p2p && op.timed && op.function == "Send")
        sent.try_emplace({op.comm_id, op.rank_in_comm, op.peer, op.seq}, op.start_unix_ns);
    }
  }
  std::vector<MessagePair> pairs;
  for (const RankDetail& rank : details) {
    for (const OpSpan& op : rank.detail.ops) {
      if (!op.p2p || !op.timed || op.function != "Recv") continue;
      const auto send = sent.find({op.comm_id, op.peer, op.rank_in_comm, op.seq});
      const auto from = rank_of.find({op.comm_id, op.peer});
      int64_t end_unix_ns = 0;
      if (send == sent.end() || from == rank_of.end() ||
          __builtin_add_overflow(op.start_unix_ns, op.duration_ns, &end_unix_ns))
        continue;
      pairs.push_back({from->second, rank.identity.rank, send->second, end_unix_ns});
    }
  }
  return pairs;
}

ClockAlignment align_step(const StepStore& steps, std::span<const RankDetail> details, std::string_view job_id,
                          StepNumber step, size_t ends_max) {
  std::vector<BarrierEnd> ends = barrier_ends(details);
  // Even where the step alone has more: the drift is only known from steps that lie apart.
  constexpr int64_t kAroundMost = 32, kAroundLeast = 2;
  const std::vector<BarrierEnd> one = barrier_ends(steps, job_id, step, step);
  const size_t per_step = std::max<size_t>(1, one.size());
  const size_t room = ends.size() < ends_max ? ends_max - ends.size() : 0;
  const int64_t around =
      std::clamp(static_cast<int64_t>(std::min<size_t>(room / per_step / 2, kAroundMost)), kAroundLeast, kAroundMost);
  const std::vector<BarrierEnd> nearby = barrier_ends(steps, job_id, step - around, step + around);
  ends.insert(ends.end(), nearby.begin(), nearby.end());
  return ClockAlignment::estimate(ends, message_pairs(details));
}

}  // namespace lockstep
