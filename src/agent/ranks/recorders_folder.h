// The agent's own folder of recorders: made where it is not there, closed to others where it is ours.
//
// Its usual place (/dev/shm) is open to everybody, so what is there by that name need not be ours: a link that another
// user has put there is not followed, and the mode of what another user owns is not touched.
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>

#include "base/result.h"

namespace lockstep {

// The path to read: where `path` is a link of ours or root's, what it stands for.
Result<std::string> prepare_recorders_folder(const std::string& path);

}  // namespace lockstep
