#include "store/memory_metric_store.h"

#include <algorithm>
#include <mutex>

namespace lockstep {
namespace {

bool earlier(const Sample& sample, int64_t time_unix_ns) {
  return sample.time_unix_ns < time_unix_ns;
}

}  // namespace

MemoryMetricStore::MemoryMetricStore(MemoryMetricStoreOptions options, Counters& counters)
    : options_(options),
      received_(counters.at("lockstep_store_rows_received_total", "table=\"samples\"")),
      replaced_(counters.at("lockstep_store_rows_replaced_total", "table=\"samples\"")),
      dropped_(counters.at("lockstep_store_rows_dropped_total", "table=\"samples\",reason=\"limit\"")),
      refused_(counters.at("lockstep_store_rows_refused_total", "table=\"samples\",reason=\"series_limit\"")),
      held_(counters.at("lockstep_store_rows", "table=\"samples\"")),
      series_gauge_(counters.at("lockstep_store_series")) {}

AppendOutcome MemoryMetricStore::append(std::string_view name, const Labels& labels, std::string_view unit,
                                        std::string_view kind, Sample sample) {
  std::unique_lock lock(mutex_);
  received_.fetch_add(1, std::memory_order_relaxed);
  auto by_name = names_.find(name);
  auto series = by_name == names_.end() ? std::map<Labels, Entry>::iterator{} : by_name->second.find(labels);
  if (by_name == names_.end() || series == by_name->second.end()) {
    if (series_ >= options_.series_max) {
      refused_.fetch_add(1, std::memory_order_relaxed);
      return AppendOutcome::kRefusedSeriesLimit;
    }
    if (by_name == names_.end()) by_name = names_.emplace(std::string(name), std::map<Labels, Entry>{}).first;
    series = by_name->second.emplace(labels, Entry{std::string(unit), std::string(kind), {}, 0}).first;
    series_gauge_.store(static_cast<int64_t>(++series_), std::memory_order_relaxed);
  }
  Entry& entry = series->second;
  auto live = entry.samples.begin() + static_cast<std::ptrdiff_t>(entry.first);
  auto place = std::lower_bound(live, entry.samples.end(), sample.time_unix_ns, earlier);
  if (place != entry.samples.end() && place->time_unix_ns == sample.time_unix_ns) {
    *place = sample;
    replaced_.fetch_add(1, std::memory_order_relaxed);
    return AppendOutcome::kReplaced;
  }
  entry.samples.insert(place, sample);
  held_.fetch_add(1, std::memory_order_relaxed);

  size_t most = std::min(options_.samples_per_series_max, std::max<size_t>(16, options_.samples_max / series_));
  while (entry.samples.size() - entry.first > most) {
    ++entry.first;
    dropped_.fetch_add(1, std::memory_order_relaxed);
    held_.fetch_sub(1, std::memory_order_relaxed);
  }
  // Moved away a quarter at a time: each sample is moved four times at most, and a full series costs a quarter more.
  if (entry.first > most / 4) {
    entry.samples.erase(entry.samples.begin(), entry.samples.begin() + static_cast<std::ptrdiff_t>(entry.first));
    entry.first = 0;
  }
  return AppendOutcome::kStored;
}

std::vector<std::string> MemoryMetricStore::names() const {
  std::shared_lock lock(mutex_);
  std::vector<std::string> list;
  list.reserve(names_.size());
  for (const auto& [name, series] : names_) list.push_back(name);
  return list;
}

std::vector<Series> MemoryMetricStore::select(std::string_view name, int64_t from_unix_ns, int64_t to_unix_ns,
                                              size_t series_max, size_t* total) const {
  std::shared_lock lock(mutex_);
  std::vector<Series> list;
  size_t matched = 0;
  if (auto by_name = names_.find(name); by_name != names_.end()) {
    for (const auto& [labels, entry] : by_name->second) {
      auto begin = std::lower_bound(entry.samples.begin() + static_cast<std::ptrdiff_t>(entry.first),
                                    entry.samples.end(), from_unix_ns, earlier);
      auto end = begin;
      while (end != entry.samples.end() && end->time_unix_ns <= to_unix_ns) ++end;
      if (begin == end) continue;
      if (matched++ < series_max) list.push_back({std::string(name), labels, entry.unit, entry.kind, {begin, end}});
    }
  }
  if (total != nullptr) *total = matched;
  return list;
}

}  // namespace lockstep
