#include "profile/ranks/critical_path.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "profile/rank/host_time.h"

namespace lockstep::profile {
namespace {

// A start so long after its launch, and after the kernel before it on its stream, waits for another stream.
constexpr int64_t kLaunchNs = 8'000;
constexpr int64_t kStreamNs = 3'000;
constexpr int64_t kOtherStreamNs = 20'000;  // that ended at most so long before
constexpr int64_t kWaitedNs = 5'000;        // a call of the host that takes less did not wait

bool waits_for_gpu(std::string_view name) {
  return name.find("Synchronize") != std::string_view::npos || name == "cudaMemcpy" || name == "hipMemcpy" ||
         name == "hipMemcpyWithStream";
}

// One rank as the walk needs it, on the rank's own clock.
class RankWalk {
 public:
  explicit RankWalk(const RankProfile& rank) : rank_(rank), host_(rank.index) {
    const std::vector<Activity>& activities = rank.index.activities;
    before_.assign(activities.size(), kNoEvent);
    for (const StreamIndex& stream : rank.index.streams) {
      for (size_t i = 1; i < stream.activities.size(); ++i) before_[stream.activities[i]] = stream.activities[i - 1];
    }
    ends_.resize(activities.size());
    for (uint32_t i = 0; i < activities.size(); ++i) ends_[i] = i;
    std::sort(ends_.begin(), ends_.end(),
              [&](uint32_t a, uint32_t b) { return activities[a].end_ns < activities[b].end_ns; });
    for (uint32_t i = 0; i < rank.events->size(); ++i) {
      const EventKind kind = rank.events->kind[i];
      if ((kind != EventKind::kRuntime && kind != EventKind::kDriver) || rank.events->duration_ns[i] < kWaitedNs)
        continue;
      if (waits_for_gpu(rank.events->name_of(i))) waits_.push_back(i);
    }
    find_busy_host();
    std::sort(waits_.begin(), waits_.end(),
              [&](uint32_t a, uint32_t b) { return rank.events->end_ns(a) < rank.events->end_ns(b); });
  }

  const Activity& activity(uint32_t number) const { return rank_.index.activities[number]; }
  uint32_t before(uint32_t number) const { return before_[number]; }
  // The activity that ended last, at or before this moment; kNoEvent: none.
  uint32_t ended_by(int64_t ns) const {
    const auto after =
        std::partition_point(ends_.begin(), ends_.end(), [&](uint32_t i) { return activity(i).end_ns <= ns; });
    return after == ends_.begin() ? kNoEvent : *std::prev(after);
  }
  // For which activity the host waited last before this moment, in a call that waits for the GPU; kNoEvent: none.
  uint32_t last_wait(int64_t ns) const {
    auto at =
        std::partition_point(waits_.begin(), waits_.end(), [&](uint32_t i) { return rank_.events->end_ns(i) <= ns; });
    while (at != waits_.begin()) {
      const uint32_t call = *--at;
      const uint32_t waited_for = ended_by(rank_.events->end_ns(call));
      if (waited_for != kNoEvent && activity(waited_for).end_ns > rank_.events->start_ns[call]) return waited_for;
    }
    return kNoEvent;
  }
  // The same where no call says so (a profile without the runtime's calls, a wait in a library): the activity that ended
  // last while no thread of the host was in an operator or a call.
  uint32_t ended_while_host_idle(int64_t ns) const {
    auto at = std::partition_point(busy_.begin(), busy_.end(), [&](const auto& one) { return one.first < ns; });
    for (; at != busy_.begin() && std::prev(at) != busy_.begin(); --at) {
      const int64_t idle_from = std::prev(at, 2)->second, idle_to = std::prev(at)->first;
      if (idle_to - idle_from < kWaitedNs) continue;
      const uint32_t ended = ended_by(idle_to);
      if (ended != kNoEvent && activity(ended).end_ns > idle_from) return ended;
    }
    return kNoEvent;
  }
  HostTime& host() { return host_; }
  const RankProfile& rank() const { return rank_; }

 private:
  void find_busy_host() {
    const TraceEvents& events = *rank_.events;
    for (uint32_t i = 0; i < events.size(); ++i) {
      const EventKind kind = events.kind[i];
      if (kind != EventKind::kCpuOp && kind != EventKind::kRuntime && kind != EventKind::kDriver) continue;
      busy_.emplace_back(events.start_ns[i], events.end_ns(i));
    }
    std::sort(busy_.begin(), busy_.end());
    size_t kept = 0;
    for (const auto& one : busy_) {
      if (kept > 0 && one.first <= busy_[kept - 1].second) {
        busy_[kept - 1].second = std::max(busy_[kept - 1].second, one.second);
      } else {
        busy_[kept++] = one;
      }
    }
    busy_.resize(kept);
  }

  const RankProfile& rank_;
  HostTime host_;
  std::vector<std::pair<int64_t, int64_t>> busy_;  // any thread of the host
  std::vector<uint32_t> before_;                   // on the same stream
  std::vector<uint32_t> ends_;                     // activities by end
  std::vector<uint32_t> waits_;                    // calls by end
};

class PathWalk {
 public:
  PathWalk(std::span<const RankProfile> ranks, const CollectiveAnalysis& collectives)
      : ranks_(ranks), collectives_(collectives) {
    for (const RankProfile& rank : ranks) walks_.emplace_back(rank);
    member_of_.resize(ranks.size());
    for (uint32_t i = 0; i < collectives.matched.size(); ++i) {
      for (const CollectiveMember& member : collectives.matched[i].members)
        member_of_[member.profile][member.activity] = i;
    }
    path_.by_rank_ns.resize(ranks.size());
  }

  CriticalPath walk() {
    uint32_t number = kNoEvent;
    int64_t last = INT64_MIN;
    size_t activities = 0;
    for (uint32_t i = 0; i < walks_.size(); ++i) {
      activities += ranks_[i].index.activities.size();
      const uint32_t final = walks_[i].ended_by(INT64_MAX);
      if (final == kNoEvent || time(i, walks_[i].activity(final).end_ns) <= last) continue;
      last = time(i, walks_[i].activity(final).end_ns);
      profile_ = i;
      number = final;
    }
    at_ns_ = last;
    // Every activity is passed once at most on a walk that goes back in time; the bound is for clocks that contradict.
    for (size_t left = 2 * activities; number != kNoEvent && left > 0; --left) number = pass(number);
    std::reverse(path_.parts.begin(), path_.parts.end());
    for (const PathPart& part : path_.parts) {
      const int64_t length = part.end_ns - part.start_ns;
      path_.by_class_ns[static_cast<size_t>(part.path_class)] += length;
      path_.by_rank_ns[part.profile] += length;
      path_.total_ns += length;
    }
    return std::move(path_);
  }

 private:
  int64_t time(uint32_t profile, int64_t ns) const { return collectives_.clocks.job_time(ranks_[profile].rank, ns); }
  // From where the path has got to, back to this moment of the present rank.
  void add(PathClass one, std::string name, int64_t from_own_ns) {
    const int64_t from = time(profile_, from_own_ns);
    if (from < at_ns_) path_.parts.push_back({profile_, one, std::move(name), from, at_ns_});
    at_ns_ = std::min(at_ns_, from);
  }

  static PathClass class_of(KernelClass one) {
    return one == KernelClass::kCompute         ? PathClass::kCompute
           : one == KernelClass::kCommunication ? PathClass::kCommunication
                                                : PathClass::kMemory;
  }

  // Takes an activity into the path; the one that it waited for, or kNoEvent at the beginning.
  uint32_t pass(uint32_t number) {
    const std::string& name = ranks_[profile_].index.name_of(walks_[profile_].activity(number));
    const PathClass path_class = class_of(walks_[profile_].activity(number).traits.kernel_class);
    if (const auto found = member_of_[profile_].find(number); found != member_of_[profile_].end()) {
      const MatchedCollective& one = collectives_.matched[found->second];
      const CollectiveMember& last = one.members[one.last_member];
      if (last.profile != profile_ && last.start_ns < at_ns_) {
        path_.parts.push_back({profile_, path_class, name, last.start_ns, at_ns_});
        at_ns_ = last.start_ns;
        profile_ = last.profile;
        ++path_.rank_changes;
        return before_start(last.activity);
      }
    }
    add(path_class, name, walks_[profile_].activity(number).start_ns);
    return before_start(number);
  }

  uint32_t before_start(uint32_t number) {
    const RankWalk& walk = walks_[profile_];
    const Activity& activity = walk.activity(number);
    const TraceEvents& events = *ranks_[profile_].events;
    const uint32_t before = walk.before(number);
    const int64_t stream_ready =
        before == kNoEvent ? INT64_MIN : std::min(walk.activity(before).end_ns, activity.start_ns);
    const int64_t launched =
        activity.launch == kNoEvent ? INT64_MIN : std::min(events.end_ns(activity.launch), activity.start_ns);
    const bool is_stream_late = before == kNoEvent || activity.start_ns - stream_ready > kStreamNs;
    const bool is_launch_late = activity.launch == kNoEvent || activity.start_ns - launched > kLaunchNs;
    if (is_stream_late && is_launch_late) {
      const uint32_t other = walk.ended_by(activity.start_ns);
      const bool is_near = other != kNoEvent && other != number && walk.activity(other).start_ns < activity.start_ns &&
                           activity.start_ns - walk.activity(other).end_ns <= kOtherStreamNs;
      if (is_near) {
        add(PathClass::kKernelDelay, "between streams", walk.activity(other).end_ns);
        return other;
      }
    }
    if (before != kNoEvent && stream_ready >= launched) {
      add(PathClass::kKernelDelay, "between kernels", stream_ready);
      return walk.activity(before).start_ns < activity.start_ns ? before : kNoEvent;
    }
    if (activity.launch == kNoEvent) return kNoEvent;
    add(PathClass::kLaunchDelay, "from launch to start", launched);
    return on_host(activity.launch);
  }

  // The host's time back to where it last waited for the GPU, or to the beginning of the trace.
  uint32_t on_host(uint32_t call) {
    RankWalk& walk = walks_[profile_];
    const TraceEvents& events = *ranks_[profile_].events;
    const int64_t to = events.end_ns(call);
    uint32_t waited_for = walk.last_wait(to);
    const uint32_t ended = walk.ended_while_host_idle(to);
    if (ended != kNoEvent &&
        (waited_for == kNoEvent || walk.activity(ended).end_ns > walk.activity(waited_for).end_ns)) {
      waited_for = ended;
    }
    const int64_t from = waited_for == kNoEvent ? ranks_[profile_].index.first_ns : walk.activity(waited_for).end_ns;
    if (from < to) {
      const std::string what = walk.host().what_ran(events.track[call], from, to);
      add(is_data_loading(what) ? PathClass::kDataLoading : PathClass::kHost, what, from);
    }
    return waited_for;
  }

  std::span<const RankProfile> ranks_;
  const CollectiveAnalysis& collectives_;
  std::vector<RankWalk> walks_;
  std::vector<std::unordered_map<uint32_t, uint32_t>> member_of_;  // activity to its collective
  CriticalPath path_;
  uint32_t profile_ = 0;
  int64_t at_ns_ = 0;
};

}  // namespace

const char* to_text(PathClass one) {
  constexpr std::array<const char*, kPathClasses> kNames = {"gpu_compute",  "gpu_memory",   "gpu_communication", "host",
                                                            "data_loading", "launch_delay", "kernel_delay"};
  return kNames[static_cast<size_t>(one)];
}

std::vector<CriticalPath::Row> CriticalPath::rows() const {
  std::map<std::pair<std::string, PathClass>, Row> by_name;
  for (const PathPart& part : parts) {
    Row& row = by_name[{part.name, part.path_class}];
    row.sum_ns += part.end_ns - part.start_ns;
    ++row.count;
  }
  std::vector<Row> out;
  for (auto& [key, row] : by_name) {
    row.name = key.first;
    row.path_class = key.second;
    out.push_back(std::move(row));
  }
  std::sort(out.begin(), out.end(),
            [](const Row& a, const Row& b) { return a.sum_ns != b.sum_ns ? a.sum_ns > b.sum_ns : a.name < b.name; });
  return out;
}

CriticalPath critical_path(std::span<const RankProfile> ranks, const CollectiveAnalysis& collectives) {
  return PathWalk(ranks, collectives).walk();
}

}  // namespace lockstep::profile
