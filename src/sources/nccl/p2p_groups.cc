#include "sources/nccl/p2p_groups.h"

#include <algorithm>

#include "sources/nccl/intervals.h"

namespace lockstep {
namespace {

constexpr uint32_t kGraphBit = 1u << 31;

// One direction of a group, without the own rank.
struct Direction {
  std::map<int32_t, uint64_t> times;  // peer -> how often
  uint64_t bytes = 0;

  // How many times every other rank is in it; 0: not all of them, or some more often.
  uint64_t rounds(int32_t size) const {
    if (times.size() != static_cast<size_t>(size) - 1) return 0;
    uint64_t first = times.begin()->second;
    bool even = std::all_of(times.begin(), times.end(), [&](const auto& entry) { return entry.second == first; });
    return even ? first : 0;
  }
};

// NCCL does not tell the time of the part to itself.
uint64_t time_of(std::span<const P2pPart> parts, int32_t own) {
  std::vector<Interval> running;
  for (const P2pPart& part : parts) {
    if (part.peer == own) continue;
    if (part.stop_ns <= part.start_ns) return 0;
    running.push_back({part.start_ns, part.stop_ns});
  }
  return static_cast<uint64_t>(union_length(running));
}

}  // namespace

GroupWork recognise(std::span<const P2pPart> parts, int32_t size, int32_t own) {
  GroupWork work;
  if (size < kPatternRanksMin) return work;
  Direction sent, received;
  uint64_t own_sent = 0, own_received = 0;
  for (const P2pPart& part : parts) {
    uint64_t bytes = static_cast<uint64_t>(std::max<int64_t>(0, part.bytes));
    if (part.peer < 0 || part.peer >= size) return work;
    if (part.peer == own) {
      (part.send ? own_sent : own_received) += bytes;
      continue;
    }
    Direction& direction = part.send ? sent : received;
    ++direction.times[part.peer];
    direction.bytes += bytes;
  }
  uint64_t out = sent.rounds(size), in = received.rounds(size);
  if (out > 0 && in == out) {
    work = {Function::kAlltoAll, out, sent.bytes + own_sent, static_cast<double>(sent.bytes)};
  } else if (in > 0 && sent.times.empty()) {
    work = {Function::kGather, in, received.bytes + own_received, static_cast<double>(received.bytes)};
  } else if (out > 0 && received.times.empty()) {
    work = {Function::kScatter, out, sent.bytes + own_sent, static_cast<double>(sent.bytes)};
  }
  work.gpu_ns = time_of(parts, own);
  if (work.gpu_ns == 0) work.bus_bytes = 0;
  return work;
}

P2pGroups::Key P2pGroups::opened(uint16_t comm_index, uint32_t group, bool send, int32_t peer) {
  Key key{comm_index, group, 0};
  if ((group & kGraphBit) != 0) {
    auto after = pending_.upper_bound({comm_index, group, UINT32_MAX});
    if (after != pending_.begin()) {
      const auto& [newest, pending] = *std::prev(after);
      if (newest.comm_index == comm_index && newest.group == group)
        key.round = newest.round + (pending.peers.contains({peer, send}) ? 1 : 0);
    }
  }
  Pending& pending = pending_[key];
  if ((group & kGraphBit) != 0) pending.peers.insert({peer, send});
  ++pending.open;
  pending.touched = true;
  return key;
}

void P2pGroups::done(const Key& key, const P2pPart& part) {
  auto found = pending_.find(key);
  if (found == pending_.end()) return;
  found->second.parts.push_back(part);
  if (found->second.open > 0) --found->second.open;
}

void P2pGroups::lost(const Key& key) {
  auto found = pending_.find(key);
  if (found != pending_.end() && found->second.open > 0) --found->second.open;
}

std::vector<P2pGroups::Settled> P2pGroups::settle(bool all) {
  std::vector<Settled> settled;
  for (auto at = pending_.begin(); at != pending_.end();) {
    Pending& pending = at->second;
    if (!all && (pending.open > 0 || pending.touched)) {
      pending.touched = false;
      ++at;
      continue;
    }
    if (!pending.parts.empty()) settled.push_back({at->first.comm_index, std::move(pending.parts)});
    at = pending_.erase(at);
  }
  return settled;
}

}  // namespace lockstep
