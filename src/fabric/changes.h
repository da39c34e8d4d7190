// What changed when: versions (version_store.h) and what hangs where (topology_store.h), as one list.
//
// Thread rule: Thread-safe (the stores are).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::fabric {

class TopologyStore;
class VersionStore;
struct TopologyChange;

struct Change {
  int64_t time_unix_ns = 0;   // when it was reported
  std::string component;      // "host:node-01", "nic:node-01:mlx5_0", "gpu:GPU-...", "job:llama"
  std::string what;           // "driver", "firmware", "code", "nccl"; "link": where it hangs; "gpu": where it is
  std::string before, after;  // empty: it was not there, or is gone
};

Change as_change(const TopologyChange& change);

struct ChangeQuestion {
  std::string_view component;  // empty: any
  std::string_view what;       // likewise
  int64_t from_unix_ns = 0;
  int64_t to_unix_ns = INT64_MAX;  // both included
  size_t limit = 1'000;
};

struct Changes {
  std::vector<Change> shown;  // newest first
  size_t total = 0;
};

Changes find_changes(const TopologyStore& topology, const VersionStore& versions, const ChangeQuestion& question);

}  // namespace lockstep::fabric
