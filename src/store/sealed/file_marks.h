// What may become of a sealed file while it is read, though its bytes never change: a row group turns out unreadable,
// or the file leaves its store.
//
// Thread rule: Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace lockstep::sealed {

class FileMarks {
 public:
  // A row group that turned out unreadable. true: this call marked it.
  bool spoil(size_t group) const { return !corrupt_[group].exchange(true); }
  bool is_corrupt(size_t group) const { return corrupt_[group]; }
  void mark_removed() const { removed_ = true; }
  bool is_removed() const { return removed_; }

 protected:
  void mark_none(size_t groups) { corrupt_ = std::make_unique<std::atomic<bool>[]>(groups); }
  template <typename Groups>
  static uint64_t rows_of(const Groups& groups) {
    uint64_t rows = 0;
    for (const auto& group : groups) rows += group.rows;
    return rows;
  }
  // Without those of corrupt row groups.
  template <typename Groups>
  uint64_t readable_rows_of(const Groups& groups) const {
    uint64_t rows = 0;
    for (size_t i = 0; i < groups.size(); ++i) rows += is_corrupt(i) ? 0 : groups[i].rows;
    return rows;
  }

 private:
  std::unique_ptr<std::atomic<bool>[]> corrupt_;
  mutable std::atomic<bool> removed_{false};
};

}  // namespace lockstep::sealed
