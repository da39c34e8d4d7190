#include "store/metrics/series_index.h"

#include <algorithm>
#include <array>
#include <mutex>

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
  std::lock_guard lock(remembered_mutex_);
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

SeriesIndex::Row SeriesIndex::row_of(uint32_t series) const {
  const uint32_t* words = &words_[places_[series]];
  if ((words[0] & kDerived) == 0) return {*shapes_[words[0]], words + 1, kNone, 0};
  const uint32_t* full = &words_[places_[series] - (words[0] & ((1u << kDistanceBits) - 1))];
  return {*shapes_[full[0]], full + 1, (words[0] & ~kDerived) >> kDistanceBits, words[1]};
}

uint32_t SeriesIndex::add_row(uint32_t number, std::span<const LabelSymbols> labels) {
  Shape& shape = *shapes_[number];
  size_t differ = 0, changed = 0;
  if (shape.last_full != kNone) {
    const uint32_t* full = &words_[shape.last_full] + 1;
    for (size_t i = 0; i < labels.size(); ++i) {
      if (full[i] == labels[i].value) continue;
      ++differ;
      changed = i;
    }
  }
  const size_t distance = words_.run_place(2) - shape.last_full;
  if (differ == 1 && changed < kNamesMax && distance < size_t{1} << kDistanceBits) {
    const auto what = static_cast<uint32_t>(changed << kDistanceBits | distance);
    return static_cast<uint32_t>(words_.add_run(std::array{kDerived | what, labels[changed].value}));
  }
  thread_local std::vector<uint32_t> words;
  words.assign(1, number);
  for (const LabelSymbols& label : labels) words.push_back(label.value);
  return shape.last_full = static_cast<uint32_t>(words_.add_run(words));
}

uint64_t SeriesIndex::hash_of(uint32_t series) const {
  const Row row = row_of(series);
  uint64_t hash = row.shape.names.size();
  for (size_t i = 0; i < row.shape.names.size(); ++i) hash = mixed(hash, uint64_t{row.shape.names[i]} << 32 | row[i]);
  return hash;
}

uint32_t SeriesIndex::lookup(std::span<const LabelSymbols> labels) const {
  if (slots_.empty()) return kNone;
  uint64_t hash = labels.size();
  for (const LabelSymbols& label : labels) hash = mixed(hash, uint64_t{label.name} << 32 | label.value);
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask; slots_[at] != 0; at = (at + 1) & mask) {
    const uint32_t series = slots_[at] - 1;
    if (is_forgotten_[series]) continue;
    const Row row = row_of(series);
    bool same = row.shape.names.size() == labels.size();
    for (size_t i = 0; same && i < labels.size(); ++i)
      same = row.shape.names[i] == labels[i].name && row[i] == labels[i].value;
    if (same) return series;
  }
  return kNone;
}

void SeriesIndex::enter(uint32_t series) {
  if ((slots_used_ + 1) * 10 > slots_.size() * 8) {
    slots_.assign(std::max<size_t>(1024, slots_.size() * 2), 0);
    slots_used_ = 0;
    for (uint32_t known = 0; known < series; ++known) {
      if (!is_forgotten_[known]) enter(known);
    }
  }
  const size_t mask = slots_.size() - 1;
  size_t at = hash_of(series) & mask;
  while (slots_[at] != 0) at = (at + 1) & mask;
  slots_[at] = series + 1;
  ++slots_used_;
}

uint32_t SeriesIndex::shape_of(std::span<const LabelSymbols> labels) {
  thread_local std::vector<uint32_t> names;
  names.clear();
  for (const LabelSymbols& label : labels) names.push_back(label.name);
  auto known = shape_numbers_.find(names);
  if (known != shape_numbers_.end()) return known->second;
  auto shape = std::make_unique<Shape>();
  shape->names = names;
  shape->last_made.resize(names.size());
  for (uint32_t name : names) {
    std::unique_ptr<Name>& dictionary = names_[name];
    if (dictionary == nullptr) dictionary = std::make_unique<Name>(symbols_);
    shape->dictionaries.push_back(dictionary.get());
  }
  shapes_.push_back(std::move(shape));
  return shape_numbers_[names] = static_cast<uint32_t>(shapes_.size() - 1);
}

uint32_t SeriesIndex::Making::find(const Labels& labels) {
  thread_local std::vector<LabelSymbols> symbols;
  symbols.clear();
  for (const auto& [name, value] : labels) {
    std::optional<uint32_t> a = index_.symbols_.find(name);
    std::optional<uint32_t> b = a ? index_.symbols_.find(value) : std::nullopt;
    if (!b) return kNone;
    symbols.push_back({*a, *b});
  }
  return find(symbols);
}

uint32_t SeriesIndex::Making::find(std::span<const LabelSymbols> labels) const {
  return index_.lookup(labels);
}

const char* SeriesIndex::Making::refusal(const Labels& labels, std::string& example) const {
  const SeriesLimits& limits = index_.limits_;
  auto too_many = [&](const char* what, uint64_t have, uint64_t most) {
    example = format("%s has %llu series, limit %llu; new ones are refused, the others go on", what,
                     static_cast<unsigned long long>(have), static_cast<unsigned long long>(most));
  };
  const uint64_t all = index_.homes_.size() - index_.forgotten_.size();
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
    if (const uint64_t have = index_.live_with(limit.label, value); have >= limit.most) {
      too_many((limit.what + (" " + as_one_line(value))).c_str(), have, limit.most);
      return limit.reason;
    }
  }
  return nullptr;
}

uint32_t SeriesIndex::Making::make(const Labels& labels, Home home) {
  thread_local std::vector<LabelSymbols> symbols;
  symbols.clear();
  for (const auto& [name, value] : labels)
    symbols.push_back({index_.symbols_.intern(name), index_.symbols_.intern(value)});
  return make(symbols, home);
}

uint32_t SeriesIndex::Making::make(std::span<const LabelSymbols> labels, Home home) {
  const uint32_t shape_number = index_.shape_of(labels);
  const uint32_t series = static_cast<uint32_t>(index_.homes_.size());
  index_.places_.push_back(index_.add_row(shape_number, labels));
  index_.homes_.push_back(home.word());
  index_.is_forgotten_.push_back(false);
  index_.enter(series);
  Shape& shape = *index_.shapes_[shape_number];
  for (size_t i = 0; i < labels.size(); ++i) {
    Name& name = *shape.dictionaries[i];
    Shape::Made& made = shape.last_made[i];
    if (made.symbol != labels[i].value) {  // series of one sender have most of their labels in common
      auto [known, is_new] = name.by_symbol.try_emplace(labels[i].value, static_cast<uint32_t>(name.values.size()));
      if (is_new) name.values.emplace_back().symbol = labels[i].value;
      made = {labels[i].value, known->second};
    }
    name.values[made.place].postings.add(series);
  }
  return series;
}

const SeriesIndex::Name* SeriesIndex::dictionary(std::string_view name) const {
  std::optional<uint32_t> symbol = symbols_.find(name);
  if (!symbol) return nullptr;
  auto known = names_.find(*symbol);
  return known == names_.end() ? nullptr : known->second.get();
}

uint64_t SeriesIndex::live_with(std::string_view name, std::string_view value) const {
  const Name* values = dictionary(name);
  const size_t at = values == nullptr ? SIZE_MAX : values->find(value);
  return at == SIZE_MAX ? 0 : values->values[at].postings.count() - values->values[at].forgotten;
}

SeriesSet SeriesIndex::Reading::matching(const CompiledMatchers& matchers) const {
  SeriesSet set(index_.homes_.size(), true);
  matching_series(
      matchers, [&](std::string_view name) { return index_.dictionary(name); }, set);
  for (uint32_t series : index_.forgotten_) set.remove(series);
  return set;
}

void SeriesIndex::Reading::names(std::vector<std::string>& to) const {
  for (const auto& [symbol, name] : index_.names_) {
    if (std::any_of(name->values.begin(), name->values.end(),
                    [](const Value& value) { return value.postings.count() > value.forgotten; }))
      to.emplace_back(index_.symbols_.text(symbol));
  }
}

void SeriesIndex::Reading::values(std::string_view name, std::vector<std::string>& to) const {
  const Name* known = index_.dictionary(name);
  if (known == nullptr) return;
  for (const Value& value : known->values) {
    if (value.postings.count() > value.forgotten) to.emplace_back(index_.symbols_.text(value.symbol));
  }
}

size_t SeriesIndex::series_count() const {
  std::shared_lock lock(mutex_);
  return homes_.size() - forgotten_.size();
}

size_t SeriesIndex::memory_bytes() const {
  std::shared_lock lock(mutex_);
  size_t bytes = symbols_.memory_bytes() + words_.memory_bytes() + places_.memory_bytes() + homes_.memory_bytes() +
                 is_forgotten_.capacity() / 8 + slots_.capacity() * sizeof(uint32_t);
  for (const auto& [symbol, name] : names_) {
    bytes += name->values.size() * (sizeof(Value) + 40);
    for (const Value& value : name->values) bytes += value.postings.memory_bytes();
  }
  return bytes;
}

std::vector<Creator> SeriesIndex::largest(std::string_view label, size_t count) const {
  std::shared_lock lock(mutex_);
  std::vector<Creator> list;
  const Name* values = dictionary(label);
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

void SeriesIndex::forget(std::span<const uint32_t> series) {
  std::unique_lock lock(mutex_);
  for (uint32_t one : series) {
    if (is_forgotten_[one]) continue;
    is_forgotten_[one] = true;
    forgotten_.push_back(one);
    const Row row = row_of(one);
    for (size_t i = 0; i < row.shape.names.size(); ++i) {
      Name& name = *row.shape.dictionaries[i];
      ++name.values[name.by_symbol.at(row[i])].forgotten;
    }
  }
}

}  // namespace lockstep::metrics
