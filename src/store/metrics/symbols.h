// Texts of labels, each kept once, by number. Numbers and texts stay as long as the table; a new one without those that
// nobody uses any more takes its place when series are numbered anew (SeriesIndex::Renumbering).
//
// Thread rule: Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string_view>
#include <vector>

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
  size_t slot_of(std::string_view text) const;  // where it is, or the free one where it belongs
  void grow();

  mutable std::shared_mutex mutex_;
  // Under mutex_.
  ChunkedArray<Text> texts_;
  std::vector<uint32_t> slots_;  // open addressing: symbol + 1, or 0
  std::vector<std::unique_ptr<char[]>> arena_;
  size_t arena_used_ = 0, arena_size_ = 0, arena_bytes_ = 0;
};

}  // namespace lockstep::metrics
