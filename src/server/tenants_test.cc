// Two tenants and more in one process: what one has, the other does not see, and what befalls one does not reach it.
#include "server/tenants.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <future>
#include <set>

#include "access/role.h"
#include "base/files.h"
#include "base/text.h"
#include "ingest/counters_table.h"
#include "ingest/otlp/otlp_handler.h"
#include "model/events.h"
#include "net/http_server.h"
#include "testing/eventually.h"
#include "testing/temporary_folder.h"
#include "wire/otlp.h"

namespace lockstep {
namespace {

using testing::eventually;

class Answered final : public HttpResponder {
 public:
  void answer(HttpResponse response) override { promise_.set_value(std::move(response)); }
  bool defer() override { return true; }
  bool gone() const override { return false; }
  HttpResponse wait() { return promise_.get_future().get(); }

 private:
  std::promise<HttpResponse> promise_;
};

// A server without its listeners.
class Process {
 public:
  explicit Process(const std::string& folder, TenantsOptions options = {}, const JobOwnership* jobs = nullptr)
      : tenants_(std::move(options), common_, counters_) {
    options_.data = folder;
    common_.jobs = jobs;
    EXPECT_TRUE(make_directories(folder).ok());
    Result<bool> started = tenants_.start_default({.folder = folder, .is_default = true}, [] { return false; });
    EXPECT_TRUE(started.ok()) << started.error();
    Result<void> opened = tenants_.open_others();
    EXPECT_TRUE(opened.ok()) << opened.error();
  }

  HttpResponse get(const std::string& tenant, const std::string& path, const std::string& query = "",
                   uint32_t roles = kAllRoles) {
    ServerRequest request;
    request.method = "GET";
    request.path = path;
    request.query = query;
    request.caller = {.tenant = tenant, .name = "a test", .owner = {}, .roles = roles};
    request.caller.tenants = {tenant.empty() ? "*" : tenant};  // whoever asks for none runs the server
    return serve(request);
  }
  // By a token for all tenants.
  HttpResponse get_as_any(const std::string& tenant, const std::string& path, uint32_t roles) {
    ServerRequest request;
    request.method = "GET";
    request.path = path;
    request.caller = {.tenant = tenant, .name = "a test", .owner = {}, .roles = roles, .tenants = {"*"}};
    return serve(request);
  }
  HttpResponse serve(const ServerRequest& request) {
    auto responder = std::make_shared<Answered>();
    tenants_.serve(request, responder);
    return responder->wait();
  }
  // 0: the tenant is not there yet.
  int send_once(const std::string& tenant, const std::string& job, StepNumber step) {
    StepSummary summary;
    summary.step = step;
    summary.start_unix_ns = clock_.unix_ns();
    summary.duration_ns = 100'000'000;
    const Identity identity{.job_id = job,
                            .attempt = 0,
                            .rank = 0_rank,
                            .world_size = 1,
                            .local_rank = 0,
                            .host = "host-of-" + job,
                            .gpu_uuid = ""};
    const Batch batch{.signal = Signal::kLogs,
                      .groups = {{.resource = to_resource(identity), .logs = {to_record(summary)}}}};
    ServerRequest request;
    request.method = "POST";
    request.path = "/v1/logs";
    request.headers = {{"content-type", "application/x-protobuf"}};
    request.body = otlp::encode(batch);
    const IngestTarget target = tenants_.find({.tenant = tenant, .name = {}, .owner = {}, .roles = kAllRoles});
    return target.handler == nullptr ? 0 : target.handler->handle_http(request).status;
  }
  int send(const std::string& tenant, const std::string& job, StepNumber step = 1_step) {
    int status = 0;
    EXPECT_TRUE(eventually([&] { return (status = send_once(tenant, job, step)) != 0; })) << tenant;
    return status;
  }

  // Twenty steps of a job of two ranks, of which one is killed; read from the bus, an hour later.
  void read_from_bus(const std::string& job, int32_t partition) {
    const int64_t began_ns = clock_.unix_ns() - 3'600'000'000'000;
    int64_t offset = 0;
    auto take = [&](Rank rank, LogRecord record, int64_t after_s) {
      const Identity identity{
          .job_id = job, .rank = rank, .world_size = 2, .local_rank = rank.value(), .host = "node-0"};
      const Batch batch{.signal = Signal::kLogs, .groups = {{.resource = to_resource(identity), .logs = {record}}}};
      const TakenRecord taken{.place = {partition, RecordKind::kOtlpLogs},
                              .offset = offset++,
                              .received_unix_ns = began_ns + after_s * 1'000'000'000,
                              .payload = otlp::encode(batch)};
      EXPECT_EQ(tenants_.find_for_bus("").taker->take({&taken, 1}, counters_, {}).done, 1u);
      tenants_.look_as_of(taken.received_unix_ns);
    };
    for (int64_t i = 0; i < 20; ++i) {
      for (const Rank rank : {0_rank, 1_rank}) {
        StepSummary summary;
        summary.step = StepNumber(i);
        summary.start_unix_ns = began_ns + i * 1'000'000'000;
        summary.duration_ns = 1'000'000'000;
        take(rank, to_record(summary), i + 1);
      }
    }
    const int64_t died_ns = began_ns + 21'000'000'000;
    take(1_rank, job_end_record({.time_unix_ns = died_ns, .exit = ExitStatus{.signal = 9}}), 22);
    take(0_rank, job_end_record({.time_unix_ns = died_ns + 1'000'000'000, .exit = ExitStatus{.code = 1}}), 23);
    tenants_.look_as_of(died_ns + 30'000'000'000);
  }
  std::string query(const std::string& text, int64_t ago_s) {
    return get("", "/prometheus/api/v1/query",
               format("query=%s&time=%lld", text.c_str(),
                      static_cast<long long>(clock_.unix_ns() / 1'000'000'000 - ago_s)))
        .body;
  }

  ServerOptions options_;
  SystemClock clock_;
  ClockWitness witness_{clock_};
  MemoryBudget memory_{1ull << 30, [] { return uint64_t{0}; }};
  QuerySlots queries_{4};
  TenantCommon common_{options_, clock_, witness_, memory_, queries_, ""};
  Counters counters_{kServerCounters};
  Tenants tenants_;
};

class TenantsTest : public ::testing::Test {
 protected:
  testing::TemporaryFolder folder_;
  const std::string data_ = folder_.path() + "/data";
};

TEST(TenantName, IsAFoldersNameThatNeedsNoQuoting) {
  for (const char* name : {"a", "0", "blue", "team-7_x"}) EXPECT_TRUE(is_tenant_name(name)) << name;
  for (const char* name : {"", "-a", "_a", "A", "a b", "..", ".", "a/b", "a\n", "ä"})
    EXPECT_FALSE(is_tenant_name(name)) << name;
  EXPECT_TRUE(is_tenant_name(std::string(63, 'a')));
  EXPECT_FALSE(is_tenant_name(std::string(64, 'a')));
}

TEST_F(TenantsTest, WhoOnlyLooksMakesNoTenantOfANameThatNobodySentFor) {
  Process process(data_);
  process.get("", "/api/jobs");
  EXPECT_EQ(process.get_as_any("blue", "/api/jobs", roles_of(Role::kRead)).status, 404);
  EXPECT_EQ(process.get_as_any("blue", "/api/jobs", roles_of(Role::kOperate)).status, 404);
  EXPECT_FALSE(std::filesystem::exists(data_ + "/tenants/blue"));
  ASSERT_EQ(process.send("blue", "blue-job"), 200);
  EXPECT_EQ(process.get_as_any("blue", "/api/jobs", roles_of(Role::kRead)).status, 200);
  // A token for it alone says that there shall be one.
  EXPECT_NE(process.get("green", "/api/jobs", "", roles_of(Role::kRead)).status, 404);
}

TEST_F(TenantsTest, WhatOneSendsTheOthersDoNotSee) {
  Process process(data_);
  ASSERT_EQ(process.send("blue", "blue-job"), 200);
  ASSERT_EQ(process.send("green", "green-job"), 200);
  ASSERT_EQ(process.send("", "default-job"), 200);
  ASSERT_EQ(process.send("default", "default-job", 2_step), 200);
  for (const char* path : {"/api/jobs", "/api/agents", "/api/logs", "/metrics"}) {
    for (const auto& [tenant, own, other] : {std::tuple("blue", "blue-job", "green"), {"green", "green-job", "blue"}}) {
      const HttpResponse answer = process.get(tenant, path);
      EXPECT_EQ(answer.status, 200) << path;
      EXPECT_EQ(answer.body.find(other), std::string::npos) << tenant << " " << path << "\n" << answer.body;
      EXPECT_EQ(answer.body.find("default-job"), std::string::npos) << tenant << " " << path;
    }
  }
  EXPECT_NE(process.get("blue", "/api/jobs").body.find("blue-job"), std::string::npos);
  EXPECT_EQ(process.get("blue", "/api/jobs/green-job").status, 404);
  EXPECT_EQ(process.get("", "/api/jobs").body.find("blue"), std::string::npos);
  EXPECT_NE(process.get("", "/api/jobs/default-job").body.find("\"last_step\":2"), std::string::npos);
  EXPECT_NE(process.get("green", "/metrics").body.find("lockstep_log_records_appended_total 1\n"), std::string::npos);
  EXPECT_TRUE(std::filesystem::is_directory(data_ + "/tenants/blue/log"));
}

TEST_F(TenantsTest, WithoutTenantsNothingIsMadeForThem) {
  Process process(data_);
  ASSERT_EQ(process.send("", "job"), 200);
  process.tenants_.tick();
  EXPECT_FALSE(std::filesystem::exists(data_ + "/tenants"));
  EXPECT_EQ(process.get("", "/readyz").body, "ok\n");
}

TEST_F(TenantsTest, AllComeBackAfterACrash) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Process process(data_);
    const bool sent = process.send("blue", "blue-job") == 200 && process.send("green", "green-job") == 200 &&
                      process.send("", "default-job") == 200;
    _exit(sent ? 0 : 1);  // as a crash would: nothing is closed
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  for (int start = 0; start < 2; ++start) {  // after the crash, and after an orderly end
    Process process(data_);
    for (const char* tenant : {"blue", "green"}) {
      ASSERT_TRUE(eventually([&] { return process.get(tenant, "/api/jobs").status == 200; })) << tenant;
      const std::string jobs = process.get(tenant, "/api/jobs").body;
      EXPECT_NE(jobs.find(std::string(tenant) + "-job"), std::string::npos) << jobs;
    }
    EXPECT_NE(process.get("", "/api/jobs").body.find("default-job"), std::string::npos);
    EXPECT_EQ(process.get("blue", "/api/jobs").body.find("green"), std::string::npos);
  }
}

TEST_F(TenantsTest, ADamagedOneIsNamedToTheOperatorAloneAndStopsNoOther) {
  {
    Process process(data_);
    ASSERT_EQ(process.send("blue", "blue-job"), 200);
    ASSERT_EQ(process.send("broken", "broken-job"), 200);
  }
  ASSERT_TRUE(write_file_atomically(data_ + "/tenants/broken/state.sqlite", std::string(8192, 'x')).ok());
  Process process(data_);
  ASSERT_EQ(process.send("blue", "blue-job", 2_step), 200);
  ASSERT_EQ(process.send("", "default-job"), 200);
  ASSERT_TRUE(eventually([&] { return process.get("", "/readyz").body.find("broken") != std::string::npos; }));
  const HttpResponse ready = process.get("", "/readyz");
  EXPECT_EQ(ready.status, 200) << "one tenant's is no reason to send everybody elsewhere: " << ready.body;
  EXPECT_NE(ready.body.find("warning: tenants: broken: "), std::string::npos) << ready.body;
  EXPECT_EQ(process.get("", "/readyz", "", bit_of(Role::kAnyone)).body.find("broken"), std::string::npos);
  EXPECT_EQ(process.get("blue", "/readyz").body, "ok\n");
  process.tenants_.tick();
  EXPECT_EQ(process.tenants_.of_tenants().value("lockstep_tenants", "state=\"failed\""), 1);
  EXPECT_EQ(process.tenants_.of_tenants().value("lockstep_tenants", "state=\"open\""), 1);

  const HttpResponse refused = process.get("broken", "/api/jobs");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.body.find("sqlite"), std::string::npos) << refused.body;
  EXPECT_EQ(refused.body.find(data_), std::string::npos) << refused.body;
  EXPECT_EQ(process.send_once("broken", "broken-job", 2_step), 0);
}

TEST_F(TenantsTest, BeyondTheLimitNoFurtherOneIsMade) {
  Process process(data_, {.tenants_max = 1});
  ASSERT_EQ(process.send("blue", "blue-job"), 200);
  const HttpResponse refused = process.get("green", "/api/jobs");
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.body.find("--tenants-max"), std::string::npos) << refused.body;
  EXPECT_FALSE(std::filesystem::exists(data_ + "/tenants/green"));
  for (const char* name : {"../up", "Blue", ".."}) EXPECT_EQ(process.get(name, "/api/jobs").status, 503) << name;
  EXPECT_FALSE(std::filesystem::exists(data_ + "/up"));
  EXPECT_EQ(process.get("blue", "/api/jobs").status, 200);
  // What the bus has for it is not waited for.
  EXPECT_TRUE(process.tenants_.find_for_bus("green").is_none);
  EXPECT_TRUE(process.tenants_.find_for_bus("../up").is_none);
  EXPECT_NE(process.tenants_.find_for_bus("blue").taker, nullptr);
}

struct AllButOne final : JobOwnership {
  bool owns(std::string_view job_id) const override { return job_id != "anothers"; }
};

// The brokers are away in the middle of history: nobody reads on, and what was read is known.
TEST_F(TenantsTest, WhatIsKnownOfItsJobsIsToldWhileTheBusIsBehind) {
  const AllButOne jobs;
  Process process(data_, {}, &jobs);
  process.common_.bus_is_behind = true;
  process.read_from_bus("ours", 0);
  process.read_from_bus("anothers", 1);
  EXPECT_NE(process.query("lockstep_rank_step_seconds", 3'582).find("ours"), std::string::npos);
  process.tenants_.tick();
  const std::string alerts = process.get("", "/api/alerts").body, open = process.query("lockstep_verdict_open", -1);
  for (const std::string& told : {alerts, open}) {
    EXPECT_NE(told.find("\"ours\""), std::string::npos) << told;
    EXPECT_EQ(told.find("anothers"), std::string::npos) << told;
  }
  EXPECT_EQ(alerts.find("silent"), std::string::npos) << alerts;
}

TEST_F(TenantsTest, OneThatIsBeingOpenedKeepsNobodyWaiting) {
  Process process(data_);
  const HttpResponse first = process.get("blue", "/api/jobs");
  EXPECT_EQ(first.status, 503);
  EXPECT_NE(first.body.find("try again in a moment"), std::string::npos) << first.body;
  EXPECT_EQ(process.get("blue", "/healthz").status, 200);
  EXPECT_EQ(process.get("", "/api/jobs").status, 200);
  EXPECT_TRUE(eventually([&] { return process.get("blue", "/api/jobs").status == 200; }));
}

TEST_F(TenantsTest, OneTakesNoMoreThanItsShareOfTheMemory) {
  Process process(data_, {.memory_share = 0.25});
  Tenant& alone = *process.tenants_.find_default();
  EXPECT_EQ(alone.memory().bytes_max(), process.memory_.bytes_max());
  ASSERT_EQ(process.send("blue", "blue-job"), 200);
  EXPECT_EQ(alone.memory().bytes_max(), process.memory_.bytes_max() / 4);
  const std::string metrics = [&] {
    std::string text;
    EXPECT_TRUE(eventually([&] {
      text = process.get("blue", "/metrics").body;
      return text.find("lockstep_memory_max_bytes 268435456\n") != std::string::npos;
    })) << text;
    return text;
  }();
  EXPECT_NE(metrics.find("lockstep_memory_resident_bytes 0\n"), std::string::npos) << "the process's is the operator's";
}

TEST_F(TenantsTest, TheOperatorSeesHowMuchEachHas) {
  Process process(data_);
  ASSERT_EQ(process.send("blue", "blue-job"), 200);
  process.tenants_.tick();
  const std::string metrics = process.get("", "/metrics").body;
  EXPECT_NE(metrics.find("lockstep_tenants{state=\"open\"} 1\n"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("lockstep_tenant_log_bytes{tenant=\"blue\"} "), std::string::npos);
  EXPECT_EQ(metrics.find("lockstep_tenant_log_bytes{tenant=\"blue\"} 0\n"), std::string::npos);
  EXPECT_EQ(process.get("blue", "/metrics").body.find("{tenant="), std::string::npos);
}

TEST_F(TenantsTest, AJobOfTheScrapeFileIsItsTenantsAloneAndWhatATenantHasIsSentOnUnderItsName) {
  Mutex mutex;
  std::map<std::string, std::set<std::string>> sent;  // by path, X-Scope-OrgID
  Counters counters(kServerCounters);
  Result<std::unique_ptr<HttpServer>> other = HttpServer::start(
      {.address = {"127.0.0.1", 0}, .name = "http"},
      [&](const ServerRequest& request) {
        if (request.method == "GET") return HttpResponse{200, {}, "queue_depth 3\n"};
        MutexLock lock(mutex);
        sent[request.path].insert(std::string(request.header("x-scope-orgid")));
        return HttpResponse{204, {}, ""};
      },
      counters);
  ASSERT_TRUE(other.ok()) << other.error();
  const std::string address = (*other)->address(), file = folder_.path() + "/scrape.yaml";
  const auto scrape = [&](const std::string& tenant) {
    const std::string job =
        "- {job_name: node, scrape_interval: 100ms, " + tenant + "static_configs: [{targets: ['" + address + "']}]}\n";
    EXPECT_TRUE(write_file_atomically(file, "scrape_configs:\n" + job).ok());
    return *parse_scrape_config("scrape_configs:\n" + job);
  };
  Result<std::map<std::string, Url, std::less<>>> urls =
      remote_write_urls({"http://" + address + "/of-default", "blue=http://" + address + "/of-blue"});
  ASSERT_TRUE(urls.ok()) << urls.error();
  Process process(data_, {.scrape_file = file, .scrape = scrape("tenant: blue, "), .remote_write = *urls});
  const auto depth = [&](const char* tenant) {
    return process.get(tenant, "/prometheus/api/v1/query", "query=queue_depth").body;
  };
  const auto is_up = [&](const char* tenant) { return depth(tenant).find("\"3\"") != std::string::npos; };
  ASSERT_TRUE(eventually([&] { return is_up("blue"); })) << depth("blue");
  EXPECT_FALSE(is_up(""));
  EXPECT_NE(process.get("blue", "/prometheus/api/v1/targets").body.find(address), std::string::npos);
  EXPECT_EQ(process.get("", "/prometheus/api/v1/targets").body.find(address), std::string::npos);
  EXPECT_TRUE(eventually([&] {
    MutexLock lock(mutex);
    return sent["/of-blue"] == std::set<std::string>{"blue"};
  }));

  scrape("");
  process.tenants_.reload_scrape_file();
  ASSERT_TRUE(eventually([&] { return is_up("") && !is_up("blue"); })) << depth("blue");
  scrape("tenant: green, ");  // one that is not there yet
  process.tenants_.reload_scrape_file();
  ASSERT_TRUE(eventually([&] { return is_up("green") && !is_up(""); })) << depth("green");
  EXPECT_TRUE(eventually([&] {
    MutexLock lock(mutex);
    return sent["/of-default"] == std::set<std::string>{""};
  }));
  process.tenants_.stop();
  (*other)->stop();
}

}  // namespace
}  // namespace lockstep
