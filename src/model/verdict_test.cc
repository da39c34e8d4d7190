#include "model/verdict.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/telemetry.h"

namespace lockstep {
namespace {

TEST(Verdict, IsTheDocumentedObjectInItsOrder) {
  Verdict verdict;
  verdict.id = "job.0-slow-own-5.1";
  verdict.job_id = "job";
  verdict.attempt = 2;
  verdict.state = VerdictState::kConfirmed;
  verdict.kind = VerdictKind::kSlow;
  verdict.pattern = Pattern::kPeriodic;
  verdict.period_steps = 8;
  verdict.period_s = 4;
  verdict.since_step = 30_step;
  verdict.through_step = 60_step;
  verdict.since_unix_ns = 1;
  verdict.found_unix_ns = 2;
  verdict.lost_gpu_seconds = 1.5;
  verdict.lost_share = 0.25;
  verdict.confidence = 0.9;
  verdict.coverage = 1;
  verdict.sentence = "Rank 5 says \"no\".";
  verdict.culprit = {{5_rank}, "node-0", "GPU-5", Layer::kGpu, "GPU of rank 5", Cause::kSlowCompute};
  verdict.chain = {
      {"It is late.", ClaimKind::kSelfTime, "rank 5", 2, "ms", 0, 1, 30_step, 60_step, "/api/jobs/job/ranks/5"}};
  verdict.victim_ranks = {0_rank, 1_rank};
  verdict.victim_groups = {"all 8 ranks"};
  verdict.victim_gpu_minutes = 0.5;
  verdict.alternatives = {{"software", 0.4, "less likely", "a profile"},
                          {"ecc (gpu)", 0.1, "nothing shows it", "", Cause::kEcc}};
  verdict.next = {{"look", "nvidia-smi"}};
  EXPECT_EQ(
      to_json(verdict),
      R"({"id":"job.0-slow-own-5.1","job_id":"job","attempt":2,"state":"confirmed","kind":"slow","pattern":"periodic","period_steps":8,"period_s":4,"since_step":30,"through_step":60,)"
      R"("since_unix_ns":1,"found_unix_ns":2,"lost_gpu_seconds":1.5,"lost_share":0.25,"confidence":0.9,"coverage":1,"clock_error_us":0,)"
      R"("sentence":"Rank 5 says \"no\".",)"
      R"("culprit":{"rank":[5],"host":"node-0","gpu_uuid":"GPU-5","layer":"gpu","component":"GPU of rank 5","cause":"slow-compute"},)"
      R"("chain":[{"claim":"It is late.","kind":"self_time","subject":"rank 5","value":2,"unit":"ms","baseline":0,"peers":1,"from":30,"to":60,"query":"/api/jobs/job/ranks/5"}],)"
      R"("victims":{"count":2,"ranks":[0,1],"groups":["all 8 ranks"],"gpu_minutes":0.5},)"
      R"("alternatives":[{"culprit":"software","cause":"","score":0.4,"checked":true,"why_lower":"less likely","decided_by":"a profile"},)"
      R"-({"culprit":"ecc (gpu)","cause":"ecc","score":0.1,"checked":true,"why_lower":"nothing shows it","decided_by":""}],)-"
      R"("next":[{"action":"look","command":"nvidia-smi"}],"runbook":"/docs/runbooks/slow-compute"})");
}

TEST(Verdict, AnEmptyOneIsStillTheWholeObject) {
  std::string json = to_json(Verdict{});
  for (const char* part :
       {"\"culprit\":{\"rank\":[]", "\"chain\":[]", "\"victims\":{\"count\":0,\"ranks\":[],\"groups\":[]",
        "\"alternatives\":[]", "\"next\":[],\"runbook\":\"\"}"}) {
    EXPECT_NE(json.find(part), std::string::npos) << part;
  }
}

TEST(Verdict, ANumberThatIsNoneIsNull) {
  Verdict verdict;
  verdict.lost_share = std::nan("");
  EXPECT_NE(to_json(verdict).find("\"lost_share\":null"), std::string::npos);
}

TEST(Attributes, AreFoundByNameAndType) {
  Attributes attributes{{"n", 5}, {"text", "x"}, {"n", 6}};
  EXPECT_EQ(find_int(attributes, "n"), 5);
  EXPECT_EQ(find_int(attributes, "text", 9), 9);
  EXPECT_EQ(find_int(attributes, "none", 9), 9);
  EXPECT_EQ(find_string(attributes, "text"), "x");
  EXPECT_EQ(find_string(attributes, "n", "fallback"), "fallback");
  EXPECT_EQ(find(attributes, "none"), nullptr);
}

TEST(Values, AreJsonForPeople) {
  Value value(Attributes{{"a", 1}, {"b", ValueList{true, 0.5, "x", Value()}}, {"c", Value::Bytes{"\x01\xff"}}});
  EXPECT_EQ(to_text(value), R"({"a":1,"b":[true,0.5,"x",null],"c":"01ff"})");
}

TEST(Batch, CountsRecordsOfEveryGroup) {
  Batch batch;
  batch.groups.resize(2);
  batch.groups[0].logs.resize(3);
  batch.groups[1].logs.resize(2);
  EXPECT_EQ(batch.record_count(), 5u);
  EXPECT_EQ(Batch{}.record_count(), 0u);
}

}  // namespace
}  // namespace lockstep
