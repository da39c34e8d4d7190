#include "store/memory_bytes.h"

#include <memory>

namespace lockstep {
namespace {

constexpr size_t kResource = sizeof(std::shared_ptr<const Attributes>);  // stored beside each record

}  // namespace

size_t bytes_of(const Value& value) {
  size_t bytes = sizeof(Value);
  if (const std::string* text = std::get_if<std::string>(&value.data)) bytes += text->size();
  if (const Value::Bytes* data = std::get_if<Value::Bytes>(&value.data)) bytes += data->data.size();
  if (const Attributes* map = std::get_if<Attributes>(&value.data)) bytes += bytes_of(*map);
  if (const ValueList* list = std::get_if<ValueList>(&value.data)) {
    for (const Value& item : *list) bytes += bytes_of(item);
  }
  return bytes;
}

size_t bytes_of(const Attributes& attributes) {
  size_t bytes = 0;
  for (const Attribute& attribute : attributes)
    bytes += sizeof(std::string) + attribute.key.size() + bytes_of(attribute.value);
  return bytes;
}

size_t bytes_of(const LogRecord& record) {
  return kResource + sizeof(LogRecord) + record.severity_text.size() + record.event_name.size() +
         bytes_of(record.body) + bytes_of(record.attributes);
}

size_t bytes_of(const Span& span) {
  size_t bytes = kResource + sizeof(Span) + span.trace_state.size() + span.name.size() + span.status_message.size() +
                 bytes_of(span.attributes);
  for (const SpanEvent& event : span.events)
    bytes += sizeof(SpanEvent) + event.name.size() + bytes_of(event.attributes);
  for (const SpanLink& link : span.links) bytes += sizeof(SpanLink) + bytes_of(link.attributes);
  return bytes;
}

}  // namespace lockstep
