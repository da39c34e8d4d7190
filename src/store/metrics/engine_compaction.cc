// What becomes of MetricEngine's blocks: small ones are merged to longer ones and rolled up on the way; old ones go.
#include <algorithm>

#include "base/disk.h"
#include "base/text.h"
#include "store/metrics/metric_engine.h"

namespace lockstep {

using namespace metrics;

bool MetricEngine::is_counter(std::string_view metric) const {
  {
    MutexLock lock(metadata_mutex_);
    auto known = metadata_.find(metric);
    if (known != metadata_.end() && !known->second.type.empty() && known->second.type != "unknown")
      return known->second.type == "counter";
  }
  return metric.ends_with("_total") || metric.ends_with("_bucket") || metric.ends_with("_count") ||
         metric.ends_with("_sum");
}

void MetricEngine::exchange(const Blocks& old, const Blocks& added) {
  {
    MutexLock lock(mutex_);
    auto list = std::make_shared<Blocks>(*blocks_);
    std::erase_if(*list, [&](const auto& block) { return std::find(old.begin(), old.end(), block) != old.end(); });
    list->insert(list->end(), added.begin(), added.end());
    std::sort(list->begin(), list->end(),
              [](const auto& a, const auto& b) { return a->info().number < b->info().number; });
    blocks_ = std::move(list);
  }
  for (const auto& block : old) disk::unlink(block->path());
  note_blocks();
}

// The last raw block that begins before these and is rolled up.
std::shared_ptr<const Block> MetricEngine::block_before(const Blocks& these) const {
  int64_t begin_ms = INT64_MAX;
  for (const auto& block : these) begin_ms = std::min(begin_ms, block->info().first_ms);
  std::shared_ptr<const Block> last;
  for (const auto& block : *blocks()) {
    const BlockInfo& info = block->info();
    if (info.tier == 0 && info.level > 0 && info.first_ms < begin_ms &&
        (last == nullptr || info.last_ms > last->info().last_ms))
      last = block;
  }
  return last != nullptr && last->load().ok() ? last : nullptr;
}

MetricEngine::Blocks MetricEngine::readable_of(const Blocks& these) const {
  Blocks readable;
  for (const auto& block : these) {
    if (Result<void> loaded = block->load(); loaded.ok()) {
      readable.push_back(block);
    } else if (block->first_damage()) {
      damage("block", loaded.error() + "; left as it is");
    }
  }
  return readable;
}

std::vector<Tombstone> MetricEngine::tombstones_of(const Blocks& these) const {
  std::vector<Tombstone> list;
  SharedLock lock(mutex_);
  for (const Tombstone& one : tombstones_) {
    if (std::any_of(these.begin(), these.end(),
                    [&](const auto& block) { return block->info().number <= one.block_number_max; }))
      list.push_back(one);
  }
  return list;
}

Result<void> MetricEngine::merge_these(uint32_t tier, const Blocks& inputs, uint32_t level, bool rolls_up) {
  const Blocks readable = readable_of(inputs);
  if (readable.empty()) return {};
  const std::vector<Tombstone> tombstones = tombstones_of(readable);
  BlockInfo info;
  info.tier = tier;
  info.level = level;
  for (const auto& block : readable) info.replaces.push_back(block->info().number);
  std::vector<std::unique_ptr<BlockWriter>> rollups;
  std::vector<BlockWriter*> rollup_list;
  for (uint32_t coarser = 1; rolls_up && coarser < kTiers; ++coarser) {
    BlockInfo rollup_info;
    rollup_info.tier = coarser;
    rollup_info.level = 1;
    rollup_info.number = next_block_++;
    rollup_info.replaces = info.replaces;  // made of these; gone as long as one of them is there
    std::unique_ptr<BlockWriter> writer = LOCKSTEP_TRY(BlockWriter::create(block_folder(), rollup_info));
    rollup_list.push_back(writer.get());
    rollups.push_back(std::move(writer));
  }
  info.number = next_block_++;
  std::unique_ptr<BlockWriter> writer = LOCKSTEP_TRY(BlockWriter::create(block_folder(), info));
  const std::shared_ptr<const Block> before = rollups.empty() ? nullptr : block_before(readable);
  MergeOutcome outcome = LOCKSTEP_TRY(merge_blocks(
      readable, tombstones, [this](std::string_view metric) { return is_counter(metric); }, *writer, rollup_list,
      before.get()));
  Blocks added;
  auto finish = [&](BlockWriter& one) -> Result<void> {
    BlockInfo finished = LOCKSTEP_TRY(one.finish());
    if (finished.samples == 0) {  // everything in it was deleted
      disk::unlink(block_folder() + "/" + finished.name());
      return {};
    }
    std::shared_ptr<const Block> block = LOCKSTEP_TRY(Block::open(block_folder(), finished.name()));
    added.push_back(std::move(block));
    return {};
  };
  Result<void> done;
  for (const std::unique_ptr<BlockWriter>& one : rollups) {
    if (done.ok()) done = finish(*one);
  }
  if (done.ok()) done = finish(*writer);  // the raw one last: with it the merge has happened
  if (!done.ok()) {
    for (const auto& block : added) disk::unlink(block->path());
    return done;
  }
  if (outcome.damaged_chunks > 0)
    damage("chunk", format("%llu chunks of the blocks that were merged into %s could not be read; they are a gap",
                           static_cast<unsigned long long>(outcome.damaged_chunks), info.name().c_str()));
  if (outcome.deleted > 0)
    counters_.add("lockstep_metric_samples_dropped_total", "reason=\"deleted\"", static_cast<int64_t>(outcome.deleted));
  exchange(readable, added);
  // Those that no block is left for are done.
  if (!tombstones.empty()) LOCKSTEP_TRY(save_tombstones(tombstones_of(*blocks())));
  return {};
}

Result<bool> MetricEngine::merge_tier(uint32_t tier) {
  const std::shared_ptr<const Blocks> list = blocks();
  const uint32_t lowest = tier == 0 ? 0 : 1;
  // A rolled up sample stands at the end of its time. Blocks of what is ahead wait, and hold up nobody's retention.
  const int64_t end_ms = credible_max_ms() + kTierSpacingMs[tier];
  for (uint32_t level = lowest; level < lowest + 2; ++level) {
    Blocks inputs;
    int64_t first_ms = INT64_MAX, last_ms = INT64_MIN;
    for (const auto& block : *list) {
      if (block->info().tier != tier || block->info().level != level || inputs.size() == options_.merge_blocks_max)
        continue;
      if (block->info().last_ms > end_ms || !block->load().ok()) continue;
      inputs.push_back(block);
      first_ms = std::min(first_ms, block->info().first_ms);
      last_ms = std::max(last_ms, block->info().last_ms);
    }
    if (inputs.empty()) continue;
    const int64_t spans_ms = level == 0 ? options_.merge_ms : options_.merge_day_ms;
    // A block that is long enough alone is merged only to be rolled up.
    if (last_ms - first_ms < spans_ms && inputs.size() < options_.merge_blocks_max) continue;
    if (inputs.size() == 1 && level > 0) continue;
    LOCKSTEP_TRY(merge_these(tier, inputs, level + 1, tier == 0 && level == 0));
    return true;
  }
  return false;
}

Result<bool> MetricEngine::merge() {
  MutexLock work(work_mutex_);
  for (uint32_t tier = 0; tier < kTiers; ++tier) {
    Result<bool> merged = merge_tier(tier);
    if (!merged.ok()) {
      counters_.add("lockstep_metric_write_failed_total", "what=\"merge\"");
      return Error{"metrics not merged: " + merged.error() + "; the blocks stay as they are", merged.code()};
    }
    if (*merged) return true;
  }
  return false;
}

void MetricEngine::retain() {
  MutexLock work(work_mutex_);
  const std::shared_ptr<const Blocks> list = blocks();
  const int64_t newest_ms = newest_credible_ms();
  if (newest_ms == INT64_MIN) return;
  Blocks gone;
  for (uint32_t tier = 0; tier < kTiers; ++tier) {
    Blocks kept;
    uint64_t bytes = 0;
    auto drop = [&](const std::shared_ptr<const Block>& block, const char* reason) {
      counters_.add("lockstep_metric_samples_dropped_total", format("reason=\"%s\"", reason),
                    static_cast<int64_t>(block->info().samples));
      gone.push_back(block);
    };
    int64_t oldest_ms = INT64_MAX;
    for (const auto& block : *list) {
      if (block->info().tier == tier) oldest_ms = std::min(oldest_ms, block->info().last_ms);
    }
    const int64_t cutoff_ms =
        pace_[tier].cutoff(newest_ms, options_.keep_ms[tier], oldest_ms, clock_.monotonic_ns() / 1'000'000);
    for (const auto& block : *list) {
      if (block->info().tier != tier) continue;
      if (block->info().last_ms < cutoff_ms) {
        drop(block, "retention");
      } else {
        kept.push_back(block);
        bytes += block->bytes();
      }
    }
    std::sort(kept.begin(), kept.end(),
              [](const auto& a, const auto& b) { return a->info().last_ms < b->info().last_ms; });
    for (size_t i = 0; i < kept.size() && bytes > options_.bytes_max[tier]; ++i) {
      bytes -= kept[i]->bytes();
      drop(kept[i], "limit");
    }
  }
  if (!gone.empty()) exchange(gone, {});
}

}  // namespace lockstep
