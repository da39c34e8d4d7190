#include "ingest/otlp/metric_mapping.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>

#include "base/protobuf_wire.h"
#include "base/text.h"
#include "ingest/otlp/native_buckets.h"
#include "model/prometheus_name.h"
#include "model/series_labels.h"
#include "store/metric_reader.h"
#include "wire/otlp.h"
#include "wire/otlp_metric_walk.h"

namespace lockstep {
namespace {

using namespace protobuf;

const double kStale = std::bit_cast<double>(kStaleBits);
constexpr int32_t kSchemaMax = 8;
constexpr int32_t kSchemaMin = -4;

// The series that a metric becomes.
enum class Form : char {
  kGauge = 'g',
  kCounter = 'c',
  kUpDown = 'u',
  kBucket = 'b',  // with a bound
  kSum = 's',
  kCount = 'n',
  kNative = 'h',
  kQuantile = 'q',  // with a bound
};
bool has_bound(char form) {
  return form == static_cast<char>(Form::kBucket) || form == static_cast<char>(Form::kQuantile);
}

void put_size(std::string& out, size_t size) {
  const uint32_t short_size = static_cast<uint32_t>(size);
  char bytes[4];
  std::memcpy(bytes, &short_size, 4);
  out.append(bytes, 4);
}
void put_part(std::string& out, std::string_view part) {
  put_size(out, part.size());
  out += part;
}
std::string_view take_part(std::string_view& in) {
  if (in.size() < 4) return {};
  uint32_t size = 0;
  std::memcpy(&size, in.data(), 4);
  std::string_view part = in.substr(4, size);
  in.remove_prefix(4 + part.size());
  return part;
}

bool is_kept_resource(std::string_view key) {
  return key == "service.name" || key == "service.namespace" || key == "service.instance.id" || key == "host.name" ||
         key.starts_with("lockstep.");
}

// Fields that are attributes, each a KeyValue, whatever their number: as long as `take` says so.
template <typename Take>
Result<void> each_attribute(std::string_view fields, Take&& take) {
  WireError error;
  for (WireReader in(fields, error); in.next();) {
    Attribute attribute = LOCKSTEP_TRY(otlp::decode_attribute(in.bytes()));
    take(std::move(attribute));
  }
  if (error.what != nullptr) return Error{error.what};
  return {};
}

}  // namespace

// One request.
// Thread rule: Confined.
class RequestMapping {
 public:
  RequestMapping(MetricMapping& mapping, std::string_view receiver, const otlp::MetricsRequest& request,
                 int64_t received_unix_ns)
      : mapping_(mapping),
        receiver_(receiver),
        request_(request),
        received_ms_(received_unix_ns / 1'000'000),
        lease_(mapping.memory_, MemoryUse::kDecoding),
        deltas_(mapping.deltas_) {
    error_.lease = &lease_;
  }

  Result<MetricMapping::Outcome> run() {
    for (const otlp::WalkedScope& scope : request_.scopes) {
      if (problem_.empty()) scope_metrics(scope);
    }
    if (!problem_.empty()) return Error{problem_};
    if (lease_.was_refused()) return Error{kMemorySpent};
    if (error_.what != nullptr) return Error{error_.what};
    return outcome_;
  }

 private:
  struct Entry {
    size_t raw_at = 0, raw_size = 0;
    bool is_histogram = false;
    size_t at = 0;  // of the value, or of the histogram
    size_t first_exemplar = 0, exemplars = 0;
  };

  void scope_metrics(const otlp::WalkedScope& scope) {
    if (scope.resource != resource_number_) {
      resource_number_ = scope.resource;
      resource_.clear();
      for (const Attribute& attribute : request_.resources[scope.resource]) {
        if (is_kept_resource(attribute.key)) otlp::put_attribute(resource_, 1, attribute);
      }
    }
    prefix_.assign(1, 'O');
    put_part(prefix_, resource_);
    begin_push();
    for (size_t i = scope.first_metric; i < scope.first_metric + scope.metrics; ++i) metric(request_.metrics[i]);
    end_push(scope.name);
  }

  void metric(const otlp::WalkedMetric& one) {
    for (size_t i = one.first_point; i < one.first_point + one.points && error_.what == nullptr; ++i) {
      point(one, request_.points[i]);
    }
    if (one.points > 0) metadata(one);
  }

  static NameKind name_kind(const otlp::WalkedMetric& one) {
    if (one.kind == MetricKind::kGauge) return NameKind::kGauge;
    return one.kind == MetricKind::kSum && one.monotonic ? NameKind::kCounter : NameKind::kOther;
  }

  static const char* type_of(const otlp::WalkedMetric& one) {
    switch (one.kind) {
      case MetricKind::kHistogram:
      case MetricKind::kExponentialHistogram:
        return "histogram";
      case MetricKind::kSummary:
        return "summary";
      case MetricKind::kSum:
        return one.monotonic ? "counter" : "gauge";
      case MetricKind::kGauge:
        break;
    }
    return "gauge";
  }

  void metadata(const otlp::WalkedMetric& one) {
    if (!is_utf8(one.name) || !is_utf8(one.help) || !is_utf8(one.unit) || one.help.size() > 1024) return;
    const std::string name = prometheus_name(one.name, one.unit, name_kind(one));
    std::string help(one.help);
    if (name != one.name) help += std::string(help.empty() ? "" : " ") + "(OTLP " + std::string(one.name) + ")";
    mapping_.intake_.metadata(name, type_of(one), help, one.unit);
  }

  void point(const otlp::WalkedMetric& metric, const otlp::WalkedPoint& walked) {
    static const otlp::WalkedHistogram kNone;
    const bool is_number = metric.kind == MetricKind::kGauge || metric.kind == MetricKind::kSum;
    point_ = &walked;
    histogram_ = is_number ? &kNone : &request_.histograms[walked.histogram];
    if (!take_memory(metric.name.size() + metric.unit.size())) return;
    time_ms_ = walked.time_unix_ns / 1'000'000;
    if (time_ms_ == 0) time_ms_ = received_ms_;
    const std::span<const PushedExemplar> exemplars =
        std::span(request_.exemplars).subspan(walked.first_exemplar, walked.exemplars);
    const bool is_delta = metric.temporality == Temporality::kDelta;
    // What all series of this point have in common, after their form and bound.
    tail_.clear();
    put_part(tail_, metric.name);
    put_part(tail_, metric.unit);
    tail_ += walked.attributes;
    if (is_number && !walked.has_value && !walked.is_stale()) {
      return refuse("no_value", 1, "a point without a value");
    }
    switch (metric.kind) {
      case MetricKind::kGauge:
        return value(Form::kGauge, false, 0, walked.value, exemplars);
      case MetricKind::kSum:
        return value(metric.monotonic ? Form::kCounter : Form::kUpDown, is_delta, 0, walked.value, exemplars);
      case MetricKind::kHistogram:
        return classic(is_delta, exemplars);
      case MetricKind::kExponentialHistogram:
        return native(is_delta, exemplars);
      case MetricKind::kSummary:
        for (size_t i = 0; i < histogram_->bounds.size(); ++i)
          value(Form::kQuantile, false, histogram_->bounds[i], histogram_->quantile_values[i]);
        totals(false);
    }
  }

  void totals(bool is_delta) {
    if (point_->has_value || point_->is_stale()) value(Form::kSum, is_delta, 0, point_->value);
    value(Form::kCount, is_delta, 0, static_cast<double>(histogram_->count));
  }

  void classic(bool is_delta, std::span<const PushedExemplar> all) {
    uint64_t count = 0;
    std::vector<PushedExemplar> exemplars;
    double below = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < histogram_->bounds.size() && i < histogram_->buckets.size(); ++i) {
      const double bound = histogram_->bounds[i];
      count += histogram_->buckets[i];
      for (const PushedExemplar& exemplar : all) {
        if (exemplar.value > below && exemplar.value <= bound) exemplars.push_back(exemplar);
      }
      value(Form::kBucket, is_delta, bound, static_cast<double>(count), exemplars);
      exemplars.clear();
      below = bound;
    }
    for (const PushedExemplar& exemplar : all) {
      if (!(exemplar.value <= below)) exemplars.push_back(exemplar);
    }
    value(Form::kBucket, is_delta, std::numeric_limits<double>::infinity(), static_cast<double>(histogram_->count),
          exemplars);
    totals(is_delta);
  }

  void native(bool is_delta, std::span<const PushedExemplar> exemplars) {
    if (histogram_->scale < kSchemaMin && !point_->is_stale()) {
      return refuse("bad_histogram", 1, format("an exponential histogram of scale %d (limit -4)", histogram_->scale));
    }
    if (histogram_->positive.counts.size() + histogram_->negative.counts.size() > kHistogramBucketsMax) {
      return refuse("bad_histogram", 1,
                    format("an exponential histogram of more than %zu buckets", kHistogramBucketsMax));
    }
    NativeHistogram histogram;
    histogram.schema = std::min(histogram_->scale, kSchemaMax);
    histogram.zero_threshold = histogram_->zero_threshold;
    histogram.zero_count = static_cast<double>(histogram_->zero_count);
    histogram.count = static_cast<double>(histogram_->count);
    histogram.sum = point_->has_value ? point_->value : 0;
    const int32_t down = std::max(0, histogram_->scale - kSchemaMax);
    native_buckets::put(native_buckets::merged(native_buckets::of(histogram_->positive), down),
                        histogram.positive_spans, histogram.positive);
    native_buckets::put(native_buckets::merged(native_buckets::of(histogram_->negative), down),
                        histogram.negative_spans, histogram.negative);
    if (point_->is_stale()) {
      histogram = {};
      histogram.sum = kStale;
    }
    Entry entry = begin_entry(Form::kNative, 0);
    entry.is_histogram = true;
    entry.at = histograms_.size();
    if (is_delta && !point_->is_stale()) {
      DeltaSums::Sum* delta = delta_of(entry);
      if (delta == nullptr) return;
      if (delta->time_ms == 0) {
        delta->histogram = histogram;
      } else {
        native_buckets::add(delta->histogram, histogram);
      }
      delta->time_ms = time_ms_;
      histogram = delta->histogram;
    }
    histograms_.push_back(std::move(histogram));
    histogram_times_.push_back(time_ms_);
    end_entry(entry, exemplars);
  }

  void value(Form form, bool is_delta, double bound, double number, std::span<const PushedExemplar> exemplars = {}) {
    Entry entry = begin_entry(form, bound);
    if (point_->is_stale()) {
      number = kStale;
    } else if (is_delta) {
      DeltaSums::Sum* delta = delta_of(entry);
      if (delta == nullptr) return;
      number = delta->sum += number;
      delta->time_ms = time_ms_;
    }
    entry.at = values_.size();
    values_.push_back(number);
    times_.push_back(time_ms_);
    end_entry(entry, exemplars);
  }

  Entry begin_entry(Form form, double bound) {
    Entry entry;
    entry.raw_at = raw_.size();
    raw_ += prefix_;
    raw_ += static_cast<char>(form);
    if (has_bound(static_cast<char>(form))) {
      char bytes[8];
      std::memcpy(bytes, &bound, 8);
      raw_.append(bytes, 8);
    }
    raw_ += tail_;
    entry.raw_size = raw_.size() - entry.raw_at;
    return entry;
  }
  void end_entry(Entry entry, std::span<const PushedExemplar> exemplars) {
    entry.first_exemplar = exemplars_.size();
    exemplars_.insert(exemplars_.end(), exemplars.begin(), exemplars.end());
    entry.exemplars = exemplars.size();
    entries_.push_back(entry);
  }

  // Where this series' deltas are added up; nullptr: refused, and the entry's bytes are gone.
  DeltaSums::Sum* delta_of(const Entry& entry) {
    DeltaSums::Refusal refusal;
    DeltaSums::Sum* sum = deltas_.of(raw_.substr(entry.raw_at, entry.raw_size), time_ms_, refusal);
    if (sum == nullptr) {
      raw_.resize(entry.raw_at);
      refuse(refusal.reason, 1, refusal.line);
    }
    return sum;
  }

  void refuse(const char* reason, uint64_t samples, const std::string& line) {
    mapping_.intake_.refuse(receiver_, reason, samples, line);
    outcome_.refused += samples;
    if (outcome_.line.empty()) outcome_.line = std::string(reason) + ": " + line;
  }

  void begin_push() {
    raw_.clear();
    entries_.clear();
    times_.clear();
    values_.clear();
    histogram_times_.clear();
    histograms_.clear();
    exemplars_.clear();
    deltas_.begin();
  }

  void end_push(std::string_view scope) {
    if (error_.what != nullptr) {  // not all of it was read: the sender has to send it again
      deltas_.take_back();
    } else if (!entries_.empty() && problem_.empty()) {
      series_.resize(entries_.size());
      for (size_t k = 0; k < entries_.size(); ++k) {
        const Entry& entry = entries_[k];
        PushedSeries& out = series_[k] = {};
        out.raw_labels = std::string_view(raw_).substr(entry.raw_at, entry.raw_size);
        if (entry.is_histogram) {
          out.times_ms = std::span<const int64_t>(histogram_times_).subspan(entry.at, 1);
          out.histograms = std::span<const NativeHistogram>(histograms_).subspan(entry.at, 1);
        } else {
          out.times_ms = std::span<const int64_t>(times_).subspan(entry.at, 1);
          out.values = std::span<const double>(values_).subspan(entry.at, 1);
        }
        out.exemplars = std::span<const PushedExemplar>(exemplars_).subspan(entry.first_exemplar, entry.exemplars);
      }
      std::string stream = prefix_;
      stream.append(1, '\0').append(scope);
      Result<PushOutcome> pushed = mapping_.intake_.push(
          receiver_, stream, series_, [&](size_t k) { return MetricMapping::labels_of(series_[k].raw_labels); });
      if (!pushed.ok()) {
        problem_ = pushed.error();
        deltas_.take_back();
      } else {
        for (const RefusedSamples& refused : pushed->refused) outcome_.refused += refused.samples;
        if (outcome_.line.empty()) outcome_.line = refusals_line(*pushed, entries_.size());
      }
    }
    deltas_.end();
  }

  // For the series of the point at hand, whose names have so many bytes. Every series of a point spells out what it
  // shares with the others.
  bool take_memory(size_t name_bytes) {
    const size_t series = 3 + histogram_->bounds.size();
    return memory_.take_memory(
        series * (sizeof(Entry) + sizeof(PushedSeries) + prefix_.size() + point_->attributes.size() + name_bytes + 64));
  }

  MetricMapping& mapping_;
  const std::string_view receiver_;
  const otlp::MetricsRequest& request_;
  const int64_t received_ms_;
  MetricMapping::Outcome outcome_;
  std::string problem_;  // the store takes nothing
  MemoryLease lease_;
  WireError error_;
  WireReader memory_{{}, error_};  // takes from the lease in pieces; there is nothing to read

  size_t resource_number_ = SIZE_MAX;
  std::string resource_, prefix_, tail_, raw_;
  // The point at hand.
  const otlp::WalkedPoint* point_ = nullptr;
  const otlp::WalkedHistogram* histogram_ = nullptr;
  int64_t time_ms_ = 0;
  std::vector<Entry> entries_;
  std::vector<PushedSeries> series_;
  std::vector<int64_t> times_, histogram_times_;
  std::vector<double> values_;
  std::vector<NativeHistogram> histograms_;
  std::vector<PushedExemplar> exemplars_;
  DeltaSums::Push deltas_;
};

Result<MetricMapping::Outcome> MetricMapping::push(std::string_view receiver, const otlp::MetricsRequest& request,
                                                   int64_t received_unix_ns) {
  return RequestMapping(*this, receiver, request, received_unix_ns).run();
}

Attributes MetricMapping::resource_of(std::string_view stream) {
  Attributes resource;
  if (!stream.starts_with('O')) return resource;
  stream.remove_prefix(1);
  // As far as it is whole.
  (void)each_attribute(take_part(stream), [&](Attribute attribute) { resource.push_back(std::move(attribute)); });
  return resource;
}

namespace {

// Of two labels with one name the first given stays.
class FirstLabels {
 public:
  void put(std::string key, std::string value) {
    for (const auto& label : labels_) {
      if (label.first == key) return;
    }
    labels_.emplace_back(std::move(key), std::move(value));
  }
  Labels take() { return std::move(labels_); }

 private:
  Labels labels_;
};

// The metric's name, and what the form of its series adds to that.
void put_name(std::string_view given, std::string_view unit, Form form, double bound, FirstLabels& labels) {
  std::string name = prometheus_name(given, unit,
                                     form == Form::kGauge     ? NameKind::kGauge
                                     : form == Form::kCounter ? NameKind::kCounter
                                                              : NameKind::kOther);
  switch (form) {
    case Form::kBucket:
      name += "_bucket";
      labels.put("le", shortest_text(bound));
      break;
    case Form::kSum:
      name += "_sum";
      break;
    case Form::kCount:
      name += "_count";
      break;
    case Form::kQuantile:
      labels.put("quantile", shortest_text(bound));
      break;
    default:
      break;
  }
  labels.put(kMetricNameLabel, std::move(name));
}

Result<void> put_resource(std::string_view resource, FirstLabels& labels) {
  std::string service, space, instance;
  LOCKSTEP_TRY(each_attribute(resource, [&](Attribute attribute) {
    std::string text = plain_text(attribute.value);
    if (attribute.key == "service.name") {
      labels.put("service_name", text);
      service = std::move(text);
    } else if (attribute.key == "service.namespace") {
      space = std::move(text);
    } else if (attribute.key == "service.instance.id") {
      instance = std::move(text);
    } else if (attribute.key == "host.name") {
      labels.put("host", std::move(text));
    } else {
      labels.put(prometheus_label(std::string_view(attribute.key).substr(sizeof("lockstep.") - 1)), std::move(text));
    }
  }));
  if (!service.empty()) labels.put("job", space.empty() ? service : space + "/" + service);
  if (!instance.empty()) labels.put("instance", instance);
  return {};
}

}  // namespace

Result<Labels> MetricMapping::labels_of(std::string_view raw) {
  if (!raw.starts_with('O')) return Error{"not labels of OTLP"};
  raw.remove_prefix(1);
  const std::string_view resource = take_part(raw);
  if (raw.empty()) return Error{"not labels of OTLP"};
  const char form = raw[0];
  raw.remove_prefix(1);
  double bound = 0;
  if (has_bound(form)) {
    if (raw.size() < 8) return Error{"not labels of OTLP"};
    std::memcpy(&bound, raw.data(), 8);
    raw.remove_prefix(8);
  }
  const std::string_view given_name = take_part(raw);
  const std::string_view unit = take_part(raw);
  if (given_name.empty()) return Error{"a metric without a name"};
  if (!is_utf8(given_name)) return Error{"a metric whose name is not UTF-8"};

  FirstLabels labels;  // the point's before the resource's
  put_name(given_name, unit, static_cast<Form>(form), bound, labels);
  LOCKSTEP_TRY(each_attribute(
      raw, [&](Attribute attribute) { labels.put(prometheus_label(attribute.key), plain_text(attribute.value)); }));
  LOCKSTEP_TRY(put_resource(resource, labels));
  return canonical_labels(labels.take());
}

}  // namespace lockstep
