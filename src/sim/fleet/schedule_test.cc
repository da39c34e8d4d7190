#include "sim/fleet/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace lockstep::sim {
namespace {

// How long the passes take in order, a forward one 1 and a backward one 2 (shared over the model chunks), with messages
// that take no time.
double length_of(Schedule schedule, int32_t stages, int32_t micro_batches, int32_t chunks) {
  std::vector<double> free_at(static_cast<size_t>(stages), 0);
  std::map<std::tuple<bool, int32_t, int32_t, int32_t>, double> arrival;
  for (const Pass& pass : all_passes(schedule, stages, micro_batches, chunks)) {
    double& stage = free_at[static_cast<size_t>(pass.stage)];
    if (pass.from_stage >= 0) {
      auto at = arrival.find({pass.forward, pass.stage, pass.micro_batch, pass.chunk});
      EXPECT_NE(at, arrival.end()) << "a pass comes behind what it needs";
      if (at != arrival.end()) stage = std::max(stage, at->second);
    }
    stage += (pass.forward ? 1.0 : 2.0) / chunks;
    if (pass.to_stage >= 0) arrival[{pass.forward, pass.to_stage, pass.micro_batch, pass.to_chunk}] = stage;
  }
  return *std::max_element(free_at.begin(), free_at.end());
}

TEST(Schedule, EveryStageDoesEveryPassOnce) {
  for (auto [schedule, chunks] :
       {std::pair{Schedule::kGpipe, 1}, {Schedule::kOneForwardOneBackward, 1}, {Schedule::kInterleaved, 3}}) {
    const std::vector<Pass> passes = all_passes(schedule, 4, 8, chunks);
    EXPECT_EQ(passes.size(), static_cast<size_t>(2 * 4 * 8 * chunks));
    std::set<std::tuple<int32_t, bool, int32_t, int32_t>> seen;
    for (const Pass& pass : passes)
      EXPECT_TRUE(seen.insert({pass.stage, pass.forward, pass.micro_batch, pass.chunk}).second);
  }
}

TEST(Schedule, OneForwardOneBackwardKeepsFewerMicroBatchesThanGpipe) {
  auto most_open = [](Schedule schedule) {
    int32_t open = 0, most = 0;
    for (const Pass& pass : passes_of_stage(schedule, 0, 4, 16, 1)) {
      open += pass.forward ? 1 : -1;
      most = std::max(most, open);
    }
    return most;
  };
  EXPECT_EQ(most_open(Schedule::kGpipe), 16);
  EXPECT_EQ(most_open(Schedule::kOneForwardOneBackward), 4);
}

// The published bubble: (stages - 1) / micro-batches of the work, divided by the model chunks where they interleave.
TEST(Schedule, TheBubbleIsTheOneOfTheFormula) {
  for (auto [stages, micro_batches] : {std::pair{2, 4}, {4, 8}, {4, 16}, {8, 32}}) {
    const double work = 3.0 * micro_batches;
    for (Schedule schedule : {Schedule::kGpipe, Schedule::kOneForwardOneBackward})
      EXPECT_NEAR(length_of(schedule, stages, micro_batches, 1) / work,
                  1 + static_cast<double>(stages - 1) / micro_batches, 1e-9)
          << to_text(schedule) << " " << stages << " x " << micro_batches;
    for (int32_t chunks : {2, 4})
      EXPECT_NEAR(length_of(Schedule::kInterleaved, stages, micro_batches, chunks) / work,
                  1 + static_cast<double>(stages - 1) / (micro_batches * chunks), 1e-9)
          << "interleaved " << stages << " x " << micro_batches << " x " << chunks;
  }
}

}  // namespace
}  // namespace lockstep::sim
