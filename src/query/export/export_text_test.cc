#include "query/export/export_text.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr const char* kAnswer = R"({"status":"success","data":{"resultType":"matrix","result":[
  {"metric":{"__name__":"up","job":"node, \"a\""},"values":[[1793000000,"1"],[1793000015.5,"0"]]},
  {"metric":{"__name__":"b","x.y":"1"},"values":[[1793000000,"+Inf"]]},
  {"metric":{},"values":[[1793000000,"0.1"]],"histograms":[[1793000000,{}]]}]}})";

TEST(ExportText, CsvHasAColumnPerLabel) {
  ExportedSeries series;
  ASSERT_TRUE(series.add(kAnswer).ok());
  EXPECT_EQ(series.csv(),
            "time,name,job,x.y,value\n"
            "2026-10-26T07:33:20.000Z,,,,0.1\n"
            "2026-10-26T07:33:20.000Z,b,,1,+Inf\n"
            "2026-10-26T07:33:20.000Z,up,\"node, \"\"a\"\"\",,1\n"
            "2026-10-26T07:33:35.500Z,up,\"node, \"\"a\"\"\",,0\n");
  EXPECT_EQ(series.samples(), 4u);
  EXPECT_EQ(series.histograms_left_out(), 1u);
}

TEST(ExportText, OpenMetricsKeepsNamesTogetherAndEnds) {
  ExportedSeries series;
  ASSERT_TRUE(series.add(kAnswer).ok());
  EXPECT_EQ(series.openmetrics(),
            "b{\"x.y\"=\"1\"} +Inf 1793000000.000\n"
            "query 0.1 1793000000.000\n"
            "up{job=\"node, \\\"a\\\"\"} 1 1793000000.000\n"
            "up{job=\"node, \\\"a\\\"\"} 0 1793000015.500\n"
            "# EOF\n");
}

TEST(ExportText, PartsOfARangeAreJoinedWithoutDoubles) {
  ExportedSeries series;
  ASSERT_TRUE(series.add(kAnswer).ok());
  ASSERT_TRUE(series
                  .add(R"({"data":{"resultType":"matrix","result":[
    {"metric":{"job":"node, \"a\"","__name__":"up"},"values":[[1793000015.5,"0"],[1793000031,"7"]]}]}})")
                  .ok());
  EXPECT_EQ(series.samples(), 5u);
}

TEST(ExportText, RefusesWhatIsNoMatrix) {
  ExportedSeries series;
  for (const char* text : {"", "[]", R"({"data":{"resultType":"vector","result":[]}})",
                           R"({"data":{"resultType":"matrix","result":[{"metric":{"a":1}}]}})"}) {
    EXPECT_FALSE(series.add(text).ok()) << text;
  }
}

TEST(ExportText, ReadsMomentsAndSteps) {
  EXPECT_EQ(*parse_moment("now", 1000), 1000);
  EXPECT_EQ(*parse_moment("-1m30s", 1000), 910);
  EXPECT_EQ(*parse_moment("1793000000.5", 0), 1793000000.5);
  EXPECT_EQ(*parse_moment("2026-10-26T07:33:20Z", 0), 1793000000);
  EXPECT_EQ(*parse_moment("2026-10-26T07:33:20.25Z", 0), 1793000000.25);
  for (const char* text : {"", "yesterday", "2026-10-26", "-x", "2026-10-26T07:33:20+01:00"}) {
    EXPECT_FALSE(parse_moment(text, 0).ok()) << text;
  }
  EXPECT_EQ(*parse_step("500ms"), 0.5);
  EXPECT_EQ(*parse_step("60"), 60);
  for (const char* text : {"", "0", "-5s", "5x", "s"}) EXPECT_FALSE(parse_step(text).ok()) << text;
}

}  // namespace
}  // namespace lockstep
