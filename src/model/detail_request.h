// What the server asks of agents: the detail of some steps after the fact, as far as it is still there; and where some
// ranks stand right now, when their job seems to hang, or where they spend their time.
//
// Thread rule: Immutable.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/ids.h"

namespace lockstep {

struct DetailRequest {
  std::string job_id;
  int64_t attempt = 0;
  StepNumber from_step;
  StepNumber to_step;       // inclusive
  std::vector<Rank> ranks;  // sorted; empty: all of the job
  bool operator==(const DetailRequest&) const = default;
};
inline constexpr int64_t kDetailStepsMax = 64;      // in one request
inline constexpr size_t kDetailRanksMax = 131'072;  // likewise

// Stacks of these ranks, and a dump of PyTorch's Flight Recorder where the job takes orders for one.
struct StackRequest {
  std::string job_id;
  int64_t attempt = 0;
  std::vector<Rank> ranks;  // sorted, 1 to kStackRanksMax
  bool operator==(const StackRequest&) const = default;
};
inline constexpr size_t kStackRanksMax = 64;  // in one request

// Where these ranks spend their time: their Python stacks, looked at so often a second for so long.
struct SampleRequest {
  std::string job_id;
  int64_t attempt = 0;
  int64_t seconds = 5;
  int64_t hz = 100;
  std::vector<Rank> ranks;  // sorted, 1 to kSampleRanksMax
  bool operator==(const SampleRequest&) const = default;
};
inline constexpr size_t kSampleRanksMax = 8;  // in one request
inline constexpr int64_t kSampleSecondsMax = 60;
inline constexpr int64_t kSampleHzMax = 250;

}  // namespace lockstep
