#include "profile/timeline/timeline_file.h"

#include <algorithm>
#include <cstring>

#include "base/protobuf_wire.h"

namespace lockstep::profile {
namespace {

using protobuf::WireError;
using protobuf::WireReader;

constexpr std::string_view kMagic = "LSTIME01";
constexpr size_t kLevelsMax = 40;
constexpr size_t kStepsMax = 100'000;

void put(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}
void put(std::string& out, int64_t value) {
  put(out, static_cast<uint64_t>(value));
}
void put_text(std::string& out, std::string_view text) {
  put(out, static_cast<uint64_t>(text.size()));
  out += text;
}

Error damaged(const char* what) {
  return Error{std::string("the timeline that is kept of this profile is damaged: ") + what};
}

// Bare numbers, one after the other.
class Numbers {
 public:
  explicit Numbers(std::string_view bytes) : reader_(bytes, error_) {}
  uint64_t next() { return reader_.varint(); }
  // No more than `most`; what is more is an error.
  uint64_t next(uint64_t most) {
    const uint64_t value = reader_.varint();
    if (value <= most) return value;
    reader_.fail("a number over its limit");
    return 0;
  }
  int64_t time(int64_t before_ns = 0) {
    return before_ns + static_cast<int64_t>(next(static_cast<uint64_t>(kTimelineNsMax - before_ns)));
  }
  // Of things that take a byte at least.
  size_t count(size_t most) { return next(std::min<uint64_t>(most, reader_.left())); }
  std::string_view text(size_t bytes_max) {
    const std::string_view value = reader_.bytes();
    if (value.size() > bytes_max) reader_.fail("a text over its limit");
    return value.size() > bytes_max ? std::string_view() : value;
  }
  bool is_good() const { return error_.what == nullptr; }
  Result<void> end() {
    if (error_.what == nullptr && reader_.left() > 0) reader_.fail("more than it should have");
    return error_.what == nullptr ? Result<void>() : damaged(error_.what);
  }

 private:
  WireError error_;
  WireReader reader_;
};

}  // namespace

const char* to_text(SliceClass value) {
  constexpr const char* kNames[kSliceClasses] = {"compute", "communication", "copy",       "memory",
                                                 "cpu op",  "runtime",       "annotation", "step"};
  return kNames[static_cast<size_t>(value)];
}

void merge_columns(std::vector<TimelineSlice>& slices, int64_t column_ns) {
  size_t kept = 0;
  int64_t open_column = -1;     // of the last kept one, where it may take more
  int64_t longest_part_ns = 0;  // of the last kept one
  for (const TimelineSlice& slice : slices) {
    const bool is_short = slice.duration_ns < column_ns;
    const int64_t column = is_short ? slice.start_ns / column_ns : -1;
    if (is_short && column == open_column) {
      TimelineSlice& merged = slices[kept - 1];
      if (slice.duration_ns > longest_part_ns) {
        longest_part_ns = slice.duration_ns;
        merged.name = slice.name;
        merged.slice_class = slice.slice_class;
      }
      merged.duration_ns += slice.duration_ns;
      merged.count += slice.count;
      continue;
    }
    slices[kept++] = slice;
    open_column = column;
    longest_part_ns = slice.duration_ns;
  }
  slices.resize(kept);
}

std::string encode_head(const TimelineHead& head) {
  std::string out(kMagic);
  for (const uint64_t value : {head.directory_bytes, head.names_bytes, head.data_bytes})
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  return out;
}

Result<TimelineHead> decode_head(std::string_view bytes, uint64_t file_bytes) {
  if (bytes.size() < kTimelineHeadBytes) return damaged("it is cut short");
  if (!bytes.starts_with(kMagic.substr(0, 6))) return damaged("it does not begin as one does");
  if (!bytes.starts_with(kMagic))
    return Error{"the timeline of this profile was kept by another version of the server"};
  uint64_t values[3];
  std::memcpy(values, bytes.data() + kMagic.size(), sizeof values);
  const TimelineHead head{values[0], values[1], values[2]};
  if (head.directory_bytes > kTimelineDirectoryBytesMax || head.names_bytes > kTimelineNamesBytesMax ||
      head.data_bytes > file_bytes || head.data_at() + head.data_bytes != file_bytes)
    return damaged("its parts are not as long as the file");
  return head;
}

std::string encode_directory(const TimelineDirectory& directory) {
  std::string out;
  put(out, directory.whole_ns);
  put(out, directory.left_out);
  put(out, static_cast<uint64_t>(directory.steps.size()));
  for (const TimelineStep& step : directory.steps) {
    put(out, protobuf::zigzag_encode(step.number));
    put(out, step.from_ns);
    put(out, step.to_ns - step.from_ns);
  }
  put(out, static_cast<uint64_t>(directory.lanes.size()));
  for (const TimelineLane& lane : directory.lanes) {
    put(out, static_cast<uint64_t>(lane.rank.value()));
    put(out, static_cast<uint64_t>(lane.depth) << 1 | (lane.is_gpu ? 1 : 0));
    put_text(out, lane.name);
    put(out, static_cast<uint64_t>(lane.levels.size()));
    for (const TimelineLevel& level : lane.levels) {
      put(out, level.column_ns);
      put(out, static_cast<uint64_t>(level.chunks.size()));
      put(out, level.chunks.empty() ? uint64_t{0} : level.chunks.front().offset);
      int64_t before_ns = 0;
      for (const TimelineChunk& chunk : level.chunks) {
        put(out, chunk.first_ns - before_ns);
        put(out, chunk.last_ns - chunk.first_ns);
        put(out, static_cast<uint64_t>(chunk.slices));
        put(out, static_cast<uint64_t>(chunk.bytes));
        before_ns = chunk.last_ns;
      }
    }
  }
  return out;
}

namespace {

void decode_level(Numbers& in, uint64_t data_bytes, TimelineLevel& level) {
  level.column_ns = in.time();
  const size_t chunks = in.count(SIZE_MAX);
  uint64_t offset = in.next(data_bytes);
  int64_t before_ns = 0;
  for (size_t i = 0; i < chunks && in.is_good(); ++i) {
    TimelineChunk chunk;
    chunk.first_ns = in.time(before_ns);
    chunk.last_ns = before_ns = in.time(chunk.first_ns);
    chunk.slices = static_cast<uint32_t>(in.next(kChunkSlices));
    chunk.bytes = static_cast<uint32_t>(in.next(std::min<uint64_t>(data_bytes - offset, UINT32_MAX)));
    chunk.offset = offset;
    offset += chunk.bytes;
    level.chunks.push_back(chunk);
  }
}

}  // namespace

Result<TimelineDirectory> decode_directory(std::string_view bytes, uint64_t data_bytes) {
  Numbers in(bytes);
  TimelineDirectory directory;
  directory.whole_ns = in.time();
  directory.left_out = in.next();
  for (size_t left = in.count(kStepsMax); left > 0 && in.is_good(); --left) {
    TimelineStep& step = directory.steps.emplace_back();
    step.number = protobuf::zigzag_decode(in.next());
    step.from_ns = in.time();
    step.to_ns = in.time(step.from_ns);
  }
  for (size_t left = in.count(kTimelineLanesMax); left > 0 && in.is_good(); --left) {
    TimelineLane& lane = directory.lanes.emplace_back();
    lane.rank = Rank{static_cast<int32_t>(in.next(INT32_MAX))};
    const uint64_t depth_and_kind = in.next(UINT32_MAX);
    lane.depth = static_cast<uint32_t>(depth_and_kind >> 1);
    lane.is_gpu = (depth_and_kind & 1) != 0;
    lane.name = in.text(kTimelineNameBytesMax);
    for (size_t levels = in.count(kLevelsMax); levels > 0 && in.is_good(); --levels)
      decode_level(in, data_bytes, lane.levels.emplace_back());
  }
  LOCKSTEP_TRY(in.end());
  return directory;
}

std::string encode_names(const std::vector<std::string>& names) {
  std::string out;
  put(out, static_cast<uint64_t>(names.size()));
  for (const std::string& name : names) put_text(out, name);
  return out;
}

Result<std::vector<std::string>> decode_names(std::string_view bytes) {
  Numbers in(bytes);
  std::vector<std::string> names;
  for (size_t left = in.count(kTimelineNamesMax); left > 0 && in.is_good(); --left)
    names.emplace_back(in.text(kTimelineNameBytesMax));
  LOCKSTEP_TRY(in.end());
  return names;
}

// A count is there only where it is not 1: its flag is the last bit of the name.
void encode_slices(const TimelineSlice* slices, size_t count, std::string& out) {
  int64_t before_ns = count == 0 ? 0 : slices[0].start_ns;
  for (size_t i = 0; i < count; ++i) {
    const TimelineSlice& slice = slices[i];
    put(out, slice.start_ns - before_ns);
    put(out, slice.duration_ns);
    put(out, (static_cast<uint64_t>(slice.name) << 3 | static_cast<uint64_t>(slice.slice_class)) << 1 |
                 (slice.count > 1 ? 1 : 0));
    if (slice.count > 1) put(out, slice.count);
    before_ns = slice.end_ns();
  }
}

Result<void> decode_slices(std::string_view bytes, const TimelineChunk& chunk, size_t names,
                           std::vector<TimelineSlice>& out) {
  Numbers in(bytes);
  int64_t before_ns = chunk.first_ns;
  const size_t there = out.size();
  for (uint32_t i = 0; i < chunk.slices && in.is_good(); ++i) {
    TimelineSlice slice;
    slice.start_ns = in.time(before_ns);
    slice.duration_ns = in.time(slice.start_ns) - slice.start_ns;
    const uint64_t what = in.next();
    slice.slice_class = static_cast<SliceClass>(what >> 1 & 7);
    if (what >> 4 >= names || slice.end_ns() > chunk.last_ns) {
      out.resize(there);
      return damaged("a slice with a name that it does not have, or beyond its part");
    }
    slice.name = static_cast<uint32_t>(what >> 4);
    if ((what & 1) != 0) slice.count = in.next(uint64_t{1} << 40);
    before_ns = slice.end_ns();
    out.push_back(slice);
  }
  const Result<void> good = in.end();
  if (!good.ok()) out.resize(there);
  return good;
}

}  // namespace lockstep::profile
