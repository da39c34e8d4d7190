// An OTLP trace request walked once, its spans handed on as views (model/span_view.h) without objects in between.
//
// Only what exporters really send is walked here: resource before scopes, scope before spans, each part in one piece,
// values that are no lists or maps. Any other request is not plain: the caller then takes otlp::decode(), which knows
// all that protobuf allows. A span with events, links or nested values is handed on as its own bytes. For a plain
// request the views are what otlp::decode() gives (ingest/otlp/span_decode_fuzz.cc compares them). Hot path: the
// benchmark is bench/traces.
// Thread rule: Thread-safe (no state).
#pragma once

#include <limits>
#include <string_view>
#include <vector>

#include "base/protobuf_wire.h"
#include "model/span_view.h"

namespace lockstep::otlp {

// What the walk hands to:
//   bool source(std::string_view resource, std::string_view scope);   messages as they came; before their spans
//   bool span(const SpanView& span);
//   bool odd_span(std::string_view span);                             the message as it came
// A `false` ends the walk as not plain.
template <typename Sink>
class SpanWalk {
 public:
  explicit SpanWalk(Sink& sink) : sink_(sink) {}

  // false: malformed, not plain, or over the lease (where there is one). What was handed on is then void.
  bool walk(std::string_view bytes, MemoryLease* lease = nullptr) {
    protobuf::WireError error;
    error.lease = lease;
    protobuf::WireReader in(bytes, error);
    while (plain_ && in.next()) {
      if (in.tag() == kField1) {
        resource_spans(in.message());
      } else {
        in.skip();
      }
    }
    return plain_ && error.what == nullptr;
  }

 private:
  using WireReader = protobuf::WireReader;
  static constexpr uint32_t kField1 = protobuf::tag_of(1, protobuf::kBytes);
  static constexpr uint32_t kField2 = protobuf::tag_of(2, protobuf::kBytes);

  void resource_spans(WireReader in) {
    std::string_view resource;
    bool has_resource = false;
    bool has_scopes = false;
    while (plain_ && in.next()) {
      if (in.tag() == kField1) {
        plain_ = !has_resource && !has_scopes;
        has_resource = true;
        resource = in.bytes();
      } else if (in.tag() == kField2) {
        has_scopes = true;
        scope_spans(in.message(), resource);
      } else {
        in.skip();
      }
    }
    plain_ = plain_ && has_scopes;
  }

  void scope_spans(WireReader in, std::string_view resource) {
    std::string_view scope;
    bool has_scope = false;
    bool has_spans = false;
    if (!in.take_memory(sizeof(ResourceGroup))) return;
    while (plain_ && in.next()) {
      if (in.tag() == kField1) {
        plain_ = !has_scope && !has_spans;
        has_scope = true;
        scope = in.bytes();
      } else if (in.tag() == kField2) {
        if (!has_spans) plain_ = sink_.source(resource, scope);
        has_spans = true;
        if (in.take_memory(sizeof(Span))) span(in);
      } else {
        in.skip();
      }
    }
    plain_ = plain_ && has_spans;  // what belongs to no span has not been looked at
  }

  template <size_t kSize>
  bool id(WireReader& in, std::array<uint8_t, kSize>& id) {
    std::string_view bytes = in.bytes();
    if (bytes.size() == kSize) {
      std::memcpy(id.data(), bytes.data(), kSize);
      return true;
    }
    id.fill(0);
    return bytes.empty();
  }
  static int64_t time(uint64_t unix_ns) {
    return static_cast<int64_t>(std::min<uint64_t>(unix_ns, std::numeric_limits<int64_t>::max()));
  }

  void span(WireReader& around) {
    const std::string_view bytes = around.bytes();
    WireReader in = around.part(bytes);
    SpanView view;
    attributes_.clear();
    bool odd = false;
    while (plain_ && !odd && in.next()) {
      switch (in.tag()) {
        case protobuf::tag_of(1, protobuf::kBytes):
          plain_ = id(in, view.trace_id);
          break;
        case protobuf::tag_of(2, protobuf::kBytes):
          plain_ = id(in, view.span_id);
          break;
        case protobuf::tag_of(3, protobuf::kBytes):
          view.trace_state = in.bytes();
          break;
        case protobuf::tag_of(4, protobuf::kBytes):
          plain_ = id(in, view.parent_span_id);
          break;
        case protobuf::tag_of(5, protobuf::kBytes):
          view.name = in.bytes();
          break;
        case protobuf::tag_of(6, protobuf::kVarint):
          view.kind = static_cast<int32_t>(in.varint());
          break;
        case protobuf::tag_of(7, protobuf::kFixed64):
          view.start_unix_ns = time(in.fixed64());
          break;
        case protobuf::tag_of(8, protobuf::kFixed64):
          view.end_unix_ns = time(in.fixed64());
          break;
        case protobuf::tag_of(9, protobuf::kBytes):
          if (in.take_memory(sizeof(Attribute))) odd = !attribute(in);
          break;
        case protobuf::tag_of(11, protobuf::kBytes):
        case protobuf::tag_of(13, protobuf::kBytes):
          odd = true;
          break;
        case protobuf::tag_of(15, protobuf::kBytes):
          status(in.message(), view);
          break;
        default:
          in.skip();
      }
    }
    if (!plain_) return;
    view.attributes = attributes_;
    plain_ = odd ? sink_.odd_span(bytes) : sink_.span(view);
  }

  static void status(WireReader in, SpanView& view) {
    while (in.next()) {
      switch (in.tag()) {
        case protobuf::tag_of(2, protobuf::kBytes):
          view.status_message = in.bytes();
          break;
        case protobuf::tag_of(3, protobuf::kVarint):
          view.status_code = static_cast<int32_t>(in.varint());
          break;
        default:
          in.skip();
      }
    }
  }

  // false: written in pieces, or a value that is more than one number or text.
  bool attribute(WireReader& around) {
    const std::string_view bytes = around.bytes();
    if (short_attribute(bytes)) return true;
    WireReader in = around.part(bytes);
    AttributeView view;
    bool has_value = false;
    while (in.next()) {
      if (in.tag() == kField1) {
        view.key = in.bytes();
      } else if (in.tag() == kField2) {
        if (has_value || !value(in.message(), view)) return false;
        has_value = true;
      } else {
        in.skip();
      }
    }
    attributes_.push_back(view);
    return true;
  }

  // As nearly all are: a key and a value of one field, each once, in this order, shorter than 128 bytes. false:
  // otherwise, and nothing has been done.
  bool short_attribute(std::string_view bytes) {
    const auto* at = reinterpret_cast<const uint8_t*>(bytes.data());
    const size_t size = bytes.size();
    if (size < 6 || at[0] != 0x0a || at[1] >= 0x80) return false;
    const size_t key_size = at[1];
    if (key_size + 6 > size || at[2 + key_size] != 0x12) return false;
    const uint8_t* value = at + 4 + key_size;
    const size_t value_size = size - 4 - key_size;
    if (at[3 + key_size] != value_size) return false;
    AttributeView view;
    switch (value[0]) {
      case 0x0a:
        if (value[1] != value_size - 2 || value[1] >= 0x80) return false;
        view.type = CellType::kText;
        view.text = bytes.substr(size - value[1]);
        break;
      case 0x10:
        if (value_size != 2 || value[1] > 1) return false;
        view.type = CellType::kFlag;
        view.bits = value[1];
        break;
      case 0x18: {
        if (value_size > 10) return false;  // so that nine groups of seven bits and no more are read here
        size_t last = 1;
        while (last + 1 < value_size && value[last] >= 0x80) {
          view.bits |= static_cast<uint64_t>(value[last] & 0x7f) << (7 * (last - 1));
          ++last;
        }
        if (last + 1 != value_size || value[last] >= 0x80) return false;
        view.bits |= static_cast<uint64_t>(value[last]) << (7 * (last - 1));
        view.type = CellType::kInt;
        break;
      }
      case 0x21:
        if (value_size != 9) return false;
        view.type = CellType::kReal;
        std::memcpy(&view.bits, value + 1, 8);
        break;
      default:
        return false;
    }
    view.key = bytes.substr(2, key_size);
    attributes_.push_back(view);
    return true;
  }

  static bool value(WireReader in, AttributeView& view) {
    while (in.next()) {
      switch (in.tag()) {
        case protobuf::tag_of(1, protobuf::kBytes):
          view.type = CellType::kText;
          view.text = in.bytes();
          break;
        case protobuf::tag_of(2, protobuf::kVarint):
          view.type = CellType::kFlag;
          view.bits = in.varint() != 0;
          break;
        case protobuf::tag_of(3, protobuf::kVarint):
          view.type = CellType::kInt;
          view.bits = in.varint();
          break;
        case protobuf::tag_of(4, protobuf::kFixed64):
          view.type = CellType::kReal;
          view.bits = in.fixed64();
          break;
        case protobuf::tag_of(5, protobuf::kBytes):
        case protobuf::tag_of(6, protobuf::kBytes):
        case protobuf::tag_of(7, protobuf::kBytes):
          return false;
        default:
          in.skip();
      }
    }
    return true;
  }

  Sink& sink_;
  bool plain_ = true;
  std::vector<AttributeView> attributes_;
};

}  // namespace lockstep::otlp
