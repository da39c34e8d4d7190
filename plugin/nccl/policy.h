// What NCCL is asked for at most, and where it is asked for less: by what its release makes of kernel events, and by
// the room that it needs for them.
//
// Thread rule: Immutable (plain data, pure functions).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "plugin/nccl/abi/common.h"

namespace lockstep::nccl {

inline constexpr uint32_t kMaskDefault =
    kEventColl | kEventP2p | kEventProxyOp | kEventProxyStep | kEventKernelCh | kEventCeColl;

inline constexpr uint32_t kSampling = 8;

struct Policy {
  uint32_t events = 0;       // the bits that may be asked for, of those the interface knows
  uint64_t small_bytes = 0;  // operations below this size count as small
  // From more than so many small ones a second on, kernel events and single transfers are asked for in one of
  // `sampling` stretches of a few steps only. UINT64_MAX: never.
  uint64_t small_per_s = 0;
  uint32_t sampling = kSampling;
  // But all of the first steps: for the verdict on what is wrong from the beginning, and to know what is usual.
  uint64_t whole_steps = 0;
  // Also of what is captured into CUDA graphs, where they make NCCL put a host callback beside every kernel.
  bool kernels_in_graphs = false;
};

// interface: of NCCL's profiler; nccl: as it numbers itself (23102 is 2.31.2), 0 where it is not known. What a person
// wants: asked, these bits, no more and no less; sampling, one stretch of so many, the first steps included.
inline Policy policy_for(int interface, uint32_t nccl, std::optional<uint32_t> asked,
                         std::optional<uint32_t> sampling) {
  uint32_t known = kMaskDefault;
  if (interface < 6) known &= ~static_cast<uint32_t>(kEventCeColl);
  if (interface < 3) known &= ~static_cast<uint32_t>(kEventKernelCh);
  if (asked) return {.events = *asked & known, .small_per_s = UINT64_MAX, .kernels_in_graphs = true};
  // From 2.31 on every kernel that has events writes its phases and fences the whole system: 4 to 13 % of an AllReduce
  // of 128 KB to 4 MB on eight A100 (NCCL issue 2355), however rarely they come. Before that 0.1 to 1.1 %.
  const bool dear = interface >= 7 || nccl >= 23100;
  Policy policy{.events = known,
                .small_bytes = dear ? 4u << 20 : 1u << 20,
                .small_per_s = dear ? uint64_t{0} : uint64_t{1000},
                .whole_steps = dear ? uint64_t{kSampling} * kSampling : 0};
  if (sampling) {
    policy.sampling = std::max(*sampling, 1u);
    policy.whole_steps = 0;
  }
  return policy;
}

// Kernel events make NCCL keep a pool of proxy operations in /dev/shm for each rank of a communicator on this node:
// 2,048 operations for each of up to 72 local ranks, some 38 MB. Where it cannot be made NCCL does not check and
// crashes (issue 2326), and 64 MiB is what a container has unless it is told otherwise.
inline constexpr uint64_t kProxyPoolBytes = 40u << 20;

inline bool room_for_kernel_events(uint64_t free_bytes, int32_t ranks, int32_t nodes) {
  const uint64_t here = ranks > 0 ? (static_cast<uint64_t>(ranks) + static_cast<uint64_t>(std::max(nodes, 1)) - 1) /
                                        static_cast<uint64_t>(std::max(nodes, 1))
                                  : 1;
  return free_bytes / kProxyPoolBytes >= here;
}

}  // namespace lockstep::nccl
