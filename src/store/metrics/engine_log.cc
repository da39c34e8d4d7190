// The log of MetricEngine as a whole: reading it back at the start, and its generations. A generation begins with the
// series there are; once memory is in blocks, a mark says that earlier generations count for nothing.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/disk.h"
#include "base/format_versions.h"
#include "base/log.h"
#include "base/text.h"
#include "store/metrics/metric_engine.h"

namespace lockstep {

using namespace metrics;

namespace {

constexpr uint32_t kNone = UINT32_MAX;

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

}  // namespace

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
    MutexLock lock(engine_.metadata_mutex_);
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
  MutexLock work(work_mutex_);
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

Result<void> MetricEngine::sync() {
  std::vector<MetricMetadata> unlogged;
  {
    MutexLock lock(metadata_mutex_);
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

}  // namespace lockstep
