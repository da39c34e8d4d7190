#include "analysis/cost/gpu_pricing.h"

#include <gtest/gtest.h>

#include "base/counters.h"
#include "base/text.h"
#include "store/memory_step_store.h"
#include "store/store_counters.h"
#include "store/testing/memory_metric_reader.h"
#include "testing/fake_clock.h"

namespace lockstep {
namespace {

constexpr double kHour = 3600;

GpuPrices prices_of(const char* text) {
  const Result<GpuPrices> prices = GpuPrices::parse(text);
  EXPECT_TRUE(prices.ok()) << text;
  return *prices;
}

TEST(GpuPrices, ReadsPricesByModelAndRefusesWhatIsNone) {
  const GpuPrices prices = prices_of("H100=2.5,A100=1.8,1.2");
  EXPECT_DOUBLE_EQ(prices.of("NVIDIA H100 80GB HBM3"), 2.5);
  EXPECT_DOUBLE_EQ(prices.of("NVIDIA L4"), 1.2);
  EXPECT_DOUBLE_EQ(prices_of("2.5").of(""), 2.5);
  EXPECT_FALSE(GpuPrices::parse("H100=much").ok());
  EXPECT_FALSE(GpuPrices::parse("-1").ok());
}

TEST(GpuPrices, AJobOfTwoModelsPaysForEachItsOwn) {
  const GpuCost cost = prices_of("H100=3,A100=1").cost(8 * kHour, {{"NVIDIA A100", 6}, {"NVIDIA H100", 2}});
  EXPECT_DOUBLE_EQ(cost.money, 2 * 3 + 6 * 1);
  EXPECT_DOUBLE_EQ(cost.price(), 1.5);
  EXPECT_EQ(money_text(cost), "12.00 at 1.00 to 3.00 a GPU-hour");
}

TEST(GpuPrices, WhatHasNoPriceIsNamedAndNotCountedAsNothing) {
  const GpuPrices prices = prices_of("H100=3");
  const GpuCost part = prices.cost(8 * kHour, {{"NVIDIA H100", 2}, {"NVIDIA L4", 5}, {"", 1}});
  EXPECT_DOUBLE_EQ(part.priced_gpu_seconds, 2 * kHour);
  EXPECT_EQ(money_text(part),
            "6.00 at 3.00 a GPU-hour, and 6.0 GPU-hours without a price (GPUs of unknown model, NVIDIA L4)");
  const GpuCost none = prices.cost(kHour, {{"NVIDIA L4", 5}});
  EXPECT_FALSE(none.has_price());
  EXPECT_EQ(money_text(none), "no price for NVIDIA L4");
  EXPECT_EQ(money_text(prices.cost(kHour, {})), "no price for GPUs of unknown model");
  EXPECT_EQ(money_text(GpuPrices().cost(kHour, {{"NVIDIA L4", 5}})), "") << "no money is asked for at all";
}

TEST(GpuPrices, CostsOfJobsAddUp) {
  const GpuPrices prices = prices_of("H100=3,A100=1");
  GpuCost sum;
  for (const char* model : {"NVIDIA L4", "NVIDIA H100", "NVIDIA A100"}) sum += prices.cost(kHour, {{model, 4}});
  EXPECT_EQ(money_text(sum), "4.00 at 1.00 to 3.00 a GPU-hour, and 1.0 GPU-hours without a price (NVIDIA L4)");
  EXPECT_DOUBLE_EQ(sum.gpu_seconds, 3 * kHour);
}

// Counts what is asked.
struct AskedReader final : MemoryMetricReader {
  Result<std::unique_ptr<MetricSelection>> select(std::span<const LabelMatcher> matchers,
                                                  const SelectOptions& options) const override {
    ++asked;
    asked_of_all_time += options.from_ms == 0 ? 1 : 0;
    return MemoryMetricReader::select(matchers, options);
  }
  mutable int asked = 0, asked_of_all_time = 0;
};

class GpuPricingTest : public ::testing::Test {
 protected:
  void rank(int32_t rank, const std::string& gpu_uuid, int64_t attempt = 0) {
    steps_.append_step({.job_id = "train",
                        .attempt = attempt,
                        .rank = Rank{rank},
                        .world_size = 4,
                        .host = "node-1",
                        .gpu_uuid = gpu_uuid},
                       {.step = 1_step}, clock_.unix_ns());
  }
  void rank(int32_t one) { rank(one, format("GPU-%d", one)); }
  void gpu(int32_t index, const char* model, const char* host = "node-1", int64_t ago_ms = 0) {
    metrics_.add(
        {{"__name__", "lockstep_gpu_info"}, {"gpu_uuid", format("GPU-%d", index)}, {"host", host}, {"model", model}},
        clock_.unix_ms() - ago_ms, 1);
  }

  testing::FakeClock clock_;
  Counters counters_{kStoreCounters};
  MemoryStepStore steps_{{}, counters_};
  AskedReader metrics_;
};

TEST_F(GpuPricingTest, AJobCostsWhatItsGpusCostEvenWhereOneOfThemIsReportedLate) {
  const GpuPricing pricing(prices_of("H100=3,A100=1"), steps_, metrics_, clock_);
  EXPECT_EQ(money_text(pricing.cost_of("train", kHour)), "no price for GPUs of unknown model");
  for (int32_t i = 0; i < 4; ++i) rank(i);
  gpu(0, "NVIDIA H100 80GB HBM3");
  gpu(1, "NVIDIA H100 80GB HBM3");
  gpu(2, "NVIDIA A100-SXM4-80GB");
  gpu(9, "NVIDIA L4");  // another job's
  clock_.advance(GpuPricing::kRetryNs);
  EXPECT_EQ(pricing.gpus_of("train"),
            (GpusByModel{{"", 1}, {"NVIDIA A100-SXM4-80GB", 1}, {"NVIDIA H100 80GB HBM3", 2}}));
  gpu(3, "NVIDIA A100-SXM4-80GB");
  clock_.advance(GpuPricing::kKeptNs);
  EXPECT_EQ(money_text(pricing.cost_of("train", 4 * kHour)), "8.00 at 1.00 to 3.00 a GPU-hour");
}

TEST_F(GpuPricingTest, AJobAskedForBeforeItsAgentsReportedHasItsPriceSecondsLaterNotAMinute) {
  const GpuPricing pricing(prices_of("H100=2.5"), steps_, metrics_, clock_);
  rank(0);
  EXPECT_EQ(money_text(pricing.cost_of("train", kHour)), "no price for GPUs of unknown model");
  clock_.advance(1'000'000'000);
  gpu(0, "NVIDIA H100 80GB HBM3");
  clock_.advance(GpuPricing::kRetryNs);
  EXPECT_EQ(money_text(pricing.cost_of("train", kHour)), "2.50 at 2.50 a GPU-hour");
}

TEST_F(GpuPricingTest, AnAttemptIsNeverPricedByTheGpusOfAnother) {
  const GpuPricing pricing(prices_of("H100=3,A100=1"), steps_, metrics_, clock_);
  gpu(0, "NVIDIA H100");
  gpu(1, "NVIDIA A100");
  rank(0, "GPU-0", 1);
  EXPECT_EQ(pricing.gpus_of("train", 1), (GpusByModel{{"NVIDIA H100", 1}}));
  EXPECT_TRUE(pricing.gpus_of("train", 2).empty()) << "it has not begun";
  rank(1, "GPU-1", 2);
  EXPECT_EQ(pricing.gpus_of("train", 2), (GpusByModel{{"NVIDIA A100", 1}})) << "at once, though the first is kept";
  EXPECT_TRUE(pricing.gpus_of("train", 1).empty()) << "it is over";
  EXPECT_EQ(pricing.gpus_of("train"), (GpusByModel{{"NVIDIA A100", 1}}));
}

TEST_F(GpuPricingTest, OnePriceForAllAsksNobodyForModels) {
  rank(0);
  for (const GpuPrices& prices : {GpuPrices(2), GpuPrices()}) {
    const GpuPricing pricing(prices, steps_, metrics_, clock_);
    EXPECT_EQ(money_text(pricing.cost_of("unheard-of", kHour)), prices.known() ? "2.00 at 2.00 a GPU-hour" : "");
    EXPECT_TRUE(pricing.gpus_of("train").empty());
  }
  EXPECT_EQ(metrics_.asked, 0);
}

TEST_F(GpuPricingTest, AJobWithGpusThatNobodyReportsDoesNotHaveAllHistoryReadAgainAndAgain) {
  const GpuPricing pricing(prices_of("H100=3"), steps_, metrics_, clock_);
  rank(0, "");
  rank(1, "GPU-gone");
  rank(2);
  gpu(2, "NVIDIA H100", "node-1", 30 * 86'400'000LL);
  for (int second = 0; second < 600; second += 5) {
    EXPECT_EQ(pricing.gpus_of("train"), (GpusByModel{{"", 2}, {"NVIDIA H100", 1}}));
    clock_.advance(5'000'000'000);
  }
  EXPECT_EQ(metrics_.asked_of_all_time, 1);
  EXPECT_LE(metrics_.asked, 16) << "soon at first, then once a minute";
  EXPECT_EQ(pricing.models()->size(), 1u);
  EXPECT_EQ(metrics_.asked_of_all_time, 1);
}

TEST_F(GpuPricingTest, RanksWithoutAGpuAskForNoHistoryAtAll) {
  const GpuPricing pricing(prices_of("H100=3"), steps_, metrics_, clock_);
  rank(0, "");
  EXPECT_EQ(pricing.gpus_of("train"), (GpusByModel{{"", 1}}));
  EXPECT_EQ(metrics_.asked_of_all_time, 0);
}

TEST_F(GpuPricingTest, AGpuIsOfTheModelThatWasReportedLastWhateverTheOrderOfItsSeries) {
  gpu(0, "NVIDIA H100", "a");
  gpu(0, "NVIDIA A100", "b", 60'000);
  gpu(1, "NVIDIA A100", "a", 60'000);
  gpu(1, "NVIDIA H100", "b");
  const Result<GpuModels> models = gpu_models(metrics_, 0);
  ASSERT_TRUE(models.ok());
  for (const char* gpu_uuid : {"GPU-0", "GPU-1"}) {
    EXPECT_EQ(models->at(gpu_uuid), "NVIDIA H100");
    EXPECT_EQ(gpu_model(metrics_, gpu_uuid), "NVIDIA H100");
  }
}

}  // namespace
}  // namespace lockstep
