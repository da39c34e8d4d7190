// Making blocks: of what is in memory (sealing), and of other blocks (merging), with rollups on the way.
//
// Merging: series of the same labels become one; of equal times the block with the higher number counts. Chunks that
//   are full and disturbed by nothing are copied as they are; small ones are put together into full ones.
// Rollups: one point per minute or hour, at the end of its stretch, as series with the label __rollup__: a gauge has
//   min, max, sum, count and last, a counter last and increase. Two points of one time are one that is both.
// Deleted: samples that a tombstone covers are left out.
// Thread rule: Thread-safe (no state).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "store/metrics/block.h"
#include "store/metrics/label_sets.h"

namespace lockstep::metrics {

inline constexpr std::string_view kRollupLabel = "__rollup__";
std::string_view rollup_name(Rollup rollup);
// Two points of the same time and series.
double combined(Rollup rollup, double older, double newer);

struct Tombstone {
  std::vector<LabelMatcher> matchers;
  int64_t from_ms = 0, to_ms = 0;
  uint64_t block_number_max = 0;  // of blocks up to this one
};

// The group's samples of this range. labels(slot, to): of its series, in the writer's symbols; `numbers` are theirs in
// the block. A group that has nothing in the range is left out.
Result<void> write_group(const GroupData& data, size_t series, int64_t from_ms, int64_t to_ms, BlockWriter& writer,
                         const std::function<void(size_t slot, std::vector<LabelSymbols>& to)>& labels,
                         std::vector<uint32_t>* numbers = nullptr);

struct MergeOutcome {
  uint64_t replaced = 0;  // samples that gave way to others of the same time
  uint64_t deleted = 0;   // by tombstones
  uint64_t damaged_chunks = 0;
};

// Inputs in the order of their numbers, loaded, all of one tier. Rollup writers: for tier 1, tier 2, or none. before:
// the block with what was before them, loaded, or none: what counters rose since then counts too.
Result<MergeOutcome> merge_blocks(std::span<const std::shared_ptr<const Block>> inputs,
                                  std::span<const Tombstone> tombstones,
                                  const std::function<bool(std::string_view metric)>& is_counter, BlockWriter& writer,
                                  std::span<BlockWriter* const> rollups, const Block* before = nullptr);

}  // namespace lockstep::metrics
