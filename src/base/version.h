// Which Lockstep this is: the version of CMakeLists.txt and the commit that it was built from, where that is known. In a
// library of its own (lockstep_version), so that a commit makes three programs be linked again and not every test.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>

namespace lockstep {

// "lockstep 0.1.0 (commit 3f9a1c20b7de)"
std::string version_line(const std::string& program);

}  // namespace lockstep
