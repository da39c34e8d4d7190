#include "sources/host/host_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <utility>

#include "base/text.h"

namespace lockstep::host {
namespace {

constexpr size_t kSaidMax = 64;
constexpr size_t kFirstBytes = 16 << 10;

struct CloseDir {
  void operator()(DIR* dir) const { closedir(dir); }
};

// A file that is gone, or a process that ended while it was read, is no failure.
bool is_absence(int error) {
  return error == ENOENT || error == ESRCH || error == ENOTDIR || error == ENODEV || error == ENODATA;
}

}  // namespace

std::optional<std::string_view> read_fd(int fd, std::string& buffer, size_t bytes_max) {
  if (buffer.size() < kFirstBytes) buffer.resize(kFirstBytes);
  size_t length = 0;
  while (length < bytes_max) {
    if (length == buffer.size()) buffer.resize(std::min(bytes_max, buffer.size() * 2));
    ssize_t count = pread(fd, buffer.data() + length, std::min(buffer.size(), bytes_max) - length, length);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) break;
    length += static_cast<size_t>(count);
  }
  return std::string_view(buffer.data(), length);
}

HostFiles::HostFiles(std::string root) : root_(std::move(root)) {}

void HostFiles::failed(const std::string& path, int error) {
  if (out_ == nullptr || is_absence(error)) return;
  ++out_->failures;
  if (said_.size() >= kSaidMax || !said_.insert(path).second) return;
  out_->notes.push_back(
      format("host: %s%s: %s; its numbers are missing", root_.c_str(), path.c_str(), strerror(error)));
}

std::optional<std::string_view> HostFiles::read(const std::string& path, size_t bytes_max) {
  UniqueFd fd(open((root_ + path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::optional<std::string_view> text;
  if (fd.valid()) text = read_fd(fd.get(), buffer_, bytes_max);
  if (!text) failed(path, errno);
  return text;
}

std::optional<std::string_view> HostFiles::read(KeptFile& file, size_t bytes_max) {
  if (file.fd.valid()) {
    if (auto text = read_fd(file.fd.get(), buffer_, bytes_max)) return text;
    file.fd.reset();
  }
  file.fd = UniqueFd(open((root_ + file.path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::optional<std::string_view> text;
  if (file.fd.valid()) text = read_fd(file.fd.get(), buffer_, bytes_max);
  if (!text) failed(file.path, errno);
  return text;
}

bool HostFiles::readable(const std::string& path) {
  UniqueFd fd(open((root_ + path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  char byte = 0;
  return fd.valid() && pread(fd.get(), &byte, 1, 0) >= 0;
}

std::optional<uint64_t> HostFiles::read_number(const std::string& path) {
  auto text = read(path, 64);
  return text ? parse_uint(trim(*text)) : std::nullopt;
}

std::vector<std::string> HostFiles::names(const std::string& path, size_t count_max) {
  std::vector<std::string> names;
  std::unique_ptr<DIR, CloseDir> dir(opendir((root_ + path).c_str()));
  if (!dir) {
    failed(path, errno);
    return names;
  }
  while (dirent* entry = readdir(dir.get())) {
    if (entry->d_name[0] == '.') continue;
    names.emplace_back(entry->d_name);
    if (names.size() >= count_max) break;
  }
  std::sort(names.begin(), names.end());
  return names;
}

void number_names(int folder_fd, size_t count_max, std::vector<int32_t>& numbers) {
  numbers.clear();
  // A copy, because closedir() closes what it reads from; both share one position, so it is set back.
  int copy = fcntl(folder_fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return;
  std::unique_ptr<DIR, CloseDir> dir(fdopendir(copy));
  if (!dir) {
    close(copy);
    return;
  }
  rewinddir(dir.get());
  while (dirent* entry = readdir(dir.get())) {
    const char* end = entry->d_name + strlen(entry->d_name);
    int32_t number = 0;
    auto [stop, error] = std::from_chars(entry->d_name, end, number);
    if (error != std::errc() || stop != end || number <= 0) continue;
    numbers.push_back(number);
    if (numbers.size() >= count_max) break;
  }
}

LabelSet labels(Labels pairs) {
  return std::make_shared<const Labels>(std::move(pairs));
}

}  // namespace lockstep::host
