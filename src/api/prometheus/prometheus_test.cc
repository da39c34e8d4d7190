// The Prometheus query API as Grafana calls it: the same requests, in its order. Requests go straight into answer().
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <filesystem>

#include "api/routes.h"
#include "base/text.h"
#include "store/memory_span_store.h"
#include "store/memory_step_store.h"
#include "store/sqlite_state_store.h"
#include "store/store_counters.h"
#include "store/testing/memory_metric_reader.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

struct Diagnosis final : VerdictSource {
  std::vector<Verdict> known;
  std::vector<Verdict> verdicts(std::string_view) const override { return known; }
  std::string summary(std::string_view) const override { return {}; }
  std::vector<EarlyWarning> warnings() const override { return {}; }
};

class PrometheusApi : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<StateStore>> state = open_sqlite_state_store(folder_.path() + "/state.sqlite");
    ASSERT_TRUE(state.ok());
    state_ = std::move(*state);
    for (int64_t i = 0; i <= 40; ++i) {
      const int64_t time = kNow - (40 - i) * 15'000;
      reader_.add({{"__name__", "node_cpu_seconds_total"}, {"instance", "a:9100"}, {"mode", "user"}}, time,
                  2.0 * static_cast<double>(i));
      reader_.add({{"__name__", "node_cpu_seconds_total"}, {"instance", "b:9100"}, {"mode", "idle"}}, time,
                  3.0 * static_cast<double>(i));
      reader_.add({{"__name__", "http.latency"}, {"the label", "x"}}, time, 0.25);
    }
    auto histogram = std::make_shared<NativeHistogram>();
    histogram->count = 3;
    histogram->sum = 4.5;
    histogram->positive_spans = {{0, 2}};
    histogram->positive = {1, 2};
    reader_.add({{"__name__", "native"}}, kNow, histogram);
    reader_.add_metadata({"node_cpu_seconds_total", "counter", "Seconds the CPUs spent.", "seconds"});
    Exemplar exemplar;
    exemplar.series_labels = {{"__name__", "node_cpu_seconds_total"}, {"instance", "a:9100"}};
    exemplar.labels = {{"trace_id", "abc"}};
    exemplar.value = 6;
    exemplar.time_ms = kNow - 500;
    reader_.add_exemplar(exemplar);
  }

  HttpResponse ask(const std::string& method, const std::string& path, const std::string& form) {
    ApiContext context{steps_, spans_, traces_, reader_, *state_, agents_, diagnosis_, counters_, clock_, ready_, ""};
    context.scrape_targets = [&] { return targets_; };
    context.metric_admin = admin_;
    ServerRequest request;
    request.method = method;
    request.path = "/prometheus/api/v1/" + path;
    if (!host_.empty()) request.headers = {{"host", host_}};
    if (method == "POST") {
      request.headers = {{"content-type", "application/x-www-form-urlencoded"}};
      request.body = form;
    } else {
      request.query = form;
    }
    return answer(context, request);
  }
  std::string post(const std::string& path, const std::string& form) { return ask("POST", path, form).body; }
  std::string get(const std::string& path, const std::string& form = "") { return ask("GET", path, form).body; }

  HttpResponse federate(const std::string& query, const std::string& accept = "", const char* path = "/federate") {
    ApiContext context{steps_, spans_, traces_, reader_, *state_, agents_, diagnosis_, counters_, clock_, ready_, ""};
    ServerRequest request;
    request.method = "GET";
    request.path = path;
    request.query = query;
    request.headers = {{"accept", accept}};
    return answer(context, request);
  }

  static constexpr int64_t kNow = 1'700'000'000'000;
  testing::TemporaryFolder folder_;
  Counters counters_{kStoreCounters};
  MemoryStepStore steps_{{}, counters_};
  MemorySpanStore spans_{{}, counters_};

  std::unique_ptr<StateStore> state_;
  AgentRegistry agents_;
  Diagnosis diagnosis_;
  testing::FakeClock clock_{kNow * 1'000'000};
  StepTraceCache traces_{steps_, spans_, clock_};
  std::atomic<bool> ready_ = true;
  MemoryMetricReader reader_;
  std::vector<ScrapeTarget> targets_;
  MetricEngine* admin_ = nullptr;
  std::string host_;
};

TEST_F(PrometheusApi, PassesSaveAndTest) {
  EXPECT_EQ(post("query", "query=1%2B1&time=4"),
            R"({"status":"success","data":{"resultType":"scalar","result":[4,"2"]}})");
  const std::string build = get("status/buildinfo");
  EXPECT_NE(build.find("\"version\":\"3.14.0\""), std::string::npos);
  EXPECT_EQ(build.find("features"), std::string::npos);  // then Grafana takes it for a plain Prometheus
}

TEST_F(PrometheusApi, DeletesAndCopiesWhereThatIsAllowed) {
  for (const char* path : {"delete_series", "clean_tombstones", "snapshot"}) {
    const HttpResponse refused = ask("POST", std::string("admin/tsdb/") + path, "match[]=up");
    EXPECT_EQ(refused.status, 503);
    EXPECT_NE(refused.body.find("--admin-api"), std::string::npos) << refused.body;
  }
  MetricEngineOptions options;
  options.folder = folder_.path() + "/metrics";
  options.background = false;
  const std::unique_ptr<MetricEngine> engine = MetricEngine::open(options, clock_, counters_).value();
  admin_ = engine.get();
  EXPECT_EQ(ask("GET", "admin/tsdb/snapshot", "").status, 405);
  EXPECT_EQ(ask("POST", "admin/tsdb/delete_series", "").status, 400);
  EXPECT_EQ(ask("POST", "admin/tsdb/delete_series", "match[]={").status, 400);
  EXPECT_EQ(ask("POST", "admin/tsdb/delete_series", "match[]=up&start=x").status, 400);
  EXPECT_EQ(ask("POST", "admin/tsdb/delete_series", "match[]=up&start=1&end=2").status, 204);
  EXPECT_EQ(ask("POST", "admin/tsdb/clean_tombstones", "").status, 204);
  const std::string made = post("admin/tsdb/snapshot", "");
  EXPECT_EQ(made.find(R"({"status":"success","data":{"name":")"), 0u) << made;
  EXPECT_TRUE(std::filesystem::exists(folder_.path() + "/metrics/snapshots"));
}

TEST_F(PrometheusApi, AnswersWhatExploreAsksFirst) {
  EXPECT_EQ(get("label/__name__/values"),
            R"({"status":"success","data":["http.latency","native","node_cpu_seconds_total"]})");
  EXPECT_EQ(post("labels", "match[]=node_cpu_seconds_total"),
            R"({"status":"success","data":["__name__","instance","mode"]})");
  EXPECT_EQ(get("label/instance/values", "match%5B%5D=%7Bmode%3D%22idle%22%7D"),
            R"({"status":"success","data":["b:9100"]})");
  EXPECT_EQ(get("label/U__the_20_label/values"), R"({"status":"success","data":["x"]})");
  EXPECT_EQ(post("series", "match[]=node_cpu_seconds_total{mode=\"user\"}"),
            R"({"status":"success","data":[{"__name__":"node_cpu_seconds_total","instance":"a:9100","mode":"user"}]})");
  EXPECT_EQ(
      get("metadata"),
      R"({"status":"success","data":{"node_cpu_seconds_total":[{"type":"counter","help":"Seconds the CPUs spent.","unit":"seconds"}]}})");
  EXPECT_EQ(get("labels", "limit=1"),
            R"({"status":"success","data":["__name__"],"warnings":["results truncated due to limit"]})");
}

TEST_F(PrometheusApi, FederatesTheNewestSampleOfEachSeriesOnceWhicheverOfTheMatchersFindsIt) {
  const std::string both = "match[]=node_cpu_seconds_total&match[]={mode%3D\"idle\"}&match[]=none";
  const HttpResponse page = federate(both);
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.body,
            "# TYPE node_cpu_seconds_total untyped\n"
            "node_cpu_seconds_total{instance=\"a:9100\",mode=\"user\"} 80 1700000000000\n"
            "node_cpu_seconds_total{instance=\"b:9100\",mode=\"idle\"} 120 1700000000000\n");
  EXPECT_EQ(federate(both, "", "/prometheus/federate").body, page.body);
  EXPECT_EQ(federate("match[]=none").body, "");
  EXPECT_EQ(federate("match[]=native").body,
            "# TYPE native histogram\n"
            "native_bucket{instance=\"\",le=\"+Inf\"} 3 1700000000000\n"
            "native_sum{instance=\"\"} 4.5 1700000000000\nnative_count{instance=\"\"} 3 1700000000000\n");
}

TEST_F(PrometheusApi, FederatesNothingWithoutAQuestion) {
  for (const char* query : {"", "match[]={", "match[]={}", "other=node_cpu_seconds_total"}) {
    const HttpResponse refused = federate(query);
    EXPECT_EQ(refused.status, 400) << query;
    EXPECT_NE(refused.body.find("match[]"), std::string::npos) << refused.body;
  }
}

TEST_F(PrometheusApi, WhatIsStaleOrOlderThanFiveMinutesIsNotFederated) {
  reader_.add({{"__name__", "gone"}}, kNow - 30'000, 1);
  reader_.add({{"__name__", "gone"}}, kNow - 15'000, std::bit_cast<double>(kStaleBits));
  auto histogram = std::make_shared<NativeHistogram>();
  histogram->sum = std::bit_cast<double>(kStaleBits);
  reader_.add({{"__name__", "gone"}, {"kind", "native"}}, kNow, histogram);
  reader_.add({{"__name__", "old"}}, kNow - 300'001, 1);
  reader_.add({{"__name__", "just"}}, kNow - 300'000, 1);
  reader_.add({{"__name__", "future"}}, kNow + 1, 1);
  reader_.add({{"__name__", "nan"}, {"instance", "i"}}, kNow, std::nan(""));
  EXPECT_EQ(federate("match[]={__name__%3D~\"gone|old|just|future|nan\"}").body,
            "# TYPE just untyped\njust{instance=\"\"} 1 1699999700000\n"
            "# TYPE nan untyped\nnan{instance=\"i\"} NaN 1700000000000\n");
}

TEST_F(PrometheusApi, FederatedNamesAndValuesEndNoLineAndNoQuotes) {
  reader_.add({{"__name__", "tricky"}, {"instance", "a\"b\\c\nd"}}, kNow, 1);
  const std::string label = "tricky{instance=\"a\\\"b\\\\c\\nd\"} 1 1700000000000\n";
  EXPECT_EQ(federate("match[]=tricky").body, "# TYPE tricky untyped\n" + label);

  reader_.add({{"__name__", "1\n\"x"}, {"a.b", "1"}, {"a_b", "2"}, {"ä\n", "3"}}, kNow, 1);
  const std::string odd = "match[]={a_b%3D\"2\"}";
  EXPECT_EQ(federate(odd).body,
            "# TYPE ___x untyped\n___x{a_b=\"1\",a_b_=\"2\",__=\"3\",instance=\"\"} 1 1700000000000\n");
  const HttpResponse quoted = federate(odd, "text/plain;version=1.0.0;escaping=allow-utf-8");
  EXPECT_EQ(quoted.body,
            "# TYPE \"1\\n\\\"x\" untyped\n"
            "{\"1\\n\\\"x\",\"a.b\"=\"1\",a_b=\"2\",\"ä\\n\"=\"3\",instance=\"\"} 1 1700000000000\n");
  EXPECT_NE(quoted.headers[0].second.find("allow-utf-8"), std::string::npos);
}

TEST_F(PrometheusApi, DrawsAPanel) {
  EXPECT_EQ(
      post(
          "query_range",
          "query=sum+by+(instance)+(node_cpu_seconds_total{mode!%3D\"idle\"})&start=1699999940&end=1700000000&step=60"),
      R"({"status":"success","data":{"resultType":"matrix","result":[{"metric":{"instance":"a:9100"},"values":[[1699999940,"72"],[1700000000,"80"]]}]}})");
  EXPECT_EQ(
      get("query_range",
          "query=max(count_over_time(node_cpu_seconds_total%5B1m%5D))&start=1699999970.5&end=1700000000&step=1m"),
      R"({"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1699999970.500,"4"]]}]}})");
}

TEST_F(PrometheusApi, WritesTimesNumbersAndHistogramsAsPrometheusDoes) {
  EXPECT_EQ(get("query", "query=1e21&time=1700000000.5"),
            R"({"status":"success","data":{"resultType":"scalar","result":[1700000000.500,"1e+21"]}})");
  EXPECT_EQ(get("query", "query=-1/0&time=2023-11-14T22:13:20Z"),
            R"({"status":"success","data":{"resultType":"scalar","result":[1700000000,"-Inf"]}})");
  EXPECT_EQ(
      get("query", "query=native&time=1700000000"),
      R"({"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"native"},"histogram":[1700000000,{"count":"3","sum":"4.5","buckets":[[0,"0.5","1","1"],[0,"1","2","2"]]}]}]}})");
  EXPECT_EQ(get("query", "query=%22text%22&time=1"),
            R"({"status":"success","data":{"resultType":"string","result":[1,"text"]}})");
}

TEST_F(PrometheusApi, ShowsExemplars) {
  EXPECT_EQ(
      post("query_exemplars", "query=rate(node_cpu_seconds_total[1m])&start=1699999000&end=1700000000"),
      R"({"status":"success","data":[{"seriesLabels":{"__name__":"node_cpu_seconds_total","instance":"a:9100"},"exemplars":[{"labels":{"trace_id":"abc"},"value":"6","timestamp":1699999999.500}]}]})");
}

TEST_F(PrometheusApi, HasEmptyListsWhereNothingIsYet) {
  EXPECT_EQ(get("rules", "type=record"), R"({"status":"success","data":{"groups":[]}})");
  EXPECT_EQ(get("alerts"), R"({"status":"success","data":{"alerts":[]}})");
  EXPECT_EQ(get("targets"),
            R"({"status":"success","data":{"activeTargets":[],"droppedTargets":[],"droppedTargetCounts":{}}})");
  for (const char* path : {"alertmanagers", "status/config", "status/flags", "status/runtimeinfo", "status/tsdb"})
    EXPECT_EQ(ask("GET", path, "").status, 200) << path;
}

Verdict slow_gpu() {
  Verdict verdict;
  verdict.id = "v1";
  verdict.job_id = "llama 3";
  verdict.state = VerdictState::kConfirmed;
  verdict.kind = VerdictKind::kSlow;
  verdict.since_unix_ns = 1'699'999'000'500'000'000;
  verdict.found_unix_ns = 1'699'999'900'000'000'000;
  verdict.lost_share = 0.125;
  verdict.sentence = "Rank 5 is late.";
  verdict.culprit.ranks = {5_rank};
  verdict.culprit.host = "node-1";
  verdict.culprit.layer = Layer::kGpu;
  verdict.culprit.cause = Cause::kSlowCompute;
  verdict.next = {{"Drain node-1.", ""}};
  return verdict;
}

TEST_F(PrometheusApi, ShowsOpenVerdictsAsAlerts) {
  diagnosis_.known = {slow_gpu()};
  host_ = "lockstep:7070";
  EXPECT_EQ(
      get("alerts"),
      R"({"status":"success","data":{"alerts":[{"labels":{"alertname":"LockstepStraggler","cause":"slow-compute","component":"host node-1","host":"node-1","job":"llama 3","layer":"gpu","severity":"warning"},"annotations":{"action":"Drain node-1.","evidence":"/api/verdicts/v1","link":"http://lockstep:7070/jobs/llama%203?rank=5","ranks":"5","runbook":"Open the link: it shows the rank, its host and what differs from its peers. Cordon the host if the cause is its hardware.","runbook_url":"http://lockstep:7070/docs/runbooks/slow-compute","summary":"Rank 5 is late."},"state":"firing","activeAt":"2023-11-14T21:56:40.500Z","value":"0e+00"}]}})");
  Verdict hang = slow_gpu();
  hang.id = "v2";
  hang.kind = VerdictKind::kHang;
  hang.state = VerdictState::kSuspected;
  hang.culprit.layer = Layer::kUnknown;
  Verdict over = slow_gpu();
  over.id = "v3";
  over.state = VerdictState::kCleared;
  diagnosis_.known = {hang, over};
  const std::string alerts = get("alerts");
  EXPECT_NE(alerts.find(R"("alertname":"LockstepHang")"), std::string::npos) << alerts;
  EXPECT_NE(alerts.find(R"("state":"pending")"), std::string::npos) << alerts;
  EXPECT_NE(alerts.find(R"("severity":"critical")"), std::string::npos) << alerts;
  EXPECT_EQ(alerts.find("v3"), std::string::npos) << "it is over";
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_F(PrometheusApi, HasARuleForEachBuiltInAlertWithItsAlerts) {
  diagnosis_.known = {slow_gpu()};
  const std::string all = get("rules", "type=alert");
  EXPECT_EQ(count_of(all, R"("type":"alerting")"), 14u);
  EXPECT_EQ(count_of(all, R"("state":"inactive")"), 13u);
  EXPECT_EQ(count_of(all, R"("name":"lockstep","file":"lockstep")"), 1u);
  const std::string gpu = get("rules", "rule_name[]=LockstepStraggler&rule_name[]=LockstepHang");
  EXPECT_NE(gpu.find(R"({"state":"firing","name":"LockstepStraggler",)"), std::string::npos) << gpu;
  EXPECT_NE(gpu.find(R"("alerts":[{"labels":{"alertname":"LockstepStraggler")"), std::string::npos) << gpu;
  EXPECT_NE(gpu.find(R"({"state":"inactive","name":"LockstepHang",)"), std::string::npos) << gpu;
  EXPECT_EQ(count_of(gpu, R"("type":"alerting")"), 2u);
}

TEST_F(PrometheusApi, NarrowsRulesAsItIsAsked) {
  diagnosis_.known = {slow_gpu()};
  const auto rules = [&](const std::string& form) { return count_of(get("rules", form), R"("type":"alerting")"); };
  EXPECT_EQ(rules("rule_group[]=lockstep&file[]=lockstep"), 14u);
  EXPECT_EQ(rules("rule_group[]=other"), 0u);
  EXPECT_EQ(rules("file[]=other.yml"), 0u);
  EXPECT_EQ(rules("match[]=%7Bseverity%3D~%22info%7Cnone%22%7D"), 2u);
  EXPECT_EQ(rules("match[]=%7Bseverity%3D%22info%22%7D&match[]=%7Bseverity%3D%22none%22%7D"), 2u);
  EXPECT_EQ(rules("match[]=%7Bteam%3D%22a%22%7D"), 0u);
  const std::string bare = get("rules", "exclude_alerts=true&rule_name[]=LockstepStraggler");
  EXPECT_NE(bare.find(R"("alerts":null)"), std::string::npos) << bare;
  for (const char* wrong : {"type=every", "exclude_alerts=maybe", "match[]=%7B", "match[]=%7Ba%3D~%22(%22%7D"})
    EXPECT_EQ(ask("GET", "rules", wrong).status, 400) << wrong;
}

TEST_F(PrometheusApi, ListsTargetsAsTheirLastScrapeWent) {
  ScrapeTarget target;
  target.job = "node";
  target.address = "a:9100";
  target.scheme = "http";
  target.path = "/metrics";
  target.discovered = {{"__address__", "a:9100"}, {"job", "node"}};
  target.labels = {{"job", "node"}, {"instance", "a:9100"}};
  target.interval_ns = 15'000'000'000;
  target.timeout_ns = 10'000'000'000;
  target.at_unix_ns = 1'699'999'990'250'000'000;
  target.took_ns = 5'000'000;
  targets_ = {target, target, target};
  targets_[1].error = "answered 500";
  targets_[2].job = "other";
  targets_[2].at_unix_ns = 0;
  const std::string node = get("targets", "state=active&scrapePool=node");
  EXPECT_NE(
      node.find(
          R"({"discoveredLabels":{"__address__":"a:9100","job":"node"},"labels":{"job":"node","instance":"a:9100"},"scrapePool":"node","scrapeUrl":"http://a:9100/metrics","globalUrl":"http://a:9100/metrics","lastError":"","lastScrape":"2023-11-14T22:13:10.250Z","lastScrapeDuration":0.005,"health":"up","scrapeInterval":"15s","scrapeTimeout":"10s"})"),
      std::string::npos)
      << node;
  EXPECT_NE(node.find(R"("lastError":"answered 500")"), std::string::npos);
  EXPECT_EQ(count_of(node, R"("health":"down")"), 1u);
  EXPECT_EQ(count_of(node, "scrapePool\":"), 2u);
  EXPECT_EQ(count_of(get("targets"), R"("health":"unknown")"), 1u);
  EXPECT_EQ(count_of(get("targets", "state=dropped"), "scrapePool"), 0u);
  targets_.push_back({});
  targets_.back().job = "other";
  targets_.back().is_dropped = true;
  targets_.back().discovered = {{"__address__", "b:9100"}};
  EXPECT_EQ(
      get("targets", "state=dropped"),
      R"({"status":"success","data":{"activeTargets":[],"droppedTargets":[{"discoveredLabels":{"__address__":"b:9100"},"scrapePool":"other"}],"droppedTargetCounts":{"node":0,"other":1}}})");
  EXPECT_EQ(count_of(get("targets", "state=active"), "b:9100"), 0u);
  EXPECT_EQ(get("scrape_pools"), R"({"status":"success","data":{"scrapePools":["node","other"]}})");
}

TEST_F(PrometheusApi, FormatsAndParsesQueries) {
  EXPECT_EQ(post("format_query", "query=sum(foo)by(a)"), R"j({"status":"success","data":"sum by (a) (foo)"})j");
  EXPECT_EQ(
      get("parse_query", "query=foo%2B1"),
      R"({"status":"success","data":{"type":"binaryExpr","op":"+","lhs":{"type":"vectorSelector","name":"foo","offset":0,"offsetExpr":null,"timestamp":null,"startOrEnd":null,"matchers":[{"name":"__name__","value":"foo","type":"="}],"anchored":false,"smoothed":false},"rhs":{"type":"numberLiteral","val":"1"},"matching":null,"bool":false}})");
}

TEST_F(PrometheusApi, RefusesMistakesWithTypeAndStatus) {
  const auto refused = [&](const std::string& path, const std::string& form, int status, const std::string& type) {
    const HttpResponse response = ask("POST", path, form);
    EXPECT_EQ(response.status, status) << form;
    EXPECT_NE(response.body.find("\"errorType\":\"" + type + "\""), std::string::npos) << response.body;
    EXPECT_EQ(response.body.find('\n'), std::string::npos);
  };
  refused("query", "query=sum(", 400, "bad_data");
  refused("query", "query=1&time=soon", 400, "bad_data");
  refused("query", "query=1&timeout=x", 400, "bad_data");
  refused("query", "query=%zz", 400, "bad_data");
  refused("query_range", "query=1&start=0&end=1000000&step=1", 400, "bad_data");
  refused("query_range", "query=1&start=10&end=0&step=1", 400, "bad_data");
  refused("query_range", "query=1&start=0&end=10&step=0", 400, "bad_data");
  refused("query", "query=node_cpu_seconds_total*on()node_cpu_seconds_total&time=1700000000", 422, "execution");
  refused("query", "query=node_cpu_seconds_total&timeout=0", 503, "timeout");
  EXPECT_NE(post("query", "query=node_cpu_seconds_total&timeout=0").find("allow more by timeout= (at most 2m)"),
            std::string::npos);
  refused("series", "", 400, "bad_data");
  EXPECT_EQ(ask("GET", "nowhere", "").status, 404);
}

TEST_F(PrometheusApi, TellsWhatWasOdd) {
  EXPECT_NE(get("query", "query=rate(native[5m])&time=1700000000").find("success"), std::string::npos);
  EXPECT_NE(post("query", "query=quantile(2,node_cpu_seconds_total)&time=1700000000")
                .find(R"("warnings":["PromQL warning: quantile value)"),
            std::string::npos);
  EXPECT_NE(post("query", "query=vector(1)&stats=all&time=1").find("totalQueryableSamples"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
