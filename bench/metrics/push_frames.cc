#include "bench/metrics/push_frames.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <unordered_map>

#include "base/text.h"
#include "wire/compression.h"
#include "wire/remote_write.h"

namespace lockstep::bench {
namespace {

constexpr size_t kTimeBytes = 6;
constexpr size_t kCopyBytesMax = 64;        // of one element
constexpr size_t kCopyDistanceMax = 65535;  // that two bytes hold

void append_varint(std::string& out, size_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void write_time(char* at, int64_t time_ms) {
  uint64_t left = static_cast<uint64_t>(time_ms);
  for (size_t i = 0; i < kTimeBytes; ++i, left >>= 7) {
    at[i] = static_cast<char>((left & 0x7F) | (i + 1 < kTimeBytes ? 0x80 : 0));
  }
}

// Elements of snappy's block format. Where literals lie in the frame is told through pointers, once it is known.
class SnappyElements {
 public:
  size_t plain_bytes() const { return plain_bytes_; }

  void literal(std::string_view bytes) {
    end_copy();
    run_ += bytes;
    plain_bytes_ += bytes.size();
  }
  // The next literal's place, `inside` bytes into it.
  template <typename Place>
  void note(Place& place, size_t inside) {
    end_copy();
    notes_.push_back([this, &place, at = run_.size() + inside] { place = static_cast<Place>(out_.size() + at); });
  }
  // Again what stands at `from`.
  void copy(size_t from, size_t bytes) {
    end_run();
    if (copy_bytes_ > 0 && from != copy_from_ + copy_bytes_) end_copy();
    if (copy_bytes_ == 0) {
      copy_from_ = from;
      copy_to_ = plain_bytes_;
    }
    copy_bytes_ += bytes;
    plain_bytes_ += bytes;
  }
  std::string finish() {
    end_copy();
    end_run();
    return std::move(out_);
  }

 private:
  void end_run() {
    if (run_.empty()) return;
    const size_t size = run_.size() - 1;
    if (size < 60) {
      out_.push_back(static_cast<char>(size << 2));
    } else {
      out_.push_back(static_cast<char>(61 << 2));  // two bytes of length follow
      out_.push_back(static_cast<char>(size));
      out_.push_back(static_cast<char>(size >> 8));
    }
    for (const auto& note : notes_) note();
    notes_.clear();
    out_ += run_;
    run_.clear();
  }
  void end_copy() {
    const size_t distance = copy_to_ - copy_from_;
    while (copy_bytes_ > 0) {
      const size_t bytes = std::min(copy_bytes_, kCopyBytesMax);
      out_.push_back(static_cast<char>((bytes - 1) << 2 | 2));
      out_.push_back(static_cast<char>(distance));
      out_.push_back(static_cast<char>(distance >> 8));
      copy_bytes_ -= bytes;
    }
  }

  std::string out_, run_;
  std::vector<std::function<void()>> notes_;
  size_t plain_bytes_ = 0, copy_from_ = 0, copy_to_ = 0, copy_bytes_ = 0;
};

}  // namespace

PushFrames::Frame PushFrames::make(const Fleet::Identity& identity) {
  Frame frame;
  const std::vector<Labels> all = Fleet::labels_of(identity);
  frame.values.resize(all.size());
  frame.times.resize(all.size());
  SnappyElements out;
  std::unordered_map<std::string, size_t> places;  // of labels, where each came last
  for (size_t k = 0; k < all.size(); ++k) {
    const size_t gpu = k / kSeriesPerGpu;
    constexpr size_t kSampleBytes = 2 + 1 + 8 + 1 + kTimeBytes;
    std::string head = "\x0A";
    append_varint(head, remote_write::raw_labels_of(all[k]).size() + kSampleBytes);
    out.literal(head);
    for (const auto& label : all[k]) {
      const std::string field = remote_write::raw_labels_of({label});
      const auto found = places.find(field);
      const size_t here = out.plain_bytes();
      if (found != places.end() && here - found->second <= kCopyDistanceMax) {
        out.copy(found->second, field.size());
      } else {
        const size_t inside = field.size() - label.second.size();
        if (label.first == "host") out.note(frame.host, inside);
        if (label.first == "job_id") out.note(frame.job, inside);
        if (label.first == "rank") out.note(frame.ranks[gpu], inside);
        if (label.first == "uuid") out.note(frame.uuids[gpu], inside);
        out.literal(field);
      }
      places[field] = here;
    }
    out.literal(std::string("\x12") + static_cast<char>(kSampleBytes - 2) + "\x09");
    out.note(frame.values[k], 0);
    out.literal(std::string(8, '\0') + "\x10");
    out.note(frame.times[k], 0);
    out.literal(std::string(kTimeBytes, '\0'));
  }
  std::string size;
  append_varint(size, out.plain_bytes());
  frame.bytes = size + out.finish();
  auto shift = [&](auto& place) { place += static_cast<std::remove_reference_t<decltype(place)>>(size.size()); };
  shift(frame.host);
  shift(frame.job);
  for (size_t& place : frame.ranks) shift(place);
  for (size_t& place : frame.uuids) shift(place);
  for (uint32_t& place : frame.values) shift(place);
  for (uint32_t& place : frame.times) shift(place);
  return frame;
}

std::string& PushFrames::fill(int node, int step, int64_t start_ms) {
  const Fleet::Identity identity = fleet_.identity(node, step);
  std::string ranks[kGpusPerNode];
  std::string shape = {static_cast<char>(identity.host.size()), static_cast<char>(identity.job.size())};
  for (size_t gpu = 0; gpu < kGpusPerNode; ++gpu) {
    ranks[gpu] = std::to_string(identity.first_rank + static_cast<int>(gpu));
    shape.push_back(static_cast<char>(ranks[gpu].size()));
  }
  auto found = shapes_.find(shape);
  if (found == shapes_.end()) found = shapes_.emplace(shape, make(identity)).first;
  Frame& frame = found->second;
  char* bytes = frame.bytes.data();
  auto write = [&](size_t at, const std::string& text) { std::memcpy(bytes + at, text.data(), text.size()); };
  write(frame.host, identity.host);
  write(frame.job, identity.job);
  for (size_t gpu = 0; gpu < kGpusPerNode; ++gpu) {
    write(frame.ranks[gpu], ranks[gpu]);
    write(frame.uuids[gpu], identity.uuids[gpu]);
  }
  char time[kTimeBytes];
  write_time(time, fleet_.time_ms(node, step, start_ms));
  const std::span<const double> values = fleet_.values(node, step);
  for (size_t k = 0; k < values.size(); ++k) {
    std::memcpy(bytes + frame.values[k], &values[k], sizeof(double));
    std::memcpy(bytes + frame.times[k], time, kTimeBytes);
  }
  return frame.bytes;
}

std::string PushFrames::problem_of(const FleetOptions& options, int node, int64_t start_ms) {
  Fleet filled(options), built(options);
  PushFrames frames(filled);
  for (int step : {0, 1}) {
    std::string request, buffer;
    built.append_node(request, node, step, start_ms);
    Result<std::string_view> plain = snappy_decompress(frames.fill(node, step, start_ms), 64u << 20, buffer);
    if (!plain.ok()) return plain.error();
    if (*plain != request) return format("the frame of node %d, step %d is not its request", node, step);
  }
  return {};
}

}  // namespace lockstep::bench
