// Files as whole things: read, write so that a crash leaves the old or the new, never half. A file descriptor that
// closes itself.
//
// Thread rule: Thread-safe (functions), Confined (UniqueFd).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace lockstep {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd();
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void reset() { *this = UniqueFd(); }
  UniqueFd duplicate() const;  // the same open file

 private:
  int fd_ = -1;
};

Result<std::string> read_file(const std::string& path, uint64_t bytes_max);
// Writes beside, syncs, renames, syncs the folder.
Result<void> write_file_atomically(const std::string& path, std::string_view content);
Result<void> make_directories(const std::string& path);
// Names in a folder, sorted, without "." and "..".
Result<std::vector<std::string>> list_directory(const std::string& path);
Result<void> sync_directory(const std::string& path);
// Makes the folder a process's own until the descriptor is closed, also by a crash. Another owner: an error that names
// it.
Result<UniqueFd> lock_folder(const std::string& folder, const char* program);
// Writes all of it or fails; retries short writes and EINTR.
Result<void> write_all(int fd, std::string_view content);

}  // namespace lockstep
