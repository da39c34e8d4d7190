#include "store/memory_bytes.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

const std::string kText(1000, 'x');

TEST(MemoryBytes, EveryTextOfAValueCountsWhereverItStands) {
  const size_t plain = bytes_of(Value(int64_t{7}));
  EXPECT_EQ(bytes_of(Value(std::string())), plain);
  EXPECT_EQ(bytes_of(Value(kText)), plain + 1000);
  EXPECT_EQ(bytes_of(Value(Value::Bytes{kText})), plain + 1000);
  const Attributes one = {{"key", Value(kText)}};
  EXPECT_EQ(bytes_of(one), sizeof(std::string) + 3 + plain + 1000);
  EXPECT_EQ(bytes_of(Value(one)), plain + bytes_of(one));
  EXPECT_EQ(bytes_of(Value(ValueList{Value(kText), Value(int64_t{1})})), plain + (plain + 1000) + plain);
  const Attributes two = {{"key", Value(kText)}, {"key", Value(kText)}};
  EXPECT_EQ(bytes_of(two), 2 * bytes_of(one));
  EXPECT_EQ(bytes_of(Attributes{}), 0u);
}

TEST(MemoryBytes, EveryPartOfARecordCounts) {
  const size_t empty = bytes_of(LogRecord{});
  EXPECT_GE(empty, sizeof(LogRecord) + sizeof(void*));
  LogRecord record;
  record.severity_text = kText;
  EXPECT_EQ(bytes_of(record), empty + 1000);
  record.event_name = kText;
  EXPECT_EQ(bytes_of(record), empty + 2000);
  record.body = Value(kText);
  EXPECT_EQ(bytes_of(record), empty + 3000);
  record.attributes = {{"k", Value(int64_t{1})}};
  EXPECT_EQ(bytes_of(record), empty + 3000 + bytes_of(record.attributes));
}

TEST(MemoryBytes, EveryPartOfASpanCounts) {
  const size_t empty = bytes_of(Span{});
  EXPECT_GE(empty, sizeof(Span) + sizeof(void*));
  Span span;
  span.trace_state = span.name = span.status_message = kText;
  EXPECT_EQ(bytes_of(span), empty + 3000);
  span.attributes = {{"k", Value(int64_t{1})}};
  const size_t attribute = bytes_of(span.attributes);
  EXPECT_EQ(bytes_of(span), empty + 3000 + attribute);
  SpanEvent event;
  event.name = kText;
  event.attributes = span.attributes;
  SpanLink link;
  link.attributes = span.attributes;
  span.events = {event, event};
  EXPECT_EQ(bytes_of(span), empty + 3000 + attribute + 2 * (sizeof(SpanEvent) + 1000 + attribute));
  span.events.clear();
  span.links = {link, link};
  EXPECT_EQ(bytes_of(span), empty + 3000 + attribute + 2 * (sizeof(SpanLink) + attribute));
}

}  // namespace
}  // namespace lockstep
