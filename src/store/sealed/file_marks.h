// What may become of a sealed file while it is read, though its bytes never change: a row group turns out unreadable,
// or the file leaves its folder. Who has it then reads on: its descriptor is kept as long as anybody has the file.
//
// Thread rule: Thread-safe.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/disk.h"
#include "base/files.h"

namespace lockstep::sealed {

class FileMarks {
 public:
  FileMarks() = default;
  FileMarks(const FileMarks&) = delete;
  FileMarks& operator=(const FileMarks&) = delete;
  ~FileMarks() {
    if (kept_ >= 0) ::close(kept_);
  }

  // A row group that turned out unreadable. true: this call marked it.
  bool spoil(size_t group) const { return !corrupt_[group].exchange(true); }
  bool is_corrupt(size_t group) const { return corrupt_[group]; }
  // Once, by whoever has taken it out of the list of files.
  void remove(const std::string& path) const {
    kept_ = disk::open(path, disk::Open::kRead);
    disk::unlink(path);
  }
  // Its bytes, removed or not.
  UniqueFd open(const std::string& path) const {
    UniqueFd fd(disk::open(path, disk::Open::kRead));
    if (fd.valid() || kept_ < 0) return fd;
    return UniqueFd(::fcntl(kept_, F_DUPFD_CLOEXEC, 0));
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
  mutable std::atomic<int> kept_{-1};
};

}  // namespace lockstep::sealed
