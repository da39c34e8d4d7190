// A generation as a data folder again. Every piece is checked by its SHA-256 and every file by its format's version
// before the folder gets its name: it is made beside, as DATA.part, and renamed once all of it is on disk.
//
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
};
// generation 0: the newest. data: not there, or empty.
Result<Restored> restore(const Repository& repository, uint64_t generation, const std::string& data,
                         const Progress& progress);

}  // namespace lockstep::backup
