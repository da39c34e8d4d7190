#include "profile/ranks/perfetto_export.h"

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>

#include "base/perfetto_writer.h"
#include "base/text.h"

namespace lockstep::profile {
namespace {

constexpr size_t kPieceBytes = 1 << 20;

// Which collective an activity of a rank is part of.
using FlowOf = std::unordered_map<uint32_t, uint64_t>;

class ProfileWriter {
 public:
  ProfileWriter(const ProfileAnalysis& analysis, const std::function<Result<void>(std::string_view)>& sink)
      : analysis_(analysis), sink_(sink), out_(bytes_), flows_(analysis.ranks.size()) {
    uint64_t number = 0;
    for (const MatchedCollective& one : analysis.collectives.matched) {
      ++number;
      for (const CollectiveMember& member : one.members)
        flows_[member.profile][member.activity] = number * 0x9e3779b97f4a7c15;
    }
    counts_.arrows = number;
  }

  Result<PerfettoCounts> write() {
    int64_t first = std::numeric_limits<int64_t>::max();
    for (const RankProfile& rank : analysis_.ranks) first = std::min(first, rank.index.first_ns);
    out_.begin(first);
    for (size_t i = 0; i < analysis_.ranks.size(); ++i) LOCKSTEP_TRY(write_rank(analysis_.ranks[i], flows_[i]));
    LOCKSTEP_TRY(hand_on(0));
    return counts_;
  }

 private:
  Result<void> hand_on(size_t least) {
    if (bytes_.size() <= least) return {};
    counts_.bytes += bytes_.size();
    LOCKSTEP_TRY(sink_(bytes_));
    bytes_.clear();
    return {};
  }
  int64_t time(const RankProfile& rank, int64_t ns) const {
    return analysis_.collectives.clocks.job_time(rank.rank, ns);
  }

  Result<void> write_rank(const RankProfile& rank, const FlowOf& flows) {
    process_ = (static_cast<uint64_t>(rank.rank.value()) + 1) << 24;
    tracks_ = 0;
    const std::string host = rank.events->host.empty() ? "" : " " + rank.events->host;
    out_.process(process_, perfetto::kFirstPid + rank.rank.value(),
                 format("rank %d%s", rank.rank.value(), host.c_str()));
    write_steps(rank);
    for (const StreamIndex& stream : rank.index.streams) {
      if (rank.index.has_gpu) LOCKSTEP_TRY(write_stream(rank, stream, flows));
    }
    return write_host(rank, flows);
  }

  uint64_t new_track(std::string_view name, uint64_t order) {
    const uint64_t uuid = process_ + ++tracks_;
    out_.track(uuid, process_, name, order);
    return uuid;
  }

  void write_steps(const RankProfile& rank) {
    if (rank.index.steps.empty()) return;
    const uint64_t track = new_track("steps", 0);
    int64_t last_end = std::numeric_limits<int64_t>::min();
    for (const ProfileStep& step : rank.index.steps) {
      const int64_t start = std::max(last_end, step.start_ns);
      if (step.end_ns <= start) continue;
      slice(rank, track, "step", format("step %lld", static_cast<long long>(step.number)), start, step.end_ns);
      last_end = step.end_ns;
    }
  }
  void slice(const RankProfile& rank, uint64_t track, std::string_view category, std::string_view name, int64_t start,
             int64_t end) {
    out_.slice_begin(track, category, name);
    out_.done(time(rank, start));
    out_.slice_end(track);
    out_.done(time(rank, end));
    ++counts_.slices;
  }

  // Kernels of a stream may overlap (graphs, programmatic launches): then they get tracks of the same name.
  Result<void> write_stream(const RankProfile& rank, const StreamIndex& stream, const FlowOf& flows) {
    perfetto::Lanes lanes;
    std::vector<uint64_t> tracks;
    for (uint32_t number : stream.activities) {
      const Activity& activity = rank.index.activities[number];
      const size_t lane = lanes.take(activity.start_ns, activity.end_ns);
      if (lane == tracks.size()) {
        tracks.push_back(
            new_track(format("GPU %d stream %lld", stream.device, static_cast<long long>(stream.stream)), 1));
      }
      out_.slice_begin(tracks[lane], to_text(activity.traits.kernel_class), rank.index.name_of(activity));
      if (const auto flow = flows.find(number); flow != flows.end()) out_.flow(flow->second);
      if (activity.op != kNoEvent) out_.note("op", rank.events->name_of(activity.op));
      if (const KernelDetail* detail = rank.events->kernel(activity.event)) {
        if (detail->bytes > 0) out_.note("bytes", static_cast<int64_t>(detail->bytes));
      }
      out_.done(time(rank, activity.start_ns));
      out_.slice_end(tracks[lane]);
      out_.done(time(rank, activity.end_ns));
      ++counts_.slices;
      LOCKSTEP_TRY(hand_on(kPieceBytes));
    }
    return {};
  }

  // Operators, annotations and calls of a thread stand within each other; what sticks out is cut.
  Result<void> write_host(const RankProfile& rank, const FlowOf& flows) {
    const TraceEvents& events = *rank.events;
    std::unordered_map<uint32_t, uint64_t> flow_of_event;
    if (!rank.index.has_gpu) {
      for (const auto& [activity, flow] : flows) flow_of_event[rank.index.activities[activity].event] = flow;
    }
    std::map<uint32_t, std::vector<uint32_t>> threads;
    for (uint32_t i = 0; i < events.size(); ++i) {
      const EventKind kind = events.kind[i];
      if (kind == EventKind::kCpuOp || kind == EventKind::kAnnotation || kind == EventKind::kRuntime ||
          kind == EventKind::kDriver) {
        threads[events.track[i]].push_back(i);
      }
    }
    for (auto& [thread, list] : threads) {
      std::sort(list.begin(), list.end(), [&events](uint32_t a, uint32_t b) {
        return events.start_ns[a] != events.start_ns[b] ? events.start_ns[a] < events.start_ns[b]
                                                        : events.duration_ns[a] > events.duration_ns[b];
      });
      const Track& row = events.tracks[thread];
      const uint64_t track = new_track(row.thread_name.empty() ? "thread " + row.tid : row.thread_name, 2);
      std::vector<int64_t> open;  // ends, the innermost last
      const auto close_until = [&](int64_t until) {
        while (!open.empty() && open.back() <= until) {
          out_.slice_end(track);
          out_.done(time(rank, open.back()));
          open.pop_back();
        }
      };
      for (uint32_t event : list) {
        close_until(events.start_ns[event]);
        out_.slice_begin(track, to_text(events.kind[event]), events.name_of(event));
        if (const auto flow = flow_of_event.find(event); flow != flow_of_event.end()) out_.flow(flow->second);
        out_.done(time(rank, events.start_ns[event]));
        open.push_back(open.empty() ? events.end_ns(event) : std::min(open.back(), events.end_ns(event)));
        ++counts_.slices;
        LOCKSTEP_TRY(hand_on(kPieceBytes));
      }
      close_until(std::numeric_limits<int64_t>::max());
    }
    return {};
  }

  const ProfileAnalysis& analysis_;
  const std::function<Result<void>(std::string_view)>& sink_;
  std::string bytes_;
  perfetto::TraceWriter out_;
  std::vector<FlowOf> flows_;
  PerfettoCounts counts_;
  uint64_t process_ = 0;
  uint64_t tracks_ = 0;
};

}  // namespace

Result<PerfettoCounts> write_perfetto(const ProfileAnalysis& analysis,
                                      const std::function<Result<void>(std::string_view)>& sink) {
  return ProfileWriter(analysis, sink).write();
}

}  // namespace lockstep::profile
