// The questions MetricEngine answers. What is in memory is copied under the engine's lock, series first and groups
// after; blocks are immutable and read without it.
#include <algorithm>
#include <set>

#include "base/text.h"
#include "model/series_labels.h"
#include "store/metrics/metric_engine.h"
#include "store/metrics/selection.h"

namespace lockstep {

using namespace metrics;

namespace {

constexpr uint32_t kNone = UINT32_MAX;
constexpr size_t kAhead = 8;  // series whose labels are sent for before their turn

Error unwanted() {
  return Error{"the series are not wanted any more"};
}

// What a selection is asked for, and when it ends before its time.
struct Question {
  const CompiledMatchers& matchers;
  const SelectOptions& options;

  bool given_up(size_t done) const { return done % 4096 == 0 && options.give_up && options.give_up(); }
  Error too_many(uint64_t have) const {
    return Error{format("more than %llu series match (%llu so far); narrow the selector or raise the limit",
                        static_cast<unsigned long long>(options.series_max), static_cast<unsigned long long>(have))};
  }
};

// The series of memory that match, and copies of the groups they are in. Nothing may be numbered anew meanwhile.
class HeadSearch {
 public:
  HeadSearch(const SeriesIndex& index, std::span<const std::unique_ptr<Shard>> shards, const Question& question,
             Selection& selection)
      : index_(index), shards_(shards), question_(question), selection_(selection) {}

  Result<void> run() {
    LOCKSTEP_TRY(find_series());
    LOCKSTEP_TRY(copy_groups());
    return add_labels();
  }

 private:
  struct Found {
    SeriesId series;
    Home home;
  };

  Result<void> find_series() {
    SeriesIndex::Reading reading(index_);
    const SeriesSet set = reading.matching(question_.matchers);
    const uint64_t series_max = question_.options.series_max;
    if (series_max > 0 && set.count() > series_max) return question_.too_many(set.count());
    found_.reserve(set.count());
    RunArray::Walk homes(reading.homes());
    set.visit([&](uint32_t series) { found_.push_back({SeriesId{series}, Home::of(homes[series])}); });
    return {};
  }

  // Shard by shard; which series are in them was settled before, under the index' lock.
  Result<void> copy_groups() {
    places_.resize(found_.size());
    for (uint32_t number = 0; number < shards_.size(); ++number) {
      Shard::Snapshot snapshot(*shards_[number]);
      std::vector<uint32_t> taken(snapshot.group_count(), kNone);  // kNone: not asked; kNone - 1: nothing there
      for (size_t i = 0; i < found_.size(); ++i) {
        if (question_.given_up(i)) return unwanted();
        const Home home = found_[i].home;
        if (home.group == kNone || home.shard() != number) continue;
        const uint32_t group = home.group_in_shard();
        if (group >= taken.size()) continue;
        if (taken[group] == kNone) {
          GroupSnapshot copy;
          if (snapshot.take(group, question_.options.from_ms, question_.options.to_ms, copy)) {
            taken[group] = static_cast<uint32_t>(selection_.snapshots().size());
            selection_.snapshots().push_back(std::move(copy));
          } else {
            taken[group] = kNone - 1;
          }
        }
        if (taken[group] != kNone - 1) places_[i] = {taken[group], home.slot};
      }
    }
    return {};
  }

  // Of those with something in the range.
  Result<void> add_labels() {
    SeriesIndex::Reading reading(index_);
    selection_.head().reserve(found_.size());
    for (size_t i = 0; i < found_.size(); ++i) {
      if (i + kAhead < found_.size()) reading.prefetch(found_[i + kAhead].series);
      if (question_.given_up(i)) return unwanted();
      if (places_[i].snapshot == kNone) continue;
      reading.labels(found_[i].series, [&](size_t count) { return selection_.sets().append_room(count); });
      selection_.head().push_back(places_[i]);
    }
    return {};
  }

  const SeriesIndex& index_;
  const std::span<const std::unique_ptr<Shard>> shards_;
  const Question& question_;
  Selection& selection_;
  std::vector<Found> found_;
  std::vector<Selection::HeadPlace> places_;  // by series found
};

// Block after block, in the order in which the selection wants them.
class BlockSearch {
 public:
  BlockSearch(const Question& question, std::span<const Tombstone> tombstones, Selection& selection)
      : question_(question),
        tombstones_(tombstones),
        selection_(selection),
        for_tiers_(in_tiers(question.options.rollup)),
        last_in_tiers_(in_tiers(Rollup::kLast)) {}

  // On error nothing of the block is in the selection.
  Result<void> add(const std::shared_ptr<const Block>& block, int64_t from_ms, int64_t to_ms) {
    LOCKSTEP_TRY(block->load());
    const bool is_rollup = block->info().tier != 0;
    SeriesSet set = LOCKSTEP_TRY(block->matching(is_rollup ? for_tiers_ : question_.matchers));
    SeriesSet last(block->series_count());
    if (is_rollup && question_.options.rollup != Rollup::kLast) last = LOCKSTEP_TRY(block->matching(last_in_tiers_));
    Selection::BlockPart part{block, from_ms, to_ms, {}, {}, {}};
    for (const Tombstone& tombstone : tombstones_) {
      if (block->info().number > tombstone.block_number_max) continue;
      Result<CompiledMatchers> gone = compile_matchers(tombstone.matchers, true);
      Result<SeriesSet> deleted = gone.ok() ? block->matching(*gone) : Result<SeriesSet>(gone.failure());
      if (deleted.ok()) part.deleted.push_back({std::move(*deleted), tombstone.from_ms, tombstone.to_ms});
    }
    LOCKSTEP_TRY(selection_.add_block(std::move(part), set, last, is_first_));
    is_first_ = false;
    return {};
  }

 private:
  CompiledMatchers in_tiers(Rollup rollup) const {
    CompiledMatchers with = question_.matchers;
    Result<CompiledMatcher> kind =
        CompiledMatcher::compile(label_is(std::string(kRollupLabel), std::string(rollup_name(rollup))));
    if (kind.ok()) with.push_back(std::move(*kind));
    return with;
  }

  const Question& question_;
  const std::span<const Tombstone> tombstones_;
  Selection& selection_;
  const CompiledMatchers for_tiers_, last_in_tiers_;
  bool is_first_ = true;
};

}  // namespace

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
  const Question question{compiled, options};
  std::unique_ptr<Selection> selection;
  std::shared_ptr<const Blocks> list;
  std::vector<Tombstone> tombstones;
  {
    SharedLock moving(mutex_);  // nothing is numbered anew meanwhile
    selection = std::make_unique<Selection>(index_.symbols(), options.rollup,
                                            [this](const Block& block, size_t count) { damaged_chunks(block, count); });
    list = blocks_;
    tombstones = tombstones_;
    LOCKSTEP_TRY(HeadSearch(index_, shards_, question, *selection).run());
  }
  BlockSearch search(question, tombstones, *selection);
  for (const Source& source : sources_of(*list, options.from_ms, options.to_ms, options.spacing_ms)) {
    if (question.given_up(0)) return unwanted();
    if (Result<void> added = search.add(source.block, source.from_ms, source.to_ms); !added.ok()) {
      if (source.block->first_damage()) damage("block", added.error() + "; what it holds is a gap");
      continue;
    }
    if (options.series_max > 0 && selection->size() > options.series_max) return question.too_many(selection->size());
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
  MutexLock lock(metadata_mutex_);
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
  SharedLock moving(mutex_);
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
      if (one.series.value() >= set.size() || !set.has(one.series.value())) continue;
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

}  // namespace lockstep
