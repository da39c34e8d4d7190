#include "query/traceql/traceql.h"

#include <gtest/gtest.h>

#include "base/counters.h"
#include "query/traceql/traceql_search.h"
#include "store/memory_span_store.h"
#include "store/store_counters.h"

namespace lockstep {
namespace {

StoredSpan span_of(std::string name, int64_t duration_ns, Attributes attributes = {}, Attributes resource = {}) {
  StoredSpan item;
  resource.push_back({"service.name", "trainer"});
  item.resource = std::make_shared<const Attributes>(std::move(resource));
  item.span.name = std::move(name);
  item.span.start_unix_ns = 1'000;
  item.span.end_unix_ns = 1'000 + duration_ns;
  item.span.attributes = std::move(attributes);
  return item;
}

bool says(const std::string& text, const StoredSpan& span, const TraceFacts& facts = {}) {
  Result<TraceQl> query = parse_traceql(text);
  EXPECT_TRUE(query.ok()) << text << ": " << query.error();
  return query.ok() && matches(query->spans.condition, span, facts);
}

TEST(TraceQl, ComparesAttributesOfSpanAndResourceAndBoth) {
  const StoredSpan span = span_of("AllReduce", 100, {{"bytes", 1'000'000}, {"kind", "collective"}, {"timed", true}},
                                  {{"rank", 7}, {"kind", "resource's"}});
  EXPECT_TRUE(says("{}", span));
  EXPECT_TRUE(says("{ span.bytes = 1000000 && resource.rank = 7 }", span));
  EXPECT_TRUE(says("{ .rank = 7 }", span));
  EXPECT_FALSE(says("{ span.rank = 7 }", span));
  EXPECT_TRUE(says("{ .kind = \"collective\" }", span)) << "the span's own comes first";
  EXPECT_TRUE(says("{ resource.kind != \"collective\" }", span));
  EXPECT_TRUE(says("{ span.timed }", span));
  EXPECT_TRUE(says("{ span.timed = true && !(span.timed = false) }", span));
  EXPECT_TRUE(says("{ 500000 < span.bytes && span.bytes <= 1e6 }", span));
  EXPECT_TRUE(says("{ span.\"bytes\" > 999999.5 || false }", span));
  EXPECT_TRUE(says("{ resource.service.name = `trainer` }", span));
}

TEST(TraceQl, WhatIsNotThereMatchesNothingButNil) {
  const StoredSpan span = span_of("a", 1);
  EXPECT_FALSE(says("{ span.x = 1 }", span));
  EXPECT_FALSE(says("{ span.x != 1 }", span));
  EXPECT_FALSE(says("{ span.x !~ \".*\" }", span));
  EXPECT_TRUE(says("{ span.x = nil }", span));
  EXPECT_FALSE(says("{ resource.service.name = nil }", span));
  EXPECT_TRUE(says("{ resource.service.name != nil }", span));
}

TEST(TraceQl, KnowsNamesDurationsStatusKindAndRoots) {
  StoredSpan span = span_of("AllReduce", 1'500'000);
  span.span.status_code = 2;
  span.span.status_message = "broken";
  span.span.kind = 2;
  span.span.trace_id[15] = 0xab;
  span.span.span_id[7] = 0xcd;
  TraceFacts facts{"api", "GET /", 0, 3'000'000'000};
  EXPECT_TRUE(says("{ duration >= 1ms500us && duration < 1501us && span:duration = 1500000ns }", span));
  EXPECT_TRUE(says("{ status = error && kind = server && statusMessage = \"broken\" }", span));
  EXPECT_FALSE(says("{ status = ok || kind != server }", span));
  EXPECT_TRUE(says("{ rootName = \"GET /\" && rootServiceName = \"api\" && traceDuration = 3s }", span, facts));
  EXPECT_TRUE(says("{ trace:id = \"000000000000000000000000000000ab\" && span:id = \"00000000000000cd\" }", span));
  EXPECT_TRUE(says("{ nestedSetParent < 0 }", span));
  EXPECT_TRUE(says("{ name =~ \"All.*\" && name !~ \"Reduce\" && name =~ \"(?i)allreduce\" }", span)) << "whole text";
}

TEST(TraceQl, ANumberAlsoEqualsTheTextThatSpellsIt) {
  const StoredSpan span = span_of("a", 1, {{"code", "200"}, {"many", "1000000"}});
  EXPECT_TRUE(says("{ span.code = 200 && span.many = 1000000 }", span));
  EXPECT_FALSE(says("{ span.code = 201 }", span));
  EXPECT_FALSE(says("{ span.code = \"20\" }", span));
}

TEST(TraceQl, RefusesInOneLineThatSaysWhatIsUnderstood) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "\"{\" is expected"},
      {"{", "the end"},
      {"{ span.a = }", "a field or a value is expected"},
      {"{ span.a = 1", "\"}\" is expected"},
      {"{ foo = 1 }", "\"foo\" is not a field; understood: span.KEY"},
      {"{ event.x = 1 }", "is not a field"},
      {"{ span.a + 1 = 2 }", "arithmetic is not understood"},
      {"{ duration > 5 }", "a duration, such as 100ms"},
      {"{ duration > 5parsecs }", "neither a number nor a duration"},
      {"{ status = 2 }", "ok, error or unset"},
      {"{ status > ok }", "ok, error or unset"},
      {"{ kind = \"server\" }", "internal, server"},
      {"{ name = 5 }", "a text in quotes"},
      {"{ name =~ 5 }", "take \"...\""},
      {"{ name =~ \"(\" }", "no regular expression"},
      {"{ name = \"a }", "a quote does not end"},
      {"{ 1 = 1 }", "has to be a field"},
      {"{ name }", "a comparison is expected"},
      {"{ } >> { }", "operators between spans, such as >>, are not understood; understood are { conditions }"},
      {"{ } > { }", "operators between spans"},
      {"({ } ~ { })", "operators between spans"},
      {"{ } <\n\n({ })", "operators between spans"},
      {"{ } &>> { }", "operators between spans"},
      {"{ } | by(name)", "not understood after |"},
      {"{ } | rate()", "makes a metric of spans"},
      {"{ } | count()", "compared with a value"},
      {"{ } | avg(duration) > \"x\"", "a number or a duration"},
      {"{ } | avg(5) > 1", "a field is expected"},
      {"{ } | select()", "a field or a value is expected"},
      {"{ } junk", "\"junk\" is not understood here"},
      {"{ span.a = 1 } | { span.b = 2", "\"}\" is expected"},
  };
  for (const auto& [text, part] : cases) {
    Result<TraceQl> query = parse_traceql(text);
    ASSERT_FALSE(query.ok()) << text;
    EXPECT_NE(query.error().find(part), std::string::npos) << text << ": " << query.error();
    EXPECT_EQ(query.error().find('\n'), std::string::npos);
    EXPECT_LT(query.error().size(), 400u);
  }
}

TEST(TraceQl, KeepsToItsLimits) {
  EXPECT_FALSE(parse_traceql("{ name = \"" + std::string(kTraceQlBytesMax, 'x') + "\" }").ok());
  const std::string deep = std::string(kTraceQlDepthMax + 2, '(') + "true" + std::string(kTraceQlDepthMax + 2, ')');
  EXPECT_NE(parse_traceql("{" + deep + "}").error().find("nested deeper"), std::string::npos);
  EXPECT_NE(parse_traceql(std::string(4000, '(')).error().find("nested deeper"), std::string::npos);
  EXPECT_NE(parse_traceql("{" + std::string(4000, '!') + "true}").error().find("nested deeper"), std::string::npos);
  std::string wide = "{ true";
  for (int i = 0; i < 400; ++i) wide += " && true";
  EXPECT_NE(parse_traceql(wide + " }").error().find("more than 256 parts"), std::string::npos);
  EXPECT_NE(parse_traceql("{ name =~ \"" + std::string(600, 'a') + "\" }").error().find("512"), std::string::npos);
  // A pattern that takes exponential time elsewhere.
  EXPECT_FALSE(says("{ name =~ \"(a*)*b\" }", span_of(std::string(5'000, 'a'), 1)));
}

class TraceQlSearch : public ::testing::Test {
 protected:
  // Traces 1..3 begin at 10, 20, 30 s; each has a root of its number x 100 ms, and four children.
  void SetUp() override {
    for (uint8_t trace = 1; trace <= 3; ++trace) {
      ResourceGroup group;
      group.resource = {{"service.name", trace == 2 ? "other" : "trainer"}, {"host.name", "node-1"}};
      for (uint8_t i = 0; i < 5; ++i) {
        Span& span = group.spans.emplace_back();
        span.trace_id[15] = trace;
        span.span_id = {trace, 0, 0, 0, 0, 0, 0, static_cast<uint8_t>(i + 1)};
        if (i > 0) span.parent_span_id = {trace, 0, 0, 0, 0, 0, 0, 1};
        span.name = i == 0 ? "root" : i == 4 ? "late" : "child";
        span.start_unix_ns = trace * 10'000'000'000 + i;
        span.end_unix_ns = span.start_unix_ns + (i == 0 ? trace * 100'000'000 : i * 1'000'000);
        span.status_code = trace == 3 && i == 2 ? 2 : 0;
        span.attributes = {{"i", static_cast<int64_t>(i)}, {"odd", i % 2 == 1 ? "yes" : "no"}};
      }
      store_.append(group, 0);
    }
  }
  // "3:4" is trace 3 with 4 matching spans.
  std::string found(const std::string& text, const TraceSearch& search = {}) {
    Result<TraceQl> query = parse_traceql(text);
    EXPECT_TRUE(query.ok()) << text << ": " << query.error();
    if (!query.ok()) return "?";
    result_ = search_traces(store_, *query, search);
    std::string list;
    for (const TraceSummary& trace : result_.traces) {
      list += (list.empty() ? "" : " ") + std::to_string(trace.trace_id[15]) + ":" + std::to_string(trace.matched);
      EXPECT_LE(trace.matching.size(), search.spans_shown);
      EXPECT_EQ(trace.matching.size(), std::min(trace.matched, search.spans_shown));
    }
    return list;
  }

  Counters counters_{kStoreCounters};
  MemorySpanStore store_{{}, counters_};
  FoundTraces result_;
};

TEST_F(TraceQlSearch, FindsTracesNewestFirstAndCountsTheirSpans) {
  EXPECT_EQ(found("{}"), "3:5 2:5 1:5");
  EXPECT_EQ(found("{ name = \"child\" }"), "3:3 2:3 1:3");
  EXPECT_EQ(found("{ resource.service.name = \"trainer\" && duration > 150ms }"), "3:1");
  EXPECT_EQ(found("{ status = error }"), "3:1");
  EXPECT_EQ(found("{ span.i >= 3 }"), "3:2 2:2 1:2");
  EXPECT_EQ(found("{ span.odd = \"yes\" }"), "3:2 2:2 1:2");
  EXPECT_EQ(found("{ name =~ \"ch.*\" && rootServiceName = \"other\" }"), "2:3");
  EXPECT_EQ(found("{ name = \"nothing\" }"), "");
  EXPECT_EQ(result_.cut, "");
}

TEST_F(TraceQlSearch, JoinsSetsOfSpansOfOneTrace) {
  EXPECT_EQ(found("{ name = \"root\" } && { status = error }"), "3:2");
  EXPECT_EQ(found("{ status = error } || { duration = 100ms }"), "3:1 1:1");
  EXPECT_EQ(found("({ name = \"root\" } || { name = \"late\" }) && { resource.service.name = \"other\" }"), "2:5");
  EXPECT_EQ(found("{ name = \"root\" } && { name = \"nothing\" }"), "");
}

TEST_F(TraceQlSearch, AppliesWhatFollowsTheBar) {
  EXPECT_EQ(found("{ name = \"child\" } | count() > 2"), "3:3 2:3 1:3");
  EXPECT_EQ(found("{ name = \"child\" } | count() > 3"), "");
  EXPECT_EQ(found("{ } | max(duration) >= 200ms"), "3:5 2:5");
  EXPECT_EQ(found("{ name = \"child\" } | avg(duration) = 2ms"), "3:3 2:3 1:3");
  EXPECT_EQ(found("{ name = \"child\" } | sum(span.i) = 6 | min(span.i) = 1"), "3:3 2:3 1:3");
  EXPECT_EQ(found("{ } | { span.i > 2 } | count() = 2 | select(span.odd, resource.host.name)"), "3:2 2:2 1:2");
  EXPECT_EQ(found("{ } | avg(span.odd) > 0"), "") << "no numbers, no average";
}

TEST_F(TraceQlSearch, KeepsToTimesAndLimitsAskedForBesides) {
  TraceSearch search;
  search.also.limit = 2;
  EXPECT_EQ(found("{ span.i = 1 }", search), "3:1 2:1");
  search.also.limit = 20;
  search.also.start_from_unix_ns = 15'000'000'000;
  search.also.start_to_unix_ns = 25'000'000'000;
  EXPECT_EQ(found("{ span.i > 0 }", search), "2:4");
  search = {};
  search.also.service = "trainer";
  search.also.attributes = {{"odd", "yes"}};
  search.spans_shown = 1;
  EXPECT_EQ(found("{ span.i < 2 }", search), "3:1 1:1");
  search.spans_shown = 10;
  EXPECT_EQ(found("{ }", search), "3:2 1:2");
  search.also.service = "trainer";
  EXPECT_EQ(found("{ resource.service.name = \"other\" }", search), "");
}

TEST_F(TraceQlSearch, SaysWhatItDidNotLookAt) {
  ResourceGroup group;
  group.resource = {{"service.name", "many"}};
  for (size_t i = 0; i < kCandidateTracesMax + 10; ++i) {
    Span& span = group.spans.emplace_back();
    span.trace_id = {1, 1, static_cast<uint8_t>(i >> 8), static_cast<uint8_t>(i)};
    span.span_id = {9, 9, static_cast<uint8_t>(i >> 8), static_cast<uint8_t>(i)};
    span.name = "one";
    span.start_unix_ns = 100'000'000'000 + static_cast<int64_t>(i);
    span.end_unix_ns = span.start_unix_ns + 1;
    span.attributes = {{"n", static_cast<int64_t>(i)}};
  }
  store_.append(group, 0);
  EXPECT_EQ(found("{ resource.service.name = \"many\" && span.n < 5 }"), "");
  EXPECT_NE(result_.cut.find("the newest 1000 of 1010 traces"), std::string::npos) << result_.cut;
  EXPECT_EQ(found("{ resource.service.name = \"many\" && span.n >= 1009 }"), "0:1");
}

TEST(TraceQl, TellsWhatAStoreCanLookFor) {
  auto pushed = [](const char* text) { return push_down(*parse_traceql(text)); };
  Pushdown all = pushed(
      "{ resource.service.name = \"s\" && name = \"n\" && duration > 1ms && duration <= 2ms && status = error }");
  EXPECT_TRUE(all.exact);
  EXPECT_EQ(all.query.service, "s");
  EXPECT_EQ(all.query.name, "n");
  EXPECT_EQ(all.query.duration_least_ns, 1'000'001);
  EXPECT_EQ(all.query.duration_most_ns, 2'000'000);
  EXPECT_TRUE(all.query.errors_only);
  Pushdown attribute = pushed("{ span.a = \"x\" && name =~ \"y\" }");
  EXPECT_FALSE(attribute.exact);
  ASSERT_EQ(attribute.query.attributes.size(), 1u);
  EXPECT_FALSE(pushed("{ name = \"a\" || name = \"b\" }").exact);
  EXPECT_EQ(pushed("{ name = \"a\" } || { name = \"b\" }").query.name, "");
  EXPECT_EQ(pushed("{ name = \"a\" } && { name = \"b\" }").query.name, "a");
  EXPECT_FALSE(pushed("{ name = \"a\" } | count() > 1").exact);
  EXPECT_TRUE(pushed("{ name = \"a\" } | select(span.x)").exact);
  EXPECT_FALSE(pushed("{ duration < 1ns }").exact) << "0 means no limit in a store";
}

}  // namespace
}  // namespace lockstep
