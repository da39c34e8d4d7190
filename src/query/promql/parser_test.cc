#include "query/promql/parser.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>

#include "query/promql/lexer.h"
#include "query/promql/printer.h"

namespace lockstep::promql {
namespace {

std::string round_trip(std::string_view query) {
  Result<std::unique_ptr<Expr>> expr = parse(query);
  return expr.ok() ? to_text(**expr) : "! " + expr.error();
}
std::string error_of(std::string_view query) {
  Result<std::unique_ptr<Expr>> expr = parse(query);
  return expr.ok() ? "no error: " + to_text(**expr) : expr.error();
}

TEST(PromqlParser, WritesEveryConstructInNormalForm) {
  const std::pair<const char*, const char*> kCases[] = {
      {"1", "1"},
      {"0x1F", "31"},
      {"1_000", "1000"},
      {".5e3", "500"},
      {"1e+5", "100000"},
      {"25e-1", "2.5"},
      {"1E2 - 1", "100 - 1"},
      {"-Inf", "-Inf"},
      {"5m", "5m"},
      {"'it\\'s'", "\"it's\""},
      {"`raw\\n`", "\"raw\\\\n\""},
      {"foo", "foo"},
      {"foo:bar", "foo:bar"},
      {"sum", "sum"},
      {"foo{b='2',a!~\"x.*\",}", "foo{a!~\"x.*\",b=\"2\"}"},
      {"{\"utf8.name\", \"the label\"='x'}", "{\"the label\"=\"x\",__name__=\"utf8.name\"}"},
      {"foo[1h30m] offset -5m @ 1.5", "foo[1h30m] @ 1.500 offset -5m"},
      {"foo @ start() offset 1w", "foo @ start() offset 1w"},
      {"rate(foo[5m])[1h:30s] @ end()", "rate(foo[5m])[1h:30s] @ end()"},
      {"foo[step()*2+1]", "foo[step() * 2 + 1]"},
      {"foo offset (1h / 2)", "foo offset (1h / 2)"},
      {"foo[5m] anchored offset 1m", "foo[5m] anchored offset 1m"},
      {"SUM(foo) BY (a, \"b c\")", "sum by (a, \"b c\") (foo)"},
      {"topk without() (3, foo)", "topk without () (3, foo)"},
      {"count_values(\"v\", foo)", "count_values(\"v\", foo)"},
      {"a + b * c ^ d ^ e", "a + b * c ^ d ^ e"},
      {"-a ^ 2", "-a ^ 2"},
      {"a == bool on(x) group_left(y) b", "a == bool on (x) group_left (y) b"},
      {"a / ignoring() b", "a / b"},
      {"a + fill(0) b", "a + fill (0) b"},
      {"a and on() b or c unless d", "a and on () b or c unless d"},
      {"a atan2 b </ 3", "a atan2 b </ 3"},
      {"foo # a comment\n + 1", "foo + 1"},
      {"label_replace(foo, 'a', '$1', 'b', '(.*)')", "label_replace(foo, \"a\", \"$1\", \"b\", \"(.*)\")"},
      {"time() - start()", "time() - start()"},
      {"foo offset 5m + 1", "foo offset 5m + 1"},
  };
  for (const auto& [query, wanted] : kCases) {
    EXPECT_EQ(round_trip(query), wanted) << query;
    EXPECT_EQ(round_trip(wanted), wanted);
  }
}

TEST(PromqlParser, BindsOperatorsAsMathematicsDoes) {
  const auto top = [](std::string_view query) {
    Result<std::unique_ptr<Expr>> expr = parse(query);
    const Expr& node = **expr;
    return node.kind == Expr::Kind::kUnary ? std::string("unary") : std::string(op_text(node.op));
  };
  EXPECT_EQ(top("a + b * c"), "+");
  EXPECT_EQ(top("a * b + c"), "+");
  EXPECT_EQ(top("-a ^ b"), "unary");
  EXPECT_EQ(top("-a * b"), "*");
  EXPECT_EQ(top("a or b and c"), "or");
  EXPECT_EQ(top("a == b + c"), "==");
  Result<std::unique_ptr<Expr>> left = parse("a - b - c");
  EXPECT_EQ((*left)->child(0).kind, Expr::Kind::kBinary);
  Result<std::unique_ptr<Expr>> right = parse("a ^ b ^ c");
  EXPECT_EQ((*right)->child(1).kind, Expr::Kind::kBinary);
}

TEST(PromqlParser, SaysWhereAndWhatIsWrong) {
  const std::pair<const char*, const char*> kCases[] = {
      {"", "1:1: parse error: the query is empty"},
      {"foo{", "1:5: parse error: the braces are not closed"},
      {"foo +\n  * 2", "2:3: parse error: unexpected \"*\""},
      {"sum(foo", "1:8: parse error: a left parenthesis is not closed"},
      {"nope(foo)", "1:1: parse error: unknown function with name \"nope\""},
      {"rate(foo)", "1:6: parse error: expected type range vector in call to function \"rate\", got instant vector"},
      {"{a=''}",
       "1:1: parse error: a vector selector must contain at least one matcher that does not match the empty string"},
      {"foo{a=~'('}", "1:5: parse error: the regular expression does not compile: missing ): ("},
      {"1 == 1", "1:1: parse error: comparisons between scalars must use bool"},
      {"1 and foo", "1:1: parse error: set operator \"and\" takes instant vectors only"},
      {"foo[5m][5m]", "1:8: parse error: ranges are only allowed on vector selectors"},
      {"foo[0]", "1:5: parse error: a duration must be greater than 0"},
      {"foo[5mm]", "1:5: parse error: \"5mm\" is neither a number nor a duration"},
      {"foo offset 5m offset 5m", "1:1: parse error: an offset is given twice"},
      {"foo{__name__='a'}", "1:1: parse error: the metric name must not be set twice: \"foo\" or \"a\""},
      {"topk(foo)", "1:1: parse error: wrong number of arguments for an aggregation: expected 2, got 1"},
      {"\"\\q\"", "1:1: parse error: unknown escape in a quoted string"},
      {"foo ! bar", "1:5: parse error: '!' is not followed by '='"},
      {"foo bar", "1:5: parse error: unexpected identifier \"bar\""},
  };
  for (const auto& [query, wanted] : kCases) EXPECT_EQ(error_of(query), wanted) << query;
}

TEST(PromqlLexer, ReadsNumbersAsGoWritesThem) {
  const std::pair<const char*, double> kGood[] = {{"0", 0},
                                                  {"017", 15},
                                                  {"08", 8},
                                                  {"0x1F", 31},
                                                  {"0X_1f", 31},
                                                  {"1_000.5", 1000.5},
                                                  {"1e3", 1000},
                                                  {"1.5E-1", 0.15},
                                                  {".5", 0.5},
                                                  {"5.", 5},
                                                  {"1e-400", 0},
                                                  {"0x7fffffffffffffff", 9223372036854775807.0},
                                                  {"inf", std::numeric_limits<double>::infinity()},
                                                  {"+Inf", std::numeric_limits<double>::infinity()},
                                                  {"-INF", -std::numeric_limits<double>::infinity()}};
  for (const auto& [text, wanted] : kGood) {
    double number = -1;
    EXPECT_TRUE(parse_number(text, &number)) << text;
    EXPECT_EQ(number, wanted) << text;
  }
  double number = 0;
  EXPECT_TRUE(parse_number("NaN", &number) && number != number);
  for (const char* bad : {"", "_", "_1", "1_", "1__0", "0x", "0x_", "0xg", "0x8000000000000000", "0xfffffffffffffffff",
                          "1e400", "1e", "1.2.3", "one", "1 "})
    EXPECT_FALSE(parse_number(bad, &number)) << bad;
}

TEST(PromqlLexer, KnowsHowManyBytesACharacterHas) {
  const std::pair<const char*, size_t> kCases[] = {{"a", 1},
                                                   {"\x7f", 1},
                                                   {"\x80", 0},
                                                   {"\xc1\xbf", 0},
                                                   {"\xc2\x80", 2},
                                                   {"\xdf\xbf", 2},
                                                   {"\xc2", 0},
                                                   {"\xc2x", 0},
                                                   {"\xe0\x9f\xbf", 0},
                                                   {"\xe0\xa0\x80", 3},
                                                   {"\xed\x9f\xbf", 3},
                                                   {"\xed\xa0\x80", 0},
                                                   {"\xee\x80\x80", 3},
                                                   {"\xef\xbf\xbf", 3},
                                                   {"\xe2\x82", 0},
                                                   {"\xe2\x82x", 0},
                                                   {"\xf0\x8f\xbf\xbf", 0},
                                                   {"\xf0\x90\x80\x80", 4},
                                                   {"\xf4\x8f\xbf\xbf", 4},
                                                   {"\xf4\x90\x80\x80", 0},
                                                   {"\xf5\x80\x80\x80", 0},
                                                   {"\xf0\x90\x80", 0},
                                                   {"\xff", 0}};
  for (const auto& [text, length] : kCases) EXPECT_EQ(utf8_length(text), length) << error_of(text);
}

TEST(PromqlLexer, ReadsEveryEscapeOfAString) {
  const auto text_of = [](std::string_view query) {
    Result<std::unique_ptr<Expr>> expr = parse(query);
    return expr.ok() ? (*expr)->text : "! " + expr.error();
  };
  EXPECT_EQ(text_of(R"("\a\b\f\n\r\t\v\\\"")"), "\a\b\f\n\r\t\v\\\"");
  EXPECT_EQ(text_of(R"('\'')"), "'");
  EXPECT_EQ(text_of(R"("\x41\101\u0041\U00000041")"), "AAAA");
  EXPECT_EQ(text_of(R"("\u00e9\u20ac\U0001F600")"), "\u00e9\u20ac\U0001F600");
  EXPECT_EQ(text_of(R"("\U0010FFFF")"), "\U0010FFFF");
  EXPECT_EQ(text_of("`a\\n\"`"), "a\\n\"");
  const std::pair<const char*, const char*> kBad[] = {
      {R"("\'")", "unknown escape in a quoted string"},
      {R"("\8")", "unknown escape in a quoted string"},
      {R"("\x4")", "an escape in a quoted string has too few digits"},
      {R"("\x4g")", "an escape in a quoted string has too few digits"},
      {R"("\178")", "an escape in a quoted string has too few digits"},
      {R"("\400")", "an escape in a quoted string is no character"},
      {R"("\ud800")", "an escape in a quoted string is no character"},
      {R"("\udfff")", "an escape in a quoted string is no character"},
      {R"("\U00110000")", "an escape in a quoted string is no character"},
      {"\"open", "the quoted string has no end"},
      {"'a\nb'", "the quoted string has no end"},
      {"\"\x80\"", "the quoted string is not UTF-8"},
      {"`open", "the raw string has no end"},
      {"`\x80`", "the raw string is not UTF-8"},
      {"1.5m", "\"1.5m\" is neither a number nor a duration"},
      {"1e3s", "\"1e3s\" is neither a number nor a duration"},
      {"2 + 0xzz", "\"0xzz\" is neither a number nor a duration"},
      {"foo } bar", "unexpected right brace"},
      {"foo )", "unexpected right parenthesis"},
      {"foo ]", "unexpected right bracket"},
      {"foo[[5m]]", "unexpected left bracket"},
      {"foo ; bar", "unexpected character ';'"},
      {"foo{a;b}", "unexpected character ';' inside braces"},
      {"foo \xff", "byte 0xff is not UTF-8"},
      {"foo \u20ac", "unexpected character '\u20ac'"},
  };
  for (const auto& [query, why] : kBad) EXPECT_TRUE(error_of(query).ends_with(why)) << query << ": " << error_of(query);
}

TEST(PromqlParser, ADurationMayBeCalculated) {
  const std::pair<const char*, const char*> kCases[] = {
      {"foo[1m+2m*3]", "foo[1m + 2m * 3]"},
      {"foo[(1m+2m)*3]", "foo[(1m + 2m) * 3]"},
      {"foo[2^3^1]", "foo[2 ^ 3 ^ 1]"},
      {"foo[-1m+5m]", "foo[-1m + 5m]"},
      {"foo[-step()+5m]", "foo[-step() + 5m]"},
      {"foo[min_of(1m, step())]", "foo[min_of(1m, step())]"},
      {"foo[max_of(1m+1s, 2*range())]", "foo[max_of(1m + 1s, 2 * range())]"},
      {"foo[5m:1m*2]", "foo[5m:1m * 2]"},
      {"foo offset -(1m*2)", "foo offset -(1m * 2)"},
      {"foo offset -5m", "foo offset -5m"},
      {"foo offset step()", "foo offset step()"},
      {"foo[10m%3m]", "foo[10m % 3m]"},
      {"foo[5m-1m-1m]", "foo[5m - 1m - 1m]"},
  };
  for (const auto& [query, wanted] : kCases) EXPECT_EQ(round_trip(query), wanted) << query;
  const std::pair<const char*, const char*> kBad[] = {
      {"foo[1m/0]", "division by zero"},
      {"foo[1m%0]", "modulo by zero"},
      {"foo[0]", "a duration must be greater than 0"},
      {"foo[-5m]", "a duration must be greater than 0"},
      {"foo[1e10]", "a duration is out of range"},
      {"foo offset -1e10", "a duration is out of range"},
      {"foo[NaN]", "a duration is out of range"},
      {"foo[min_of(1m)]", "unexpected \")\""},
      {"foo[(1m]", ""},
      {"foo[step(]", ""},
      {"foo offset", ""},
      {"foo[1m +]", ""},
      {"foo[1m == 2m]", ""},
      {"foo[1m atan2 2m]", ""},
  };
  for (const auto& [query, why] : kBad) {
    EXPECT_EQ(error_of(query).find("no error"), std::string::npos) << query << error_of(query);
    EXPECT_NE(error_of(query).find(why), std::string::npos) << query << ": " << error_of(query);
  }
}

TEST(PromqlParser, AFunctionTakesAsManyArgumentsAsItHasAndNoOther) {
  const std::pair<const char*, size_t> kFunctions[] = {{"abs", 1},
                                                       {"absent", 1},
                                                       {"absent_over_time", 1},
                                                       {"acos", 1},
                                                       {"acosh", 1},
                                                       {"asin", 1},
                                                       {"asinh", 1},
                                                       {"atan", 1},
                                                       {"atanh", 1},
                                                       {"avg_over_time", 1},
                                                       {"ceil", 1},
                                                       {"changes", 1},
                                                       {"clamp", 3},
                                                       {"clamp_max", 2},
                                                       {"clamp_min", 2},
                                                       {"cos", 1},
                                                       {"cosh", 1},
                                                       {"count_over_time", 1},
                                                       {"deg", 1},
                                                       {"delta", 1},
                                                       {"deriv", 1},
                                                       {"double_exponential_smoothing", 3},
                                                       {"end", 0},
                                                       {"exp", 1},
                                                       {"first_over_time", 1},
                                                       {"floor", 1},
                                                       {"histogram_avg", 1},
                                                       {"histogram_count", 1},
                                                       {"histogram_fraction", 3},
                                                       {"histogram_quantile", 2},
                                                       {"histogram_stddev", 1},
                                                       {"histogram_stdvar", 1},
                                                       {"histogram_sum", 1},
                                                       {"idelta", 1},
                                                       {"increase", 1},
                                                       {"irate", 1},
                                                       {"label_replace", 5},
                                                       {"last_over_time", 1},
                                                       {"ln", 1},
                                                       {"log10", 1},
                                                       {"log2", 1},
                                                       {"mad_over_time", 1},
                                                       {"max_of", 2},
                                                       {"max_over_time", 1},
                                                       {"min_of", 2},
                                                       {"min_over_time", 1},
                                                       {"pi", 0},
                                                       {"predict_linear", 2},
                                                       {"present_over_time", 1},
                                                       {"quantile_over_time", 2},
                                                       {"rad", 1},
                                                       {"range", 0},
                                                       {"rate", 1},
                                                       {"resets", 1},
                                                       {"scalar", 1},
                                                       {"sgn", 1},
                                                       {"sin", 1},
                                                       {"sinh", 1},
                                                       {"sort", 1},
                                                       {"sort_desc", 1},
                                                       {"sqrt", 1},
                                                       {"start", 0},
                                                       {"start_timestamp", 1},
                                                       {"stddev_over_time", 1},
                                                       {"stdvar_over_time", 1},
                                                       {"step", 0},
                                                       {"sum_over_time", 1},
                                                       {"tan", 1},
                                                       {"tanh", 1},
                                                       {"time", 0},
                                                       {"timestamp", 1},
                                                       {"ts_of_first_over_time", 1},
                                                       {"ts_of_last_over_time", 1},
                                                       {"ts_of_max_over_time", 1},
                                                       {"ts_of_min_over_time", 1},
                                                       {"vector", 1}};
  for (const auto& [name, count] : kFunctions) {
    std::string arguments;
    for (size_t given = 0; given <= count + 1; ++given) {
      const std::string error = error_of(std::string(name) + "(" + arguments + ")");
      const bool wrong_number = error.find("argument(s)") != std::string::npos;
      EXPECT_EQ(wrong_number, given != count) << name << " with " << given << ": " << error;
      arguments += given == 0 ? "a" : ", a";
    }
  }
}

TEST(PromqlParser, RefusesWhatIsTooDeepOrTooLarge) {
  const std::string deep(20'000, '(');
  EXPECT_NE(error_of(deep + "1" + std::string(20'000, ')')).find("nested deeper"), std::string::npos);
  EXPECT_NE(error_of(std::string(20'000, '-') + "a").find("nested deeper"), std::string::npos);
  std::string chain = "a";
  for (int i = 0; i < 20'000; ++i) chain += "+a";
  EXPECT_NE(error_of(chain).find("nested deeper"), std::string::npos);
  EXPECT_NE(error_of(std::string(2u << 20, ' ')).find("at most 1048576"), std::string::npos);
  EXPECT_NE(error_of("a[" + std::string(20'000, '(') + "1" + std::string(20'000, ')') + "]").find("nested deeper"),
            std::string::npos);
}

TEST(PromqlParser, ReadsASelectorAlone) {
  Result<std::vector<LabelMatcher>> matchers = parse_selector("up{job=\"x\"}");
  ASSERT_TRUE(matchers.ok()) << matchers.error();
  ASSERT_EQ(matchers->size(), 2u);
  EXPECT_EQ((*matchers)[1].value, "up");
  EXPECT_FALSE(parse_selector("up[5m]").ok());
  EXPECT_FALSE(parse_selector("sum(up)").ok());
  for (const char* anything : {"{}", "{job=\"\"}", "{job=~\".*\"}"})
    EXPECT_FALSE(parse_selector(anything).ok()) << "would be every series: " << anything;
}

TEST(PromqlParser, BreaksLongQueriesIntoLines) {
  const std::string query =
      "sum by (instance, job) (rate(node_network_receive_bytes_total{device=\"eth0\"}[5m])) / "
      "sum by (instance, job) (rate(node_network_transmit_bytes_total{device=\"eth0\"}[5m]))";
  EXPECT_EQ(pretty(**parse(query)),
            "  sum by (instance, job) (rate(node_network_receive_bytes_total{device=\"eth0\"}[5m]))\n/\n"
            "  sum by (instance, job) (rate(node_network_transmit_bytes_total{device=\"eth0\"}[5m]))");
}

TEST(PromqlParser, BreaksEachKindOfExpressionIntoLines) {
  const std::string many(110, 'x');
  EXPECT_EQ(pretty(**parse("-(" + many + " + a)")), "-(\n    " + many + "\n  +\n    a\n)");
  EXPECT_EQ(pretty(**parse("topk(3, " + many + ")")), "topk(\n  3,\n  " + many + "\n)");
  EXPECT_EQ(pretty(**parse("round(" + many + ", 2)")), "round(\n  " + many + ",\n  2\n)");
  EXPECT_EQ(pretty(**parse("(" + many + ")[5m:1m]")), "(\n  " + many + "\n)[5m:1m]");
}

// Each level was once printed anew by every level around it.
TEST(PromqlParser, PrintsDeepQueriesInTheTimeTheirTextTakes) {
  // What printing costs this thread, for each byte that is printed.
  const auto cpu_per_byte = [](int depth) {
    std::string query(200, 'x');
    for (int i = 0; i < depth; ++i) query = "(" + query + ")";
    std::string all = query;
    for (int i = 0; i < 40; ++i) all += " + " + query;
    const Result<std::unique_ptr<Expr>> expr = parse(all);
    EXPECT_TRUE(expr.ok()) << expr.error();
    size_t bytes = 0;
    timespec began{}, ended{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
    for (int i = 0; i < 20; ++i) bytes += pretty(**expr).size();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
    EXPECT_EQ(to_text(**expr), all);
    return (static_cast<double>(ended.tv_sec - began.tv_sec) * 1e9 +
            static_cast<double>(ended.tv_nsec - began.tv_nsec)) /
           static_cast<double>(bytes);
  };
  // Anew at every level would be 30 times as much.
  EXPECT_LT(cpu_per_byte(450), 8 * cpu_per_byte(15));
}

}  // namespace
}  // namespace lockstep::promql
