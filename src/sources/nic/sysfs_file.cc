#include "sources/nic/sysfs_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "base/text.h"

namespace lockstep {

namespace {

// A page is the most that a file of sysfs gives.
thread_local char buffer[4096];

FileText read_from(int fd) {
  ssize_t size;
  do {
    size = pread(fd, buffer, sizeof buffer, 0);
  } while (size < 0 && errno == EINTR);
  if (size < 0) return {{}, errno};
  return {trim({buffer, static_cast<size_t>(size)})};
}

UniqueFd open_file(const std::string& path) {
  // O_NONBLOCK: a tree of someone's making may hold a pipe.
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

}  // namespace

int FileBudget::from_process_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 128;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur / 4, 2048));
}

SysfsFile::SysfsFile(SysfsFile&& other) noexcept
    : path_(std::move(other.path_)), budget_(other.budget_), fd_(std::move(other.fd_)) {}

SysfsFile& SysfsFile::operator=(SysfsFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(budget_, other.budget_);
  std::swap(fd_, other.fd_);
  return *this;
}

void SysfsFile::close() {
  if (!fd_.valid()) return;
  fd_ = UniqueFd();
  if (budget_) budget_->give_back();
}

FileText SysfsFile::read() {
  bool reopened = false;
  if (fd_.valid()) {
    FileText text = read_from(fd_.get());
    if (text.error != ENODEV) return text;
    close();
    reopened = true;
  }
  UniqueFd fd = open_file(path_);
  if (!fd.valid()) return {{}, errno, reopened};
  FileText text = read_from(fd.get());
  text.reopened = reopened;
  if (budget_ && budget_->take()) fd_ = std::move(fd);
  return text;
}

FileText read_small_file(const std::string& path) {
  return SysfsFile(path, nullptr).read();
}

}  // namespace lockstep
