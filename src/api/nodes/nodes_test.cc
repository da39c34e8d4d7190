// Nodes and GPUs against filled stores. Requests go straight into answer(): no sockets.
#include <gtest/gtest.h>
#include <simdjson.h>

#include "api/jobs/step_window.h"
#include "api/routes.h"
#include "base/text.h"
#include "store/forwarding_state.h"
#include "store/memory_span_store.h"
#include "store/memory_step_store.h"
#include "store/sqlite_state_store.h"
#include "store/store_counters.h"
#include "store/testing/memory_metric_reader.h"
#include "testing/fake_clock.h"
#include "testing/temporary_folder.h"

namespace lockstep {
namespace {

using simdjson::dom::element;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kNow = 1'000'000 * kSecond;

struct FixedDiagnosis final : VerdictSource {
  std::vector<Verdict> list;
  mutable size_t times_asked = 0;
  std::vector<Verdict> verdicts(std::string_view) const override {
    ++times_asked;
    return list;
  }
  std::string summary(std::string_view) const override { return ""; }
};

// Counts verdicts that are read.
struct WatchedState final : ForwardingState {
  using ForwardingState::ForwardingState;
  std::vector<StoredVerdict> find_verdicts(const VerdictsAsked& asked) const override {
    std::vector<StoredVerdict> found = ForwardingState::find_verdicts(asked);
    verdicts_read += found.size();
    return found;
  }
  mutable size_t verdicts_read = 0;
};

// Two nodes of four GPUs each; ranks 0 to 3 of "llama" on node-1, nobody on node-2. Rank 2 takes 30 ms longer of its own.
class NodesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<StateStore>> state = open_sqlite_state_store(folder_.path() + "/state.sqlite");
    ASSERT_TRUE(state.ok());
    state_ = std::move(*state);
    watched_.emplace(*state_);
    for (int64_t step = 0; step < 20; ++step) {
      for (int32_t rank = 0; rank < 4; ++rank) {
        StepSummary summary;
        summary.step = StepNumber{step};
        summary.start_unix_ns = kNow - (20 - step) * kSecond;
        summary.duration_ns = kSecond / 2;
        summary.self_ns = rank == 2 ? 90'000'000 : 60'000'000;
        summary.comm_ns = summary.duration_ns - summary.self_ns;
        steps_.append_step(identity_of(Rank{rank}), summary, summary.start_unix_ns);
      }
    }
    for (const char* host : {"node-1", "node-2"}) {
      agents_.seen(host, kNow - kSecond, 0);
      for (int gpu = 0; gpu < 4; ++gpu) {
        const std::string uuid = uuid_of(host, gpu);
        metrics_.add({{"__name__", "lockstep_gpu_info"},
                      {"host", host},
                      {"gpu_uuid", uuid},
                      {"index", format("%d", gpu)},
                      {"model", "H100"}},
                     kNow / 1'000'000 - 60'000, 1);
      }
    }
  }
  static std::string uuid_of(const std::string& host, int gpu) { return format("GPU-%s-%d", host.c_str(), gpu); }
  static Identity identity_of(Rank rank) {
    return {.job_id = "llama",
            .attempt = 0,
            .rank = rank,
            .world_size = 4,
            .local_rank = rank.value(),
            .host = "node-1",
            .gpu_uuid = uuid_of("node-1", rank.value())};
  }
  static Verdict verdict_on(std::string id, int gpu, VerdictState state) {
    Verdict verdict;
    verdict.id = std::move(id);
    verdict.job_id = "llama";
    verdict.state = state;
    verdict.found_unix_ns = kNow - 60 * kSecond;
    verdict.sentence = "Rank 2 is slow.";
    verdict.culprit.ranks = {2_rank};
    verdict.culprit.host = "node-1";
    verdict.culprit.gpu_uuid = uuid_of("node-1", gpu);
    verdict.culprit.cause = Cause::kThrottleThermal;
    return verdict;
  }
  HttpResponse get(const std::string& path, const std::string& query = "") {
    ApiContext context{steps_,     spans_,    traces_, metrics_, *watched_, agents_,
                       diagnosis_, counters_, clock_,  ready_,   "",        owns_};
    ServerRequest request;
    request.method = "GET";
    request.path = path;
    request.query = query;
    return answer(context, request);
  }
  element json(const std::string& path, const std::string& query = "") {
    HttpResponse response = get(path, query);
    EXPECT_EQ(response.status, 200) << path << ": " << response.body;
    element document;
    EXPECT_FALSE(parser_.parse(response.body).get(document)) << response.body.substr(0, 300);
    return document;
  }
  static std::string text(element value) { return std::string(value.get_string().value()); }
  void gauge(const std::string& name, const std::string& host, int gpu, int64_t ago_s, double value) {
    MemoryMetricReader::LabelList labels = {{"__name__", name}, {"host", host}, {"gpu_uuid", uuid_of(host, gpu)}};
    if (name == "lockstep_gpu_clock_hertz") labels.emplace_back("clock", "sm");
    metrics_.add(labels, kNow / 1'000'000 - ago_s * 1'000, value);
  }

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_{kNow};
  Counters counters_{kStoreCounters};
  MemoryStepStore steps_{{}, counters_};
  MemorySpanStore spans_{{}, counters_};
  StepTraceCache traces_{steps_, spans_, clock_};
  MemoryMetricReader metrics_;
  std::unique_ptr<StateStore> state_;
  std::optional<WatchedState> watched_;
  std::function<bool(std::string_view)> owns_;
  AgentRegistry agents_;
  FixedDiagnosis diagnosis_;
  std::atomic<bool> ready_{true};
  simdjson::dom::parser parser_;
};

TEST_F(NodesTest, NodesAreListedWorstFirstWithTheGpusThatNobodyUses) {
  agents_.seen("node-0", kNow - 100 * kSecond, 7);
  diagnosis_.list = {verdict_on("v1", 2, VerdictState::kConfirmed), verdict_on("v2", 2, VerdictState::kCleared)};
  const element list = json("/api/nodes");
  EXPECT_EQ(list["gpus"].get_uint64().value(), 8u);
  EXPECT_EQ(list["gpus_idle"].get_uint64().value(), 4u);
  ASSERT_EQ(list["total"].get_uint64().value(), 3u);
  const element first = list["nodes"].at(0), second = list["nodes"].at(1), third = list["nodes"].at(2);
  EXPECT_EQ(text(first["host"]), "node-1");
  EXPECT_EQ(first["verdicts_open"].get_uint64().value(), 1u);
  EXPECT_EQ(text(first["job_ids"].at(0)), "llama");
  EXPECT_EQ(text(second["host"]), "node-0");  // silent: nobody knows how it does
  EXPECT_EQ(text(second["state"]), "silent");
  EXPECT_EQ(text(third["host"]), "node-2");
  EXPECT_EQ(third["gpus_idle"].get_uint64().value(), 4u);
  const element some = json("/api/nodes", "host=-2&limit=1");
  EXPECT_EQ(some["total"].get_uint64().value(), 1u);
  EXPECT_EQ(get("/api/nodes", "limit=0").status, 400);
  // Of a node that went silent nobody knows who uses its GPUs.
  clock_.advance(60 * kSecond);
  EXPECT_EQ(json("/api/nodes")["gpus_idle"].get_uint64().value(), 0u);
  EXPECT_EQ(text(json("/api/nodes/node-2")["gpus"].at(0)["state"]), "unknown");
}

TEST_F(NodesTest, ANodeSaysWhoRunsOnWhichGpuAndWhichAreIdle) {
  metrics_.add({{"__name__", "lockstep_job_gpu_info"},
                {"host", "node-2"},
                {"gpu_uuid", uuid_of("node-2", 1)},
                {"job_id", "sweep"},
                {"rank", "0"},
                {"user", "anna"}},
               kNow / 1'000'000 - 5'000, 1);
  metrics_.add({{"__name__", "lockstep_gpu_up"}, {"host", "node-2"}, {"gpu_uuid", uuid_of("node-2", 3)}},
               kNow / 1'000'000 - 5'000, 0);
  const element idle = json("/api/nodes/node-2");
  EXPECT_EQ(text(idle["gpus"].at(0)["state"]), "idle");
  EXPECT_EQ(text(idle["gpus"].at(0)["model"]), "H100");
  EXPECT_EQ(text(idle["gpus"].at(1)["state"]), "busy");
  EXPECT_EQ(text(idle["gpus"].at(1)["holders"].at(0)["user"]), "anna");
  EXPECT_EQ(text(idle["gpus"].at(3)["state"]), "lost");
  // The rank's own series, which knows no user: the same holder.
  metrics_.add({{"__name__", "lockstep_job_gpu_info"},
                {"host", "node-2"},
                {"gpu_uuid", uuid_of("node-2", 1)},
                {"job_id", "sweep"},
                {"rank", "0"},
                {"world_size", "1"}},
               kNow / 1'000'000 - 5'000, 1);
  const element once = json("/api/nodes/node-2");
  EXPECT_EQ(once["gpus"].at(1)["holders_total"].get_uint64().value(), 1u);
  EXPECT_EQ(text(once["gpus"].at(1)["holders"].at(0)["user"]), "anna");
  const element busy = json("/api/nodes/node-1");
  EXPECT_EQ(busy["ranks_total"].get_uint64().value(), 4u);
  EXPECT_EQ(text(busy["gpus"].at(2)["holders"].at(0)["job_id"]), "llama");
  EXPECT_EQ(busy["gpus"].at(2)["holders"].at(0)["rank"].get_int64().value(), 2);
  for (const Rank rank : all_ranks(4)) steps_.rank_ended(identity_of(rank), true, kNow);
  const element after = json("/api/nodes/node-1");
  EXPECT_EQ(after["ranks_total"].get_uint64().value(), 0u);
  EXPECT_EQ(text(after["gpus"].at(2)["state"]), "idle");
}

TEST_F(NodesTest, WhatHappenedOnANodeIsThereForAWeekAndOfAGpuItsOwnAlone) {
  diagnosis_.list = {verdict_on("v1", 2, VerdictState::kConfirmed)};
  Verdict past = verdict_on("v0", 1, VerdictState::kConfirmed);
  past.found_unix_ns = kNow - 3'600 * kSecond;
  ASSERT_TRUE(state_->save_verdict(past).ok());
  Verdict old = verdict_on("v-old", 1, VerdictState::kConfirmed);
  old.found_unix_ns = kNow - 8 * 86'400 * kSecond;
  ASSERT_TRUE(state_->save_verdict(old).ok());
  Verdict elsewhere = verdict_on("v-else", 1, VerdictState::kConfirmed);
  elsewhere.culprit.host = "node-10";
  elsewhere.culprit.gpu_uuid = "GPU-9";
  elsewhere.sentence = "Not \"node-1\".";
  ASSERT_TRUE(state_->save_verdict(elsewhere).ok());
  const auto event = [&](const char* host, int gpu, const char* name) {
    LogRecord record;
    record.time_unix_ns = kNow - 30 * kSecond;
    record.event_name = name;
    record.severity_text = "critical";
    record.body = Value{std::string("NVRM: Xid 79")};
    record.attributes = {{"gpu_uuid", uuid_of(host, gpu)}, {"code", int64_t{79}}};
    steps_.append_log(std::make_shared<Attributes>(Attributes{{"host.name", std::string(host)}}), record);
  };
  event("node-1", 2, "gpu.xid");
  event("node-2", 0, "gpu.xid");
  const element node = json("/api/nodes/node-1");
  EXPECT_EQ(node["verdicts_total"].get_uint64().value(), 2u);
  EXPECT_EQ(text(node["verdicts"].at(0)["id"]), "v1");
  EXPECT_EQ(text(node["verdicts"].at(1)["state"]), "cleared");  // of an earlier run
  ASSERT_EQ(node["events_total"].get_uint64().value(), 1u);
  EXPECT_EQ(node["events"].at(0)["code"].get_int64().value(), 79);
  EXPECT_EQ(text(node["events"].at(0)["text"]), "NVRM: Xid 79");
  const element gpu = json("/api/gpus/" + uuid_of("node-1", 2));
  EXPECT_EQ(text(gpu["host"]), "node-1");
  EXPECT_EQ(gpu["gpus_total"].get_uint64().value(), 1u);
  EXPECT_EQ(gpu["ranks_total"].get_uint64().value(), 1u);
  EXPECT_EQ(gpu["verdicts_total"].get_uint64().value(), 1u);
  EXPECT_EQ(gpu["events_total"].get_uint64().value(), 1u);
  EXPECT_EQ(json("/api/gpus/" + uuid_of("node-1", 1))["events_total"].get_uint64().value(), 0u);
}

TEST_F(NodesTest, APageReadsNoMoreVerdictsThanItMayShowAndNoneOfJobsThatAreAnothers) {
  for (int i = 0; i < 20; ++i) {
    Verdict verdict = verdict_on(format("v%d", i), 1, VerdictState::kConfirmed);
    if (i % 2 == 1) verdict.culprit.host = "node-10";
    if (i % 4 == 2) verdict.found_unix_ns = kNow - 8 * 86'400 * kSecond;
    if (i % 8 == 4) verdict.job_id = "of another";
    ASSERT_TRUE(state_->save_verdict(verdict).ok());
  }
  EXPECT_EQ(json("/api/nodes/node-1")["verdicts_total"].get_uint64().value(), 5u);
  EXPECT_EQ(watched_->verdicts_read, 5u);
  owns_ = [](std::string_view job_id) { return job_id != "of another"; };
  EXPECT_EQ(json("/api/nodes/node-1")["verdicts_total"].get_uint64().value(), 3u);
  EXPECT_EQ(json("/api/gpus/" + uuid_of("node-1", 1))["verdicts_total"].get_uint64().value(), 13u);

  watched_->verdicts_read = 0;
  EXPECT_EQ(text(json("/api/verdicts/v3")["id"]), "v3");
  EXPECT_EQ(get("/api/verdicts/v4").status, 404);  // of another
  EXPECT_EQ(watched_->verdicts_read, 2u);
  EXPECT_EQ(json("/api/verdicts")["total"].get_uint64().value(), 0u);
  EXPECT_EQ(watched_->verdicts_read, 2u) << "none of an earlier run is open";
  EXPECT_EQ(json("/api/verdicts", "state=all")["total"].get_uint64().value(), 18u);
}

TEST_F(NodesTest, StepsAndSeriesHaveOneTimeAxis) {
  // Told once and not again: it holds for a while, and is not known afterwards.
  gauge("lockstep_gpu_clock_hertz", "node-1", 2, 590, 1.155e9);
  gauge("lockstep_gpu_clock_hertz", "node-1", 2, 10, 1.2e9);
  gauge("lockstep_gpu_clock_hertz", "node-2", 2, 10, 1.9e9);
  for (const auto& [ago, value] :
       std::vector<std::pair<int64_t, double>>{{590, 1e9}, {530, 4e9}, {470, 4e9}, {410, 1e9}})
    metrics_.add({{"__name__", "hw.network.io"}, {"host", "node-1"}, {"device", "mlx5_0"}, {"direction", "transmit"}},
                 kNow / 1'000'000 - ago * 1'000, value);
  const element series = json("/api/nodes/node-1/series", "last_s=600&points=10");
  EXPECT_EQ(series["stretch_ns"].get_int64().value(), 60 * kSecond);
  ASSERT_EQ(series["rows"].get_array().size(), 2u);
  const element clock = series["rows"].at(0);
  EXPECT_EQ(text(clock["unit"]), "MHz");
  EXPECT_EQ(text(clock["id"]), uuid_of("node-1", 2));
  EXPECT_EQ(clock["values"].at(0).get_double().value(), 1155);
  EXPECT_EQ(clock["values"].at(1).get_double().value(), 1155);
  EXPECT_TRUE(clock["values"].at(5).is_null());
  EXPECT_EQ(clock["values"].at(9).get_double().value(), 1200);
  const element sent = series["rows"].at(1);
  EXPECT_EQ(sent["values"].at(0).get_double().value(), 50);  // 3 GB in a minute
  EXPECT_EQ(sent["values"].at(2).get_double().value(), 0);
  EXPECT_TRUE(sent["values"].at(4).is_null());  // the counter began anew
  ASSERT_EQ(series["steps"].get_array().size(), 4u);
  const element slow = series["steps"].at(2);
  EXPECT_EQ(slow["rank"].get_int64().value(), 2);
  EXPECT_EQ(slow["excess_ms"].at(9).get_double().value(), 30);
  EXPECT_EQ(slow["step_ms"].at(9).get_double().value(), 500);
  EXPECT_TRUE(slow["step_ms"].at(0).is_null());
  EXPECT_EQ(json("/api/gpus/" + uuid_of("node-1", 1) + "/series")["steps"].get_array().size(), 1u);
  // Steps of the past are found by time.
  const element past = json("/api/nodes/node-1/series",
                            format("last_s=10&points=2&to=%lld", static_cast<long long>(kNow - 10 * kSecond)));
  EXPECT_EQ(past["steps"].at(0)["last_step"].get_int64().value(), 9);
}

TEST_F(NodesTest, OfAJobTheStepsOfTheTimeAreReadAndNoOthers) {
  StepSummary late;  // rank 3 began step 10 later than the others
  late.step = 10_step;
  late.start_unix_ns = kNow - 10 * kSecond + kSecond / 4;
  steps_.append_step(identity_of(3_rank), late, kNow);
  const JobInfo job = *steps_.job("llama");
  const auto between = [&](int64_t from_ago_s, int64_t to_ago_s, int64_t most) {
    const StepRange range = steps_between(steps_, job, kNow - from_ago_s * kSecond, kNow - to_ago_s * kSecond, most);
    return std::pair(range.from.value(), range.to.value());
  };
  EXPECT_EQ(between(8, 5, 1000), std::pair(int64_t{12}, int64_t{15}));
  EXPECT_EQ(between(10, 5, 1000), std::pair(int64_t{9}, int64_t{15})) << "rank 3 was still in step 9";
  EXPECT_EQ(between(10, 5, 3), std::pair(int64_t{13}, int64_t{15}));
  EXPECT_EQ(between(2, 0, 1000), std::pair(int64_t{18}, int64_t{19}));
  EXPECT_EQ(between(3600, 0, 1000), std::pair(int64_t{0}, int64_t{19}));
}

TEST_F(NodesTest, TheFleetIsAFewNumbersAndJobsAreFoundByWhoAndWhere) {
  diagnosis_.list = {verdict_on("v1", 2, VerdictState::kConfirmed)};
  metrics_.add({{"__name__", "lockstep_job_gpu_info"},
                {"host", "node-1"},
                {"gpu_uuid", uuid_of("node-1", 1)},
                {"job_id", "llama"},
                {"rank", "1"},
                {"user", "anna"}},
               kNow / 1'000'000 - 5'000, 1);
  const element fleet = json("/api/fleet");
  EXPECT_EQ(fleet["jobs_running"].get_uint64().value(), 1u);
  EXPECT_EQ(fleet["ranks"].get_uint64().value(), 4u);
  EXPECT_EQ(fleet["gpus"].get_uint64().value(), 8u);
  EXPECT_EQ(fleet["gpus_idle"].get_uint64().value(), 4u);
  EXPECT_EQ(fleet["verdicts_open"].get_uint64().value(), 1u);
  EXPECT_TRUE(fleet["lost_gpu_seconds_day"].is_null()) << "no incidents are kept here";
  const auto found = [&](const std::string& query) { return json("/api/jobs", query)["total"].get_uint64().value(); };
  EXPECT_EQ(found("job=lla&host=node-1&user=ann&state=running&health=slow&cause=throttle-thermal"), 1u);
  for (const char* other : {"job=bert", "host=node-2", "user=bob", "state=ended", "health=ok", "cause=ecc"})
    EXPECT_EQ(found(other), 0u) << other;
  EXPECT_EQ(json("/api/jobs", "job=bert")["known"].get_uint64().value(), 1u);
}

TEST_F(NodesTest, WhatLooksAtTheWholeFleetLooksOnceAndTakesTurns) {
  for (const char* path : {"/api/fleet", "/api/nodes", "/api/nodes/node-1"}) {
    diagnosis_.times_asked = 0;
    json(path);
    EXPECT_EQ(diagnosis_.times_asked, 1u) << path;
    EXPECT_TRUE(takes_turns({.method = "GET", .path = path, .query = "", .headers = {}, .body = ""})) << path;
  }
}

TEST_F(NodesTest, WhatIsNotKnownIsOneClearLine) {
  EXPECT_EQ(get("/api/nodes/node-3").status, 404);
  EXPECT_NE(get("/api/nodes/nodee-1").body.find("did you mean"), std::string::npos);
  EXPECT_EQ(get("/api/gpus/GPU-nobody").status, 404);
  EXPECT_EQ(get("/api/gpus/GPU-nobody/series").status, 404);
  EXPECT_EQ(get("/api/nodes/node-1/series", "points=100000").status, 400);
  EXPECT_EQ(get("/api/nodes/node-1", "days=0").status, 400);
  EXPECT_EQ(json("/api/nodes/nobody/series")["rows"].get_array().size(), 0u);
}

}  // namespace
}  // namespace lockstep
