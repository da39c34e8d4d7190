// Export*ServiceRequest to Batch in one walk over the bytes (metrics: otlp_metric_walk.h). Each message is one function
// with one switch over the tags it knows; field numbers are those of opentelemetry/proto v1 (docs/formats/events.md
// lists what is left out).
//
// Protobuf lets a sender put fields in any order and write a message in pieces, so what a group shares with its
// neighbours (the resource) is filled in when the message around it has ended. Text is taken as it comes:
// checking UTF-8 is left to whoever shows it.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/protobuf_wire.h"
#include "base/text.h"
#include "wire/copy_budget.h"
#include "wire/otlp.h"
#include "wire/otlp_metric_walk.h"
#include "wire/otlp_value.h"
#include "wire/step_walk.h"

namespace lockstep::otlp {
namespace {

using namespace protobuf;

constexpr size_t kStepsReserveMax = 64;  // ranks of a node

struct Context {
  WireError error;
  CopyBudget copies;
};

// A new element for the repeated message `in` stands at; nullptr: there is no memory for it. Millions of empty elements
// take no room in a request and seconds to be made: where they are counted anyway, they are refused by their number.
template <typename T>
T* append(std::vector<T>& items, WireReader& in) {
  if (items.empty()) {
    const size_t run = in.run_length();
    if (!in.has_room(run * sizeof(T))) return nullptr;
    reserve_more(items, std::min(run, kReserveMax));
  }
  if (!in.take_memory(sizeof(T))) return nullptr;
  return &items.emplace_back();
}

// Text is copied out of the request.
void assign(std::string& to, WireReader& in) {
  const std::string_view text = in.bytes();
  if (text.size() < sizeof(std::string) || in.take_memory(text.size())) to = text;
}

template <size_t kSize>
void decode_id(WireReader& in, std::array<uint8_t, kSize>& id) {
  std::string_view bytes = in.bytes();
  if (bytes.size() == kSize) {
    std::memcpy(id.data(), bytes.data(), kSize);
  } else if (bytes.empty()) {
    id.fill(0);
  } else {
    in.fail(kSize == 16 ? "a trace id that is not 16 bytes long" : "a span id that is not 8 bytes long");
  }
}

constexpr const char* kTooDeep = "a value nested too deeply (limit 32)";
static_assert(kNestingMax == 32);

void decode_value(WireReader in, Value& value, int depth);

void decode_attribute(WireReader in, Attribute& attribute, int depth) {
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kBytes):
        assign(attribute.key, in);
        break;
      case tag_of(2, kBytes):
        decode_value(in.message(), attribute.value, depth);
        break;
      default:
        in.skip();
    }
  }
}

void decode_list(WireReader in, ValueList& list, int depth) {
  while (in.next()) {
    if (in.tag() == tag_of(1, kBytes)) {
      if (Value* value = append(list, in)) decode_value(in.message(), *value, depth);
    } else {
      in.skip();
    }
  }
}

void append_attribute(WireReader& in, Attributes& attributes) {
  if (Attribute* attribute = append(attributes, in)) decode_attribute(in.message(), *attribute, 1);
}

// The alternative of the oneof, kept where it is already that one: a list written in pieces is one list.
template <typename T>
T& alternative(Value& value) {
  if (T* kept = std::get_if<T>(&value.data)) return *kept;
  return value.data.emplace<T>();
}

void decode_value(WireReader in, Value& value, int depth) {
  if (depth > kNestingMax) {
    in.fail(kTooDeep);
    return;
  }
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kBytes):
        assign(alternative<std::string>(value), in);
        break;
      case tag_of(2, kVarint):
        value.data = in.varint() != 0;
        break;
      case tag_of(3, kVarint):
        value.data = static_cast<int64_t>(in.varint());
        break;
      case tag_of(4, kFixed64):
        value.data = in.real();
        break;
      case tag_of(5, kBytes):
        decode_list(in.message(), alternative<ValueList>(value), depth + 1);
        break;
      case tag_of(6, kBytes):
        decode_map(in.message(), alternative<Attributes>(value), depth + 1);
        break;
      case tag_of(7, kBytes):
        assign(alternative<Value::Bytes>(value).data, in);
        break;
      default:
        in.skip();
    }
  }
}

void check_value(WireReader in, int depth) {
  if (depth > kNestingMax) {
    in.fail(kTooDeep);
    return;
  }
  while (in.next()) {
    const bool is_map = in.tag() == tag_of(6, kBytes);
    if (!is_map && in.tag() != tag_of(5, kBytes)) {
      in.skip();
      continue;
    }
    for (WireReader items = in.message(); items.next();) {
      if (items.tag() != tag_of(1, kBytes)) {
        items.skip();
      } else if (is_map) {
        check_attribute(items.message(), depth + 1);
      } else {
        check_value(items.message(), depth + 1);
      }
    }
  }
}

void decode_log(WireReader in, LogRecord& log) {
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kFixed64):
        log.time_unix_ns = time_of(in.fixed64());
        break;
      case tag_of(2, kVarint):
        log.severity = static_cast<int32_t>(in.varint());
        break;
      case tag_of(3, kBytes):
        assign(log.severity_text, in);
        break;
      case tag_of(5, kBytes):
        decode_value(in.message(), log.body, 1);
        break;
      case tag_of(6, kBytes):
        append_attribute(in, log.attributes);
        break;
      case tag_of(8, kFixed32):
        log.flags = in.fixed32();
        break;
      case tag_of(9, kBytes):
        decode_id(in, log.trace_id);
        break;
      case tag_of(10, kBytes):
        decode_id(in, log.span_id);
        break;
      case tag_of(11, kFixed64):
        log.observed_unix_ns = time_of(in.fixed64());
        break;
      case tag_of(12, kBytes):
        assign(log.event_name, in);
        break;
      default:
        in.skip();
    }
  }
}

void decode_span_event(WireReader in, SpanEvent& event) {
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kFixed64):
        event.time_unix_ns = time_of(in.fixed64());
        break;
      case tag_of(2, kBytes):
        assign(event.name, in);
        break;
      case tag_of(3, kBytes):
        append_attribute(in, event.attributes);
        break;
      default:
        in.skip();
    }
  }
}

void decode_span_link(WireReader in, SpanLink& link) {
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kBytes):
        decode_id(in, link.trace_id);
        break;
      case tag_of(2, kBytes):
        decode_id(in, link.span_id);
        break;
      case tag_of(4, kBytes):
        append_attribute(in, link.attributes);
        break;
      default:
        in.skip();
    }
  }
}

void decode_span_status(WireReader in, Span& span) {
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(2, kBytes):
        assign(span.status_message, in);
        break;
      case tag_of(3, kVarint):
        span.status_code = static_cast<int32_t>(in.varint());
        break;
      default:
        in.skip();
    }
  }
}

void decode_span(WireReader in, Span& span) {
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kBytes):
        decode_id(in, span.trace_id);
        break;
      case tag_of(2, kBytes):
        decode_id(in, span.span_id);
        break;
      case tag_of(3, kBytes):
        assign(span.trace_state, in);
        break;
      case tag_of(4, kBytes):
        decode_id(in, span.parent_span_id);
        break;
      case tag_of(5, kBytes):
        assign(span.name, in);
        break;
      case tag_of(6, kVarint):
        span.kind = static_cast<int32_t>(in.varint());
        break;
      case tag_of(7, kFixed64):
        span.start_unix_ns = time_of(in.fixed64());
        break;
      case tag_of(8, kFixed64):
        span.end_unix_ns = time_of(in.fixed64());
        break;
      case tag_of(9, kBytes):
        append_attribute(in, span.attributes);
        break;
      case tag_of(11, kBytes): {
        if (SpanEvent* event = append(span.events, in)) decode_span_event(in.message(), *event);
        break;
      }
      case tag_of(13, kBytes): {
        if (SpanLink* link = append(span.links, in)) decode_span_link(in.message(), *link);
        break;
      }
      case tag_of(15, kBytes):
        decode_span_status(in.message(), span);
        break;
      default:
        in.skip();
    }
  }
}

void decode_scope(WireReader in, ResourceGroup& group) {
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kBytes):
        assign(group.scope_name, in);
        break;
      case tag_of(2, kBytes):
        assign(group.scope_version, in);
        break;
      default:
        in.skip();
    }
  }
}

void decode_scope_records(WireReader in, Signal signal, ResourceGroup& group) {
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kBytes):
        decode_scope(in.message(), group);
        break;
      case tag_of(2, kBytes):
        if (signal == Signal::kLogs) {
          if (LogRecord* log = append(group.logs, in)) decode_log(in.message(), *log);
        } else {
          if (Span* span = append(group.spans, in)) decode_span(in.message(), *span);
        }
        break;
      default:
        in.skip();
    }
  }
}

void decode_resource_records(WireReader in, Signal signal, std::vector<ResourceGroup>& groups, Context& context) {
  Attributes resource;
  const size_t first = groups.size();
  while (in.next()) {
    switch (in.tag()) {
      case tag_of(1, kBytes):
        decode_map(in.message(), resource, 1);
        break;  // Resource: attributes are field 1
      case tag_of(2, kBytes): {
        if (!in.take_memory(sizeof(ResourceGroup))) break;
        ResourceGroup& group = groups.emplace_back();
        decode_scope_records(in.message(), signal, group);
        break;
      }
      default:
        in.skip();
    }
  }
  if (const uint64_t bytes = copied_bytes(resource, groups.size() - first);
      bytes <= kCopiedBytesMax && !in.take_memory(bytes))
    return;
  if (!context.copies.share_resource(std::move(resource), groups, first)) {
    in.fail("a resource too large for its many scopes");
  }
}

}  // namespace

void decode_map(WireReader in, Attributes& map, int depth) {
  while (in.next()) {
    if (in.tag() == tag_of(1, kBytes)) {
      if (Attribute* attribute = append(map, in)) decode_attribute(in.message(), *attribute, depth);
    } else {
      in.skip();
    }
  }
}

void decode_attributes(std::string_view fields, Attributes& attributes) {
  WireError error;
  for (WireReader in(fields, error); in.next();) append_attribute(in, attributes);
}

void check_attribute(WireReader in, int depth) {
  while (in.next()) {
    if (in.tag() == tag_of(2, kBytes)) {
      check_value(in.message(), depth);
    } else {
      in.skip();
    }
  }
}

Error error_of(const WireError& error, const char* what, std::string_view bytes) {
  return Error{format("otlp %s: %s at byte %zu of %zu", what, error.what, static_cast<size_t>(error.at - bytes.data()),
                      bytes.size())};
}

Result<Batch> decode(Signal signal, std::string_view bytes, MemoryLease* lease) {
  if (signal == Signal::kMetrics) {
    const MetricsRequest request = LOCKSTEP_TRY(decode_metrics(bytes, lease));
    return to_batch(request);
  }
  Batch batch;
  batch.signal = signal;
  Context context;
  context.error.lease = lease;
  WireReader in(bytes, context.error);
  while (in.next()) {
    if (in.tag() == tag_of(1, kBytes)) {
      decode_resource_records(in.message(), signal, batch.groups, context);
    } else {
      in.skip();
    }
  }
  if (context.error.what != nullptr) return error_of(context.error, to_text(signal), bytes);
  return batch;
}

Result<LogsRequest> decode_logs(std::string_view bytes, MemoryLease* lease) {
  LogsRequest request;
  Context context;
  context.error.lease = lease;
  WireReader in(bytes, context.error);
  bool is_first = true;
  while (in.next()) {
    if (in.tag() != tag_of(1, kBytes)) {
      in.skip();
      continue;
    }
    if (std::exchange(is_first, false)) request.steps.reserve(std::min(in.run_length(), kStepsReserveMax));
    const std::string_view group = in.bytes();
    if (!walk_steps(in, group, request.groups.size(), request.steps))
      decode_resource_records(in.part(group), Signal::kLogs, request.groups, context);
  }
  if (context.error.what != nullptr) return error_of(context.error, to_text(Signal::kLogs), bytes);
  return request;
}

Result<Attribute> decode_attribute(std::string_view key_value) {
  Attribute attribute;
  WireError error;
  decode_attribute(WireReader(key_value, error), attribute, 1);
  if (error.what != nullptr) return error_of(error, "attribute", key_value);
  return attribute;
}

Result<PartialSuccess> decode_response(std::string_view bytes) {
  PartialSuccess partial;
  WireError error;
  WireReader in(bytes, error);
  while (in.next()) {
    if (in.tag() != tag_of(1, kBytes)) {
      in.skip();
      continue;
    }
    WireReader success = in.message();
    while (success.next()) {
      switch (success.tag()) {
        case tag_of(1, kVarint):
          partial.rejected = static_cast<int64_t>(success.varint());
          break;
        case tag_of(2, kBytes):
          partial.message = success.bytes();
          break;
        default:
          success.skip();
      }
    }
  }
  if (error.what != nullptr) return error_of(error, "response", bytes);
  return partial;
}

}  // namespace lockstep::otlp
