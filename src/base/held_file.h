// Files that are held for a copy while whoever owns them goes on: a second name (hard link) in another folder, so that
// nothing that removes or replaces them takes their bytes away. Only files whose bytes do not change may be held so, or
// that are only ever written behind `bytes`.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace lockstep {

struct HeldFile {
  std::string name;  // below the folder they are held in
  uint64_t bytes = 0;
  bool grows = false;  // more may come behind these bytes
};

// The file at `path`, also as `name` in `folder`, which is there. One that is held under that name already stays so.
Result<HeldFile> hold_file(const std::string& path, const std::string& folder, const std::string& name);

}  // namespace lockstep
