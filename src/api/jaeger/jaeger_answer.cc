#include "api/jaeger/jaeger_answer.h"

#include <cmath>
#include <map>

#include "api/answer.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "query/traceql/span_text.h"

namespace lockstep {
namespace {

void write_tag(JsonWriter& json, std::string_view key, const Value& value) {
  struct Visitor {
    JsonWriter& json;
    void plain(const char* type) { json.field("type", type).key("value"); }
    void operator()(std::monostate) {
      plain("string");
      json.string("");
    }
    void operator()(const std::string& text) {
      plain("string");
      json.string(text);
    }
    void operator()(bool flag) {
      plain("bool");
      json.boolean(flag);
    }
    void operator()(int64_t number) {
      plain("int64");
      json.number(number);
    }
    void operator()(double number) {
      plain(std::isfinite(number) ? "float64" : "string");
      std::isfinite(number) ? json.number(number) : json.string(shortest_text(number));
    }
    void operator()(const ValueList& list) {
      plain("string");
      json.string(to_text(Value(list)));
    }
    void operator()(const Attributes& map) {
      plain("string");
      json.string(to_text(Value(map)));
    }
    void operator()(const Value::Bytes& bytes) {
      plain("string");
      json.string(to_text(Value(bytes)));
    }
  };
  json.begin_object().field("key", key);
  std::visit(Visitor{json}, value.data);
  json.end_object();
}

void write_tags(JsonWriter& json, const Attributes& attributes, std::string_view without = {}) {
  for (const Attribute& attribute : attributes) {
    if (attribute.key != without) write_tag(json, attribute.key, attribute.value);
  }
}

void write_reference(JsonWriter& json, const char* type, const TraceId& trace_id, const SpanId& span_id) {
  json.begin_object()
      .field("refType", type)
      .field("traceID", to_hex(trace_id))
      .field("spanID", to_hex(span_id))
      .end_object();
}

int64_t microseconds(int64_t ns) {
  return ns / 1000;
}

void write_span(JsonWriter& json, const Span& span, const std::string& process) {
  json.begin_object()
      .field("traceID", to_hex(span.trace_id))
      .field("spanID", to_hex(span.span_id))
      .field("flags", 1)
      .field("operationName", span.name)
      .key("references")
      .begin_array();
  if (span.parent_span_id != SpanId{}) write_reference(json, "CHILD_OF", span.trace_id, span.parent_span_id);
  for (const SpanLink& link : span.links) write_reference(json, "FOLLOWS_FROM", link.trace_id, link.span_id);
  json.end_array()
      .field("startTime", microseconds(span.start_unix_ns))
      .field("duration", microseconds(span.end_unix_ns - span.start_unix_ns))
      .key("tags")
      .begin_array();
  write_tags(json, span.attributes);
  if (span.kind > 0) write_tag(json, "span.kind", Value(kind_text(span.kind)));
  if (span.status_code == 1) write_tag(json, "otel.status_code", Value("OK"));
  if (span.status_code == 2) {
    write_tag(json, "otel.status_code", Value("ERROR"));
    write_tag(json, "error", Value(true));
  }
  if (!span.status_message.empty()) write_tag(json, "otel.status_description", Value(span.status_message));
  if (!span.trace_state.empty()) write_tag(json, "w3c.tracestate", Value(span.trace_state));
  json.end_array().key("logs").begin_array();
  for (const SpanEvent& event : span.events) {
    json.begin_object().field("timestamp", microseconds(event.time_unix_ns)).key("fields").begin_array();
    if (!event.name.empty()) write_tag(json, "event", Value(event.name));
    write_tags(json, event.attributes);
    json.end_array().end_object();
  }
  json.end_array().field("processID", process).key("warnings").null().end_object();
}

void write_errors(JsonWriter& json, int status, std::string_view line) {
  json.key("errors").begin_array().begin_object().field("code", status).field("msg", line).end_object().end_array();
}

}  // namespace

HttpResponse jaeger_answer(size_t total, const std::function<void(JsonWriter&)>& write_data) {
  JsonWriter json;
  json.begin_object().key("data");
  write_data(json);
  json.field("total", static_cast<uint64_t>(total)).field("limit", 0).field("offset", 0).key("errors").null();
  json.end_object();
  return json_answer(json);
}

HttpResponse jaeger_error(int status, std::string_view line) {
  JsonWriter json;
  json.begin_object().key("data").null().field("total", 0).field("limit", 0).field("offset", 0);
  write_errors(json, status, line);
  json.end_object();
  return text_answer(status, "application/json", json.take());
}

HttpResponse jaeger_v3_error(int status, std::string_view line) {
  JsonWriter json;
  json.begin_object().key("error").begin_object().field("httpCode", status).field("message", line);
  json.end_object().end_object();
  return text_answer(status, "application/json", json.take());
}

void write_jaeger_trace(JsonWriter& json, const TraceId& trace_id, const Page<StoredSpan>& spans) {
  // Resources that say the same are one process, whichever request brought them.
  std::map<const Attributes*, std::string> by_pointer;
  std::map<std::string, std::pair<std::string, const Attributes*>> processes;
  json.begin_object().field("traceID", to_hex(trace_id)).key("spans").begin_array();
  for (const StoredSpan& item : spans.items) {
    std::string& process = by_pointer[item.resource.get()];
    if (process.empty()) {
      auto [found, is_new] = processes.try_emplace(to_text(Value(*item.resource)));
      if (is_new) found->second = {"p" + std::to_string(processes.size()), item.resource.get()};
      process = found->second.first;
    }
    write_span(json, item.span, process);
  }
  json.end_array().key("processes").begin_object();
  for (const auto& [text, process] : processes) {
    json.key(process.first).begin_object();
    json.field("serviceName", find_string(*process.second, "service.name")).key("tags").begin_array();
    write_tags(json, *process.second, "service.name");
    json.end_array().end_object();
  }
  json.end_object().key("warnings");
  if (spans.items.size() < spans.total) {
    json.begin_array()
        .string(format("the first %zu of %zu spans are shown", spans.items.size(), spans.total))
        .end_array();
  } else {
    json.null();
  }
  json.end_object();
}

Result<void> add_tags(JaegerSearch& search, const std::string& tags_json) {
  if (tags_json.empty()) return {};
  const JsonLimits limits{.bytes_max = 16'384, .values_max = 256, .depth_max = 4};
  Result<JsonDocument> document = JsonDocument::parse(tags_json, limits);
  if (!document.ok() || !document->root().is_object())
    return Error{format("tags is \"%.60s\"; it must be a JSON object of texts, such as {\"error\":\"true\"}",
                        as_one_line(tags_json).c_str())};
  for (JsonValue tag : document->root()) {
    const std::string key = tag.key();
    const std::string text = tag.string() ? *tag.string() : std::string(tag.json());
    if (key == "error" && (text == "true" || text == "false")) {
      traceql::Condition condition;
      condition.type = traceql::Condition::Type::kCompare;
      condition.left = traceql::FieldRef{traceql::Field::kStatus, {}, "status"};
      condition.right = traceql::Literal{traceql::Status{2}};
      condition.op = text == "true" ? traceql::Op::kEqual : traceql::Op::kNotEqual;
      search.query.spans.condition.parts.push_back(std::move(condition));
    } else if (std::optional<int32_t> kind = kind_from_text(text); key == "span.kind" && kind) {
      traceql::Condition condition;
      condition.type = traceql::Condition::Type::kCompare;
      condition.left = traceql::FieldRef{traceql::Field::kKind, {}, "kind"};
      condition.right = traceql::Literal{traceql::Kind{*kind}};
      search.query.spans.condition.parts.push_back(std::move(condition));
    } else {
      search.search.also.attributes.push_back({key, text});
    }
  }
  if (!search.query.spans.condition.parts.empty()) search.query.spans.condition.type = traceql::Condition::Type::kAnd;
  return {};
}

std::vector<TraceOfAnswer> traces_of(const ApiContext& context, const JaegerSearch& search) {
  std::vector<TraceOfAnswer> traces;
  size_t left = kSpansOfAnswerMax;
  for (const TraceSummary& trace : search_traces(context.spans, search.query, search.search).traces) {
    // At least one of each, so that it is in the list; opened, it shows all it may.
    const size_t most = std::clamp<size_t>(left, 1, kSpansOfTraceShownMax);
    TraceOfAnswer& one = traces.emplace_back(TraceOfAnswer{trace.trace_id, context.spans.trace(trace.trace_id, most)});
    left -= std::min(left, one.spans.items.size());
  }
  return traces;
}

}  // namespace lockstep
