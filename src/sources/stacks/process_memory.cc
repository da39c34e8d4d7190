#include "sources/stacks/process_memory.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text.h"

namespace lockstep {

bool MemoryReader::read_all(std::span<const MemoryPiece> pieces) {
  return std::all_of(pieces.begin(), pieces.end(),
                     [this](const MemoryPiece& piece) { return read(piece.address, piece.to, piece.bytes); });
}

bool ProcessMemory::read(uint64_t address, void* to, size_t bytes) {
  const MemoryPiece piece{address, to, bytes};
  return read_all({&piece, 1});
}

bool ProcessMemory::read_all(std::span<const MemoryPiece> pieces) {
  iovec local[kPiecesMax], remote[kPiecesMax];
  while (!pieces.empty()) {
    const size_t count = std::min(pieces.size(), kPiecesMax);
    size_t bytes = 0;
    for (size_t i = 0; i < count; ++i) {
      local[i] = {pieces[i].to, pieces[i].bytes};
      remote[i] = {reinterpret_cast<void*>(pieces[i].address), pieces[i].bytes};
      bytes += pieces[i].bytes;
    }
    const ssize_t got = ::process_vm_readv(pid_, local, count, remote, count, 0);
    if (got < 0 || static_cast<size_t>(got) != bytes) {
      error_ = got < 0 ? errno : EFAULT;
      return false;
    }
    pieces = pieces.subspan(count);
  }
  return true;
}

std::string ProcessMemory::why() const {
  if (error_ == EPERM)
    return "its memory may not be read (run the agent as root, or as the same user where ptrace is not restricted)";
  if (error_ == ESRCH) return "its process is gone";
  return format("its memory cannot be read: %s", error_ == 0 ? "not tried" : std::strerror(error_));
}

}  // namespace lockstep
