// What the parser makes of queries with each of their bytes changed in turn: another query in its normal form, or an
// error with its place (testing/changed_bytes.h).
#include <gtest/gtest.h>

#include "query/promql/parser.h"
#include "query/promql/printer.h"
#include "testing/changed_bytes.h"

namespace lockstep::promql {
namespace {

std::optional<std::string> read(const std::string& query) {
  const Result<std::unique_ptr<Expr>> expr = parse(query);
  if (expr.ok()) return to_text(**expr) + "\n" + pretty(**expr);
  // What is wrong with a regular expression is told in the words of RE2.
  if (expr.error().find("regular expression") != std::string::npos) return std::nullopt;
  return expr.error();
}

TEST(ChangedQueries, AreOtherQueriesOrErrorsWithTheirPlace) {
  const struct {
    const char* query;
    const char* read;
  } kCases[] = {
      {"1_000 + 0x1F - .5e3 * 25e-1 ^ -Inf % NaN", "0 refused, 280 of 13117 bytes, b59cf32b"},
      {"5m + 1h30m15s - 1y2w3d", "0 refused, 154 of 6986 bytes, 33c37b15"},
      {"'it\\'s' + \"\\x41\\u00e9\\n\\101\" + `raw`", "0 refused, 252 of 14048 bytes, 706f2a19"},
      {"foo{b='2',a!~\"x.*\",c=~'d|e',f!=\"\",}", "0 refused, 245 of 12766 bytes, 0a54de83"},
      {"{\"utf8.name\", \"the label\"='x'}", "0 refused, 210 of 12670 bytes, 9e764e8d"},
      {"foo[1h30m] offset -5m @ 1.5", "0 refused, 189 of 8979 bytes, 7e39aaf6"},
      {"rate(foo[5m])[1h:30s] @ end() offset 1w", "0 refused, 273 of 13336 bytes, 65eb1f79"},
      {"foo[step()*2+1] offset (1h / 2)", "0 refused, 217 of 12110 bytes, 3d8abd4f"},
      {"foo[max(range(), 5m) - -1s] smoothed", "0 refused, 252 of 25523 bytes, 3ecc3f05"},
      {"SUM(foo) BY (a, \"b c\") / topk without() (3, foo)", "0 refused, 336 of 16839 bytes, 9abd3cbf"},
      {"count_values(\"v\", foo) or quantile(0.5, a)", "0 refused, 294 of 13979 bytes, 148a0b8d"},
      {"a + b * c ^ d ^ e == bool on(x) group_left(y) b", "0 refused, 329 of 15569 bytes, 66c56b6a"},
      {"-a ^ 2 unless ignoring(x, y) +b atan2 (c >= d)", "0 refused, 322 of 14864 bytes, b04cce70"},
      {"a + fill(0) b - fill_left(1) fill_right(-2) c", "0 refused, 315 of 14867 bytes, 19470df6"},
      {"foo # a comment\n + 1 </ 3", "0 refused, 175 of 5200 bytes, 6fc13c75"},
      {"label_replace(foo, 'a', '$1', 'b', '(.*)') > time()", "0 refused, 357 of 18984 bytes, cd60f4f2"},
      {"histogram_quantile(0.9, sum by (le) (rate(x_bucket[5m])))", "0 refused, 399 of 20785 bytes, 06367196"},
      {"absent(vector(scalar(foo))) and on() clamp(a, 1, 2)", "0 refused, 357 of 17052 bytes, c91b7913"},
  };
  for (const auto& [query, expected] : kCases) EXPECT_EQ(testing::read_changed(query, read), expected) << query;
}

// How deep, how many and how long: the last that is taken and the first that is not.
TEST(ParseLimits, HoldAtTheirBordersAndDepthIsGivenBackWhereItEnds) {
  auto repeated = [](const std::string& text, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
  };
  auto most = [&](const std::function<std::string(int)>& query_of, const ParseLimits& limits) {
    int count = 0;
    while (count < 100 && parse(query_of(count + 1), limits).ok()) ++count;
    return count;
  };
  const ParseLimits deep{.depth_max = 10};
  EXPECT_EQ(most([&](int n) { return repeated("(", n) + "1" + repeated(")", n); }, deep), 9);
  EXPECT_EQ(most([&](int n) { return repeated("-", n) + "a"; }, deep), 4);
  EXPECT_EQ(most([&](int n) { return repeated("abs(", n) + "a" + repeated(")", n); }, deep), 9);
  EXPECT_EQ(most([&](int n) { return "a" + repeated(" + a", n); }, deep), 9);
  EXPECT_EQ(most([&](int n) { return "a" + repeated(" ^ a", n); }, deep), 9);
  EXPECT_EQ(most([&](int n) { return "a[" + repeated("(", n) + "5m" + repeated(")", n) + "]"; }, deep), 8);
  EXPECT_EQ(most([&](int n) { return "a[5m" + repeated(" + 1m", n) + "]"; }, deep), 10);
  // One beside the other, none deeper than another.
  for (const char* part :
       {"sum((((a))))", "--(-a)", "rate(a[((5m))])", "a offset (-(-5m))", "abs(abs(a))", "(a ^ a)", "-a"}) {
    std::string query = part;
    for (int i = 0; i < 6; ++i) query = "(" + query + ") or (" + query + ")";
    EXPECT_TRUE(parse(query, {.depth_max = 40}).ok()) << part;
  }
  const ParseLimits few{.nodes_max = 10};
  EXPECT_EQ(most([&](int n) { return "a" + repeated(" + a", n); }, few), 4);
  EXPECT_EQ(most([&](int n) { return "a[5m" + repeated(" + 1m", n) + "]"; }, few), 8);
  EXPECT_TRUE(parse("a + bcd", {.bytes_max = 7}).ok());
  const auto longer = parse("a + bcde", {.bytes_max = 7});
  ASSERT_FALSE(longer.ok());
  EXPECT_EQ(longer.error(), "1:1: parse error: the query has 8 bytes; at most 7 are taken");
}

TEST(Calls, TakeAsManyArgumentsAsAreOptionalAndNotOneMore) {
  auto error = [](const std::string& query) {
    const auto expr = parse(query);
    return expr.ok() ? std::string() : expr.error().substr(expr.error().find("expected"));
  };
  for (const char* query :
       {"minute()", "minute(a)", "round(a)", "round(a, 2)", "label_join(a, \"x\", \"-\")",
        "label_join(a, \"x\", \"-\", \"b\", \"c\", \"d\")", "sort_by_label(a)", "info(a, {b=\"c\"})"})
    EXPECT_EQ(error(query), "") << query;
  EXPECT_EQ(error("minute(a, a)"), "expected at most 1 argument(s) in call to \"minute\", got 2");
  EXPECT_EQ(error("round()"), "expected at least 1 argument(s) in call to \"round\", got 0");
  EXPECT_EQ(error("round(a, 1, 2)"), "expected at most 2 argument(s) in call to \"round\", got 3");
  EXPECT_EQ(error("label_join(a, \"x\")"), "expected at least 3 argument(s) in call to \"label_join\", got 2");
  EXPECT_EQ(error("sort_by_label()"), "expected at least 1 argument(s) in call to \"sort_by_label\", got 0");
  std::string most = "histogram_quantiles(a, \"q\"";
  for (int i = 0; i < 10; ++i) most += ", 0.5";
  EXPECT_EQ(error(most + ")"), "");
  EXPECT_EQ(error(most + ", 0.5)"), "expected at most 12 argument(s) in call to \"histogram_quantiles\", got 13");
  EXPECT_EQ(error("abs()"), "expected 1 argument(s) in call to \"abs\", got 0");
}

TEST(ChangedQueries, ALongQueryIsBrokenIntoLinesWhereItMay) {
  const std::string long_name(60, 'n');
  const std::string query = "sum by (job, instance) (rate(" + long_name +
                            "{a=\"b\"}[5m] offset 1h)) / on(job) group_left(x) max(" + long_name +
                            " > bool 3) or -(label_replace(" + long_name + ", \"a\", \"b\", \"c\", \"d\"))";
  const Result<std::unique_ptr<Expr>> expr = parse(query);
  ASSERT_TRUE(expr.ok()) << expr.error();
  EXPECT_EQ(pretty(**expr), "    sum by (job, instance) (\n      rate(" + long_name +
                                "{a=\"b\"}[5m] offset 1h)\n    )\n"
                                "  / on (job) group_left (x)\n    max(" +
                                long_name + " > bool 3)\nor\n  -(label_replace(" + long_name +
                                ", \"a\", \"b\", \"c\", \"d\"))");
}

}  // namespace
}  // namespace lockstep::promql
