// What the time of a profile hung on, from its end back to its beginning, across ranks: the chain in which every part
// began when the one before it had ended, so that only shortening something on it shortens the whole.
//
// The method: from the last end backwards, always to what was there last. A kernel waits for the one before it on its
// stream, for its launch, or (where neither explains its start) for what ended last on another stream of its device. A
// collective waits for its last member: the path goes on at that rank. A call of the host that waits for the GPU, or time
// of the host outside operators, leads to the activity that ended in it; else the host's time is the host's. Classes are HTA's, and waiting for a rank is none:
// it is that rank's work.
//
// Limits: dependencies between streams are inferred from times, not from events that were recorded and waited for.
// Thread rule: Thread-safe (no state).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "profile/ranks/collectives.h"
#include "profile/ranks/rank_profile.h"

namespace lockstep::profile {

enum class PathClass : uint8_t { kCompute, kMemory, kCommunication, kHost, kDataLoading, kLaunchDelay, kKernelDelay };
inline constexpr size_t kPathClasses = 7;
const char* to_text(PathClass one);  // "gpu_compute"

struct PathPart {
  uint32_t profile = 0;  // in the list of ranks
  PathClass path_class = PathClass::kCompute;
  std::string name;
  int64_t start_ns = 0;  // on the common axis
  int64_t end_ns = 0;
};

struct CriticalPath {
  std::vector<PathPart> parts;  // by time
  std::array<int64_t, kPathClasses> by_class_ns = {};
  std::vector<int64_t> by_rank_ns;
  uint64_t rank_changes = 0;
  int64_t total_ns = 0;

  struct Row {
    std::string name;
    PathClass path_class = PathClass::kCompute;
    int64_t sum_ns = 0;
    uint64_t count = 0;
  };
  std::vector<Row> rows() const;  // by name, most time first
};

CriticalPath critical_path(std::span<const RankProfile> ranks, const CollectiveAnalysis& collectives);

}  // namespace lockstep::profile
