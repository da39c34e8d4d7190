#include "diagnosis/sequential/shift_monitor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "diagnosis/sequential/testing.h"

namespace lockstep {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// One job: noise of a kind, with a shift of one stream between two steps.
struct Job {
  Job(const NoiseKind& kind, size_t streams, uint64_t seed, double scale = NoiseSource::kScale)
      : source(kind, streams, seed, scale), values(streams) {
    sure = threshold_nats(kConfirmedPerJobHour, static_cast<double>(streams), 3600);
    monitor.hold_at(sure);
  }
  void play(int64_t steps, size_t culprit = 0, double shift = 0) {
    for (int64_t i = 0; i < steps; ++i) {
      source.draw(values);
      values[culprit] += static_cast<float>(shift);
      monitor.add_step(StepNumber{step++}, values);
    }
  }
  // Steps until the culprit is told.
  int64_t steps_until_sure(size_t culprit, double shift, int64_t most) {
    for (int64_t i = 1; i <= most; ++i) {
      play(1, culprit, shift);
      if (monitor.evidence_nats(culprit) >= sure) return i;
    }
    return most + 1;
  }
  size_t told() const {
    size_t count = 0;
    for (size_t i = 0; i < monitor.streams(); ++i) count += monitor.evidence_nats(i) >= sure ? 1 : 0;
    return count;
  }

  NoiseSource source;
  ShiftMonitor monitor{{}};
  std::vector<float> values;
  int64_t step = 0;
  double sure = 0;
};

const NoiseKind& normal_noise() {
  return noise_kinds()[0];
}

TEST(ShiftMonitor, AThresholdIsTheLogarithmOfHowManyValuesMayPassPerFalseAlarm) {
  EXPECT_NEAR(threshold_nats(1.0 / 1000, 1024, 3600), std::log(1024 * 3600 * 1000.0), 1e-9);
  EXPECT_GT(threshold_nats(1.0 / 1000, 1024, 3600), threshold_nats(1.0 / 10, 1024, 3600));
  // Ten times the streams cost as much as ten times the hours, and little.
  EXPECT_NEAR(threshold_nats(1, 10'240, 60) - threshold_nats(1, 1'024, 60), std::log(10), 1e-9);
}

TEST(ShiftMonitor, FindsSmallShiftsLaterThanLargeOnesAndAllOfThem) {
  struct Wanted {
    double shift;
    int64_t steps;
  };
  for (const Wanted& wanted : {Wanted{0.02, 60}, Wanted{0.04, 20}, Wanted{0.08, 6}, Wanted{0.20, 4}}) {
    int late = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      Job job(normal_noise(), 64, seed);
      job.play(40);
      late += job.steps_until_sure(seed, wanted.shift, wanted.steps) > wanted.steps ? 1 : 0;
      EXPECT_LE(job.told(), 1u) << "seed " << seed;
    }
    EXPECT_LE(late, 1) << wanted.shift;
  }
}

TEST(ShiftMonitor, FindsEightPercentInAnyNoiseOfThreeTimesTheUsual) {
  for (const NoiseKind& kind : noise_kinds()) {
    Job job(kind, 64, 5, 3 * NoiseSource::kScale);
    job.play(60);
    EXPECT_LE(job.steps_until_sure(17, 0.08, 60), 40) << kind.name;
    EXPECT_EQ(job.told(), 1u) << kind.name;
  }
}

TEST(ShiftMonitor, TellsFalselyNoOftenerThanStatedWhateverTheNoise) {
  // Stated: one in a thousand steps of the job. Of this many young and old jobs' steps, ten; measured are one or two.
  constexpr size_t kStreams = 32;
  constexpr double kStatedSteps = 1000;
  const double threshold = std::log(kStatedSteps * kStreams);
  for (const NoiseKind& kind : noise_kinds()) {
    int alarms = 0;
    int64_t steps = 0;
    for (int64_t length : {60, 60, 60, 60, 60, 60, 60, 60, 60, 60, 2000}) {
      Job job(kind, kStreams, static_cast<uint64_t>(steps + 7));
      for (int64_t i = 0; i < length; ++i, ++steps) {
        job.play(1);
        for (size_t stream = 0; stream < kStreams; ++stream) {
          if (job.monitor.evidence_nats(stream) < threshold) continue;
          ++alarms;
          job.monitor.forget(stream);
        }
      }
    }
    EXPECT_LE(alarms, 2 * static_cast<double>(steps) / kStatedSteps) << kind.name;
  }
}

TEST(ShiftMonitor, SaysHowLargeAShiftIsAndSinceWhen) {
  int near = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Job job(normal_noise(), 64, seed);
    job.play(80);
    job.play(20, 9, 0.05);
    const ShiftEstimate estimate = job.monitor.estimate(9);
    EXPECT_FALSE(estimate.lasting);
    EXPECT_NEAR(estimate.begin_step.value(), 80, 2) << seed;
    EXPECT_NEAR(static_cast<double>(estimate.steps), 20, 2) << seed;
    EXPECT_GT(estimate.error, 0.001);
    EXPECT_LT(estimate.error, 0.004);
    near += std::abs(estimate.size - 0.05) <= 2 * estimate.error ? 1 : 0;
  }
  EXPECT_GE(near, 18);
}

TEST(ShiftMonitor, EvidenceFallsWhenTheShiftIsOver) {
  Job job(normal_noise(), 64, 3);
  job.play(60);
  job.play(300, 9, 0.04);
  EXPECT_GE(job.monitor.evidence_nats(9), job.sure) << "what it has become is not what it was";
  EXPECT_NEAR(job.monitor.baseline(9), 0, 0.005);
  job.play(12);
  EXPECT_LT(job.monitor.evidence_nats(9), job.sure);
  job.play(20);
  EXPECT_LT(job.monitor.evidence_nats(9), 10);
}

TEST(ShiftMonitor, LastingDifferencesAreToldOnlyBeyondWhatIsUsual) {
  Job job(normal_noise(), 64, 4);
  for (int i = 0; i < 100; ++i) {
    job.source.draw(job.values);
    job.values[3] += 0.03f;
    job.values[5] += 0.09f;
    job.monitor.add_step(StepNumber{i}, job.values);
  }
  EXPECT_LT(job.monitor.evidence_nats(3), job.sure);
  EXPECT_GE(job.monitor.evidence_nats(5), job.sure);
  EXPECT_NEAR(job.monitor.estimate(5).size, 0.09, 0.01);
  EXPECT_TRUE(job.monitor.estimate(5).lasting);
}

TEST(ShiftMonitor, OneWildValueProvesNothing) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Job job(normal_noise(), 64, seed);
    job.play(30);
    job.play(1, 9, 5.0);  // five steps long
    EXPECT_LT(job.monitor.evidence_nats(9), job.sure);
    job.play(5);
    EXPECT_LT(job.monitor.evidence_nats(9), 10);
    EXPECT_NEAR(job.monitor.baseline(9), 0, 0.006);
  }
}

TEST(ShiftMonitor, AStepInWhichAllSpreadTellsOfNobody) {
  Job job(normal_noise(), 64, 6);
  job.play(50);
  for (int i = 0; i < 3; ++i) {  // an evaluation: everybody ten times as far apart as usual
    job.source.draw(job.values);
    for (float& value : job.values) value *= 10;
    job.monitor.add_step(StepNumber{job.step++}, job.values);
  }
  job.play(10);
  EXPECT_EQ(job.told(), 0u);
}

TEST(ShiftMonitor, NoiseThatGrowsForAllIsLearnedNotTold) {
  Job job(normal_noise(), 64, 8);
  job.play(100);
  for (int i = 0; i < 100; ++i) {
    job.source.draw(job.values);
    for (float& value : job.values) value *= 3;
    job.monitor.add_step(StepNumber{job.step++}, job.values);
    EXPECT_EQ(job.told(), 0u) << i;
  }
  EXPECT_NEAR(job.monitor.noise().scale, 3 * NoiseSource::kScale, 0.004);
}

TEST(ShiftMonitor, WhatIsNotKnownNeitherAccusesNorExcuses) {
  Job job(normal_noise(), 16, 9);
  job.play(40);
  job.play(8, 2, 0.06);
  const double before = job.monitor.evidence_nats(2);
  EXPECT_GT(before, job.sure);
  for (int i = 0; i < 20; ++i) {
    job.source.draw(job.values);
    job.values[2] = static_cast<float>(kNan);
    job.monitor.add_step(StepNumber{job.step++}, job.values);
  }
  EXPECT_EQ(job.monitor.evidence_nats(2), before);
  EXPECT_EQ(job.told(), 1u);
  std::fill(job.values.begin(), job.values.end(), static_cast<float>(kNan));
  job.monitor.add_step(StepNumber{job.step++}, job.values);
  EXPECT_EQ(job.monitor.evidence_nats(2), before);
}

TEST(ShiftMonitor, LearnsTheNoiseAsItIs) {
  Job normal(normal_noise(), 64, 10);
  normal.play(200);
  EXPECT_NEAR(normal.monitor.noise().scale, 0.008, 0.0008);
  EXPECT_NEAR(normal.monitor.noise().correlation, 0, 0.1);
  EXPECT_GE(normal.monitor.noise().freedom, 7);
  Job heavy(noise_kinds()[1], 64, 10);
  heavy.play(200);
  EXPECT_EQ(heavy.monitor.noise().freedom, 3);
  EXPECT_GT(heavy.monitor.noise().tail_share, 0.002);
  Job correlated(noise_kinds()[3], 64, 10);
  correlated.play(200);
  EXPECT_NEAR(correlated.monitor.noise().correlation, 0.5, 0.1);
  EXPECT_NEAR(correlated.monitor.scale(0), 0.008, 0.002);
}

TEST(ShiftMonitor, SaysNothingBeforeItKnowsTheNoise) {
  Job job(normal_noise(), 8, 11);
  job.play(ShiftMonitor::kFirstValues - 1, 3, 0.5);
  EXPECT_LT(job.monitor.evidence_nats(3), 0);
  ShiftMonitor constant{{}};  // values that never differ have no noise; the least shift bounds what is believed of it
  std::vector<float> values(8, 0.0f);
  for (int i = 0; i < 50; ++i) constant.add_step(StepNumber{i}, values);
  values[1] = 0.002f;
  for (int i = 50; i < 100; ++i) constant.add_step(StepNumber{i}, values);
  EXPECT_LT(constant.evidence_nats(1), 10) << "a fifth of the least shift";
}

// Starts of jobs: two steps of warm-up, then others.
struct Start : Job {
  Start(const NoiseKind& kind, size_t streams, uint64_t seed, double scale = NoiseSource::kScale)
      : Job(kind, streams, seed, scale),
        suspect(threshold_nats(kSuspectedPerJobHour, static_cast<double>(streams), 3600)) {
    monitor.set_head_start(3600);
  }
  void play_first(size_t culprit, float shift, size_t culprits = 1) {
    source.draw(values);
    for (size_t i = 0; i < culprits; ++i) values[culprit + i] += shift;
    if (step++ < 2) {
      monitor.add_warm_up(values);
    } else {
      monitor.add_step(StepNumber{step}, values);
    }
  }
  double suspect;
};

TEST(ShiftMonitor, WhoStandsApartFromItsSiblingsIsToldInTheFirstSteps) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Start start(normal_noise(), 24, seed);
    for (int i = 0; i < 2; ++i) start.play_first(7, 0.25f);
    EXPECT_GE(start.monitor.evidence_nats(7), start.suspect) << seed;
    for (int i = 0; i < 2; ++i) start.play_first(7, 0.25f);
    EXPECT_GE(start.monitor.evidence_nats(7), start.sure) << seed;
    EXPECT_EQ(start.told(), 1u) << seed;
    const ShiftEstimate estimate = start.monitor.estimate(7);
    EXPECT_TRUE(estimate.lasting);
    EXPECT_NEAR(estimate.size, 0.25, 0.03);
    for (int i = 0; i < 30; ++i) start.play_first(7, 0.25f);
    EXPECT_GE(start.monitor.evidence_nats(7), start.sure) << "and when it has a past";
    EXPECT_EQ(start.told(), 1u) << seed;
  }
}

TEST(ShiftMonitor, AThirdOfTheSiblingsMayStandApart) {
  Start start(normal_noise(), 24, 3);
  for (int i = 0; i < 5; ++i) start.play_first(8, 0.3f, 8);
  EXPECT_EQ(start.told(), 8u);
}

TEST(ShiftMonitor, WhatTheFirstStepsBringAndTakeAwayIsNotToldAndNeitherIsWhatTakesNearlyAllOfThem) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Start compiling(normal_noise(), 8, seed), loading(normal_noise(), 8, seed);
    for (float size : {0.7f, 0.3f, 0.1f, 0.0f, 0.0f, 0.0f}) {
      compiling.play_first(3, size);
      EXPECT_LT(compiling.monitor.evidence_nats(3), compiling.suspect) << seed;
      loading.play_first(3, size > 0 ? 0.95f : 0);
      EXPECT_LT(loading.monitor.evidence_nats(3), loading.suspect) << seed;
    }
  }
}

TEST(ShiftMonitor, HealthyStartsAreToldOfNoOftenerThanStated) {
  // Stated is one in ten hours; a start counts as one.
  for (const NoiseKind& kind : noise_kinds()) {
    int suspected = 0, sure = 0;
    constexpr int kStarts = 400;
    for (uint64_t seed = 1; seed <= kStarts; ++seed) {
      Start start(kind, seed % 2 == 0 ? 8 : 24, seed, seed % 3 == 0 ? 6 * NoiseSource::kScale : NoiseSource::kScale);
      bool is_suspected = false, is_sure = false;
      for (int i = 0; i < 12; ++i) {
        start.play_first(0, 0);
        for (size_t stream = 0; stream < start.values.size(); ++stream) {
          is_suspected |= start.monitor.evidence_nats(stream) >= start.suspect;
          is_sure |= start.monitor.evidence_nats(stream) >= start.sure;
        }
      }
      suspected += is_suspected ? 1 : 0;
      sure += is_sure ? 1 : 0;
    }
    EXPECT_LE(suspected, kStarts / 10) << kind.name;
    EXPECT_LE(sure, 1) << kind.name;
  }
}

TEST(ShiftMonitor, WhoOnlyStandsInTheShadowOfAnotherIsNotTold) {
  for (double shadow : {0.0, 0.25}) {
    Job job(normal_noise(), 32, 13);
    job.monitor = ShiftMonitor({.shadow = shadow});
    job.monitor.hold_at(job.sure);
    job.play(50);
    for (int i = 0; i < 30; ++i) {
      job.source.draw(job.values);
      job.values[3] += 0.4f;   // slow,
      job.values[4] += 0.04f;  // waits for it and is measured as slow,
      job.values[5] -= 0.04f;  // or as quick,
      job.values[6] += 0.3f;   // or is slow itself
      job.monitor.add_step(StepNumber{job.step++}, job.values);
    }
    EXPECT_GE(job.monitor.evidence_nats(3), job.sure);
    EXPECT_GE(job.monitor.evidence_nats(6), job.sure);
    EXPECT_EQ(job.monitor.evidence_nats(4) >= job.sure, shadow == 0);
    if (shadow == 0) continue;
    EXPECT_NEAR(job.monitor.baseline(5), 0, 0.005);
    job.play(30);  // over: who was measured as quick is what it was
    EXPECT_EQ(job.told(), 0u);
  }
}

// Load that is routed now here, now there: a wave of less than the noise of a step, which lasts for tens of them.
TEST(ShiftMonitor, SlowWavesBelowTheNoiseMakeAllEvidenceWorthLess) {
  Job waves(normal_noise(), 12, 21), calm(normal_noise(), 12, 22);
  size_t told = 0;
  for (int i = 0; i < 3000; ++i) {
    waves.source.draw(waves.values);
    for (size_t stream = 0; stream < waves.values.size(); ++stream)
      waves.values[stream] +=
          static_cast<float>(0.9 * NoiseSource::kScale * std::sin(0.12 * i + 0.5 * static_cast<double>(stream)));
    waves.monitor.add_step(StepNumber{waves.step++}, waves.values);
    told += waves.told();
  }
  EXPECT_EQ(told, 0u);
  EXPECT_GT(waves.monitor.noise().long_run, 1.5);  // beyond what is taken for correlation
  calm.play(3000);
  EXPECT_LT(calm.monitor.noise().long_run, 1.05);
}

// What is not known of the correlation is taken for it: where it takes long to be known small jobs are blind.
TEST(ShiftMonitor, KnowsTheCorrelationOfAFewStreamsAfterAFewStepsAndFindsAShiftOfFourScales) {
  for (uint64_t seed : {31u, 32u, 33u}) {
    Job job(normal_noise(), 5, seed, 0.02);
    job.play(40);
    EXPECT_LT(job.monitor.noise().correlation, 0.25) << seed;
    EXPECT_LE(job.steps_until_sure(2, 0.08, 60), 14) << seed;
  }
}

// Own time minus the median of few: one of them is at exactly zero in every step.
TEST(ShiftMonitor, TheMedianOfFewIsNotTakenForCorrelation) {
  Job job(normal_noise(), 5, 23);
  for (int i = 0; i < 200; ++i) {
    job.source.draw(job.values);
    std::vector<float> sorted = job.values;
    std::nth_element(sorted.begin(), sorted.begin() + 2, sorted.end());
    const float middle = sorted[2];
    for (float& value : job.values) value -= middle;
    job.monitor.add_step(StepNumber{job.step++}, job.values);
  }
  EXPECT_LT(job.monitor.noise().correlation, 0.3);
}

TEST(ShiftMonitor, FindsOneOfEightThousand) {
  Job job(normal_noise(), 8192, 12);
  job.play(20);
  EXPECT_LE(job.steps_until_sure(4113, 0.08, 10), 5);
  EXPECT_EQ(job.told(), 1u);
}

}  // namespace
}  // namespace lockstep
