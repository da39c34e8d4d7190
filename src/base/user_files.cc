#include "base/user_files.h"

#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace lockstep {
namespace {

constexpr int kHandle = O_PATH | O_NOFOLLOW | O_CLOEXEC;
// A path that is being renamed under the kernel is looked up again; somebody who never stops renaming is given up.
constexpr int kTriesMax = 8;

std::atomic<bool> g_without_openat2{false};

// The handle, or -1 and errno. path: relative, without empty, "." and ".." components.
int handle_by_openat2(int folder, const std::string& path) {
  struct open_how how {};
  how.flags = static_cast<uint64_t>(kHandle);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  for (int i = 0; i < kTriesMax; ++i) {
    const auto fd = static_cast<int>(::syscall(SYS_openat2, folder, path.c_str(), &how, sizeof how));
    if (fd >= 0 || (errno != EAGAIN && errno != EINTR)) return fd;
  }
  return -1;
}

int handle_by_components(int folder, const std::string& path) {
  UniqueFd at;
  const std::vector<std::string_view> parts = split(path, '/');
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool last = i + 1 == parts.size();
    const std::string part(parts[i]);
    UniqueFd next(::openat(at.valid() ? at.get() : folder, part.c_str(), kHandle));
    if (!next.valid()) return -1;
    struct stat info {};
    if (!last && ::fstat(next.get(), &info) != 0) return -1;
    if (!last && S_ISLNK(info.st_mode)) {
      errno = ELOOP;
      return -1;
    }
    at = std::move(next);
  }
  const int fd = ::fcntl(at.get(), F_DUPFD_CLOEXEC, 0);
  return fd;
}

int open_handle(int folder, const std::string& path) {
  if (!g_without_openat2.load(std::memory_order_relaxed)) {
    const int fd = handle_by_openat2(folder, path);
    // A container's filter answers EPERM for a system call that it does not know.
    if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) return fd;
  }
  return handle_by_components(folder, path);
}

UserFileRefused refused_by(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ESRCH:
      return UserFileRefused::kAbsent;
    case ELOOP:
    case EXDEV:
      return UserFileRefused::kLink;
    default:
      return UserFileRefused::kFailed;
  }
}

UserFile refuse(UserFile file, UserFileRefused refused, std::string why) {
  file.fd.reset();
  file.refused = refused;
  file.why = std::move(why);
  return file;
}

const char* kind_text(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return "a file";
    case S_IFDIR:
      return "a folder";
    case S_IFIFO:
      return "a pipe";
    case S_IFSOCK:
      return "a socket";
    default:
      return "a device";
  }
}

std::string proc_path_of(int fd) {
  return format("/proc/self/fd/%d", fd);
}

}  // namespace

const char* to_text(UserFileRefused refused) {
  switch (refused) {
    case UserFileRefused::kNo:
      return "no";
    case UserFileRefused::kAbsent:
      return "absent";
    case UserFileRefused::kLink:
      return "link";
    case UserFileRefused::kKind:
      return "kind";
    case UserFileRefused::kOwner:
      return "owner";
    case UserFileRefused::kTooLarge:
      return "too_large";
    case UserFileRefused::kFailed:
      break;
  }
  return "failed";
}

void without_openat2(bool without) {
  g_without_openat2.store(without);
}

std::string UserFile::read(size_t bytes_max) const {
  std::string bytes;
  char buffer[65536];
  while (bytes.size() < bytes_max) {
    const ssize_t got =
        ::pread(fd.get(), buffer, std::min(sizeof buffer, bytes_max - bytes.size()), static_cast<off_t>(bytes.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    bytes.append(buffer, static_cast<size_t>(got));
  }
  return bytes;
}

UserFile open_user_file(int folder, std::string_view path, const UserFileWanted& wanted) {
  UserFile file;
  std::string below;
  for (std::string_view part : split(path, '/')) {
    if (part.empty() || part == ".") continue;
    if (part == ".." || part.find('\0') != std::string_view::npos)
      return refuse(std::move(file), UserFileRefused::kLink, "its path leads out of its folder");
    below += (below.empty() ? "" : "/") + std::string(part);
  }
  if (below.empty()) return refuse(std::move(file), UserFileRefused::kKind, "a folder");

  const UniqueFd handle(open_handle(folder, below));
  if (!handle.valid()) return refuse(std::move(file), refused_by(errno), std::strerror(errno));
  if (::fstat(handle.get(), &file.info) != 0)
    return refuse(std::move(file), UserFileRefused::kFailed, std::strerror(errno));
  if (S_ISLNK(file.info.st_mode)) return refuse(std::move(file), UserFileRefused::kLink, "a symbolic link");
  const mode_t kind = wanted.kind == UserFileKind::kPipe ? S_IFIFO : S_IFREG;
  if ((file.info.st_mode & S_IFMT) != kind) {
    const char* const is = kind_text(file.info.st_mode);
    return refuse(std::move(file), UserFileRefused::kKind,
                  format("%s, not %s", is, wanted.kind == UserFileKind::kPipe ? "a pipe" : "a file"));
  }
  if (wanted.owner == static_cast<uid_t>(-1) || file.info.st_uid != wanted.owner) {
    const uid_t owner = file.info.st_uid;
    return refuse(std::move(file), UserFileRefused::kOwner, format("of user %u", static_cast<unsigned>(owner)));
  }
  const auto bytes = static_cast<uint64_t>(file.info.st_size);
  if (bytes > wanted.bytes_max)
    return refuse(std::move(file), UserFileRefused::kTooLarge,
                  format("%llu bytes (limit %llu)", static_cast<unsigned long long>(bytes),
                         static_cast<unsigned long long>(wanted.bytes_max)));
  // Kind and owner of what the handle stands for do not change any more.
  file.fd = open_again(handle.get(), wanted.access);
  if (!file.fd.valid()) return refuse(std::move(file), UserFileRefused::kFailed, std::strerror(errno));
  return file;
}

UniqueFd open_again(int fd, int access) {
  return UniqueFd(::open(proc_path_of(fd).c_str(), access | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

UserFolder::UserFolder(std::string path, UniqueFd fd, const struct stat& info)
    : path_(std::move(path)), fd_(std::move(fd)), owner_(info.st_uid), device_(info.st_dev), inode_(info.st_ino) {}

Result<std::shared_ptr<const UserFolder>> UserFolder::open(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0)
    return Error{format("cannot open folder %s: %s", path.c_str(), std::strerror(errno))};
  return std::shared_ptr<const UserFolder>(new UserFolder(path, std::move(fd), info));
}

bool UserFolder::is_in_place() const {
  struct stat info {};
  return ::lstat(path_.c_str(), &info) == 0 && info.st_dev == device_ && info.st_ino == inode_;
}

UserFile UserFolder::open_file(const std::string& name, UserFileWanted wanted) const {
  wanted.owner = owner_;
  return open_user_file(fd_.get(), name, wanted);
}

Result<std::string> UserFolder::read_file(const std::string& name, size_t bytes_max) const {
  const UserFile file = open_file(name, {.bytes_max = bytes_max});
  if (!file.ok()) return Error{path_ + "/" + name + ": " + file.why};
  return file.read(bytes_max);
}

void UserFolder::remove(const std::string& name) const {
  (void)::unlinkat(fd_.get(), name.c_str(), 0);
}

std::string UserFolder::held_path() const {
  return proc_path_of(fd_.get());
}

FolderScan::FolderScan(const UserFolder& folder) {
  // A descriptor of its own: where a listing stands belongs to the open file.
  const int fd = ::openat(folder.fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) stream_ = ::fdopendir(fd);
  if (fd >= 0 && stream_ == nullptr) ::close(fd);
}

FolderScan::~FolderScan() {
  if (stream_ != nullptr) ::closedir(stream_);
}

FolderScan::Part FolderScan::next(size_t names_max) {
  Part part;
  if (stream_ == nullptr) {
    part.last = true;
    return part;
  }
  while (part.names.size() < names_max) {
    const dirent* entry = ::readdir(stream_);
    if (entry == nullptr) {
      part.last = true;
      ::rewinddir(stream_);
      break;
    }
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") part.names.emplace_back(name);
  }
  return part;
}

}  // namespace lockstep
