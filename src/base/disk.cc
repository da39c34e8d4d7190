#include "base/disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "base/files.h"

namespace lockstep::disk {
namespace {

std::atomic<Hook*> current_hook{nullptr};

// Asks the hook, calls the system, tells the hook.
template <typename System>
int64_t hooked(const Call& call, System system) {
  Hook* hook = current_hook.load(std::memory_order_acquire);
  if (hook == nullptr) return system(SIZE_MAX);
  size_t bytes_max = SIZE_MAX;
  if (const int error = hook->before(call, bytes_max); error != 0) {
    errno = error;
    return -1;
  }
  const int64_t outcome = system(bytes_max);
  const int error = errno;
  hook->after(call, outcome);
  errno = error;
  return outcome;
}

ssize_t write_pieces(int fd, std::span<const iovec> pieces, int64_t offset) {
  Call call{Call::Kind::kWrite};
  call.fd = fd;
  call.offset = offset;
  call.pieces = pieces;
  for (const iovec& piece : pieces) call.bytes += piece.iov_len;
  return hooked(call, [&](size_t bytes_max) -> int64_t {
    if (bytes_max >= call.bytes) {
      const int count = static_cast<int>(pieces.size());
      return offset < 0 ? ::writev(fd, pieces.data(), count) : ::pwritev(fd, pieces.data(), count, offset);
    }
    std::string some;
    for (const iovec& piece : pieces) some.append(static_cast<const char*>(piece.iov_base), piece.iov_len);
    return offset < 0 ? ::write(fd, some.data(), bytes_max) : ::pwrite(fd, some.data(), bytes_max, offset);
  });
}

}  // namespace

void set_hook(Hook* hook) {
  current_hook.store(hook, std::memory_order_release);
}

int open(const std::string& path, Open how) {
  static constexpr int kFlags[] = {O_RDONLY, O_RDWR | O_CREAT, O_WRONLY | O_CREAT, O_WRONLY | O_CREAT | O_TRUNC,
                                   O_WRONLY | O_CREAT | O_EXCL};
  Call call{Call::Kind::kOpen, path};
  call.how = how;
  return static_cast<int>(
      hooked(call, [&](size_t) { return ::open(path.c_str(), kFlags[static_cast<int>(how)] | O_CLOEXEC, 0644); }));
}

ssize_t read(int fd, void* to, size_t bytes) {
  Call call{Call::Kind::kRead};
  call.fd = fd;
  call.bytes = bytes;
  return hooked(call, [&](size_t) { return ::read(fd, to, bytes); });
}

ssize_t pread(int fd, void* to, size_t bytes, uint64_t offset) {
  Call call{Call::Kind::kRead};
  call.fd = fd;
  call.offset = static_cast<int64_t>(offset);
  call.bytes = bytes;
  return hooked(call, [&](size_t) { return ::pread(fd, to, bytes, static_cast<off_t>(offset)); });
}

ssize_t write(int fd, std::string_view bytes) {
  const iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
  return write_pieces(fd, {&piece, 1}, -1);
}

ssize_t pwrite(int fd, std::string_view bytes, uint64_t offset) {
  const iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
  return write_pieces(fd, {&piece, 1}, static_cast<int64_t>(offset));
}

ssize_t pwritev(int fd, std::span<const iovec> pieces, uint64_t offset) {
  return write_pieces(fd, pieces, static_cast<int64_t>(offset));
}

int truncate(int fd, uint64_t bytes) {
  Call call{Call::Kind::kTruncate};
  call.fd = fd;
  call.offset = static_cast<int64_t>(bytes);
  return static_cast<int>(hooked(call, [&](size_t) { return ::ftruncate(fd, static_cast<off_t>(bytes)); }));
}

int truncate(const std::string& path, uint64_t bytes) {
  Call call{Call::Kind::kTruncate, path};
  call.offset = static_cast<int64_t>(bytes);
  return static_cast<int>(hooked(call, [&](size_t) { return ::truncate(path.c_str(), static_cast<off_t>(bytes)); }));
}

int sync(int fd) {
  Call call{Call::Kind::kSync};
  call.fd = fd;
  return static_cast<int>(hooked(call, [&](size_t) { return ::fdatasync(fd); }));
}

int sync_folder(const std::string& path) {
  return static_cast<int>(hooked({Call::Kind::kSyncFolder, path}, [&](size_t) {
    UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return folder.valid() ? ::fsync(folder.get()) : -1;
  }));
}

int rename(const std::string& from, const std::string& to) {
  return static_cast<int>(
      hooked({Call::Kind::kRename, from, to}, [&](size_t) { return ::rename(from.c_str(), to.c_str()); }));
}

int link(const std::string& from, const std::string& to) {
  return static_cast<int>(
      hooked({Call::Kind::kLink, from, to}, [&](size_t) { return ::link(from.c_str(), to.c_str()); }));
}

int unlink(const std::string& path) {
  return static_cast<int>(hooked({Call::Kind::kUnlink, path}, [&](size_t) { return ::unlink(path.c_str()); }));
}

int make_folder(const std::string& path) {
  return static_cast<int>(hooked({Call::Kind::kMakeFolder, path}, [&](size_t) { return ::mkdir(path.c_str(), 0755); }));
}

int remove_folder(const std::string& path) {
  return static_cast<int>(hooked({Call::Kind::kRemoveFolder, path}, [&](size_t) { return ::rmdir(path.c_str()); }));
}

bool exists(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

int list_folder(const std::string& path, std::vector<std::string>& names) {
  return static_cast<int>(hooked({Call::Kind::kList, path}, [&](size_t) {
    DIR* folder = ::opendir(path.c_str());
    if (folder == nullptr) return -1;
    errno = 0;
    while (const dirent* entry = ::readdir(folder)) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
      errno = 0;
    }
    const int error = errno;  // a list that ends early is none
    ::closedir(folder);
    errno = error;
    return error == 0 ? 0 : -1;
  }));
}

}  // namespace lockstep::disk
