#include "profile/ranks/collectives.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/median.h"
#include "base/text.h"

namespace lockstep::profile {
namespace {

constexpr size_t kShiftMost = 128;      // operations by which the windows of two ranks may differ
constexpr size_t kShiftSample = 2'000;  // operations that a shift is judged by

uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

// One rank's part of a collective.
struct Part {
  uint32_t activity = 0;
  uint64_t signature = 0;  // what has to be equal on all members: name, elements, data type
  int64_t seq = -1;
  std::string_view name;
  int64_t elements = -1;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};
// By group; in order of start.
using PartsOfRank = std::map<std::string, std::vector<Part>>;

// "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)": "AllReduce"
std::string_view function_in(std::string_view name) {
  if (name.starts_with("gloo:")) return name.substr(5);
  const size_t begin = name.find('_');
  if (begin == std::string_view::npos) return name;
  return name.substr(begin + 1, name.find('_', begin + 1) - begin - 1);
}

bool is_point_to_point(std::string_view name) {
  return name.starts_with("send") || name.starts_with("recv") || name.starts_with("Send") || name.starts_with("Recv");
}

bool leaves_together(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c != '_') plain.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c));
  }
  return plain.find("allreduce") != std::string::npos || plain.find("allgather") != std::string::npos ||
         plain.find("reducescatter") != std::string::npos || plain.find("barrier") != std::string::npos;
}

PartsOfRank parts_of(const RankProfile& rank) {
  const TraceEvents& events = *rank.events;
  PartsOfRank parts;
  std::unordered_map<int64_t, size_t> stream_places;
  for (uint32_t i = 0; i < rank.index.activities.size(); ++i) {
    const Activity& activity = rank.index.activities[i];
    if (activity.traits.kernel_class != KernelClass::kCommunication) continue;
    const CollectiveDetail* detail = events.collective(activity.event);
    if (detail == nullptr && activity.op != kNoEvent) detail = events.collective(activity.op);
    const std::string& kernel = rank.index.name_of(activity);
    Part part{i, 0, -1, function_in(kernel), -1, activity.start_ns, activity.end_ns};
    std::string group;
    if (detail != nullptr) {
      if (detail->name != 0) part.name = events.texts[detail->name];
      part.seq = detail->seq;
      part.elements = detail->elements_out > 0 ? detail->elements_out : detail->elements_in;
      // Groups of the same name but other members are others; a list that PyTorch has cut short tells nothing.
      group = events.texts[detail->group];
      if (const std::string& list = events.texts[detail->group_ranks]; list.find("...") == std::string::npos) {
        group += " " + list;
      }
      part.signature = hash_of(events.texts[detail->dtype]) ^ static_cast<uint64_t>(part.elements) * 0x9e3779b97f4a7c15;
      if (is_point_to_point(part.name)) group += format(" p2p %d", detail->peer);
    } else if (kernel.starts_with("gloo:")) {
      group = "gloo";
      if (const OpDetail* op = events.op(activity.event)) part.signature = hash_of(events.texts[op->dims]);
    } else {
      const auto [place, is_new] = stream_places.try_emplace(events.stream[activity.event], stream_places.size());
      group = format("communication stream %zu", place->second);
    }
    part.signature ^= hash_of(part.name);
    parts[group].push_back(part);
  }
  return parts;
}

// How far the orders of two ranks are apart: part i of `own` belongs to part i + shift of `other`.
ptrdiff_t shift_between(const std::vector<Part>& own, const std::vector<Part>& other) {
  const auto judge = [&](ptrdiff_t shift) {
    struct Judged {
      size_t equal = 0;
      int64_t distance = INT64_MAX;
    } judged;
    std::vector<int64_t> distances;
    const size_t step = std::max<size_t>(1, own.size() / kShiftSample);
    for (size_t i = 0; i < own.size(); i += step) {
      const ptrdiff_t j = static_cast<ptrdiff_t>(i) + shift;
      if (j < 0 || j >= static_cast<ptrdiff_t>(other.size())) continue;
      const Part& theirs = other[static_cast<size_t>(j)];
      if (theirs.signature != own[i].signature) continue;
      ++judged.equal;
      distances.push_back(std::abs(own[i].end_ns - theirs.end_ns));
    }
    if (distances.empty()) return judged;
    judged.distance = upper_median_in_place(distances);
    return judged;
  };
  const auto most = static_cast<ptrdiff_t>(std::min(kShiftMost, std::max(own.size(), other.size())));
  std::vector<std::pair<ptrdiff_t, decltype(judge(0))>> tried;
  size_t best_equal = 0;
  for (ptrdiff_t shift = -most; shift <= most; ++shift) {
    tried.emplace_back(shift, judge(shift));
    best_equal = std::max(best_equal, tried.back().second.equal);
  }
  // Steps repeat: shifted by a whole one nearly as much is equal. Wall clocks are nearer than that.
  ptrdiff_t best = 0;
  int64_t nearest = INT64_MAX;
  for (const auto& [shift, judged] : tried) {
    if (judged.equal == 0 || judged.equal * 2 < best_equal || judged.distance >= nearest) continue;
    nearest = judged.distance;
    best = shift;
  }
  return best;
}

struct Instance {
  std::vector<std::pair<uint32_t, const Part*>> members;  // rank in the list, its part
  int64_t seq = -1;
};

// Instances of one group, matched by sequence number or by order.
std::vector<Instance> instances_of(const std::vector<std::pair<uint32_t, const std::vector<Part>*>>& lists) {
  bool has_seq = true;
  for (const auto& [rank, parts] : lists) {
    for (const Part& part : *parts) has_seq &= part.seq >= 0;
  }
  std::map<int64_t, Instance> instances;
  if (has_seq) {
    for (const auto& [rank, parts] : lists) {
      std::unordered_map<int64_t, bool> seen;
      for (const Part& part : *parts) {
        // Several kernels of one operation: its first.
        if (!seen.try_emplace(part.seq, true).second) continue;
        instances[part.seq].members.emplace_back(rank, &part);
        instances[part.seq].seq = part.seq;
      }
    }
  } else {
    const auto longest = std::max_element(
        lists.begin(), lists.end(), [](const auto& a, const auto& b) { return a.second->size() < b.second->size(); });
    for (const auto& [rank, parts] : lists) {
      const ptrdiff_t shift = parts == longest->second ? 0 : shift_between(*parts, *longest->second);
      for (size_t i = 0; i < parts->size(); ++i) {
        const ptrdiff_t at = static_cast<ptrdiff_t>(i) + shift;
        if (at < 0 || at >= static_cast<ptrdiff_t>(longest->second->size())) continue;
        if ((*longest->second)[static_cast<size_t>(at)].signature != (*parts)[i].signature) continue;
        instances[at].members.emplace_back(rank, &(*parts)[i]);
      }
    }
  }
  std::vector<Instance> out;
  for (auto& [key, instance] : instances) {
    if (instance.members.size() > 1) out.push_back(std::move(instance));
  }
  return out;
}

// Time of [from, to) not covered by computation or copies of this rank.
class NotComputing {
 public:
  explicit NotComputing(const RankProfile& rank) {
    for (const Activity& activity : rank.index.activities) {
      if (activity.traits.kernel_class == KernelClass::kCommunication) continue;
      if (!busy_.empty() && activity.start_ns <= busy_.back().second) {
        busy_.back().second = std::max(busy_.back().second, activity.end_ns);
      } else {
        busy_.emplace_back(activity.start_ns, activity.end_ns);
      }
    }
  }
  int64_t within(int64_t from, int64_t to) const {
    int64_t left = to - from;
    auto at = std::partition_point(busy_.begin(), busy_.end(), [&](const auto& one) { return one.second <= from; });
    for (; at != busy_.end() && at->first < to; ++at) left -= std::min(to, at->second) - std::max(from, at->first);
    return left;
  }

 private:
  std::vector<std::pair<int64_t, int64_t>> busy_;
};

void find_waits(std::span<const RankProfile> ranks, CollectiveAnalysis& out) {
  std::vector<std::vector<std::pair<int64_t, int64_t>>> waiting(ranks.size());  // on the rank's own clock
  for (MatchedCollective& one : out.matched) {
    int64_t last_start = INT64_MIN;
    for (uint32_t i = 0; i < one.members.size(); ++i) {
      if (one.members[i].start_ns > last_start) {
        last_start = one.members[i].start_ns;
        one.last_member = i;
      }
    }
    ++out.waits[one.members[one.last_member].profile].came_last;
    for (CollectiveMember& member : one.members) {
      member.wait_ns = std::clamp<int64_t>(last_start - member.start_ns, 0, member.end_ns - member.start_ns);
      RankWaits& waits = out.waits[member.profile];
      ++waits.collectives;
      waits.transfer_ns += member.end_ns - member.start_ns - member.wait_ns;
      const int64_t own_start = ranks[member.profile].index.activities[member.activity].start_ns;
      if (member.wait_ns > 0) waiting[member.profile].emplace_back(own_start, own_start + member.wait_ns);
    }
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    const NotComputing idle(ranks[i]);
    std::sort(waiting[i].begin(), waiting[i].end());
    const std::vector<ProfileStep>& steps = ranks[i].index.steps;
    out.waits[i].by_step_ns.assign(steps.size(), 0);
    int64_t counted_to = INT64_MIN;  // several collectives may wait at once
    for (const auto& [from, to] : waiting[i]) {
      if (to <= counted_to) continue;
      const int64_t length = to - std::max(from, counted_to);
      out.waits[i].wait_ns += length;
      const auto after = std::partition_point(
          steps.begin(), steps.end(), [start = from](const ProfileStep& step) { return step.start_ns <= start; });
      if (after != steps.begin()) out.waits[i].by_step_ns[static_cast<size_t>(after - steps.begin()) - 1] += length;
      out.waits[i].exposed_wait_ns += idle.within(std::max(from, counted_to), to);
      counted_to = to;
    }
  }
}

}  // namespace

int64_t MatchedCollective::transfer_ns() const {
  int64_t last_end = INT64_MIN;
  for (const CollectiveMember& member : members) last_end = std::max(last_end, member.end_ns);
  return std::max<int64_t>(0, last_end - members[last_member].start_ns);
}

CollectiveAnalysis match_collectives(std::span<const RankProfile> ranks) {
  CollectiveAnalysis out;
  out.waits.resize(ranks.size());
  if (ranks.size() < 2) return out;
  std::vector<PartsOfRank> parts;
  std::map<std::string, std::vector<std::pair<uint32_t, const std::vector<Part>*>>> groups;
  size_t all = 0, used = 0;
  for (const RankProfile& rank : ranks) parts.push_back(parts_of(rank));
  for (uint32_t i = 0; i < ranks.size(); ++i) {
    for (const auto& [group, list] : parts[i]) {
      groups[group].emplace_back(i, &list);
      all += list.size();
    }
  }
  std::vector<BarrierEnd> ends;
  for (const auto& [group, lists] : groups) {
    if (lists.size() < 2) continue;
    const CommId comm{hash_of(group) | 1};
    uint64_t number = 0;
    for (const Instance& instance : instances_of(lists)) {
      MatchedCollective one;
      one.name = instance.members.front().second->name;
      one.group = group;
      one.seq = instance.seq;
      one.elements = instance.members.front().second->elements;
      one.is_barrier = leaves_together(one.name);
      ++number;
      for (const auto& [rank, part] : instance.members) {
        one.members.push_back({rank, part->activity, part->start_ns, part->end_ns, 0});
        if (one.is_barrier)
          ends.push_back({comm, number, ranks[rank].rank, part->end_ns, part->end_ns - part->start_ns});
      }
      used += one.members.size();
      (instance.seq >= 0 ? out.by_seq : out.by_order) += 1;
      out.matched.push_back(std::move(one));
    }
  }
  out.unmatched = all - used;
  out.clocks = ClockAlignment::estimate(ends, {});
  for (MatchedCollective& one : out.matched) {
    for (CollectiveMember& member : one.members) {
      const Rank rank = ranks[member.profile].rank;
      member.start_ns = out.clocks.job_time(rank, member.start_ns);
      member.end_ns = out.clocks.job_time(rank, member.end_ns);
    }
  }
  for (const RankClock& clock : out.clocks.clocks()) out.is_aligned |= clock.known;
  std::sort(out.matched.begin(), out.matched.end(), [](const MatchedCollective& a, const MatchedCollective& b) {
    return a.members.front().end_ns < b.members.front().end_ns;
  });
  find_waits(ranks, out);
  return out;
}

}  // namespace lockstep::profile
