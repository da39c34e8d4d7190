// The timeline of a profile as it is kept: the slices of every lane of every rank on one axis, at several resolutions, so
// that any part of it can be shown by reading little.
//
//     "LSTIME01", bytes of the directory, of the names and of the data (u64 each), directory, names, data
//
// The data are chunks of at most kChunkSlices slices of one lane at one resolution; the directory says where each lies
// and which time it covers. Chunks of coarse resolutions stand first: a picture of everything is one stretch of the file.
//
// Resolutions: level 0 has the slices as they are. In a level of column_ns every slice that is shorter than a column was
// made one with those that begin in the same column (merge_columns()): counts and durations of a lane are the same in all
// of its levels, and a level has at most two slices a column.
//
// What is read is checked: the file was made from what a job sent. Limits: the constants below.
// On error: one line, nothing is read beyond what the file says it has.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/ids.h"

namespace lockstep::profile {

enum class SliceClass : uint8_t {
  kCompute,
  kCommunication,
  kCopy,    // memcpy
  kMemory,  // memset
  kCpuOp,
  kRuntime,
  kAnnotation,
  kStep,
};
inline constexpr size_t kSliceClasses = 8;
const char* to_text(SliceClass value);  // "cpu op"

struct TimelineSlice {
  int64_t start_ns = 0;  // since the capture's start
  int64_t duration_ns = 0;
  uint32_t name = 0;
  SliceClass slice_class = SliceClass::kCompute;
  uint64_t count = 1;  // of what was made one

  int64_t end_ns() const { return start_ns + duration_ns; }
  bool operator==(const TimelineSlice&) const = default;
};

// In order of start, none over another, as they are after it. Name and class are those of the longest part.
void merge_columns(std::vector<TimelineSlice>& slices, int64_t column_ns);

struct TimelineChunk {
  int64_t first_ns = 0;  // where its first slice begins
  int64_t last_ns = 0;   // where its last one ends
  uint32_t slices = 0;
  uint32_t bytes = 0;
  uint64_t offset = 0;  // in the data
};

struct TimelineLevel {
  int64_t column_ns = 0;              // 0: slices as they are
  std::vector<TimelineChunk> chunks;  // by time
};

struct TimelineLane {
  Rank rank{0};
  bool is_gpu = false;
  uint32_t depth = 0;  // 0: the outermost operators of a thread, the first of a stream's; less is shown first
  std::string name;
  std::vector<TimelineLevel> levels;  // finest first
};

struct TimelineStep {
  int64_t number = 0;
  int64_t from_ns = 0;
  int64_t to_ns = 0;
};

struct TimelineDirectory {
  int64_t whole_ns = 0;
  uint64_t left_out = 0;  // slices over a limit, which are in no lane
  std::vector<TimelineStep> steps;
  std::vector<TimelineLane> lanes;  // in the order they are shown
};

inline constexpr size_t kTimelineHeadBytes = 32;
inline constexpr uint32_t kChunkSlices = 512;
inline constexpr int64_t kTimelineNsMax = int64_t{1} << 60;
inline constexpr size_t kTimelineLanesMax = 100'000;
inline constexpr size_t kTimelineNamesMax = 50'000;
inline constexpr size_t kTimelineNameBytesMax = 300;
inline constexpr uint64_t kTimelineDirectoryBytesMax = 8u << 20;
inline constexpr uint64_t kTimelineNamesBytesMax = 16u << 20;

struct TimelineHead {
  uint64_t directory_bytes = 0;
  uint64_t names_bytes = 0;
  uint64_t data_bytes = 0;
  uint64_t data_at() const { return kTimelineHeadBytes + directory_bytes + names_bytes; }
};

std::string encode_head(const TimelineHead& head);
// file_bytes: of the whole file, which has to be what the head says.
Result<TimelineHead> decode_head(std::string_view bytes_untrusted, uint64_t file_bytes);

std::string encode_directory(const TimelineDirectory& directory);
Result<TimelineDirectory> decode_directory(std::string_view bytes_untrusted, uint64_t data_bytes);

std::string encode_names(const std::vector<std::string>& names);
Result<std::vector<std::string>> decode_names(std::string_view bytes_untrusted);

void encode_slices(const TimelineSlice* slices, size_t count, std::string& out);
// As many as the chunk has, appended; their names are below names.
Result<void> decode_slices(std::string_view bytes_untrusted, const TimelineChunk& chunk, size_t names,
                           std::vector<TimelineSlice>& out);

}  // namespace lockstep::profile
