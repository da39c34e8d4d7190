#include "profile/ranks/compare.h"

#include <gtest/gtest.h>

#include "profile/testing/trace_text.h"

namespace lockstep::profile {
namespace {

using testing::analyze_texts;
using testing::TraceText;

struct RunOptions {
  int ranks = 2;
  int steps = 4;
  int tokens = 512;       // the first operand of every call
  double wide_us = 300;   // the kernel on its wide shape; on its narrow one it is 200
  double jitter_us = 0;   // more of that in every second step
  double loading_us = 0;  // before a step
  std::string versions;   // members of the trace
  bool with_shapes = true;
};

// A step: one kernel on two shapes, an all-reduce of 50 us.
Result<ProfileAnalysis> run(const RunOptions& options) {
  std::vector<std::string> texts;
  for (int rank = 0; rank < options.ranks; ++rank) {
    TraceText trace(format("\"distributedInfo\": {\"rank\": %d, \"world_size\": %d, \"nccl_version\": \"2.27.3\"}, %s",
                           rank, options.ranks, options.versions.c_str()));
    double at = 1000;
    for (int step = 0; step < options.steps; ++step) {
      const double begin = at;
      if (options.loading_us > 0) {
        trace.event("user_annotation", "enumerate(DataLoader)#__next__", at, options.loading_us, "");
      }
      at += options.loading_us;
      const auto gemm = [&](double us, int width) {
        trace.launched("nvjet_tst_128x256_TNT", 7, at, at + 10, us, "", options.with_shapes ? "aten::mm" : "",
                       format("[[%d, 1024], [1024, %d]]", options.tokens, width));
        at += 10 + us;
      };
      gemm(200, 1024);
      gemm(options.wide_us + (step % 2 == 0 ? 0 : options.jitter_us), 4096);
      trace.launched("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 20, at - 10, at, 50,
                     format("\"Collective name\": \"allreduce\", \"Process Group Name\": \"0\", \"dtype\": "
                            "\"BFloat16\", \"In msg nelems\": 4096, \"Out msg nelems\": 4096, \"Seq\": %d",
                            step));
      at += 60;
      trace.event("user_annotation", format("ProfilerStep#%d", step), begin, at - begin, "");
    }
    texts.push_back(trace.text());
  }
  return analyze_texts(texts);
}

ProfileComparison compared(const RunOptions& before, const RunOptions& after, Unlike unlike = Unlike::kRefused) {
  const Result<ProfileAnalysis> one = run(before), other = run(after);
  if (!one.ok() || !other.ok()) std::abort();
  return compare(summarize(*one), summarize(*other), unlike);
}

std::string why_not(const RunOptions& after) {
  const ProfileComparison comparison = compared({}, after);
  return comparison.is_comparable() ? "" : comparison.not_comparable.front();
}

TEST(ProfileCompare, TellsApartCallsOfAKernelThatDifferOnlyByTheirShape) {
  const ProfileComparison comparison = compared({}, {.wide_us = 450});
  ASSERT_TRUE(comparison.is_comparable()) << comparison.not_comparable.front();
  const KernelDelta& kernel = comparison.kernels.front();
  EXPECT_EQ(kernel.name, "nvjet_tst_128x256_TNT");
  EXPECT_EQ(kernel.before_count, 2);
  ASSERT_EQ(kernel.shapes.size(), 2u);
  EXPECT_EQ(kernel.shapes[0].shape, "[[512, 1024], [1024, 4096]]");
  EXPECT_NEAR(kernel.shapes[0].extra_ns(), 150e3, 1);
  EXPECT_EQ(kernel.shapes[0].after_count, 1);
  EXPECT_NEAR(kernel.shapes[1].extra_ns(), 0, 1);
  EXPECT_NE(comparison.sentence.find("most of it in nvjet_tst_128x256_TNT on [[512, 1024], [1024, 4096]]"),
            std::string::npos)
      << comparison.sentence;
  const KernelDelta& collective = comparison.kernels.back();
  EXPECT_EQ(collective.shapes.at(0).shape, "4096 x BFloat16");
  EXPECT_NE(
      comparison_json(comparison).find("\"shapes\":[{\"shape\":\"[[512, 1024], [1024, 4096]]\",\"us_before\":300"),
      std::string::npos);
}

TEST(ProfileCompare, ComparesIdleTimeByItsCauseAndSaysWhereItIsMostOfTheChange) {
  const ProfileComparison comparison = compared({.loading_us = 40}, {.loading_us = 240});
  const Difference& loading = comparison.gap_causes[static_cast<size_t>(GapCause::kDataLoading)];
  EXPECT_GT(loading.extra_ns(), 100e3) << comparison_json(comparison);
  EXPECT_EQ(comparison.gaps.front().cause, GapCause::kDataLoading);
  EXPECT_NEAR(comparison.gaps.front().before_count, comparison.gaps.front().after_count, 0.01);
  EXPECT_NE(comparison.sentence.find("most of it in gaps while the host is in enumerate(DataLoader)"),
            std::string::npos)
      << comparison.sentence;
}

TEST(ProfileCompare, SaysWhereAChangeMayBeChance) {
  EXPECT_FALSE(compared({}, {.wide_us = 320}).is_within_noise());
  const ProfileComparison noisy = compared({.jitter_us = 100}, {.wide_us = 320, .jitter_us = 100});
  EXPECT_GT(noisy.change(), 0.02);
  EXPECT_TRUE(noisy.is_within_noise());
  EXPECT_TRUE(noisy.sentence.ends_with("which is within the noise of its steps.")) << noisy.sentence;
}

TEST(ProfileCompare, RefusesRunsWhoseDifferenceWouldNotBeTheProgramsAndSaysWhy) {
  EXPECT_EQ(why_not({}), "");
  EXPECT_EQ(why_not({.steps = 20}), "");
  EXPECT_EQ(why_not({.ranks = 4}), "2 ranks, then 4");
  EXPECT_EQ(why_not({.tokens = 1024}).substr(0, 63), "other shapes: the same calls get 2.00 times the work by their s");
  EXPECT_EQ(why_not({.tokens = 513}), "");
  EXPECT_EQ(why_not({.steps = 0}), "nothing ran in the traces of the second run");
  EXPECT_EQ(why_not({.tokens = 1024, .with_shapes = false}), "");  // nothing says so
}

TEST(ProfileCompare, OtherReleasesOfLibrariesAreNotComparableAndTheirFixesAreANote) {
  const RunOptions before{.versions =
                              "\"cuda_runtime_version\": 12080, \"cuda_driver_version\": 12080, "
                              "\"pytorch_version\": \"2.6.0+cu128\","};
  const auto against = [&](const char* versions) { return compared(before, {.versions = versions}); };
  EXPECT_EQ(against("\"cuda_runtime_version\": 12060,").not_comparable,
            std::vector<std::string>{"other versions: CUDA 12.8, then 12.6"});
  EXPECT_EQ(against("\"pytorch_version\": \"2.7.0\",").not_comparable,
            std::vector<std::string>{"other versions: PyTorch 2.6.0+cu128, then 2.7.0"});
  EXPECT_EQ(against("\"pytorch_version\": \"2.6.1\",").notes,
            std::vector<std::string>{"PyTorch 2.6.0+cu128, then 2.6.1"});
  EXPECT_EQ(against("\"cuda_driver_version\": 13000,").notes, std::vector<std::string>{"CUDA driver 12.8, then 13.0"});
  EXPECT_TRUE(against("\"cuda_runtime_version\": \"none\", \"pytorch_version\": [],").is_comparable());
}

TEST(ProfileCompare, ComparesAllTheSameWhereItIsAskedForAndStillSaysWhatSpeaksAgainstIt) {
  const ProfileComparison comparison = compared({}, {.tokens = 1024, .wide_us = 600}, Unlike::kCompared);
  EXPECT_FALSE(comparison.is_comparable());
  EXPECT_TRUE(comparison.sentence.starts_with("Compared although it is not comparable. A step takes "))
      << comparison.sentence;
}

}  // namespace
}  // namespace lockstep::profile
