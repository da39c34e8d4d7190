// SQLite on a simulated disk: its default VFS, with every call that reads or changes a file asked of and told to a hook
// first. The shared memory beside the file (-shm) is no part of what a disk keeps.
//
// Thread rule: Confined; set while no database is open.
#pragma once

#include "base/disk.h"

namespace lockstep {

// Nullptr: as before.
void put_sqlite_on(disk::Hook* hook);

}  // namespace lockstep
