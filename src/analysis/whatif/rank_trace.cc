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

}  // namespace

Result<OpGraph> graph_of_traced_ranks(std::span<const TracedRank> ranks, int64_t step,
                                      std::vector<std::string>& notes) {
  if (ranks.empty()) return Error{"whatif: no rank has detail of this step"};
  GraphBuilder builder;
  builder.steps.push_back(step);
  builder.types.push_back({"own work", "own work", false, OpRole::kOther});

  std::map<uint64_t, uint32_t> members_of;  // of each communicator
  {
    std::map<std::pair<uint64_t, int32_t>, bool> seen;
    for (const TracedRank& rank : ranks) {
      for (const TracedOp& op : rank.ops) {
        if (seen.try_emplace({op.comm_id, rank.rank}, true).second) ++members_of[op.comm_id];
      }
    }
  }
  double first_s = ranks.front().begin_s;
  for (const TracedRank& rank : ranks) first_s = std::min(first_s, rank.begin_s);

  std::map<std::string, uint16_t> type_of;
  // Own work is never equal to communication: the last part of the key tells them apart.
  Numbers<std::tuple<uint32_t, size_t, int>> equals;
  Numbers<std::string> roles;
  std::map<std::pair<uint64_t, uint64_t>, std::vector<uint32_t>> collectives;  // by communicator and ordinal
  std::map<std::tuple<uint64_t, int32_t, int32_t>, std::vector<uint32_t>> sends, receives;  // by who sends to whom
  size_t alone = 0;

  for (const TracedRank& rank : ranks) {
    const auto worker = static_cast<int32_t>(builder.workers.size());
    builder.workers.push_back({rank.rank, -1, -1});
    std::vector<const TracedOp*> ops;
    for (const TracedOp& op : rank.ops) {
      if (!std::isfinite(op.start_s) || !std::isfinite(op.end_s) || op.end_s < op.start_s)
        return Error{format("whatif: rank %d: an operation that ends before it starts", rank.rank)};
      ops.push_back(&op);
    }
    std::stable_sort(ops.begin(), ops.end(),
                     [](const TracedOp* a, const TracedOp* b) { return a->start_s < b->start_s; });
    std::string did;  // in order
    for (const TracedOp* op : ops) did += format("%s/%u/%d ", op->function.c_str(), members_of[op->comm_id], op->send);
    const uint32_t role = roles.of(did);

    const auto own_work = [&](size_t place, double from_s, double to_s) {
      return builder.add({.type = kOwnType,
                          .equals = equals.of({role, place, 0}),
                          .worker = worker,
                          .step = 0,
                          .start_s = from_s,
                          .end_s = std::max(from_s, to_s)});
    };
    // A rank that begins its step later than others was held up by something before it; that is nobody's work here.
    const uint32_t begin = builder.add({.type = kOwnType,
                                        .equals = equals.of({0, static_cast<size_t>(worker), 2}),
                                        .worker = worker,
                                        .step = 0,
                                        .start_s = first_s,
                                        .end_s = std::max(first_s, rank.begin_s)});
    double newest_s = rank.begin_s;  // end of the newest thing that happened
    uint32_t newest = begin;
    std::vector<std::pair<double, uint32_t>> running;  // end and number of operations not seen to end yet
    std::map<std::pair<uint64_t, bool>, std::pair<double, uint32_t>> last_on;  // communicator and kind -> end, number
    for (size_t place = 0; place < ops.size(); ++place) {
      const TracedOp& op = *ops[place];
      // Operations that have ended by now may be what the rank went on after.
      std::erase_if(running, [&](const std::pair<double, uint32_t>& one) {
        if (one.first > op.start_s) return false;
        if (one.first >= newest_s) {
          newest_s = one.first;
          newest = one.second;
        }
        return true;
      });
      const uint32_t own = own_work(place, newest_s, op.start_s);
      builder.add_edge(newest, own);
      const auto found = type_of.find(op.function);
      if (found == type_of.end()) {
        if (type_of.size() >= kFunctionsMax) return Error{"whatif: more different functions than communication has"};
        type_of[op.function] = static_cast<uint16_t>(builder.types.size());
        builder.types.push_back({op.function, op.function, true, OpRole::kOther});
      }
      const uint32_t number = builder.add({.type = type_of[op.function],
                                           .equals = equals.of({role, place, 1}),
                                           .worker = worker,
                                           .step = 0,
                                           .start_s = op.start_s,
                                           .end_s = op.end_s});
      builder.add_edge(own, number);
      auto& last = last_on.try_emplace({op.comm_id, op.p2p}, -1e300, number).first->second;
      if (last.second != number && last.first <= op.start_s) builder.add_edge(last.second, number);
      last = {op.end_s, number};
      running.emplace_back(op.end_s, number);
      newest_s = std::max(newest_s, op.start_s);
      newest = own;
      if (!op.p2p) {
        collectives[{op.comm_id, op.ordinal}].push_back(number);
      } else if (op.peer >= 0) {
        (op.send ? sends : receives)[{op.comm_id, op.send ? rank.rank : op.peer, op.send ? op.peer : rank.rank}]
            .push_back(number);
      } else {
        ++alone;
      }
    }
    for (const auto& [end_s, number] : running) {
      if (end_s < newest_s) continue;
      newest_s = end_s;
      newest = number;
    }
    const uint32_t rest = own_work(ops.size(), newest_s, rank.end_s);
    builder.add_edge(newest, rest);
    for (const auto& [end_s, number] : running) builder.add_edge(number, rest);
  }

  for (const auto& entry : collectives) {
    builder.add_meeting(entry.second);
    if (entry.second.size() < members_of[entry.first.first]) ++alone;
  }
  for (const auto& entry : sends) {
    const auto found = receives.find(entry.first);
    const size_t pairs = found == receives.end() ? 0 : std::min(entry.second.size(), found->second.size());
    for (size_t i = 0; i < pairs; ++i) builder.add_meeting(std::vector<uint32_t>{entry.second[i], found->second[i]});
    alone += entry.second.size() - pairs;
  }
  if (alone > 0)
    notes.push_back(
        format("%zu operations of which not every member has detail: what these waited for cannot be told", alone));
  return std::move(builder).finish();
}

}  // namespace lockstep
