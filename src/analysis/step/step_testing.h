// A step played by hand, for tests: ranks work, meet in collectives and send each other messages; what comes out is the
// detail and the summary that agents would send.
//
// Thread rule: Confined.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/text.h"
#include "store/span_store.h"
#include "store/step_store.h"

namespace lockstep::testing {

class PlayedStep {
 public:
  static constexpr int64_t kEpochNs = 1'800'000'000'000'000'000;
  static int64_t ns(double ms) { return static_cast<int64_t>(ms * 1e6); }

  explicit PlayedStep(int32_t ranks, StepNumber step = 7_step) : step_(step), now_(static_cast<size_t>(ranks), 0) {
    for (Rank rank : all_ranks(ranks)) {
      RankDetail detail;
      detail.identity = {
          "job", 0, rank, ranks, rank % 8, format("node-%d", rank.value() / 8), format("GPU-%d", rank.value())};
      detail.detail.step = step;
      detail.detail.start_unix_ns = kEpochNs;
      details.push_back(std::move(detail));
    }
  }

  std::vector<RankDetail> details;
  std::vector<int64_t> clock_ns;  // what each rank's clock is ahead; empty: nothing

  void own(Rank rank, double ms, Phase phase = Phase::kOther) {
    int64_t& now = now_[index_of(rank)];
    if (phase != Phase::kOther) details[index_of(rank)].detail.phases.push_back({phase, "", kEpochNs + now, ns(ms)});
    now += ns(ms);
  }
  void all_own(double ms, Phase phase = Phase::kOther) {
    for (size_t rank = 0; rank < now_.size(); ++rank) own(rank_at(rank), ms, phase);
  }
  void collective(CommId comm_id, const std::vector<Rank>& ranks, double transfer_ms,
                  const char* function = "AllReduce", int64_t bytes = 1'000'000) {
    int64_t last = 0;
    for (Rank rank : ranks) last = std::max(last, now_[index_of(rank)]);
    const uint64_t ordinal = ++ordinals_[comm_id];
    for (size_t i = 0; i < ranks.size(); ++i) {
      int64_t& now = now_[index_of(ranks[i])];
      OpSpan op;
      op.comm_id = comm_id;
      op.comm_size = static_cast<int32_t>(ranks.size());
      op.rank_in_comm = static_cast<int32_t>(i);
      op.function = function;
      op.ordinal = op.seq = ordinal;
      op.bytes = bytes;
      add(ranks[i], op, now, last + ns(transfer_ms));
      now = last + ns(transfer_ms);
    }
  }
  // Both end together. comm: of these two, the sender first.
  void message(CommId comm_id, Rank from, Rank to, double transfer_ms) {
    const int64_t last = std::max(now_[index_of(from)], now_[index_of(to)]);
    const Rank low = std::min(from, to);
    const uint64_t seq = messages_[{comm_id, from}]++;
    for (Rank rank : {from, to}) {
      int64_t& now = now_[index_of(rank)];
      OpSpan op;
      op.comm_id = comm_id;
      op.comm_size = 2;
      op.p2p = true;
      op.rank_in_comm = rank == low ? 0 : 1;
      op.peer = 1 - op.rank_in_comm;
      op.function = rank == from ? "Send" : "Recv";
      op.seq = seq;
      op.bytes = 1000;
      add(rank, op, now, last + ns(transfer_ms));
      now = last + ns(transfer_ms);
    }
  }

  // Every rank's step ends where it stands.
  void end() {
    for (size_t rank = 0; rank < now_.size(); ++rank) {
      StepDetail& detail = details[rank].detail;
      detail.duration_ns = now_[rank];
      const int64_t shift = clock_ns.empty() ? 0 : clock_ns[rank];
      detail.start_unix_ns += shift;
      for (OpSpan& op : detail.ops) op.start_unix_ns += shift;
      for (PhaseSpan& phase : detail.phases) phase.start_unix_ns += shift;
    }
  }

  std::vector<StepRow> rows() const {
    std::vector<StepRow> rows;
    for (const RankDetail& rank : details) {
      StepRow row;
      row.identity = rank.identity;
      StepSummary& summary = row.summary;
      summary.step = step_;
      summary.start_unix_ns = rank.detail.start_unix_ns;
      summary.duration_ns = rank.detail.duration_ns;
      std::map<std::pair<CommId, bool>, CommStep> comms;
      for (const OpSpan& op : rank.detail.ops) {
        CommStep& comm = comms[{op.comm_id, op.p2p}];
        comm.comm_id = op.comm_id;
        comm.p2p = op.p2p;
        comm.size = op.comm_size;
        comm.rank_in_comm = op.rank_in_comm;
        ++comm.count;
        comm.bytes += op.bytes;
        comm.gpu_ns += op.duration_ns;
        comm.last_end_unix_ns = std::max(comm.last_end_unix_ns, op.start_unix_ns + op.duration_ns);
        summary.comm_ns += op.duration_ns;
      }
      for (const auto& [key, comm] : comms) summary.comms.push_back(comm);
      for (const PhaseSpan& phase : rank.detail.phases)
        summary.phase_ns[static_cast<size_t>(phase.phase)] += phase.duration_ns;
      summary.self_ns = summary.duration_ns - summary.comm_ns;
      rows.push_back(std::move(row));
    }
    return rows;
  }
  JobInfo job() const {
    JobInfo info;
    info.job_id = "job";
    info.world_size = static_cast<int32_t>(details.size());
    info.last_step = step_;
    for (const RankDetail& rank : details) {
      RankInfo entry;
      entry.identity = rank.identity;
      std::map<CommId, CommInit> comms;
      for (const OpSpan& op : rank.detail.ops) comms[op.comm_id] = {op.comm_id, op.comm_size, op.rank_in_comm, 1, ""};
      for (const auto& [id, comm] : comms) entry.comms.push_back(comm);
      info.ranks.push_back(std::move(entry));
    }
    return info;
  }

 private:
  void add(Rank rank, OpSpan op, int64_t from, int64_t to) {
    op.enqueued_unix_ns = op.start_unix_ns = kEpochNs + from;
    op.duration_ns = to - from;
    op.timed = true;
    details[index_of(rank)].detail.ops.push_back(std::move(op));
  }

  StepNumber step_;
  std::vector<int64_t> now_;
  std::map<CommId, uint64_t> ordinals_;
  std::map<std::pair<CommId, Rank>, uint64_t> messages_;
};

}  // namespace lockstep::testing
