#include "wire/exposition.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <tuple>

namespace lockstep::exposition {
namespace {

constexpr int64_t kNow = 1'793'000'000'000;

class ExpositionTest : public ::testing::Test {
 protected:
  void read(Format format, std::string_view text, uint64_t samples_max = 1000) {
    Result<void> done = walk.walk(format, text, prefix, kNow, samples_max);
    ASSERT_TRUE(done.ok()) << done.error();
  }
  std::string problem(Format format, std::string_view text, uint64_t samples_max = 1000) {
    Result<void> done = walk.walk(format, text, prefix, kNow, samples_max);
    return done.ok() ? "" : done.error();
  }
  Labels labels(size_t k) {
    Result<Labels> labels = Walk::labels_of(walk.series()[k].raw_labels);
    EXPECT_TRUE(labels.ok()) << labels.error();
    return labels.ok() ? *labels : Labels{};
  }
  double value(size_t k) { return walk.series()[k].values[0]; }
  std::string prefix = target_prefix({{"instance", "n1:9100"}, {"job", "node"}}, false);
  Walk walk;
};

TEST_F(ExpositionTest, ReadsNamesLabelsValuesAndTimes) {
  read(Format::kText,
       "# HELP http_requests_total Requests,\\n all of them.\n"
       "# TYPE http_requests_total counter\n"
       "http_requests_total{method=\"post\",code=\"200\"} 1027 1395066363000\n"
       "\n"
       "# a remark\n"
       "plain 12.47\n"
       "spaces { a = \"x\" , } -3e2\n");
  ASSERT_EQ(walk.series().size(), 3u);
  EXPECT_EQ(labels(0), (Labels{{"__name__", "http_requests_total"},
                               {"code", "200"},
                               {"instance", "n1:9100"},
                               {"job", "node"},
                               {"method", "post"}}));
  EXPECT_EQ(value(0), 1027);
  EXPECT_EQ(walk.series()[0].times_ms[0], 1395066363000);
  EXPECT_TRUE(walk.has_own_time(0));
  EXPECT_EQ(walk.series()[1].times_ms[0], kNow);
  EXPECT_FALSE(walk.has_own_time(1));
  EXPECT_EQ(labels(2), (Labels{{"__name__", "spaces"}, {"a", "x"}, {"instance", "n1:9100"}, {"job", "node"}}));
  EXPECT_EQ(value(2), -300);
  ASSERT_EQ(walk.metadata().size(), 1u);
  EXPECT_EQ(walk.metadata()[0].help, "Requests,\n all of them.");
  EXPECT_EQ(walk.metadata()[0].type, "counter");
}

TEST_F(ExpositionTest, ReadsWhatComesBeforeASeriesInAnyOrderAndQuoted) {
  read(
      Format::kText,
      "# TYPE \"a.b c\" gauge\n# TYPE \"dotted.name\" gauge\n# UNIT \"dotted.name\" seconds\n# HELP \"dotted.name\" h\n"
      "# HELP one first\n# HELP two second\n# TYPE two summary\n# TYPE \" counter\n# TYPE \"\" gauge\n# HELP end "
      "a\\\\\\\n# TYPE strange marvel\n# OTHER x "
      "y\n#\n");
  std::vector<std::string> found;
  for (const Metadata& one : walk.metadata())
    found.push_back(std::string(one.name) + "|" + one.type + "|" + one.help + "|" + one.unit);
  EXPECT_EQ(found, (std::vector<std::string>{"\"a.b|unknown||", "dotted.name|gauge|h|seconds", "one|unknown|first|",
                                             "two|summary|second|", "\"|counter||", "end|unknown|a\\\\|",
                                             "strange|unknown||"}));
  for (const char* type : {"counter", "gauge", "histogram", "summary", "gaugehistogram", "info", "stateset"}) {
    read(Format::kText, std::string("# TYPE a ") + type + "\n");
    EXPECT_EQ(walk.metadata()[0].type, type);
  }
  read(Format::kText, "# HELP a " + std::string(4096, 'h') + "\n# HELP b " + std::string(4097, 'h') + "\n");
  ASSERT_EQ(walk.metadata().size(), 1u);
  EXPECT_EQ(walk.metadata()[0].help.size(), 4096u);
}

TEST_F(ExpositionTest, EveryExemplarStaysWithItsSeries) {
  read(Format::kOpenMetrics, "a 1\nb 2 # {t=\"x\"} 5\nc 3 7.5 # {t=\"y\",u=\"z\"} 6 1.5\nd 4 8 # {} 9\ne 5\n# EOF\n");
  ASSERT_EQ(walk.series().size(), 5u);
  const size_t kCounts[] = {0, 1, 1, 1, 0};
  for (size_t k = 0; k < 5; ++k) EXPECT_EQ(walk.series()[k].exemplars.size(), kCounts[k]) << k;
  const auto expect = [&](size_t k, const Labels& labels_sent, double value_sent, int64_t time_ms) {
    const PushedExemplar& exemplar = walk.series()[k].exemplars[0];
    EXPECT_EQ(exemplar.labels, labels_sent) << k;
    EXPECT_EQ(exemplar.value, value_sent) << k;
    EXPECT_EQ(exemplar.time_ms, time_ms) << k;
  };
  expect(1, {{"t", "x"}}, 5, kNow);
  expect(2, {{"t", "y"}, {"u", "z"}}, 6, 1500);
  expect(3, {}, 9, 8000);
  EXPECT_EQ(walk.series()[2].times_ms[0], 7500);
  EXPECT_FALSE(walk.has_own_time(1));
  EXPECT_TRUE(walk.has_own_time(2));
}

TEST_F(ExpositionTest, SaysWhatIsWrongWithALine) {
  const std::tuple<Format, const char*, const char*> kCases[] = {
      {Format::kText, "a\n", "a series without a value"},
      {Format::kText, "a{b=\"c\" 1\n", "braces that do not close"},
      {Format::kText, "a x\n", "\"x\" is not a value"},
      {Format::kText, "a 1 x\n", "no number of milliseconds"},
      {Format::kText, "a 1 2 3\n", "more than a value and a time"},
      {Format::kText, "a 1 # {} 1\n", "more than a value and a time"},
      {Format::kOpenMetrics, "a 1 x\n# EOF\n", "no number of seconds"},
      {Format::kOpenMetrics, "a 1 9e15\n# EOF\n", "no number of seconds"},
      {Format::kOpenMetrics, "a 1 # x 1\n# EOF\n", "an exemplar without labels"},
      {Format::kOpenMetrics, "a 1 # {} x\n# EOF\n", "an exemplar without a value"},
      {Format::kOpenMetrics, "a 1 # {} 1 x\n# EOF\n", "an exemplar whose time"},
      {Format::kOpenMetrics, "a 1 # {} 1 9e15\n# EOF\n", "an exemplar whose time"},
      {Format::kOpenMetrics, "a 1 # {} 1 2 3\n# EOF\n", "an exemplar whose time"},
  };
  for (const auto& [format, text, why] : kCases)
    EXPECT_NE(problem(format, text).find(why), std::string::npos) << text << ": " << problem(format, text);
  for (const char* raw : {"", "T", "TH", "xH\0\0\0\0a", "TN\xFF\xFF\xFF\x7F"})
    EXPECT_FALSE(Walk::labels_of(raw).ok()) << raw;
}

TEST_F(ExpositionTest, ReadsNumbersThatAreNone) {
  read(Format::kText, "a +Inf\na -Inf\na NaN\na 1e999\na -1e999\na 1e-999\n");
  EXPECT_EQ(value(0), INFINITY);
  EXPECT_EQ(value(1), -INFINITY);
  EXPECT_EQ(std::bit_cast<uint64_t>(value(2)), 0x7FF8000000000001u);  // never a stale marker
  EXPECT_EQ(value(3), INFINITY);
  EXPECT_EQ(value(4), -INFINITY);
  EXPECT_EQ(value(5), 0);
}

TEST_F(ExpositionTest, UnescapesAndIsNotFooledByQuotes) {
  read(Format::kText, "a{path=\"C:\\\\D\\n\\\"}, b=\\\"\",c=\"#\"} 1\n");
  EXPECT_EQ(labels(0)[3], (std::pair<std::string, std::string>{"job", "node"}));
  EXPECT_EQ(labels(0)[4], (std::pair<std::string, std::string>{"path", "C:\\D\n\"}, b=\""}));
}

TEST_F(ExpositionTest, NamesInQuotesMayHaveDots) {
  read(Format::kText, "{\"hw.gpu.power\",\"gpu.uuid\"=\"G1\"} 640\n{\"alone\"} 1\n");
  EXPECT_EQ(labels(0)[0].second, "hw.gpu.power");
  EXPECT_EQ(labels(0)[1], (std::pair<std::string, std::string>{"gpu.uuid", "G1"}));
  EXPECT_EQ(labels(1)[0].second, "alone");
}

TEST_F(ExpositionTest, ThePagesLabelGivesWayToTheTargetsUnlessHonoured) {
  read(Format::kText, "a{job=\"theirs\"} 1\n");
  EXPECT_EQ(labels(0),
            (Labels{{"__name__", "a"}, {"exported_job", "theirs"}, {"instance", "n1:9100"}, {"job", "node"}}));
  prefix = target_prefix({{"instance", "n1:9100"}, {"job", "node"}}, true);
  read(Format::kText, "a{job=\"theirs\"} 1\n");
  EXPECT_EQ(labels(0), (Labels{{"__name__", "a"}, {"instance", "n1:9100"}, {"job", "theirs"}}));
  // Empty on the page: the target's is taken away.
  read(Format::kText, "a{job=\"\"} 1\n");
  EXPECT_EQ(labels(0), (Labels{{"__name__", "a"}, {"instance", "n1:9100"}}));
}

TEST_F(ExpositionTest, ANameThatIsTakenGetsAnotherPrefix) {
  read(Format::kText, "a{job=\"theirs\",exported_job=\"before\",instance=\"\"} 1\n");
  EXPECT_EQ(labels(0), (Labels{{"__name__", "a"},
                               {"exported_exported_job", "theirs"},
                               {"exported_job", "before"},
                               {"instance", "n1:9100"},
                               {"job", "node"}}));
}

TEST_F(ExpositionTest, ReadsOpenMetricsWithExemplarsUnitsAndCreatedTimes) {
  read(Format::kOpenMetrics,
       "# TYPE latency_seconds histogram\n"
       "# UNIT latency_seconds seconds\n"
       "latency_seconds_bucket{le=\"1.0\"} 5 1793000000.5 # {trace_id=\"abc\"} 0.25 1792999999.25\n"
       "latency_seconds_bucket{le=\"+Inf\"} 6 # {} 7\n"
       "latency_seconds_created 1792000000.125\n"
       "# EOF\n");
  ASSERT_EQ(walk.series().size(), 3u);
  EXPECT_EQ(walk.series()[0].times_ms[0], 1'793'000'000'500);
  ASSERT_EQ(walk.series()[0].exemplars.size(), 1u);
  EXPECT_EQ(walk.series()[0].exemplars[0].labels, (Labels{{"trace_id", "abc"}}));
  EXPECT_EQ(walk.series()[0].exemplars[0].time_ms, 1'792'999'999'250);
  EXPECT_EQ(walk.series()[1].exemplars[0].value, 7);
  EXPECT_EQ(value(2), 1792000000.125);
  EXPECT_EQ(walk.metadata()[0].unit, "seconds");
}

TEST_F(ExpositionTest, HalfAPageIsNoPage) {
  EXPECT_EQ(problem(Format::kText, "a 1\nb 2"), "line 2: the last line does not end: the page is cut short");
  EXPECT_EQ(problem(Format::kOpenMetrics, "a 1\n"), "line 1: # EOF is missing: the page is cut short");
  EXPECT_EQ(problem(Format::kOpenMetrics, "# EOF\na 1\n"), "line 2: something after # EOF");
  EXPECT_TRUE(walk.series().empty());
}

TEST_F(ExpositionTest, SaysWhichLineIsWrong) {
  EXPECT_EQ(problem(Format::kText, "a 1\nb\n"), "line 2: a series without a value");
  EXPECT_EQ(problem(Format::kText, "a x\n"), "line 1: \"x\" is not a value");
  EXPECT_EQ(problem(Format::kText, "a{b=\"c} 1\n"), "line 1: braces that do not close");
  EXPECT_EQ(problem(Format::kText, "a 1 2 3\n"), "line 1: more than a value and a time");
  EXPECT_EQ(problem(Format::kText, "a 1 1.5\n"), "line 1: a time that is no number of milliseconds");
  EXPECT_EQ(problem(Format::kText, "a 1\nb 2\n", 1), "line 2: more than 1 samples");
  EXPECT_NE(problem(Format::kText, std::string(kLineBytesMax + 1, 'a') + "\n").find("in one line"), std::string::npos);
}

TEST_F(ExpositionTest, WrongLabelsRefuseTheirSeriesAlone) {
  read(Format::kText, "a{b=c} 1\nb{x=\"1\" y=\"2\"} 1\nc{=\"1\"} 1\nd-e 1\nf{a=\"1\",a=\"2\"} 1\ngood 1\n");
  for (size_t k = 0; k < 5; ++k) EXPECT_FALSE(Walk::labels_of(walk.series()[k].raw_labels).ok()) << k;
  EXPECT_EQ(labels(5)[0].second, "good");
}

TEST_F(ExpositionTest, KnowsAFormatByItsContentType) {
  EXPECT_EQ(format_of("application/openmetrics-text; version=1.0.0; charset=utf-8"), Format::kOpenMetrics);
  EXPECT_EQ(format_of("text/plain; version=0.0.4"), Format::kText);
  EXPECT_EQ(format_of(""), Format::kText);
}

}  // namespace
}  // namespace lockstep::exposition
