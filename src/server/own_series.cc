#include "server/own_series.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "base/process.h"
#include "model/series_labels.h"
#include "wire/remote_write.h"

namespace lockstep {
namespace {

constexpr int64_t kNsPerMs = 1'000'000;
constexpr const char* kBlobs = "blobs";

uint64_t all_bytes_below(const std::filesystem::path& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;
    const uint64_t size = at->is_regular_file(gone) ? at->file_size(gone) : 0;
    if (!gone) bytes += size;
  }
  return bytes;
}

}  // namespace

std::map<std::string, uint64_t> folder_bytes(const std::string& folder) {
  std::map<std::string, uint64_t> parts;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;
    const std::string name = at->path().filename().string();
    if (at->is_directory(gone)) {
      if (name != kBlobs) parts[name] += all_bytes_below(at->path());
    } else if (const uint64_t size = at->is_regular_file(gone) ? at->file_size(gone) : 0; !gone) {
      parts["files"] += size;
    }
  }
  return parts;
}

void OwnSeries::tick() {
  const int64_t now_ns = clock_.monotonic_ns();
  if (now_ns < next_ns_) return;
  next_ns_ = now_ns + kEveryNs;
  std::vector<std::pair<Labels, double>> rows = {
      {{{kMetricNameLabel, kCpu}}, own_cpu_seconds()},
      {{{kMetricNameLabel, kMemory}}, static_cast<double>(counters_.value("lockstep_memory_resident_bytes"))}};
  if (turn_++ % kTurnsPerWalk == 0) {
    std::map<std::string, uint64_t> parts = folder_bytes(folder_);
    parts[kBlobs] = static_cast<uint64_t>(counters_.sum("lockstep_blob_bytes"));
    for (const auto& [part, bytes] : parts)
      rows.push_back({{{kMetricNameLabel, kDisk}, {"part", part}}, static_cast<double>(bytes)});
  }
  const int64_t time_ms = clock_.unix_ns() / kNsPerMs;
  std::vector<std::string> raw;
  raw.reserve(rows.size());
  std::vector<PushedSeries> series;
  for (const auto& [labels, value] : rows) {
    raw.push_back(remote_write::raw_labels_of(labels));
    PushedSeries& pushed = series.emplace_back();
    pushed.raw_labels = raw.back();
    pushed.times_ms = {&time_ms, 1};
    pushed.values = {&value, 1};
  }
  // What the store does not take is a gap of 15 s; it counts and logs that itself.
  (void)push_(series, [&](size_t k) { return canonical_labels(rows[k].first); });
}

}  // namespace lockstep
