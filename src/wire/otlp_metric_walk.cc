#include "wire/otlp_metric_walk.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/characters.h"
#include "base/protobuf_wire.h"
#include "base/text.h"
#include "model/prometheus_name.h"
#include "model/series_labels.h"
#include "wire/copy_budget.h"
#include "wire/otlp.h"
#include "wire/otlp_value.h"

namespace lockstep::otlp {
namespace {

using namespace protobuf;

template <typename T>
void read_packed(WireReader& in, std::vector<T>& out) {
  if ((in.tag() & 7) == kFixed64) {
    if (in.take_memory(sizeof(T))) out.push_back(std::bit_cast<T>(in.fixed64()));
    return;
  }
  WireReader values = in.message();
  if (!in.take_memory(values.left())) return;
  reserve_more(out, values.left() / sizeof(T));
  while (!values.at_end()) out.push_back(std::bit_cast<T>(values.fixed64()));
}

void read_side(WireReader in, BucketSide& side) {
  while (in.next()) {
    if (in.tag() == tag_of(1, kVarint)) {
      side.first = static_cast<int32_t>(zigzag_decode(static_cast<uint32_t>(in.varint())));
    } else if (in.tag() == tag_of(2, kVarint)) {
      if (in.take_memory(sizeof(uint64_t))) side.counts.push_back(in.varint());
    } else if (in.tag() == tag_of(2, kBytes)) {
      WireReader values = in.message();
      if (!in.take_memory(values.left() * sizeof(uint64_t))) return;
      while (!values.at_end()) side.counts.push_back(values.varint());
    } else {
      in.skip();
    }
  }
}

void read_quantile(WireReader in, WalkedHistogram& out) {
  double quantile = 0, value = 0;
  while (in.next()) {
    if (in.tag() == tag_of(1, kFixed64)) {
      quantile = in.real();
    } else if (in.tag() == tag_of(2, kFixed64)) {
      value = in.real();
    } else {
      in.skip();
    }
  }
  if (!in.take_memory(2 * sizeof(double))) return;
  out.bounds.push_back(quantile);
  out.quantile_values.push_back(value);
}

// One that nobody could show is left out.
void read_exemplar(WireReader in, std::vector<PushedExemplar>& out) {
  PushedExemplar exemplar;
  if (!in.take_memory(sizeof(PushedExemplar))) return;
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(2, kFixed64):
        exemplar.time_ms = static_cast<int64_t>(in.fixed64() / 1'000'000);
        break;
      case tag_of(3, kFixed64):
        exemplar.value = in.real();
        break;
      case tag_of(4, kBytes):
      case tag_of(5, kBytes): {
        const bool is_trace = in.tag() == tag_of(5, kBytes);
        const std::string_view id = in.bytes();
        if (id.size() == (is_trace ? 16u : 8u)) {
          exemplar.labels.emplace_back(is_trace ? "trace_id" : "span_id", to_hex(id));
        }
        break;
      }
      case tag_of(6, kFixed64):
        exemplar.value = static_cast<double>(static_cast<int64_t>(in.fixed64()));
        break;
      case tag_of(7, kBytes): {
        const std::string_view bytes = in.bytes();
        check_attribute(in.part(bytes), 1);
        if (!in.take_memory(2 * sizeof(std::string) + bytes.size())) break;
        Result<Attribute> attribute = decode_attribute(bytes);
        if (attribute.ok() && exemplar.labels.size() < kLabelsMax) {
          exemplar.labels.emplace_back(prometheus_label(attribute->key), plain_text(attribute->value));
        }
        break;
      }
      default:
        in.skip();
    }
  }
  const bool good = std::all_of(exemplar.labels.begin(), exemplar.labels.end(), [](const auto& label) {
    return is_utf8(label.first) && is_utf8(label.second) && label.second.size() <= kLabelValueBytesMax;
  });
  if (good && label_bytes(exemplar.labels) <= kExemplarBytesMax) out.push_back(std::move(exemplar));
}

MetricKind kind_of(uint32_t data_field) {
  switch (data_field) {
    case 7:
      return MetricKind::kSum;
    case 9:
      return MetricKind::kHistogram;
    case 10:
      return MetricKind::kExponentialHistogram;
    case 11:
      return MetricKind::kSummary;
    default:
      return MetricKind::kGauge;
  }
}

// Each message is one function that knows its fields; field numbers are those of opentelemetry/proto v1. What a scope
// or a metric shares with its points is filled in when the message has ended: fields come in any order.
class Walk {
 public:
  explicit Walk(MetricsRequest& out) : out_(out) {}

  void request(WireReader in) {
    while (in.next()) {
      if (in.tag() == tag_of(1, kBytes)) {
        resource_metrics(in.message());
      } else {
        in.skip();
      }
    }
  }

 private:
  void resource_metrics(WireReader in) {
    if (!in.take_memory(sizeof(Attributes))) return;
    const size_t resource = out_.resources.size();
    out_.resources.emplace_back();
    const size_t first = out_.scopes.size();
    while (in.next()) {
      if (in.tag() == tag_of(1, kBytes)) {
        decode_map(in.message(), out_.resources[resource], 1);
      } else if (in.tag() == tag_of(2, kBytes)) {
        if (in.take_memory(sizeof(ResourceGroup))) scope_metrics(in.message(), resource);
      } else {
        in.skip();
      }
    }
    const Attributes& attributes = out_.resources[resource];
    if (out_.scopes.size() < first + 2 || attributes.empty()) return;
    const uint64_t bytes = memory_bytes(attributes);
    const size_t copies = out_.scopes.size() - first - 1;
    if (!copies_.take(bytes, copies)) {
      in.fail("a resource too large for its many scopes");
    } else if (!in.take_memory(bytes * copies)) {
      return;
    }
  }

  void scope_metrics(WireReader in, size_t resource) {
    WalkedScope scope{.resource = resource, .name = {}, .version = {}, .first_metric = out_.metrics.size()};
    while (in.next()) {
      if (in.tag() == tag_of(2, kBytes)) {
        metric(in.message());
      } else if (in.tag() == tag_of(1, kBytes)) {
        for (WireReader named = in.message(); named.next();) {
          if (named.tag() == tag_of(1, kBytes)) {
            scope.name = named.bytes();
          } else if (named.tag() == tag_of(2, kBytes)) {
            scope.version = named.bytes();
          } else {
            named.skip();
          }
        }
      } else {
        in.skip();
      }
    }
    scope.metrics = out_.metrics.size() - scope.first_metric;
    out_.scopes.push_back(scope);
  }

  void metric(WireReader in) {
    WalkedMetric one;
    one.first_point = out_.points.size();
    uint32_t field = 0;  // which of the oneof; 0: none yet
    while (in.next()) {
      switch (in.tag()) {
        case tag_of(1, kBytes):
          one.name = in.bytes();
          break;
        case tag_of(2, kBytes):
          one.help = in.bytes();
          break;
        case tag_of(3, kBytes):
          one.unit = in.bytes();
          break;
        case tag_of(5, kBytes):
        case tag_of(7, kBytes):
        case tag_of(9, kBytes):
        case tag_of(10, kBytes):
        case tag_of(11, kBytes):
          if (in.tag() >> 3 != field) {  // the last of a oneof is the one that counts
            field = in.tag() >> 3;
            out_.points.resize(one.first_point);
            one.temporality = Temporality::kUnspecified;
            one.monotonic = false;
            one.kind = kind_of(field);
          }
          data(in.message(), one);
          break;
        default:
          in.skip();
      }
    }
    one.points = out_.points.size() - one.first_point;
    if (one.points == 0) return;
    const size_t shared = one.name.size() + one.unit.size();
    if (!copies_.take(shared, one.points)) {
      in.fail("a metric with a name too long for its many points");
    } else if (in.take_memory(sizeof(WalkedMetric) + shared * one.points)) {
      out_.metrics.push_back(one);
    }
  }

  // Gauge, Sum, Histogram, ExponentialHistogram, Summary: their points are all field 1.
  void data(WireReader in, WalkedMetric& one) {
    const bool has_temporality = one.kind != MetricKind::kGauge && one.kind != MetricKind::kSummary;
    bool reserved = false;
    while (in.next()) {
      if (in.tag() == tag_of(1, kBytes)) {
        // As much as it takes as an object, which it may become.
        if (!in.take_memory(sizeof(MetricPoint) + sizeof(WalkedPoint))) return;
        if (!reserved) reserve_more(out_.points, std::min(in.run_length(), kReserveMax));
        reserved = true;
        WalkedPoint& point = out_.points.emplace_back();
        if (one.kind == MetricKind::kGauge || one.kind == MetricKind::kSum) {
          number_point(in.message(), point);
        } else if (in.take_memory(sizeof(WalkedHistogram))) {
          point.histogram = static_cast<uint32_t>(out_.histograms.size());
          other_point(one.kind, in.message(), point, out_.histograms.emplace_back());
        }
      } else if (in.tag() == tag_of(2, kVarint) && has_temporality) {
        const int32_t number = static_cast<int32_t>(in.varint());
        one.temporality = number == 1 || number == 2 ? static_cast<Temporality>(number) : Temporality::kUnspecified;
      } else if (in.tag() == tag_of(3, kVarint) && one.kind == MetricKind::kSum) {
        one.monotonic = in.varint() != 0;
      } else {
        in.skip();
      }
    }
  }

  void number_point(WireReader in, WalkedPoint& point) {
    std::string* joined = nullptr;
    for (const char* began = in.position(); in.next(); began = in.position()) {
      switch (in.tag()) {
        case tag_of(2, kFixed64):
          point.start_unix_ns = time_of(in.fixed64());
          break;
        case tag_of(3, kFixed64):
          point.time_unix_ns = time_of(in.fixed64());
          break;
        case tag_of(4, kFixed64):
          point.value = in.real();
          point.int_value = 0;
          point.is_int = false;
          point.has_value = true;
          break;
        case tag_of(5, kBytes):
          exemplar(in, point);
          break;
        case tag_of(6, kFixed64):
          point.int_value = static_cast<int64_t>(in.fixed64());
          point.value = static_cast<double>(point.int_value);
          point.is_int = true;
          point.has_value = true;
          break;
        case tag_of(7, kBytes):
          attribute(began, in, point, joined);
          break;
        case tag_of(8, kVarint):
          point.flags = static_cast<uint32_t>(in.varint());
          break;
        default:
          in.skip();
      }
    }
  }

  // Histograms of both kinds, and summaries.
  void other_point(MetricKind kind, WireReader in, WalkedPoint& point, WalkedHistogram& out) {
    const bool is_classic = kind == MetricKind::kHistogram;
    const bool is_exponential = kind == MetricKind::kExponentialHistogram;
    const bool is_summary = kind == MetricKind::kSummary;
    const uint32_t attributes_field = is_classic ? 9 : is_exponential ? 1 : 7;
    const uint32_t flags_field = is_summary ? 8 : 10;
    const uint32_t exemplars_field = is_classic ? 8 : is_exponential ? 11 : 0;
    point.has_value = is_summary;
    std::string* joined = nullptr;
    for (const char* began = in.position(); in.next(); began = in.position()) {
      const uint32_t field = in.tag() >> 3;
      const uint32_t type = in.tag() & 7;
      if (field == attributes_field && type == kBytes) {
        attribute(began, in, point, joined);
      } else if (field == 2 && type == kFixed64) {
        point.start_unix_ns = time_of(in.fixed64());
      } else if (field == 3 && type == kFixed64) {
        point.time_unix_ns = time_of(in.fixed64());
      } else if (field == 4 && type == kFixed64) {
        out.count = in.fixed64();
      } else if (field == 5 && type == kFixed64) {
        point.value = in.real();
        point.has_value = true;
      } else if (field == flags_field && type == kVarint) {
        point.flags = static_cast<uint32_t>(in.varint());
      } else if (field == exemplars_field && type == kBytes) {
        exemplar(in, point);
      } else if (is_classic && field == 6 && (type == kFixed64 || type == kBytes)) {
        read_packed(in, out.buckets);
      } else if (is_classic && field == 7 && (type == kFixed64 || type == kBytes)) {
        read_packed(in, out.bounds);
      } else if (is_exponential && field == 6 && type == kVarint) {
        out.scale = static_cast<int32_t>(zigzag_decode(static_cast<uint32_t>(in.varint())));
      } else if (is_exponential && field == 7 && type == kFixed64) {
        out.zero_count = in.fixed64();
      } else if (is_exponential && (field == 8 || field == 9) && type == kBytes) {
        read_side(in.message(), field == 8 ? out.positive : out.negative);
      } else if (is_exponential && field == 14 && type == kFixed64) {
        out.zero_threshold = in.real();
      } else if (is_summary && field == 6 && type == kBytes) {
        read_quantile(in.message(), out);
      } else {
        in.skip();
      }
    }
  }

  // The field that began there. Attributes mostly stand together and are one view; joined: where they had to be copied.
  void attribute(const char* began, WireReader& in, WalkedPoint& point, std::string*& joined) {
    const std::string_view key_value = in.bytes();
    if (!in.take_memory(sizeof(Attribute) + (key_value.size() < sizeof(std::string) ? 0 : key_value.size()))) return;
    check_attribute(in.part(key_value), 1);
    const std::string_view field(began, static_cast<size_t>(in.position() - began));
    if (point.attributes.empty()) {
      point.attributes = field;
    } else if (joined == nullptr && point.attributes.data() + point.attributes.size() == began) {
      point.attributes = {point.attributes.data(), point.attributes.size() + field.size()};
    } else {
      if (joined == nullptr) {
        if (!in.take_memory(sizeof(std::string) + point.attributes.size())) return;
        joined = &out_.joined.emplace_back(point.attributes);
      }
      if (!in.take_memory(field.size())) return;
      *joined += field;
      point.attributes = *joined;
    }
  }

  void exemplar(WireReader& in, WalkedPoint& point) {
    if (point.exemplars == 0) point.first_exemplar = static_cast<uint32_t>(out_.exemplars.size());
    read_exemplar(in.message(), out_.exemplars);
    point.exemplars = static_cast<uint32_t>(out_.exemplars.size()) - point.first_exemplar;
  }

  MetricsRequest& out_;
  CopyBudget copies_;
};

MetricPoint to_point(const MetricsRequest& request, const WalkedMetric& metric, const WalkedPoint& walked) {
  MetricPoint point;
  point.name = metric.name;
  point.unit = metric.unit;
  point.kind = metric.kind;
  point.temporality = metric.temporality;
  point.monotonic = metric.monotonic;
  decode_attributes(walked.attributes, point.attributes);
  point.start_unix_ns = walked.start_unix_ns;
  point.time_unix_ns = walked.time_unix_ns;
  point.value = walked.value;
  point.int_value = walked.int_value;
  point.is_int = walked.is_int;
  point.flags = walked.flags;
  if (metric.kind == MetricKind::kGauge || metric.kind == MetricKind::kSum) return point;
  const WalkedHistogram& histogram = request.histograms[walked.histogram];
  if (!walked.has_value) point.value = std::numeric_limits<double>::quiet_NaN();
  point.count = histogram.count;
  point.bounds = histogram.bounds;
  point.quantile_values = histogram.quantile_values;
  if (metric.kind == MetricKind::kHistogram) point.buckets = histogram.buckets;
  if (metric.kind != MetricKind::kExponentialHistogram) return point;
  point.scale = histogram.scale;
  point.zero_count = histogram.zero_count;
  point.positive_offset = histogram.positive.first;
  point.buckets = histogram.positive.counts;
  point.negative_offset = histogram.negative.first;
  point.negative_buckets = histogram.negative.counts;
  return point;
}

}  // namespace

void MetricsRequest::keep_points(const std::vector<bool>& keep) {
  size_t kept = 0;
  for (WalkedMetric& metric : metrics) {
    const size_t first = kept;
    for (size_t i = metric.first_point; i < metric.first_point + metric.points; ++i) {
      if (keep[i]) points[kept++] = points[i];
    }
    metric.first_point = first;
    metric.points = kept - first;
  }
  points.resize(kept);
}

Result<MetricsRequest> decode_metrics(std::string_view bytes, MemoryLease* lease) {
  MetricsRequest request;
  WireError error;
  error.lease = lease;
  Walk(request).request(WireReader(bytes, error));
  if (error.what != nullptr) return error_of(error, to_text(Signal::kMetrics), bytes);
  return request;
}

Batch to_batch(const MetricsRequest& request, const std::function<bool(std::string_view name)>& is_wanted) {
  Batch batch;
  batch.signal = Signal::kMetrics;
  batch.groups.resize(request.scopes.size());
  for (size_t i = 0; i < request.scopes.size(); ++i) {
    const WalkedScope& scope = request.scopes[i];
    ResourceGroup& group = batch.groups[i];
    group.resource = request.resources[scope.resource];
    group.scope_name = scope.name;
    group.scope_version = scope.version;
    for (size_t k = scope.first_metric; k < scope.first_metric + scope.metrics; ++k) {
      const WalkedMetric& metric = request.metrics[k];
      if (is_wanted && !is_wanted(metric.name)) continue;
      reserve_more(group.points, metric.points);
      for (size_t at = metric.first_point; at < metric.first_point + metric.points; ++at) {
        group.points.push_back(to_point(request, metric, request.points[at]));
      }
    }
  }
  return batch;
}

}  // namespace lockstep::otlp
