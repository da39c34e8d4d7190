// Every call by which the log and the stores read and change their disk: thin functions over the system calls of the
// same names, and one place where a test can watch them, make them fail and end the world between two of them
// (tests/faults). Without a hook, which is how every program runs, they are those system calls.
//
// base/files.h is made of these; src/bus and src/store use nothing else (tools/check_layers.py refuses it).
// On error: as the system call: -1 and errno.
// Thread rule: Thread-safe; set_hook() while nobody is in a call.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::disk {

enum class Open {
  kRead,
  kReadWrite,  // made where it is not there
  kWrite,      // made where it is not there
  kReplace,    // made, or emptied where it is there
  kNew,        // made; an error where it is there
};

// What a hook sees. One of path and fd says which file.
struct Call {
  enum class Kind {
    kOpen,
    kList,
    kRead,
    kWrite,
    kTruncate,
    kSync,
    kSyncFolder,
    kRename,
    kLink,
    kUnlink,
    kMakeFolder,
    kRemoveFolder
  };
  Kind kind;
  std::string_view path = {};
  std::string_view to = {};  // kRename, kLink: the new name
  int fd = -1;
  Open how = Open::kRead;
  int64_t offset = -1;                 // kRead, kWrite; -1: where the descriptor stands. kTruncate: the new size
  std::span<const iovec> pieces = {};  // kWrite
  size_t bytes = 0;                    // kRead, kWrite
};

class Hook {
 public:
  virtual ~Hook() = default;
  // An errno: the call fails with it and nothing happens. 0: it happens; a write of no more than bytes_max.
  virtual int before(const Call& call, size_t& bytes_max) = 0;
  // What the system answered; -1: errno is its reason.
  virtual void after(const Call& call, int64_t outcome) = 0;
};
// Nullptr takes it away.
void set_hook(Hook* hook);

int open(const std::string& path, Open how);
ssize_t read(int fd, void* to, size_t bytes);
ssize_t pread(int fd, void* to, size_t bytes, uint64_t offset);
ssize_t write(int fd, std::string_view bytes);
ssize_t pwrite(int fd, std::string_view bytes, uint64_t offset);
ssize_t pwritev(int fd, std::span<const iovec> pieces, uint64_t offset);
int truncate(int fd, uint64_t bytes);
int truncate(const std::string& path, uint64_t bytes);
// Content, and as much of its attributes as is needed to read it. Once it has failed, nobody knows which of the bytes
// written before it are on disk, and a later one that succeeds does not say: write them again, to another file.
int sync(int fd);
int sync_folder(const std::string& path);
int rename(const std::string& from, const std::string& to);
int link(const std::string& from, const std::string& to);
int unlink(const std::string& path);
int make_folder(const std::string& path);
int remove_folder(const std::string& path);  // an empty one
bool exists(const std::string& path);
// Names in a folder, without "." and "..", in no order.
int list_folder(const std::string& path, std::vector<std::string>& names);

}  // namespace lockstep::disk
