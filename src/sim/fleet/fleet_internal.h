// What the two halves of Fleet share: its constants (fleet.h says what they mean) and small helpers. Not for others.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "sim/fleet/job_shape.h"

namespace lockstep::sim {

// Of the rates on paper so much is reached. 1 byte/ns = 1 GB/s.
inline constexpr double kNvlinkReached = 0.75, kNicReached = 0.8;

inline constexpr int64_t kLaunchNs = 20'000;       // the host needs this long to enqueue a kernel or an operation
inline constexpr int64_t kPickupNs = 12'000;       // an idle GPU starts what was enqueued after this
inline constexpr int64_t kLatencyNs = 40'000;      // of a collective, whatever its size
inline constexpr int64_t kChunkBytes = 512 << 10;  // one proxy step of NCCL's Simple protocol
inline constexpr double kFlushNs = 3'000;          // a receive's share of the wire is the flush into GPU memory alone

// Where a healthy step goes; the rest is forward and backward passes, a backward one twice a forward one.
inline constexpr double kInputShare = 0.02, kOptimizerShare = 0.03;
// How the communication of a job is shared between the groups that it has.
inline constexpr double kWeights[kRoleCount] = {0.42, 0.30, 0.50, 0.08, 0.50, 0};
// Of the kernels of a model with experts these are theirs.
inline constexpr double kExpertShare = 0.4;

// JobNoise::times multiplies them.
inline constexpr double kStepSigma = 0.008, kPassSigma = 0.01, kWireSigma = 0.02, kInputSigma = 0.1;
inline constexpr double kFactorLeast = 0.3;  // however noisy: nothing takes less than this of its usual time
// A shock slows everything by 2 to 6 % (times JobNoise::times), for one to four steps.
inline constexpr double kShockLeast = 0.02, kShockMore = 0.04;
inline constexpr int64_t kShockStepsMax = 4;
// About one hiccup in every 1,000 rank-steps: the host (a page fault, a timer) keeps its GPU waiting once.
inline constexpr double kHiccupChance = 0.001, kHiccupShare = 0.06;

// What the job says of itself: a GPU of 989 TFLOP/s, of which a healthy step gets so much.
inline constexpr double kPeakFlops = 989.4e12, kHealthyMfu = 0.42;
inline constexpr double kTokensPerMicroBatch = 8'192;

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// What a number is drawn for.
enum Purpose : uint64_t {
  kForGpu = 1,
  kForClock,
  kForStep,
  kForPass,
  kForInput,
  kForHiccup,
  kForHost,
  kForStall,
  kForPause,
  kForStop,
  kForMessage,
  kForOptimizer,
  kForCheckpoint,
  kForGradient,
  kForWire,  // + role
  kForShock = kForWire + kRoleCount,
};

inline Role role_at(size_t index) {
  return static_cast<Role>(index);
}

inline bool is_p2p(Role role) {
  return role == Role::kPp || role == Role::kEp;
}

struct Waits {
  double own_gpu_ns = 0, peer_ns = 0, own_gpu_longest_ns = 0;
};

template <typename Flow>
void add_to_flow(Flow& flow, int64_t bytes, double wire_ns, const Waits& waits) {
  const int64_t transfers = std::max<int64_t>(1, (bytes + kChunkBytes - 1) / kChunkBytes);
  flow.transfers += transfers;
  flow.bytes += bytes;
  flow.wire_ns += static_cast<int64_t>(wire_ns);
  flow.own_gpu_ns += static_cast<int64_t>(std::max({0.0, waits.own_gpu_ns, waits.own_gpu_longest_ns}));
  flow.peer_ns += static_cast<int64_t>(std::max(0.0, waits.peer_ns));
  flow.wire_longest_ns =
      std::max(flow.wire_longest_ns, static_cast<int64_t>(1.3 * wire_ns / static_cast<double>(transfers)));
  flow.own_gpu_longest_ns = std::max(flow.own_gpu_longest_ns, static_cast<int64_t>(waits.own_gpu_longest_ns));
}

}  // namespace lockstep::sim
