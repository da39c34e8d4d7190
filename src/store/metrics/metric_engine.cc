#include "store/metrics/metric_engine.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/contained.h"
#include "base/crc32c.h"
#include "base/disk.h"
#include "base/format_versions.h"
#include "base/log.h"
#include "base/text.h"
#include "base/utc_time.h"
#include "model/series_labels.h"
#include "store/columns/byte_codec.h"
#include "store/columns/sealed_file.h"
#include "store/metrics/selection.h"

namespace lockstep {

using namespace metrics;

namespace {

constexpr size_t kUnloggedMax = 10'000;  // names a second; the others are in the log from the next seal on
constexpr uint32_t kNone = UINT32_MAX;
constexpr size_t kAhead = 8;  // series whose labels are sent for before their turn
constexpr int64_t kSyncNs = 1'000'000'000;
constexpr int64_t kRetryNs = 5'000'000'000;
// Memory that cannot be sealed may grow to so many times what is usual; then pushes are refused.
constexpr size_t kUnsealedTimes = 8;
constexpr uint64_t kTombstoneBytesMax = 64u << 20;

// The name of a file in the log's folder: what was logged before this generation is in blocks.
constexpr std::string_view kSealedPrefix = "sealed-";
std::string sealed_name(uint64_t generation) {
  return format("%.*s%08llu", static_cast<int>(kSealedPrefix.size()), kSealedPrefix.data(),
                static_cast<unsigned long long>(generation));
}
std::optional<uint64_t> sealed_generation(std::string_view name) {
  if (!name.starts_with(kSealedPrefix)) return std::nullopt;
  return parse_uint(name.substr(kSealedPrefix.size()));
}

std::string tier_label(uint32_t tier) {
  return tier == 0 ? "tier=\"raw\"" : tier == 1 ? "tier=\"1m\"" : "tier=\"1h\"";
}

}  // namespace

MetricEngine::MetricEngine(MetricEngineOptions options, const Clock& clock, Counters& counters)
    : options_(std::move(options)),
      clock_(clock),
      counters_(counters),
      received_(counters.at("lockstep_metric_samples_received_total")),
      stored_(counters.at("lockstep_metric_samples_stored_total")),
      replaced_(counters.at("lockstep_metric_samples_replaced_total")),
      repeated_(counters.at("lockstep_metric_samples_repeated_total")),
      log_bytes_(counters.at("lockstep_metric_log_bytes_total")),
      hash_(options_.hash_seed),
      index_(options_.limits, options_.memory),
      sealed_ns_(clock.monotonic_ns()),
      metadata_memory_(options_.memory, MemoryUse::kSeries) {}

Result<std::unique_ptr<MetricEngine>> MetricEngine::open(MetricEngineOptions options, const Clock& clock,
                                                         Counters& counters) {
  options.shards = std::clamp<uint32_t>(options.shards, 1, 1u << Home::kShardBits);
  std::unique_ptr<MetricEngine> engine(new MetricEngine(std::move(options), clock, counters));
  for (const std::string& folder : {engine->options_.folder, engine->log_folder(), engine->block_folder()}) {
    LOCKSTEP_TRY(make_directories(folder));
  }
  engine->lock_ = LOCKSTEP_TRY(lock_folder(engine->options_.folder, "metrics store"));
  LOCKSTEP_TRY(engine->load_blocks());
  LOCKSTEP_TRY(engine->load_tombstones());
  LOCKSTEP_TRY(engine->replay_log());
  if (engine->options_.background)
    engine->worker_ = std::jthread([raw = engine.get()](std::stop_token stop) { raw->run(stop); });
  return engine;
}

MetricEngine::~MetricEngine() {
  if (worker_.joinable()) {
    worker_.request_stop();
    worker_.join();
  }
  Result<void> synced = sync();
  if (!synced.ok() && log_is_corrupt()) synced = seal();
  if (!synced.ok())
    LOCKSTEP_LOG_ERROR("metrics", "the log could not be written at the end: %s", synced.error().c_str());
}

void MetricEngine::damage(const char* where, const std::string& line) const {
  LOCKSTEP_LOG_ERROR("metrics", "%s", line.c_str());
  counters_.add("lockstep_metric_damage_total", format("where=\"%s\"", where));
}

void MetricEngine::damaged_chunks(const Block& block, size_t count) const {
  counters_.add("lockstep_metric_damage_total", "where=\"chunk\"", static_cast<int64_t>(count));
  if (block.first_damage())
    LOCKSTEP_LOG_ERROR("metrics", "%s: chunks with a wrong checksum; what they held is a gap", block.path().c_str());
}

// Start.

Result<void> MetricEngine::load_blocks() {
  std::vector<std::string> names = LOCKSTEP_TRY(list_directory(block_folder()));
  auto found = std::make_shared<Blocks>();
  for (const std::string& name : names) {
    const std::string path = block_folder() + "/" + name;
    if (name.ends_with(".part")) {  // a crash while it was written; what it was made of is still there
      disk::unlink(path);
      continue;
    }
    std::optional<BlockInfo> info = BlockInfo::from_name(name);
    if (!info) {
      LOCKSTEP_LOG_WARN("metrics", "%s: not a name of ours; left alone", path.c_str());
      continue;
    }
    LOCKSTEP_TRY(columns::check_sealed_version(formats::kMetricBlock, path));
    next_block_ = std::max(next_block_, info->number + 1);
    Result<std::shared_ptr<const Block>> block = Block::open(block_folder(), name);
    if (block.ok()) {
      found->push_back(std::move(*block));
    } else {
      damage("block", block.error() + "; kept out");
    }
  }
  // What is concluded from a name holds after the next crash too only if the name does.
  LOCKSTEP_TRY(sync_directory(block_folder()));
  // A crash after blocks were merged: the old ones go; a rollup whose raw part was not finished goes too.
  std::set<uint64_t> replaced, there;
  for (const auto& block : *found) {
    there.insert(block->info().number);
    if (block->info().tier == 0) replaced.insert(block->info().replaces.begin(), block->info().replaces.end());
  }
  std::set<uint64_t> unmade;
  for (const auto& block : *found) {
    if (block->info().tier == 0) continue;
    for (uint64_t number : block->info().replaces) {
      if (!there.contains(number)) continue;
      const bool same_tier = std::any_of(found->begin(), found->end(), [&](const auto& other) {
        return other->info().number == number && other->info().tier == block->info().tier;
      });
      if (same_tier) {
        replaced.insert(number);
      } else if (!replaced.contains(number)) {
        unmade.insert(block->info().number);
      }
    }
  }
  std::erase_if(*found, [&](const auto& block) {
    const uint64_t number = block->info().number;
    if (!replaced.contains(number) && !unmade.contains(number)) return false;
    disk::unlink(block->path());
    return true;
  });
  std::sort(found->begin(), found->end(),
            [](const auto& a, const auto& b) { return a->info().number < b->info().number; });
  for (const auto& block : *found) {
    if (block->info().tier == 0) newest_ms_ = std::max(newest_ms_.load(), block->info().last_ms);
  }
  blocks_ = std::move(found);
  note_blocks();
  return {};
}

// What the log says, put back. Series are known by their labels, so that a record may come from a program with other
// shards or groups.
class MetricEngine::Replay final : public WalVisitor {
 public:
  Replay(MetricEngine& engine, uint32_t log) : engine_(engine), log_(log), shard_(log % engine.shards_.size()) {}

  // The files of its shard, sorted.
  void run(std::span<const WalFileName> files) {
    for (const WalFileName& file : files) {
      if (file.shard != log_) continue;
      if (file.segment == 0) homes_.clear();
      symbols_.clear();
      reader_.begin_segment();
      const std::string path = engine_.log_folder() + "/" + file.text();
      Result<WalReadOutcome> outcome =
          read_wal_file(path, [&](std::string_view record) { return reader_.read(record, *this); });
      if (!outcome.ok()) {
        engine_.damage("log", outcome.error() + "; its samples are a gap");
      } else if (!outcome->damage.empty()) {
        engine_.damage("log",
                       format("%s: %s; what follows in this file is a gap", path.c_str(), outcome->damage.c_str()));
      } else if (outcome->torn) {
        engine_.counters_.add("lockstep_metric_log_torn_total");
        LOCKSTEP_LOG_WARN("metrics", "%s: cut at byte %llu, where a crash ended it", path.c_str(),
                          static_cast<unsigned long long>(outcome->bytes_good));
      }
    }
  }

  void on_text(std::string_view text) override { symbols_.push_back(texts_->intern(text)); }
  void on_series(uint32_t group, uint32_t first_slot, const LabelRows& series) override {
    std::vector<Home>& homes = homes_[group];
    if (homes.size() < first_slot + series.size()) homes.resize(first_slot + series.size());
    known_ = series;
    for (LabelSymbols& label : known_.labels) label = {symbols_[label.name], symbols_[label.value]};
    engine_.shards_[shard_]->restore_series(known_, first_slot > 0 ? homes[first_slot - 1] : Home{},
                                            std::span(homes).subspan(first_slot, series.size()));
  }
  void on_run(uint32_t group, int64_t time_ms, uint32_t first_slot, std::span<const double> values) override {
    auto known = homes_.find(group);
    if (known == homes_.end() || first_slot + values.size() > known->second.size()) {
      lost += values.size();
      return;
    }
    samples += values.size();
    newest_ms = std::max(newest_ms, time_ms);
    std::span<const Home> homes = std::span<const Home>(known->second).subspan(first_slot, values.size());
    while (!homes.empty()) {
      size_t same = 1;
      while (same < homes.size() && homes[same].shard() == homes[0].shard()) ++same;
      if (homes[0].group == kNone || homes[0].shard() >= engine_.shards_.size()) {
        lost += same;  // the record that said which series it is has not been read
      } else {
        engine_.shards_[homes[0].shard()]->restore_run(homes.first(same), time_ms, values.first(same));
      }
      homes = homes.subspan(same);
      values = values.subspan(same);
    }
  }
  void on_histogram(uint32_t group, uint32_t slot, int64_t time_ms, NativeHistogram histogram) override {
    const Home home = home_of(group, slot);
    if (home.group == kNone) {
      ++lost;
      return;
    }
    newest_ms = std::max(newest_ms, time_ms);
    engine_.shards_[home.shard()]->restore_histogram(home, time_ms, std::move(histogram));
  }
  void on_exemplar(uint32_t group, uint32_t slot, int64_t time_ms, double value, Labels labels) override {
    const Home home = home_of(group, slot);
    if (home.group == kNone) return;
    Shard& shard = *engine_.shards_[home.shard()];
    shard.restore_exemplar(shard.series_at(home), {std::move(labels), value, time_ms});
  }
  void on_metadata(MetricMetadata metadata) override {
    std::lock_guard lock(engine_.metadata_mutex_);
    engine_.metadata_[metadata.name] = std::move(metadata);
  }

  uint64_t samples = 0, lost = 0;
  int64_t newest_ms = INT64_MIN;

 private:
  Home home_of(uint32_t group, uint32_t slot) const {
    auto known = homes_.find(group);
    return known == homes_.end() || slot >= known->second.size() ? Home{} : known->second[slot];
  }
  MetricEngine& engine_;
  const uint32_t log_;    // the shard that wrote it,
  const uint32_t shard_;  // and the one that takes its series now
  WalRecordReader reader_;
  const std::shared_ptr<Symbols> texts_ = engine_.index_.symbols();
  std::vector<uint32_t> symbols_;  // by text of the file: ours
  LabelRows known_;
  std::unordered_map<uint32_t, std::vector<Home>> homes_;
};

Result<void> MetricEngine::replay_log() {
  std::vector<std::string> names = LOCKSTEP_TRY(list_directory(log_folder()));
  uint64_t sealed = 0;
  for (const std::string& name : names) sealed = std::max(sealed, sealed_generation(name).value_or(0));
  generation_ = std::max(generation_, sealed);
  std::vector<WalFileName> files;
  for (const std::string& name : names) {
    WalFileName file;
    if (WalFileName::parse(name, file)) {
      // Of two generations before that one may be there and what it depends on gone.
      if (file.generation < sealed) continue;
      // Before anything is read or written: a log that cannot be read would be replaced.
      LOCKSTEP_TRY(formats::check_file(formats::kMetricLog, log_folder() + "/" + name));
      files.push_back(file);
    } else if (name.ends_with(".tmp")) {
      disk::unlink(log_folder() + "/" + name);
    }
  }
  std::sort(files.begin(), files.end(), [](const WalFileName& a, const WalFileName& b) {
    return std::tuple(a.shard, a.generation, a.segment) < std::tuple(b.shard, b.generation, b.segment);
  });
  for (const WalFileName& file : files) generation_ = std::max(generation_, file.generation + 1);
  for (uint32_t i = 0; i < options_.shards; ++i)
    shards_.push_back(
        std::make_unique<Shard>(i, index_, hash_, options_.limits, options_.labels,
                                std::make_unique<Wal>(log_folder(), i, generation_, options_.segment_bytes_max),
                                options_.exemplars_max / options_.shards));
  remove_log_before(sealed);
  if (files.empty()) return {};

  LOCKSTEP_LOG_INFO("metrics", "reading the log, %zu files; nothing is taken or answered until that is done",
                    files.size());
  const int64_t start_ns = clock_.monotonic_ns();
  std::vector<Replay> replays;
  std::vector<std::jthread> readers;  // logs of different shards are about different series
  for (size_t i = 0; i < files.size(); ++i) {
    if (i == 0 || files[i].shard != files[i - 1].shard) replays.emplace_back(*this, files[i].shard);
  }
  for (Replay& replay : replays) readers.emplace_back([&] { replay.run(files); });
  readers.clear();
  uint64_t samples = 0, lost = 0;
  for (const Replay& replay : replays) {
    samples += replay.samples;
    lost += replay.lost;
    newest_ms_ = std::max(newest_ms_.load(), replay.newest_ms);
  }
  if (lost > 0)
    damage("log", format("%llu samples of the log belong to series that damage has hidden; they are a gap",
                         static_cast<unsigned long long>(lost)));
  LOCKSTEP_TRY(write_snapshots(generation_));
  log_is_old_ = samples > 0;
  index_.settle_memory();
  counters_.set("lockstep_metric_series", "", static_cast<int64_t>(index_.series_count()));
  LOCKSTEP_LOG_INFO("metrics", "%zu series and %llu samples from the log in %s", index_.series_count(),
                    static_cast<unsigned long long>(samples),
                    human_duration(static_cast<double>(clock_.monotonic_ns() - start_ns)).c_str());
  return {};
}

// Writing.

Result<PushOutcome> MetricEngine::push(std::string_view stream, std::span<const PushedSeries> series,
                                       const std::function<Result<Labels>(size_t k)>& canonical) {
  if (series.empty()) return PushOutcome{};
  Shard& shard = *shards_[hash_(stream).b % shards_.size()];
  if (std::string failure = shard.wal().failure(); !failure.empty()) {
    // One try: where the disk has room again, this push goes through.
    if (Result<void> written = shard.wal().flush(false); !written.ok())
      return Error{format("metrics cannot be written now: %s; nothing of this push was taken", failure.c_str())};
  }
  if (is_full_.load(std::memory_order_relaxed))
    return Error{"metrics cannot be written to blocks and memory is full; nothing of this push was taken"};
  uint64_t received = 0;
  for (const PushedSeries& one : series) received += one.histograms.empty() ? one.values.size() : one.histograms.size();
  TimeBounds bounds;
  bounds.newest_ms = credible_now().latest_unix_ns / 1'000'000 + options_.future_ms;
  bounds.oldest_ms = before_newest(options_.late_ms);

  PushTally tally;
  thread_local std::vector<Shard::Foreign> foreign;
  foreign.clear();
  const uint64_t end = shard.push(stream, series, canonical, bounds, tally, foreign);
  Result<void> committed = end == 0 ? Result<void>{} : shard.wal().commit(end, options_.ack);
  std::stable_sort(foreign.begin(), foreign.end(),
                   [](const Shard::Foreign& a, const Shard::Foreign& b) { return a.home.group < b.home.group; });
  std::vector<Home> gone;
  for (size_t i = 0; i < foreign.size() && committed.ok();) {
    size_t same = i + 1;
    while (same < foreign.size() && foreign[same].home.shard() == foreign[i].home.shard()) ++same;
    Shard& other = *shards_[foreign[i].home.shard()];
    const uint64_t other_end = other.push_foreign(std::span(foreign).subspan(i, same - i), tally, gone);
    if (other_end != 0) committed = other.wal().commit(other_end, options_.ack);
    i = same;
  }
  if (!gone.empty()) shard.forget_entries(gone);
  int64_t seen = newest_ms_.load(std::memory_order_relaxed);
  while (seen < tally.newest_ms && !newest_ms_.compare_exchange_weak(seen, tally.newest_ms)) {
  }
  if (!committed.ok()) {
    counters_.add("lockstep_metric_write_failed_total", "what=\"log\"");
    return Error{format("metrics cannot be written now: %s; send this push again", committed.error().c_str())};
  }
  received_.fetch_add(static_cast<int64_t>(received), std::memory_order_relaxed);
  stored_.fetch_add(static_cast<int64_t>(tally.outcome.stored), std::memory_order_relaxed);
  replaced_.fetch_add(static_cast<int64_t>(tally.outcome.replaced), std::memory_order_relaxed);
  repeated_.fetch_add(static_cast<int64_t>(tally.outcome.repeated), std::memory_order_relaxed);
  for (const RefusedSamples& refused : tally.outcome.refused)
    counters_.add("lockstep_metric_samples_refused_total", format("reason=\"%s\"", refused.reason.c_str()),
                  static_cast<int64_t>(refused.samples));
  return std::move(tally.outcome);
}

void MetricEngine::set_metadata(std::string_view name, std::string_view type, std::string_view help,
                                std::string_view unit) {
  MetricMetadata metadata{std::string(name), std::string(type), std::string(help), std::string(unit)};
  {
    std::lock_guard lock(metadata_mutex_);
    auto known = metadata_.find(name);
    if (known != metadata_.end() && known->second.type == type && known->second.help == help &&
        known->second.unit == unit)
      return;
    const uint64_t bytes = 2 * (name.size() + type.size() + help.size() + unit.size()) + 2 * sizeof metadata;
    if (known == metadata_.end() && !metadata_memory_.hold(bytes)) {
      counters_.add("lockstep_metric_metadata_refused_total");
      return;
    }
    metadata_[metadata.name] = metadata;
    if (unlogged_metadata_.size() < kUnloggedMax) unlogged_metadata_.push_back(std::move(metadata));
  }
}

// Reading.

std::shared_ptr<const MetricEngine::Blocks> MetricEngine::blocks() const {
  std::shared_lock lock(mutex_);
  return blocks_;
}

// The wanted tier for what has been rolled up, raw blocks for what has not; and where a tier begins later than a
// coarser one, the coarser one before that: what retention has left.
std::vector<MetricEngine::Source> MetricEngine::sources_of(const Blocks& blocks, int64_t from_ms, int64_t to_ms,
                                                           int64_t spacing_ms) {
  uint32_t wanted = 0;
  while (wanted + 1 < kTiers && kTierSpacingMs[wanted + 1] <= spacing_ms) ++wanted;
  std::vector<Source> list;
  int64_t until_ms = to_ms;  // coarser tiers answer up to here
  for (uint32_t tier = wanted; tier < kTiers; ++tier) {
    int64_t begins_ms = INT64_MAX;
    for (const auto& block : blocks) {
      const BlockInfo& info = block->info();
      if (info.tier != tier || (tier == 0 && wanted == 0 && info.level == 0)) continue;
      begins_ms = std::min(begins_ms, info.first_ms - kTierSpacingMs[tier]);
    }
    for (const auto& block : blocks) {
      const BlockInfo& info = block->info();
      const bool unrolled = info.tier == 0 && info.level == 0;
      if (tier == wanted && unrolled) {
        list.push_back({block, from_ms, to_ms});
      } else if (info.tier == tier && !unrolled && from_ms <= until_ms) {
        list.push_back({block, from_ms, until_ms});
      }
    }
    if (begins_ms != INT64_MAX) until_ms = std::min(until_ms, begins_ms - 1);
  }
  std::erase_if(list, [&](const Source& source) {
    return source.block->info().first_ms > source.to_ms || source.block->info().last_ms < source.from_ms;
  });
  std::sort(list.begin(), list.end(), [](const Source& a, const Source& b) {
    return std::tuple(b.block->info().tier, a.block->info().number) <
           std::tuple(a.block->info().tier, b.block->info().number);
  });
  return list;
}

Result<std::unique_ptr<MetricSelection>> MetricEngine::select(std::span<const LabelMatcher> matchers,
                                                              const SelectOptions& options) const {
  CompiledMatchers compiled = LOCKSTEP_TRY(compile_matchers(matchers));
  std::unique_ptr<Selection> selection;
  auto too_many = [&](uint64_t have) {
    return Error{format("more than %llu series match (%llu so far); narrow the selector or raise the limit",
                        static_cast<unsigned long long>(options.series_max), static_cast<unsigned long long>(have))};
  };
  const Error unwanted{"the series are not wanted any more"};
  auto given_up = [&](size_t done) { return done % 4096 == 0 && options.give_up && options.give_up(); };
  std::shared_ptr<const Blocks> list;
  std::vector<Tombstone> tombstones;
  {
    std::shared_lock moving(mutex_);  // nothing is numbered anew meanwhile
    selection = std::make_unique<Selection>(index_.symbols(), options.rollup,
                                            [this](const Block& block, size_t count) { damaged_chunks(block, count); });
    list = blocks_;
    tombstones = tombstones_;
    struct Found {
      uint32_t series;
      Home home;
    };
    std::vector<Found> found;
    {
      SeriesIndex::Reading reading(index_);
      const SeriesSet set = reading.matching(compiled);
      if (options.series_max > 0 && set.count() > options.series_max) return too_many(set.count());
      found.reserve(set.count());
      RunArray::Walk homes(reading.homes());
      set.visit([&](uint32_t series) { found.push_back({series, Home::of(homes[series])}); });
    }
    // Groups are copied shard by shard; which series are in them was settled before, under the index' lock.
    std::vector<Selection::HeadPlace> places(found.size());
    for (uint32_t number = 0; number < shards_.size(); ++number) {
      Shard::Snapshot snapshot(*shards_[number]);
      std::vector<uint32_t> taken(snapshot.group_count(), kNone);  // kNone: not asked; kNone - 1: nothing there
      for (size_t i = 0; i < found.size(); ++i) {
        if (given_up(i)) return unwanted;
        const Home home = found[i].home;
        if (home.group == kNone || home.shard() != number) continue;
        const uint32_t group = home.group_in_shard();
        if (group >= taken.size()) continue;
        if (taken[group] == kNone) {
          GroupSnapshot copy;
          if (snapshot.take(group, options.from_ms, options.to_ms, copy)) {
            taken[group] = static_cast<uint32_t>(selection->snapshots().size());
            selection->snapshots().push_back(std::move(copy));
          } else {
            taken[group] = kNone - 1;
          }
        }
        if (taken[group] != kNone - 1) places[i] = {taken[group], home.slot};
      }
    }
    SeriesIndex::Reading reading(index_);
    selection->head().reserve(found.size());
    for (size_t i = 0; i < found.size(); ++i) {
      if (i + kAhead < found.size()) reading.prefetch(found[i + kAhead].series);
      if (given_up(i)) return unwanted;
      if (places[i].snapshot == kNone) continue;
      reading.labels(found[i].series, [&](size_t count) { return selection->sets().append_room(count); });
      selection->head().push_back(places[i]);
    }
  }
  auto in_tiers = [&](Rollup rollup) {
    CompiledMatchers with = compiled;
    Result<CompiledMatcher> kind =
        CompiledMatcher::compile(label_is(std::string(kRollupLabel), std::string(rollup_name(rollup))));
    if (kind.ok()) with.push_back(std::move(*kind));
    return with;
  };
  const CompiledMatchers for_tiers = in_tiers(options.rollup), last_in_tiers = in_tiers(Rollup::kLast);
  bool is_first = true;
  for (const Source& source : sources_of(*list, options.from_ms, options.to_ms, options.spacing_ms)) {
    if (given_up(0)) return unwanted;
    if (Result<void> loaded = source.block->load(); !loaded.ok()) {
      if (source.block->first_damage()) damage("block", loaded.error() + "; what it holds is a gap");
      continue;
    }
    const bool is_rollup = source.block->info().tier != 0;
    Result<SeriesSet> set = source.block->matching(is_rollup ? for_tiers : compiled);
    Result<SeriesSet> last = is_rollup && options.rollup != Rollup::kLast ? source.block->matching(last_in_tiers)
                                                                          : SeriesSet(source.block->series_count());
    if (!set.ok() || !last.ok()) {
      if (source.block->first_damage())
        damage("block", (set.ok() ? last.error() : set.error()) + "; what it holds is a gap");
      continue;
    }
    Selection::BlockPart part{source.block, source.from_ms, source.to_ms, {}, {}, {}};
    for (const Tombstone& tombstone : tombstones) {
      if (source.block->info().number > tombstone.block_number_max) continue;
      Result<CompiledMatchers> gone = compile_matchers(tombstone.matchers, true);
      Result<SeriesSet> deleted = gone.ok() ? source.block->matching(*gone) : Result<SeriesSet>(gone.failure());
      if (deleted.ok()) part.deleted.push_back({std::move(*deleted), tombstone.from_ms, tombstone.to_ms});
    }
    if (Result<void> added = selection->add_block(std::move(part), *set, *last, is_first); !added.ok()) {
      if (source.block->first_damage()) damage("block", added.error() + "; what it holds is a gap");
      continue;
    }
    is_first = false;
    if (options.series_max > 0 && selection->size() > options.series_max) return too_many(selection->size());
  }
  return std::unique_ptr<MetricSelection>(std::move(selection));
}

// Of everything, without going through the series: the dictionaries of memory and of the blocks in the range.
std::set<std::string> MetricEngine::all_of(
    const std::function<void(const SeriesIndex::Reading&, std::vector<std::string>&)>& head,
    const std::function<void(const Block&, std::vector<std::string>&)>& block, int64_t from_ms, int64_t to_ms) const {
  std::vector<std::string> texts;
  head(SeriesIndex::Reading(index_), texts);
  for (const auto& one : *blocks()) {
    if (one->info().first_ms <= to_ms && one->info().last_ms >= from_ms && one->load().ok()) block(*one, texts);
  }
  return {texts.begin(), texts.end()};
}

Result<std::vector<std::string>> MetricEngine::label_names(std::span<const std::vector<LabelMatcher>> any,
                                                           int64_t from_ms, int64_t to_ms) const {
  std::set<std::string> names;
  auto collect = [&](std::span<const LabelMatcher> matchers) -> Result<void> {
    std::unique_ptr<MetricSelection> selection = LOCKSTEP_TRY(select(matchers, {.from_ms = from_ms, .to_ms = to_ms}));
    std::set<uint32_t> symbols;
    for (size_t i = 0; i < selection->size(); ++i) {
      for (const LabelSymbols& label : selection->labels(i)) symbols.insert(label.name);
    }
    for (uint32_t symbol : symbols) names.emplace(selection->text(symbol));
    return {};
  };
  if (any.empty()) {
    names = all_of([](const SeriesIndex::Reading& head, std::vector<std::string>& to) { head.names(to); },
                   [](const Block& block, std::vector<std::string>& to) { block.label_names(to); }, from_ms, to_ms);
    names.erase(std::string(kRollupLabel));
  }
  for (const std::vector<LabelMatcher>& matchers : any) {
    LOCKSTEP_TRY(collect(matchers));
  }
  return std::vector<std::string>(names.begin(), names.end());
}

Result<std::vector<std::string>> MetricEngine::label_values(std::string_view name,
                                                            std::span<const std::vector<LabelMatcher>> any,
                                                            int64_t from_ms, int64_t to_ms) const {
  std::set<std::string> values;
  auto collect = [&](std::span<const LabelMatcher> matchers) -> Result<void> {
    std::unique_ptr<MetricSelection> selection = LOCKSTEP_TRY(select(matchers, {.from_ms = from_ms, .to_ms = to_ms}));
    std::set<uint32_t> symbols;
    uint32_t wanted = kNone;
    for (size_t i = 0; i < selection->size(); ++i) {
      for (const LabelSymbols& label : selection->labels(i)) {
        if (wanted == kNone && selection->text(label.name) == name) wanted = label.name;
        if (label.name == wanted) symbols.insert(label.value);
      }
    }
    for (uint32_t symbol : symbols) values.emplace(selection->text(symbol));
    return {};
  };
  if (any.empty()) {
    values =
        all_of([&](const SeriesIndex::Reading& head, std::vector<std::string>& to) { head.values(name, to); },
               [&](const Block& block, std::vector<std::string>& to) { block.label_values(name, to); }, from_ms, to_ms);
  }
  for (const std::vector<LabelMatcher>& matchers : any) {
    LOCKSTEP_TRY(collect(matchers));
  }
  return std::vector<std::string>(values.begin(), values.end());
}

std::vector<MetricMetadata> MetricEngine::metadata() const {
  std::lock_guard lock(metadata_mutex_);
  std::vector<MetricMetadata> list;
  for (const auto& [name, metadata] : metadata_) list.push_back(metadata);
  return list;
}

Result<std::vector<Exemplar>> MetricEngine::exemplars(std::span<const LabelMatcher> matchers, int64_t from_ms,
                                                      int64_t to_ms) const {
  CompiledMatchers compiled = LOCKSTEP_TRY(compile_matchers(matchers));
  std::vector<Exemplar> list;
  auto wanted = [&](const PushedExemplar& exemplar) {
    return exemplar.time_ms >= from_ms && exemplar.time_ms <= to_ms;
  };
  std::shared_lock moving(mutex_);
  {
    std::vector<StoredExemplar> stored;
    for (const std::unique_ptr<Shard>& shard : shards_) {
      Shard::Snapshot snapshot(*shard);
      for (const std::deque<StoredExemplar>* part : {&snapshot.exemplars_sealing(), &snapshot.exemplars()}) {
        for (const StoredExemplar& one : *part) {
          if (wanted(one.exemplar)) stored.push_back(one);
        }
      }
    }
    SeriesIndex::Reading reading(index_);
    const SeriesSet set = reading.matching(compiled);
    std::vector<LabelSymbols> labels;
    for (StoredExemplar& one : stored) {
      if (one.series >= set.size() || !set.has(one.series)) continue;
      Exemplar exemplar;
      labels.clear();
      reading.labels(one.series, labels);
      for (const LabelSymbols& label : labels)
        exemplar.series_labels.emplace_back(reading.symbols().text(label.name), reading.symbols().text(label.value));
      exemplar.labels = std::move(one.exemplar.labels);
      exemplar.value = one.exemplar.value;
      exemplar.time_ms = one.exemplar.time_ms;
      list.push_back(std::move(exemplar));
    }
  }
  for (const auto& block : *blocks_) {
    if (block->info().tier != 0 || !block->load().ok()) continue;
    std::vector<std::pair<uint32_t, PushedExemplar>> stored;
    if (!block->exemplars(stored) || stored.empty()) continue;
    Result<SeriesSet> set = block->matching(compiled);
    if (!set.ok()) continue;
    std::vector<LabelSymbols> labels;
    for (auto& [series, one] : stored) {
      if (!set->has(series) || !wanted(one) || !block->labels(series, labels)) continue;
      Exemplar exemplar;
      for (const LabelSymbols& label : labels)
        exemplar.series_labels.emplace_back(block->text(label.name), block->text(label.value));
      exemplar.labels = std::move(one.labels);
      exemplar.value = one.value;
      exemplar.time_ms = one.time_ms;
      list.push_back(std::move(exemplar));
    }
  }
  std::sort(list.begin(), list.end(), [](const Exemplar& a, const Exemplar& b) {
    return std::tie(a.series_labels, a.time_ms) < std::tie(b.series_labels, b.time_ms);
  });
  return list;
}

CardinalityReport MetricEngine::cardinality(size_t top) const {
  CardinalityReport report;
  report.series = index_.series_count();
  report.limits = options_.limits;
  report.metrics = index_.largest("__name__", top);
  report.jobs = index_.largest("job_id", top);
  report.tenants = index_.largest(kTenantLabel, top);
  for (const std::unique_ptr<Shard>& shard : shards_) {
    for (Creator& stream : shard->largest_streams(top)) report.streams.push_back(std::move(stream));
  }
  std::sort(report.streams.begin(), report.streams.end(),
            [](const Creator& a, const Creator& b) { return a.series > b.series; });
  if (report.streams.size() > top) report.streams.resize(top);
  for (const char* reason : {"series_limit", "job_limit", "metric_limit", "tenant_limit", "agent_limit", "too_old",
                             "future", "label_forbidden", "labels_invalid", "reserved_nan"}) {
    if (const int64_t samples =
            counters_.value("lockstep_metric_samples_refused_total", format("reason=\"%s\"", reason)))
      report.refused[reason] = samples;
  }
  return report;
}

// Sealing.

CredibleTime MetricEngine::credible_now() const {
  if (options_.witness != nullptr) return options_.witness->now();
  const int64_t now_ns = clock_.unix_ns();
  return {now_ns, now_ns};
}

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

Result<void> MetricEngine::write_snapshots(uint64_t generation) {
  for (uint32_t i = 0; i < shards_.size(); ++i) {
    std::vector<std::string> records = shards_[i]->series_records();
    if (i == 0) {
      WalRecordWriter writer;
      for (const MetricMetadata& one : metadata()) writer.add_metadata(one);
      if (!writer.empty()) records.push_back(writer.bytes());
    }
    LOCKSTEP_TRY(write_wal_file(log_folder() + "/" + WalFileName{i, generation, 0}.text(), records));
  }
  return {};
}

Result<void> MetricEngine::mark_sealed(uint64_t generation) {
  const std::string path = log_folder() + "/" + sealed_name(generation);
  UniqueFd file(disk::open(path, disk::Open::kWrite));
  if (!file.valid()) return Error{path + ": " + std::strerror(errno)};
  Result<void> synced = sync_directory(log_folder());
  if (!synced.ok()) disk::unlink(path);
  return synced;
}

void MetricEngine::remove_log_before(uint64_t generation) {
  Result<std::vector<std::string>> names = list_directory(log_folder());
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    WalFileName file;
    const bool is_old = WalFileName::parse(name, file) ? file.generation < generation
                                                       : sealed_generation(name).value_or(generation) < generation;
    if (is_old) disk::unlink(log_folder() + "/" + name);
  }
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

void MetricEngine::note_blocks() {
  const std::shared_ptr<const Blocks> list = blocks();
  int64_t counts[kTiers] = {}, bytes[kTiers] = {};
  for (const auto& block : *list) {
    ++counts[block->info().tier];
    bytes[block->info().tier] += static_cast<int64_t>(block->bytes());
  }
  for (uint32_t tier = 0; tier < kTiers; ++tier) {
    counters_.set("lockstep_metric_blocks", tier_label(tier), counts[tier]);
    counters_.set("lockstep_metric_block_bytes", tier_label(tier), bytes[tier]);
  }
  counters_.set("lockstep_metric_series", "", static_cast<int64_t>(index_.series_count()));
}

// Merging.

bool MetricEngine::is_counter(std::string_view metric) const {
  {
    std::lock_guard lock(metadata_mutex_);
    auto known = metadata_.find(metric);
    if (known != metadata_.end() && !known->second.type.empty() && known->second.type != "unknown")
      return known->second.type == "counter";
  }
  return metric.ends_with("_total") || metric.ends_with("_bucket") || metric.ends_with("_count") ||
         metric.ends_with("_sum");
}

void MetricEngine::exchange(const Blocks& old, const Blocks& added) {
  {
    std::unique_lock lock(mutex_);
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

Result<void> MetricEngine::merge_these(uint32_t tier, const Blocks& inputs, uint32_t level, bool rolls_up) {
  Blocks readable, unreadable;
  for (const auto& block : inputs) {
    if (Result<void> loaded = block->load(); loaded.ok()) {
      readable.push_back(block);
    } else {
      if (block->first_damage()) damage("block", loaded.error() + "; left as it is");
      unreadable.push_back(block);
    }
  }
  if (readable.empty()) return {};
  std::vector<Tombstone> tombstones;
  {
    std::shared_lock lock(mutex_);
    for (const Tombstone& one : tombstones_) {
      if (std::any_of(readable.begin(), readable.end(),
                      [&](const auto& block) { return block->info().number <= one.block_number_max; }))
        tombstones.push_back(one);
    }
  }
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
  if (!tombstones.empty()) {
    std::vector<Tombstone> left;
    {
      std::shared_lock lock(mutex_);
      left = tombstones_;
      std::erase_if(left, [&](const Tombstone& one) {
        return std::none_of(blocks_->begin(), blocks_->end(),
                            [&](const auto& block) { return block->info().number <= one.block_number_max; });
      });
    }
    LOCKSTEP_TRY(save_tombstones(left));
  }
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
  std::lock_guard work(work_mutex_);
  for (uint32_t tier = 0; tier < kTiers; ++tier) {
    Result<bool> merged = merge_tier(tier);
    if (!merged.ok()) {
      counters_.add("lockstep_metric_write_failed_total", "what=\"merge\"");
      return Error{"metrics not merged: " + merged.error() + "; the blocks stay as they are"};
    }
    if (*merged) return true;
  }
  return false;
}

void MetricEngine::retain() {
  std::lock_guard work(work_mutex_);
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

// Deleting.

Result<void> MetricEngine::remove(std::span<const LabelMatcher> matchers, int64_t from_ms, int64_t to_ms) {
  LOCKSTEP_TRY(compile_matchers(matchers));
  auto too_many = [&](size_t have) -> Result<void> {
    if (have < options_.tombstones_max) return {};
    return refuse_admin("deletion", "limit",
                        format("metrics not deleted: %zu deletions are not merged away yet (limit %zu); POST "
                               ".../admin/tsdb/clean_tombstones first",
                               have, options_.tombstones_max));
  };
  {  // before a block is made for nothing
    std::shared_lock lock(mutex_);
    LOCKSTEP_TRY(too_many(tombstones_.size()));
  }
  // Everything that is there becomes a block first, so that the tombstone is about blocks alone.
  LOCKSTEP_TRY(seal());
  std::lock_guard work(work_mutex_);
  std::vector<Tombstone> list;
  {
    std::shared_lock lock(mutex_);
    list = tombstones_;
  }
  LOCKSTEP_TRY(too_many(list.size()));
  list.push_back({{matchers.begin(), matchers.end()}, from_ms, to_ms, next_block_ - 1});
  return save_tombstones(list);
}

Error MetricEngine::refuse_admin(const char* what, const char* reason, const std::string& line) const {
  counters_.add("lockstep_metric_admin_refused_total", format("what=\"%s\",reason=\"%s\"", what, reason));
  LOCKSTEP_LOG_WARN("metrics", "%s", line.c_str());
  return Error{line};
}

// A copy takes no room as long as the engine has the same blocks: it may come to take all of theirs.
Result<void> MetricEngine::has_room_for_snapshot() const {
  const std::string folder = options_.folder + "/snapshots";
  std::error_code failed;
  size_t copies = 0;
  uint64_t bytes = 0;
  std::set<std::string> seen;  // the same block in several copies is there once
  for (std::filesystem::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    ++copies;
    std::error_code ignored;
    for (std::filesystem::directory_iterator block(at->path() / "blocks", ignored); !ignored && block != end;
         block.increment(ignored)) {
      if (!seen.insert(block->path().filename().string()).second) continue;
      const uint64_t size = block->file_size(ignored);
      if (!ignored) bytes += size;
    }
  }
  if (copies >= options_.snapshots_max)
    return refuse_admin("snapshot", "limit",
                        format("metrics not copied: %s holds %zu copies (limit %zu); delete one there", folder.c_str(),
                               copies, options_.snapshots_max));
  uint64_t more = 0;
  for (const auto& block : *blocks()) more += seen.contains(block->info().name()) ? 0 : block->bytes();
  auto human = [](uint64_t count) { return human_bytes(static_cast<double>(count)); };
  if (bytes + more > options_.snapshot_bytes_max)
    return refuse_admin(
        "snapshot", "bytes",
        format("metrics not copied: with this one copies in %s would take %s (limit %s); delete one there",
               folder.c_str(), human(bytes + more).c_str(), human(options_.snapshot_bytes_max).c_str()));
  const std::filesystem::space_info disk = std::filesystem::space(options_.folder, failed);
  if (!failed && disk.available < disk_bytes())
    return refuse_admin("snapshot", "disk",
                        format("metrics not copied: a copy may come to take %s and the disk has %s free",
                               human(disk_bytes()).c_str(), human(disk.available).c_str()));
  return {};
}

Result<void> MetricEngine::clean() {
  std::lock_guard work(work_mutex_);
  std::vector<Tombstone> tombstones;
  {
    std::shared_lock lock(mutex_);
    tombstones = tombstones_;
  }
  const std::shared_ptr<const Blocks> list = blocks();
  for (uint32_t tier = 0; tier < kTiers; ++tier) {
    // Of two samples of the same time the one in the block of the higher number is shown: what overlaps a block that
    // gets a new number gets one too.
    Blocks rewritten;
    for (const auto& block : *list) {
      const BlockInfo& info = block->info();
      if (info.tier != tier) continue;
      const auto meets = [&](int64_t from_ms, int64_t to_ms) {
        return info.first_ms <= to_ms && info.last_ms >= from_ms;
      };
      const bool is_due = std::any_of(tombstones.begin(), tombstones.end(), [&](const Tombstone& one) {
        return info.number <= one.block_number_max && meets(one.from_ms, one.to_ms);
      });
      const bool overlaps = std::any_of(rewritten.begin(), rewritten.end(), [&](const auto& other) {
        return meets(other->info().first_ms, other->info().last_ms);
      });
      if (!is_due && !overlaps) continue;
      LOCKSTEP_TRY(merge_these(tier, {block}, info.level, false));
      rewritten.push_back(block);
    }
  }
  // Blocks that are left have nothing of what was deleted.
  return save_tombstones({});
}

Result<std::string> MetricEngine::snapshot() {
  LOCKSTEP_TRY(has_room_for_snapshot());
  LOCKSTEP_TRY(seal());
  std::lock_guard work(work_mutex_);  // no block goes meanwhile, and no other copy is made
  LOCKSTEP_TRY(has_room_for_snapshot());
  const std::string time = utc_time(clock_.unix_ns() / 1'000'000, "%Y%m%dT%H%M%SZ");
  const std::string name = format("%s-%llu", time.c_str(), static_cast<unsigned long long>(next_block_++));
  const std::string folder = options_.folder + "/snapshots/" + name;
  Result<void> done = make_directories(folder + "/blocks");
  for (const auto& block : *blocks()) {
    const std::string to = folder + "/blocks/" + block->info().name();
    if (done.ok() && disk::link(block->path(), to) != 0) done = Error{to + ": " + std::strerror(errno)};
  }
  if (done.ok() && disk::exists(options_.folder + "/tombstones")) {
    Result<std::string> tombstones = read_file(options_.folder + "/tombstones", kTombstoneBytesMax);
    done = tombstones.ok() ? write_file_atomically(folder + "/tombstones", *tombstones) : tombstones.failure();
  }
  if (done.ok()) done = sync_directory(folder + "/blocks");
  if (done.ok()) done = sync_directory(folder);
  if (done.ok()) return name;
  for (const std::string& part : {folder + "/blocks", folder}) {
    if (Result<std::vector<std::string>> names = list_directory(part); names.ok()) {
      for (const std::string& left : *names) disk::unlink(part + "/" + left);
    }
    disk::remove_folder(part);
  }
  return done.failure();
}

Result<void> MetricEngine::save_tombstones(const std::vector<Tombstone>& list) {
  std::string bytes(formats::kTombstones.magic);
  columns::put_fixed(bytes, formats::kTombstones.version);
  columns::put_varint(bytes, list.size());
  for (const Tombstone& one : list) {
    columns::put_varint(bytes, one.block_number_max);
    columns::put_signed(bytes, one.from_ms);
    columns::put_signed(bytes, one.to_ms);
    columns::put_varint(bytes, one.matchers.size());
    for (const LabelMatcher& matcher : one.matchers) {
      bytes.push_back(static_cast<char>(matcher.op));
      columns::put_bytes(bytes, matcher.name);
      columns::put_bytes(bytes, matcher.value);
    }
  }
  columns::put_fixed(bytes, crc32c(bytes));
  if (bytes.size() > kTombstoneBytesMax)
    return refuse_admin("deletion", "bytes",
                        format("metrics not deleted: the list of deletions would have %zu bytes (limit %llu); POST "
                               ".../admin/tsdb/clean_tombstones first",
                               bytes.size(), static_cast<unsigned long long>(kTombstoneBytesMax)));
  LOCKSTEP_TRY(write_file_atomically(options_.folder + "/tombstones", bytes));
  std::unique_lock lock(mutex_);
  tombstones_ = list;
  return {};
}

Result<void> MetricEngine::load_tombstones() {
  const std::string path = options_.folder + "/tombstones";
  if (!disk::exists(path)) return {};
  LOCKSTEP_TRY(formats::check_file(formats::kTombstones, path));
  std::string bytes = LOCKSTEP_TRY(read_file(path, kTombstoneBytesMax));
  auto corrupt = [&] {
    damage("block", path + ": cannot be read; samples that were deleted and not yet merged away are seen again");
    return Result<void>{};
  };
  if (bytes.size() < 4) return corrupt();
  // Version 1 had no head.
  const bool has_head = formats::read_head(formats::kTombstones, bytes).found == formats::Found::kKnown;
  const size_t head_bytes = has_head ? formats::kTombstones.magic.size() + sizeof(uint32_t) : 0;
  if (bytes.size() < head_bytes + 4) return corrupt();
  columns::ByteReader in(std::string_view(bytes).substr(head_bytes, bytes.size() - 4 - head_bytes));
  columns::ByteReader end(std::string_view(bytes).substr(bytes.size() - 4));
  if (crc32c(std::string_view(bytes).substr(0, bytes.size() - 4)) != end.fixed<uint32_t>()) return corrupt();
  std::vector<Tombstone> list(in.count());
  for (Tombstone& one : list) {
    one.block_number_max = in.varint();
    one.from_ms = in.signed_varint();
    one.to_ms = in.signed_varint();
    one.matchers.resize(in.count(3));
    for (LabelMatcher& matcher : one.matchers) {
      matcher.op = static_cast<LabelMatcher::Op>(in.fixed<uint8_t>() & 3);
      matcher.name = in.bytes();
      matcher.value = in.bytes();
    }
  }
  if (!in.ok()) return corrupt();
  tombstones_ = std::move(list);
  return {};
}

// Its own thread.

Result<void> MetricEngine::sync() {
  std::vector<MetricMetadata> unlogged;
  {
    std::lock_guard lock(metadata_mutex_);
    unlogged.swap(unlogged_metadata_);
  }
  for (const MetricMetadata& one : unlogged) shards_[0]->log_metadata(one);
  Result<void> outcome;
  for (const std::unique_ptr<Shard>& shard : shards_) {
    if (Result<void> written = shard->wal().flush(true); !written.ok()) outcome = written;
  }
  return outcome;
}

bool MetricEngine::log_is_corrupt() const {
  return std::any_of(shards_.begin(), shards_.end(), [](const auto& shard) { return shard->wal().is_corrupt(); });
}

void MetricEngine::note_trouble(std::string line) {
  std::lock_guard lock(trouble_mutex_);
  trouble_ = std::move(line);
}

std::optional<std::string> MetricEngine::trouble() const {
  for (const std::unique_ptr<Shard>& shard : shards_) {
    if (std::string failure = shard->wal().failure(); !failure.empty()) return failure;
  }
  std::lock_guard lock(trouble_mutex_);
  if (trouble_.empty()) return std::nullopt;
  return "metrics: " + trouble_;
}

void MetricEngine::step() {
  auto tell = [&](const std::string& error) {
    const int64_t now_ns = clock_.monotonic_ns();
    if (reported_failure_ns_ != 0 && now_ns - reported_failure_ns_ < 12 * kRetryNs) return;
    reported_failure_ns_ = now_ns;
    LOCKSTEP_LOG_ERROR("metrics", "%s", error.c_str());
  };
  if (Result<void> synced = sync(); !synced.ok()) tell(synced.error());
  int64_t bytes = 0;
  for (const std::unique_ptr<Shard>& shard : shards_) bytes += static_cast<int64_t>(shard->wal().bytes_appended());
  log_bytes_.store(bytes, std::memory_order_relaxed);
  // A log whose sync failed is not trusted again, nor one of an earlier process, which may have been written and not
  // synced: what is in memory becomes a block, and the log starts anew.
  if (seal_is_due() || log_is_corrupt() || log_is_old_) {
    Result<void> sealed = seal();
    if (!sealed.ok()) tell(sealed.error());
    size_t held = 0;
    for (const std::unique_ptr<Shard>& shard : shards_) held += shard->strip_bytes();
    is_full_ = !sealed.ok() && held > kUnsealedTimes * std::max(options_.seal_bytes_min,
                                                                options_.seal_bytes_per_series * index_.series_count());
  }
  Result<bool> merged = merge();
  if (!merged.ok()) tell(merged.error());
  retain();
  counters_.set("lockstep_metric_head_bytes", "", static_cast<int64_t>(memory_bytes()));
}

void MetricEngine::run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    if (!contained("metrics", "maintenance", [this] { step(); })) counters_.add("lockstep_store_failures_total");
    std::unique_lock lock(wake_mutex_);
    wake_.wait_for(lock, stop, std::chrono::nanoseconds(kSyncNs), [] { return false; });
  }
}

size_t MetricEngine::memory_bytes() const {
  size_t bytes = index_.memory_bytes();
  for (const std::unique_ptr<Shard>& shard : shards_) bytes += shard->memory_bytes();
  return bytes;
}

uint64_t MetricEngine::disk_bytes() const {
  uint64_t bytes = 0;
  for (const auto& block : *blocks()) bytes += block->bytes();
  return bytes;
}

}  // namespace lockstep
