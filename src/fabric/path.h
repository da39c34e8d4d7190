// The way from one GPU to another: NVLink or PCIe within a host; adapter, leaf, spines, leaf, adapter between hosts.
//
// Between two leaves there are mostly several equal paths. Which one a flow takes is, in this order:
//   routed    the subnet manager's tables say it (InfiniBand);
//   observed  packets of the five-tuple were sampled on ports of it (FlowObserver);
//   possible  neither: all shortest paths, each switch spreading evenly over its links. A switch's hash is not guessed.
// A hop therefore has a share of the way: 1 where all of it goes there, 0.25 of one of four.
// The path is the one from a to b; the way back may be another.
//
// Limits: kHopsMax hops, the largest shares first; what is left out is counted.
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "fabric/flow_observer.h"
#include "fabric/topology.h"
#include "model/ids.h"

namespace lockstep::fabric {

class JobPlaces;

enum class PathKind : uint8_t { kSameGpu, kNvlink, kPcie, kNetwork, kUnknown };
const char* to_text(PathKind kind);  // "same_gpu", "nvlink", "pcie", "network", "unknown"

enum class Certainty : uint8_t { kReported, kDeclared, kRouted, kObserved, kPossible, kAssumed };
const char* to_text(Certainty certainty);  // "reported", "declared", "routed", "observed", "possible", "assumed"

// A node on the way, or a link between two of them.
struct Hop {
  uint32_t position = 0;  // several may stand at one: ways side by side
  NodeIndex node = kNone;
  LinkIndex link = kNone;  // then `node` is where it leads from
  double share = 1;
  Certainty sure = Certainty::kReported;
  uint64_t packets = 0;  // observed
};

struct PathQuestion {
  NodeIndex a = kNone, b = kNone;            // GPUs
  std::optional<FlowKey> flow;               // addresses of zeros: those of the adapters count
  int64_t from_unix_ns = 0, to_unix_ns = 0;  // in which packets may have been seen
};

struct FabricPath {
  PathKind kind = PathKind::kUnknown;
  std::vector<Hop> hops;  // by position, then the largest share first
  size_t hops_left_out = 0;
  size_t equal_paths = 1;  // between the leaves; 0: none is known
  NodeIndex nic_a = kNone, nic_b = kNone;
  std::optional<FlowKey> flow;     // as it was looked for
  std::vector<std::string> notes;  // what is not known, and what would tell
};
inline constexpr size_t kHopsMax = 256;

FabricPath find_path(const Topology& topology, const PathQuestion& question, const FlowObserver* observer);

// Who is meant: a rank of the job, "HOST:gpuN", or a GPU's UUID. The line says what there is instead.
struct PathEnd {
  NodeIndex gpu = kNone;
  Rank rank = kNoRank;
};
Result<PathEnd> find_path_end(const Topology& topology, const JobPlaces& places, std::string_view job,
                              std::string_view text, int64_t at_unix_ns);

}  // namespace lockstep::fabric
