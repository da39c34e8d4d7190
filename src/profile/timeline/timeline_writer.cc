#include "profile/timeline/timeline_writer.h"

#include <algorithm>
#include <limits>
#include <span>
#include <unordered_map>

#include "base/median.h"
#include "base/perfetto_writer.h"
#include "base/text.h"

namespace lockstep::profile {
namespace {

constexpr size_t kLaneNameBytesMax = 100;
constexpr int64_t kFinestColumnNs = 1'024;
constexpr int64_t kColumnFactor = 4;  // from a level to the next; so no slice that was merged stays alone in the next
constexpr size_t kCoarsestSlices = 64;
constexpr size_t kPieceBytes = 1 << 20;

class Names {
 public:
  Names() { names_.emplace_back("other"); }
  uint32_t id(std::string_view text) {
    std::string name(utf8_prefix(text, kTimelineNameBytesMax));
    const auto found = ids_.find(name);
    if (found != ids_.end()) return found->second;
    const size_t entry = name.size() + 2;
    if (names_.size() >= kTimelineNamesMax || bytes_ + entry > kTimelineNamesBytesMax - 16) return 0;
    bytes_ += entry;
    names_.push_back(name);
    return ids_.emplace(std::move(name), static_cast<uint32_t>(names_.size() - 1)).first->second;
  }
  const std::vector<std::string>& all() const { return names_; }

 private:
  std::vector<std::string> names_;
  std::unordered_map<std::string, uint32_t> ids_;
  uint64_t bytes_ = 8;
};

SliceClass class_of(const KernelTraits& traits) {
  if (traits.kernel_class == KernelClass::kCommunication) return SliceClass::kCommunication;
  if (traits.kernel_class == KernelClass::kCompute) return SliceClass::kCompute;
  return traits.family == KernelFamily::kMemset ? SliceClass::kMemory : SliceClass::kCopy;
}

SliceClass class_of(EventKind kind, std::string_view name) {
  if (kind == EventKind::kRuntime || kind == EventKind::kDriver) return SliceClass::kRuntime;
  if (kind == EventKind::kCpuOp) return SliceClass::kCpuOp;
  if (name.starts_with("gloo:")) return SliceClass::kCommunication;
  return name.starts_with("ProfilerStep#") ? SliceClass::kStep : SliceClass::kAnnotation;
}

bool is_on_host(EventKind kind) {
  return kind == EventKind::kCpuOp || kind == EventKind::kAnnotation || kind == EventKind::kRuntime ||
         kind == EventKind::kDriver;
}

class TimelineMaker {
 public:
  TimelineMaker(const ProfileAnalysis& analysis, const TimelineOptions& options)
      : analysis_(analysis), options_(options) {}

  Result<TimelineCounts> write(const std::function<Result<void>(std::string_view)>& sink) {
    find_origin();
    for (const RankProfile& rank : analysis_.ranks) add_rank(rank);
    add_steps();
    return hand_out(sink);
  }

 private:
  // A level of a lane, encoded; the directory has the rest of it.
  struct Encoded {
    size_t lane;
    size_t level;
    std::string bytes;
  };
  using Slices = std::vector<TimelineSlice>;

  void find_origin() {
    origin_ns_ = std::numeric_limits<int64_t>::max();
    for (const RankProfile& rank : analysis_.ranks) {
      if (rank.events->size() == 0) continue;
      origin_ns_ = std::min(origin_ns_, analysis_.collectives.clocks.job_time(rank.rank, rank.index.first_ns));
    }
  }
  // On the axis of the file; nonsense from outside is put at its ends.
  int64_t time(const RankProfile& rank, int64_t ns) const {
    const int64_t moved = analysis_.collectives.clocks.job_time(rank.rank, ns);
    int64_t since = 0;
    if (moved <= origin_ns_) return 0;
    return __builtin_sub_overflow(moved, origin_ns_, &since) ? kTimelineNsMax : std::min(since, kTimelineNsMax);
  }
  // In order of start and none over another, whatever rounding or nonsense did to them.
  void add(Slices& slices, const RankProfile& rank, int64_t start_ns, int64_t end_ns, uint32_t name, SliceClass one) {
    const int64_t start = std::max(time(rank, start_ns), slices.empty() ? 0 : slices.back().end_ns());
    slices.push_back({start, std::max<int64_t>(0, time(rank, end_ns) - start), name, one});
  }

  void add_rank(const RankProfile& rank) {
    lanes_of_rank_ = 0;
    names_of_rank_.assign(rank.events->texts.size(), UINT32_MAX);
    add_steps_of(rank);
    if (rank.index.has_gpu) {
      for (const StreamIndex& stream : rank.index.streams) add_stream(rank, stream);
    }
    add_threads(rank);
  }
  uint32_t name_of(const RankProfile& rank, uint32_t event) {
    const uint32_t text = rank.events->name[event];
    if (names_of_rank_[text] == UINT32_MAX) names_of_rank_[text] = names_.id(rank.events->texts[text]);
    return names_of_rank_[text];
  }

  int64_t number_of(const RankProfile& rank, const ProfileStep& step) const {
    const auto first = options_.first_steps.find(rank.rank);
    const bool is_counted = rank.index.step_marks == StepMarks::kOptimizer && first != options_.first_steps.end();
    return step.number + (is_counted ? first->second : 0);
  }

  void add_steps_of(const RankProfile& rank) {
    Slices slices;
    for (const ProfileStep& step : rank.index.steps) {
      const int64_t number = number_of(rank, step);
      add(slices, rank, step.start_ns, step.end_ns, names_.id(format("step %lld", static_cast<long long>(number))),
          SliceClass::kStep);
      steps_[number].push_back({time(rank, step.start_ns), time(rank, step.end_ns)});
    }
    if (!slices.empty()) add_lane(rank, "steps", false, 0, std::move(slices));
  }

  void add_steps() {
    for (auto& [number, times] : steps_) {
      if (directory_.steps.size() >= 10'000) return;
      const auto middle = [&spans = times](auto member) {
        std::vector<int64_t> values;
        for (const Span& one : spans) values.push_back(one.*member);
        return lower_median_in_place(values);
      };
      const int64_t from = middle(&Span::from_ns);
      directory_.steps.push_back({number, from, std::max(from, middle(&Span::to_ns))});
    }
  }

  void add_stream(const RankProfile& rank, const StreamIndex& stream) {
    perfetto::Lanes lanes;
    std::vector<Slices> slices;
    for (uint32_t number : stream.activities) {
      const Activity& activity = rank.index.activities[number];
      const size_t lane = lanes.take(activity.start_ns, activity.end_ns);
      if (lane >= slices.size()) slices.resize(lane + 1);
      add(slices[lane], rank, activity.start_ns, activity.end_ns, name_of(rank, activity.event),
          class_of(activity.traits));
    }
    const bool is_first_device = stream.device == rank.index.streams.front().device;
    const std::string name = is_first_device
                                 ? format("stream %lld", static_cast<long long>(stream.stream))
                                 : format("GPU %d stream %lld", stream.device, static_cast<long long>(stream.stream));
    for (size_t i = 0; i < slices.size(); ++i) add_lane(rank, name, true, i, std::move(slices[i]));
  }

  void add_threads(const RankProfile& rank) {
    const TraceEvents& events = *rank.events;
    std::vector<uint32_t> order;
    std::vector<uint32_t> in_track(events.tracks.size(), 0);
    for (uint32_t i = 0; i < events.size(); ++i) {
      if (!is_on_host(events.kind[i])) continue;
      order.push_back(i);
      ++in_track[events.track[i]];
    }
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      const uint32_t x = events.track[a], y = events.track[b];
      if (x != y) return in_track[x] != in_track[y] ? in_track[x] > in_track[y] : x < y;
      return events.start_ns[a] != events.start_ns[b] ? events.start_ns[a] < events.start_ns[b]
                                                      : events.duration_ns[a] > events.duration_ns[b];
    });
    for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
      while (end < order.size() && events.track[order[end]] == events.track[order[begin]]) ++end;
      add_thread(rank, std::span(order).subspan(begin, end - begin));
    }
  }
  // Operators, annotations and calls of a thread stand within each other; what sticks out is cut.
  void add_thread(const RankProfile& rank, std::span<const uint32_t> list) {
    const TraceEvents& events = *rank.events;
    std::vector<int64_t> open;   // ends, the innermost last
    std::vector<Slices> slices;  // by depth
    for (uint32_t event : list) {
      while (!open.empty() && open.back() <= events.start_ns[event]) open.pop_back();
      const size_t depth = open.size();
      if (depth >= kRankLanesMax) {
        ++directory_.left_out;
        continue;
      }
      const int64_t end = open.empty() ? events.end_ns(event) : std::min(open.back(), events.end_ns(event));
      if (depth >= slices.size()) slices.resize(depth + 1);
      add(slices[depth], rank, events.start_ns[event], end, name_of(rank, event),
          class_of(events.kind[event], events.name_of(event)));
      open.push_back(end);
    }
    const Track& track = events.tracks[events.track[list.front()]];
    const std::string name = track.thread_name.empty() ? "thread " + track.tid : track.thread_name;
    for (size_t i = 0; i < slices.size(); ++i) add_lane(rank, name, false, i, std::move(slices[i]));
  }

  void add_lane(const RankProfile& rank, const std::string& name, bool is_gpu, size_t depth, Slices slices) {
    if (lanes_of_rank_ >= kRankLanesMax || directory_.lanes.size() >= kTimelineLanesMax) {
      directory_.left_out += slices.size();
      return;
    }
    ++lanes_of_rank_;
    counts_.slices += slices.size();
    directory_.whole_ns = std::max(directory_.whole_ns, slices.back().end_ns());
    TimelineLane& lane = directory_.lanes.emplace_back();
    lane.rank = rank.rank;
    lane.is_gpu = is_gpu;
    lane.depth = static_cast<uint32_t>(depth);
    lane.name = std::string(utf8_prefix(name, kLaneNameBytesMax)) + (depth > 0 ? format(" (%zu)", depth + 1) : "");
    add_level(lane, 0, slices);
    size_t stored = slices.size();
    for (int64_t column = kFinestColumnNs; stored > kCoarsestSlices && column < kTimelineNsMax / kColumnFactor;
         column *= kColumnFactor) {
      merge_columns(slices, column);
      if (slices.size() > stored / 4 * 3) continue;  // not worth its bytes
      add_level(lane, column, slices);
      stored = slices.size();
    }
  }

  void add_level(TimelineLane& lane, int64_t column_ns, const Slices& slices) {
    TimelineLevel& level = lane.levels.emplace_back();
    level.column_ns = column_ns;
    Encoded& encoded = encoded_.emplace_back(Encoded{directory_.lanes.size() - 1, lane.levels.size() - 1, {}});
    for (size_t begin = 0; begin < slices.size(); begin += kChunkSlices) {
      const size_t count = std::min<size_t>(kChunkSlices, slices.size() - begin);
      const size_t before = encoded.bytes.size();
      encode_slices(slices.data() + begin, count, encoded.bytes);
      level.chunks.push_back({slices[begin].start_ns, slices[begin + count - 1].end_ns(), static_cast<uint32_t>(count),
                              static_cast<uint32_t>(encoded.bytes.size() - before), 0});
    }
    encoded.bytes.shrink_to_fit();
  }

  Result<TimelineCounts> hand_out(const std::function<Result<void>(std::string_view)>& sink) {
    const auto column_of = [this](const Encoded& one) {
      return directory_.lanes[one.lane].levels[one.level].column_ns;
    };
    std::stable_sort(encoded_.begin(), encoded_.end(),
                     [&](const Encoded& a, const Encoded& b) { return column_of(a) > column_of(b); });
    TimelineHead head;
    for (const Encoded& one : encoded_) {
      for (TimelineChunk& chunk : directory_.lanes[one.lane].levels[one.level].chunks) {
        chunk.offset = head.data_bytes;
        head.data_bytes += chunk.bytes;
      }
    }
    const std::string directory = encode_directory(directory_), names = encode_names(names_.all());
    if (directory.size() > kTimelineDirectoryBytesMax) return Error{"the timeline has too many parts to be kept"};
    head.directory_bytes = directory.size();
    head.names_bytes = names.size();
    counts_.bytes = head.data_at() + head.data_bytes;
    counts_.lanes = directory_.lanes.size();
    counts_.left_out = directory_.left_out;
    std::string piece = encode_head(head) + directory + names;
    for (const Encoded& one : encoded_) {
      piece += one.bytes;
      if (piece.size() < kPieceBytes) continue;
      LOCKSTEP_TRY(sink(piece));
      piece.clear();
    }
    if (!piece.empty()) LOCKSTEP_TRY(sink(piece));
    return counts_;
  }

  struct Span {
    int64_t from_ns;
    int64_t to_ns;
  };
  const ProfileAnalysis& analysis_;
  const TimelineOptions& options_;
  int64_t origin_ns_ = 0;
  Names names_;
  std::vector<uint32_t> names_of_rank_;  // by the trace's own numbers
  size_t lanes_of_rank_ = 0;
  std::map<int64_t, std::vector<Span>> steps_;
  TimelineDirectory directory_;
  std::vector<Encoded> encoded_;
  TimelineCounts counts_;
};

}  // namespace

Result<TimelineCounts> write_timeline(const ProfileAnalysis& analysis, const TimelineOptions& options,
                                      const std::function<Result<void>(std::string_view)>& sink) {
  return TimelineMaker(analysis, options).write(sink);
}

}  // namespace lockstep::profile
