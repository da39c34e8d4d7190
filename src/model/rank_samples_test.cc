#include "model/rank_samples.h"

#include <gtest/gtest.h>

#include "base/text.h"

namespace lockstep {
namespace {

RankSamples two_threads() {
  RankSamples samples{.time_unix_ns = 7, .duration_ms = 5000, .looks = 500, .hz = 100, .pid = 41, .version = "3.11.2"};
  samples.whole = 900;
  samples.cut = 90;
  samples.dropped = 10;
  samples.threads = {{.role = ThreadRole::kMain,
                      .pid = 41,
                      .tid = 41,
                      .name = "python3",
                      .state = 'R',
                      .looks = 500,
                      .running = 400,
                      .with_gil = 300,
                      .cpu_ms = 4100},
                     {.role = ThreadRole::kWorker,
                      .pid = 50,
                      .tid = 50,
                      .name = "pt_data_worker",
                      .state = 'S',
                      .wchan = "pipe_read",
                      .looks = 490}};
  samples.frames = {{"load", "/job/loader.py", 12}, {"main", "/job/train.py", 80}};
  samples.stacks = {{.thread = 0, .frames = {0, 1}, .count = 400, .running = 390},
                    {.thread = 1, .frames = {0}, .count = 490}};
  return samples;
}

TEST(RankSamples, TravelAsAnEventAndComeBackTheSame) {
  RankSamples samples = two_threads();
  samples.note = "its process ended meanwhile";
  Result<RankSamples> back = rank_samples_from_record(to_record(samples));
  ASSERT_TRUE(back.ok()) << back.error();
  EXPECT_EQ(*back, samples);
}

TEST(RankSamples, AnEventThatPointsOutsideItsTablesIsRefused) {
  for (auto spoil : std::vector<void (*)(RankSamples&)>{
           [](RankSamples& s) { s.stacks[0].frames[1] = 2; }, [](RankSamples& s) { s.stacks[1].thread = 2; },
           [](RankSamples& s) { s.stacks[1].count = -1; }, [](RankSamples& s) { s.threads[0].tid = -2; },
           [](RankSamples& s) { s.frames[0].line = -1; },
           [](RankSamples& s) { s.stacks.resize(kSampleStacksMax + 1); }}) {
    RankSamples samples = two_threads();
    spoil(samples);
    EXPECT_FALSE(rank_samples_from_record(to_record(samples)).ok());
  }
}

TEST(RankSamples, TheRarestStacksAreLeftOutAndCounted) {
  RankSamples samples = two_threads();
  samples.stacks.clear();
  samples.frames.clear();
  for (uint32_t i = 0; i < 3000; ++i) {
    samples.frames.push_back({format("function_%u", i), "/job/" + std::string(100, 'x') + ".py", 1});
    samples.stacks.push_back({.thread = i % 2, .frames = {i, i, i / 2}, .count = i + 1});
  }
  fit(samples);
  EXPECT_LE(samples.stacks.size(), kSampleStacksMax);
  EXPECT_EQ(samples.stacks[0].count, 3000);
  int64_t kept = 0;
  for (const CountedStack& stack : samples.stacks) kept += stack.count;
  EXPECT_EQ(kept + samples.left_out, 3000 * 3001 / 2);
  EXPECT_TRUE(rank_samples_from_record(to_record(samples)).ok());
}

}  // namespace
}  // namespace lockstep
