// Whether an agent reads a folder of recorders: while it does, it holds a shared lock (flock) on the folder itself.
// Nothing is written into the folder for that, so an agent may do it in the folders of other users, too.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <fcntl.h>
#include <sys/file.h>

#include <string>

#include "base/files.h"

namespace lockstep {

// For the agent: keep it as long as the folder is read. Not valid where the folder cannot be opened. folder: held open.
inline UniqueFd show_that_folder_is_read(int folder) {
  UniqueFd fd(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.valid()) (void)::flock(fd.get(), LOCK_SH | LOCK_NB);
  return fd;
}

inline bool folder_is_read(const std::string& folder) {
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return fd.valid() && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0;
}

}  // namespace lockstep
