#include "profile/timeline/timeline_view.h"

#include <algorithm>
#include <numeric>
#include <span>

namespace lockstep::profile {
namespace {

constexpr uint64_t kGapReadMost = 64u << 10;  // bytes nobody wants, read rather than asked around
constexpr uint64_t kReadBytesMax = 4u << 20;  // at once, but for a chunk that is larger

// A chunk that is wanted, of a lane of the view.
struct Wanted {
  size_t lane;
  const TimelineChunk* chunk;
};

class Viewer {
 public:
  Viewer(uint64_t file_bytes, const ReadBytes& read, const TimelineQuestion& question)
      : file_bytes_(file_bytes), read_(read), question_(question) {}

  Result<TimelineView> view() {
    LOCKSTEP_TRY(read_directory());
    view_.whole_ns = directory_.whole_ns;
    view_.from_ns = std::clamp<int64_t>(question_.from_ns, 0, directory_.whole_ns);
    view_.to_ns = question_.to_ns < 0 ? directory_.whole_ns
                                      : std::clamp<int64_t>(question_.to_ns, view_.from_ns, directory_.whole_ns);
    for (const TimelineStep& step : directory_.steps) {
      if (step.from_ns < view_.to_ns && step.to_ns > view_.from_ns) view_.steps.push_back(step);
    }
    choose_lanes();
    choose_column();
    LOCKSTEP_TRY(read_chunks());
    merge();
    use_names();
    return std::move(view_);
  }

 private:
  Result<std::string> read(uint64_t from, uint64_t bytes) {
    std::string piece = LOCKSTEP_TRY(read_(from, bytes));
    if (piece.size() != bytes) return Error{"the timeline that is kept of this profile is cut short"};
    view_.bytes_read += bytes;
    return piece;
  }

  Result<void> read_directory() {
    // Mostly all of directory and names are in it.
    const std::string begin = LOCKSTEP_TRY(read(0, std::min<uint64_t>(file_bytes_, 256u << 10)));
    head_ = LOCKSTEP_TRY(decode_head(begin, file_bytes_));
    std::string all = begin;
    if (all.size() < head_.data_at()) all += LOCKSTEP_TRY(read(all.size(), head_.data_at() - all.size()));
    const std::string_view parts = std::string_view(all).substr(kTimelineHeadBytes);
    directory_ = LOCKSTEP_TRY(decode_directory(parts.substr(0, head_.directory_bytes), head_.data_bytes));
    names_ = LOCKSTEP_TRY(decode_names(parts.substr(head_.directory_bytes, head_.names_bytes)));
    return {};
  }

  void choose_lanes() {
    for (size_t i = 0; i < directory_.lanes.size(); ++i) {
      const std::vector<Rank>& ranks = question_.ranks;
      if (ranks.empty() || std::find(ranks.begin(), ranks.end(), directory_.lanes[i].rank) != ranks.end())
        chosen_.push_back(i);
    }
    view_.truncated = directory_.left_out > 0;
    if (chosen_.size() <= kViewLanesMax) return;
    view_.truncated = true;
    // The outermost of every rank before the inner ones of any.
    const auto order = [this](size_t number) {
      const TimelineLane& lane = directory_.lanes[number];
      return 2 * uint64_t{lane.depth} + (lane.is_gpu ? 0 : 1);
    };
    std::stable_sort(chosen_.begin(), chosen_.end(), [&](size_t a, size_t b) { return order(a) < order(b); });
    chosen_.resize(kViewLanesMax);
    std::sort(chosen_.begin(), chosen_.end());
  }

  const TimelineLevel* level_of(const TimelineLane& lane) const {
    const TimelineLevel* best = nullptr;
    for (const TimelineLevel& level : lane.levels) {
      if (best == nullptr || level.column_ns <= column_ns_) best = &level;
    }
    return best;
  }
  // Those that may have something in the part that is shown.
  std::span<const TimelineChunk> chunks_of(const TimelineLevel& level) const {
    const auto begin = std::partition_point(level.chunks.begin(), level.chunks.end(),
                                            [this](const TimelineChunk& one) { return one.last_ns < view_.from_ns; });
    const auto end = std::partition_point(begin, level.chunks.end(),
                                          [this](const TimelineChunk& one) { return one.first_ns < view_.to_ns; });
    return {begin, end};
  }

  void choose_column() {
    column_ns_ = std::max<int64_t>(1, (view_.to_ns - view_.from_ns) / std::max<int64_t>(1, question_.width));
    while (true) {
      wanted_.clear();
      size_t slices = 0;
      for (size_t i = 0; i < chosen_.size(); ++i) {
        const TimelineLevel* level = level_of(directory_.lanes[chosen_[i]]);
        if (level == nullptr) continue;
        for (const TimelineChunk& chunk : chunks_of(*level)) {
          wanted_.push_back({i, &chunk});
          slices += chunk.slices;
        }
      }
      if (slices <= kReadSlicesMax || column_ns_ > directory_.whole_ns) return;
      column_ns_ *= 2;
      view_.truncated = true;
    }
  }

  Result<void> read_chunks() {
    for (const size_t lane : chosen_) {
      const TimelineLane& one = directory_.lanes[lane];
      view_.lanes.push_back({one.rank, one.is_gpu, one.name, {}});
    }
    std::vector<size_t> order(wanted_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [this](size_t a, size_t b) { return wanted_[a].chunk->offset < wanted_[b].chunk->offset; });
    size_t left = kReadSlicesMax;
    for (size_t begin = 0, end = 0; begin < order.size(); begin = end) {
      const uint64_t from = wanted_[order[begin]].chunk->offset;
      uint64_t to = from;
      for (end = begin; end < order.size(); ++end) {
        const TimelineChunk& chunk = *wanted_[order[end]].chunk;
        const uint64_t chunk_end = chunk.offset + chunk.bytes;
        if (end > begin && (chunk.offset > to + kGapReadMost || chunk_end - from > kReadBytesMax)) break;
        to = std::max(to, chunk_end);
      }
      const std::string bytes = LOCKSTEP_TRY(read(head_.data_at() + from, to - from));
      for (size_t i = begin; i < end; ++i) {
        const Wanted& wanted = wanted_[order[i]];
        if (wanted.chunk->slices > left) {
          view_.truncated = true;
          continue;
        }
        left -= wanted.chunk->slices;
        LOCKSTEP_TRY(decode_slices(std::string_view(bytes).substr(wanted.chunk->offset - from, wanted.chunk->bytes),
                                   *wanted.chunk, names_.size(), view_.lanes[wanted.lane].slices));
      }
    }
    return {};
  }

  void merge() {
    for (TimelineViewLane& lane : view_.lanes) {
      std::erase_if(lane.slices, [this](const TimelineSlice& slice) {
        const bool begins_in_it = slice.start_ns >= view_.from_ns && slice.start_ns < view_.to_ns;
        return !begins_in_it && (slice.start_ns >= view_.to_ns || slice.end_ns() <= view_.from_ns);
      });
    }
    while (true) {
      size_t slices = 0;
      for (TimelineViewLane& lane : view_.lanes) {
        merge_columns(lane.slices, column_ns_);
        slices += lane.slices.size();
      }
      if (slices <= kViewSlicesMax || column_ns_ > directory_.whole_ns) return;
      column_ns_ *= 2;
      view_.truncated = true;
    }
  }

  void use_names() {
    std::vector<uint32_t> numbers(names_.size(), UINT32_MAX);
    for (TimelineViewLane& lane : view_.lanes) {
      for (TimelineSlice& slice : lane.slices) {
        uint32_t& number = numbers[slice.name];
        if (number == UINT32_MAX) {
          number = static_cast<uint32_t>(view_.names.size());
          view_.names.push_back(names_[slice.name]);
        }
        slice.name = number;
      }
    }
  }

  const uint64_t file_bytes_;
  const ReadBytes& read_;
  const TimelineQuestion& question_;
  TimelineHead head_;
  TimelineDirectory directory_;
  std::vector<std::string> names_;
  std::vector<size_t> chosen_;  // lanes of the directory
  std::vector<Wanted> wanted_;
  int64_t column_ns_ = 1;
  TimelineView view_;
};

}  // namespace

Result<TimelineView> view_timeline(uint64_t file_bytes, const ReadBytes& read, const TimelineQuestion& question) {
  return Viewer(file_bytes, read, question).view();
}

}  // namespace lockstep::profile
