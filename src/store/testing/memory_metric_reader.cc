#include "store/testing/memory_metric_reader.h"

#include <re2/re2.h>

#include <algorithm>
#include <set>

#include "base/text.h"

namespace lockstep {
namespace {

class Matcher {
 public:
  explicit Matcher(const LabelMatcher& matcher) : matcher_(matcher) {
    if (matcher.op != LabelMatcher::Op::kRegex && matcher.op != LabelMatcher::Op::kNotRegex) return;
    RE2::Options options;
    options.set_log_errors(false);
    options.set_dot_nl(true);
    regex_ = std::make_unique<RE2>(matcher.value, options);
  }
  bool ok() const { return !regex_ || regex_->ok(); }
  bool matches(const MemoryMetricReader::LabelList& labels) const {
    std::string_view value;
    for (const auto& [name, text] : labels) {
      if (name == matcher_.name) value = text;
    }
    switch (matcher_.op) {
      case LabelMatcher::Op::kEqual:
        return value == matcher_.value;
      case LabelMatcher::Op::kNotEqual:
        return value != matcher_.value;
      default:
        break;
    }
    return RE2::FullMatch(re2::StringPiece(value.data(), value.size()), *regex_) ==
           (matcher_.op == LabelMatcher::Op::kRegex);
  }

 private:
  const LabelMatcher& matcher_;
  std::unique_ptr<RE2> regex_;
};

}  // namespace

class MemorySelection : public MetricSelection {
 public:
  MemorySelection(const MemoryMetricReader& reader, std::vector<const MemoryMetricReader::Series*> series)
      : reader_(reader), series_(std::move(series)) {}
  size_t size() const override { return series_.size(); }
  std::span<const LabelSymbols> labels(size_t i) const override { return series_[i]->symbols; }
  std::string_view text(uint32_t symbol) const override { return reader_.texts_[symbol]; }
  Result<void> samples(size_t i, int64_t from_ms, int64_t to_ms, SampleColumns& out) const override {
    out.clear();
    const SampleColumns& all = series_[i]->samples;
    const auto begin = std::lower_bound(all.times_ms.begin(), all.times_ms.end(), from_ms) - all.times_ms.begin();
    const auto end = std::upper_bound(all.times_ms.begin(), all.times_ms.end(), to_ms) - all.times_ms.begin();
    if (begin >= end) return {};
    out.times_ms.assign(all.times_ms.begin() + begin, all.times_ms.begin() + end);
    out.values.assign(all.values.begin() + begin, all.values.begin() + end);
    if (!all.histograms.empty()) out.histograms.assign(all.histograms.begin() + begin, all.histograms.begin() + end);
    return {};
  }

 private:
  const MemoryMetricReader& reader_;
  std::vector<const MemoryMetricReader::Series*> series_;
};

uint32_t MemoryMetricReader::symbol(std::string_view text) {
  if (const auto found = symbols_.find(text); found != symbols_.end()) return found->second;
  texts_.emplace_back(text);
  const auto id = static_cast<uint32_t>(texts_.size() - 1);
  symbols_.emplace(texts_.back(), id);
  return id;
}

SampleColumns& MemoryMetricReader::series(LabelList labels) {
  std::erase_if(labels, [](const auto& label) { return label.second.empty(); });
  std::sort(labels.begin(), labels.end());
  std::unique_ptr<Series>& found = series_[labels];
  if (!found) {
    found = std::make_unique<Series>();
    for (const auto& [name, value] : labels) found->symbols.push_back({symbol(name), symbol(value)});
    found->labels = std::move(labels);
  }
  return found->samples;
}

void MemoryMetricReader::add(const LabelList& labels, int64_t time_ms, double value) {
  SampleColumns& columns = series(labels);
  const auto at =
      std::lower_bound(columns.times_ms.begin(), columns.times_ms.end(), time_ms) - columns.times_ms.begin();
  const bool replace =
      at < static_cast<ptrdiff_t>(columns.times_ms.size()) && columns.times_ms[static_cast<size_t>(at)] == time_ms;
  if (!replace) {
    columns.times_ms.insert(columns.times_ms.begin() + at, time_ms);
    columns.values.insert(columns.values.begin() + at, value);
    if (!columns.histograms.empty()) columns.histograms.insert(columns.histograms.begin() + at, nullptr);
    return;
  }
  columns.values[static_cast<size_t>(at)] = value;
  if (!columns.histograms.empty()) columns.histograms[static_cast<size_t>(at)] = nullptr;
}

void MemoryMetricReader::add(const LabelList& labels, int64_t time_ms,
                             std::shared_ptr<const NativeHistogram> histogram) {
  add(labels, time_ms, 0.0);
  SampleColumns& columns = series(labels);
  columns.histograms.resize(columns.times_ms.size());
  const auto at =
      std::lower_bound(columns.times_ms.begin(), columns.times_ms.end(), time_ms) - columns.times_ms.begin();
  columns.histograms[static_cast<size_t>(at)] = std::move(histogram);
}

void MemoryMetricReader::clear() {
  series_.clear();
  metadata_.clear();
  exemplars_.clear();
}

Result<std::vector<const MemoryMetricReader::Series*>> MemoryMetricReader::matching(
    std::span<const LabelMatcher> matchers, int64_t from_ms, int64_t to_ms) const {
  std::vector<Matcher> compiled;
  for (const LabelMatcher& matcher : matchers) {
    compiled.emplace_back(matcher);
    if (!compiled.back().ok()) return Error{"the regular expression does not compile: " + matcher.value};
  }
  std::vector<const Series*> out;
  for (const auto& entry : series_) {
    const Series* one = entry.second.get();
    const std::vector<int64_t>& times = one->samples.times_ms;
    const auto first = std::lower_bound(times.begin(), times.end(), from_ms);
    if (first == times.end() || *first > to_ms) continue;
    if (std::all_of(compiled.begin(), compiled.end(),
                    [&](const Matcher& matcher) { return matcher.matches(one->labels); }))
      out.push_back(one);
  }
  return out;
}

Result<std::vector<const MemoryMetricReader::Series*>> MemoryMetricReader::matching_any(
    std::span<const std::vector<LabelMatcher>> any, int64_t from_ms, int64_t to_ms) const {
  if (any.empty()) return matching({}, from_ms, to_ms);
  std::set<const Series*> seen;
  for (const std::vector<LabelMatcher>& matchers : any) {
    std::vector<const Series*> found = LOCKSTEP_TRY(matching(matchers, from_ms, to_ms));
    seen.insert(found.begin(), found.end());
  }
  return std::vector<const Series*>(seen.begin(), seen.end());
}

Result<std::unique_ptr<MetricSelection>> MemoryMetricReader::select(std::span<const LabelMatcher> matchers,
                                                                    const SelectOptions& options) const {
  std::vector<const Series*> found = LOCKSTEP_TRY(matching(matchers, options.from_ms, options.to_ms));
  if (options.series_max != 0 && found.size() > options.series_max)
    return Error{format("%zu series match; at most %llu may", found.size(),
                        static_cast<unsigned long long>(options.series_max))};
  return std::unique_ptr<MetricSelection>(std::make_unique<MemorySelection>(*this, std::move(found)));
}

Result<std::vector<std::string>> MemoryMetricReader::label_names(std::span<const std::vector<LabelMatcher>> any,
                                                                 int64_t from_ms, int64_t to_ms) const {
  std::vector<const Series*> found = LOCKSTEP_TRY(matching_any(any, from_ms, to_ms));
  std::set<std::string> names;
  for (const Series* one : found) {
    for (const auto& [name, value] : one->labels) names.insert(name);
  }
  return std::vector<std::string>(names.begin(), names.end());
}

Result<std::vector<std::string>> MemoryMetricReader::label_values(std::string_view wanted,
                                                                  std::span<const std::vector<LabelMatcher>> any,
                                                                  int64_t from_ms, int64_t to_ms) const {
  std::vector<const Series*> found = LOCKSTEP_TRY(matching_any(any, from_ms, to_ms));
  std::set<std::string> values;
  for (const Series* one : found) {
    for (const auto& [name, value] : one->labels) {
      if (name == wanted) values.insert(value);
    }
  }
  return std::vector<std::string>(values.begin(), values.end());
}

Result<std::vector<Exemplar>> MemoryMetricReader::exemplars(std::span<const LabelMatcher> matchers, int64_t from_ms,
                                                            int64_t to_ms) const {
  std::vector<Matcher> compiled;
  for (const LabelMatcher& matcher : matchers) compiled.emplace_back(matcher);
  std::vector<Exemplar> out;
  for (const Exemplar& exemplar : exemplars_) {
    if (exemplar.time_ms < from_ms || exemplar.time_ms > to_ms) continue;
    if (std::all_of(compiled.begin(), compiled.end(),
                    [&](const Matcher& m) { return m.matches(exemplar.series_labels); }))
      out.push_back(exemplar);
  }
  return out;
}

}  // namespace lockstep
