// One process, held: what is read through the handle is of that process or fails, also after it has ended and its
// number was given to another.
//
// A number that somebody wrote down is not to be believed: a handle is given only for a process that is the expected
// user's in every respect (real, effective and saved user: not one that runs, or has run, with another's rights), and
// that started when it is said to have started.
//
// Thread rule: Immutable.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/files.h"
#include "base/result.h"

namespace lockstep {

class ProcessHandle {
 public:
  // start_ticks: as of /proc/PID/stat; 0: whenever. root: files are found under it; "" is the machine itself.
  // nullopt: there is none, or it is another's.
  static std::optional<ProcessHandle> open(int32_t pid, uint64_t start_ticks, uid_t owner,
                                           const std::string& root = "");
  // Also of one that has ended, for as long as its parent has not asked how: that can be read then.
  static std::optional<ProcessHandle> open_ended_too(int32_t pid, uint64_t start_ticks, uid_t owner);

  int32_t pid() const { return pid_; }
  // It lives, and is still its owner's alone. For after reading /proc by its number: what was read is its own then.
  bool holds() const;
  // A file of /proc/PID, of at most bytes_max.
  Result<std::string> read(const char* name, uint64_t bytes_max) const;
  // Its paths mean what ours do; nullopt: it is gone, or this may not be seen.
  std::optional<bool> shares_our_files() const;
  // Where its own paths begin. Not valid: it is gone. Not to be kept: it would hold the file system of a container that
  // ends.
  UniqueFd root_folder() const;

 private:
  ProcessHandle(int32_t pid, uint64_t start_ticks, uid_t owner, UniqueFd folder)
      : pid_(pid), start_ticks_(start_ticks), owner_(owner), folder_(std::move(folder)) {}

  static std::optional<ProcessHandle> open(int32_t pid, uint64_t start_ticks, uid_t owner, const std::string& root,
                                           bool may_have_ended);
  bool is_owners(bool may_have_ended) const;

  int32_t pid_;
  uint64_t start_ticks_;
  uid_t owner_;
  UniqueFd folder_;  // /proc/PID
};

}  // namespace lockstep
