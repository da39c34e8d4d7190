#include "store/metrics/shard.h"

#include <algorithm>
#include <set>

#include "base/mutex.h"
#include "base/text.h"

namespace lockstep::metrics {
namespace {

constexpr size_t kOwnGroupMin = 64;    // new series of a push that are worth a group beside that of their neighbours
constexpr size_t kEntriesMin = 4'096;  // fewer may stay, whatever they stand for

std::string labels_text(const Labels& labels) {
  std::string name, text;
  for (const auto& [key, value] : labels) {
    if (key == "__name__") {
      name = value;
      continue;
    }
    if (text.size() > 200) {
      text += ",...";
      break;
    }
    text += (text.empty() ? "" : ",") + key + "=\"" + value + "\"";
  }
  return as_one_line(name + "{" + text + "}");
}

// Sorted, each name once, with a metric name; labels without a value are no labels.
const char* unfit(Labels& labels, const SeriesLimits& limits) {
  std::erase_if(labels, [](const auto& label) { return label.second.empty(); });
  if (labels.empty() || labels.size() > limits.labels_max) return "it has no labels or too many";
  bool has_name = false;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (i > 0 && labels[i - 1].first >= labels[i].first) return "its labels are not sorted, or one is there twice";
    if (labels[i].first.empty() || labels[i].first.size() + labels[i].second.size() > limits.label_bytes_max)
      return "a label is too long or has no name";
    has_name |= labels[i].first == "__name__";
  }
  return has_name ? nullptr : "it has no metric name";
}

SeriesId series_in(const Group& group, size_t slot) {
  return SeriesId{static_cast<uint32_t>(group.series[slot])};
}

}  // namespace

void PushTally::refuse(const char* reason, uint64_t samples, uint64_t histograms,
                       const std::function<std::string()>& example) {
  for (RefusedSamples& known : outcome.refused) {
    if (known.reason == reason) {
      known.samples += samples;
      known.histograms += histograms;
      return;
    }
  }
  outcome.refused.push_back({reason, samples, histograms, example()});
}

Shard::Shard(uint32_t number, SeriesIndex& index, const LabelHash& hash, const SeriesLimits& limits,
             const LabelRules& rules, std::unique_ptr<Wal> wal, size_t exemplars_max)
    : number_(number),
      index_(index),
      hash_(hash),
      limits_(limits),
      rules_(rules),
      wal_(std::move(wal)),
      exemplars_max_(exemplars_max) {}

Shard::Stream& Shard::stream_of(std::string_view name) {
  auto known = streams_.find(name);
  if (known == streams_.end()) known = streams_.emplace(std::string(name), Stream{hash_(name), kNone, 0}).first;
  return known->second;
}

uint32_t Shard::find_entry(const Hash128& hash) const {
  if (entry_slots_.empty()) return kNone;
  const size_t mask = entry_slots_.size() - 1;
  for (size_t at = hash.a & mask; entry_slots_[at] != 0; at = (at + 1) & mask) {
    const uint32_t entry = entry_slots_[at] - 1;
    if (entries_[entry] == hash) return entry;
  }
  return kNone;
}

// Bytes whose series left and was made anew get a new entry; the old one is not found any more.
void Shard::add_entry(const Hash128& hash, Home home) {
  auto slot_of = [&](const Hash128& wanted) LOCKSTEP_REQUIRES(mutex_) {
    const size_t mask = entry_slots_.size() - 1;
    size_t at = wanted.a & mask;
    while (entry_slots_[at] != 0 && !(entries_[entry_slots_[at] - 1] == wanted)) at = (at + 1) & mask;
    return at;
  };
  if ((entries_.size() + 1) * 10 > entry_slots_.size() * 8) {
    entry_slots_.assign(std::max<size_t>(1024, entry_slots_.size() * 2), 0);
    for (uint32_t i = 0; i < entries_.size(); ++i) entry_slots_[slot_of(entries_[i])] = i + 1;
  }
  const size_t slot = slot_of(hash);
  entries_.push_back(hash);
  entry_homes_.push_back(home.word());
  entry_slots_[slot] = static_cast<uint32_t>(entries_.size());
}

Group* Shard::local_group(Home home) {
  if (home.group == kNone || home.shard() != number_ || home.group_in_shard() >= groups_.size()) return nullptr;
  Group* group = groups_[home.group_in_shard()].get();
  return group == nullptr || home.slot >= group->series.size() ? nullptr : group;
}

void Shard::begin_record() {
  const uint64_t epoch = wal_->begin_record();
  if (epoch != epoch_) record_.begin_segment();
  epoch_ = epoch;
  record_.clear();
}

uint64_t Shard::end_record() {
  return record_.empty() ? 0 : wal_->append(record_.bytes());
}

// A new series joins the group of its neighbour in the push, where the times are the same; so that what one agent sends
// for one time is one group.
Home Shard::room_in_group(Stream* stream, Home neighbour, bool same_time, uint32_t first_group) {
  Group* group = same_time ? local_group(neighbour) : nullptr;
  uint32_t number = neighbour.group_in_shard();
  const bool may_join = group != nullptr && group->series.size() < kGroupSlotsMax && number >= first_group &&
                        (makers_[number] == stream || makers_[number] == nullptr);
  if (!may_join) {
    number = static_cast<uint32_t>(groups_.size());
    groups_.push_back(std::make_unique<Group>());
    makers_.push_back(nullptr);
    group = groups_.back().get();
  }
  if (makers_[number] == nullptr && stream != nullptr) {
    makers_[number] = stream;
    stream->series += group->series.size();
  }
  return {Home::pack(number_, number), static_cast<uint32_t>(group->series.size())};
}

void Shard::RowWriter::end_run() {
  shard_.mutex_.assert_held();
  if (run_end_ > run_start_ && logs_)
    shard_.record_.add_run(group_number_, time_ms_, run_start_, {row_.cells + run_start_, run_end_ - run_start_},
                           row_.before != nullptr ? row_.before + run_start_ : nullptr);
  run_start_ = run_end_ = 0;
}

void Shard::RowWriter::put(Home home, int64_t time_ms, double value) {
  shard_.mutex_.assert_held();
  const uint32_t number = home.group_in_shard();
  if (number != group_number_ || time_ms != time_ms_ || group_ == nullptr) {
    end_run();
    group_ = shard_.groups_[number].get();
    group_number_ = number;
    time_ms_ = time_ms;
    row_ = group_->row(time_ms, shard_.epoch_, shard_.strip_bytes_);
    tally_.newest_ms = std::max(tally_.newest_ms, time_ms);
  }
  double& cell = row_.cells[home.slot];
  double before = load_cell(cell);
  if (is_absent(before) && row_.may_repeat) before = group_->older(home.slot, time_ms);
  if (is_absent(before)) {
    ++tally_.outcome.stored;
  } else if (std::bit_cast<uint64_t>(before) == std::bit_cast<uint64_t>(value)) {
    ++tally_.outcome.repeated;
    return;
  } else {
    ++tally_.outcome.replaced;
  }
  store_cell(cell, value);
  if (home.slot != run_end_ || run_end_ == run_start_) {
    end_run();
    run_start_ = home.slot;
  }
  run_end_ = home.slot + 1;
}

void Shard::put_histogram(Home home, int64_t time_ms, std::shared_ptr<const NativeHistogram> histogram,
                          PushTally& tally) {
  Group& group = *groups_[home.group_in_shard()];
  std::vector<HistogramSample>& list = group.data.histograms[home.slot];
  auto place = std::lower_bound(list.begin(), list.end(), time_ms,
                                [](const HistogramSample& sample, int64_t time) { return sample.time_ms < time; });
  tally.newest_ms = std::max(tally.newest_ms, time_ms);
  strip_bytes_ += 200 + (histogram->positive.size() + histogram->negative.size()) * 8;
  if (place != list.end() && place->time_ms == time_ms) {
    if (*place->histogram == *histogram) {
      ++tally.outcome.repeated;
    } else {
      ++tally.outcome.replaced;
      place->histogram = std::move(histogram);
    }
    return;
  }
  ++tally.outcome.stored;
  list.insert(place, {time_ms, std::move(histogram)});
}

void Shard::keep_exemplar(SeriesId series, PushedExemplar exemplar) {
  exemplars_.push_back({series, std::move(exemplar)});
  if (exemplars_.size() > exemplars_max_) exemplars_.pop_front();
}

uint32_t Shard::resolve_known(uint32_t next, std::span<const Hash128> hashes, std::vector<uint32_t>& missing) {
  RunArray::Walk homes(entry_homes_);
  for (size_t k = 0; k < hashes.size(); ++k) {
    if (next >= entries_.size() || !(entries_[next] == hashes[k])) next = find_entry(hashes[k]);
    if (next != kNone) {
      const Home home = Home::of(homes[next++]);
      if (home.shard() != number_ || groups_[home.group_in_shard()] != nullptr) {
        resolved_[k].home = home;
        continue;
      }
    }
    missing.push_back(static_cast<uint32_t>(k));
  }
  return next;
}

namespace {
size_t samples_of(const PushedSeries& series) {
  return std::max(series.times_ms.size(), series.histograms.size());
}
}  // namespace

struct Shard::Asked {
  uint32_t k;
  Labels labels;
  Labels moved;
};

std::vector<Shard::Asked> Shard::ask_labels(std::span<const PushedSeries> series, const std::vector<uint32_t>& missing,
                                            const std::function<Result<Labels>(size_t)>& canonical, PushTally& tally) {
  std::vector<Asked> asked;
  for (uint32_t k : missing) {
    resolved_[k].refused = true;
    auto refuse = [&](const char* reason, const std::function<std::string()>& example) {
      tally.refuse(reason, samples_of(series[k]), series[k].histograms.size(), example);
    };
    Result<Labels> labels = canonical(k);
    if (!labels.ok()) {
      refuse("labels_invalid", [&] { return labels.error(); });
      continue;
    }
    Asked one{k, std::move(*labels), {}};
    bool forbidden = false;
    for (const std::string& name : rules_.forbidden) {
      forbidden |=
          std::any_of(one.labels.begin(), one.labels.end(), [&](const auto& label) { return label.first == name; });
      if (!forbidden) continue;
      refuse("label_forbidden", [&] {
        return format(
            "%s has the label %s, which would make a series of every value; put it into an exemplar or a "
            "span",
            labels_text(one.labels).c_str(), name.c_str());
      });
      break;
    }
    if (forbidden) continue;
    for (const std::string& name : rules_.moved) {
      auto label = std::find_if(one.labels.begin(), one.labels.end(), [&](const auto& l) { return l.first == name; });
      if (label == one.labels.end()) continue;
      one.moved.push_back(std::move(*label));
      one.labels.erase(label);
    }
    if (const char* why = unfit(one.labels, limits_)) {
      refuse("labels_invalid", [&] { return format("%s: %s", labels_text(one.labels).c_str(), why); });
      continue;
    }
    asked.push_back(std::move(one));
  }
  return asked;
}

void Shard::resolve_missing(Stream& stream, std::span<const PushedSeries> series, std::span<const Hash128> hashes,
                            const std::vector<uint32_t>& missing,
                            const std::function<Result<Labels>(size_t)>& canonical, PushTally& tally) {
  auto first_time = [&](uint32_t k) { return series[k].times_ms.empty() ? INT64_MIN : series[k].times_ms[0]; };
  std::vector<Asked> asked = ask_labels(series, missing, canonical, tally);
  if (asked.empty()) return;
  const bool mostly_new = asked.size() >= kOwnGroupMin && asked.size() * 2 > series.size();
  const uint32_t first_group = mostly_new ? static_cast<uint32_t>(groups_.size()) : 0;
  SeriesIndex::Making making(index_);
  for (Asked& one : asked) {
    const uint32_t k = one.k;
    SeriesId known = making.find(one.labels);
    Home home;
    if (known != kNoSeries) {
      home = making.home(known);
      if (home.shard() == number_ && local_group(home) == nullptr) known = kNoSeries;  // on its way out (forget_idle)
    }
    if (known == kNoSeries) {
      std::string example;
      const char* reason = making.refusal(one.labels, example);
      if (reason == nullptr && stream.series >= limits_.series_per_stream_max) {
        reason = "agent_limit";
        example = format("the stream has %llu series, limit %llu; new ones are refused, the others go on",
                         static_cast<unsigned long long>(stream.series),
                         static_cast<unsigned long long>(limits_.series_per_stream_max));
      }
      if (reason == nullptr && !making.take_memory(one.labels)) {
        reason = "memory_limit";
        example = "there is no memory for new series (--memory-max); they are refused, the others go on";
      }
      if (reason != nullptr) {
        tally.refuse(reason, samples_of(series[k]), series[k].histograms.size(),
                     [&] { return labels_text(one.labels) + ": " + example; });
        continue;
      }
      const bool follows = k > 0 && !resolved_[k - 1].refused;
      const Home neighbour = follows ? resolved_[k - 1].home : Home{};
      home = room_in_group(&stream, neighbour, follows && first_time(k) == first_time(k - 1), first_group);
      known = making.make(one.labels, home);
      groups_[home.group_in_shard()]->series.push_back(known.value());
      new_series_.push_back({home.group_in_shard(), home.slot, known});
      ++stream.series;
    }
    resolved_[k] = {home, false};
    if (one.moved.empty()) {
      add_entry(hashes[k], home);
    } else {
      for (size_t i = 0; i < series[k].values.size() && i < series[k].times_ms.size(); ++i)
        keep_exemplar(known, {one.moved, series[k].values[i], series[k].times_ms[i]});
    }
  }
}

void Shard::log_new_series() {
  if (new_series_.empty()) return;
  SeriesIndex::Reading reading(index_);
  std::vector<LabelSymbols> labels;
  for (size_t i = 0; i < new_series_.size();) {
    size_t end = i + 1;
    while (end < new_series_.size() && new_series_[end].group == new_series_[i].group &&
           new_series_[end].slot == new_series_[end - 1].slot + 1)
      ++end;
    record_.add_series(
        new_series_[i].group, new_series_[i].slot, end - i,
        [&](size_t k) {
          mutex_.assert_held();
          labels.clear();
          reading.labels(new_series_[i + k].series, labels);
          return std::span<const LabelSymbols>(labels);
        },
        [&](uint32_t symbol) { return reading.symbols().text(symbol); });
    i = end;
  }
  new_series_.clear();
}

// The samples of a push, once it is known where each of its series lives: into rows and the log, or to `foreign`. Under
// the shard's mutex_.
class Shard::Taking {
 public:
  Taking(Shard& shard, std::span<const PushedSeries> series, TimeBounds bounds, PushTally& tally,
         std::vector<Foreign>& foreign)
      : shard_(shard), series_(series), bounds_(bounds), tally_(tally), foreign_(foreign) {}

  // Every series has one value and nothing else.
  void put_singles() {
    shard_.mutex_.assert_held();
    RowWriter writer(shard_, tally_, true);
    for (size_t k = 0; k < series_.size(); ++k) {
      if (!shard_.resolved_[k].refused) put(writer, k, series_[k].times_ms[0], series_[k].values[0]);
    }
  }

  // Row by row, whatever order they come in.
  void put_values() {
    shard_.mutex_.assert_held();
    struct At {
      int64_t time_ms;
      uint32_t k, i;
    };
    RowWriter writer(shard_, tally_, true);
    std::vector<At> order;
    for (uint32_t k = 0; k < series_.size(); ++k) {
      if (shard_.resolved_[k].refused) continue;
      const size_t count = std::min(series_[k].times_ms.size(), series_[k].values.size());
      for (uint32_t i = 0; i < count; ++i) order.push_back({series_[k].times_ms[i], k, i});
    }
    std::stable_sort(order.begin(), order.end(), [](const At& a, const At& b) { return a.time_ms < b.time_ms; });
    for (const At& at : order) put(writer, at.k, at.time_ms, series_[at.k].values[at.i]);
  }

  void put_histograms_and_exemplars() {
    shard_.mutex_.assert_held();
    for (size_t k = 0; k < series_.size(); ++k) {
      if (shard_.resolved_[k].refused) continue;
      const Home home = shard_.resolved_[k].home;
      const size_t count = std::min(series_[k].histograms.size(), series_[k].times_ms.size());
      for (size_t i = 0; i < count; ++i) put_histogram(home, k, i);
      for (const PushedExemplar& exemplar : series_[k].exemplars) put_exemplar(home, exemplar);
    }
  }

 private:
  void put(RowWriter& writer, size_t k, int64_t time_ms, double value) {
    shard_.mutex_.assert_held();
    const Home home = shard_.resolved_[k].home;
    if (is_refused(k, time_ms, value)) return;
    if (home.shard() != shard_.number_) {
      foreign_.push_back({home, time_ms, value, nullptr, nullptr});
      return;
    }
    writer.put(home, time_ms, value);
  }

  void put_histogram(Home home, size_t k, size_t i) {
    shard_.mutex_.assert_held();
    const int64_t time_ms = series_[k].times_ms[i];
    if (is_refused(k, time_ms, 0)) return;
    auto histogram = std::make_shared<const NativeHistogram>(series_[k].histograms[i]);
    if (home.shard() != shard_.number_) {
      foreign_.push_back({home, time_ms, 0, std::move(histogram), nullptr});
      return;
    }
    shard_.record_.add_histogram(home.group_in_shard(), home.slot, time_ms, *histogram);
    shard_.put_histogram(home, time_ms, std::move(histogram), tally_);
  }

  void put_exemplar(Home home, const PushedExemplar& exemplar) {
    shard_.mutex_.assert_held();
    if (home.shard() != shard_.number_) {
      foreign_.push_back({home, exemplar.time_ms, 0, nullptr, &exemplar});
      return;
    }
    shard_.record_.add_exemplar(home.group_in_shard(), home.slot, exemplar.time_ms, exemplar.value, exemplar.labels);
    shard_.keep_exemplar(series_in(*shard_.groups_[home.group_in_shard()], home.slot), exemplar);
  }

  bool is_refused(size_t k, int64_t time_ms, double value) {
    if (time_ms < bounds_.oldest_ms) {
      tally_.refuse("too_old", 1, series_[k].histograms.empty() ? 0 : 1, [&] {
        return format("sample %zu of the push is of %lld ms, more than a day behind the newest; refused", k,
                      static_cast<long long>(time_ms));
      });
      return true;
    }
    if (time_ms > bounds_.newest_ms) {
      tally_.refuse("future", 1, series_[k].histograms.empty() ? 0 : 1, [&] {
        return format("sample %zu of the push is %lld s ahead of this server's clock and its limit; refused", k,
                      static_cast<long long>((time_ms - bounds_.newest_ms) / 1000));
      });
      return true;
    }
    if (is_absent(value)) {
      tally_.refuse("reserved_nan", 1, series_[k].histograms.empty() ? 0 : 1,
                    [] { return "a NaN with the payload that stands for no sample here; refused"; });
      return true;
    }
    return false;
  }

  Shard& shard_;
  const std::span<const PushedSeries> series_;
  const TimeBounds bounds_;
  PushTally& tally_;
  std::vector<Foreign>& foreign_;
};

uint64_t Shard::push(std::string_view stream_name, std::span<const PushedSeries> series,
                     const std::function<Result<Labels>(size_t)>& canonical, TimeBounds bounds, PushTally& tally,
                     std::vector<Foreign>& foreign) {
  // Hashing is most of the work and needs no lock.
  thread_local std::vector<Hash128> hashes;
  hashes.resize(series.size());
  const Hash128 seed = hash_(stream_name);
  bool single = true;
  for (size_t k = 0; k < series.size(); ++k) {
    hashes[k] = hash_(series[k].raw_labels, seed);
    single &= series[k].times_ms.size() == 1 && series[k].histograms.empty() && series[k].exemplars.empty() &&
              series[k].values.size() == 1;
  }

  MutexLock lock(mutex_);
  const size_t streams_before = streams_.size();
  Stream& stream = stream_of(stream_name);
  const bool is_new_stream = streams_.size() > streams_before;
  resolved_.assign(series.size(), {});
  std::vector<uint32_t> missing;
  uint32_t next = resolve_known(stream.next, hashes, missing);
  begin_record();
  if (!missing.empty()) {
    resolve_missing(stream, series, hashes, missing, canonical, tally);
    log_new_series();
    next = find_entry(hashes.back());
    if (next != kNone) ++next;
  }
  stream.next = next;

  Taking taking(*this, series, bounds, tally, foreign);
  if (single) {
    taking.put_singles();
  } else {
    taking.put_values();
    taking.put_histograms_and_exemplars();
  }
  // Anybody can make up names; only those that brought something are kept.
  if (is_new_stream && stream.series == 0) streams_.erase(streams_.find(stream_name));
  return end_record();
}

uint64_t Shard::push_foreign(std::span<const Foreign> samples, PushTally& tally, std::vector<Home>& gone) {
  MutexLock lock(mutex_);
  begin_record();
  {
    RowWriter writer(*this, tally, true);
    for (const Foreign& sample : samples) {
      if (local_group(sample.home) == nullptr) {
        gone.push_back(sample.home);
        if (sample.exemplar != nullptr) continue;
        tally.refuse("series_gone", 1, sample.histogram != nullptr ? 1 : 0,
                     [] { return "the series left memory while it was written to; send it again"; });
      } else if (sample.histogram == nullptr && sample.exemplar == nullptr) {
        writer.put(sample.home, sample.time_ms, sample.value);
      }
    }
  }
  for (const Foreign& sample : samples) {
    Group* group = local_group(sample.home);
    if (group == nullptr) continue;
    const uint32_t number = sample.home.group_in_shard(), slot = sample.home.slot;
    if (sample.histogram != nullptr) {
      record_.add_histogram(number, slot, sample.time_ms, *sample.histogram);
      put_histogram(sample.home, sample.time_ms, sample.histogram, tally);
    } else if (sample.exemplar != nullptr) {
      record_.add_exemplar(number, slot, sample.time_ms, sample.exemplar->value, sample.exemplar->labels);
      keep_exemplar(series_in(*group, slot), *sample.exemplar);
    }
  }
  return end_record();
}

void Shard::forget_entries(std::span<const Home> gone) {
  std::set<uint64_t> words;
  for (const Home home : gone) words.insert(home.word());
  MutexLock lock(mutex_);
  RunArray::Walk homes(entry_homes_);
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    if (words.contains(homes[i])) entries_[i] = {};
  }
}

uint64_t Shard::log_metadata(const MetricMetadata& metadata) {
  MutexLock lock(mutex_);
  begin_record();
  record_.add_metadata(metadata);
  return end_record();
}

// Restoring.

void Shard::restore_series(const LabelRows& series, Home neighbour, std::span<Home> homes) {
  MutexLock lock(mutex_);
  SeriesIndex::Making making(index_);
  for (size_t i = 0; i < series.size(); ++i) {
    if (const SeriesId known = making.find(series[i]); known != kNoSeries) {
      homes[i] = making.home(known);
    } else {
      homes[i] = room_in_group(nullptr, neighbour, true, 0);
      groups_[homes[i].group_in_shard()]->series.push_back(making.make(series[i], homes[i]).value());
    }
    neighbour = homes[i];
  }
}

void Shard::restore_run(std::span<const Home> homes, int64_t time_ms, std::span<const double> values) {
  MutexLock lock(mutex_);
  PushTally tally;
  RowWriter writer(*this, tally, false);
  for (size_t i = 0; i < homes.size(); ++i) {
    if (local_group(homes[i]) != nullptr) writer.put(homes[i], time_ms, values[i]);
  }
}

void Shard::restore_histogram(Home home, int64_t time_ms, NativeHistogram histogram) {
  MutexLock lock(mutex_);
  PushTally tally;
  if (local_group(home) != nullptr)
    put_histogram(home, time_ms, std::make_shared<const NativeHistogram>(std::move(histogram)), tally);
}

void Shard::restore_exemplar(SeriesId series, PushedExemplar exemplar) {
  MutexLock lock(mutex_);
  keep_exemplar(series, std::move(exemplar));
}

SeriesId Shard::series_at(Home home) const {
  SharedLock lock(mutex_);
  const Group* group =
      home.group == kNone || home.group_in_shard() >= groups_.size() ? nullptr : groups_[home.group_in_shard()].get();
  return group == nullptr || home.slot >= group->series.size() ? kNoSeries : series_in(*group, home.slot);
}

// Reading.

bool Shard::Snapshot::take(uint32_t number, int64_t from_ms, int64_t to_ms, GroupSnapshot& to) const {
  shard_.mutex_.assert_held_shared();
  const Group* group = number < shard_.groups_.size() ? shard_.groups_[number].get() : nullptr;
  if (group == nullptr) return false;
  bool any = false;
  if (group->data.overlaps(from_ms, to_ms)) {
    any = true;
    for (const std::shared_ptr<const Strip>& strip : group->data.strips) {
      if (strip->first_ms() <= to_ms && strip->last_ms() >= from_ms) to.data.strips.push_back(strip);
    }
    to.data.open = group->data.open;
    to.data.open_rows = group->data.open_rows;
    to.data.late = group->data.late;
    to.data.histograms = group->data.histograms;
  }
  if (group->sealing != nullptr && group->sealing->overlaps(from_ms, to_ms)) {
    any = true;
    to.sealing = group->sealing;
  }
  return any;
}

// Sealing.

Shard::Sealing Shard::begin_seal(uint64_t generation) {
  MutexLock lock(mutex_);
  Sealing sealing;
  for (uint32_t number = 0; number < groups_.size(); ++number) {
    Group* group = groups_[number].get();
    if (group == nullptr || (group->data.empty() && group->sealing == nullptr)) continue;
    group->sealing = std::make_shared<const GroupData>(
        group->sealing == nullptr ? std::move(group->data) : joined(*group->sealing, std::move(group->data)));
    group->data = {};
    group->last_row_epoch = group->row_before_epoch = 0;
    sealing.parts.push_back({number, group->series, group->sealing});
  }
  exemplars_sealing_.insert(exemplars_sealing_.end(), exemplars_.begin(), exemplars_.end());
  exemplars_.clear();
  sealing.exemplars = exemplars_sealing_;
  sealing_bytes_ += strip_bytes_;
  strip_bytes_ = 0;
  wal_->begin_generation(generation);
  return sealing;
}

void Shard::end_seal(bool sealed) {
  MutexLock lock(mutex_);
  if (!sealed) return;
  for (const std::unique_ptr<Group>& group : groups_) {
    if (group != nullptr) group->sealing = nullptr;
  }
  exemplars_sealing_.clear();
  sealing_bytes_ = 0;
}

std::vector<std::string> Shard::series_records() const {
  SharedLock lock(mutex_);
  SeriesIndex::Reading reading(index_);
  WalRecordWriter writer;
  std::vector<std::string> records;
  std::vector<LabelSymbols> labels;
  for (uint32_t number = 0; number < groups_.size(); ++number) {
    const Group* group = groups_[number].get();
    if (group == nullptr || group->series.size() == 0) continue;
    writer.clear();
    writer.add_series(
        number, 0, group->series.size(),
        [&](size_t slot) {
          labels.clear();
          reading.labels(series_in(*group, slot), labels);
          return std::span<const LabelSymbols>(labels);
        },
        [&](uint32_t symbol) { return reading.symbols().text(symbol); });
    records.push_back(writer.bytes());
  }
  return records;
}

std::vector<SeriesId> Shard::forget_idle(int64_t before_ms) {
  MutexLock lock(mutex_);
  std::vector<SeriesId> gone;
  for (uint32_t number = 0; number < groups_.size(); ++number) {
    std::unique_ptr<Group>& group = groups_[number];
    if (group == nullptr || group->last_ms >= before_ms || !group->data.empty() || group->sealing != nullptr) continue;
    for (size_t slot = 0; slot < group->series.size(); ++slot) gone.push_back(series_in(*group, slot));
    if (makers_[number] != nullptr) makers_[number]->series -= group->series.size();
    makers_[number] = nullptr;
    entries_gone_ += group->series.size();
    group = nullptr;
  }
  if (!gone.empty()) std::erase_if(streams_, [](const auto& stream) { return stream.second.series == 0; });
  if (entries_gone_ * 2 > entries_.size() && entries_.size() >= kEntriesMin) leave_out_gone_entries();
  return gone;
}

// Those that stay keep their order, which is what pushes are resolved by.
void Shard::leave_out_gone_entries() {
  ChunkedArray<Hash128> entries = std::exchange(entries_, {});
  RunArray entry_homes = std::exchange(entry_homes_, {});
  entry_slots_ = {};
  entries_gone_ = 0;
  RunArray::Walk homes(entry_homes);
  for (size_t i = 0; i < entries.size(); ++i) {
    const Home home = Home::of(homes[i]);
    const bool is_here = home.shard() == number_;
    if (entries[i] == Hash128{} || (is_here && groups_[home.group_in_shard()] == nullptr)) continue;
    add_entry(entries[i], home);
  }
  for (auto& [name, stream] : streams_) stream.next = kNone;
}

void Shard::renumber(std::span<const SeriesId> numbers, std::span<const uint32_t> symbols) {
  mutex_.assert_held();  // by Hold
  record_.renumber(symbols);
  for (const std::unique_ptr<Group>& group : groups_) {
    if (group == nullptr) continue;
    RunArray series;
    RunArray::Walk before(group->series);
    for (size_t slot = 0; slot < group->series.size(); ++slot) series.push_back(numbers[before[slot]].value());
    group->series = std::move(series);
  }
  for (std::deque<StoredExemplar>* part : {&exemplars_, &exemplars_sealing_}) {
    for (StoredExemplar& one : *part)
      one.series = one.series.value() < numbers.size() ? numbers[one.series.value()] : kNoSeries;
    std::erase_if(*part, [](const StoredExemplar& one) { return one.series == kNoSeries; });
  }
}

size_t Shard::strip_bytes() const {
  SharedLock lock(mutex_);
  return strip_bytes_ + sealing_bytes_;
}

int64_t Shard::oldest_ms() const {
  SharedLock lock(mutex_);
  int64_t oldest = INT64_MAX;
  for (const std::unique_ptr<Group>& group : groups_) {
    if (group != nullptr) oldest = std::min(oldest, group->data.first_ms());
  }
  return oldest;
}

size_t Shard::memory_bytes() const {
  SharedLock lock(mutex_);
  size_t bytes = strip_bytes_ + sealing_bytes_ + entries_.memory_bytes() + entry_homes_.memory_bytes() +
                 entry_slots_.capacity() * 4;
  for (const std::unique_ptr<Group>& group : groups_) {
    if (group == nullptr) continue;
    bytes += sizeof(Group) + group->series.memory_bytes();
    if (group->data.open != nullptr)
      bytes += group->data.open_rows * group->series.size() * sizeof(double) + sizeof(OpenRows);
  }
  return bytes;
}

std::vector<Creator> Shard::largest_streams(size_t count) const {
  SharedLock lock(mutex_);
  std::vector<Creator> list;
  for (const auto& [name, stream] : streams_) list.push_back({name, stream.series});
  std::sort(list.begin(), list.end(), [](const Creator& a, const Creator& b) { return a.series > b.series; });
  if (list.size() > count) list.resize(count);
  return list;
}

}  // namespace lockstep::metrics
