// Sealing: all that memory holds becomes blocks, and the log starts anew.
#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "store/metrics/metric_engine.h"

namespace lockstep {

using namespace metrics;

bool MetricEngine::seal_is_due() const {
  size_t bytes = 0;
  int64_t oldest_ms = INT64_MAX;
  for (const std::unique_ptr<Shard>& shard : shards_) {
    bytes += shard->strip_bytes();
    oldest_ms = std::min(oldest_ms, shard->oldest_ms());
  }
  if (oldest_ms == INT64_MAX) return false;
  return bytes >= std::max(options_.seal_bytes_min, options_.seal_bytes_per_series * index_.series_count()) ||
         before_newest(options_.seal_age_ms) >= oldest_ms ||
         // Whatever the samples' times are: a server whose clock is behind takes them from what is its future.
         (clock_.monotonic_ns() - sealed_ns_) / 1'000'000 >= options_.seal_age_ms;
}

Result<void> MetricEngine::seal() {
  std::lock_guard work(work_mutex_);
  const uint64_t generation = ++generation_;
  std::vector<Shard::Sealing> sealing;
  bool any = false;
  for (const std::unique_ptr<Shard>& shard : shards_) {
    sealing.push_back(shard->begin_seal(generation));
    any |= !sealing.back().parts.empty();
  }
  auto failed = [&](const std::string& why) {
    for (const std::unique_ptr<Shard>& shard : shards_) shard->end_seal(false);
    note_trouble("not sealed: " + why);
    counters_.add("lockstep_metric_write_failed_total", "what=\"seal\"");
    return Error{"metrics not sealed: " + why + "; they stay in memory and in the log"};
  };
  // What is far behind goes to a block of its own, so that the other stays narrow; so does what is ahead of any
  // credible time, so that the other can age.
  const int64_t cut_ms = before_newest(options_.seal_age_ms + 1'800'000), end_ms = credible_max_ms();
  enum class Part { kOld, kPresent, kAhead };
  auto made = std::make_shared<Blocks>(*blocks());
  for (const Part part_of_time : {Part::kOld, Part::kPresent, Part::kAhead}) {
    if (!any) break;
    const bool is_old = part_of_time == Part::kOld, is_ahead = part_of_time == Part::kAhead;
    if (is_old && cut_ms == INT64_MIN) continue;  // nobody has been told of a newest sample yet
    const int64_t from_ms = is_old ? INT64_MIN : is_ahead ? end_ms + 1 : cut_ms;
    const int64_t to_ms = is_old ? cut_ms - 1 : is_ahead ? INT64_MAX : end_ms;
    bool has = false;
    for (const Shard::Sealing& one : sealing) {
      for (const Shard::Sealing::Part& part : one.parts) has |= part.data->overlaps(from_ms, to_ms);
    }
    if (!has) continue;
    BlockInfo info;
    info.number = next_block_++;
    Result<std::unique_ptr<BlockWriter>> writer = BlockWriter::create(block_folder(), info);
    if (!writer.ok()) return failed(writer.error());
    const std::shared_ptr<const Symbols> texts = index_.symbols();
    std::unordered_map<uint32_t, uint32_t> symbols, numbers;
    bool needs_numbers = false;
    for (const Shard::Sealing& one : sealing) needs_numbers |= !one.exemplars.empty();
    for (const Shard::Sealing& one : sealing) {
      for (const Shard::Sealing::Part& part : one.parts) {
        if (!part.data->overlaps(from_ms, to_ms)) continue;
        std::vector<LabelSymbols> labels;
        std::vector<uint32_t> ends;
        {
          SeriesIndex::Reading reading(index_);
          for (size_t slot = 0; slot < part.series.size(); ++slot) {
            reading.labels(static_cast<uint32_t>(part.series[slot]), labels);
            ends.push_back(static_cast<uint32_t>(labels.size()));
          }
        }
        auto symbol = [&](uint32_t ours) {
          auto [known, is_new] = symbols.try_emplace(ours, 0);
          if (is_new) known->second = (*writer)->symbol(texts->text(ours));
          return known->second;
        };
        for (LabelSymbols& label : labels) label = {symbol(label.name), symbol(label.value)};
        std::vector<uint32_t> in_block;
        Result<void> written = write_group(
            *part.data, part.series.size(), from_ms, to_ms, **writer,
            [&](size_t slot, std::vector<LabelSymbols>& to) {
              const uint32_t start = slot == 0 ? 0 : ends[slot - 1];
              to.assign(labels.begin() + start, labels.begin() + ends[slot]);
            },
            needs_numbers ? &in_block : nullptr);
        if (!written.ok()) return failed(written.error());
        for (size_t i = 0; i < in_block.size(); ++i) numbers[static_cast<uint32_t>(part.series[i])] = in_block[i];
      }
    }
    for (const Shard::Sealing& one : sealing) {
      for (const StoredExemplar& exemplar : one.exemplars) {
        if (auto known = numbers.find(exemplar.series); known != numbers.end() && part_of_time == Part::kPresent)
          (*writer)->add_exemplar(known->second, exemplar.exemplar);
      }
    }
    Result<BlockInfo> finished = (*writer)->finish();
    if (!finished.ok()) return failed(finished.error());
    Result<std::shared_ptr<const Block>> block = Block::open(block_folder(), finished->name());
    if (!block.ok()) return failed(block.error());
    made->push_back(std::move(*block));
  }
  Result<void> written = write_snapshots(generation);
  if (written.ok()) written = mark_sealed(generation);
  if (!written.ok()) {
    // The blocks are there; the log says the same again at the next start, which changes nothing.
    counters_.add("lockstep_metric_write_failed_total", "what=\"seal\"");
    note_trouble("series not written to the log: " + written.error());
    LOCKSTEP_LOG_WARN("metrics", "series not written to the log: %s; the old log stays", written.error().c_str());
    std::unique_lock lock(mutex_);
    blocks_ = std::move(made);
    for (const std::unique_ptr<Shard>& shard : shards_) shard->end_seal(true);
    return {};
  }
  {
    std::unique_lock lock(mutex_);
    blocks_ = std::move(made);
    for (const std::unique_ptr<Shard>& shard : shards_) shard->end_seal(true);
  }
  for (const std::unique_ptr<Shard>& shard : shards_) shard->wal().restated(generation);
  sealed_ns_ = clock_.monotonic_ns();
  remove_log_before(generation);
  log_is_old_ = false;
  note_trouble({});
  std::vector<uint32_t> gone;
  for (const std::unique_ptr<Shard>& shard : shards_) {
    std::vector<uint32_t> idle = shard->forget_idle(before_newest(options_.idle_ms));
    gone.insert(gone.end(), idle.begin(), idle.end());
  }
  index_.forget(gone);
  if (index_.is_mostly_forgotten(options_.gone_series_max)) renumber();
  index_.settle_memory();
  note_blocks();
  return {};
}

// Most of the work is done while others go on; then everybody waits for as long as it takes to write the new numbers
// down.
void MetricEngine::renumber() {
  const size_t gone = index_.forgotten_count();
  const int64_t began_ns = clock_.monotonic_ns();
  SeriesIndex::Renumbering renumbering(index_);
  const int64_t held_ns = clock_.monotonic_ns();
  {
    std::unique_lock lock(mutex_);
    std::vector<std::unique_lock<std::shared_mutex>> held;
    for (const std::unique_ptr<Shard>& shard : shards_) held.push_back(shard->hold());
    const std::vector<uint32_t>& numbers = renumbering.finish();
    for (const std::unique_ptr<Shard>& shard : shards_) shard->renumber(numbers, renumbering.symbols());
  }
  const int64_t now_ns = clock_.monotonic_ns();
  LOCKSTEP_LOG_INFO("metrics", "index made anew in %s without %zu series that left (writers waited for %s)",
                    human_duration(static_cast<double>(now_ns - began_ns)).c_str(), gone,
                    human_duration(static_cast<double>(now_ns - held_ns)).c_str());
}

}  // namespace lockstep
