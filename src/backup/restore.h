// A generation as a data folder again. Every piece is checked by its SHA-256 and every file by its format's version
// before the folder gets its name: it is made beside, as DATA.part, and renamed once all of it is on disk.
//
// After a crash: DATA.part is there with a file `restoring` in it, locked by nobody; the next restore takes it away. One
//           without that file is somebody else's, and ends the restore with a line.
// On error: one line that names what is missing or damaged, and nothing is left. Thread rule: Confined.
#pragma once

#include <cstdint>
#include <string>

#include "backup/repository.h"
#include "backup/take.h"

namespace lockstep::backup {

struct Restored {
  Manifest manifest;
  uint64_t bytes = 0;
  bool was_left = false;  // DATA.part of one that was killed, which was taken away
};
// generation 0: the newest. data: not there, or empty.
Result<Restored> restore(const Repository& repository, uint64_t generation, const std::string& data,
                         const Progress& progress);

}  // namespace lockstep::backup
