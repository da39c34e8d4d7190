#include "wire/otlp_metric_walk.h"

#include <algorithm>
#include <bit>

#include "base/text.h"
#include "model/prometheus_name.h"
#include "model/series_labels.h"
#include "wire/otlp.h"

namespace lockstep::otlp {
namespace {

using namespace protobuf;

template <typename T>
void read_packed(WireReader& in, std::vector<T>& out) {
  if ((in.tag() & 7) == kBytes) {
    for (WireReader values = in.message(); !values.at_end();) {
      if (in.take_memory(sizeof(T))) out.push_back(std::bit_cast<T>(values.fixed64()));
    }
  } else if (in.take_memory(sizeof(T))) {
    out.push_back(std::bit_cast<T>(in.fixed64()));
  }
}

void read_side(WireReader in, BucketSide& side) {
  while (in.next()) {
    if (in.tag() == tag_of(1, kVarint)) {
      side.first = static_cast<int32_t>(zigzag_decode(static_cast<uint32_t>(in.varint())));
    } else if (in.tag() == tag_of(2, kVarint)) {
      if (in.take_memory(8)) side.counts.push_back(in.varint());
    } else if (in.tag() == tag_of(2, kBytes)) {
      for (WireReader values = in.message(); !values.at_end();) {
        if (in.take_memory(8)) side.counts.push_back(values.varint());
      }
    } else {
      in.skip();
    }
  }
}

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
          exemplar.labels.emplace_back(is_trace ? "trace_id" : "span_id",
                                       to_hex({reinterpret_cast<const uint8_t*>(id.data()), id.size()}));
        }
        break;
      }
      case tag_of(6, kFixed64):
        exemplar.value = static_cast<double>(static_cast<int64_t>(in.fixed64()));
        break;
      case tag_of(7, kBytes): {
        const std::string_view bytes = in.bytes();
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

}  // namespace

MetricHead read_metric_head(WireReader in) {
  MetricHead one;
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
      case tag_of(11, kBytes): {
        const uint32_t kind = in.tag() >> 3;
        if (kind != one.kind) one.data.clear();  // of a oneof the last counts
        one.kind = kind;
        if (in.take_memory(sizeof(std::string_view))) one.data.push_back(in.bytes());
        break;
      }
      default:
        in.skip();
    }
  }
  for (std::string_view piece : one.data) {
    for (WireReader data = in.part(piece); data.next();) {
      if (data.tag() == tag_of(2, kVarint) && one.kind != 5 && one.kind != 11) {
        one.is_delta = data.varint() == 1;
      } else if (data.tag() == tag_of(3, kVarint) && one.kind == 7) {
        one.is_monotonic = data.varint() != 0;
      } else {
        data.skip();
      }
    }
  }
  return one;
}

void read_point(uint32_t kind, WireReader& in, WalkedPoint& out, std::string& attributes) {
  const uint32_t attributes_field = kind == 9 ? 9 : kind == 10 ? 1 : 7;
  const uint32_t flags_field = kind == 9 || kind == 10 ? 10 : 8;
  const uint32_t exemplars_field = kind == 9 ? 8 : kind == 10 ? 11 : kind == 11 ? 0 : 5;
  attributes.clear();
  out.time_ms = 0;
  out.flags = 0;
  out.value = 0;
  out.has_value = kind == 11;
  out.count = out.zero_count = 0;
  out.scale = 0;
  out.zero_threshold = 0;
  out.buckets.clear();
  out.bounds.clear();
  out.positive.first = out.negative.first = 0;
  out.positive.counts.clear();
  out.negative.counts.clear();
  out.quantiles.clear();
  out.exemplars.clear();
  for (const char* began = in.position(); in.next(); began = in.position()) {
    const uint32_t field = in.tag() >> 3;
    const uint32_t type = in.tag() & 7;
    if (field == attributes_field && type == kBytes) {
      in.bytes();
      attributes.append(began, static_cast<size_t>(in.position() - began));
    } else if (field == 3 && type == kFixed64) {
      out.time_ms = static_cast<int64_t>(in.fixed64() / 1'000'000);
    } else if (field == flags_field && type == kVarint) {
      out.flags = static_cast<uint32_t>(in.varint());
    } else if (exemplars_field != 0 && field == exemplars_field && type == kBytes) {
      read_exemplar(in.message(), out.exemplars);
    } else if (kind == 5 || kind == 7) {
      if (field == 4 && type == kFixed64) {
        out.value = in.real();
        out.has_value = true;
      } else if (field == 6 && type == kFixed64) {
        out.value = static_cast<double>(static_cast<int64_t>(in.fixed64()));
        out.has_value = true;
      } else {
        in.skip();
      }
    } else if (field == 4 && type == kFixed64) {
      out.count = in.fixed64();
    } else if (field == 5 && type == kFixed64) {
      out.value = in.real();
      out.has_value = true;
    } else if (kind == 9 && field == 6 && (type == kFixed64 || type == kBytes)) {
      read_packed(in, out.buckets);
    } else if (kind == 9 && field == 7 && (type == kFixed64 || type == kBytes)) {
      read_packed(in, out.bounds);
    } else if (kind == 10 && field == 6 && type == kVarint) {
      out.scale = static_cast<int32_t>(zigzag_decode(static_cast<uint32_t>(in.varint())));
    } else if (kind == 10 && field == 7 && type == kFixed64) {
      out.zero_count = in.fixed64();
    } else if (kind == 10 && (field == 8 || field == 9) && type == kBytes) {
      read_side(in.message(), field == 8 ? out.positive : out.negative);
    } else if (kind == 10 && field == 14 && type == kFixed64) {
      out.zero_threshold = in.real();
    } else if (kind == 11 && field == 6 && type == kBytes) {
      std::pair<double, double> quantile{0, 0};
      for (WireReader reported = in.message(); reported.next();) {
        if (reported.tag() == tag_of(1, kFixed64)) {
          quantile.first = reported.real();
        } else if (reported.tag() == tag_of(2, kFixed64)) {
          quantile.second = reported.real();
        } else {
          reported.skip();
        }
      }
      if (in.take_memory(sizeof quantile)) out.quantiles.push_back(quantile);
    } else {
      in.skip();
    }
  }
}

}  // namespace lockstep::otlp
