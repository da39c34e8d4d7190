// LogQL over log records on disk: what is understood, what is refused by name, and what comes out.
#include "query/logql/logql.h"

#include <gtest/gtest.h>

#include "base/text.h"
#include "query/logql/log_lines.h"
#include "query/logql/metric_query.h"
#include "query/logql/pipeline.h"
#include "store/store_counters.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep::logql {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kBegin = 1'700'000'000 * kSecond;
using Texts = std::vector<std::string>;

TEST(LogQlParser, WritesWhatItReadsInNormalFormAndReadsThatAsTheSame) {
  const std::pair<const char*, const char*> cases[] = {
      {"{}", "{}"},
      {"{ job_id = \"train\" , rank=~\"1.\", }", "{job_id=\"train\", rank=~\"1.\"}"},
      {"{a=`x\\y`} |= `b` or \"c\\n\" != \"d\"", "{a=\"x\\\\y\"} |= \"b\" or \"c\\n\" != \"d\""},
      {"{a=\"x\"} |~ `\\d+` !~ `\"`", "{a=\"x\"} |~ \"\\\\d+\" !~ \"\\\"\""},
      {"{a=\"b\"} | json | code>=500 and (took>1.5s or size<=10KB)|drop __error__",
       "{a=\"b\"} | json | code >= 500 and (took > 1.5s or size <= 10KB) | drop __error__"},
      {"{a=\"b\"} | logfmt | x=\"1\", y!~`z.*` | keep x, y", "{a=\"b\"} | logfmt | x=\"1\" and y!~\"z.*\" | keep x, y"},
      {"sum by (level, detected_level) (count_over_time({a=\"b\"} |= `` | drop __error__[2s]))",
       "sum by (level, detected_level) (count_over_time({a=\"b\"} |= \"\" | drop __error__ [2s]))"},
      {"sum(rate(({a=\"b\"} | json)[1m])) without(rank)", "sum without (rank) (rate({a=\"b\"} | json [1m]))"},
      {"topk(5, bytes_rate({a=\"b\"}[1h30m] |= \"x\")) * 2", "topk(5, bytes_rate({a=\"b\"} |= \"x\" [1h30m])) * 2"},
      {"vector(1)+vector(1)", "vector(2)"},
      {"2 * (1 + 3) - 4 / 2", "6"},
      {"1 / 0 - 5 % 0", "NaN"},
      {"-1e308 * 10 + vector(1)", "vector(-Inf)"},
      {"rate({}[1m]) * (1e308 * 10) / (0 / 0)", "(rate({} [1m]) * +Inf) / NaN"},
      {"# what a person noted\n{a=\"b\"} # more\n|= \"#\"", "{a=\"b\"} |= \"#\""},
  };
  for (const auto& [text, expected] : cases) {
    const Result<Expression> read = parse(text);
    ASSERT_TRUE(read.ok()) << text << ": " << read.error();
    EXPECT_EQ(to_text(*read), expected);
    const Result<Expression> again = parse(to_text(*read));
    ASSERT_TRUE(again.ok()) << again.error();
    EXPECT_EQ(to_text(*again), expected);
  }
}

TEST(LogQlParser, NamesWhatIsNotServedAndWhereAMistakeIs) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "a selector {...}, a function or a number is expected, not the end"},
      {"{a=\"b\"", "character 7: \"}\" is expected, not the end"},
      {"{a=b}", "character 4: a text in quotes is expected"},
      {"{a=~\"(\"}", "is no pattern"},
      {"{a=\"b} |= 1", "a quote does not end"},
      {"{a=\"b\"} |> \"<_>\"", "pattern filters (|> and !>) are not served here"},
      {"{a=\"b\"} | line_format \"{{.x}}\"", "| line_format is not served here; served are"},
      {"{a=\"b\"} | label_format x=y", "| label_format is not served here"},
      {"{a=\"b\"} | pattern \"<x>\"", "| pattern is not served here"},
      {"{a=\"b\"} | regexp \"x\"", "| regexp is not served here"},
      {"{a=\"b\"} | unpack", "| unpack is not served here"},
      {"{a=\"b\"} | decolorize", "| decolorize is not served here"},
      {"{a=\"b\"} | json x=\"y\"", "expressions of json are not served here"},
      {"{a=\"b\"} | logfmt --strict", "flags of logfmt are not served here"},
      {"{a=\"b\"} | drop x=\"y\"", "drop takes names of labels alone here"},
      {"{a=\"b\"} |= ip(\"10.0.0.0/8\")", "ip(...) is not served here"},
      {"quantile_over_time(0.9, {a=\"b\"} | unwrap x [1m])", "quantile_over_time is not served here; served are"},
      {"sum_over_time({a=\"b\"} | unwrap x [1m])", "sum_over_time is not served here"},
      {"rate({a=\"b\"} | unwrap x [1m])", "| unwrap is not served here"},
      {"stddev(rate({a=\"b\"}[1m]))", "stddev is not served here"},
      {"rate({a=\"b\"}[1m] offset 5m)", "offset is not served here"},
      {"rate({a=\"b\"}[$__auto])", "\"$__auto\" is no range"},
      {"rate({a=\"b\"}[400d])", "is no range: 1ms to 366d"},
      {"rate({a=\"b\"})", "a range such as [5m] is expected"},
      {"rate({a=\"b\"}[5m]) by (a)", "rate takes no by and without; sum by (...) of it does"},
      {"sum({a=\"b\"})", "sum is of counts over time"},
      {"topk(0, rate({a=\"b\"}[1m]))", "topk takes a whole number from 1 to 10,000"},
      {"rate({a=\"b\"}[1m]) > 5", "the operator > is not served here"},
      {"rate({a=\"b\"}[1m]) / rate({a=\"b\"}[1m])", "one has to be a number here"},
      {"{a=\"b\"} + 1", "lines of logs are no numbers"},
      {"rate({a=\"b\"}[1m]) * vector(2)", "vector(...) beside counts over time is not served here"},
      {"Infinity", "Infinity is not served here"},
      {"{a=\"b\"} | x > y", "a text in quotes, a number, a duration or a size is expected"},
  };
  for (const auto& [text, expected] : cases) {
    const Result<Expression> read = parse(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_NE(read.error().find(expected), std::string::npos) << text << ": " << read.error();
    EXPECT_EQ(read.error().find('\n'), std::string::npos);
  }
  EXPECT_FALSE(parse_matchers("{a=\"b\"} |= \"c\"").ok());
  EXPECT_FALSE(parse("{a=\"" + std::string(kQueryBytesMax, 'x') + "\"}").ok());
  EXPECT_FALSE(parse("{a=~\"" + std::string(2000, 'x') + "\"}").ok());
  EXPECT_FALSE(parse(std::string(5000, '(')).ok());
  std::string patterns = "{a=\"b\"}";
  for (int i = 0; i < 33; ++i) patterns += " |~ `x`";
  EXPECT_NE(parse(patterns).error().find("more than 32 patterns"), std::string::npos);
  std::string parsers = "{a=\"b\"}";
  for (int i = 0; i < 4; ++i) parsers += " | json | logfmt";
  EXPECT_TRUE(parse(parsers).ok());
  EXPECT_NE(parse(parsers + " | json").error().find("more than 8 times | json or | logfmt"), std::string::npos);
  std::string long_chain = "{a=\"b\"} | x=\"1\"";
  for (int i = 0; i < 1000; ++i) long_chain += " or x=\"1\"";
  EXPECT_FALSE(parse(long_chain).ok());
}

class LogQlTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto store = ColumnarLogStore::open({.folder = folder_.path() + "/logs", .background = false}, clock_, counters_);
    ASSERT_TRUE(store.ok());
    store_ = std::move(*store);
  }
  void say(Value body, int64_t second, int rank = 0, int severity = 9, Attributes attributes = {}, int times = 1) {
    LogRecord record;
    record.time_unix_ns = kBegin + second * kSecond;
    record.severity = severity;
    record.body = std::move(body);
    record.attributes = std::move(attributes);
    logs::LogColumns columns;
    for (int i = 0; i < times; ++i) {
      columns.add({{"lockstep.job_id", "train"},
                   {"lockstep.rank", int64_t{rank}},
                   {"host.name", format("node-%d", rank / 8)},
                   {"service.name", "trainer"}},
                  record, record.time_unix_ns);
    }
    store_->append(std::move(columns), record.time_unix_ns, 0);
  }
  LogLines lines(const std::string& query, bool labels_apart = false) {
    const Result<Expression> read = parse(query);
    EXPECT_TRUE(read.ok()) << query << ": " << (read.ok() ? "" : read.error());
    if (!read.ok()) return {};
    return find_lines(*store_, read->logs,
                      {.from_unix_ns = 0, .to_unix_ns = kBegin + 1000 * kSecond, .labels_apart = labels_apart});
  }
  Texts texts(const std::string& query) {
    Texts found;
    for (const LogStream& stream : lines(query).streams) {
      for (const LogLine& line : stream.lines) found.push_back(line.text);
    }
    std::sort(found.begin(), found.end());
    return found;
  }
  MetricResult ask(const std::string& query, int64_t from_s, int64_t to_s, int64_t step_s) {
    const Result<Expression> read = parse(query);
    EXPECT_TRUE(read.ok()) << query << ": " << (read.ok() ? "" : read.error());
    if (!read.ok()) return {};
    return run_metric_query(
        *store_, *read,
        {.times = {kBegin + from_s * kSecond, kBegin + to_s * kSecond, step_s * kSecond}, .memory = nullptr});
  }
  // {labels} then each point, "-" where there is none.
  static Texts shown(const MetricResult& result) {
    Texts all;
    for (const MetricSeries& one : result.series) {
      all.push_back(to_text(one.labels));
      for (size_t at = 0; at < one.values.size(); ++at)
        all.back() += one.exists[at] != 0 ? " " + shortest_text(one.values[at]) : " -";
    }
    return all;
  }

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_{kBegin};
  Counters counters_{kStoreCounters};
  std::unique_ptr<ColumnarLogStore> store_;
};

TEST_F(LogQlTest, SelectsStreamsAndLines) {
  say("loss is 1", 1, 0);
  say("loss is 2", 2, 9, 13);
  say("out of \"memory\"\n\tat x", 3, 9, 17);
  say(Attributes{{"loss", 0.5}}, 4, 3, 0);
  EXPECT_EQ(texts("{}").size(), 4u);
  EXPECT_EQ(texts("{host=\"node-1\"} |= `loss`"), Texts{"loss is 2"});
  EXPECT_EQ(texts("{rank=~\"0|3\", level!=\"unknown\"}"), Texts{"loss is 1"});
  EXPECT_EQ(texts("{level=\"unknown\"}"), Texts{"{\"loss\":0.5}"});
  EXPECT_EQ(texts("{job_id=\"train\"} |= \"\\\"memory\\\"\\n\\tat\""), Texts{"out of \"memory\"\n\tat x"});
  EXPECT_EQ(texts("{job_id=\"train\"} |~ `is \\d$` != `1`"), Texts{"loss is 2"});
  EXPECT_EQ(texts("{job_id=\"train\"} !~ `loss|memory`"), Texts{});
  EXPECT_EQ(texts("{job_id=\"train\"} |= `is 1` or `is 2`"), (Texts{"loss is 1", "loss is 2"}));
  EXPECT_EQ(texts("{no_such_label=\"x\"}"), Texts{});
  EXPECT_EQ(texts("{no_such_label=\"\", gpu_uuid=\"\"}").size(), 4u);
  EXPECT_EQ(texts("{rank=\"9\"} | level=\"error\""), Texts{"out of \"memory\"\n\tat x"});
}

TEST_F(LogQlTest, ReadsLabelsFromLinesAndKeepsApartWhatTheRecordSaysBesides) {
  say(R"({"code": 503, "request": {"took": "1.5s", "size": "12KB"}, "rank": 7, "9 a-b": [1], "c-d": true})", 1, 0, 9,
      {{"user.name", "ann"}});
  say("code=200 took=20ms msg=\"a \\\"b\\\" c\" size=1MB empty=", 2, 1);
  say("plain text \"", 3, 2);
  const LogLines apart = lines("{} | json | __error__=\"\"", true);
  ASSERT_EQ(apart.streams.size(), 1u);
  EXPECT_EQ(to_text(apart.streams[0].labels),
            R"({host="node-0", job_id="train", level="info", rank="0", service_name="trainer"})");
  const LogLine& line = apart.streams[0].lines.at(0);
  EXPECT_EQ(to_text(line.metadata), "{user_name=\"ann\"}");
  EXPECT_EQ(to_text(line.parsed),
            R"({c_d="true", code="503", rank_extracted="7", request_size="12KB", request_took="1.5s"})");
  EXPECT_NE(to_text(lines("{rank=\"0\"}").streams.at(0).labels).find("user_name=\"ann\""), std::string::npos);

  EXPECT_EQ(texts("{} | json | code >= 500").size(), 3u);  // those that are no JSON carry an error, and are shown
  EXPECT_EQ(texts("{} | json | code >= 500 | __error__=\"\"").size(), 1u);
  EXPECT_EQ(texts("{rank=\"0\"} | json | request_took > 1s and request_size < 1MiB").size(), 1u);
  EXPECT_EQ(texts("{rank=\"0\"} | json | request_took < 1s or code == 1").size(), 0u);
  EXPECT_EQ(texts("{} | user_name=~`a.*`").size(), 1u);
  EXPECT_EQ(texts("{rank=\"1\"} | logfmt | msg=`a \"b\" c` | took <= 20ms | size > 999KB | empty=\"\"").size(), 1u);
  EXPECT_EQ(texts("{rank=\"1\"} | logfmt | took > 5").size(), 1u);
  const LogLines wrong = lines("{rank=\"1\"} | logfmt | took > 5 | drop msg, code, host", true);
  EXPECT_EQ(to_text(wrong.streams.at(0).lines.at(0).parsed),
            R"({size="1MB", took="20ms", __error__="LabelFilterErr", )"
            R"(__error_details__="\"20ms\" of took cannot be compared with 5"})");
  EXPECT_EQ(to_text(wrong.streams[0].labels), R"({job_id="train", level="info", rank="1", service_name="trainer"})");
  EXPECT_EQ(to_text(lines("{rank=\"2\"} | logfmt | keep rank").streams.at(0).labels), "{rank=\"2\"}");
}

TEST_F(LogQlTest, ReadsMetadataWhereItIsAskedForAndAddsWhatTheRecordSaysBeside) {
  const LogEntry entry{.severity_text = "WARN",
                       .body = "\"a\"",
                       .attributes = R"({"phase":"input","span_id":"mine"})",
                       .trace = std::string(32, 'a') + std::string(16, 'b')};
  const auto metadata = [&](const char* query, bool with_metadata) {
    const Result<Expression> read = parse(query);
    Pipeline pipeline(read->logs.stages, with_metadata);
    Line line;
    std::string shown;
    for (int i = 0; i < 2; ++i) {
      EXPECT_TRUE(pipeline.run(
          text_of(entry), [](Labels& room) -> const Labels& { return room; }, line));
      shown = to_text(*line.metadata);
    }
    return shown;
  };
  const std::string all =
      "{phase=\"input\", severity_text=\"WARN\", span_id=\"mine\", trace_id=\"" + std::string(32, 'a') + "\"}";
  EXPECT_EQ(metadata("{}", true), all);
  EXPECT_EQ(metadata("{} | phase=`input`", false), all);
  EXPECT_EQ(metadata("{} | __error__=``", false), "{}");
}

TEST_F(LogQlTest, WhatOneLineLosesTheNextOneStillHas) {
  for (int64_t second = 0; second < 3; ++second) say("a", second, 0, 9, {{"phase", "input"}});
  const LogLines dropped = lines("{} | phase=`input` | drop phase, host", true);
  ASSERT_EQ(dropped.streams.size(), 1u);
  EXPECT_EQ(to_text(dropped.streams[0].labels), R"({job_id="train", level="info", rank="0", service_name="trainer"})");
  ASSERT_EQ(dropped.streams[0].lines.size(), 3u);
  for (const LogLine& line : dropped.streams[0].lines) EXPECT_EQ(to_text(line.metadata), "{}");
  EXPECT_EQ(shown(ask("sum by (host, phase) (count_over_time({} | phase=`input` | drop host[10s]))", 9, 9, 1)),
            Texts{"{phase=\"input\"} 3"});
  EXPECT_EQ(shown(ask("sum by (phase) (count_over_time({} | keep phase |= ``[10s]))", 9, 9, 1)),
            Texts{"{phase=\"input\"} 3"});
  EXPECT_EQ(texts("{} |= `` | drop __error__").size(), 3u);
  say("b", 4, 0, 9, {{"phase", std::string(5000, 'x')}});
  EXPECT_EQ(texts("{} | phase=~`x+`"), Texts{"b"});
}

// "n...": {"0": 0, "1": 1, ...}: each of 900 members has the outer name in its own.
Attributes nested(const std::string& outer) {
  Attributes members;
  for (int i = 0; i < 900; ++i) members.push_back({std::to_string(i), int64_t{i}});
  return {{outer, Value(std::move(members))}, {"phase", "input"}};
}

TEST_F(LogQlTest, NamesOfNestedMembersDoNotMultiplyWhatARecordTakes) {
  say("a", 1, 0, 9, nested(std::string(6000, 'n')));
  say("b", 2, 0, 9, nested(std::string(200, 'n')));
  say("c", 3, 0, 9, nested("n"));
  const LogLines apart = lines("{}", true);
  ASSERT_EQ(apart.streams.at(0).lines.size(), 3u);
  EXPECT_LT(apart.bytes, 300'000u);
  const auto& shown = apart.streams[0].lines;
  EXPECT_EQ(shown[0].metadata.size(), 901u);
  EXPECT_EQ(shown[0].metadata.back().first, "phase");
  EXPECT_LT(bytes_of(shown[1].metadata), 70'000u);
  EXPECT_EQ(to_text(shown[2].metadata), "{phase=\"input\"}");
}

TEST_F(LogQlTest, LinesTakeTheirMemoryAsTheyAreMade) {
  for (int64_t second = 0; second < 40; ++second) say(std::string(16'000, 'x'), second);
  MemoryBudget budget(1 << 20, [] { return uint64_t{0}; });
  MemoryLease memory(&budget, MemoryUse::kQueries);
  LinesWanted wanted{.from_unix_ns = 0, .to_unix_ns = kBegin + 1000 * kSecond, .memory = &memory};
  const LogLines found = find_lines(*store_, LogSelection{}, wanted);
  EXPECT_TRUE(found.no_memory);
  EXPECT_LT(found.lines, 30u);
  wanted.limit = 3;
  EXPECT_FALSE(find_lines(*store_, LogSelection{}, wanted).no_memory);
}

TEST_F(LogQlTest, AsksWhileItGoesThroughLinesWhetherSomebodyStillWaits) {
  say("{\"code\":1}", 1, 0, 9, {}, 1000);
  size_t asked = 0, asked_max = SIZE_MAX;
  const std::function<bool()> give_up = [&] { return ++asked > asked_max; };
  const LogQuery query{.limit = 1000, .give_up = give_up};
  ASSERT_TRUE(store_->find(query).whole);
  asked_max = std::exchange(asked, 0) + 1;  // once more than that: it is over while lines are made of what was found
  const LinesWanted wanted{.from_unix_ns = 0, .to_unix_ns = kBegin + 9 * kSecond, .limit = 1000, .give_up = give_up};
  const LogLines found = find_lines(*store_, LogSelection{}, wanted);
  EXPECT_TRUE(found.gave_up && !found.whole);
  EXPECT_EQ(found.lines, 512u);
  asked = 0;
  asked_max = 2;  // the second time among the lines of the only part
  const Result<Expression> counted = parse("sum(count_over_time({} | json[10s]))");
  const MetricOptions options{.times = {kBegin, kBegin + 9 * kSecond, kSecond}, .give_up = give_up};
  EXPECT_EQ(run_metric_query(*store_, *counted, options).failure, MetricFailure::kGaveUp);
  EXPECT_EQ(asked, 3u);
}

TEST_F(LogQlTest, AnAttributeNamedLikeALabelOfTheStreamIsNotTakenForIt) {
  say("a", 1, 0, 13, {{"level", "WARNING"}, {"job", Value(Attributes{{"id", int64_t{7}}})}});
  EXPECT_EQ(texts("{job_id=\"train\"} | level=\"warn\""), Texts{"a"});
  EXPECT_EQ(texts("{} | level=\"WARNING\""), Texts{});
  EXPECT_EQ(texts("{} | level_extracted=\"WARNING\" | job_id=\"train\""), Texts{"a"});
  EXPECT_EQ(to_text(lines("{}", true).streams.at(0).lines.at(0).metadata),
            "{job_id_extracted=\"7\", level_extracted=\"WARNING\"}");
  EXPECT_EQ(shown(ask("sum by (level) (count_over_time({} | level=\"warn\" [10s]))", 9, 9, 1)),
            Texts{"{level=\"warn\"} 1"});
  say("{\"level\":\"odd\"}", 2, 1, 13, {{"level", "WARNING"}});
  EXPECT_EQ(shown(ask("max by (level_extracted) (count_over_time({rank=\"1\"} | json[10s]))", 9, 9, 1)),
            Texts{"{level_extracted=\"odd\"} 1"});
}

TEST_F(LogQlTest, ReadsNumbersAsTheyAreWrittenHoweverBig) {
  say(R"({"v": 1.10, "e":1e3 ,"id":123456789012345678901234567890, "big":1e999, "a":{"9":-0.0,"b":{"":true}}, "n":null})",
      1);
  EXPECT_EQ(to_text(lines("{} | json", true).streams.at(0).lines.at(0).parsed),
            R"({a_9="-0.0", a_b_="true", big="1e999", e="1e3", id="123456789012345678901234567890", v="1.10"})");
  EXPECT_EQ(texts("{} | json | e == 1000 | v < 1.2 | __error__=``").size(), 1u);
  for (const char* wrong :
       {"{\"a\":1", "{\"a\":1}}", "{\"a\":1 \"b\":2}", "{\"a\":1x}", "{\"a\":tru}", "{\"a\":{\"b\":1}",
        "{\"a\":\"\\x\"}", "[{}]", "\"a\"", "{1:2}", "{\"a\"}", "{,}", "{\"a\":}", "{} {}"}) {
    RecordReader reader;
    Labels labels;
    EXPECT_FALSE(reader.add_members(wrong, labels)) << wrong;
    EXPECT_TRUE(labels.empty()) << wrong;
    EXPECT_TRUE(reader.add_members("{}", labels));
  }
}

TEST_F(LogQlTest, ReadsWhatIsKeyAndValueInALineThatIsNotAll) {
  say(R"(began: "quoted" path="C:\\new\dir" text="a\tb \"c\"" =x a"b=2 b="c"d c=1"2 last=end open="never ends)", 1);
  EXPECT_EQ(to_text(lines("{} | logfmt", true).streams.at(0).lines.at(0).parsed),
            R"({last="end", path="C:\\newdir", text="a\tb \"c\""})");
  EXPECT_EQ(texts("{} | logfmt | path=`C:\\newdir` | __error__=``").size(), 1u);
  EXPECT_EQ(shown(ask("sum by (last) (count_over_time({} | logfmt[10s]))", 9, 9, 1)), Texts{"{last=\"end\"} 1"});
}

TEST_F(LogQlTest, CountsOverTimeFromBehindAPointUpToIt) {
  for (int64_t second = 0; second < 10; ++second)
    say(second % 2 == 0 ? "even" : "odd one", second, static_cast<int>(second % 3), second == 4 ? 17 : 9);
  EXPECT_EQ(
      shown(ask("sum by (level, detected_level) (count_over_time({job_id=\"train\"} | drop __error__[2s]))", 1, 9, 2)),
      (Texts{"{level=\"error\"} - - 1 - -", "{level=\"info\"} 2 2 1 2 2"}));
  EXPECT_EQ(shown(ask("sum(count_over_time({}[2s]))", 0, 20, 4)), Texts{"{} 1 2 2 - - -"});
  EXPECT_EQ(shown(ask("sum(rate({}[10s])) * 60", 9, 9, 1)), Texts{"{} 60"});
  EXPECT_EQ(shown(ask("sum by (rank) (bytes_over_time({} |= `odd`[10s]))", 9, 9, 1)),
            (Texts{"{rank=\"0\"} 14", "{rank=\"1\"} 14", "{rank=\"2\"} 7"}));
  EXPECT_EQ(shown(ask("bytes_rate({rank=\"0\", level=\"info\"} |= `even`[10s])", 9, 9, 1)),
            Texts{R"({host="node-0", job_id="train", level="info", rank="0", service_name="trainer"} 0.8)"});
  EXPECT_EQ(shown(ask("topk(1, sum by (rank) (count_over_time({}[10s])))", 9, 9, 1)), Texts{"{rank=\"0\"} 4"});
  EXPECT_EQ(shown(ask("max(sum by (rank) (count_over_time({}[10s]))) - 1", 9, 9, 1)), Texts{"{} 3"});
  EXPECT_EQ(shown(ask("count(count_over_time({}[10s]))", 9, 9, 1)), Texts{"{} 4"});
  EXPECT_EQ(shown(ask("avg by (level) (count_over_time({}[10s]))", 9, 9, 1)),
            (Texts{"{level=\"error\"} 1", "{level=\"info\"} 3"}));
  EXPECT_EQ(shown(ask("vector(2)", 0, 2, 1)), Texts{"{} 2 2 2"});
  EXPECT_EQ(shown(ask("sum(count_over_time({}[10s])) % 0", 9, 9, 1)), Texts{"{} NaN"});
  EXPECT_EQ(shown(ask("1 / (sum(count_over_time({}[10s])) - 10)", 9, 9, 1)), Texts{"{} NaN"});
  EXPECT_EQ(shown(ask("sum(count_over_time({job_id=\"another\"}[10s]))", 9, 9, 1)), Texts{});
}

TEST_F(LogQlTest, CountsByWhatLinesSayAndRefusesLinesThatAreInError) {
  say("{\"code\":1}", 1);
  say("{\"code\":1}", 2);
  say("{\"code\":2}", 3, 0, 9, {{"phase", "input"}});
  EXPECT_EQ(shown(ask("sum by (code) (count_over_time({} | json[10s]))", 9, 9, 1)),
            (Texts{"{code=\"1\"} 2", "{code=\"2\"} 1"}));
  EXPECT_EQ(shown(ask("sum by (phase) (count_over_time({}[10s]))", 9, 9, 1)), (Texts{"{} 2", "{phase=\"input\"} 1"}));
  for (const auto& [query, expected] : {
           std::pair<const char*, Texts>{"count by (phase) (count_over_time({}[10s]))",
                                         {"{} 1", "{phase=\"input\"} 1"}},
           {"max by (phase) (count_over_time({}[10s]))", {"{} 2", "{phase=\"input\"} 1"}},
           {"sum by (phase) (count_over_time({}[10s]) * 60)", {"{} 120", "{phase=\"input\"} 60"}},
           {"sum by (phase) (topk(1, count_over_time({}[10s])))", {"{} 2"}},
           {"avg by (phase) (sum without (rank) (bytes_over_time({}[10s])))", {"{} 20", "{phase=\"input\"} 10"}},
           {"count by (phase) (sum by (code) (count_over_time({} | json[10s])))", {"{} 2"}},
           {"count(topk by (phase) (1, count_over_time({}[10s])))", {"{} 2"}},
           {"count(count_over_time({}[10s]))", {"{} 1"}},
       }) {
    EXPECT_EQ(shown(ask(query, 9, 9, 1)), expected) << query;
  }
  EXPECT_EQ(
      shown(ask("sum without (host, job_id, level, rank, service_name) (count_over_time({} | json[10s]))", 9, 9, 1)),
      (Texts{"{code=\"1\"} 2", "{code=\"2\"} 1"}));
  say("no JSON", 4);
  const MetricResult refused = ask("sum(count_over_time({} | json[10s]))", 9, 9, 1);
  EXPECT_EQ(refused.failure, MetricFailure::kRefused);
  EXPECT_NE(refused.error.find("JSONParserErr"), std::string::npos) << refused.error;
  EXPECT_EQ(shown(ask("sum(count_over_time({} | json | drop __error__[10s]))", 9, 9, 1)), Texts{"{} 4"});
  EXPECT_EQ(shown(ask("sum(count_over_time({} | json | __error__=`` [10s]))", 9, 9, 1)), Texts{"{} 3"});
}

TEST_F(LogQlTest, WhatWouldTakeTooMuchIsRefusedWithOneLine) {
  for (int rank = 0; rank < 600; ++rank) say("a", rank % 10, rank);
  const MetricResult many = ask("count_over_time({}[1m])", 10, 10, 1);
  EXPECT_EQ(many.failure, MetricFailure::kRefused);
  EXPECT_NE(many.error.find("maximum of series (500) reached for a single query: it has 600"), std::string::npos);
  EXPECT_EQ(shown(ask("topk(2, count_over_time({}[1m]))", 10, 10, 1)).size(), 2u);
  MemoryBudget budget(1 << 20, [] { return uint64_t{0}; });
  MemoryLease memory(&budget, MemoryUse::kQueries);
  const MetricOptions options{.times = {kBegin, kBegin + 10'000 * kSecond, kSecond}, .memory = &memory};
  EXPECT_EQ(run_metric_query(*store_, *parse("sum(count_over_time({}[1m]))"), options).failure, MetricFailure::kNone);
  EXPECT_EQ(run_metric_query(*store_, *parse("count_over_time({}[1m])"), options).failure, MetricFailure::kNoMemory);
  MetricOptions gone = options;
  gone.give_up = [] { return true; };
  EXPECT_EQ(run_metric_query(*store_, *parse("sum(count_over_time({}[1m]))"), gone).failure, MetricFailure::kGaveUp);
}

}  // namespace
}  // namespace lockstep::logql
