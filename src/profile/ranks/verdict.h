// One sentence over all ranks of a profile: which rank, which kernel, why; or that no rank stands out, and where the time
// goes.
//
// Who: in a job that meets in collectives a slow rank is the one that waits least: the others wait for it. What it costs
// is what it does more than they (computing, copying, being idle), as far as they do wait for it: waiting that is hidden
// behind computation still moves the collective, and what comes after it, to where nothing hides it.
// Why: what the rank does per step more than the median of the others, kernel by kernel; then what its kernels' names,
// precisions, alignments, counts and shapes say of the difference. Time that is in no kernel is the host's.
// Where nobody waits for anybody, a rank that computes longer than all the others is named as hidden: it costs nothing
// until communication becomes quicker.
//
// Thread rule: Thread-safe (no state).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "profile/ranks/collectives.h"
#include "profile/ranks/rank_profile.h"

namespace lockstep::profile {

enum class Reason : uint8_t {
  kNone,           // nothing stands out
  kPrecision,      // fp32 where the others run bf16, or without tensor cores
  kUnaligned,      // shapes that need a kernel for unaligned operands
  kExtraCopies,    // copies that the others do not make
  kExtraCalls,     // other kernels that the others do not call, or less often
  kLargerShapes,   // the same kernel on more work
  kOtherKernel,    // another kernel for the same operator
  kSlowerKernel,   // the same kernel on the same work, slower
  kAllSlower,      // all kernels, by about the same factor: clocks, power, a shared GPU
  kLaunchBound,    // the GPU waits for launches
  kDataLoading,    // the GPU waits for data
  kHost,           // the GPU waits for other work of the host
  kCommunication,  // exposed communication, on all ranks alike
  kMemoryBound,    // of a profile without a slow rank: what most of its time is bound by
  kComputeBound,
  kUnknown,
};
const char* to_text(Reason reason);  // "higher_precision"

// How a rank's kernels differ from the median of others, per step.
struct KernelDifference {
  std::string name;
  std::string op;
  KernelTraits traits;
  double own_ns = 0;    // per step
  double peers_ns = 0;  // median
  double own_count = 0;
  double peers_count = 0;
  double extra_ns() const { return own_ns - peers_ns; }
};
// A rank that computes longer than the others while nobody waits for it: communication hides it, as yet.
struct HiddenRank {
  Rank rank = kNoRank;
  Reason reason = Reason::kNone;
  std::string kernel, instead_of, op;
  int64_t extra_ns = 0;  // per step
};
struct ProfileVerdict {
  Reason reason = Reason::kNone;
  std::vector<Rank> ranks;  // the slow ones; empty: none stands out
  std::string kernel;       // empty: not a kernel's matter
  std::string instead_of;   // the kernel that the others run
  std::string op;
  int64_t cost_ns = 0;  // per step, that the others wait for these ranks
  double share = 0;     // of a step
  std::string sentence;
  std::vector<std::string> evidence;
  std::optional<HiddenRank> hidden;           // only where no rank is slow; the sentence says it too
  std::vector<KernelDifference> differences;  // of the slow (or hidden) ranks against the others, most time more first
};

// Most time more first. Of the first against the others.
std::vector<KernelDifference> kernel_differences(std::span<const RankProfile* const> ones,
                                                 std::span<const RankProfile* const> others);

ProfileVerdict judge(std::span<const RankProfile> ranks, const CollectiveAnalysis& collectives);

}  // namespace lockstep::profile
