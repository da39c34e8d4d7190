#include "store/metrics/series_index.h"

#include <algorithm>
#include <mutex>

#include "base/text.h"

namespace lockstep::metrics {
namespace {
uint64_t mixed(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15;
  return hash ^ hash >> 29;
}
std::string label_text(const Labels& labels, std::string_view name) {
  for (const auto& [key, value] : labels) {
    if (key == name) return value;
  }
  return "";
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

bool SeriesIndex::symbols_of(const Labels& labels, std::vector<uint32_t>& pairs) const {
  pairs.clear();
  for (const auto& [name, value] : labels) {
    std::optional<uint32_t> a = symbols_.find(name);
    std::optional<uint32_t> b = a ? symbols_.find(value) : std::nullopt;
    if (!b) return false;
    pairs.push_back(*a);
    pairs.push_back(*b);
  }
  return true;
}

uint64_t SeriesIndex::hash_of(uint32_t series) const {
  const uint32_t place = places_[series];
  const Shape& shape = *shapes_[words_[place]];
  uint64_t hash = shape.names.size();
  for (size_t i = 0; i < shape.names.size(); ++i)
    hash = mixed(hash, uint64_t{shape.names[i]} << 32 | words_[place + 1 + i]);
  return hash;
}

namespace {
uint64_t hash_of_pairs(std::span<const uint32_t> pairs) {
  uint64_t hash = pairs.size() / 2;
  for (size_t i = 0; i < pairs.size(); i += 2) hash = mixed(hash, uint64_t{pairs[i]} << 32 | pairs[i + 1]);
  return hash;
}
}  // namespace

uint32_t SeriesIndex::lookup(uint64_t hash, std::span<const uint32_t> pairs) const {
  if (slots_.empty()) return kNone;
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask; slots_[at] != 0; at = (at + 1) & mask) {
    const uint32_t series = slots_[at] - 1;
    const uint32_t place = places_[series];
    const Shape& shape = *shapes_[words_[place]];
    if (shape.names.size() * 2 != pairs.size() || homes_[series].group == kNone) continue;
    bool same = true;
    for (size_t i = 0; same && i < shape.names.size(); ++i)
      same = shape.names[i] == pairs[2 * i] && words_[place + 1 + i] == pairs[2 * i + 1];
    if (same) return series;
  }
  return kNone;
}

void SeriesIndex::enter(uint32_t series) {
  if ((slots_used_ + 1) * 10 > slots_.size() * 8) {
    slots_.assign(std::max<size_t>(1024, slots_.size() * 2), 0);
    slots_used_ = 0;
    for (uint32_t known = 0; known < series; ++known) {
      if (homes_[known].group != kNone) enter(known);
    }
  }
  const size_t mask = slots_.size() - 1;
  size_t at = hash_of(series) & mask;
  while (slots_[at] != 0) at = (at + 1) & mask;
  slots_[at] = series + 1;
  ++slots_used_;
}

uint32_t SeriesIndex::shape_of(const std::vector<uint32_t>& pairs) {
  std::vector<uint32_t> names;
  for (size_t i = 0; i < pairs.size(); i += 2) names.push_back(pairs[i]);
  auto [known, is_new] = shape_numbers_.try_emplace(std::move(names), static_cast<uint32_t>(shapes_.size()));
  if (is_new) {
    auto shape = std::make_unique<Shape>();
    shape->names = known->first;
    for (uint32_t name : shape->names) {
      std::unique_ptr<Name>& dictionary = names_[name];
      if (dictionary == nullptr) dictionary = std::make_unique<Name>(symbols_);
      shape->dictionaries.push_back(dictionary.get());
    }
    shapes_.push_back(std::move(shape));
  }
  return known->second;
}

uint32_t SeriesIndex::Making::find(const Labels& labels) {
  thread_local std::vector<uint32_t> pairs;
  if (!index_.symbols_of(labels, pairs)) return kNone;
  return index_.lookup(hash_of_pairs(pairs), pairs);
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
  const std::string metric = label_text(labels, "__name__");
  if (const uint64_t have = index_.live_with("__name__", metric); have >= limits.series_per_metric_max) {
    too_many(("metric " + as_one_line(metric)).c_str(), have, limits.series_per_metric_max);
    return "metric_limit";
  }
  const std::string job = label_text(labels, "job_id");
  if (!job.empty()) {
    if (const uint64_t have = index_.live_with("job_id", job); have >= limits.series_per_job_max) {
      too_many(("job " + as_one_line(job)).c_str(), have, limits.series_per_job_max);
      return "job_limit";
    }
  }
  return nullptr;
}

uint32_t SeriesIndex::Making::make(const Labels& labels, Home home) {
  thread_local std::vector<uint32_t> pairs, words;
  pairs.clear();
  for (const auto& [name, value] : labels) {
    pairs.push_back(index_.symbols_.intern(name));
    pairs.push_back(index_.symbols_.intern(value));
  }
  words.clear();
  const uint32_t shape_number = index_.shape_of(pairs);
  words.push_back(shape_number);
  for (size_t i = 1; i < pairs.size(); i += 2) words.push_back(pairs[i]);
  const uint32_t series = static_cast<uint32_t>(index_.homes_.size());
  index_.places_.push_back(static_cast<uint32_t>(index_.words_.add_run(words.data(), words.size())));
  index_.homes_.push_back(home);
  index_.enter(series);
  const Shape& shape = *index_.shapes_[shape_number];
  for (size_t i = 0; i < shape.names.size(); ++i) {
    Name& name = *shape.dictionaries[i];
    auto [known, is_new] = name.by_symbol.try_emplace(words[i + 1], static_cast<uint32_t>(name.values.size()));
    if (is_new) name.values.emplace_back().symbol = words[i + 1];
    name.values[known->second].postings.add(series);
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

size_t SeriesIndex::Reading::label_count(uint32_t series) const {
  return index_.shapes_[index_.words_[index_.places_[series]]]->names.size();
}

void SeriesIndex::Reading::labels(uint32_t series, LabelSymbols* to) const {
  const uint32_t place = index_.places_[series];
  const Shape& shape = *index_.shapes_[index_.words_[place]];
  for (size_t i = 0; i < shape.names.size(); ++i) to[i] = {shape.names[i], index_.words_[place + 1 + i]};
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
                 slots_.capacity() * sizeof(uint32_t);
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
    if (homes_[one].group == kNone) continue;
    homes_[one].group = kNone;
    forgotten_.push_back(one);
    const uint32_t place = places_[one];
    const Shape& shape = *shapes_[words_[place]];
    for (size_t i = 0; i < shape.names.size(); ++i) {
      Name& name = *shape.dictionaries[i];
      ++name.values[name.by_symbol.at(words_[place + 1 + i])].forgotten;
    }
  }
}

}  // namespace lockstep::metrics
