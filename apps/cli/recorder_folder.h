// What the commands that read this node's flight recorders say about their folder.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <string>

namespace lockstep::cli {

inline constexpr const char* kRecordersHelp =
    "folder of the flight recorders (default $LOCKSTEP_RECORDER_DIR, else /dev/shm/lockstep-UID)";

// One line for a folder without recorders, with the folders of other users that might be meant.
std::string nothing_recorded(const std::string& folder);

}  // namespace lockstep::cli
