// Files that a user owns, opened by a program that may do more than that user.
//
// Whoever owns a folder can at any moment put a link, a pipe, a device, somebody else's file or nothing in the place of
// a file in it. So the folder is held by a descriptor, and what is in it is opened
//   - beneath that descriptor, following no symbolic link anywhere on the way (openat2; one component after the other
//     where the kernel has none, or a filter of system calls forbids it);
//   - only after its kind, owner and size were read from a handle that can neither read nor write (O_PATH): opening a
//     device or a pipe may have effects of its own, and wait;
//   - through that very handle (/proc/self/fd), so that what was checked is what is opened;
//   - without waiting (O_NONBLOCK: neither for a pipe's other end nor for a lease) and never as our terminal.
//
// On error: one line, and nothing was opened for reading or writing.
// Thread rule: Thread-safe (functions), Immutable (UserFolder), Confined (UserFile, FolderScan).
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace lockstep {

enum class UserFileKind : uint8_t { kRegular, kPipe };

// Why a file was not opened. Only kAbsent is an everyday matter.
enum class UserFileRefused : uint8_t { kNo, kAbsent, kLink, kKind, kOwner, kTooLarge, kFailed };
const char* to_text(UserFileRefused refused);  // "absent", "link", "kind", "owner", "too_large", "failed"

struct UserFileWanted {
  uid_t owner = static_cast<uid_t>(-1);  // nobody's files are opened where this is left out
  int access = O_RDONLY;                 // or O_WRONLY, O_RDWR
  UserFileKind kind = UserFileKind::kRegular;
  uint64_t bytes_max = UINT64_MAX;  // of a regular file as it is now; it may grow later
};

struct UserFile {
  UniqueFd fd;
  struct stat info {};  // as it was when it was opened; where it was refused for what it is, too
  UserFileRefused refused = UserFileRefused::kNo;
  std::string why;  // one line

  bool ok() const { return fd.valid(); }
  // From the front, at most bytes_max, however much the file has grown.
  std::string read(size_t bytes_max) const;
};

// path: below `folder`; a leading '/' is that folder, ".." is refused.
UserFile open_user_file(int folder, std::string_view path, const UserFileWanted& wanted);

// The same file once more, with another access; no name is looked at. Not valid: errno says why.
UniqueFd open_again(int fd, int access);

// For tests: go component by component although the kernel has openat2.
void without_openat2(bool without);

// A folder and its owner, who is the only one whose files are opened in it.
class UserFolder {
 public:
  // A link at the end of the path is refused; the path before it is taken from the caller.
  static Result<std::shared_ptr<const UserFolder>> open(const std::string& path);

  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }
  uid_t owner() const { return owner_; }
  // The path still leads to this folder: nobody has removed or replaced it.
  bool is_in_place() const;

  // wanted.owner is this folder's.
  UserFile open_file(const std::string& name, UserFileWanted wanted) const;
  Result<std::string> read_file(const std::string& name, size_t bytes_max) const;
  // Removes the name, whatever it stands for by now; a folder stays.
  void remove(const std::string& name) const;
  // For inotify_add_watch() and the like: a path to this very folder, whatever its name is by now.
  std::string held_path() const;

 private:
  UserFolder(std::string path, UniqueFd fd, const struct stat& info);

  const std::string path_;
  const UniqueFd fd_;
  const uid_t owner_;
  const dev_t device_;
  const ino_t inode_;
};

// The names in a folder, a bounded number at a time: whoever fills a folder makes nobody wait.
class FolderScan {
 public:
  explicit FolderScan(const UserFolder& folder);
  ~FolderScan();
  FolderScan(const FolderScan&) = delete;
  FolderScan& operator=(const FolderScan&) = delete;

  struct Part {
    std::vector<std::string> names;  // without "." and ".."
    bool last = false;               // the folder's end: the next part begins at the front
  };
  Part next(size_t names_max);

 private:
  DIR* stream_ = nullptr;
};

}  // namespace lockstep
