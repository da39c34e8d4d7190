// Which process of this machine writes a flight recorder? Its header has the pid that the process knows itself by; in
// a container that number means nothing out here, and whoever made the file may have written any number into it.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/user_files.h"
#include "sources/ownership/processes.h"

namespace lockstep {

// What a recorder says of its process, and whose folder says so.
struct RecorderWriterWord {
  std::string name;   // of the file: <pid>-<start ticks>.lsfr, both as the writer sees them
  int32_t pid = -1;   // as its header has it
  int64_t user = -1;  // owner of the folder; -1: not known, and then no process is believed to write it
  const UserFolder* folder = nullptr;  // none: the file's lock is not looked at
};

// When the writer started, by the file's name; 0: it does not say.
uint64_t start_ticks_of_recorder(std::string_view name);

// Always a process that is the folder's owner's in every respect. In this order:
// 1. the process with that pid, where it started then: same pid namespace;
// 2. who holds the file's lock: the kernel tells it as a pid of ours;
// 3. of `candidates` (those on a GPU) the only one that has that number in its own namespace and started then.
// -1: none, or it cannot be seen from here. Not for a recorder of the calling process: it opens and closes the file,
// and closing lets go of a process's own locks.
int32_t process_of_recorder(const RecorderWriterWord& word, Processes& processes,
                            const std::vector<int32_t>& candidates);

}  // namespace lockstep
