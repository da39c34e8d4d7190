// Start, writing and the engine's own thread. Log, questions, sealing, merging and retention, deleting and copies are
// in engine_log.cc, engine_queries.cc, engine_seal.cc, engine_compaction.cc and engine_admin.cc.
#include "store/metrics/metric_engine.h"

#include <algorithm>
#include <set>

#include "base/contained.h"
#include "base/format_versions.h"
#include "base/log.h"
#include "base/text.h"
#include "store/sealed/found_files.h"

namespace lockstep {

using namespace metrics;

namespace {

constexpr size_t kUnloggedMax = 10'000;  // names a second; the others are in the log from the next seal on
constexpr int64_t kSyncNs = 1'000'000'000;
constexpr int64_t kRetryNs = 5'000'000'000;
// Memory that cannot be sealed may grow to so many times what is usual; then pushes are refused.
constexpr size_t kUnsealedTimes = 8;

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
  MutexLock work(work_mutex_);
  sealed::Found<BlockInfo> names = LOCKSTEP_TRY(sealed::find_files<BlockInfo>(
      {.path = block_folder(), .format = formats::kMetricBlock, .store = "metrics", .reported_end = ""}));
  next_block_ = names.next_number;
  auto found = std::make_shared<Blocks>();
  for (const auto& [name, info] : names.files) {
    Result<std::shared_ptr<const Block>> block = Block::open(block_folder(), name);
    if (block.ok()) {
      found->push_back(std::move(*block));
    } else {
      damage("block", block.error() + "; kept out");
    }
  }
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
  replaced.merge(unmade);
  sealed::drop_replaced(*found, replaced);
  std::sort(found->begin(), found->end(),
            [](const auto& a, const auto& b) { return a->info().number < b->info().number; });
  for (const auto& block : *found) {
    if (block->info().tier == 0) newest_ms_ = std::max(newest_ms_.load(), block->info().last_ms);
  }
  {
    MutexLock lock(mutex_);
    blocks_ = std::move(found);
  }
  note_blocks();
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
    return Error{format("metrics cannot be written now: %s; send this push again", committed.error().c_str()),
                 committed.code()};
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
    MutexLock lock(metadata_mutex_);
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

// What the other parts share.

std::shared_ptr<const MetricEngine::Blocks> MetricEngine::blocks() const {
  SharedLock lock(mutex_);
  return blocks_;
}

CredibleTime MetricEngine::credible_now() const {
  if (options_.witness != nullptr) return options_.witness->now();
  const int64_t now_ns = clock_.unix_ns();
  return {now_ns, now_ns};
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

// Its own thread.

void MetricEngine::note_trouble(std::string line) {
  MutexLock lock(trouble_mutex_);
  trouble_ = std::move(line);
}

std::optional<std::string> MetricEngine::trouble() const {
  for (const std::unique_ptr<Shard>& shard : shards_) {
    if (std::string failure = shard->wal().failure(); !failure.empty()) return failure;
  }
  MutexLock lock(trouble_mutex_);
  if (trouble_.empty()) return std::nullopt;
  return "metrics: " + trouble_;
}

void MetricEngine::step() {
  auto report = [&](const std::string& error) {
    const int64_t now_ns = clock_.monotonic_ns();
    if (reported_failure_ns_ != 0 && now_ns - reported_failure_ns_ < 12 * kRetryNs) return;
    reported_failure_ns_ = now_ns;
    LOCKSTEP_LOG_ERROR("metrics", "%s", error.c_str());
  };
  if (Result<void> synced = sync(); !synced.ok()) report(synced.error());
  int64_t bytes = 0;
  for (const std::unique_ptr<Shard>& shard : shards_) bytes += static_cast<int64_t>(shard->wal().bytes_appended());
  log_bytes_.store(bytes, std::memory_order_relaxed);
  // A log whose sync failed is not trusted again, nor one of an earlier process, which may have been written and not
  // synced: what is in memory becomes a block, and the log starts anew.
  if (seal_is_due() || log_is_corrupt() || log_is_old_) {
    Result<void> sealed = seal();
    if (!sealed.ok()) report(sealed.error());
    size_t held = 0;
    for (const std::unique_ptr<Shard>& shard : shards_) held += shard->strip_bytes();
    is_full_ = !sealed.ok() && held > kUnsealedTimes * std::max(options_.seal_bytes_min,
                                                                options_.seal_bytes_per_series * index_.series_count());
  }
  Result<bool> merged = merge();
  if (!merged.ok()) report(merged.error());
  retain();
  counters_.set("lockstep_metric_head_bytes", "", static_cast<int64_t>(memory_bytes()));
}

void MetricEngine::run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    if (!contained("metrics", "maintenance", [this] { step(); })) counters_.add("lockstep_store_failures_total");
    MutexLock lock(wake_mutex_);
    wake_.wait_for(wake_mutex_, stop, std::chrono::nanoseconds(kSyncNs), [] { return false; });
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
