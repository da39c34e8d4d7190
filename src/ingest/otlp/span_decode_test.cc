#include "ingest/otlp/span_decode.h"

#include <gtest/gtest.h>

#include "base/protobuf_wire.h"
#include "ingest/otlp/admission.h"
#include "wire/otlp.h"
#include "wire/test_batches.h"

namespace lockstep {
namespace {

Batch plain_batch() {
  Batch batch;
  batch.signal = Signal::kSpans;
  for (int group = 0; group < 3; ++group) {
    ResourceGroup& to = batch.groups.emplace_back();
    to.resource = {{"service.name", "shop-" + std::to_string(group)}};
    to.scope_name = "scope";
    for (uint8_t i = 0; i < 5; ++i) {
      Span span;
      span.trace_id = test::trace_id();
      span.span_id = test::span_id(i);
      span.name = "get";
      span.kind = i;
      span.start_unix_ns = test::kTime + i;
      span.end_unix_ns = test::kTime + 10;
      span.attributes = {{"path", "/a"}, {"code", 200 - i}, {"ok", true}, {"real", 0.5}, {"", Value()}};
      span.status_message = i == 3 ? "bad" : "";
      to.spans.push_back(span);
    }
  }
  return batch;
}

TEST(SpanDecode, GivesPlainAndOddSpansAsTheyWereSent) {
  Result<DecodedSpans> plain = decode_spans(otlp::encode(plain_batch()));
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(spans::to_batch(plain->columns), plain_batch());
  EXPECT_EQ(plain->latest_unix_ns, static_cast<uint64_t>(test::kTime + 10));

  const Batch rich = test::rich_batch(Signal::kSpans);
  Result<DecodedSpans> odd = decode_spans(otlp::encode(rich));
  ASSERT_TRUE(odd.ok());
  EXPECT_EQ(spans::to_batch(odd->columns), rich);
}

TEST(SpanDecode, TakesWhatProtobufAllowsInAnyOrderAndInPieces) {
  // The resource after its scopes, and a scope after its spans.
  std::string span;
  protobuf::WireWriter span_out(span);
  span_out.bytes(5, "get");
  std::string request;
  protobuf::WireWriter out(request);
  const size_t group = out.begin(1);
  const size_t scope_spans = out.begin(2);
  out.bytes(2, span);
  const size_t scope = out.begin(1);
  out.bytes(1, "late scope");
  out.end(scope);
  out.end(scope_spans);
  const size_t resource = out.begin(1);
  const size_t attribute = out.begin(1);
  out.bytes(1, "service.name");
  out.end(attribute);
  out.end(resource);
  out.end(group);
  Result<DecodedSpans> decoded = decode_spans(request);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(spans::to_batch(decoded->columns), *otlp::decode(Signal::kSpans, request));
  EXPECT_EQ(decoded->columns.sources[0]->scope_name, "late scope");
}

TEST(SpanDecode, FailsWithTheLineOfTheOrdinaryDecoder) {
  const std::string whole = otlp::encode(plain_batch());
  for (size_t size = 1; size < whole.size(); size += 13) {
    std::string_view torn = std::string_view(whole).substr(0, size);
    Result<DecodedSpans> fast = decode_spans(torn);
    Result<Batch> plain = otlp::decode(Signal::kSpans, torn);
    ASSERT_EQ(fast.ok(), plain.ok()) << size;
    if (!fast.ok()) {
      EXPECT_EQ(fast.error(), plain.error());
    }
  }
}

TEST(SpanDecode, SpansAheadOfTimeAreRefusedAsInABatch) {
  Batch batch = plain_batch();
  const int64_t hour = 3'600'000'000'000;
  batch.groups[1].spans[2].start_unix_ns += hour;
  batch.groups[2].spans[0].end_unix_ns += hour;
  Result<DecodedSpans> decoded = decode_spans(otlp::encode(batch));
  ASSERT_TRUE(decoded.ok());
  AdmissionReport of_columns = admit(decoded->columns, decoded->latest_unix_ns, test::kTime);
  AdmissionReport of_batch = admit(batch, test::kTime);
  EXPECT_EQ(of_columns.received, 15);
  EXPECT_EQ(of_columns.refused, 2);
  EXPECT_EQ(of_columns.message, of_batch.message);
  EXPECT_EQ(of_columns.refused_by_reason, of_batch.refused_by_reason);
  EXPECT_EQ(spans::to_batch(decoded->columns), batch);
}

}  // namespace
}  // namespace lockstep
