#include "base/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/disk.h"
#include "base/text.h"

namespace lockstep {
namespace {
Error failed(const char* what, const std::string& path) {
  return Error{format("%s %s: %s", what, path.c_str(), std::strerror(errno))};
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}
}  // namespace

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) close(fd_);
}

UniqueFd UniqueFd::duplicate() const {
  return UniqueFd(fcntl(fd_, F_DUPFD_CLOEXEC, 0));
}

Result<std::string> read_file(const std::string& path, uint64_t bytes_max) {
  UniqueFd file(disk::open(path, disk::Open::kRead));
  if (!file.valid()) return failed("cannot open", path);
  std::string content;
  char buffer[65536];
  while (true) {
    ssize_t got = disk::read(file.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed("cannot read", path);
    if (got == 0) return content;
    content.append(buffer, static_cast<size_t>(got));
    if (content.size() > bytes_max)
      return Error{format("%s is larger than %llu bytes, the limit here", path.c_str(),
                          static_cast<unsigned long long>(bytes_max))};
  }
}

Result<void> write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    ssize_t put = disk::write(fd, content);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return Error{std::string("write: ") + std::strerror(errno)};
    content.remove_prefix(static_cast<size_t>(put));
  }
  return {};
}

Result<void> sync_directory(const std::string& path) {
  if (disk::sync_folder(path) != 0) return failed("cannot sync", path);
  return {};
}

Result<void> write_file_atomically(const std::string& path, std::string_view content) {
  std::string beside = path + ".tmp";
  {
    UniqueFd file(disk::open(beside, disk::Open::kReplace));
    if (!file.valid()) return failed("cannot create", beside);
    if (Result<void> written = write_all(file.get(), content); !written.ok())
      return prefixed(written.failure(), beside + ": ");
    if (disk::sync(file.get()) != 0) return failed("cannot sync", beside);
  }
  if (disk::rename(beside, path) != 0) return failed("cannot rename to", path);
  return sync_directory(parent_of(path));
}

// A folder is there after a crash once its parent is synced. Each is synced before the next one is made, so that of
// those found here only the last may have been made by somebody who was killed before that.
Result<void> make_directories(const std::string& path) {
  std::string found;
  for (size_t at = 1; at <= path.size(); ++at) {
    if (at < path.size() && path[at] != '/') continue;
    std::string part = path.substr(0, at);
    const bool is_made = disk::make_folder(part) == 0;
    if (!is_made && errno != EEXIST) return failed("cannot make folder", part);
    if (!is_made) found = part;
    // Of others' folders above ours it is enough to try: reading them may not be allowed.
    const bool was_last = !found.empty() && (is_made || at == path.size());
    if ((was_last && disk::sync_folder(parent_of(found)) != 0 && errno == EIO) ||
        (is_made && disk::sync_folder(parent_of(part)) != 0 && errno != EACCES)) {
      const Error error = failed("cannot sync the folder of", part);
      if (is_made) disk::remove_folder(part);  // made anew, the next sync is about it
      return error;
    }
    if (is_made) found.clear();
  }
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return failed("cannot make folder", path);
  if (!S_ISDIR(info.st_mode)) return Error{path + " is not a folder"};
  return {};
}

Result<std::vector<std::string>> list_directory(const std::string& path) {
  std::vector<std::string> names;
  if (disk::list_folder(path, names) != 0) return failed("cannot list", path);
  std::sort(names.begin(), names.end());
  return names;
}

Result<UniqueFd> lock_folder(const std::string& folder, const char* program) {
  LOCKSTEP_TRY(make_directories(folder));
  std::string path = folder + "/lock";
  UniqueFd file(disk::open(path, disk::Open::kReadWrite));
  if (!file.valid()) return failed("cannot open", path);
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    Result<std::string> owner = read_file(path, 100);
    return Error{format("%s is in use by another %s (pid %s); give this one a folder of its own", folder.c_str(),
                        program, owner.ok() ? std::string(trim(*owner)).c_str() : "?")};
  }
  // The pid is for the line above only; without it the lock holds all the same.
  std::string pid = std::to_string(getpid()) + "\n";
  if (disk::truncate(file.get(), 0) == 0) (void)write_all(file.get(), pid).ok();
  return file;
}

}  // namespace lockstep
