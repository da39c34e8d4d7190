#include "store/metrics/series_index.h"

#include <algorithm>
#include <array>

#include "base/mutex.h"
#include "base/text.h"
#include "model/series_labels.h"

namespace lockstep::metrics {
namespace {
uint64_t mixed(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15;
  return hash ^ hash >> 29;
}
}  // namespace

size_t SeriesIndex::Name::find(std::string_view value) const {
  std::optional<uint32_t> symbol = symbols_->find(value);
  if (!symbol) return SIZE_MAX;
  auto at = by_symbol.find(*symbol);
  return at == by_symbol.end() ? SIZE_MAX : at->second;
}

// Values are only added, so what was found stays true and only new ones are looked at.
std::shared_ptr<const std::vector<uint32_t>> SeriesIndex::Name::remembered(const CompiledMatcher& matcher) const {
  if (matcher.matcher().op != LabelMatcher::Op::kRegex) return nullptr;
  MutexLock lock(remembered_mutex_);
  if (remembered_.size() >= kRememberedMax && !remembered_.contains(matcher.matcher().value)) remembered_.clear();
  Remembered& known = remembered_[matcher.matcher().value];
  if (known.values == nullptr) known.values = std::make_shared<std::vector<uint32_t>>();
  if (known.seen < values.size()) {
    auto grown = std::make_shared<std::vector<uint32_t>>(*known.values);
    for (; known.seen < values.size(); ++known.seen) {
      if (matcher.matches(value(known.seen))) grown->push_back(static_cast<uint32_t>(known.seen));
    }
    known.values = std::move(grown);
  }
  return known.values;
}

SeriesIndex::Row SeriesIndex::Tables::row_of(SeriesId series) const {
  const size_t place = places[series.value()];
  const uint32_t* row = &words[place];
  if ((row[0] & kDerived) == 0) return {*shapes[row[0]], row + 1, kNone, 0};
  const uint32_t* full = &words[place - (row[0] & ((1u << kDistanceBits) - 1))];
  return {*shapes[full[0]], full + 1, (row[0] & ~kDerived) >> kDistanceBits, row[1]};
}

uint32_t SeriesIndex::Tables::add_row(uint32_t number, std::span<const LabelSymbols> labels) {
  Shape& shape = *shapes[number];
  size_t differ = 0, changed = 0;
  if (shape.last_full != kNone) {
    const uint32_t* full = &words[shape.last_full] + 1;
    for (size_t i = 0; i < labels.size(); ++i) {
      if (full[i] == labels[i].value) continue;
      ++differ;
      changed = i;
    }
  }
  const size_t distance = words.run_place(2) - shape.last_full;
  if (differ == 1 && changed < kNamesMax && distance < size_t{1} << kDistanceBits) {
    const auto what = static_cast<uint32_t>(changed << kDistanceBits | distance);
    return static_cast<uint32_t>(words.add_run(std::array{kDerived | what, labels[changed].value}));
  }
  thread_local std::vector<uint32_t> full;
  full.assign(1, number);
  for (const LabelSymbols& label : labels) full.push_back(label.value);
  return shape.last_full = static_cast<uint32_t>(words.add_run(full));
}

uint64_t SeriesIndex::Tables::hash_of(SeriesId series) const {
  const Row row = row_of(series);
  uint64_t hash = row.shape.names.size();
  for (size_t i = 0; i < row.shape.names.size(); ++i) hash = mixed(hash, uint64_t{row.shape.names[i]} << 32 | row[i]);
  return hash;
}

SeriesId SeriesIndex::Tables::lookup(std::span<const LabelSymbols> labels) const {
  if (slots.empty()) return kNoSeries;
  uint64_t hash = labels.size();
  for (const LabelSymbols& label : labels) hash = mixed(hash, uint64_t{label.name} << 32 | label.value);
  const size_t mask = slots.size() - 1;
  for (size_t at = hash & mask; slots[at] != 0; at = (at + 1) & mask) {
    const SeriesId series{slots[at] - 1};
    if (is_forgotten[series.value()]) continue;
    const Row row = row_of(series);
    bool same = row.shape.names.size() == labels.size();
    for (size_t i = 0; same && i < labels.size(); ++i)
      same = row.shape.names[i] == labels[i].name && row[i] == labels[i].value;
    if (same) return series;
  }
  return kNoSeries;
}

void SeriesIndex::Tables::enter(SeriesId series) {
  if ((slots_used + 1) * 10 > slots.size() * 8) {
    slots.assign(std::max<size_t>(1024, slots.size() * 2), 0);
    slots_used = 0;
    for (uint32_t known = 0; known < series.value(); ++known) {
      if (!is_forgotten[known]) enter(SeriesId{known});
    }
  }
  const size_t mask = slots.size() - 1;
  size_t at = hash_of(series) & mask;
  while (slots[at] != 0) at = (at + 1) & mask;
  slots[at] = series.value() + 1;
  ++slots_used;
}

uint32_t SeriesIndex::Tables::shape_of(std::span<const LabelSymbols> labels) {
  thread_local std::vector<uint32_t> key;
  key.clear();
  for (const LabelSymbols& label : labels) key.push_back(label.name);
  auto known = shape_numbers.find(key);
  if (known != shape_numbers.end()) return known->second;
  auto shape = std::make_unique<Shape>();
  shape->names = key;
  shape->last_made.resize(key.size());
  for (uint32_t name : key) {
    std::unique_ptr<Name>& dictionary = names[name];
    if (dictionary == nullptr) dictionary = std::make_unique<Name>(*symbols);
    shape->dictionaries.push_back(dictionary.get());
  }
  shapes.push_back(std::move(shape));
  return shape_numbers[key] = static_cast<uint32_t>(shapes.size() - 1);
}

SeriesId SeriesIndex::Making::find(const Labels& labels) {
  index_.mutex_.assert_held();
  thread_local std::vector<LabelSymbols> symbols;
  symbols.clear();
  for (const auto& [name, value] : labels) {
    std::optional<uint32_t> a = index_.tables_->symbols->find(name);
    std::optional<uint32_t> b = a ? index_.tables_->symbols->find(value) : std::nullopt;
    if (!b) return kNoSeries;
    symbols.push_back({*a, *b});
  }
  return find(symbols);
}

SeriesId SeriesIndex::Making::find(std::span<const LabelSymbols> labels) const {
  index_.mutex_.assert_held();
  return index_.tables_->lookup(labels);
}

const char* SeriesIndex::Making::refusal(const Labels& labels, std::string& example) const {
  index_.mutex_.assert_held();
  const SeriesLimits& limits = index_.limits_;
  auto too_many = [&](const char* what, uint64_t have, uint64_t most) {
    example = format("%s has %llu series, limit %llu; new ones are refused, the others go on", what,
                     static_cast<unsigned long long>(have), static_cast<unsigned long long>(most));
  };
  const uint64_t all = index_.tables_->homes.size() - index_.tables_->forgotten.size();
  if (all >= limits.series_max) {
    too_many("the store", all, limits.series_max);
    return "series_limit";
  }
  const struct {
    const char *label, *what, *reason;
    uint64_t most;
  } each[] = {{"__name__", "metric", "metric_limit", limits.series_per_metric_max},
              {"job_id", "job", "job_limit", limits.series_per_job_max},
              {kTenantLabel, "tenant", "tenant_limit", limits.series_per_tenant_max}};
  for (const auto& limit : each) {
    const std::string_view value = label_value(labels, limit.label);
    if (value.empty()) continue;
    if (const uint64_t have = index_.tables_->live_with(limit.label, value); have >= limit.most) {
      too_many((limit.what + (" " + as_one_line(value))).c_str(), have, limit.most);
      return limit.reason;
    }
  }
  return nullptr;
}

// Its rows, its places in the dictionaries, and those of its texts that are new.
bool SeriesIndex::Making::take_memory(const Labels& labels) {
  index_.mutex_.assert_held();
  constexpr uint64_t kSeriesBytes = 64, kLabelBytes = 16, kTextBytes = 160;
  uint64_t bytes = kSeriesBytes + labels.size() * kLabelBytes;
  for (const auto& label : labels) {
    for (const std::string* text : {&label.first, &label.second}) {
      if (!index_.tables_->symbols->find(*text)) bytes += text->size() + kTextBytes;
    }
  }
  if (!index_.memory_.hold(bytes)) return false;
  index_.charged_bytes_ += bytes;
  return true;
}

SeriesId SeriesIndex::Making::make(const Labels& labels, Home home) {
  index_.mutex_.assert_held();
  thread_local std::vector<LabelSymbols> symbols;
  symbols.clear();
  for (const auto& [name, value] : labels)
    symbols.push_back({index_.tables_->symbols->intern(name), index_.tables_->symbols->intern(value)});
  return make(symbols, home);
}

SeriesId SeriesIndex::Making::make(std::span<const LabelSymbols> labels, Home home) {
  index_.mutex_.assert_held();
  return index_.tables_->make(labels, home);
}

SeriesId SeriesIndex::Tables::make(std::span<const LabelSymbols> labels, Home home) {
  const uint32_t shape_number = shape_of(labels);
  const SeriesId series{static_cast<uint32_t>(homes.size())};
  places.push_back(add_row(shape_number, labels));
  homes.push_back(home.word());
  is_forgotten.push_back(false);
  enter(series);
  Shape& shape = *shapes[shape_number];
  for (size_t i = 0; i < labels.size(); ++i) {
    Name& name = *shape.dictionaries[i];
    Shape::Made& made = shape.last_made[i];
    if (made.symbol != labels[i].value) {  // series of one sender have most of their labels in common
      auto [known, is_new] = name.by_symbol.try_emplace(labels[i].value, static_cast<uint32_t>(name.values.size()));
      if (is_new) name.values.emplace_back().symbol = labels[i].value;
      made = {labels[i].value, known->second};
    }
    Value& value = name.values[made.place];
    if (value.forgotten > 0 && value.forgotten == value.postings.count())
      idle_text_bytes -= symbols->text(value.symbol).size();
    value.postings.add(series.value());
  }
  return series;
}

const SeriesIndex::Name* SeriesIndex::Tables::dictionary(std::string_view name) const {
  std::optional<uint32_t> symbol = symbols->find(name);
  if (!symbol) return nullptr;
  auto known = names.find(*symbol);
  return known == names.end() ? nullptr : known->second.get();
}

uint64_t SeriesIndex::Tables::live_with(std::string_view name, std::string_view value) const {
  const Name* values = dictionary(name);
  const size_t at = values == nullptr ? SIZE_MAX : values->find(value);
  return at == SIZE_MAX ? 0 : values->values[at].postings.count() - values->values[at].forgotten;
}

SeriesSet SeriesIndex::Reading::matching(const CompiledMatchers& matchers) const {
  SeriesSet set(tables_.homes.size(), true);
  matching_series(
      matchers, [&](std::string_view name) { return tables_.dictionary(name); }, set);
  for (SeriesId series : tables_.forgotten) set.remove(series.value());
  return set;
}

void SeriesIndex::Reading::names(std::vector<std::string>& to) const {
  for (const auto& [symbol, name] : tables_.names) {
    if (std::any_of(name->values.begin(), name->values.end(),
                    [](const Value& value) { return value.postings.count() > value.forgotten; }))
      to.emplace_back(tables_.symbols->text(symbol));
  }
}

void SeriesIndex::Reading::values(std::string_view name, std::vector<std::string>& to) const {
  const Name* known = tables_.dictionary(name);
  if (known == nullptr) return;
  for (const Value& value : known->values) {
    if (value.postings.count() > value.forgotten) to.emplace_back(tables_.symbols->text(value.symbol));
  }
}

size_t SeriesIndex::series_count() const {
  SharedLock lock(mutex_);
  return tables_->homes.size() - tables_->forgotten.size();
}

void SeriesIndex::settle_memory() {
  const uint64_t bytes = memory_bytes();
  MutexLock lock(mutex_);
  if (bytes < charged_bytes_) memory_.release(charged_bytes_ - bytes);
  if (bytes <= charged_bytes_ || memory_.hold(bytes - charged_bytes_)) charged_bytes_ = bytes;
}

size_t SeriesIndex::memory_bytes() const {
  SharedLock lock(mutex_);
  size_t bytes = tables_->symbols->memory_bytes() + tables_->words.memory_bytes() + tables_->places.memory_bytes() +
                 tables_->homes.memory_bytes() + tables_->is_forgotten.capacity() / 8 +
                 tables_->slots.capacity() * sizeof(uint32_t);
  for (const auto& [symbol, name] : tables_->names) {
    bytes += name->values.size() * (sizeof(Value) + 40);
    for (const Value& value : name->values) bytes += value.postings.memory_bytes();
  }
  return bytes;
}

std::vector<Creator> SeriesIndex::largest(std::string_view label, size_t count) const {
  SharedLock lock(mutex_);
  std::vector<Creator> list;
  const Name* values = tables_->dictionary(label);
  if (values == nullptr) return list;
  std::vector<std::pair<uint64_t, size_t>> order;
  for (size_t i = 0; i < values->values.size(); ++i)
    order.emplace_back(values->values[i].postings.count() - values->values[i].forgotten, i);
  count = std::min(count, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(), std::greater<>());
  for (size_t i = 0; i < count && order[i].first > 0; ++i)
    list.push_back({std::string(values->value(order[i].second)), order[i].first});
  return list;
}

void SeriesIndex::forget(std::span<const SeriesId> series) {
  MutexLock lock(mutex_);
  for (SeriesId one : series) {
    if (tables_->is_forgotten[one.value()]) continue;
    tables_->is_forgotten[one.value()] = true;
    tables_->forgotten.push_back(one);
    const Row row = tables_->row_of(one);
    for (size_t i = 0; i < row.shape.names.size(); ++i) {
      Name& name = *row.shape.dictionaries[i];
      Value& value = name.values[name.by_symbol.at(row[i])];
      if (++value.forgotten == value.postings.count())
        tables_->idle_text_bytes += tables_->symbols->text(value.symbol).size();
    }
  }
}

size_t SeriesIndex::forgotten_count() const {
  SharedLock lock(mutex_);
  return tables_->forgotten.size();
}

bool SeriesIndex::is_mostly_forgotten(size_t series_min) const {
  constexpr size_t kTextBytesMin = 1u << 20;
  SharedLock lock(mutex_);
  const size_t gone = tables_->forgotten.size();
  return gone > std::max(series_min, tables_->homes.size() - gone) ||
         tables_->idle_text_bytes > std::max(kTextBytesMin, tables_->symbols->memory_bytes() / 2);
}

// In parts, so that whoever makes series waits for one of them at most.
SeriesIndex::Renumbering::Renumbering(SeriesIndex& index) : index_(index), tables_(std::make_unique<Tables>()) {
  for (;;) {
    SharedLock lock(index_.mutex_);
    const size_t all = index_.tables_->homes.size();
    if (numbers_.size() == all) return;
    copy(std::min(all, numbers_.size() + kAtOnce));
  }
}

uint32_t SeriesIndex::Renumbering::symbol(uint32_t old) {
  if (old >= symbols_.size()) symbols_.resize(index_.tables_->symbols->size(), kNone);
  if (symbols_[old] == kNone) symbols_[old] = tables_->symbols->intern(index_.tables_->symbols->text(old));
  return symbols_[old];
}

void SeriesIndex::Renumbering::copy(size_t end) {
  const Tables& from = *index_.tables_;
  std::vector<LabelSymbols> labels;
  RunArray::Walk homes(from.homes);
  for (auto series = static_cast<uint32_t>(numbers_.size()); series < end; ++series) {
    if (from.is_forgotten[series]) {
      numbers_.push_back(kNoSeries);
      continue;
    }
    const Row row = from.row_of(SeriesId{series});
    labels.clear();
    for (size_t i = 0; i < row.shape.names.size(); ++i) labels.push_back({symbol(row.shape.names[i]), symbol(row[i])});
    numbers_.push_back(tables_->make(labels, Home::of(homes[series])));
  }
}

const std::vector<SeriesId>& SeriesIndex::Renumbering::finish() {
  MutexLock lock(index_.mutex_);
  copy(index_.tables_->homes.size());
  std::swap(index_.tables_, tables_);  // the old ones go with this, not under the lock
  return numbers_;
}

}  // namespace lockstep::metrics
