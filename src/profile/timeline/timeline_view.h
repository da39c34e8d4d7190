// A part of a kept timeline (timeline_file.h), reduced to the screen that asks: of each lane the level that is just fine
// enough is read, in few stretches, and merged to the screen's columns.
//
// Limits: kViewLanesMax lanes and kViewSlicesMax slices; of what is more, lanes are left out (inner operators first) and
//         columns made wider, and `truncated` says so. At most kReadSlicesMax slices are read and held.
// On error: one line; a timeline that is damaged is an error.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "profile/timeline/timeline_file.h"

namespace lockstep::profile {

inline constexpr size_t kViewLanesMax = 1'000;
inline constexpr size_t kViewSlicesMax = 100'000;
inline constexpr size_t kReadSlicesMax = 600'000;  // a chunk of every lane at least

struct TimelineQuestion {
  int64_t from_ns = 0;
  int64_t to_ns = -1;  // negative: to the end
  int64_t width = 1'200;
  std::vector<Rank> ranks = {};  // empty: all
};

struct TimelineViewLane {
  Rank rank;
  bool is_gpu = false;
  std::string name;
  std::vector<TimelineSlice> slices;
};

struct TimelineView {
  int64_t from_ns = 0;
  int64_t to_ns = 0;
  int64_t whole_ns = 0;
  std::vector<TimelineStep> steps;
  std::vector<std::string> names;  // that slices have
  std::vector<TimelineViewLane> lanes;
  bool truncated = false;
  uint64_t bytes_read = 0;
};

// So many bytes of the file from there; all of them or an error.
using ReadBytes = std::function<Result<std::string>(uint64_t from, size_t bytes)>;

Result<TimelineView> view_timeline(uint64_t file_bytes, const ReadBytes& read, const TimelineQuestion& question);

}  // namespace lockstep::profile
