// What may become of a sealed file while it is read, though its bytes never change: a row group turns out unreadable,
// or the file leaves its folder. Who has it then reads on: its descriptor is kept as long as anybody has the file.
//
// Thread rule: Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/disk.h"
#include "base/files.h"

namespace lockstep::sealed {

class FileMarks {
 public:
  // A row group that turned out unreadable. true: this call marked it.
  bool spoil(size_t group) const { return !corrupt_[group].exchange(true); }
  bool is_corrupt(size_t group) const { return corrupt_[group]; }
  // Once, by whoever has taken it out of the list of files.
  void remove(const std::string& path) const {
    kept_ = UniqueFd(disk::open(path, disk::Open::kRead));
    is_kept_ = kept_.valid();
    disk::unlink(path);
  }
  // Its bytes, removed or not.
  UniqueFd open(const std::string& path) const {
    UniqueFd fd(disk::open(path, disk::Open::kRead));
    return fd.valid() || !is_kept_ ? std::move(fd) : kept_.duplicate();
  }

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
  mutable UniqueFd kept_;  // set once, before is_kept_
  mutable std::atomic<bool> is_kept_{false};
};

}  // namespace lockstep::sealed
