// Which process of this machine writes a flight recorder? Its header has the pid that the process knows itself by; in
// a container that number means nothing out here.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sources/who/processes.h"

namespace lockstep {

// path: <folder>/<pid>-<start ticks>.lsfr, both as the writer sees them. In this order:
// 1. the process with that pid, where it started then: same pid namespace;
// 2. who holds the file's lock: the kernel tells it as a pid of ours;
// 3. of `candidates` (those on a GPU) the only one that has that number in its own namespace and started then.
// -1: none, or it cannot be seen from here. Not for a recorder of the calling process: it opens and closes the file,
// and closing lets go of a process's own locks.
int32_t process_of_recorder(const std::string& path, int32_t pid, const std::string& root, Processes& processes,
                            const std::vector<int32_t>& candidates);

}  // namespace lockstep
