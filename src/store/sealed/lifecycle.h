// Which sealed files of a store are put together, and which go. Files are lists of pointers to files, in the order of the
// store, oldest first.
#pragma once

#include <algorithm>
#include <cstdint>

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

}  // namespace lockstep::sealed
