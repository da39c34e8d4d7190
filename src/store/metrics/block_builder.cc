#include "store/metrics/block_builder.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace lockstep::metrics {
namespace {

constexpr size_t kSummaryRows = 96;  // below that a summary costs more than it saves
constexpr uint32_t kNone = UINT32_MAX;
constexpr size_t kSmallSliceRows = 160;

void encode_slices(std::span<const double> column, std::vector<BlockSlice>& slices) {
  thread_local std::string chunk;
  size_t at = 0;
  for (BlockSlice& slice : slices) {
    const size_t rows = slice.times_ms.size();
    chunk.clear();
    encode_values(column.subspan(at, rows), rows >= kSummaryRows ? WithSummary::kYes : WithSummary::kNo, chunk);
    slice.add(chunk);
    at += rows;
  }
}

std::vector<BlockSlice> slices_of(std::span<const int64_t> times_ms) {
  std::vector<BlockSlice> slices;
  // Of even size: a few rows more than a full slice are two halves, not a full one and a crumb.
  const size_t count = (times_ms.size() + kChunkRowsMax - 1) / kChunkRowsMax;
  for (size_t i = 0; i < count; ++i) {
    const size_t from = i * times_ms.size() / count, to = (i + 1) * times_ms.size() / count;
    slices.emplace_back().times_ms.assign(times_ms.begin() + static_cast<std::ptrdiff_t>(from),
                                          times_ms.begin() + static_cast<std::ptrdiff_t>(to));
  }
  return slices;
}

size_t present(std::span<const double> column) {
  size_t count = 0;
  for (double value : column) count += is_absent(value) ? 0 : 1;
  return count;
}

struct TimeRange {
  int64_t from_ms;
  int64_t to_ms;
  bool has(int64_t time_ms) const { return time_ms >= from_ms && time_ms <= to_ms; }
};

// Of the rows of a group, each once.
std::vector<int64_t> times_in(const GroupData& data, const TimeRange& range) {
  std::vector<int64_t> times_ms;
  const auto add = [&](int64_t time_ms) {
    if (range.has(time_ms)) times_ms.push_back(time_ms);
  };
  for (const std::shared_ptr<const Strip>& strip : data.strips) {
    for (int64_t time_ms : strip->times_ms()) add(time_ms);
  }
  for (size_t i = 0; i < data.open_rows; ++i) add(data.open->times_ms[i]);
  for (const auto& [time_ms, row] : data.late) add(time_ms);
  if (!std::is_sorted(times_ms.begin(), times_ms.end())) std::sort(times_ms.begin(), times_ms.end());
  times_ms.erase(std::unique(times_ms.begin(), times_ms.end()), times_ms.end());
  return times_ms;
}

// The rows of a group within a range, and where the values of each go among their times.
class RowsInRange {
 public:
  // times_ms: as times_in() has them.
  RowsInRange(const GroupData& data, const TimeRange& range, std::vector<int64_t> times_ms)
      : data_(data), range_(range), times_ms_(std::move(times_ms)) {
    for (const std::shared_ptr<const Strip>& strip : data.strips) {
      for (int64_t time_ms : strip->times_ms()) strip_places_.push_back(place(time_ms));
    }
    for (size_t i = 0; i < data.open_rows; ++i) open_places_.push_back(place(data.open->times_ms[i]));
  }

  const std::vector<int64_t>& times_ms() const { return times_ms_; }

  // The values of one series, one for each time. Of equal times the row that came later counts.
  void read(size_t slot, std::vector<double>& column) const {
    std::fill(column.begin(), column.end(), absent());
    double cells[kStripRows];
    const uint32_t* to = strip_places_.data();
    for (const std::shared_ptr<const Strip>& strip : data_.strips) {
      strip->column(slot, cells);
      for (size_t i = 0; i < strip->rows(); ++i, ++to) {
        if (*to != kNone) column[*to] = cells[i];
      }
    }
    for (size_t i = 0; i < data_.open_rows; ++i) {
      const double value = data_.open->at(i, slot);
      if (open_places_[i] != kNone && !is_absent(value)) column[open_places_[i]] = value;
    }
    for (const auto& [time_ms, row] : data_.late) {
      if (!range_.has(time_ms) || slot >= row->cells.size()) continue;
      const double value = load_cell(row->cells[slot]);
      if (!is_absent(value)) column[place(time_ms)] = value;
    }
  }

 private:
  uint32_t place(int64_t time_ms) const {
    if (!range_.has(time_ms)) return kNone;
    return static_cast<uint32_t>(std::lower_bound(times_ms_.begin(), times_ms_.end(), time_ms) - times_ms_.begin());
  }

  const GroupData& data_;
  const TimeRange range_;
  const std::vector<int64_t> times_ms_;
  std::vector<uint32_t> strip_places_, open_places_;
};

bool has_histogram(const GroupData& data, const TimeRange& range) {
  for (const auto& [slot, samples] : data.histograms) {
    for (const HistogramSample& sample : samples) {
      if (range.has(sample.time_ms)) return true;
    }
  }
  return false;
}

}  // namespace

std::string_view rollup_name(Rollup rollup) {
  static constexpr std::string_view kNames[] = {"last", "min", "max", "sum", "count", "increase"};
  return kNames[static_cast<size_t>(rollup)];
}

double combined(Rollup rollup, double older, double newer) {
  switch (rollup) {
    case Rollup::kLast:
      return newer;
    case Rollup::kMin:
      return std::min(older, newer);
    case Rollup::kMax:
      return std::max(older, newer);
    case Rollup::kSum:
    case Rollup::kCount:
    case Rollup::kIncrease:
      return older + newer;
  }
  return newer;
}

Result<void> write_group(const GroupData& data, size_t series, int64_t from_ms, int64_t to_ms, BlockWriter& writer,
                         const std::function<void(size_t, std::vector<LabelSymbols>&)>& labels,
                         std::vector<uint32_t>* numbers) {
  const TimeRange range{from_ms, to_ms};
  std::vector<int64_t> times_ms = times_in(data, range);
  if (times_ms.empty() && !has_histogram(data, range)) return {};
  const RowsInRange rows(data, range, std::move(times_ms));
  std::vector<BlockSlice> slices = slices_of(rows.times_ms());
  std::vector<double> column(rows.times_ms().size());
  std::vector<LabelSymbols> symbols;
  uint64_t samples = 0;
  for (size_t slot = 0; slot < series; ++slot) {
    rows.read(slot, column);
    labels(slot, symbols);
    const uint32_t number = writer.add_series(symbols);
    if (numbers != nullptr) numbers->push_back(number);
    encode_slices(column, slices);
    samples += present(column);
    if (auto known = data.histograms.find(static_cast<uint32_t>(slot)); known != data.histograms.end()) {
      std::vector<HistogramSample> list;
      for (const HistogramSample& sample : known->second) {
        if (range.has(sample.time_ms)) list.push_back(sample);
      }
      writer.add_histograms(number, list);
      samples += list.size();
    }
  }
  writer.count_samples(samples);
  return writer.add_group(slices);
}

namespace {

// A series' points of one tier.
class RollupColumns {
 public:
  RollupColumns(std::span<const int64_t> times_ms, int64_t spacing_ms) : spacing_ms_(spacing_ms) {
    for (int64_t time_ms : times_ms) {
      const int64_t end = end_of(time_ms);
      if (ends_.empty() || ends_.back() != end) ends_.push_back(end);
      bucket_of_.push_back(static_cast<uint32_t>(ends_.size() - 1));
    }
    slices_ = slices_of(ends_);
  }

  // last: its value before this column, absent() if it had none.
  void add(std::span<const double> column, bool counter, double last) {
    for (std::vector<double>& list : columns_) list.assign(ends_.size(), absent());
    for (size_t i = 0; i < column.size(); ++i) {
      const double value = column[i];
      if (is_absent(value) || is_stale(value) || std::isnan(value)) continue;
      const size_t bucket = bucket_of_[i];
      auto at = [&](Rollup rollup) -> double& { return columns_[static_cast<size_t>(rollup)][bucket]; };
      const bool first = is_absent(at(Rollup::kCount));
      at(Rollup::kLast) = value;
      at(Rollup::kMin) = first ? value : std::min(at(Rollup::kMin), value);
      at(Rollup::kMax) = first ? value : std::max(at(Rollup::kMax), value);
      at(Rollup::kSum) = first ? value : at(Rollup::kSum) + value;
      at(Rollup::kCount) = first ? 1 : at(Rollup::kCount) + 1;
      const double rise = is_absent(last) ? 0 : value < last ? value : value - last;
      at(Rollup::kIncrease) = first ? rise : at(Rollup::kIncrease) + rise;
      last = value;
    }
    kinds_ = {Rollup::kLast};
    if (present(column) == 0) return;  // histograms alone
    if (counter) {
      kinds_.push_back(Rollup::kIncrease);
    } else {
      kinds_.insert(kinds_.end(), {Rollup::kMin, Rollup::kMax, Rollup::kSum, Rollup::kCount});
    }
  }
  // Of histograms the last: what they have counted by then.
  void write(std::span<const LabelSymbols> labels, std::span<const HistogramSample> histograms, BlockWriter& writer) {
    const uint32_t label = writer.symbol(kRollupLabel);
    const uint32_t metric = writer.symbol("__name__");
    std::vector<LabelSymbols> all;
    for (Rollup kind : kinds_) {
      all.clear();
      bool placed = false;
      for (const LabelSymbols& one : labels) {
        all.push_back(one);
        if (one.name == metric) {  // "__name__" < "__rollup__" < what people choose, but for a few; sorted below
          all.push_back({label, writer.symbol(rollup_name(kind))});
          placed = true;
        }
      }
      if (!placed) all.push_back({label, writer.symbol(rollup_name(kind))});
      const uint32_t number = writer.add_series(all);
      if (kind == Rollup::kLast) {
        const std::vector<HistogramSample> last = last_of_each(histograms);
        writer.add_histograms(number, last);
        writer.count_samples(last.size());
      }
      const std::vector<double>& column = columns_[static_cast<size_t>(kind)];
      encode_slices(column, slices_);
      writer.count_samples(present(column));
    }
  }
  Result<void> finish(BlockWriter& writer) { return writer.add_group(slices_); }

 private:
  // Of the stretch (end - spacing, end].
  int64_t end_of(int64_t time_ms) const {
    return (time_ms >= 0 ? (time_ms + spacing_ms_ - 1) / spacing_ms_ : -((-time_ms) / spacing_ms_)) * spacing_ms_;
  }
  std::vector<HistogramSample> last_of_each(std::span<const HistogramSample> histograms) const {
    std::vector<HistogramSample> list;
    for (const HistogramSample& sample : histograms) {
      const int64_t end = end_of(sample.time_ms);
      if (list.empty() || list.back().time_ms != end) list.emplace_back();
      list.back() = {end, sample.histogram};
    }
    return list;
  }
  const int64_t spacing_ms_;
  std::vector<int64_t> ends_;
  std::vector<uint32_t> bucket_of_;
  std::vector<double> columns_[6];
  std::vector<Rollup> kinds_;
  std::vector<BlockSlice> slices_;
};

class Merge {
 public:
  Merge(std::span<const std::shared_ptr<const Block>> inputs, std::span<const Tombstone> tombstones,
        const std::function<bool(std::string_view)>& is_counter, BlockWriter& writer,
        std::span<BlockWriter* const> rollups, const Block* before)
      : inputs_(inputs),
        tombstones_(tombstones),
        is_counter_(is_counter),
        writer_(writer),
        rollups_(rollups),
        before_(before) {}

  Result<MergeOutcome> run() {
    LOCKSTEP_TRY(number_series());
    LOCKSTEP_TRY(find_deleted());
    if (before_ != nullptr) find_before();
    // Series that are together in every input are a group of the output.
    std::map<std::vector<uint32_t>, std::vector<uint32_t>> groups;
    std::vector<uint32_t> key(inputs_.size()), key_before;
    std::vector<uint32_t>* list = nullptr;
    for (uint32_t series = 0; series < sets_.size(); ++series) {
      for (size_t b = 0; b < inputs_.size(); ++b) {
        const uint32_t there = members_[b][series];
        key[b] = there == kNone ? kNone : static_cast<uint32_t>(inputs_[b]->group_of(there));
      }
      if (list == nullptr || key != key_before) {
        list = &groups[key];
        key_before = key;
      }
      list->push_back(series);
    }
    for (const auto& [places, series] : groups) {
      LOCKSTEP_TRY(write_one(places, series));
    }
    keep_exemplars();
    return outcome_;
  }

 private:
  void keep_exemplars() {
    std::vector<std::pair<uint32_t, PushedExemplar>> list;
    for (size_t b = 0; b < inputs_.size(); ++b) {
      list.clear();
      if (!inputs_[b]->exemplars(list) || list.empty()) continue;
      std::vector<uint32_t> here(inputs_[b]->series_count(), kNone);
      for (uint32_t series = 0; series < sets_.size(); ++series) {
        if (members_[b][series] != kNone) here[members_[b][series]] = numbers_[series];
      }
      for (const auto& [there, exemplar] : list) {
        if (here[there] != kNone) writer_.add_exemplar(here[there], exemplar);
      }
    }
  }

  struct Source {
    size_t block;
    const Block::Slice* slice;
    uint32_t group;
    std::vector<int64_t> times_ms;
    std::vector<uint32_t> places;  // of its rows in the merged times
  };
  // What a group of the output is made of.
  struct OutputGroup {
    std::vector<Source> sources;
    std::vector<int64_t> times_ms;
    bool copies = false;  // full slices go over as they are
    std::vector<BlockSlice> slices;
    std::vector<const Source*> copied;  // by slice: as it is, or nullptr
  };

  Result<void> number_series() {
    members_.resize(inputs_.size());
    std::vector<LabelSymbols> labels;
    for (size_t b = 0; b < inputs_.size(); ++b) {
      const Block& block = *inputs_[b];
      std::vector<uint32_t> symbols(block.symbol_count(), kNone);
      auto symbol = [&](uint32_t number) {
        if (symbols[number] == kNone) symbols[number] = writer_.symbol(block.text(number));
        return symbols[number];
      };
      for (uint32_t i = 0; i < block.series_count(); ++i) {
        if (!block.labels(i, labels)) return Error{block.path() + ": its labels make no sense"};
        for (LabelSymbols& label : labels) label = {symbol(label.name), symbol(label.value)};
        const uint32_t series = sets_.add(labels);
        if (members_[b].size() <= series) members_[b].resize(sets_.size(), kNone);
        members_[b][series] = i;
      }
    }
    for (std::vector<uint32_t>& list : members_) list.resize(sets_.size(), kNone);
    numbers_.assign(sets_.size(), kNone);
    return {};
  }

  // Series of the block before these.
  void find_before() {
    before_numbers_.assign(sets_.size(), kNone);
    std::vector<uint32_t> symbols(before_->symbol_count());
    for (uint32_t i = 0; i < symbols.size(); ++i) symbols[i] = writer_.find_symbol(before_->text(i));
    std::vector<LabelSymbols> labels;
    for (uint32_t i = 0; i < before_->series_count(); ++i) {
      if (!before_->labels(i, labels)) return;
      for (LabelSymbols& label : labels) label = {symbols[label.name], symbols[label.value]};
      if (const uint32_t series = sets_.find(labels); series != kNone) before_numbers_[series] = i;
    }
  }

  // What a series was worth before these times, for the rise up to its first sample here.
  double value_before(uint32_t series, std::span<const int64_t> times_ms, std::span<const double> column) const {
    if (before_ == nullptr || before_numbers_[series] == kNone) return absent();
    int64_t time_ms = 0;
    double value = 0;
    if (!before_->newest(before_numbers_[series], time_ms, value) || std::isnan(value)) return absent();
    for (size_t row = 0; row < column.size(); ++row) {
      if (!is_absent(column[row])) return time_ms < times_ms[row] ? value : absent();
    }
    return absent();
  }

  Result<void> find_deleted() {
    for (const Tombstone& tombstone : tombstones_) {
      CompiledMatchers matchers = LOCKSTEP_TRY(compile_matchers(tombstone.matchers, true));
      std::vector<SeriesSet> sets;
      for (const std::shared_ptr<const Block>& block : inputs_) {
        if (block->info().number > tombstone.block_number_max) {
          sets.emplace_back(block->series_count());
          continue;
        }
        SeriesSet set = LOCKSTEP_TRY(block->matching(matchers));
        sets.push_back(std::move(set));
      }
      deleted_.push_back(std::move(sets));
    }
    return {};
  }

  // Deleted samples of this column of a block.
  void drop_deleted(const Source& source, uint32_t series, double* values) {
    for (size_t t = 0; t < tombstones_.size(); ++t) {
      if (!deleted_[t][source.block].has(series)) continue;
      for (size_t row = 0; row < source.times_ms.size(); ++row) {
        if (source.times_ms[row] < tombstones_[t].from_ms || source.times_ms[row] > tombstones_[t].to_ms) continue;
        outcome_.deleted += is_absent(values[row]) ? 0 : 1;
        values[row] = absent();
      }
    }
  }

  Result<void> write_one(const std::vector<uint32_t>& places, const std::vector<uint32_t>& series) {
    OutputGroup group = plan_group(places, series.size());
    std::vector<RollupColumns> rollups;
    for (BlockWriter* rollup : rollups_)
      rollups.emplace_back(group.times_ms, kTierSpacingMs[static_cast<size_t>(rollup->tier())]);
    std::vector<double> column(group.times_ms.size());
    const uint32_t name_symbol = writer_.symbol("__name__");
    const uint32_t rollup_symbol = writer_.symbol(kRollupLabel);
    uint64_t samples = 0;
    for (uint32_t one : series) {
      Rollup kind = Rollup::kLast;
      std::string_view metric;
      for (const LabelSymbols& label : sets_[one]) {
        if (label.name == name_symbol) metric = writer_.text(label.value);
        if (label.name == rollup_symbol) kind = rollup_named(writer_.text(label.value));
      }
      const std::vector<std::string_view> raw = read_column(group, one, kind, column);
      const uint32_t number = writer_.add_series(sets_[one]);
      numbers_[one] = number;
      if (!group.copies) {
        encode_slices(column, group.slices);
        samples += present(column);
      } else {
        samples += put_mixed(column, group.slices, group.copied, group.sources.data(), raw);
      }
      const std::vector<HistogramSample> histograms = merged_histograms(one);
      const bool counter = !rollups.empty() && is_counter_(metric);
      const double last = counter ? value_before(one, group.times_ms, column) : absent();
      for (size_t r = 0; r < rollups.size(); ++r) {
        rollups[r].add(column, counter, last);
        std::vector<LabelSymbols> labels;
        for (const LabelSymbols& label : sets_[one])
          labels.push_back(
              {rollups_[r]->symbol(writer_.text(label.name)), rollups_[r]->symbol(writer_.text(label.value))});
        rollups[r].write(labels, histograms, *rollups_[r]);
      }
      writer_.add_histograms(number, histograms);
      samples += histograms.size();
    }
    writer_.count_samples(samples);
    for (size_t r = 0; r < rollups.size(); ++r) {
      LOCKSTEP_TRY(rollups[r].finish(*rollups_[r]));
    }
    return writer_.add_group(group.slices);
  }

  static Rollup rollup_named(std::string_view text) {
    for (Rollup each : {Rollup::kMin, Rollup::kMax, Rollup::kSum, Rollup::kCount, Rollup::kIncrease}) {
      if (text == rollup_name(each)) return each;
    }
    return Rollup::kLast;
  }

  OutputGroup plan_group(const std::vector<uint32_t>& places, size_t series_count) {
    OutputGroup group;
    group.sources = read_sources(places, series_count);
    std::vector<Source>& sources = group.sources;
    std::stable_sort(sources.begin(), sources.end(),
                     [](const Source& a, const Source& b) { return a.slice->first_ms < b.slice->first_ms; });
    bool overlaps = false;
    for (size_t i = 1; i < sources.size(); ++i) overlaps |= sources[i].slice->first_ms <= sources[i - 1].slice->last_ms;
    // Order within a time is by block: later ones are written over earlier ones.
    if (overlaps)
      std::stable_sort(sources.begin(), sources.end(),
                       [](const Source& a, const Source& b) { return a.block < b.block; });

    std::vector<int64_t>& all = group.times_ms;
    for (const Source& source : sources) all.insert(all.end(), source.times_ms.begin(), source.times_ms.end());
    if (overlaps) {
      std::sort(all.begin(), all.end());
      all.erase(std::unique(all.begin(), all.end()), all.end());
    }
    for (Source& source : sources) {
      for (int64_t time_ms : source.times_ms)
        source.places.push_back(static_cast<uint32_t>(std::lower_bound(all.begin(), all.end(), time_ms) - all.begin()));
    }
    group.copies = !overlaps && rollups_.empty() && tombstones_.empty();
    if (group.copies) {
      plan_copies(sources, group.slices, group.copied);
    } else {
      group.slices = slices_of(all);
      group.copied.assign(group.slices.size(), nullptr);
    }
    return group;
  }

  // The slices of the group in every block that has it (places: which it is there), with their times.
  std::vector<Source> read_sources(const std::vector<uint32_t>& places, size_t series_count) {
    std::vector<Source> sources;
    for (size_t b = 0; b < inputs_.size(); ++b) {
      if (places[b] == kNone) continue;
      const Block::GroupEntry& group = inputs_[b]->group(places[b]);
      for (size_t i = 0; i < group.slices; ++i) {
        Source source{b, &inputs_[b]->slice(group.first_slice + i), places[b], {}, {}};
        source.times_ms.resize(source.slice->rows);
        if (!inputs_[b]->times(*source.slice, source.times_ms.data())) {
          outcome_.damaged_chunks += series_count;
          continue;
        }
        sources.push_back(std::move(source));
      }
    }
    return sources;
  }

  // What all sources have of a series. Gives chunks that go over as they are, by source; their values are not in the
  // column.
  std::vector<std::string_view> read_column(const OutputGroup& to, uint32_t series, Rollup kind,
                                            std::vector<double>& column) {
    std::fill(column.begin(), column.end(), absent());
    std::vector<std::string_view> raw(to.sources.size());
    double values[kChunkRowsMax];
    for (const Source& source : to.sources) {
      const Block& block = *inputs_[source.block];
      const Block::GroupEntry& group = block.group(source.group);
      const uint32_t there = members_[source.block][series];
      std::string_view bytes;
      if (!block.chunk(*source.slice, group.series, there - group.first_series, bytes)) {
        ++outcome_.damaged_chunks;
        continue;
      }
      if (to.copies && source.times_ms.size() >= kSmallSliceRows) {
        raw[static_cast<size_t>(&source - to.sources.data())] = bytes;
        continue;
      }
      if (!decode_values(bytes, source.slice->rows, values)) {
        ++outcome_.damaged_chunks;
        continue;
      }
      if (!tombstones_.empty()) drop_deleted(source, there, values);
      for (size_t row = 0; row < source.slice->rows; ++row) {
        if (is_absent(values[row])) continue;
        double& cell = column[source.places[row]];
        if (is_absent(cell)) {
          cell = values[row];
        } else {
          ++outcome_.replaced;
          cell = combined(kind, cell, values[row]);
        }
      }
    }
    return raw;
  }

  // Full slices as they are; runs of small ones together.
  static void plan_copies(const std::vector<Source>& sources, std::vector<BlockSlice>& slices,
                          std::vector<const Source*>& copied) {
    std::vector<int64_t> batch;
    auto end_batch = [&] {
      for (BlockSlice& slice : slices_of(batch)) {
        slices.push_back(std::move(slice));
        copied.push_back(nullptr);
      }
      batch.clear();
    };
    for (const Source& source : sources) {
      if (source.times_ms.size() >= kSmallSliceRows) {
        end_batch();
        slices.emplace_back().times_ms = source.times_ms;
        copied.push_back(&source);
      } else {
        batch.insert(batch.end(), source.times_ms.begin(), source.times_ms.end());
      }
    }
    end_batch();
  }

  static uint64_t put_mixed(std::span<const double> column, std::vector<BlockSlice>& slices,
                            const std::vector<const Source*>& copied, const Source* sources,
                            const std::vector<std::string_view>& raw) {
    thread_local std::string chunk;
    uint64_t samples = 0;
    size_t at = 0;
    for (size_t i = 0; i < slices.size(); ++i) {
      const size_t rows = slices[i].times_ms.size();
      if (copied[i] != nullptr) {
        const std::string_view bytes = raw[static_cast<size_t>(copied[i] - sources)];
        slices[i].add(bytes);
        samples += bytes.empty() ? 0 : rows;
      } else {
        chunk.clear();
        encode_values(column.subspan(at, rows), rows >= kSummaryRows ? WithSummary::kYes : WithSummary::kNo, chunk);
        slices[i].add(chunk);
        samples += present(column.subspan(at, rows));
      }
      at += rows;
    }
    return samples;
  }

  std::vector<HistogramSample> merged_histograms(uint32_t series) {
    std::map<int64_t, HistogramSample> list;
    for (size_t b = 0; b < inputs_.size(); ++b) {
      const uint32_t there = members_[b][series];
      if (there == kNone || !inputs_[b]->has_histograms()) continue;
      std::vector<HistogramSample> samples;
      inputs_[b]->histograms(there, samples);
      for (HistogramSample& sample : samples) {
        bool gone = false;
        for (size_t t = 0; t < tombstones_.size(); ++t)
          gone |= deleted_[t][b].has(there) && sample.time_ms >= tombstones_[t].from_ms &&
                  sample.time_ms <= tombstones_[t].to_ms;
        if (gone) {
          ++outcome_.deleted;
        } else {
          list[sample.time_ms] = std::move(sample);
        }
      }
    }
    std::vector<HistogramSample> merged;
    for (auto& [time_ms, sample] : list) merged.push_back(std::move(sample));
    return merged;
  }

  const std::span<const std::shared_ptr<const Block>> inputs_;
  const std::span<const Tombstone> tombstones_;
  const std::function<bool(std::string_view)>& is_counter_;
  BlockWriter& writer_;
  const std::span<BlockWriter* const> rollups_;
  const Block* const before_;
  std::vector<uint32_t> before_numbers_;  // by series: there
  LabelSets sets_;
  std::vector<uint32_t> numbers_;                // by series: in the output
  std::vector<std::vector<uint32_t>> members_;   // by input: by series, its number there
  std::vector<std::vector<SeriesSet>> deleted_;  // by tombstone, by input
  MergeOutcome outcome_;
};

}  // namespace

Result<MergeOutcome> merge_blocks(std::span<const std::shared_ptr<const Block>> inputs,
                                  std::span<const Tombstone> tombstones,
                                  const std::function<bool(std::string_view)>& is_counter, BlockWriter& writer,
                                  std::span<BlockWriter* const> rollups, const Block* before) {
  return Merge(inputs, tombstones, is_counter, writer, rollups, before).run();
}

}  // namespace lockstep::metrics
