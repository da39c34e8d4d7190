#include "server/heard_metrics.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "base/utc_time.h"
#include "diagnosis/signals/signals.h"
#include "model/prometheus_name.h"

namespace lockstep {
namespace {

constexpr uint32_t kNobody = UINT32_MAX;
constexpr int64_t kSliceMsMin = 1'000, kSliceMsMax = 3'600'000;

// Labels by which a resource is known, and as OTLP has them there; all others are a point's attributes.
struct ResourceLabel {
  std::string_view label;
  const char* attribute;
};
constexpr ResourceLabel kResourceLabels[] = {
    {"host", "host.name"},
    {"service_name", "service.name"},
    {"job_id", "lockstep.job_id"},
    {"attempt", "lockstep.attempt"},
};
// The store adds these to what was sent.
constexpr std::string_view kStoreLabels[] = {"__name__", "job", "instance", "service_instance_id"};

int64_t ms_of(int64_t unix_ns) {
  return unix_ns / 1'000'000;
}

std::string as_regex(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (c == '.' || c == '\\') text += '\\';
    text += c;
  }
  return text;
}

}  // namespace

HeardMetrics::HeardMetrics(const MetricReader& store, Applier& applier, SetAside& set_aside, int64_t from_unix_ns,
                           int64_t through_unix_ns, uint64_t samples_max, size_t slice_samples)
    : store_(store),
      applier_(applier),
      set_aside_(set_aside),
      to_ms_(ms_of(through_unix_ns)),
      slice_samples_(slice_samples) {
  const int64_t from_ms = std::max<int64_t>(0, ms_of(from_unix_ns));
  find_names(from_ms);
  next_ms_ = sent_name_.empty() ? to_ms_ + 1 : start_of_newest(samples_max, from_ms);
}

// Names are few hundred, whatever the size of the fleet.
void HeardMetrics::find_names(int64_t from_ms) {
  const Result<std::vector<std::string>> stored = store_.label_values("__name__", {}, from_ms, to_ms_);
  if (!stored.ok()) return LOCKSTEP_LOG_ERROR("server", "metrics are not read back: %s", stored.error().c_str());
  std::vector<std::string_view> otlp_names;
  for (const SignalRow& row : signal_rows()) {
    if (std::string_view(row.metric).find('.') != std::string_view::npos) otlp_names.emplace_back(row.metric);
    for (const std::string_view part : split(row.filter, ',')) {
      const std::string_view key = part.substr(0, part.find('='));
      if (const std::string label = prometheus_label(key); label != key) sent_label_.emplace(label, key);
    }
  }
  for (const std::string& name : *stored) {
    std::string sent;
    if (applier_.hears_metric(name)) {
      sent = name;
    } else {
      const auto found = std::find_if(otlp_names.begin(), otlp_names.end(), [&](std::string_view one) {
        return may_be_prometheus_name(name, one) && applier_.hears_metric(one);
      });
      if (found == otlp_names.end()) continue;
      sent = *found;
    }
    any_name_ += (any_name_.empty() ? "" : "|") + as_regex(name);
    sent_name_.emplace(name, std::move(sent));
  }
}

std::unique_ptr<MetricSelection> HeardMetrics::select(int64_t from_ms, int64_t to_ms) const {
  const LabelMatcher matchers[] = {{"__name__", LabelMatcher::Op::kRegex, any_name_}};
  Result<std::unique_ptr<MetricSelection>> found = store_.select(matchers, {.from_ms = from_ms, .to_ms = to_ms});
  if (found.ok()) return std::move(*found);
  LOCKSTEP_LOG_ERROR("server", "metrics of %s to %s are not read back: %s", utc_time(from_ms).c_str(),
                     utc_time(to_ms).c_str(), found.error().c_str());
  return nullptr;
}

// By how many there are in the newest stretch that has any.
int64_t HeardMetrics::start_of_newest(uint64_t samples_max, int64_t from_ms) const {
  SampleColumns columns;
  for (int64_t length_ms = 60'000; to_ms_ - length_ms > from_ms; length_ms *= 2) {
    const std::unique_ptr<MetricSelection> selection = select(to_ms_ - length_ms, to_ms_);
    uint64_t samples = 0;
    for (size_t series = 0; selection != nullptr && series < selection->size(); ++series) {
      if (selection->samples(series, to_ms_ - length_ms, to_ms_, columns).ok()) samples += columns.times_ms.size();
    }
    if (samples == 0) continue;
    const double lengths = static_cast<double>(samples_max) / static_cast<double>(samples);
    const double back_ms = lengths * static_cast<double>(length_ms);
    return back_ms >= static_cast<double>(to_ms_ - from_ms) ? from_ms : to_ms_ - static_cast<int64_t>(back_ms);
  }
  return from_ms;
}

uint32_t HeardMetrics::source_of(size_t series) {
  std::array<std::string_view, std::size(kResourceLabels)> texts;
  for (const LabelSymbols& label : selection_->labels(series)) {
    for (size_t i = 0; i < std::size(kResourceLabels); ++i) {
      if (selection_->text(label.name) == kResourceLabels[i].label) texts[i] = selection_->text(label.value);
    }
  }
  if (texts[0].empty()) return kNobody;
  const auto [found, is_new] = source_number_.try_emplace(std::vector<std::string_view>(texts.begin(), texts.end()),
                                                          static_cast<uint32_t>(sources_.size()));
  if (is_new) {
    Attributes& resource = sources_.emplace_back();
    for (size_t i = 0; i < texts.size(); ++i) {
      if (texts[i].empty()) continue;
      const std::optional<int64_t> number = i == 3 ? parse_int(texts[i]) : std::nullopt;
      resource.push_back({kResourceLabels[i].attribute, number ? Value(*number) : Value(std::string(texts[i]))});
    }
  }
  return found->second;
}

std::string_view HeardMetrics::name_of(size_t series) const {
  for (const LabelSymbols& label : selection_->labels(series)) {
    if (selection_->text(label.name) == "__name__") return selection_->text(label.value);
  }
  return {};
}

bool HeardMetrics::read_slice() {
  slice_.clear();
  at_ = 0;
  SampleColumns columns;
  while (slice_.empty() && next_ms_ <= to_ms_) {
    const int64_t last_ms = std::min(to_ms_, next_ms_ + slice_ms_ - 1);
    source_number_.clear();  // its texts are the selection's
    sources_.clear();
    selection_ = select(next_ms_, last_ms);
    for (size_t series = 0; selection_ != nullptr && series < selection_->size(); ++series) {
      const uint32_t source = source_of(series);
      if (source == kNobody) continue;
      if (Result<void> read = selection_->samples(series, next_ms_, last_ms, columns); !read.ok()) {
        LOCKSTEP_LOG_ERROR("server", "a series is not read back: %s", read.error().c_str());
        continue;
      }
      if (!columns.histograms.empty()) continue;
      const uint32_t order = static_cast<uint32_t>(series) | (name_of(series).ends_with("_info") ? 0 : Sample::kNoInfo);
      for (size_t i = 0; i < columns.times_ms.size(); ++i)
        slice_.push_back({columns.times_ms[i], source, order, columns.values[i]});
    }
    next_ms_ = last_ms + 1;
    if (slice_.size() > slice_samples_) slice_ms_ = std::max(kSliceMsMin, slice_ms_ / 2);
    if (slice_.size() < slice_samples_ / 4) slice_ms_ = std::min(kSliceMsMax, slice_ms_ * 2);
  }
  std::sort(slice_.begin(), slice_.end(), [](const Sample& a, const Sample& b) {
    return std::tie(a.time_ms, a.source, a.order) < std::tie(b.time_ms, b.source, b.order);
  });
  return !slice_.empty();
}

MetricPoint HeardMetrics::point_of(const Sample& sample) const {
  MetricPoint point;
  point.name = sent_name_.find(std::string(name_of(sample.series())))->second;
  for (const LabelSymbols& label : selection_->labels(sample.series())) {
    const std::string name(selection_->text(label.name));
    const std::string_view value = selection_->text(label.value);
    const auto is_name = [&](const auto& one) { return one == name; };
    if (std::any_of(std::begin(kStoreLabels), std::end(kStoreLabels), is_name)) continue;
    if (std::any_of(std::begin(kResourceLabels), std::end(kResourceLabels),
                    [&](const ResourceLabel& one) { return one.label == name; }))
      continue;
    const auto sent = sent_label_.find(name);
    point.attributes.push_back({sent == sent_label_.end() ? name : sent->second, Value(std::string(value))});
  }
  point.time_unix_ns = sample.time_ms * 1'000'000;
  if (is_stale(sample.value)) {
    point.flags = MetricPoint::kNoRecordedValue;
  } else {
    point.value = sample.value;
  }
  return point;
}

void HeardMetrics::tell_one_time() {
  const int64_t time_ms = slice_[at_].time_ms;
  Batch batch{.signal = Signal::kMetrics};
  const size_t first = at_;
  for (; at_ < slice_.size() && slice_[at_].time_ms == time_ms; ++at_) {
    if (at_ == first || slice_[at_].source != slice_[at_ - 1].source)
      batch.groups.push_back({.resource = sources_[slice_[at_].source]});
    batch.groups.back().points.push_back(point_of(slice_[at_]));
  }
  const int64_t time_unix_ns = time_ms * 1'000'000;
  if (set_aside_.is_set_aside(SetAside::kMetrics, time_unix_ns)) return;
  const SetAside::Applying applying(set_aside_, SetAside::kMetrics, time_unix_ns);
  const auto points = static_cast<int64_t>(at_ - first);
  points_ += static_cast<uint64_t>(points);
  applier_.apply_metrics(std::move(batch), points, time_unix_ns, 0);
}

void HeardMetrics::tell_through(int64_t unix_ns) {
  const int64_t through_ms = ms_of(unix_ns);
  while (at_ < slice_.size() || (next_ms_ <= through_ms && read_slice())) {
    if (slice_[at_].time_ms > through_ms) return;
    tell_one_time();
  }
}

}  // namespace lockstep
