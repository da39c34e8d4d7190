// Sealing: all that memory holds becomes blocks, and the log starts anew.
#include <algorithm>
#include <span>
#include <unordered_map>

#include "base/log.h"
#include "base/text.h"
#include "store/metrics/metric_engine.h"

namespace lockstep {

using namespace metrics;

namespace {

// Makes a block of the samples of a range of time, of those that the shards gave out to be sealed.
class RangeSealer {
 public:
  RangeSealer(const SeriesIndex& index, std::span<const Shard::Sealing> sealing, int64_t from_ms, int64_t to_ms)
      : index_(index), sealing_(sealing), from_ms_(from_ms), to_ms_(to_ms) {}

  bool has_samples() const {
    for (const Shard::Sealing& one : sealing_) {
      for (const Shard::Sealing::Part& part : one.parts) {
        if (part.data->overlaps(from_ms_, to_ms_)) return true;
      }
    }
    return false;
  }

  Result<std::shared_ptr<const Block>> write(const std::string& folder, uint64_t number, bool with_exemplars) {
    BlockInfo info;
    info.number = number;
    writer_ = LOCKSTEP_TRY(BlockWriter::create(folder, info));
    for (const Shard::Sealing& one : sealing_) needs_numbers_ |= with_exemplars && !one.exemplars.empty();
    for (const Shard::Sealing& one : sealing_) {
      for (const Shard::Sealing::Part& part : one.parts) {
        if (!part.data->overlaps(from_ms_, to_ms_)) continue;
        LOCKSTEP_TRY(write_part(part));
      }
    }
    if (with_exemplars) add_exemplars();
    BlockInfo finished = LOCKSTEP_TRY(writer_->finish());
    return Block::open(folder, finished.name());
  }

 private:
  Result<void> write_part(const Shard::Sealing::Part& part) {
    std::vector<LabelSymbols> labels;
    std::vector<uint32_t> ends;
    {
      SeriesIndex::Reading reading(index_);
      for (size_t slot = 0; slot < part.series.size(); ++slot) {
        reading.labels(SeriesId{static_cast<uint32_t>(part.series[slot])}, labels);
        ends.push_back(static_cast<uint32_t>(labels.size()));
      }
    }
    for (LabelSymbols& label : labels) label = {symbol(label.name), symbol(label.value)};
    std::vector<uint32_t> in_block;
    LOCKSTEP_TRY(write_group(
        *part.data, part.series.size(), from_ms_, to_ms_, *writer_,
        [&](size_t slot, std::vector<LabelSymbols>& to) {
          const uint32_t start = slot == 0 ? 0 : ends[slot - 1];
          to.assign(labels.begin() + start, labels.begin() + ends[slot]);
        },
        needs_numbers_ ? &in_block : nullptr));
    for (size_t i = 0; i < in_block.size(); ++i)
      numbers_[SeriesId{static_cast<uint32_t>(part.series[i])}] = in_block[i];
    return {};
  }

  void add_exemplars() {
    for (const Shard::Sealing& one : sealing_) {
      for (const StoredExemplar& exemplar : one.exemplars) {
        if (auto known = numbers_.find(exemplar.series); known != numbers_.end())
          writer_->add_exemplar(known->second, exemplar.exemplar);
      }
    }
  }

  uint32_t symbol(uint32_t ours) {
    auto [known, is_new] = symbols_.try_emplace(ours, 0);
    if (is_new) known->second = writer_->symbol(texts_->text(ours));
    return known->second;
  }

  const SeriesIndex& index_;
  const std::span<const Shard::Sealing> sealing_;
  const int64_t from_ms_, to_ms_;
  const std::shared_ptr<const Symbols> texts_ = index_.symbols();
  std::unique_ptr<BlockWriter> writer_;
  std::unordered_map<uint32_t, uint32_t> symbols_;  // by symbol of the index: that of the block
  std::unordered_map<SeriesId, uint32_t> numbers_;  // by series of the index: that of the block
  bool needs_numbers_ = false;
};

}  // namespace

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
  MutexLock work(work_mutex_);
  const uint64_t generation = ++generation_;
  std::vector<Shard::Sealing> sealing;
  for (const std::unique_ptr<Shard>& shard : shards_) sealing.push_back(shard->begin_seal(generation));
  auto made = std::make_shared<Blocks>(*blocks());
  if (Result<void> written = write_sealed(sealing, *made); !written.ok()) {
    for (const std::unique_ptr<Shard>& shard : shards_) shard->end_seal(false);
    note_trouble("not sealed: " + written.error());
    counters_.add("lockstep_metric_write_failed_total", "what=\"seal\"");
    return Error{"metrics not sealed: " + written.error() + "; they stay in memory and in the log", written.code()};
  }
  Result<void> written = write_snapshots(generation);
  if (written.ok()) written = mark_sealed(generation);
  if (!written.ok()) {
    // The blocks are there; the log says the same again at the next start, which changes nothing.
    counters_.add("lockstep_metric_write_failed_total", "what=\"seal\"");
    note_trouble("series not written to the log: " + written.error());
    LOCKSTEP_LOG_WARN("metrics", "series not written to the log: %s; the old log stays", written.error().c_str());
  }
  {
    MutexLock lock(mutex_);
    blocks_ = std::move(made);
    for (const std::unique_ptr<Shard>& shard : shards_) shard->end_seal(true);
  }
  if (!written.ok()) return {};
  for (const std::unique_ptr<Shard>& shard : shards_) shard->wal().restated(generation);
  sealed_ns_ = clock_.monotonic_ns();
  remove_log_before(generation);
  log_is_old_ = false;
  note_trouble({});
  forget_idle();
  note_blocks();
  return {};
}

// What is far behind goes to a block of its own, so that the other stays narrow; so does what is ahead of any credible
// time, so that the other can age.
Result<void> MetricEngine::write_sealed(std::span<const Shard::Sealing> sealing, Blocks& made) {
  const int64_t cut_ms = before_newest(options_.seal_age_ms + 1'800'000), end_ms = credible_max_ms();
  if (std::all_of(sealing.begin(), sealing.end(), [](const Shard::Sealing& one) { return one.parts.empty(); }))
    return {};
  enum class Part { kOld, kPresent, kAhead };
  for (const Part part_of_time : {Part::kOld, Part::kPresent, Part::kAhead}) {
    const bool is_old = part_of_time == Part::kOld, is_ahead = part_of_time == Part::kAhead;
    if (is_old && cut_ms == INT64_MIN) continue;  // nobody has been told of a newest sample yet
    const int64_t from_ms = is_old ? INT64_MIN : is_ahead ? end_ms + 1 : cut_ms;
    const int64_t to_ms = is_old ? cut_ms - 1 : is_ahead ? INT64_MAX : end_ms;
    RangeSealer sealer(index_, sealing, from_ms, to_ms);
    if (!sealer.has_samples()) continue;
    std::shared_ptr<const Block> block =
        LOCKSTEP_TRY(sealer.write(block_folder(), next_block_++, part_of_time == Part::kPresent));
    made.push_back(std::move(block));
  }
  return {};
}

void MetricEngine::forget_idle() {
  std::vector<SeriesId> gone;
  for (const std::unique_ptr<Shard>& shard : shards_) {
    std::vector<SeriesId> idle = shard->forget_idle(before_newest(options_.idle_ms));
    gone.insert(gone.end(), idle.begin(), idle.end());
  }
  index_.forget(gone);
  if (index_.is_mostly_forgotten(options_.gone_series_max)) renumber();
  index_.settle_memory();
}

// Most of the work is done while others go on; then everybody waits for as long as it takes to write the new numbers
// down.
void MetricEngine::renumber() {
  const size_t gone = index_.forgotten_count();
  const int64_t began_ns = clock_.monotonic_ns();
  SeriesIndex::Renumbering renumbering(index_);
  const int64_t held_ns = clock_.monotonic_ns();
  {
    MutexLock lock(mutex_);
    std::deque<Shard::Hold> held;
    for (const std::unique_ptr<Shard>& shard : shards_) held.emplace_back(*shard);
    const std::vector<SeriesId>& numbers = renumbering.finish();
    for (const std::unique_ptr<Shard>& shard : shards_) shard->renumber(numbers, renumbering.symbols());
  }
  const int64_t now_ns = clock_.monotonic_ns();
  LOCKSTEP_LOG_INFO("metrics", "index made anew in %s without %zu series that left (writers waited for %s)",
                    human_duration(static_cast<double>(now_ns - began_ns)).c_str(), gone,
                    human_duration(static_cast<double>(now_ns - held_ns)).c_str());
}

}  // namespace lockstep
