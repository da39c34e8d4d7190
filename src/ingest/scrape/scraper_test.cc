#include "ingest/scrape/scraper.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/process.h"
#include "base/text.h"
#include "ingest/counters_table.h"
#include "ingest/testing/recording_metric_writer.h"
#include "model/series_labels.h"
#include "net/http_server.h"
#include "net/listen_address.h"
#include "store/metric_reader.h"
#include "testing/eventually.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using testing::eventually;

TEST(ScrapeConfig, ReadsWhatPrometheusWouldCallTheSame) {
  Result<ScrapeConfig> config = parse_scrape_config(R"(
global: {scrape_interval: 30s, scrape_timeout: 5s}
scrape_configs:
- job_name: node
  static_configs:
  - targets: ["127.0.0.1:9100", "[::1]:9100"]
    labels: {cluster: a}
  scrape_interval: 500ms
  honor_labels: true
  body_size_limit: 2MiB
- job_name: found
  metrics_path: /own
  file_sd_configs: [{files: ["/etc/targets/*.json"], refresh_interval: 1m}]
  http_sd_configs: [{url: "http://127.0.0.1:1/list"}]
)");
  ASSERT_TRUE(config.ok()) << config.error();
  ASSERT_EQ(config->jobs.size(), 2u);
  EXPECT_EQ(config->jobs[0].interval_ns, 500'000'000);
  EXPECT_EQ(config->jobs[0].timeout_ns, 500'000'000);  // never longer than the interval
  EXPECT_EQ(config->jobs[0].groups[0].targets[1], "[::1]:9100");
  EXPECT_EQ(config->jobs[0].body_bytes_max, 2u << 20);
  EXPECT_EQ(config->jobs[1].interval_ns, 30'000'000'000);
  EXPECT_EQ(config->jobs[1].timeout_ns, 5'000'000'000);
  EXPECT_EQ(config->jobs[1].discoveries[0].files[0], "/etc/targets/*.json");
  EXPECT_EQ(config->jobs[1].discoveries[1].url, "http://127.0.0.1:1/list");
}

TEST(ScrapeConfig, TwoTenantsMayHaveAJobOfTheSameName) {
  const Result<ScrapeConfig> config = parse_scrape_config(R"(
scrape_configs:
- {job_name: node, static_configs: [{targets: ["a:1"]}]}
- {job_name: node, tenant: acme, static_configs: [{targets: ["b:1"]}]}
- {job_name: more, tenant: default, static_configs: [{targets: ["c:1"]}]}
)");
  ASSERT_TRUE(config.ok()) << config.error();
  EXPECT_EQ(config->of_tenant("").jobs.size(), 2u);
  ASSERT_EQ(config->of_tenant("acme").jobs.size(), 1u);
  EXPECT_EQ(config->of_tenant("acme").jobs[0].groups[0].targets[0], "b:1");
  EXPECT_TRUE(config->of_tenant("other").jobs.empty());
}

TEST(ScrapeConfig, NamesTheLineThatIsWrong) {
  const std::pair<const char*, const char*> kCases[] = {
      {"scrape_configs:\n- job_name: a\n  kubernetes_sd_configs: []\n",
       "line 3: \"kubernetes_sd_configs\" is not known"},
      {"scrape_configs:\n- job_name: a\n  relabel_configs:\n  - {action: kep}\n", "line 4: there is no action \"kep\""},
      {"scrape_configs:\n- job_name: a\n  relabel_configs:\n  - {regex: \"(\", target_label: b}\n", "line 4: regex: "},
      {"scrape_configs:\n- job_name: a\n  relabel_configs:\n  - {regex: b}\n",
       "line 4: this action needs a target_label"},
      {"scrape_configs:\n- job_name: a\n  metric_relabel_configs:\n  - {action: hashmod, target_label: b}\n",
       "line 4: hashmod needs a modulus"},
      {"scrape_configs:\n- job_name: a\n  metric_relabel_configs:\n  - {action: labeldrop, source_labels: [a]}\n",
       "line 4: labeldrop and labelkeep take no source_labels"},
      {"scrape_configs:\n- job_name: a\n  basic_auth: {password: x}\n", "line 3: basic_auth needs a username"},
      {"scrape_configs:\n- job_name: a\n  authorization: {type: basic, credentials: x}\n", "there is basic_auth"},
      {"scrape_configs:\n- job_name: a\n  authorization: {credentials: x, credentials_file: /x}\n", "not both"},
      {"scrape_configs:\n- job_name: a\n  bearer_token: x\n  basic_auth: {username: b}\n", "only one of them"},
      {"scrape_configs:\n- job_name: a\n  tls_config: {cert_file: /x}\n", "cert_file and key_file go together"},
      {"scrape_configs:\n- job_name: a\n  tls_config: {ca_file: x}\n", "ca_file must be an absolute path"},
      {"scrape_configs:\n- job_nam: a\n",
       "line 2: \"job_nam\" is not known in a scrape config; did you mean job_name?"},
      {"scrape_configs:\n- job_name: a\n", "line 2: job \"a\" has no targets"},
      {"scrape_configs:\n- job_name: a\n  static_configs: [{targets: [\"host\"]}]\n", "line 3: \"host\" is no target"},
      {"scrape_configs:\n- job_name: a\n  scrape_interval: 5\n", "line 3: scrape_interval must be a time"},
      {"scrape_configs:\n- job_name: a\n  scrape_interval: 1s\n  scrape_timeout: 2s\n"
       "  static_configs: [{targets: [\"a:1\"]}]\n",
       "the timeout is longer than the interval"},
      {"scrape_configs:\n- job_name: a\n  tenant: A/b\n", "line 3: tenant must be a tenant's name"},
      {"scrape_configs:\n- {job_name: a, static_configs: [{targets: [\"a:1\"]}]}\n"
       "- {job_name: a, tenant: default, static_configs: [{targets: [\"a:1\"]}]}\n",
       "line 3: job \"a\" is given twice"},
      {"scrape_configs: {", "not YAML"},
      {"x: 1\n", "line 1: \"x\" is not known in the file"},
  };
  for (const auto& [yaml, why] : kCases) {
    Result<ScrapeConfig> config = parse_scrape_config(yaml);
    ASSERT_FALSE(config.ok()) << yaml;
    EXPECT_NE(config.error().find(why), std::string::npos) << config.error();
  }
}

// One job with a target, and these lines.
Result<ScrapeConfig> job_with(const std::string& lines) {
  return parse_scrape_config("scrape_configs:\n- job_name: a\n  static_configs: [{targets: [\"a:1\"]}]\n" + lines);
}

TEST(ScrapeConfig, TakesSizesUpToAGibibyteInEveryUnit) {
  const std::pair<const char*, uint64_t> kSizes[] = {
      {"1", 1},           {"1B", 1},         {"3KB", 3u << 10},  {"3KiB", 3u << 10},    {"5MB", 5u << 20},
      {"5MiB", 5u << 20}, {"1GB", 1u << 30}, {"1GiB", 1u << 30}, {"1024MiB", 1u << 30}, {"1048576KB", 1u << 30},
      {"0", 0},           {"0MB", 0},        {"2GiB", 0},        {"1025MB", 0},         {"1073741825", 0},
      {"5TB", 0},         {"MiB", 0},        {"-1", 0},          {"1.5MB", 0},          {"5mb", 0}};
  for (const auto& [text, bytes] : kSizes) {
    Result<ScrapeConfig> config = job_with(format("  body_size_limit: %s\n", text));
    ASSERT_EQ(config.ok(), bytes > 0) << text;
    if (bytes > 0) {
      EXPECT_EQ(config->jobs[0].body_bytes_max, bytes) << text;
    } else {
      EXPECT_NE(config.error().find("line 4: body_size_limit must be a size up to 1GiB"), std::string::npos);
    }
  }
}

TEST(ScrapeConfig, TakesTimesFromATenthOfASecondToADay) {
  EXPECT_EQ(scrape_time_ns("100ms"), 100'000'000);
  EXPECT_EQ(scrape_time_ns("99ms"), std::nullopt);
  EXPECT_EQ(scrape_time_ns("24h"), 24 * 3'600'000'000'000);
  EXPECT_EQ(scrape_time_ns("86400001ms"), std::nullopt);
  EXPECT_EQ(scrape_time_ns("1m30s"), 90'000'000'000);
  EXPECT_EQ(scrape_time_ns("soon"), std::nullopt);
}

TEST(ScrapeConfig, KnowsAnAddressAndAPathWhenItSeesOne) {
  for (const char* good : {"host", "host:1", "host:65535", "[::1]", "[::1]:9100", "10.0.0.1:80"})
    EXPECT_TRUE(is_target_address(good)) << good;
  for (const char* bad : {"", "host:0", "host:65536", "host:x", "host:", ":80", "a/b", "a b:1", "a?b", "a#b", "u@h:1"})
    EXPECT_FALSE(is_target_address(bad)) << bad;
  EXPECT_TRUE(is_target_address(std::string(300, 'a')));
  EXPECT_FALSE(is_target_address(std::string(301, 'a')));
  for (const char* good : {"/", "/metrics", "/a?b=c"}) EXPECT_TRUE(is_metrics_path(good)) << good;
  for (const char* bad : {"", "metrics", "/a b", "/a\n"}) EXPECT_FALSE(is_metrics_path(bad)) << bad;
}

TEST(ScrapeConfig, ReadsEveryOptionOfAJob) {
  Result<ScrapeConfig> plain = job_with("");
  ASSERT_TRUE(plain.ok()) << plain.error();
  EXPECT_TRUE(plain->jobs[0].access.type.empty());
  EXPECT_TRUE(plain->jobs[0].access.tls.verify);
  EXPECT_TRUE(plain->jobs[0].honor_timestamps);
  EXPECT_FALSE(plain->jobs[0].honor_labels);
  Result<ScrapeConfig> config = job_with(
      "  scheme: https\n  metrics_path: /own\n  honor_timestamps: false\n  sample_limit: 7\n"
      "  params: {module: [a, b], target: [c]}\n"
      "  tls_config: {ca_file: /ca, cert_file: /cert, key_file: /key, server_name: name, insecure_skip_verify: true}\n"
      "  basic_auth: {username: me, password_file: /secret}\n"
      "  relabel_configs: [{source_labels: [x, y], separator: \"-\", regex: \"(a)\", target_label: z, replacement: "
      "\"$1b\"}]\n"
      "  metric_relabel_configs: [{action: hashmod, source_labels: [x], modulus: 8, target_label: z}, {action: "
      "drop}]\n");
  ASSERT_TRUE(config.ok()) << config.error();
  const ScrapeJob& job = config->jobs[0];
  EXPECT_EQ(job.scheme, "https");
  EXPECT_EQ(job.path, "/own");
  EXPECT_FALSE(job.honor_timestamps);
  EXPECT_EQ(job.samples_max, 7u);
  ASSERT_EQ(job.params.size(), 2u);
  EXPECT_EQ(job.params[0].second, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(job.access.type, "Basic");
  EXPECT_EQ(job.access.username, "me");
  EXPECT_EQ(job.access.secret_file, "/secret");
  EXPECT_TRUE(job.access.secret.empty());
  EXPECT_EQ(job.access.tls.ca_file, "/ca");
  EXPECT_EQ(job.access.tls.certificate_file, "/cert");
  EXPECT_EQ(job.access.tls.key_file, "/key");
  EXPECT_EQ(job.access.tls.server_name, "name");
  EXPECT_FALSE(job.access.tls.verify);
  ASSERT_EQ(job.relabel.size(), 1u);
  EXPECT_EQ(job.relabel[0].source_labels, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(job.relabel[0].separator, "-");
  EXPECT_EQ(job.relabel[0].target_label, "z");
  EXPECT_EQ(job.relabel[0].replacement, "$1b");
  ASSERT_EQ(job.metric_relabel.size(), 2u);
  EXPECT_EQ(job.metric_relabel[0].action, RelabelAction::kHashMod);
  EXPECT_EQ(job.metric_relabel[0].modulus, 8u);
  EXPECT_EQ(job.metric_relabel[1].action, RelabelAction::kDrop);
  EXPECT_NE(job.how, plain->jobs[0].how);
  EXPECT_EQ(job_with("  sample_limit: 0\n")->jobs[0].samples_max, 1'000'000u) << "as if not given";
  EXPECT_EQ(job_with("  bearer_token: x\n")->jobs[0].access.secret, "x");
  EXPECT_EQ(job_with("  bearer_token_file: /x\n")->jobs[0].access.secret_file, "/x");
  EXPECT_EQ(job_with("  authorization: {type: Token, credentials: x}\n")->jobs[0].access.type, "Token");
  EXPECT_EQ(job_with("  authorization: {credentials_file: /x}\n")->jobs[0].access.secret_file, "/x");
  EXPECT_EQ(job_with("  scrape_interval: 5s\n  scrape_timeout: 5s\n")->jobs[0].timeout_ns, 5'000'000'000);
}

TEST(ScrapeConfig, RefusesWhatWouldOtherwiseBeGuessed) {
  const std::pair<const char*, const char*> kCases[] = {
      {"  honor_labels: yes\n", "line 4: honor_labels must be true or false"},
      {"  honor_labels: true\n  honor_labels: true\n", "line 5: \"honor_labels\" is given twice"},
      {"  params: 5\n", "line 4: params must be a mapping"},
      {"  params: {a: b}\n", "line 4: values of a parameter must be a list"},
      {"  scheme: ftp\n", "line 4: scheme must be http or https"},
      {"  metrics_path: own\n", "line 4: metrics_path must begin with /"},
      {"  metrics_path: [a]\n", "line 4: metrics_path must be one text"},
      {"  sample_limit: many\n", "line 4: sample_limit must be a whole number"},
      {"  scrape_timeout: 16s\n", "the timeout is longer than the interval"},
      {"  basic_auth: {username: a, username_file: /a}\n", "line 4: basic_auth needs a username or a username_file"},
      {"  basic_auth: {username: a, password: b, password_file: /c}\n",
       "line 4: password_file: give the secret or its file"},
      {"  authorization: {type: Token}\n", "line 4: authorization needs credentials"},
      {"  tls_config: {key_file: /x}\n", "line 4: cert_file and key_file go together"},
      {"  file_sd_configs: [{refresh_interval: 1m}]\n", "line 4: file_sd_configs needs files"},
      {"  http_sd_configs: [{refresh_interval: 1m}]\n", "line 4: http_sd_configs needs a url"},
      {"  file_sd_configs: [{files: [\"/a*/b\"]}]\n", "line 4: only the last part of a path may have *"},
      {"  relabel_configs: [{action: keepequal, target_label: a, regex: b}]\n",
       "keepequal and dropequal take no regex"},
      {"  relabel_configs: [{action: dropequal, target_label: a, separator: b}]\n",
       "keepequal and dropequal take no separator"},
      {"  relabel_configs: [{action: labelkeep, regex: a, replacement: b}]\n", "labelkeep take no replacement"},
      {"  relabel_configs: [{action: lowercase}]\n", "line 4: this action needs a target_label"},
      {"  relabel_configs: [{action: hashmod, target_label: a, modulus: 0}]\n",
       "modulus must be a whole number above 0"},
      {"- job_name: a\n  static_configs: [{targets: [\"b:1\"]}]\n", "line 4: job \"a\" is given twice"},
      {"- static_configs: [{targets: [\"b:1\"]}]\n", "line 4: a scrape config needs a job_name"},
  };
  for (const auto& [lines, why] : kCases) {
    Result<ScrapeConfig> config = job_with(lines);
    ASSERT_FALSE(config.ok()) << lines;
    EXPECT_NE(config.error().find(why), std::string::npos) << config.error();
  }
  auto rules = [](size_t count) {
    std::string lines = "  relabel_configs:\n";
    for (size_t i = 0; i < count; ++i) lines += "  - {action: drop, regex: a}\n";
    return lines;
  };
  size_t most = 1;
  while (most < 10'000 && job_with(rules(most * 2)).ok()) most *= 2;
  EXPECT_LT(most, 10'000u) << "there is a limit";
}

TEST(ScrapeConfig, ATargetIsAnAddressWithAPortUnlessRulesMakeItOne) {
  for (const char* good : {"[{targets: [\"a:1\", \"[::1]:2\"]}]", "[{targets: []}]", "[]"})
    EXPECT_TRUE(parse_target_groups(good, false).ok()) << good;
  for (const char* bad : {"[{targets: [\"a\"]}]", "[{targets: [\"[::1]\"]}]", "[{targets: [\"\"]}]",
                          "[{targets: [\"a:1/x\"]}]", "[{targets: [\"a:1\"], labels: {__name__: x}}]"})
    EXPECT_FALSE(parse_target_groups(bad, false).ok()) << bad;
  EXPECT_TRUE(parse_target_groups("[{targets: [\"a\", \"a:1/x\"]}]", true).ok());
  EXPECT_FALSE(parse_target_groups("[{targets: [\"\"]}]", true).ok());
}

TEST(ScrapeConfig, TheHeaderSaysWhoWeAre) {
  ScrapeAccess access;
  HttpRequest request;
  ASSERT_TRUE(access.authorize(request).ok());
  EXPECT_TRUE(request.headers.empty());
  access.type = "Token";
  access.secret = "x";
  ASSERT_TRUE(access.authorize(request).ok());
  EXPECT_EQ(request.headers.back().second, "Token x");
  access.type = "Basic";
  access.username = "me";
  ASSERT_TRUE(access.authorize(request).ok());
  EXPECT_EQ(request.headers.back().second, "Basic bWU6eA==");
  access.secret_file = "/none/such";
  EXPECT_FALSE(access.authorize(request).ok());
}

class ScraperTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<HttpServer>> started = HttpServer::start(
        {.address = {"127.0.0.1", 0}, .name = "http"},
        [this](const ServerRequest& request) {
          MutexLock lock(mutex_);
          ++asked_;
          const std::string authorization(request.header("authorization"));
          if (request.path != "/list" && !wanted_.empty() && authorization != wanted_) return HttpResponse{401, {}, ""};
          if (request.path == "/list") list_asked_ = request.query + " " + authorization;
          if (request.path == "/list") return HttpResponse{200, {}, list_};
          return HttpResponse{status_, {{"content-type", "text/plain; version=0.0.4"}}, page_};
        },
        counters);
    ASSERT_TRUE(started.ok()) << started.error();
    server = std::move(*started);
    instance = server->address();
  }
  void TearDown() override { server->stop(); }

  void show(std::string page, int status = 200) {
    MutexLock lock(mutex_);
    page_ = std::move(page);
    status_ = status;
  }
  void list(std::string text) {
    MutexLock lock(mutex_);
    list_ = std::move(text);
  }
  void want(std::string authorization) {
    MutexLock lock(mutex_);
    wanted_ = std::move(authorization);
  }
  std::string list_asked() {  // its query and authorization
    MutexLock lock(mutex_);
    return list_asked_;
  }
  ScrapeConfig config(const std::string& rest, const std::string& interval = "100ms") {
    Result<ScrapeConfig> read =
        parse_scrape_config("scrape_configs:\n- job_name: test\n  scrape_interval: " + interval + "\n" + rest);
    EXPECT_TRUE(read.ok()) << read.error();
    if (!read.ok()) return {};
    // What is asked for often may take longer, on a busy machine; a file may not say so.
    for (ScrapeJob& job : read->jobs) job.timeout_ns = 60'000'000'000;
    return *std::move(read);
  }
  ScrapeConfig one_target(const std::string& interval = "100ms") {
    return config("  static_configs: [{targets: [\"" + instance + "\"]}]\n", interval);
  }
  // The pages it takes until `done` holds; the scraper is stopped, so that what was written can be looked at.
  template <typename Done>
  void scrape_until(ScrapeConfig what, Done&& done) {
    std::unique_ptr<Scraper> scraper = Scraper::start(std::move(what), intake, clock, counters, 2);
    EXPECT_TRUE(eventually(done));
    scraper->stop();
  }
  int asked() {
    MutexLock lock(mutex_);
    return asked_;
  }
  int64_t count(const char* result) {
    return counters.value("lockstep_scrapes_total", std::string("result=\"") + result + "\"");
  }
  std::string named(const std::string& name) { return name + "{instance=\"" + instance + "\",job=\"test\"}"; }

  SystemClock clock;
  Counters counters{kServerCounters};
  testing::RecordingMetricWriter writer;
  MetricIntake intake{writer, clock, counters};
  std::unique_ptr<HttpServer> server;
  std::string instance;

 private:
  Mutex mutex_;
  std::string page_ LOCKSTEP_GUARDED_BY(mutex_), list_ LOCKSTEP_GUARDED_BY(mutex_), wanted_ LOCKSTEP_GUARDED_BY(mutex_),
      list_asked_ LOCKSTEP_GUARDED_BY(mutex_);
  int status_ LOCKSTEP_GUARDED_BY(mutex_) = 200;
  int asked_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

TEST_F(ScraperTest, StoresThePageAndWhatTheScrapeWasLike) {
  show("a 1\nb{x=\"y\"} 2\n");
  scrape_until(one_target(), [&] { return count("read") >= 2; });
  EXPECT_GE(writer.samples[named("a")].size(), 2u);
  EXPECT_EQ(writer.samples["b{instance=\"" + instance + "\",job=\"test\",x=\"y\"}"][0].value, 2);
  EXPECT_EQ(writer.samples[named("up")][0].value, 1);
  EXPECT_EQ(writer.samples[named("scrape_samples_scraped")][0].value, 2);
  EXPECT_GT(writer.samples[named("scrape_duration_seconds")][0].value, 0);
  EXPECT_EQ(writer.samples[named("scrape_samples_post_metric_relabeling")][0].value, 2);
  EXPECT_EQ(writer.samples[named("scrape_series_added")][0].value, 2);
  EXPECT_EQ(writer.samples[named("scrape_series_added")][1].value, 0);
  EXPECT_EQ(writer.asked, 7u);  // every series once, however often it is scraped
}

TEST_F(ScraperTest, WhatAnAgentSendsByItselfIsNotStoredASecondTimeFromItsPage) {
  show(
      "# TYPE lockstep_agent_records_total counter\nlockstep_agent_records_total 5\n"
      "lockstep_gpu_up{host=\"node-1\",gpu_uuid=\"G\"} 1\nhw_power_watts{gpu_uuid=\"G\",host=\"node-1\"} 300\n"
      "other{xhost=\"node-1\"} 1\n");
  bool is_pushed = true;
  const auto scrape = [&](const char* what) {
    std::unique_ptr<Scraper> scraper =
        Scraper::start(one_target(), intake, clock, counters, 2,
                       [&](const std::string& host) { return is_pushed && host == "node-1"; });
    EXPECT_TRUE(eventually([&] { return count("read") >= 2; })) << what;
    scraper->stop();
  };
  const auto stored = [&](const std::string& name) {
    return std::count_if(writer.samples.begin(), writer.samples.end(),
                         [&](const auto& one) { return one.first.starts_with(name); });
  };
  scrape("pushed");
  EXPECT_EQ(stored("lockstep_agent_records_total"), 1) << "it sends no counters of its own";
  EXPECT_EQ(stored("other"), 1);
  EXPECT_EQ(stored("lockstep_gpu_up") + stored("hw_power_watts"), 0);
  is_pushed = false;  // nobody hears it any more: the page is all there is
  counters.set("lockstep_scrapes_total", "result=\"read\"", 0);
  scrape("not pushed");
  EXPECT_EQ(stored("lockstep_gpu_up") + stored("hw_power_watts"), 2);
}

TEST_F(ScraperTest, WhatIsNotOnThePageAnyMoreIsStale) {
  show("a 1\nb 2\n");
  std::atomic<bool> changed{false};
  scrape_until(one_target(), [&] {
    if (count("read") >= 1 && !changed.exchange(true)) show("a 1\n");
    return count("read") >= 5;
  });
  const auto& gone = writer.samples[named("b")];
  ASSERT_GE(gone.size(), 2u);
  EXPECT_TRUE(is_stale(gone.back().value));
  EXPECT_FALSE(is_stale(gone[gone.size() - 2].value));  // said once
  EXPECT_FALSE(is_stale(writer.samples[named("a")].back().value));
}

TEST_F(ScraperTest, ATargetThatDoesNotAnswerIsDownAndItsSeriesAreStale) {
  show("a 1\n");
  std::atomic<bool> changed{false};
  scrape_until(one_target(), [&] {
    if (count("read") >= 1 && !changed.exchange(true)) show("a 1\n", 500);
    return count("failed") >= 2;
  });
  EXPECT_TRUE(is_stale(writer.samples[named("a")].back().value));
  EXPECT_EQ(writer.samples[named("up")].back().value, 0);
  EXPECT_EQ(writer.samples[named("scrape_samples_scraped")].back().value, 0);
}

TEST_F(ScraperTest, APageThatCannotBeReadIsNotStoredInPart) {
  show("a 1\nb x\n");
  scrape_until(one_target(), [&] { return count("failed") >= 1; });
  EXPECT_FALSE(writer.samples.contains(named("a")));
  EXPECT_EQ(writer.samples[named("up")][0].value, 0);
}

TEST_F(ScraperTest, FollowsAFileOfTargetsAndSaysWhenOneIsGone) {
  const testing::TemporaryFolder folder;
  const std::string file = folder.path() + "/one.json";
  auto write = [&](const std::string& text) { std::ofstream(file) << text; };
  show("a 1\n");
  write("[{\"targets\": [\"" + instance + "\"], \"labels\": {\"rack\": \"r1\"}}]");
  std::atomic<bool> changed{false};
  scrape_until(config("  file_sd_configs: [{files: [\"" + folder.path() + "/*.json\"]}]\n"), [&] {
    if (count("read") >= 1 && !changed.exchange(true)) write("[]");
    return changed && counters.value("lockstep_scrape_targets") == 0;
  });
  const std::string series = "a{instance=\"" + instance + "\",job=\"test\",rack=\"r1\"}";
  ASSERT_TRUE(writer.samples.contains(series));
  EXPECT_TRUE(is_stale(writer.samples[series].back().value));
  EXPECT_TRUE(is_stale(writer.samples["up" + series.substr(1)].back().value));
}

TEST_F(ScraperTest, AsksForTargetsOverHttpAndKeepsThemWhenTheListIsBroken) {
  show("a 1\n");
  list("[{\"targets\": [\"" + instance + "\"]}]");
  std::atomic<bool> changed{false};
  scrape_until(config("  http_sd_configs: [{url: \"http://" + instance + "/list\", refresh_interval: 100ms}]\n"), [&] {
    if (count("read") >= 1 && !changed.exchange(true)) list("{nonsense");
    return counters.value("lockstep_scrape_lists_refused_total") >= 1 && count("read") >= 3;
  });
  EXPECT_FALSE(is_stale(writer.samples[named("a")].back().value));
}

// The real one, where it is installed.
TEST_F(ScraperTest, ReadsANodeExporterToTheLastSeries) {
  const std::string program = "/usr/bin/prometheus-node-exporter";
  if (!std::filesystem::exists(program)) GTEST_SKIP() << program << " is not installed";
  Result<ListenSocket> free = listen_on({"127.0.0.1", 0});
  ASSERT_TRUE(free.ok()) << free.error();
  instance = free->bound;
  free->fd.reset();
  Result<ChildProcess> exporter =
      ChildProcess::start({.arguments = {program, "--web.listen-address=" + instance, "--log.level=error"}});
  ASSERT_TRUE(exporter.ok()) << exporter.error();
  scrape_until(one_target("5s"), [&] { return count("read") >= 1; });
  HttpClient client(*parse_url("http://" + instance, 80));
  Result<HttpResponse> page = client.send({"GET", "/metrics", {}, ""});
  ASSERT_TRUE(page.ok()) << page.error();
  size_t lines = 0;
  for (std::string_view line : split(page->body, '\n')) lines += !line.empty() && !line.starts_with('#');
  const double scraped = writer.samples[named("scrape_samples_scraped")].back().value;
  EXPECT_GT(scraped, 100);
  EXPECT_NEAR(scraped, static_cast<double>(lines), 0.1 * static_cast<double>(lines));  // devices come and go
  EXPECT_EQ(writer.samples[named("up")].back().value, 1);
  EXPECT_TRUE(writer.samples.contains("node_cpu_seconds_total{cpu=\"0\",instance=\"" + instance +
                                      "\",job=\"test\",mode=\"idle\"}"));
  EXPECT_EQ(counters.sum("lockstep_ingest_refused_records_total"), 0);
  EXPECT_TRUE(writer.metadata["node_cpu_seconds_total"].starts_with("counter|"));
}

TEST_F(ScraperTest, StopsAtOnceEvenWhileATargetIsSilent) {
  const Result<ListenSocket> silent = listen_on({"127.0.0.1", 0});
  ASSERT_TRUE(silent.ok()) << silent.error();
  ScrapeConfig what = config("  static_configs: [{targets: [\"" + silent->bound + "\"]}]\n");
  what.jobs[0].timeout_ns = 3'600'000'000'000;  // longer than any test: only stop() can end this scrape
  std::unique_ptr<Scraper> scraper = Scraper::start(what, intake, clock, counters, 2);
  pollfd waiting{silent->fd.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&waiting, 1, 60'000), 1);
  const UniqueFd connection(::accept4(silent->fd.get(), nullptr, nullptr, SOCK_CLOEXEC));
  std::string request;
  char buffer[1024];
  while (request.find("\r\n\r\n") == std::string::npos) {
    const ssize_t got = ::recv(connection.get(), buffer, sizeof buffer, 0);
    ASSERT_GT(got, 0);
    request.append(buffer, static_cast<size_t>(got));
  }
  // Its request is here and nobody answers it, before stop(), while it runs, or after.
  scraper->stop();
  EXPECT_EQ(count("failed"), 0) << "to be stopped is not the target's fault";
  scraper.reset();
  EXPECT_EQ(::recv(connection.get(), buffer, sizeof buffer, 0), 0) << "hung up";
}

TEST_F(ScraperTest, RulesRenameAndDropSeriesAndTheirMarkersFollow) {
  show("a{x=\"1\"} 1\nb 2\ngo_c 3\n");
  std::atomic<bool> changed{false};
  scrape_until(config("  static_configs: [{targets: [\"" + instance + R"y("]}]
  metric_relabel_configs:
  - {source_labels: [__name__], regex: "go_.*", action: drop}
  - {source_labels: [__name__], regex: "(.*)", target_label: __name__, replacement: "own_$1"
}
  - {regex: x, action: labeldrop}
)y"),
               [&] {
                 if (count("read") >= 2 && !changed.exchange(true)) show("b 2\n");
                 return count("read") >= 5;
               });
  ASSERT_GE(writer.samples[named("own_b")].size(), 2u);
  EXPECT_FALSE(is_stale(writer.samples[named("own_b")].back().value));
  ASSERT_GE(writer.samples[named("own_a")].size(), 2u);
  EXPECT_EQ(writer.samples[named("own_a")][0].value, 1);
  EXPECT_TRUE(is_stale(writer.samples[named("own_a")].back().value));
  for (const char* none : {"a", "b", "go_c", "own_go_c", "own_up"}) EXPECT_FALSE(writer.samples.contains(named(none)));
  EXPECT_EQ(writer.samples[named("scrape_samples_scraped")][0].value, 3);
  EXPECT_EQ(writer.samples[named("scrape_samples_post_metric_relabeling")][0].value, 2);
}

TEST_F(ScraperTest, SaysWhoItIs) {
  show("a 1\n");
  want("Basic dXNlcjpwYXNz");  // user:pass
  const std::string target = "  static_configs: [{targets: [\"" + instance + "\"]}]\n";
  scrape_until(config(target + "  basic_auth: {username: user, password: pass}\n"), [&] { return count("read") >= 1; });
  EXPECT_EQ(count("failed"), 0);
  want("Bearer second");
  const testing::TemporaryFolder folder;
  const std::string file = folder.path() + "/token";
  std::ofstream(file) << "first\n";
  std::atomic<bool> changed{false};
  scrape_until(config(target + "  authorization: {credentials_file: " + file + "}\n"), [&] {
    // A token that is replaced is sent from the next scrape on.
    if (count("failed") >= 1 && !changed.exchange(true)) std::ofstream(file) << "second\n";
    return count("read") >= 2;
  });
  EXPECT_GE(count("failed"), 1);
  std::filesystem::remove(file);
  std::unique_ptr<Scraper> scraper = Scraper::start(
      config(target + "  authorization: {credentials_file: " + file + "}\n"), intake, clock, counters, 2);
  const auto error = [&] {
    const std::vector<ScrapeTarget> targets = scraper->targets();
    return targets.empty() ? std::string() : targets[0].error;
  };
  EXPECT_TRUE(eventually([&] { return !error().empty(); }));
  EXPECT_NE(error().find(file), std::string::npos) << error();
  scraper->stop();
}

TEST_F(ScraperTest, AListOverHttpIsAskedForWithItsQueryAndToken) {
  show("a 1\n");
  list("[{\"targets\": [\"" + instance + "\", \"other:1\"], \"labels\": {\"__meta_rack\": \"r1\"}}]");
  std::unique_ptr<Scraper> scraper = Scraper::start(config("  http_sd_configs: [{url: \"http://" + instance +
                                                               R"y(/list?zone=a", authorization: {credentials: s3cret}}]
  relabel_configs:
  - {action: labelmap, regex: "__meta_(rack)"
  }
  - {action: drop, source_labels: [__address__], regex: "other.*"}
)y",
                                                           "5s"),
                                                    intake, clock, counters, 2);
  EXPECT_TRUE(eventually([&] { return scraper->targets().size() >= 2; }));
  const std::vector<ScrapeTarget> targets = scraper->targets();
  scraper->stop();
  EXPECT_EQ(list_asked(), "zone=a Bearer s3cret");
  ASSERT_EQ(targets.size(), 2u);
  EXPECT_EQ(targets[0].labels, (Labels{{"instance", instance}, {"job", "test"}, {"rack", "r1"}}));
  EXPECT_EQ(label_value(targets[0].discovered, "__meta_url"), "http://" + instance + "/list?zone=a");
  EXPECT_TRUE(targets[1].is_dropped);
  EXPECT_EQ(label_value(targets[1].discovered, "__address__"), "other:1");
}

TEST_F(ScraperTest, AnotherConfigurationTakesOverWithoutAGap) {
  show("a 1\n");
  list("[{\"targets\": [\"" + instance + "\"], \"labels\": {\"by\": \"list\"}}]");
  const std::string both = "  http_sd_configs: [{url: \"http://" + instance + "/list\", refresh_interval: 1h}]\n" +
                           "  static_configs: [{targets: [\"" + instance + "\"]}";
  const std::string second = ", {targets: [\"" + instance + "\"], labels: {by: hand}}";
  std::unique_ptr<Scraper> scraper = Scraper::start(config(both + second + "]\n"), intake, clock, counters, 2);
  EXPECT_TRUE(eventually([&] { return count("read") >= 6 && scraper->targets().size() == 3; }));
  list("{nonsense");  // what the list said before holds
  scraper->reload(config(both + "]\n"));
  EXPECT_TRUE(eventually([&] { return scraper->targets().size() == 2; }));
  const int64_t before = count("read");
  EXPECT_TRUE(eventually([&] { return count("read") >= before + 6; }));
  scraper->reload(config(both + "]\n  honor_labels: true\n"));  // another way to read them all
  EXPECT_TRUE(eventually([&] { return count("read") >= before + 12; }));
  scraper->stop();
  EXPECT_FALSE(is_stale(writer.samples[named("a")].back().value));
  EXPECT_TRUE(is_stale(writer.samples["a{by=\"hand\",instance=\"" + instance + "\",job=\"test\"}"].back().value));
  EXPECT_FALSE(is_stale(writer.samples["a{by=\"list\",instance=\"" + instance + "\",job=\"test\"}"].back().value));
  EXPECT_EQ(count("failed"), 0);
}

TEST_F(ScraperTest, TellsOfEachTargetHowItsLastScrapeWent) {
  show("a 1\n");
  std::unique_ptr<Scraper> scraper = Scraper::start(
      config("  static_configs: [{targets: [\"" + instance + "\", \"127.0.0.1:1\"], labels: {rack: r1}}]\n"), intake,
      clock, counters, 2);
  const auto all_scraped = [&] {
    const std::vector<ScrapeTarget> targets = scraper->targets();
    return targets.size() == 2 && targets[0].at_unix_ns > 0 && targets[1].at_unix_ns > 0;
  };
  ASSERT_TRUE(eventually(all_scraped));
  for (const ScrapeTarget& target : scraper->targets()) {
    EXPECT_EQ(target.job, "test");
    EXPECT_EQ(target.labels, (Labels{{"instance", target.address}, {"job", "test"}, {"rack", "r1"}}));
    EXPECT_EQ(target.path, "/metrics");
    EXPECT_EQ(target.interval_ns, 100'000'000);
    if (target.address == instance) {
      EXPECT_EQ(target.error, "");
    } else {
      EXPECT_NE(target.error.find("refused"), std::string::npos) << target.error;
    }
  }
  scraper->stop();
}

}  // namespace
}  // namespace lockstep
