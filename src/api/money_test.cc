// One loss is worth the same wherever it is shown. Requests go straight into answer(): no sockets.
#include <gtest/gtest.h>
#include <simdjson.h>

#include "alert/alert_center.h"
#include "api/routes.h"
#include "base/text.h"
#include "fabric/fabric.h"
#include "incident/incident_report.h"
#include "incident/incident_watch.h"
#include "incident/verdict_cost.h"
#include "ingest/counters_table.h"
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

struct FixedDiagnosis final : VerdictSource {
  std::vector<Verdict> list;
  std::vector<Verdict> verdicts(std::string_view job_id) const override {
    std::vector<Verdict> found;
    for (const Verdict& verdict : list)
      if (job_id.empty() || verdict.job_id == job_id) found.push_back(verdict);
    return found;
  }
  std::string summary(std::string_view) const override { return ""; }
};

// GPU pricing reads it each time that it is asked for a job's GPUs.
struct CountedClock final : Clock {
  explicit CountedClock(const Clock& clock) : clock_(clock) {}
  int64_t unix_ns() const override { return clock_.unix_ns(); }
  int64_t monotonic_ns() const override {
    ++asked;
    return clock_.monotonic_ns();
  }
  mutable int asked = 0;

 private:
  const Clock& clock_;
};

// Job "train" on two H100 and an A100, and a GPU of which no model is reported; prices are by model.
class MoneyTest : public ::testing::Test {
 protected:
  MoneyTest() {
    for (int32_t rank = 0; rank < 4; ++rank) {
      steps_.append_step({.job_id = "train",
                          .rank = Rank{rank},
                          .world_size = 4,
                          .host = "node-1",
                          .gpu_uuid = format("GPU-%d", rank)},
                         {.step = 1_step, .duration_ns = kSecond}, clock_.unix_ns());
      const char* model = rank < 2 ? "NVIDIA H100" : rank == 2 ? "NVIDIA A100" : "";
      metrics_.add({{"__name__", "lockstep_gpu_info"}, {"gpu_uuid", format("GPU-%d", rank)}, {"model", model}}, 1, 1);
    }
    judge("v1", VerdictState::kConfirmed, "GPU-1");
    judge("v2", VerdictState::kSuspected, "GPU-0");
    watch_.go_live();
    alerts_.go_live();
    clock_.advance(6 * kSecond);
    watch_.tick();
    alerts_.tick();
  }
  ~MoneyTest() override { alerts_.stop(); }

  void judge(const std::string& id, VerdictState state, const std::string& gpu, const std::string& job = "train",
             int64_t attempt = 0) {
    Verdict verdict;
    verdict.id = id;
    verdict.job_id = job;
    verdict.attempt = attempt;
    verdict.state = state;
    verdict.sentence = "A rank is slow.";
    verdict.since_unix_ns = verdict.found_unix_ns = clock_.unix_ns();
    verdict.culprit = {
        .ranks = {1_rank}, .host = "node-1", .gpu_uuid = gpu, .layer = Layer::kGpu, .cause = Cause::kThrottleThermal};
    verdict.lost_gpu_seconds = 4 * 3600;
    diagnosis_.list.push_back(verdict);
  }
  // The job begins that attempt on so many GPUs of a model.
  void run(const std::string& job, int64_t attempt, const char* model, int32_t ranks = 1) {
    for (int32_t rank = 0; rank < ranks; ++rank) {
      const std::string gpu = format("GPU-%s-%lld-%d", job.c_str(), static_cast<long long>(attempt), rank);
      steps_.append_step({.job_id = job, .attempt = attempt, .rank = Rank{rank}, .world_size = ranks, .gpu_uuid = gpu},
                         {.step = 1_step}, clock_.unix_ns());
      metrics_.add({{"__name__", "lockstep_gpu_info"}, {"gpu_uuid", gpu}, {"model", model}}, clock_.unix_ms(), 1);
    }
  }
  void look() {
    clock_.advance(GpuPricing::kKeptNs + incident::IncidentWatch::kLookEveryNs);
    watch_.tick();
    alerts_.tick();
  }
  element json(const std::string& path) {
    ApiContext context{steps_, spans_, traces_, metrics_, *state_, agents_, diagnosis_, counters_, clock_, ready_, ""};
    context.pricing = shown_pricing_;
    context.alerts = &alerts_;
    context.incidents = &incidents_;
    ServerRequest request;
    request.method = "GET";
    const size_t question = path.find('?');
    request.path = path.substr(0, question);
    if (question != std::string::npos) request.query = path.substr(question + 1);
    const HttpResponse response = answer(context, request);
    EXPECT_EQ(response.status, 200) << path << ": " << response.body;
    element document;
    EXPECT_FALSE(parser_.parse(response.body).get(document)) << response.body;
    return document;
  }
  static std::string text(const element& value) { return std::string(value.get_string().value()); }

  testing::TemporaryFolder folder_;
  testing::FakeClock clock_{1'000'000 * kSecond};
  ClockWitness witness_{clock_};
  Counters counters_{kServerCounters};
  Counters store_counters_{kStoreCounters};
  MemoryStepStore steps_{{}, store_counters_};
  MemorySpanStore spans_{{}, store_counters_};
  StepTraceCache traces_{steps_, spans_, clock_};
  MemoryMetricReader metrics_;
  std::unique_ptr<StateStore> state_ = [this] {
    Result<std::unique_ptr<StateStore>> opened = open_sqlite_state_store(folder_.path() + "/state.sqlite");
    return std::move(*opened);
  }();
  AgentRegistry agents_;
  FixedDiagnosis diagnosis_;
  fabric::Fabric fabric_{{}, clock_};
  const GpuPricing pricing_{*GpuPrices::parse("H100=3,A100=1"), steps_, metrics_, clock_};
  const GpuPricing* shown_pricing_ = &pricing_;
  AlertCenter alerts_{
      {},
      *state_,
      {diagnosis_, agents_, spans_, metrics_,
       [this](const Verdict& verdict) { return incident::cost_of(incident::loss_of(verdict), &incidents_, pricing_); }},
      nullptr,
      clock_,
      witness_,
      counters_};
  incident::IncidentRegistry incidents_{*state_, clock_, witness_, counters_};
  incident::IncidentWatch watch_{incidents_, {diagnosis_, alerts_.registry(), fabric_, &pricing_}, clock_};
  std::atomic<bool> ready_{true};
  simdjson::dom::parser parser_;
};

TEST_F(MoneyTest, AnIncidentCostsTheSameInVerdictAlertIncidentNodePageAndPrometheusView) {
  // Of four GPU-hours two are worth 3, one 1, and one nobody knows what.
  const std::string money =
      "7.00 at 1.00 to 3.00 a GPU-hour, and 1.0 GPU-hours without a price (GPUs of unknown model)";
  const std::string cost = "4.0 GPU-hours lost, " + money;
  EXPECT_EQ(text(json("/api/verdicts/v1")["money"]), money);
  EXPECT_DOUBLE_EQ(json("/api/verdicts/v1")["lost_money"].get_double().value(), 7);
  EXPECT_EQ(text(json("/api/alerts")["alerts"].at(0)["annotations"]["cost"]), cost);
  const std::string id = text(json("/api/verdicts/v1")["incident"]["id"]);
  const element listed = json("/api/incidents")["incidents"].at(0);
  EXPECT_EQ(text(listed["cost"]), cost);
  EXPECT_EQ(text(listed["money"]), money);
  EXPECT_DOUBLE_EQ(listed["lost_money"].get_double().value(), 7);
  EXPECT_EQ(text(json("/api/incidents/" + id)["cost"]), cost);
  EXPECT_EQ(text(json("/api/incidents/" + id)["jobs"].at(0)["cost"]), cost);
  EXPECT_EQ(text(json("/api/nodes/node-1")["incidents"].at(0)["cost"]), cost);
  EXPECT_EQ(text(json("/api/fleet")["money_day"]), money);
  EXPECT_EQ(text(json("/api/gpus/GPU-1")["incidents"].at(0)["cost"]), cost);
  // The one that fires comes from the registry, the one that is pending from the suspected verdict.
  size_t shown = 0;
  for (const element alert : json("/prometheus/api/v1/alerts")["data"]["alerts"].get_array().value()) {
    EXPECT_EQ(text(alert["annotations"]["cost"]), cost) << text(alert["state"]);
    ++shown;
  }
  EXPECT_EQ(shown, 2u);
}

TEST_F(MoneyTest, AnIncidentKeepsItsPriceWhenItsJobIsForgotten) {
  const std::string id = text(json("/api/verdicts/v1")["incident"]["id"]);
  const std::string cost = text(json("/api/incidents/" + id)["cost"]);
  EXPECT_NE(cost.find("7.00 at 1.00 to 3.00"), std::string::npos) << cost;
  MemoryStepStore empty{{}, store_counters_};
  const GpuPricing later{pricing_.prices(), empty, metrics_, clock_};
  incident::IncidentWatch watch{incidents_, {diagnosis_, alerts_.registry(), fabric_, &later}, clock_};
  watch.go_live();
  watch.tick();
  incidents_.tick();
  const Result<incident::Incident> kept = incident::incident_from_json(to_json(*incidents_.find(id)));
  ASSERT_TRUE(kept.ok()) << kept.error();
  EXPECT_EQ(money_text(incident::lost_of(*kept, clock_.unix_ns(), later.prices())), cost.substr(cost.find("7.00")));
}

TEST_F(MoneyTest, AVerdictCostsWhatItsIncidentDoesAlsoWhenItsJobBeginsAgainOnOtherGpus) {
  const auto money_of = [&](const std::string& verdict) {
    const Result<incident::Incident> found = incidents_.find(incidents_.id_of_finding(verdict));
    EXPECT_TRUE(found.ok()) << verdict;
    const std::string of_incident = money_text(incident::lost_of(*found, clock_.unix_ns(), pricing_.prices()));
    EXPECT_EQ(text(json("/api/verdicts/" + verdict)["money"]), of_incident);
    return of_incident;
  };
  run("lasts", 1, "NVIDIA H100");
  run("ends", 1, "");  // of no model that is known: nothing else may be taken for it later
  judge("v-lasts", VerdictState::kConfirmed, "GPU-lasts-1-0", "lasts", 1);
  judge("v-ends", VerdictState::kConfirmed, "GPU-ends-1-0", "ends", 1);
  look();
  EXPECT_EQ(money_of("v-lasts"), "12.00 at 3.00 a GPU-hour");
  diagnosis_.list.back().state = VerdictState::kCleared;
  for (const char* job : {"lasts", "ends"}) run(job, 2, "NVIDIA A100");
  look();
  EXPECT_EQ(money_of("v-lasts"), "12.00 at 3.00 a GPU-hour");
  EXPECT_EQ(money_of("v-ends"), "no price for GPUs of unknown model");
}

TEST_F(MoneyTest, AnAlertCostsWhatItsOwnAttemptDidWhenTheNextRunsOnOtherAndMoreGpus) {
  const auto cost_of = [&](const char* gpu) -> std::string {
    for (const element alert : json("/api/alerts")["alerts"].get_array().value()) {
      std::string_view of;
      if (!alert["labels"]["gpu"].get(of) && of == gpu) return text(alert["annotations"]["cost"]);
    }
    return "no alert";
  };
  run("moves", 1, "NVIDIA H100");
  judge("v-first", VerdictState::kConfirmed, "GPU-moves-1-0", "moves", 1);
  look();
  EXPECT_EQ(cost_of("GPU-moves-1-0"), "4.0 GPU-hours lost, 12.00 at 3.00 a GPU-hour");
  run("moves", 2, "NVIDIA A100", 2);
  judge("v-next", VerdictState::kConfirmed, "GPU-moves-2-0", "moves", 2);
  judge("v-late", VerdictState::kConfirmed, "GPU-moves-1-1", "moves", 1);  // found when its attempt was over
  look();
  EXPECT_EQ(cost_of("GPU-moves-1-0"), "4.0 GPU-hours lost, 12.00 at 3.00 a GPU-hour");
  EXPECT_EQ(cost_of("GPU-moves-2-0"), "4.0 GPU-hours lost, 4.00 at 1.00 a GPU-hour");
  EXPECT_EQ(cost_of("GPU-moves-1-1"), "4.0 GPU-hours lost, no price for GPUs of unknown model");
  for (const char* id : {"v-first", "v-next", "v-late"}) {
    const std::string of_incident = text(json("/api/incidents/" + incidents_.id_of_finding(id))["cost"]);
    EXPECT_NE(of_incident.find(text(json(format("/api/verdicts/%s", id))["money"])), std::string::npos) << of_incident;
  }
}

TEST_F(MoneyTest, WithoutPricesAnIncidentHasNoMoneyAndSaysSo) {
  shown_pricing_ = nullptr;
  const element listed = json("/api/incidents")["incidents"].at(0);
  EXPECT_TRUE(listed["lost_money"].is_null());
  EXPECT_EQ(text(listed["money"]), "");
  EXPECT_EQ(text(listed["cost"]), "4.0 GPU-hours lost");
  shown_pricing_ = &pricing_;
}

TEST_F(MoneyTest, OnlyVerdictsThatAreShownArePriced) {
  for (int i = 0; i < 100; ++i) {
    Verdict past;
    past.id = format("past-%d", i);
    past.job_id = format("job-%d", i);
    past.lost_gpu_seconds = 3600;
    ASSERT_TRUE(state_->save_verdict(past).ok());
  }
  const CountedClock counted(clock_);
  const GpuPricing pricing(pricing_.prices(), steps_, metrics_, counted);
  shown_pricing_ = &pricing;
  const element answer = json("/api/verdicts?state=all&limit=4");
  EXPECT_EQ(answer["total"].get_uint64().value(), 102u);
  EXPECT_EQ(answer["shown"].get_uint64().value(), 4u);
  EXPECT_EQ(text(answer["verdicts"].at(3)["money"]), "no price for GPUs of unknown model");
  EXPECT_LE(counted.asked, 20);
  shown_pricing_ = &pricing_;
}

}  // namespace
}  // namespace lockstep
