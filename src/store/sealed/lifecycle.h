// Which sealed files of a store are put together, which go, and what they hold: the same for spans, steps and log records.
// Files are lists of pointers to files, in the order of the store, oldest first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock_witness.h"
#include "base/held_file.h"
#include "store/sealed/file_info.h"

namespace lockstep::sealed {

// The newest `count` neighbours that are small, oldest first; empty: there are not as many.
template <typename Files, typename IsSmall>
Files small_neighbours(const Files& files, size_t count, const IsSmall& is_small) {
  Files small;
  for (size_t at = files.size(); at-- > 0 && small.size() < count;) {
    if (is_small(*files[at])) {
      small.push_back(files[at]);
    } else {
      small.clear();
    }
  }
  if (small.size() < count) return {};
  std::reverse(small.begin(), small.end());
  return small;
}

struct Limits {
  uint64_t bytes_max = UINT64_MAX;
  uint64_t rows_max = UINT64_MAX;
  uint64_t rows = 0;  // that there are now
};

// Those whose last row came before the cutoff, and others, oldest first, until what is left is within the limits.
// on_drop(reason, rows) is called for each.
template <typename Files, typename OnDrop>
Files expired_files(const Files& files, int64_t cutoff_ns, Limits limits, const OnDrop& on_drop) {
  uint64_t bytes = 0;
  for (const auto& file : files) bytes += file->bytes();
  Files expired;
  for (const auto& file : files) {
    // Not in order: what came while the clock was ahead stands between what came before and after.
    const bool is_old = file->info().received_unix_ns.most < cutoff_ns;
    if (!is_old && bytes <= limits.bytes_max && limits.rows <= limits.rows_max) continue;
    bytes -= file->bytes();
    limits.rows -= std::min(limits.rows, file->readable_rows());
    on_drop(is_old ? "retention" : "limit", file->readable_rows());
    expired.push_back(file);
  }
  return expired;
}

// How old rows may be now, no faster than `pace`.
template <typename Files>
int64_t cutoff_of(const Files& files, RetentionPace& pace, int64_t now_ns, int64_t keep_ns, int64_t monotonic_ns) {
  int64_t oldest_ns = INT64_MAX;
  for (const auto& file : files) oldest_ns = std::min(oldest_ns, file->info().received_unix_ns.most);
  return pace.cutoff(now_ns, keep_ns, oldest_ns, monotonic_ns);
}

// Whether what came with this record of the log is in these files, or was and has been dropped since.
template <typename Files>
bool holds(const Files& files, const LostRecords& lost, uint64_t log_sequence, int64_t received_unix_ns) {
  bool is_before_some = false;
  for (const auto& file : files) {
    const FileInfo& info = file->info();
    // A log that was made anew counts from one again: the time tells its records from those of the old one.
    if (info.last_sequence == 0 || received_unix_ns > info.received_unix_ns.most) continue;
    if (log_sequence >= info.first_sequence && log_sequence <= info.last_sequence) return true;
    is_before_some |= log_sequence < info.first_sequence;
  }
  // Older than what is held: dropped since, unless it was in a file that cannot be read.
  return is_before_some && !lost.has(log_sequence);
}

// In the list, `joined` in the place of the first of the old ones; nullptr: they only go.
template <typename Files>
void exchange(Files& files, const Files& old, const typename Files::value_type& joined) {
  if (joined != nullptr) files.insert(std::find(files.begin(), files.end(), old.front()), joined);
  std::erase_if(files, [&](const auto& file) { return std::find(old.begin(), old.end(), file) != old.end(); });
}

// While none is added, put together with others or removed.
template <typename Files>
Result<std::vector<HeldFile>> hold_files(const Files& files, const std::string& folder) {
  std::vector<HeldFile> held;
  for (const auto& file : files) {
    const std::string& path = file->path();
    HeldFile one = LOCKSTEP_TRY(hold_file(path, folder, path.substr(path.rfind('/') + 1)));
    held.push_back(std::move(one));
  }
  return held;
}

// Files that are in no list any more.
template <typename Files>
void remove_files(const Files& files) {
  for (const auto& file : files) file->remove();
}

}  // namespace lockstep::sealed
