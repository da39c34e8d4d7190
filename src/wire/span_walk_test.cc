#include "wire/span_walk.h"

#include <gtest/gtest.h>

#include <bit>

#include "base/text.h"
#include "wire/otlp.h"
#include "wire/test_batches.h"

namespace lockstep::otlp {
namespace {

// What the walk hands on, as the attributes that otlp::decode() would give.
struct Collected {
  std::vector<std::pair<std::string, std::string>> sources;
  std::vector<Span> spans;
  std::vector<std::string> odd;
  bool takes = true;

  bool source(std::string_view resource, std::string_view scope) {
    sources.emplace_back(resource, scope);
    return takes;
  }
  bool span(const SpanView& view) {
    Span& span = spans.emplace_back();
    span.trace_id = view.trace_id;
    span.span_id = view.span_id;
    span.parent_span_id = view.parent_span_id;
    span.trace_state = view.trace_state;
    span.name = view.name;
    span.kind = view.kind;
    span.start_unix_ns = view.start_unix_ns;
    span.end_unix_ns = view.end_unix_ns;
    span.status_code = view.status_code;
    span.status_message = view.status_message;
    for (const AttributeView& attribute : view.attributes) {
      Value value;
      if (attribute.type == CellType::kText) value = Value(std::string(attribute.text));
      if (attribute.type == CellType::kFlag) value = Value(attribute.bits != 0);
      if (attribute.type == CellType::kInt) value = Value(static_cast<int64_t>(attribute.bits));
      if (attribute.type == CellType::kReal) value = Value(std::bit_cast<double>(attribute.bits));
      span.attributes.push_back({std::string(attribute.key), value});
    }
    return takes;
  }
  bool odd_span(std::string_view bytes) {
    odd.emplace_back(bytes);
    return takes;
  }
  bool walk(std::string_view request, MemoryLease* lease = nullptr) {
    return SpanWalk<Collected>(*this).walk(request, lease);
  }
};

Batch batch_of(std::vector<Span> spans) {
  Batch batch;
  batch.signal = Signal::kSpans;
  batch.groups.emplace_back().spans = std::move(spans);
  return batch;
}

Span span_with(Attributes attributes) {
  Span span;
  span.trace_id = test::trace_id();
  span.span_id = test::span_id(3);
  span.parent_span_id = test::span_id(4);
  span.trace_state = "state";
  span.name = "name";
  span.kind = 3;
  span.start_unix_ns = test::kTime;
  span.end_unix_ns = test::kTime + 5;
  span.status_code = 2;
  span.status_message = "bad";
  span.attributes = std::move(attributes);
  return span;
}

TEST(SpanWalk, HandsOnEveryFieldAndEverySizeOfAttributeAsDecodingDoes) {
  std::vector<Value> values = {Value(), Value(true), Value(false), Value(0.0), Value(-0.5), Value(1e300)};
  for (const int64_t number : {int64_t{0}, int64_t{1}, int64_t{127}, int64_t{128}, int64_t{16'383}, int64_t{16'384},
                               (int64_t{1} << 56) - 1, int64_t{1} << 56, INT64_MAX, int64_t{-1}, INT64_MIN})
    values.emplace_back(number);
  for (const size_t size : {0, 1, 2, 100, 118, 119, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 300})
    values.emplace_back(std::string(size, 't'));
  for (const size_t key_size : {0, 1, 2, 3, 126, 127, 128, 200}) {
    for (const Value& value : values) {
      const Span span = span_with({{std::string(key_size, 'k'), value}, {"after", Value(int64_t{7})}});
      Collected collected;
      ASSERT_TRUE(collected.walk(encode(batch_of({span, span}))));
      ASSERT_EQ(collected.spans.size(), 2u);
      EXPECT_EQ(collected.spans[0], span) << key_size;
      EXPECT_EQ(collected.spans[1], span) << key_size;
    }
  }
}

TEST(SpanWalk, ASpanWithPartsWithinPartsIsHandedOnAsItsBytes) {
  const Span plain = span_with({{"a", Value("b")}});
  std::vector<Span> odd(5, plain);
  odd[0].events.resize(1);
  odd[1].links.resize(1);
  odd[2].attributes.push_back({"list", Value(ValueList{Value("x")})});
  odd[3].attributes.push_back({"map", Value(Attributes{{"x", Value("y")}})});
  odd[4].attributes.push_back({"bytes", Value(Value::Bytes{"x"})});
  for (const Span& one : odd) {
    Collected collected;
    ASSERT_TRUE(collected.walk(encode(batch_of({plain, one, plain}))));
    EXPECT_EQ(collected.spans, (std::vector<Span>{plain, plain}));
    ASSERT_EQ(collected.odd.size(), 1u);
    std::string request;
    protobuf::WireWriter out(request);
    const size_t group = out.begin(1);
    const size_t scope = out.begin(2);
    out.bytes(2, collected.odd[0]);
    out.end(scope);
    out.end(group);
    EXPECT_EQ(decode(Signal::kSpans, request)->groups[0].spans[0], one);
  }
}

// Short attributes have a way of their own: whatever bytes it meets, it gives what the other way gives, or leaves them.
TEST(SpanWalk, AnAttributeOfAnyBytesIsReadAsDecodingReadsIt) {
  const std::string kGood[] = {"\x0a\x01k\x12\x03\x0a\x01v", std::string("\x0a\x01k\x12\x02\x10\x01", 7),
                               std::string("\x0a\x01k\x12\x03\x18\x80\x01", 8),
                               std::string("\x0a\x01k\x12\x09\x21\0\0\0\0\0\0\xe0\x3f", 14)};
  for (const std::string& good : kGood) {
    for (size_t at = 0; at < good.size(); ++at) {
      for (int byte = 0; byte < 256; ++byte) {
        std::string bytes = good;
        bytes[at] = static_cast<char>(byte);
        std::string request;
        protobuf::WireWriter out(request);
        const size_t group = out.begin(1);
        const size_t scope = out.begin(2);
        const size_t span = out.begin(2);
        out.bytes(9, bytes);
        out.end(span);
        out.end(scope);
        out.end(group);
        Result<Batch> decoded = decode(Signal::kSpans, request);
        Collected collected;
        const bool walked = collected.walk(request);
        ASSERT_TRUE(decoded.ok() || !walked || !collected.odd.empty()) << at << " " << byte;
        if (walked && collected.odd.empty()) {
          ASSERT_EQ(collected.spans[0].attributes, decoded->groups[0].spans[0].attributes) << at << " " << byte;
        }
        ASSERT_TRUE(walked || !decoded.ok()) << at << " " << byte;
      }
    }
  }
}

TEST(SpanWalk, TimesThatNoClockShowsAreTheLastThatOneDoes) {
  std::string request;
  protobuf::WireWriter out(request);
  const size_t group = out.begin(1);
  const size_t scope = out.begin(2);
  const size_t span = out.begin(2);
  out.fixed64(7, UINT64_MAX);
  out.fixed64(8, uint64_t{INT64_MAX} - 1);
  out.end(span);
  out.end(scope);
  out.end(group);
  Collected collected;
  ASSERT_TRUE(collected.walk(request));
  EXPECT_EQ(collected.spans[0].start_unix_ns, INT64_MAX);
  EXPECT_EQ(collected.spans[0].end_unix_ns, INT64_MAX - 1);
}

// Parts by number: R resource, S a scope's spans; within those s scope, p span; i an id of a wrong length, e an empty one.
std::string request_of(std::string_view resource_parts, std::string_view scope_parts) {
  std::string request;
  protobuf::WireWriter out(request);
  const size_t group = out.begin(1);
  for (char part : resource_parts) {
    if (part == 'R') out.bytes(1, "");
    if (part != 'S') continue;
    const size_t scope = out.begin(2);
    for (char inner : scope_parts) {
      if (inner == 's') out.bytes(1, "");
      if (inner == 'p') out.bytes(2, "");
      if (inner != 'i' && inner != 'e') continue;
      const size_t span = out.begin(2);
      out.bytes(1, inner == 'i' ? "short" : "");
      out.end(span);
    }
    out.end(scope);
  }
  out.end(group);
  return request;
}

TEST(SpanWalk, IsPlainWhereEachPartComesOnceAndBeforeWhatItIsOf) {
  for (const auto& [resource, scope] : {std::pair("RS", "sp"), std::pair("S", "p"), std::pair("RSS", "spp"),
                                        std::pair("S", "sp"), std::pair("S", "e")}) {
    Collected collected;
    EXPECT_TRUE(collected.walk(request_of(resource, scope))) << resource << " " << scope;
    EXPECT_FALSE(collected.spans.empty());
    EXPECT_EQ(collected.sources.size(), std::string_view(resource).ends_with("SS") ? 2u : 1u);
  }
  for (const auto& [resource, scope] :
       {std::pair("RRS", "sp"), std::pair("SR", "sp"), std::pair("R", ""), std::pair("", ""), std::pair("S", ""),
        std::pair("S", "s"), std::pair("S", "ps"), std::pair("S", "ssp"), std::pair("S", "i")})
    EXPECT_FALSE(Collected().walk(request_of(resource, scope))) << resource << " " << scope;
  EXPECT_TRUE(Collected().walk(""));
  Collected unwilling;
  unwilling.takes = false;
  EXPECT_FALSE(unwilling.walk(request_of("RSS", "spp")));
  EXPECT_EQ(unwilling.sources.size(), 1u);
}

TEST(SpanWalk, EndsWhereTheMemoryOfTheServerDoes) {
  MemoryBudget none(0, [] { return 0; });
  MemoryLease lease(&none, MemoryUse::kDecoding);
  EXPECT_FALSE(Collected().walk(encode(batch_of(std::vector<Span>(1000, span_with({{"a", Value("b")}})))), &lease));
}

}  // namespace
}  // namespace lockstep::otlp
