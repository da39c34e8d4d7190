#include "analysis/whatif/rank_trace.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr uint16_t kOwnType = 0;
constexpr size_t kFunctionsMax = 256;

// Numbers handed out as keys come.
template <typename Key>
class Numbers {
 public:
  uint32_t of(const Key& key) {
    return numbers_.try_emplace(key, static_cast<uint32_t>(numbers_.size())).first->second;
  }

 private:
  std::map<Key, uint32_t> numbers_;
};

// How many ranks have operations of a communicator, for each.
std::map<CommId, uint32_t> count_members(std::span<const TracedRank> ranks) {
  std::map<CommId, uint32_t> members_of;
  std::map<std::pair<CommId, Rank>, bool> seen;
  for (const TracedRank& rank : ranks) {
    for (const TracedOp& op : rank.ops) {
      if (seen.try_emplace({op.comm_id, rank.rank}, true).second) ++members_of[op.comm_id];
    }
  }
  return members_of;
}

class TracedRanksGraph {
 public:
  TracedRanksGraph(std::span<const TracedRank> ranks, StepNumber step)
      : members_of_(count_members(ranks)), first_s_(ranks.front().begin_s) {
    builder_.steps.push_back(step);
    builder_.types.push_back({"own work", "own work", false, OpRole::kOther});
    for (const TracedRank& rank : ranks) first_s_ = std::min(first_s_, rank.begin_s);
  }

  Result<void> add(const TracedRank& rank) {
    const std::vector<const TracedOp*> ops = LOCKSTEP_TRY(in_order(rank));
    Lane lane;
    lane.worker = static_cast<int32_t>(builder_.workers.size());
    builder_.workers.push_back({rank.rank, -1, -1});
    lane.role = role_of(ops);
    // A rank that begins its step later than others was held up by something before it; that is nobody's work here.
    lane.newest = builder_.add({.type = kOwnType,
                                .equals = equals_.of({0, static_cast<size_t>(lane.worker), 2}),
                                .worker = lane.worker,
                                .step = 0,
                                .start_s = first_s_,
                                .end_s = std::max(first_s_, rank.begin_s)});
    lane.newest_s = rank.begin_s;
    for (size_t place = 0; place < ops.size(); ++place) {
      const uint32_t number = LOCKSTEP_TRY(add_op(lane, *ops[place], place));
      note_partners(rank, *ops[place], number);
    }
    for (const auto& [end_s, number] : lane.running) {
      if (end_s < lane.newest_s) continue;
      lane.newest_s = end_s;
      lane.newest = number;
    }
    const uint32_t rest = add_own_work(lane, ops.size(), rank.end_s);
    builder_.add_edge(lane.newest, rest);
    for (const auto& [end_s, number] : lane.running) builder_.add_edge(number, rest);
    return {};
  }

  Result<OpGraph> finish(std::vector<std::string>& notes) && {
    for (const auto& entry : collectives_) {
      builder_.add_meeting(entry.second);
      if (entry.second.size() < members_of_[entry.first.first]) ++alone_;
    }
    for (const auto& entry : sends_) {
      const auto found = receives_.find(entry.first);
      const size_t pairs = found == receives_.end() ? 0 : std::min(entry.second.size(), found->second.size());
      for (size_t i = 0; i < pairs; ++i) builder_.add_meeting(std::vector<uint32_t>{entry.second[i], found->second[i]});
      alone_ += entry.second.size() - pairs;
    }
    if (alone_ > 0)
      notes.push_back(
          format("%zu operations of which not every member has detail: what these waited for is not known", alone_));
    return std::move(builder_).finish();
  }

 private:
  // One rank as far as it has been walked through.
  struct Lane {
    int32_t worker = 0;
    uint32_t role = 0;
    double newest_s = 0;  // end of the newest thing that happened
    uint32_t newest = 0;
    std::vector<std::pair<double, uint32_t>> running;  // end and number of operations not seen to end yet
    std::map<std::pair<CommId, bool>, std::pair<double, uint32_t>> last_on;  // communicator and kind -> end, number
  };

  static Result<std::vector<const TracedOp*>> in_order(const TracedRank& rank) {
    std::vector<const TracedOp*> ops;
    for (const TracedOp& op : rank.ops) {
      if (!std::isfinite(op.start_s) || !std::isfinite(op.end_s) || op.end_s < op.start_s)
        return Error{format("whatif: rank %d: an operation that ends before it starts", rank.rank.value())};
      ops.push_back(&op);
    }
    std::stable_sort(ops.begin(), ops.end(),
                     [](const TracedOp* a, const TracedOp* b) { return a->start_s < b->start_s; });
    return ops;
  }

  // The same for ranks that did the same.
  uint32_t role_of(const std::vector<const TracedOp*>& ops) {
    std::string did;  // in order
    for (const TracedOp* op : ops) did += format("%s/%u/%d ", op->function.c_str(), members_of_[op->comm_id], op->send);
    return roles_.of(did);
  }

  // From the newest thing that happened on.
  uint32_t add_own_work(const Lane& lane, size_t place, double to_s) {
    return builder_.add({.type = kOwnType,
                         .equals = equals_.of({lane.role, place, 0}),
                         .worker = lane.worker,
                         .step = 0,
                         .start_s = lane.newest_s,
                         .end_s = std::max(lane.newest_s, to_s)});
  }

  // The operation behind its own work.
  Result<uint32_t> add_op(Lane& lane, const TracedOp& op, size_t place) {
    // Operations that have ended by now may be what the rank went on after.
    std::erase_if(lane.running, [&](const std::pair<double, uint32_t>& one) {
      if (one.first > op.start_s) return false;
      if (one.first >= lane.newest_s) {
        lane.newest_s = one.first;
        lane.newest = one.second;
      }
      return true;
    });
    const uint32_t own = add_own_work(lane, place, op.start_s);
    builder_.add_edge(lane.newest, own);
    const uint16_t type = LOCKSTEP_TRY(type_of(op.function));
    const uint32_t number = builder_.add({.type = type,
                                          .equals = equals_.of({lane.role, place, 1}),
                                          .worker = lane.worker,
                                          .step = 0,
                                          .start_s = op.start_s,
                                          .end_s = op.end_s});
    builder_.add_edge(own, number);
    auto& last = lane.last_on.try_emplace({op.comm_id, op.p2p}, -1e300, number).first->second;
    if (last.second != number && last.first <= op.start_s) builder_.add_edge(last.second, number);
    last = {op.end_s, number};
    lane.running.emplace_back(op.end_s, number);
    lane.newest_s = std::max(lane.newest_s, op.start_s);
    lane.newest = own;
    return number;
  }

  Result<uint16_t> type_of(const std::string& function) {
    if (const auto found = types_.find(function); found != types_.end()) return found->second;
    if (types_.size() >= kFunctionsMax) return Error{"whatif: more different functions than communication has"};
    const auto type = static_cast<uint16_t>(builder_.types.size());
    types_[function] = type;
    builder_.types.push_back({function, function, true, OpRole::kOther});
    return type;
  }

  void note_partners(const TracedRank& rank, const TracedOp& op, uint32_t number) {
    if (!op.p2p) {
      collectives_[{op.comm_id, op.ordinal}].push_back(number);
    } else if (op.peer != kNoRank) {
      (op.send ? sends_ : receives_)[{op.comm_id, op.send ? rank.rank : op.peer, op.send ? op.peer : rank.rank}]
          .push_back(number);
    } else {
      ++alone_;
    }
  }

  GraphBuilder builder_;
  std::map<CommId, uint32_t> members_of_;  // of each communicator
  double first_s_;
  std::map<std::string, uint16_t> types_;
  // Own work is never equal to communication: the last part of the key tells them apart.
  Numbers<std::tuple<uint32_t, size_t, int>> equals_;
  Numbers<std::string> roles_;
  std::map<std::pair<CommId, uint64_t>, std::vector<uint32_t>> collectives_;          // by communicator and ordinal
  std::map<std::tuple<CommId, Rank, Rank>, std::vector<uint32_t>> sends_, receives_;  // by who sends to whom
  size_t alone_ = 0;
};

}  // namespace

Result<OpGraph> graph_of_traced_ranks(std::span<const TracedRank> ranks, StepNumber step,
                                      std::vector<std::string>& notes) {
  if (ranks.empty()) return Error{"whatif: no rank has detail of this step"};
  TracedRanksGraph graph(ranks, step);
  for (const TracedRank& rank : ranks) LOCKSTEP_TRY(graph.add(rank));
  return std::move(graph).finish(notes);
}

}  // namespace lockstep
