#include "query/traceql/span_text.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(SpanText, TraceIdsMayLackLeadingZeros) {
  EXPECT_EQ(to_hex(*trace_id_from_text("AB")), "000000000000000000000000000000ab");
  EXPECT_EQ(to_hex(*trace_id_from_text("0123456789abcdef0123456789abcdef")), "0123456789abcdef0123456789abcdef");
  for (const char* bad :
       {"", "0", "00000000000000000000000000000000", "xyz", "0x1", "0123456789abcdef0123456789abcdef0"})
    EXPECT_FALSE(trace_id_from_text(bad).ok()) << bad;
}

TEST(SpanText, DurationsAsGoWritesThem) {
  EXPECT_EQ(*duration_from_text("1.5s"), 1'500'000'000);
  EXPECT_EQ(*duration_from_text("1h30m"), 5'400'000'000'000);
  EXPECT_EQ(*duration_from_text("250ms"), 250'000'000);
  EXPECT_EQ(*duration_from_text("10us"), 10'000);
  EXPECT_EQ(*duration_from_text("10\xc2\xb5s"), 10'000);
  EXPECT_EQ(*duration_from_text("-3ns"), -3);
  EXPECT_EQ(*duration_from_text("0"), 0);
  for (const char* bad : {"", "5", "s", "1.2.3s", "1s2", "1 s", "99999999999h", "1x", "ms"})
    EXPECT_FALSE(duration_from_text(bad).ok()) << bad;
}

TEST(SpanText, TagsAsLogfmt) {
  Result<std::vector<AttributeMatch>> tags = tags_from_logfmt("  service.name=a  msg=\"two \\\"words\\\"\" empty= ");
  ASSERT_TRUE(tags.ok()) << tags.error();
  ASSERT_EQ(tags->size(), 3u);
  EXPECT_EQ((*tags)[1].value, "two \"words\"");
  EXPECT_EQ((*tags)[2].value, "");
  EXPECT_FALSE(tags_from_logfmt("alone").ok());
  EXPECT_FALSE(tags_from_logfmt("a=\"open").ok());
  EXPECT_FALSE(tags_from_logfmt("=x").ok());
}

TEST(SpanText, SpansOfOneResourceStandTogetherInBothStylesOfJson) {
  auto resource = std::make_shared<const Attributes>(Attributes{{"service.name", "a"}});
  auto equal = std::make_shared<const Attributes>(Attributes{{"service.name", "a"}});
  auto other = std::make_shared<const Attributes>(Attributes{{"service.name", "b"}});
  std::vector<StoredSpan> spans(3);
  spans[0].resource = resource;
  spans[1].resource = other;
  spans[2].resource = equal;
  for (uint8_t i = 0; i < 3; ++i) {
    spans[i].span.trace_id[15] = 1;
    spans[i].span.span_id[7] = i;
    spans[i].span.name = std::string(1, static_cast<char>('x' + i));
  }
  spans[0].span.kind = 2;
  spans[0].span.status_code = 2;
  spans[0].span.attributes = {{"n", 5}, {"f", 0.5}, {"t", true}, {"list", ValueList{Value(1)}}};
  JsonWriter otlp, protobuf;
  write_resource_spans(otlp, spans, OtlpJson::kOtlp);
  write_resource_spans(protobuf, spans, OtlpJson::kProtobuf);
  EXPECT_NE(otlp.text().find("\"traceId\":\"00000000000000000000000000000001\""), std::string::npos) << otlp.text();
  EXPECT_NE(otlp.text().find("\"kind\":2"), std::string::npos);
  EXPECT_NE(otlp.text().find("{\"key\":\"n\",\"value\":{\"intValue\":\"5\"}}"), std::string::npos);
  EXPECT_NE(otlp.text().find("{\"arrayValue\":{\"values\":[{\"intValue\":\"1\"}]}}"), std::string::npos);
  EXPECT_NE(protobuf.text().find("\"traceId\":\"AAAAAAAAAAAAAAAAAAAAAQ==\""), std::string::npos) << protobuf.text();
  EXPECT_NE(protobuf.text().find("SPAN_KIND_SERVER"), std::string::npos);
  EXPECT_NE(protobuf.text().find("STATUS_CODE_ERROR"), std::string::npos);
  Batch batch = batch_of(spans);
  ASSERT_EQ(batch.groups.size(), 2u);
  EXPECT_EQ(batch.groups[0].spans.size(), 2u);
  EXPECT_EQ(batch.groups[0].spans[1].name, "z");
}

}  // namespace
}  // namespace lockstep
