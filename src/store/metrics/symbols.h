// Texts of labels, each kept once, by number. Numbers and texts stay as long as the table; a new one without those that
// nobody uses any more takes its place when series are numbered anew (SeriesIndex::Renumbering).
//
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "store/metrics/chunked_array.h"

namespace lockstep::metrics {

class Symbols {
 public:
  uint32_t intern(std::string_view text);
  std::optional<uint32_t> find(std::string_view text) const;
  std::string_view text(uint32_t symbol) const;
  size_t size() const;
  size_t memory_bytes() const;

 private:
  struct Text {
    const char* data = nullptr;
    uint32_t size = 0;
  };
  size_t slot_of(std::string_view text) const
      LOCKSTEP_REQUIRES_SHARED(mutex_);  // where it is, or the free one where it belongs
  void grow() LOCKSTEP_REQUIRES(mutex_);

  mutable SharedMutex mutex_;
  ChunkedArray<Text> texts_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<uint32_t> slots_ LOCKSTEP_GUARDED_BY(mutex_);  // open addressing: symbol + 1, or 0
  std::vector<std::unique_ptr<char[]>> arena_ LOCKSTEP_GUARDED_BY(mutex_);
  size_t arena_used_ LOCKSTEP_GUARDED_BY(mutex_) = 0, arena_size_ LOCKSTEP_GUARDED_BY(mutex_) = 0,
                     arena_bytes_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep::metrics
