#include "query/alias_reader.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/text.h"
#include "model/metric_aliases.h"
#include "model/metric_descriptor.h"
#include "model/series_labels.h"
#include "store/metrics/matching.h"

namespace lockstep {
namespace {

using metrics::CompiledMatcher;

// Names of others that a matcher on the name asks for; of ours where `ours` is set. Neither: none of our business.
struct Asked {
  std::vector<const MetricAlias*> others;
  std::vector<const MetricAlias*> ours;
};
Asked asked_of(std::span<const LabelMatcher> matchers) {
  Asked asked;
  for (const LabelMatcher& matcher : matchers) {
    if (matcher.name != kMetricNameLabel) continue;
    if (matcher.op == LabelMatcher::Op::kEqual) {
      if (const MetricAlias* alias = alias_of_other(matcher.value)) asked.others.push_back(alias);
      for (const MetricAlias* alias : aliases_of_ours(matcher.value)) asked.ours.push_back(alias);
      return asked;
    }
    if (matcher.op == LabelMatcher::Op::kRegex && may_be_other_name(matcher.value)) {
      const Result<CompiledMatcher> compiled = CompiledMatcher::compile(matcher);
      for (const MetricAlias& alias : metric_aliases()) {
        if (compiled.ok() && compiled->matches(alias.other)) asked.others.push_back(&alias);
      }
      return asked;
    }
  }
  return asked;
}

// What lockstep_gpu_info says of each GPU, in dcgm-exporter's words.
using GpuLabels = std::unordered_map<std::string, Labels>;

GpuLabels gpu_labels(const MetricReader& store) {
  GpuLabels gpus;
  const LabelMatcher info = label_is(kMetricNameLabel, "lockstep_gpu_info");
  // Of all time: the agent sends it again only now and then.
  Result<std::unique_ptr<MetricSelection>> found =
      store.select({&info, 1}, {.from_ms = 0, .to_ms = INT64_MAX / 1'000'000});
  if (!found.ok()) return gpus;
  const MetricSelection& series = **found;
  for (size_t i = 0; i < series.size(); ++i) {
    Labels labels;
    std::string uuid;
    for (const LabelSymbols& label : series.labels(i)) {
      const std::string_view name = series.text(label.name);
      const std::string value(series.text(label.value));
      if (name == "gpu_uuid") uuid = value;
      if (name == "index") {
        labels.emplace_back("gpu", value);
        labels.emplace_back("device", "nvidia" + value);
      }
      if (name == "model") labels.emplace_back("modelName", value);
      if (name == "pci") labels.emplace_back("pci_bus_id", dcgm_bus_id(value));
      if (name == "driver") labels.emplace_back("DCGM_FI_DRIVER_VERSION", value);
    }
    gpus[uuid] = std::move(labels);
  }
  return gpus;
}

void put(Labels& labels, std::string_view name, std::string value) {
  for (auto& [key, held] : labels) {
    if (key == name) return;  // what the series says itself counts
  }
  labels.emplace_back(name, std::move(value));
}

// Series of one stored selection under other labels and in another unit.
struct Part {
  std::unique_ptr<MetricSelection> selection;
  double scale = 1;
};

class AliasSelection final : public MetricSelection {
 public:
  explicit AliasSelection(bool is_scaled) : is_scaled_(is_scaled) {}

  void add(size_t part, size_t at, const Labels& labels) {
    Series series{part, at, {}};
    for (const auto& [name, value] : labels) series.labels.push_back({symbol(name), symbol(value)});
    series_.push_back(std::move(series));
  }
  size_t add_part(std::unique_ptr<MetricSelection> selection, double scale) {
    parts_.push_back({std::move(selection), scale});
    return parts_.size() - 1;
  }
  const MetricSelection& part(size_t part) const { return *parts_[part].selection; }

  size_t size() const override { return series_.size(); }
  std::span<const LabelSymbols> labels(size_t series) const override { return series_[series].labels; }
  std::string_view text(uint32_t symbol) const override { return texts_[symbol]; }
  bool has_rollups() const override {
    return std::any_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.selection->has_rollups(); });
  }
  Result<void> samples(size_t series, int64_t from_ms, int64_t to_ms, SampleColumns& out) const override {
    return read(series, out,
                [&](const MetricSelection& from, size_t at) { return from.samples(at, from_ms, to_ms, out); });
  }
  Result<void> stretches(size_t series, int64_t from_ms, int64_t to_ms, const WindowEdges& edges, SampleColumns& out,
                         std::vector<SampleStretch>& stretches) const override {
    const Series& one = series_[series];
    if (is_scaled_ && parts_[one.part].scale != 1)
      return MetricSelection::stretches(series, from_ms, to_ms, edges, out, stretches);
    return part(one.part).stretches(one.at, from_ms, to_ms, edges, out, stretches);
  }
  Result<void> newest(size_t series, int64_t from_ms, int64_t to_ms, SampleColumns& out) const override {
    return read(series, out,
                [&](const MetricSelection& from, size_t at) { return from.newest(at, from_ms, to_ms, out); });
  }

 private:
  struct Series {
    size_t part = 0, at = 0;
    std::vector<LabelSymbols> labels;
  };
  template <typename Read>
  Result<void> read(size_t series, SampleColumns& out, Read&& from) const {
    const Series& one = series_[series];
    const Part& part = parts_[one.part];
    Result<void> done = from(*part.selection, one.at);
    if (!done.ok() || part.scale == 1 || !is_scaled_) return done;
    for (double& value : out.values) {
      if (!is_stale(value)) value *= part.scale;
    }
    return done;
  }
  uint32_t symbol(std::string_view text) {
    if (const auto found = symbols_.find(text); found != symbols_.end()) return found->second;
    const auto number = static_cast<uint32_t>(texts_.size());
    symbols_.emplace(texts_.emplace_back(text), number);
    return number;
  }

  const bool is_scaled_;
  std::vector<Part> parts_;
  std::vector<Series> series_;
  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, uint32_t> symbols_;
};

Labels labels_of(const MetricSelection& selection, size_t at) {
  Labels labels;
  for (const LabelSymbols& label : selection.labels(at))
    labels.emplace_back(selection.text(label.name), selection.text(label.value));
  return labels;
}

// Which GPU and which of a name's rows: where both names have it, one counts.
std::string key_of(const Labels& labels, const char* gpu_label, std::string_view name, std::string_view value) {
  std::string key(name);
  key.push_back('\0');
  key.append(value).push_back('\0');
  key.append(label_value(labels, gpu_label));
  return key;
}

// A series of ours as the tool says it.
Labels as_other(Labels labels, const MetricAlias& alias, const GpuLabels& gpus) {
  Labels renamed;
  std::string host, uuid;
  for (auto& [name, value] : labels) {
    if (name == kMetricNameLabel || name == alias.label) continue;
    if (name == "host") host = value;
    if (name == "gpu_uuid") uuid = value;
    for (const LabelAlias& label : label_aliases(alias.tool)) {
      if (name == label.ours) {
        name = label.other;
        break;
      }
    }
    renamed.emplace_back(std::move(name), std::move(value));
  }
  renamed.emplace_back(kMetricNameLabel, alias.other);
  if (!host.empty()) put(renamed, "instance", host);
  if (const auto gpu = gpus.find(uuid); alias.tool == MetricTool::kDcgm && gpu != gpus.end()) {
    for (const auto& [name, value] : gpu->second) put(renamed, name, value);
  }
  std::sort(renamed.begin(), renamed.end());
  return renamed;
}

// The other way round.
Labels as_ours(Labels labels, const MetricAlias& alias) {
  Labels renamed;
  for (auto& [name, value] : labels) {
    if (name == kMetricNameLabel) continue;
    for (const LabelAlias& label : label_aliases(alias.tool)) {
      if (name == label.other) {
        name = label.ours;
        break;
      }
    }
    put(renamed, name, std::move(value));
  }
  renamed.emplace_back(kMetricNameLabel, alias.ours);
  if (alias.label[0] != '\0') put(renamed, alias.label, alias.value);
  std::sort(renamed.begin(), renamed.end());
  return renamed;
}

// nullptr: no series besides those that the store has under the name itself.
Result<std::unique_ptr<MetricSelection>> with_aliases(const MetricReader& store, const Asked& asked,
                                                      std::span<const LabelMatcher> matchers,
                                                      const SelectOptions& options) {
  std::vector<CompiledMatcher> compiled = LOCKSTEP_TRY(metrics::compile_matchers(matchers));
  std::unique_ptr<MetricSelection> stored = LOCKSTEP_TRY(store.select(matchers, options));
  const bool to_others = !asked.others.empty();
  std::unordered_set<std::string> held;  // keys of what is stored under the name that was asked for
  GpuLabels gpus;
  bool gpus_known = false;
  auto all = std::make_unique<AliasSelection>(options.rollup != Rollup::kCount);
  bool any = false;
  for (const MetricAlias* alias : to_others ? asked.others : asked.ours) {
    std::vector<LabelMatcher> wanted = {label_is(kMetricNameLabel, to_others ? alias->ours : alias->other)};
    if (to_others && alias->label[0] != '\0') wanted.push_back(label_is(alias->label, alias->value));
    std::unique_ptr<MetricSelection> found = LOCKSTEP_TRY(store.select(wanted, options));
    if (found->size() == 0) continue;
    if (!any) {
      any = true;
      const size_t own = all->add_part(std::move(stored), 1);
      for (size_t i = 0; i < all->part(own).size(); ++i) {
        const Labels labels = labels_of(all->part(own), i);
        all->add(own, i, labels);
        for (const MetricAlias* one : to_others ? asked.others : asked.ours) {
          if (label_value(labels, kMetricNameLabel) != (to_others ? one->other : one->ours)) continue;
          const char* gpu = to_others ? label_aliases(one->tool)[0].other : label_aliases(one->tool)[0].ours;
          held.insert(key_of(labels, gpu, label_value(labels, kMetricNameLabel),
                             to_others || one->label[0] == '\0' ? "" : label_value(labels, one->label)));
        }
      }
    }
    if (to_others && alias->tool == MetricTool::kDcgm && !std::exchange(gpus_known, true)) gpus = gpu_labels(store);
    const size_t part = all->add_part(std::move(found), to_others ? alias->scale : 1 / alias->scale);
    const MetricSelection& series = all->part(part);
    for (size_t i = 0; i < series.size(); ++i) {
      const Labels labels =
          to_others ? as_other(labels_of(series, i), *alias, gpus) : as_ours(labels_of(series, i), *alias);
      const char* gpu = to_others ? label_aliases(alias->tool)[0].other : label_aliases(alias->tool)[0].ours;
      if (!metrics::matches_all(compiled, labels) ||
          held.contains(key_of(labels, gpu, label_value(labels, kMetricNameLabel), to_others ? "" : alias->value)))
        continue;
      all->add(part, i, labels);
    }
  }
  if (!any) return stored;
  if (options.series_max > 0 && all->size() > options.series_max)
    return Error{format("the query needs %zu series, the limit is %llu", all->size(),
                        static_cast<unsigned long long>(options.series_max))};
  return std::unique_ptr<MetricSelection>(std::move(all));
}

bool is_asked(const Asked& asked) {
  return !asked.others.empty() || !asked.ours.empty();
}

// The labels of all series that are asked for by a name of the table.
template <typename Take>
Result<void> each_label(const MetricReader& store, std::span<const std::vector<LabelMatcher>> any, int64_t from_ms,
                        int64_t to_ms, Take&& take) {
  for (const std::vector<LabelMatcher>& matchers : any) {
    const Asked asked = asked_of(matchers);
    if (!is_asked(asked)) continue;
    std::unique_ptr<MetricSelection> found =
        LOCKSTEP_TRY(with_aliases(store, asked, matchers, {.from_ms = from_ms, .to_ms = to_ms}));
    for (size_t i = 0; i < found->size(); ++i) {
      for (const LabelSymbols& label : found->labels(i)) take(found->text(label.name), found->text(label.value));
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<MetricSelection>> AliasReader::select(std::span<const LabelMatcher> matchers,
                                                             const SelectOptions& options) const {
  const Asked asked = asked_of(matchers);
  if (!is_asked(asked)) return store_.select(matchers, options);
  return with_aliases(store_, asked, matchers, options);
}

Result<std::vector<std::string>> AliasReader::label_names(std::span<const std::vector<LabelMatcher>> any,
                                                          int64_t from_ms, int64_t to_ms) const {
  std::vector<std::string> names = LOCKSTEP_TRY(store_.label_names(any, from_ms, to_ms));
  std::set<std::string> more;
  LOCKSTEP_TRY(
      each_label(store_, any, from_ms, to_ms, [&](std::string_view label, std::string_view) { more.emplace(label); }));
  if (more.empty()) return names;
  more.insert(names.begin(), names.end());
  return std::vector<std::string>(more.begin(), more.end());
}

Result<std::vector<std::string>> AliasReader::label_values(std::string_view name,
                                                           std::span<const std::vector<LabelMatcher>> any,
                                                           int64_t from_ms, int64_t to_ms) const {
  std::vector<std::string> values = LOCKSTEP_TRY(store_.label_values(name, any, from_ms, to_ms));
  std::set<std::string> more;
  LOCKSTEP_TRY(each_label(store_, any, from_ms, to_ms, [&](std::string_view label, std::string_view value) {
    if (label == name) more.emplace(value);
  }));
  if (any.empty() && name == kMetricNameLabel) {
    std::string_view asked_for;                // rows of one name of ours stand together: one question for them
    std::vector<std::string> values_of_label;  // its answer
    for (const MetricAlias& alias : metric_aliases()) {
      if (!std::binary_search(values.begin(), values.end(), alias.ours)) continue;
      if (alias.label[0] != '\0') {
        if (asked_for != alias.ours) {
          asked_for = alias.ours;
          const std::vector<LabelMatcher> ours = {label_is(kMetricNameLabel, alias.ours)};
          values_of_label = LOCKSTEP_TRY(store_.label_values(alias.label, {&ours, 1}, from_ms, to_ms));
        }
        if (!std::binary_search(values_of_label.begin(), values_of_label.end(), alias.value)) continue;
      }
      more.emplace(alias.other);
    }
  }
  if (more.empty()) return values;
  more.insert(values.begin(), values.end());
  return std::vector<std::string>(more.begin(), more.end());
}

std::vector<MetricMetadata> AliasReader::metadata() const {
  std::vector<MetricMetadata> all = store_.metadata();
  std::unordered_map<std::string_view, const MetricMetadata*> by_name;
  for (const MetricMetadata& one : all) by_name.emplace(one.name, &one);
  std::vector<MetricMetadata> more;
  for (const MetricAlias& alias : metric_aliases()) {
    const auto ours = by_name.find(alias.ours);
    if (ours == by_name.end() || by_name.contains(alias.other)) continue;
    more.push_back(
        {alias.other, ours->second->type, format("%s as %s names it.", alias.ours, to_text(alias.tool)), ""});
  }
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace lockstep
