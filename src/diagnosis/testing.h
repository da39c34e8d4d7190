// A made-up job for tests of diagnosis: every rank does its own work, then goes through its groups in order. A
// collective of a group ends for all members at once, when the last has come and the transfer is done; so whoever comes
// last spends the least time in it, as on a real machine.
//
// Thread rule: Confined.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "diagnosis/engine.h"
#include "diagnosis/window.h"
#include "model/step.h"

namespace lockstep::testing {

inline constexpr double kMs = 1e6;
inline constexpr int64_t kSecondNs = 1'000'000'000;
inline constexpr int64_t kEpochNs = 1'800'000'000'000'000'000;
inline constexpr CommId kWorldComm{0xC0};

// One rank in one step. Milliseconds.
struct RankPlan {
  bool silent = false;  // takes part, but its summary never arrives
  bool unseen = false;  // NCCL told no GPU times: all of its step looks like own work
  double own_ms = 100;  // all work of its own, with the phases below in it
  double input_ms = 5;
  double checkpoint_ms = 0;
  double eval_ms = 0;
  double queue_ms = 10;             // of the own work: while an operation was already enqueued behind it
  double bytes_factor = 1;          // payload against everybody else's
  std::vector<StepScalar> scalars;  // that it tells
  double wire_ms = 0;               // of its transfers to the next rank; 0: as fast as the job's links are
  double wire_longest_ms = 0;       // one of these transfers stood for so long; 0: none did
  double handing_on_ms = 0.1;       // of what has arrived from the rank before, by its proxy
  double quiet_ms = 0;              // its process made no call for so long
  double stopped_ms = 0;            // found stopped
  double undrained_longest_ms = 0;  // data from the rank before lay for so long until its GPU took it
};

struct PlannedGroup {
  CommId comm_id = kWorldComm;
  std::vector<Rank> ranks;
  double transfer_ms = 20;
  int64_t bytes = 200'000'000;
  int64_t count = 1;
  bool p2p = false;
};

using StepPlan = std::function<void(StepNumber step, std::vector<RankPlan>& ranks)>;

class MadeUpJob {
 public:
  explicit MadeUpJob(int32_t ranks, uint32_t seed = 1) : ranks_(ranks), random_(seed) {
    PlannedGroup world;
    for (Rank rank : all_ranks(ranks)) world.ranks.push_back(rank);
    groups = {world};
  }

  std::vector<PlannedGroup> groups;  // every rank goes through those it is in, in this order
  double noise = 0.01;               // of the own work, standard deviation
  bool ring_flows = false;           // rank r sends to r + 1 over the first group
  int64_t flow_bytes = 100'000'000;
  double flow_wire_ms = 10;
  int64_t attempt = 0;

  Identity identity(Rank rank) const {
    return {
        "job", attempt, rank, ranks_, rank % 8, format("node-%d", rank.value() / 8), format("GPU-%d", rank.value())};
  }

  // The rows of one step, of the ranks that are not silent.
  std::vector<std::pair<Identity, StepSummary>> step(StepNumber number, const StepPlan& plan = {}) {
    std::vector<RankPlan> plans(static_cast<size_t>(ranks_));
    std::normal_distribution<double> spread(1, noise);
    for (RankPlan& entry : plans) entry.own_ms *= std::max(0.5, spread(random_));
    if (plan) plan(number, plans);

    std::vector<StepSummary> rows(plans.size());
    std::vector<double> now_ms(plans.size());
    double slowest_wire_ms = 0;
    for (size_t rank = 0; rank < plans.size(); ++rank) {
      now_ms[rank] = plans[rank].own_ms;
      if (ring_flows) slowest_wire_ms = std::max({slowest_wire_ms, wire_ms(plans[rank]), plans[rank].wire_longest_ms});
    }
    for (const PlannedGroup& group : groups) {
      double last_ms = 0;
      for (Rank rank : group.ranks) last_ms = std::max(last_ms, now_ms[index_of(rank)]);
      double transfer_ms = &group == &groups.front() ? std::max(group.transfer_ms, slowest_wire_ms) : group.transfer_ms;
      double end_ms = last_ms + transfer_ms;
      for (size_t in_comm = 0; in_comm < group.ranks.size(); ++in_comm) {
        size_t rank = index_of(group.ranks[in_comm]);
        double in_ms = end_ms - now_ms[rank];
        double one_ms = transfer_ms / static_cast<double>(group.count);
        CommStep comm;
        comm.comm_id = group.comm_id;
        comm.size = static_cast<int32_t>(group.ranks.size());
        comm.rank_in_comm = static_cast<int32_t>(in_comm);
        comm.count = group.count;
        comm.p2p = group.p2p;
        // Where something is routed, that is what differs.
        const bool routed = std::any_of(groups.begin(), groups.end(), [](const PlannedGroup& one) { return one.p2p; });
        comm.bytes = static_cast<int64_t>(static_cast<double>(group.bytes) *
                                          (group.p2p || !routed ? plans[rank].bytes_factor : 1));
        comm.gpu_ns = ns(in_ms);
        comm.shortest_ns = ns(group.count == 1 ? in_ms : one_ms);
        comm.longest_ns = ns(in_ms - one_ms * static_cast<double>(group.count - 1));
        comm.queue_ns = ns(plans[rank].queue_ms);
        rows[rank].comms.push_back(comm);
        rows[rank].comm_ns += comm.gpu_ns;
        now_ms[rank] = end_ms;
      }
    }

    std::vector<std::pair<Identity, StepSummary>> sent;
    double longest_ms = *std::max_element(now_ms.begin(), now_ms.end());
    for (size_t rank = 0; rank < plans.size(); ++rank) {
      const RankPlan& entry = plans[rank];
      StepSummary& row = rows[rank];
      row.step = number;
      row.start_unix_ns = start_unix_ns_;
      row.self_ns = ns(entry.own_ms);
      row.duration_ns = row.self_ns + row.comm_ns;
      row.queue_ns = ns(entry.queue_ms);
      row.quiet_ns = ns(entry.quiet_ms);
      row.stopped_ns = ns(entry.stopped_ms);
      row.scalars = entry.scalars;
      row.phase_ns[static_cast<size_t>(Phase::kInput)] = ns(entry.input_ms);
      row.phase_ns[static_cast<size_t>(Phase::kCheckpoint)] = ns(entry.checkpoint_ms);
      row.phase_ns[static_cast<size_t>(Phase::kEval)] = ns(entry.eval_ms);
      if (ring_flows) add_flows(rank, plans, row);
      if (entry.unseen) hide_gpu_times(row);
      if (!entry.silent) sent.emplace_back(identity(rank_at(rank)), row);
    }
    start_unix_ns_ += ns(longest_ms);
    return sent;
  }

  void play(JobWindow& window, StepNumber from, StepNumber to, const StepPlan& plan = {}) {
    for (StepNumber number = from; number <= to; ++number) {
      for (const auto& [who, row] : step(number, plan)) window.add_step(who, row);
    }
  }

  // As the server does it: rows come in, diagnosis looks. `look` is called after each step.
  void play(DiagnosisEngine& engine, StepNumber from, StepNumber to, const StepPlan& plan = {},
            const std::function<void(StepNumber)>& look = {}) {
    for (StepNumber number = from; number <= to; ++number) {
      for (const auto& [who, row] : step(number, plan)) engine.on_step(who, row, start_unix_ns_);
      engine.tick(start_unix_ns_);
      if (look) look(number);
    }
  }

  int64_t now_unix_ns() const { return start_unix_ns_; }

 private:
  static int64_t ns(double ms) { return static_cast<int64_t>(ms * kMs); }
  double wire_ms(const RankPlan& entry) const { return entry.wire_ms > 0 ? entry.wire_ms : flow_wire_ms; }

  static void hide_gpu_times(StepSummary& row) {
    row.self_ns = row.duration_ns;
    row.comm_ns = row.queue_ns = 0;
    for (CommStep& comm : row.comms) {
      comm.unseen = comm.count;
      comm.gpu_ns = comm.shortest_ns = comm.longest_ns = comm.queue_ns = 0;
      row.unseen += comm.unseen;
    }
  }

  void add_flows(size_t rank, const std::vector<RankPlan>& plans, StepSummary& row) const {
    int32_t next = static_cast<int32_t>((rank + 1) % plans.size());
    int32_t before = static_cast<int32_t>((rank + plans.size() - 1) % plans.size());
    FlowStep out;
    out.comm_id = groups.front().comm_id;
    out.peer = next;
    out.transfers = 50;
    out.bytes = flow_bytes;
    out.wire_ns = ns(std::max(wire_ms(plans[rank]), plans[rank].wire_longest_ms));
    out.wire_longest_ns = ns(std::max(wire_ms(plans[rank]) / 10, plans[rank].wire_longest_ms));
    FlowStep in = out;
    in.peer = before;
    in.send = false;
    in.wire_ns = ns(plans[rank].handing_on_ms);
    in.wire_longest_ns = ns(0.01);
    in.own_gpu_longest_ns = ns(std::max(0.1, plans[rank].undrained_longest_ms));
    row.flows = {out, in};
  }

  int32_t ranks_;
  std::mt19937 random_;
  int64_t start_unix_ns_ = kEpochNs;
};

// The ranks that the open verdicts accuse.
inline std::set<Rank> accused(const DiagnosisEngine& engine) {
  std::set<Rank> ranks;
  for (const Verdict& verdict : engine.verdicts("job")) {
    if (verdict.state != VerdictState::kCleared)
      ranks.insert(verdict.culprit.ranks.begin(), verdict.culprit.ranks.end());
  }
  return ranks;
}

}  // namespace lockstep::testing
