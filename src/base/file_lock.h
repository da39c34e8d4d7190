// Locks on single bytes of a file, for programs that have to agree on something. They belong to the open file, not to
// the process: closing it, or the death of its last owner, lets them go. A child that executes another program has none
// where the file was opened with O_CLOEXEC.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <fcntl.h>

namespace lockstep {

enum class ByteLock : short { kNone = F_UNLCK, kShared = F_RDLCK, kExclusive = F_WRLCK };

// True: the lock on this byte is now that. False: somebody else's is in the way, and ours is what it was. Changing one
// that we have is one step: nobody comes in between.
inline bool try_lock_byte(int fd, off_t byte, ByteLock lock) {
  struct flock range {};
  range.l_type = static_cast<short>(lock);
  range.l_whence = SEEK_SET;
  range.l_start = byte;
  range.l_len = 1;
  return ::fcntl(fd, F_OFD_SETLK, &range) == 0;
}

}  // namespace lockstep
