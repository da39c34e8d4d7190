// The endpoints about single steps, against stores filled through the same receivers as from agents.
#include <gtest/gtest.h>
#include <simdjson.h>
#include <unistd.h>

#include <cstdlib>

#include "analysis/step/step_testing.h"
#include "api/routes.h"
#include "api/testing/no_diagnosis.h"
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

using simdjson::dom::element;

class StepApi : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<StateStore>> state = open_sqlite_state_store(folder_.path() + "/state.sqlite");
    ASSERT_TRUE(state.ok());
    state_ = std::move(*state);
    // 4 ranks, steps 0 to 9, of which 5 and 8 come in detail; rank 2 is late by 30 ms in all, by 60 in step 8.
    for (StepNumber step = 0_step; step < 10_step; ++step) {
      testing::PlayedStep played(4, step);
      played.all_own(100, Phase::kForward);
      played.own(2_rank, step == 8_step ? 60 : 30, Phase::kForward);
      played.collective(CommId{0xA0}, {0_rank, 1_rank, 2_rank, 3_rank}, 10);
      played.end();
      for (const StepRow& row : played.rows()) steps_.append_step(row.identity, row.summary, 1);
      if (step == 0_step) {
        for (const RankInfo& rank : played.job().ranks) {
          for (const CommInit& comm : rank.comms) steps_.append_comm(rank.identity, comm, 1);
        }
      }
      if (step != 5_step && step != 8_step) continue;
      for (const RankDetail& rank : played.details) {
        ResourceGroup group;
        group.resource = to_resource(rank.identity);
        group.spans = to_spans(rank.identity, rank.detail, SampledFor::kAsked);
        spans_.append(group, 1);
      }
    }
  }

  HttpResponse get(const std::string& path, const std::string& query = "") {
    ApiContext context{steps_, spans_, traces_, metrics_, *state_, agents_, diagnosis_, counters_, clock_, ready_, ""};
    ServerRequest request;
    request.method = "GET";
    request.path = path;
    request.query = query;
    return answer(context, request);
  }
  element json(const std::string& path, const std::string& query = "") {
    HttpResponse response = get(path, query);
    EXPECT_EQ(response.status, 200) << path << ": " << response.body;
    bodies_.emplace_back(response.body);
    element document;
    EXPECT_FALSE(parsers_.emplace_back().parse(bodies_.back()).get(document)) << response.body;
    return document;
  }

  testing::TemporaryFolder folder_;
  Counters counters_{kStoreCounters};
  MemoryStepStore steps_{{}, counters_};
  MemorySpanStore spans_{{}, counters_};
  MemoryMetricReader metrics_;
  std::unique_ptr<StateStore> state_;
  AgentRegistry agents_;
  testing::NoDiagnosis diagnosis_;
  testing::FakeClock clock_{1'000'000'000'000};
  StepTraceCache traces_{steps_, spans_, clock_};
  std::atomic<bool> ready_{true};
  std::deque<simdjson::padded_string> bodies_;
  std::deque<simdjson::dom::parser> parsers_;
};

TEST_F(StepApi, SaysWhoMadeWhomWait) {
  element step = json("/api/jobs/job/steps/8");
  EXPECT_EQ(std::string_view(step["sentence"]),
            "Rank 2 (node-0) made 3 ranks wait 60 ms, in its forward: 35 % of a step of 170 ms.");
  EXPECT_TRUE(bool(step["detail"]));
  EXPECT_EQ(std::string_view(step["trace_id"]), to_hex(step_trace_id("job", 0, 8_step)));
  EXPECT_EQ(int64_t(step["culprit"]["rank"]), 2);
  EXPECT_NEAR(double(step["culprit"]["wait_ms"]), 60, 0.1);
  EXPECT_EQ(uint64_t(step["waits_total"]), 3u);
  element wait = step["waits"].at(0);
  EXPECT_EQ(int64_t(wait["for"]), 2);
  EXPECT_EQ(std::string_view(wait["operation"]), "AllReduce #1");
  EXPECT_EQ(std::string_view(wait["comm"]), "world");
  EXPECT_EQ(int64_t(step["ranks"].at(0)["rank"]), 2);
  EXPECT_NEAR(double(step["ranks"].at(0)["own_ms"]), 160, 0.1);
  EXPECT_NEAR(double(step["length_ms"]), 170, 0.1);
  double sum = 0, at = 0;
  for (element piece : simdjson::dom::array(step["path"])) {
    EXPECT_NEAR(double(piece["from_ms"]), at, 0.002);
    at = double(piece["to_ms"]);
    sum += at - double(piece["from_ms"]);
  }
  EXPECT_NEAR(sum, double(step["length_ms"]), 0.01);
  EXPECT_EQ(uint64_t(step["coverage"]["missing"]), 0u);
  EXPECT_LT(double(step["clock"]["error_us"]), 1000);
  EXPECT_EQ(std::string_view(step["phases"].at(0)["phase"]), "forward");
  EXPECT_EQ(int64_t(step["phases"].at(0)["longest_rank"]), 2);
  EXPECT_EQ(simdjson::dom::array(json("/api/jobs/job/steps/8", "limit=1&path=1")["path"]).size(), 1u);
}

TEST_F(StepApi, FallsBackToSummariesAndSaysSo) {
  element step = json("/api/jobs/job/steps/4");
  EXPECT_FALSE(bool(step["detail"]));
  EXPECT_EQ(int64_t(step["culprit"]["rank"]), 2);
  EXPECT_TRUE(bool(step["waits"].at(0)["from_summary"]));
  EXPECT_EQ(std::string_view(step["coverage"]["ranks_missing"]), "0-3");
  EXPECT_EQ(simdjson::dom::array(step["path"]).size(), 0u);
}

TEST_F(StepApi, LatestIsTheNewestWithDetail) {
  EXPECT_EQ(int64_t(json("/api/jobs/job/steps/latest")["step"]), 8);
}

TEST_F(StepApi, RefusesWhatIsNoStepAndSaysWhatIsNotKnown) {
  EXPECT_EQ(get("/api/jobs/job/steps/x").status, 400);
  EXPECT_EQ(get("/api/jobs/job/steps/-3").status, 400);
  EXPECT_EQ(get("/api/jobs/job/steps/8", "limit=0").status, 400);
  EXPECT_EQ(get("/api/jobs/job/steps/77").status, 404);
  EXPECT_EQ(get("/api/jobs/jobb/steps/8").status, 404);
}

TEST_F(StepApi, ListsStepsWithDetailNewestFirst) {
  element traced = json("/api/jobs/job/traced", "limit=1");
  EXPECT_EQ(uint64_t(traced["total"]), 2u);
  EXPECT_EQ(uint64_t(traced["shown"]), 1u);
  EXPECT_EQ(int64_t(traced["steps"].at(0)["step"]), 8);
  EXPECT_EQ(uint64_t(traced["steps"].at(0)["ranks"]), 4u);
}

TEST_F(StepApi, SaysHowWellClocksAreKnown) {
  element clocks = json("/api/jobs/job/clocks");
  EXPECT_EQ(uint64_t(clocks["known"]), 4u);
  EXPECT_EQ(uint64_t(clocks["groups"]), 1u);
  for (element clock : simdjson::dom::array(clocks["clocks"])) {
    EXPECT_NEAR(double(clock["offset_us"]), 0, double(clock["error_us"]));
    EXPECT_GT(uint64_t(clock["barriers"]), 5u);
  }
}

TEST_F(StepApi, NamesTheSlowestRanksOfAWindow) {
  element slowest = json("/api/jobs/job/slowest", "last=10&limit=2");
  EXPECT_EQ(uint64_t(slowest["total"]), 4u);
  EXPECT_EQ(uint64_t(slowest["shown"]), 2u);
  element first = slowest["ranks"].at(0);
  EXPECT_EQ(int64_t(first["rank"]), 2);
  EXPECT_NEAR(double(first["excess_ms"]), 33, 0.1);
  EXPECT_EQ(int64_t(first["last"]), 10);
  EXPECT_EQ(int64_t(first["worst_step"]), 8);
  EXPECT_EQ(std::string_view(first["last_in"]), "world");
}

TEST_F(StepApi, ListsCommunicatorsWithTheirRole) {
  element comms = json("/api/jobs/job/comms");
  ASSERT_EQ(uint64_t(comms["total"]), 1u);
  element comm = comms["comms"].at(0);
  EXPECT_EQ(std::string_view(comm["role"]), "world");
  EXPECT_FALSE(bool(comm["told"]));
  EXPECT_EQ(std::string_view(comm["ranks"]), "0-3");
  EXPECT_EQ(int64_t(comm["collectives"]), 1);
}

}  // namespace
}  // namespace lockstep
