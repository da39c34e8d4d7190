#include "analysis/inference.h"

#include <gtest/gtest.h>

#include "store/memory_span_store.h"
#include "store/store_counters.h"
#include "store/testing/memory_metric_reader.h"

namespace lockstep {
namespace {

constexpr int64_t kNow = 1'700'000'000'000'000'000;

class InferenceTest : public ::testing::Test {
 protected:
  void request(double queue_s, double prefill_s, double decode_s, int64_t tokens, const char* service = "chat") {
    Span span;
    span.trace_id[0] = static_cast<uint8_t>(++sent_);
    span.trace_id[1] = static_cast<uint8_t>(sent_ >> 8);
    span.span_id[0] = 1;
    span.name = "llm_request";
    span.start_unix_ns = kNow + sent_;
    span.end_unix_ns = kNow + sent_ + 1'000'000;
    span.attributes = {{"gen_ai.latency.time_in_queue", queue_s},
                       {"gen_ai.latency.time_in_model_prefill", prefill_s},
                       {"gen_ai.latency.time_in_model_decode", decode_s},
                       {"gen_ai.latency.time_to_first_token", queue_s + prefill_s},
                       {"gen_ai.latency.e2e", queue_s + prefill_s + decode_s},
                       {"gen_ai.usage.prompt_tokens", 17},
                       {"gen_ai.usage.completion_tokens", tokens}};
    spans_.append({.resource = {{"service.name", service}}, .spans = {span}}, kNow);
  }
  void sample(const char* name, const char* le, int64_t at_s, double value) {
    Labels labels = {{"__name__", name}, {"service_name", "chat"}};
    if (le[0] != 0) labels.emplace_back("le", le);
    metrics_.add(labels, kNow / 1'000'000 + at_s * 1'000, value);
  }
  InferenceReport report() { return inference_report(spans_, metrics_, "chat", kNow - 1, kNow + 60'000'000'000); }

  Counters counters_{kStoreCounters};
  MemorySpanStore spans_{{}, counters_};
  MemoryMetricReader metrics_;
  int sent_ = 0;
};

TEST_F(InferenceTest, NamesTheQueueWhereTheSlowestWaitInIt) {
  for (int i = 0; i < 99; ++i) request(0.01, 0.09, 2.0, 101);
  request(3.0, 0.1, 2.0, 101);
  request(9.0, 0.1, 2.0, 101, "another");
  InferenceReport found = report();
  EXPECT_EQ(found.source, "spans");
  EXPECT_EQ(found.requests, 100u);
  EXPECT_DOUBLE_EQ(found.ttft_s.p50, 0.1);
  EXPECT_DOUBLE_EQ(found.tpot_s.p50, 0.02);
  EXPECT_DOUBLE_EQ(found.slowest.at(0).queue_s, 3.0);
  EXPECT_EQ(found.slowest.size(), kSlowestShown);
  EXPECT_NE(found.sentence.find("97 % of that time waiting in the queue"), std::string::npos) << found.sentence;
}

TEST_F(InferenceTest, NamesPrefillWhereThatIsLongest) {
  request(0.1, 2.0, 1.0, 2);
  EXPECT_NE(report().sentence.find("in prefill"), std::string::npos) << report().sentence;
}

TEST_F(InferenceTest, WithoutSpansReadsTheHistogramsOfTheWindowOnly) {
  for (auto [le, first, last] : {std::tuple{"0.1", 100.0, 150.0}, {"1.0", 100.0, 190.0}, {"+Inf", 100.0, 200.0}}) {
    sample("vllm:time_to_first_token_seconds_bucket", le, 0, first);
    sample("vllm:time_to_first_token_seconds_bucket", le, 10, last);
  }
  for (auto [name, value] :
       {std::pair{"vllm:time_to_first_token_seconds_sum", 40.0}, {"vllm:time_to_first_token_seconds_count", 100.0}}) {
    sample(name, "", 0, 0);
    sample(name, "", 10, value);
  }
  sample("vllm:num_requests_waiting", "", 10, 12);
  InferenceReport found = report();
  EXPECT_EQ(found.source, "metrics");
  EXPECT_EQ(found.requests, 100u);
  EXPECT_NEAR(found.ttft_s.p50, 0.1, 1e-9);
  EXPECT_NEAR(found.ttft_s.p90, 1.0, 1e-9);
  EXPECT_NEAR(found.ttft_s.mean, 0.4, 1e-9);
  EXPECT_EQ(found.waiting, 12);
  EXPECT_EQ(found.running, -1);
}

TEST_F(InferenceTest, SaysWhatIsMissingWhereAServiceTellsNothing) {
  InferenceReport found = report();
  EXPECT_EQ(found.source, "");
  EXPECT_NE(found.sentence.find("Cannot tell"), std::string::npos);
}

TEST_F(InferenceTest, ListsServicesOfSpansAndMetricsButNotItsOwnAgents) {
  request(0, 0, 0, 1, "router");
  request(0, 0, 0, 1, "lockstep-agent");
  sample("vllm:num_requests_running", "", 1, 3);
  EXPECT_EQ(services_of(spans_, metrics_, 0, kNow + 60'000'000'000), (std::vector<std::string>{"chat", "router"}));
}

}  // namespace
}  // namespace lockstep
