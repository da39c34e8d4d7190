#include "analysis/cost/mfu.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/counters.h"
#include "base/text.h"
#include "store/memory_step_store.h"
#include "store/store_counters.h"
#include "store/testing/memory_metric_reader.h"

namespace lockstep {
namespace {

constexpr double kPeak = 1000e12;

class MfuTest : public ::testing::Test {
 protected:
  // 100 ms: 60 at work, 20 or 30 in communication, 5 input, 5 host, ...
  static StepSummary step(StepNumber number, Rank rank) {
    StepSummary summary;
    summary.step = number;
    summary.start_unix_ns = number.value() * 100'000'000;
    summary.duration_ns = 100'000'000;
    summary.split_known = true;
    const bool last = rank == 0_rank;  // it arrives last, and waits for nobody
    summary.split_ns = {last ? 70'000'000 : 60'000'000, last ? 20'000'000 : 30'000'000, 5'000'000, 5'000'000, 0, 0};
    summary.scalars = {{"flops", 0.4 * kPeak * 0.1}, {"peak_flops", kPeak}, {"tokens", 8192}};
    return summary;
  }
  void play(int64_t steps, const std::function<void(StepSummary&, Rank)>& change = {}) {
    for (StepNumber number = 0_step; number < StepNumber{steps}; ++number) {
      for (Rank rank : all_ranks(4)) {
        StepSummary summary = step(number, rank);
        if (change) change(summary, rank);
        steps_.append_step({"job", 0, rank, 4, rank.value(), "node-0", format("GPU-%d", rank.value())}, summary,
                           number.value());
      }
    }
  }
  Mfu ask(MfuQuery query = {}) { return job_mfu(steps_, metrics_, *steps_.job("job"), verdicts_, query); }
  static double at(const Mfu& mfu, MfuBar bar) { return mfu.points[static_cast<size_t>(bar)]; }
  static void expect_whole(const Mfu& mfu) {
    EXPECT_NEAR(std::accumulate(mfu.points.begin(), mfu.points.end(), mfu.achieved), 1, 1e-9) << mfu.sentence;
  }

  Counters counters_{kStoreCounters};
  MemoryStepStore steps_{{}, counters_};
  MemoryMetricReader metrics_;
  std::vector<Verdict> verdicts_;
};

TEST_F(MfuTest, StepsDownFromThePeakToWhatWasAchieved) {
  play(60);
  const Mfu mfu = ask();
  expect_whole(mfu);
  EXPECT_TRUE(mfu.known);
  EXPECT_NEAR(mfu.achieved, 0.4, 1e-9);
  EXPECT_NEAR(at(mfu, MfuBar::kCommunication), 0.2, 1e-9);
  EXPECT_NEAR(at(mfu, MfuBar::kWaiting), 0.075, 1e-9) << "three of four ranks wait 10 ms";
  EXPECT_NEAR(at(mfu, MfuBar::kInput), 0.05, 1e-9);
  EXPECT_NEAR(at(mfu, MfuBar::kKernels), 0.225, 1e-9);
  EXPECT_FALSE(mfu.clocks_known);
  EXPECT_EQ(at(mfu, MfuBar::kClocks), 0);
  EXPECT_FALSE(mfu.change);
  EXPECT_TRUE(mfu.sentence.starts_with("MFU is 40 %: 2")) << mfu.sentence;
  EXPECT_TRUE(
      mfu.sentence.ends_with("points go to what happens inside the kernels, 20 to communication that nothing "
                             "hides, 7.5 to waiting for other ranks."))
      << mfu.sentence;
  EXPECT_EQ(mfu.peak_from, PeakFrom::kJob);
  EXPECT_NEAR(mfu.peak_flops, kPeak, 1);
}

TEST_F(MfuTest, ClocksBelowTheirHighestAreABarOfTheirOwn) {
  play(60);
  const Mfu mfu = ask({.read_gpu = [](std::string_view, std::string_view gpu, int64_t, int64_t) {
    return std::optional<GpuReading>({.clock_hz = gpu == "GPU-1" ? 1e9 : 2e9, .clock_max_hz = 2e9});
  }});
  expect_whole(mfu);
  EXPECT_TRUE(mfu.clocks_known);
  EXPECT_NEAR(at(mfu, MfuBar::kClocks), 0.625 * 0.125, 1e-9) << "one of four at half its clock, of the time at work";
}

TEST_F(MfuTest, WhatIsNotToldIsUnknownAndNeverHidden) {
  play(60, [](StepSummary& summary, Rank) { summary.scalars.clear(); });
  const Mfu mfu = ask();
  expect_whole(mfu);
  EXPECT_FALSE(mfu.known);
  EXPECT_NEAR(at(mfu, MfuBar::kUnknown), 0.625, 1e-9);
  EXPECT_NE(mfu.sentence.find("reports no FLOPs"), std::string::npos) << mfu.sentence;
}

TEST_F(MfuTest, StepsWithoutASplitAreUnknownBeyondWhatThePhasesSay) {
  play(60, [](StepSummary& summary, Rank) {
    summary.split_known = false;
    summary.phase_ns[static_cast<size_t>(Phase::kInput)] = 10'000'000;
  });
  const Mfu mfu = ask();
  expect_whole(mfu);
  EXPECT_NEAR(mfu.achieved, 0.4, 1e-9);
  EXPECT_NEAR(at(mfu, MfuBar::kInput), 0.1, 1e-9);
  EXPECT_NEAR(at(mfu, MfuBar::kUnknown), 0.5, 1e-9);
}

TEST_F(MfuTest, MoreFlopsThanTheTimeAtWorkAllowsAreSaidToBeSo) {
  play(60, [](StepSummary& summary, Rank) { summary.scalars[0].value *= 2; });
  const Mfu mfu = ask();
  expect_whole(mfu);
  EXPECT_NEAR(mfu.achieved, 0.8, 1e-9);
  EXPECT_NEAR(at(mfu, MfuBar::kUnknown), -0.175, 1e-9);
  EXPECT_NE(mfu.sentence.find("More FLOPs were reported"), std::string::npos) << mfu.sentence;
}

TEST_F(MfuTest, ThePeakComesFromTheJobElseTheServerElseTheName) {
  play(60, [](StepSummary& summary, Rank) {
    std::erase_if(summary.scalars, [](auto& one) { return one.name == "peak_flops"; });
  });
  EXPECT_FALSE(ask().known) << "nobody says what the GPU is";
  EXPECT_NE(ask().sentence.find("--peak-tflops"), std::string::npos);
  metrics_.add({{"__name__", "lockstep_gpu_info"}, {"gpu_uuid", "GPU-1"}, {"model", "NVIDIA H100 80GB HBM3"}}, 1, 1);
  EXPECT_EQ(ask().peak_from, PeakFrom::kTable);
  EXPECT_NEAR(ask().achieved, 0.4 * 1000 / 989.4, 1e-6);
  EXPECT_EQ(ask({.peak_flops = 500e12}).peak_from, PeakFrom::kServer);
  EXPECT_NEAR(ask({.peak_flops = 500e12}).achieved, 0.8, 1e-9);
}

TEST_F(MfuTest, ParametersAndTokensGiveAnEstimate) {
  play(60, [](StepSummary& summary, Rank) {
    summary.scalars = {{"parameters", 1e9}, {"peak_flops", kPeak}, {"tokens", 5000}};
  });
  const Mfu mfu = ask();
  EXPECT_EQ(mfu.flops_from, FlopsFrom::kParameters);
  EXPECT_NEAR(mfu.achieved, 6e9 * 5000 / (kPeak * 0.1), 1e-9);
}

TEST_F(MfuTest, RanksThatTellNoFlopsAreLeftOutWhereOthersTell) {
  play(60, [](StepSummary& summary, Rank rank) {
    if (rank != 0_rank) summary.scalars.clear();
  });
  const Mfu mfu = ask();
  expect_whole(mfu);
  EXPECT_EQ(mfu.ranks_counted, 1);
  EXPECT_NEAR(mfu.achieved, 0.4, 1e-9);
}

TEST_F(MfuTest, AFallIsFoundWithWhatGrewAndWhatChangedThen) {
  play(120, [](StepSummary& summary, Rank) {
    if (summary.step < 70_step) return;
    summary.duration_ns += 25'000'000;
    summary.split_ns[static_cast<size_t>(TimePart::kInput)] += 25'000'000;
  });
  Verdict verdict;
  verdict.id = "v";
  verdict.kind = VerdictKind::kSlow;
  verdict.state = VerdictState::kConfirmed;
  verdict.since_step = 71_step;
  verdict.through_step = 119_step;
  verdict.sentence = "All ranks wait for their input.";
  verdict.culprit.layer = Layer::kInput;
  verdicts_ = {verdict};
  const Mfu mfu = ask();
  expect_whole(mfu);
  ASSERT_TRUE(mfu.change);
  EXPECT_EQ(mfu.change->step, 70_step);
  EXPECT_NEAR(mfu.change->before, 0.4, 1e-9);
  EXPECT_NEAR(mfu.change->after, 0.32, 1e-9);
  EXPECT_NEAR(mfu.change->grew[static_cast<size_t>(MfuBar::kInput)], 0.19, 1e-9);
  EXPECT_EQ(mfu.change->verdict_id, "v");
  EXPECT_EQ(mfu.from_step, 70_step) << "the steps before are another story";
  EXPECT_EQ(mfu.change->sentence, "MFU fell from 40 % to 32 % at step 70: 19 points more go to waiting for input.");
}

TEST_F(MfuTest, FewerTokensAreNamed) {
  play(120, [](StepSummary& summary, Rank) {
    if (summary.step < 70_step) return;
    summary.scalars[0].value *= 0.5;
    summary.scalars[2].value *= 0.5;
  });
  const Mfu mfu = ask();
  ASSERT_TRUE(mfu.change);
  ASSERT_EQ(mfu.change->what.size(), 1u);
  EXPECT_EQ(mfu.change->what[0], "tokens of a step went from 3.28e+04 to 1.64e+04");
}

TEST_F(MfuTest, ClocksThatFellWithItAreNamed) {
  play(120, [](StepSummary& summary, Rank) {
    if (summary.step < 70_step) return;
    summary.duration_ns += 25'000'000;
    summary.split_ns[static_cast<size_t>(TimePart::kCompute)] += 25'000'000;
  });
  const Mfu mfu = ask({.read_gpu = [](std::string_view, std::string_view, int64_t, int64_t) {
    return std::optional<GpuReading>({1.5e9, 2e9, 85, 1.9e9, 65});
  }});
  ASSERT_TRUE(mfu.change);
  ASSERT_EQ(mfu.change->what.size(), 1u);
  EXPECT_EQ(mfu.change->what[0], "SM clocks of 4 of 4 GPUs are lower: 1500 MHz, 1900 before (85 C, 65 before)");
}

TEST(FindFall, NoiseAShortDipAndARiseAreNoFall) {
  std::vector<double> values(60, 0.4);
  for (size_t i = 0; i < values.size(); ++i) values[i] += 0.004 * static_cast<double>(i * 7 % 5);
  EXPECT_FALSE(find_fall(values));
  values[40] = values[41] = 0.2;
  EXPECT_FALSE(find_fall(values));
  for (size_t i = 50; i < 60; ++i) values[i] = 0.6;
  EXPECT_FALSE(find_fall(values));
  for (size_t i = 50; i < 60; ++i) values[i] = 0.3;
  ASSERT_TRUE(find_fall(values));
  EXPECT_EQ(find_fall(values)->at, 50u);
}

}  // namespace
}  // namespace lockstep
