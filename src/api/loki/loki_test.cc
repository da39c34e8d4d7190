// Loki's query API as Grafana calls it. Requests go straight into answer().
#include "api/testing/log_api.h"
#include "base/text.h"

namespace lockstep {
namespace {

class LokiApi : public testing::LogApiTest {
 protected:
  void SetUp() override {
    LogApiTest::SetUp();
    for (int i = 0; i < 4; ++i) say(format("step %d took %d0 ms", i, i), 4 - i, i % 2, i == 3 ? 13 : 9);
  }
  void say(const std::string& body, int64_t ago_s, int rank, int severity) {
    LogRecord record;
    record.time_unix_ns = kNow - ago_s * kSecond;
    record.severity = severity;
    record.body = body;
    record.attributes = {{"phase", "input"}};
    logs::LogColumns columns;
    columns.add({{"lockstep.job_id", "train"}, {"lockstep.rank", int64_t{rank}}, {"service.name", "trainer"}}, record,
                kNow);
    logs_->append(std::move(columns), kNow, 0);
  }
  HttpResponse get(const std::string& path, const std::string& query) {
    return LogApiTest::get("/loki/api/v1/" + path, query);
  }
  std::string body(const std::string& path, const std::string& query) {
    const HttpResponse response = get(path, query);
    EXPECT_EQ(response.status, 200) << path << "?" << query << ": " << response.body;
    return response.body.substr(0, response.body.find(",\"stats\""));
  }
  static std::string range() {
    return format("start=%lld&end=%lld", static_cast<long long>(kNow - 60 * kSecond), static_cast<long long>(kNow));
  }
};

constexpr const char* kTrain = "query=%7Bjob_id%3D%22train%22%7D";

TEST_F(LokiApi, AnswersLinesByStreamInLokisFormat) {
  EXPECT_EQ(body("query_range", std::string(kTrain) + "&direction=backward&limit=3&step=2000ms&" + range()),
            R"({"status":"success","data":{"resultType":"streams","result":[)"
            R"({"stream":{"job_id":"train","level":"warn","phase":"input","rank":"1","service_name":"trainer"},)"
            R"("values":[["1699999999000000000","step 3 took 30 ms"]]},)"
            R"({"stream":{"job_id":"train","level":"info","phase":"input","rank":"0","service_name":"trainer"},)"
            R"("values":[["1699999998000000000","step 2 took 20 ms"]]},)"
            R"({"stream":{"job_id":"train","level":"info","phase":"input","rank":"1","service_name":"trainer"},)"
            R"("values":[["1699999997000000000","step 1 took 10 ms"]]}])");
  EXPECT_EQ(body("query_range", "query=%7Brank%3D~%220%7C2%22%7D%20%7C%3D%20%60took%60&direction=forward&" + range()),
            R"({"status":"success","data":{"resultType":"streams","result":[)"
            R"({"stream":{"job_id":"train","level":"info","phase":"input","rank":"0","service_name":"trainer"},)"
            R"("values":[["1699999996000000000","step 0 took 00 ms"],["1699999998000000000","step 2 took 20 ms"]]}])");
  // The end is not of the range; the start is.
  const std::string ends = body("query_range", std::string(kTrain) + "&start=1699999997000000000&end=1699999999");
  EXPECT_NE(ends.find("step 1"), std::string::npos);
  EXPECT_EQ(ends.find("step 3"), std::string::npos);
  EXPECT_EQ(body("query_range", std::string(kTrain) + "&start=1&end=2"),
            R"({"status":"success","data":{"resultType":"streams","result":[])");
}

TEST_F(LokiApi, KeepsLabelsApartForWhoAsksForThat) {
  ServerRequest request;
  request.method = "GET";
  request.path = "/loki/api/v1/query_range";
  request.query = "query=%7Blevel%3D%22warn%22%7D%20%7C%20logfmt&" + range();
  request.headers = {{"x-loki-response-encoding-flags", "categorize-labels"}};
  const HttpResponse response = ask(request);
  EXPECT_NE(response.body.find(R"("encodingFlags":["categorize-labels"])"), std::string::npos) << response.body;
  EXPECT_NE(response.body.find(R"({"stream":{"job_id":"train","level":"warn","rank":"1","service_name":"trainer"})"),
            std::string::npos)
      << response.body;
  EXPECT_NE(response.body.find(R"("step 3 took 30 ms",{"structuredMetadata":{"phase":"input"}}])"), std::string::npos)
      << response.body;
}

TEST_F(LokiApi, CountsAsTheHistogramAndTheHealthCheckAskForIt) {
  EXPECT_EQ(body("query", "direction=backward&query=vector%281%29%2Bvector%281%29&time=4000000000"),
            R"({"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[4000000000,"2"]}])");
  const std::string volume =
      "sum%20by%20%28level%2C%20detected_level%29%20%28count_over_time%28%7Bjob_id%3D%22train%22%7D%20%7C%20drop%20__"
      "error__%5B2s%5D%29%29";
  const std::string wanted = R"({"status":"success","data":{"resultType":"matrix","result":[)"
                             R"({"metric":{"level":"info"},"values":[[1699999996,"1"],[1699999998,"2"]]},)"
                             R"({"metric":{"level":"warn"},"values":[[1700000000,"1"]]}])";
  const std::string times = "&start=1699999990000000000&end=1700000000000000000&step=2000ms";
  EXPECT_EQ(body("query_range", "query=" + volume + times), wanted);
  ServerRequest form;
  form.method = "POST";
  form.path = "/loki/api/v1/query_range";
  form.headers = {{"content-type", "application/x-www-form-urlencoded"}};
  form.body = "query=" + volume + times;
  EXPECT_TRUE(ask(form).body.starts_with(wanted)) << ask(form).body;
  EXPECT_EQ(
      body(
          "query",
          "query=topk%281%2C%20sum%20by%20%28rank%29%20%28count_over_time%28%7B%7D%5B3s%5D%29%29%29&time=1699999999.5"),
      R"({"status":"success","data":{"resultType":"vector","result":[)"
      R"({"metric":{"rank":"1"},"value":[1699999999.500,"2"]}])");
}

TEST_F(LokiApi, ListsLabelsValuesStreamsAndHowMuchThereIs) {
  EXPECT_EQ(body("labels", range()), R"({"status":"success","data":["job_id","level","rank","service_name"]})");
  EXPECT_EQ(body("label/rank/values", range()), R"({"status":"success","data":["0","1"]})");
  EXPECT_EQ(body("label/rank/values", "query=%7Blevel%3D%22warn%22%7D&" + range()),
            R"({"status":"success","data":["1"]})");
  EXPECT_EQ(body("label/phase/values", range()), R"({"status":"success","data":[]})");
  EXPECT_EQ(body("series", "match%5B%5D=%7Brank%3D%220%22%7D&match%5B%5D=%7Blevel%3D%22warn%22%7D&" + range()),
            R"({"status":"success","data":[{"job_id":"train","level":"info","rank":"0","service_name":"trainer"},)"
            R"({"job_id":"train","level":"warn","rank":"1","service_name":"trainer"}]})");
  EXPECT_TRUE(body("index/stats", std::string(kTrain) + "&" + range())
                  .starts_with(R"({"streams":3,"chunks":4,"bytes":76,"entries":4})"));
  EXPECT_EQ(
      body("index/volume", std::string(kTrain) + "&targetLabels=rank&" + range()),
      R"({"status":"success","data":{"resultType":"vector","result":[)"
      R"({"metric":{"rank":"0"},"value":[1700000000,"38"]},{"metric":{"rank":"1"},"value":[1700000000,"38"]}]}})");
  EXPECT_NE(body("index/volume", std::string(kTrain) + "&aggregateBy=labels&" + range()).find(R"({"job_id":""})"),
            std::string::npos);
  EXPECT_EQ(body("format_query", "query=%7Ba%3D%60b%60%7D%7Cjson"),
            R"({"status":"success","data":"{a=\"b\"} | json"})");
  EXPECT_NE(body("status/buildinfo", "").find("\"version\":"), std::string::npos);
}

TEST_F(LokiApi, ListsThatAreNotWholeSaySoAndSumsAreRefused) {
  is_gone_ = [this] {
    clock_.advance(8 * kSecond);  // asked before each part: after two of four its time is over
    return false;
  };
  const std::string warning =
      R"(],"warnings":["not every log record was looked at within 20 seconds; narrow them by time or labels"]})";
  EXPECT_EQ(body("labels", range()), R"({"status":"success","data":["job_id","level","rank","service_name")" + warning);
  EXPECT_TRUE(body("label/rank/values", range()).ends_with(warning));
  const std::string series = body("series", range());
  EXPECT_TRUE(series.ends_with(warning)) << series;
  EXPECT_EQ(series.find("},{"), series.rfind("},{")) << series;
  for (const char* path : {"index/stats", "index/volume"}) {
    const HttpResponse refused = get(path, range());
    EXPECT_EQ(refused.status, 400) << refused.body;
    EXPECT_EQ(refused.body, "not every log record was looked at within 20 seconds; narrow them by time or labels\n");
  }
}

TEST_F(LokiApi, EveryRowOfTheTableAnswersAsAQueryAndAsAForm) {
  size_t rows = 0;
  for (const Route& route : routes()) {
    std::string path = route.pattern;
    if (!path.starts_with("/loki/")) continue;
    if (const size_t at = path.find("{name}"); at != std::string::npos) path.replace(at, 6, "rank");
    const std::string asked = path.ends_with("/query") ? "query=rate(%7B%7D[1m])" : "query=%7B%7D";
    ServerRequest request;
    request.method = route.method;
    request.path = path;
    (request.method == "GET" ? request.query : request.body) = asked;
    request.headers = {{"content-type", "application/x-www-form-urlencoded"}};
    EXPECT_EQ(ask(request).status, 200) << route.method << " " << path;
    ++rows;
  }
  EXPECT_EQ(rows, 17u);
}

TEST_F(LokiApi, WhatIsWrongIsOneLine) {
  const std::pair<std::string, std::string> cases[] = {
      {"query_range", "query="},
      {"query_range", "query=%7B"},
      {"query_range", std::string(kTrain) + "&limit=0"},
      {"query_range", std::string(kTrain) + "&limit=20000"},
      {"query_range", std::string(kTrain) + "&limit=x"},
      {"query_range", std::string(kTrain) + "&direction=up"},
      {"query_range", std::string(kTrain) + "&start=5&end=4"},
      {"query_range", std::string(kTrain) + "&start=soon"},
      {"query_range", std::string(kTrain) + "&start=-1"},
      {"query_range", std::string(kTrain) + "&start=1e300"},
      {"query_range", std::string(kTrain) + "&end=9999999999"},
      {"query_range", std::string(kTrain) + "&end=2262-01-01T00:00:00Z"},
      {"query_range", std::string(kTrain) + "&start=1969-01-01T00:00:00Z"},
      {"query_range", std::string(kTrain) + "&end=9999999999999999999"},
      {"query_range", std::string(kTrain) + "&since=x"},
      {"query_range", "query=rate(%7B%7D[1s])&step=0"},
      {"query_range", "query=rate(%7B%7D[1s])&step=1ms"},
      {"query_range", "query=rate(%7B%7D[1s])&step=abc"},
      {"query_range", "query=rate(%7B%7D[1s]%20offset%201m)"},
      {"query_range", "query=%ZZ"},
      {"query", kTrain},
      {"query", "query=rate(%7B%7D[1s])&time=soon"},
      {"series", "match[]=rate"},
      {"labels", "query=%7Ba%3D%22b%22%7D%20%7C%20json"},
      {"index/stats", "query=%7Ba"},
      {"index/volume", std::string(kTrain) + "&aggregateBy=x"},
      {"index/volume", std::string(kTrain) + "&limit=0"},
      {"format_query", "query=%7C"},
  };
  for (const auto& [path, query] : cases) {
    const HttpResponse response = get(path, query);
    EXPECT_EQ(response.status, 400) << path << "?" << query;
    EXPECT_GT(response.body.size(), 5u);
    EXPECT_EQ(response.body.find('\n'), response.body.size() - 1) << response.body;
  }
  for (const char* path : {"tail", "drilldown-limits", "detected_fields", "index/volume_range", "rules"}) {
    const HttpResponse missing = get(path, kTrain);
    EXPECT_EQ(missing.status, 404) << path;
    EXPECT_NE(missing.body.find(" is not served here"), std::string::npos) << missing.body;
    EXPECT_EQ(missing.body.find('\n'), missing.body.size() - 1) << missing.body;
  }
  is_gone_ = [] { return true; };
  EXPECT_EQ(get("query_range", kTrain).status, 499);
  EXPECT_EQ(get("query", "query=rate(%7B%7D[1m])").status, 499);
  EXPECT_EQ(get("labels", "").status, 499);
}

}  // namespace
}  // namespace lockstep
