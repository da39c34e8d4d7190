#include <gtest/gtest.h>

#include <cmath>

#include "profile/analysis.h"
#include "profile/ranks/compare.h"
#include "profile/ranks/perfetto_export.h"
#include "profile/testing/trace_text.h"

namespace lockstep::profile {
namespace {

using testing::analyze_texts;
using testing::TraceText;

struct JobOptions {
  int ranks = 4;
  int steps = 6;
  bool with_seq = true;
  int skipped_on_rank = -1;    // which begins one collective later
  double extra_us = 0;         // of rank 2
  std::string extra = "gemm";  // gemm: in the same kernel; fp32, copy, host
  double hidden_us = 0;        // copies of rank 2 while all ranks communicate for longer than that
  double offset_us = 0;        // of rank r: r times so much
  double drift_ppm = 0;
};

// Ranks that compute 1,000 us a step, meet in an all-reduce of 200 us, and take 50 us more.
std::vector<std::string> job(const JobOptions& options) {
  std::vector<std::string> texts;
  for (int rank = 0; rank < options.ranks; ++rank) {
    TraceText trace(format("\"distributedInfo\": {\"rank\": %d, \"world_size\": %d},", rank, options.ranks));
    const auto clock = [&](double us) { return us + rank * options.offset_us + us * rank * options.drift_ppm * 1e-6; };
    double at = 1000;
    for (int step = 0; step < options.steps; ++step) {
      const bool is_slow = rank == 2 && options.extra_us > 0;
      const double begin = at;
      double start = begin + 20;
      if (is_slow && options.extra == "host") start += options.extra_us;
      const bool is_fp32 = is_slow && options.extra == "fp32";
      const double length = 1000 + (is_slow && (options.extra == "gemm" || is_fp32) ? options.extra_us : 0);
      trace.launched(is_fp32 ? "ampere_sgemm_128x64_tn" : "nvjet_tst_128x256_TNT", 7, clock(start - 10), clock(start),
                     length, "", "aten::mm", "[[8, 8], [8, 8]]");
      double there = start + length;
      if (is_slow && options.extra == "copy") {
        for (int i = 0; i < 5; ++i, there += options.extra_us / 5) {
          trace.launched("Memcpy DtoD (Device -> Device)", 7, clock(start + i), clock(there), options.extra_us / 5,
                         "\"bytes\": 1000");
        }
      }
      const double all_there = begin + 1020 + options.extra_us;
      const double end = (options.extra_us > 0 ? all_there : begin + 1020) + 200 + 2 * options.hidden_us;
      if (rank == 2) {
        for (int i = 0; i < 5 && options.hidden_us > 0; ++i) {
          trace.launched("Memcpy DtoD (Device -> Device)", 7, clock(there + 1 + i),
                         clock(there + 20 + i * options.hidden_us / 5), options.hidden_us / 5, "\"bytes\": 1000");
        }
      }
      if (rank != options.skipped_on_rank || step > 0) {
        trace.launched(
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 20, clock(there - 100), clock(there), clock(end) - clock(there),
            format(
                "\"Collective name\": \"allreduce\", \"Process Group Name\": \"0\", \"dtype\": \"BFloat16\", \"In msg "
                "nelems\": 4096, \"Out msg nelems\": 4096%s",
                options.with_seq ? format(", \"Seq\": %d", step + 10).c_str() : ""));
      }
      trace.launched("multi_tensor_apply_kernel", 7, clock(end - 20), clock(end), 50);
      at = end + 50;
      trace.event("user_annotation", format("ProfilerStep#%d", step), clock(begin), at - begin, "");
    }
    texts.push_back(trace.text());
  }
  return texts;
}

TEST(ProfileRanks, FindsOffsetAndDriftOfClocks) {
  JobOptions options;
  options.steps = 200;
  options.offset_us = 750;
  options.drift_ppm = 15;
  const std::vector<std::string> texts = job(options);
  const Result<ProfileAnalysis> analysis = analyze_texts(texts);
  ASSERT_TRUE(analysis.ok()) << analysis.error();
  EXPECT_EQ(analysis->collectives.matched.size(), 200u);
  EXPECT_EQ(analysis->collectives.by_seq, 200u);
  const ClockAlignment& clocks = analysis->collectives.clocks;
  const RankClock* first = clocks.clock(Rank{0});
  const RankClock* last = clocks.clock(Rank{3});
  ASSERT_NE(last, nullptr);
  EXPECT_TRUE(last->known);
  EXPECT_NEAR(last->drift_ppm - first->drift_ppm, 45, 3);
  // On the common axis a collective ends everywhere at once.
  for (const MatchedCollective& one : analysis->collectives.matched) {
    for (const CollectiveMember& member : one.members) {
      EXPECT_NEAR(static_cast<double>(member.end_ns), static_cast<double>(one.members[0].end_ns), 5'000);
    }
  }
  EXPECT_TRUE(analysis->verdict.ranks.empty());
}

TEST(ProfileRanks, MatchesByOrderWhereAProfileBeginsLater) {
  JobOptions options;
  options.with_seq = false;
  options.skipped_on_rank = 1;
  options.offset_us = 100;
  const std::vector<std::string> texts = job(options);
  const Result<ProfileAnalysis> analysis = analyze_texts(texts);
  ASSERT_TRUE(analysis.ok()) << analysis.error();
  EXPECT_EQ(analysis->collectives.by_order, 6u);
  EXPECT_EQ(analysis->collectives.matched[0].members.size(), 3u);
  EXPECT_EQ(analysis->collectives.matched[1].members.size(), 4u);
  EXPECT_EQ(analysis->collectives.unmatched, 0u);
}

TEST(ProfileRanks, SaysNothingOfRanksThatAreAlike) {
  const std::vector<std::string> texts = job({});
  const Result<ProfileAnalysis> analysis = analyze_texts(texts);
  ASSERT_TRUE(analysis.ok()) << analysis.error();
  EXPECT_TRUE(analysis->verdict.ranks.empty());
  EXPECT_TRUE(analysis->verdict.sentence.starts_with("No rank stands out")) << analysis->verdict.sentence;
}

struct Expected {
  const char* extra;
  Reason reason;
  const char* kernel;
};

TEST(ProfileRanks, NamesTheSlowRankItsKernelAndWhy) {
  for (const Expected& one : {Expected{"gemm", Reason::kSlowerKernel, "nvjet_tst_128x256_TNT"},
                              Expected{"fp32", Reason::kPrecision, "ampere_sgemm_128x64_tn"},
                              Expected{"copy", Reason::kExtraCopies, "Memcpy DtoD (Device -> Device)"},
                              Expected{"host", Reason::kHost, ""}}) {
    JobOptions options;
    options.extra_us = 300;
    options.extra = one.extra;
    options.offset_us = 900;  // more than what is looked for
    const std::vector<std::string> texts = job(options);
    const Result<ProfileAnalysis> analysis = analyze_texts(texts);
    ASSERT_TRUE(analysis.ok()) << analysis.error();
    EXPECT_EQ(analysis->verdict.ranks, std::vector<Rank>{Rank{2}}) << one.extra;
    EXPECT_EQ(analysis->verdict.reason, one.reason) << analysis->verdict.sentence;
    EXPECT_EQ(analysis->verdict.kernel, one.kernel) << analysis->verdict.sentence;
    const std::string json = analysis_json(*analysis);
    EXPECT_NE(json.find("\"by_family_us\":{"), std::string::npos);
    EXPECT_NE(json.find("\"peers_us_per_step\":"), std::string::npos);
    EXPECT_NEAR(static_cast<double>(analysis->verdict.cost_ns), 300e3, 60e3) << analysis->verdict.sentence;
  }
}

TEST(ProfileRanks, NamesARankThatComputesMoreBehindCommunicationWithoutBlamingIt) {
  JobOptions options;
  options.hidden_us = 400;
  const std::vector<std::string> texts = job(options);
  const Result<ProfileAnalysis> analysis = analyze_texts(texts);
  ASSERT_TRUE(analysis.ok()) << analysis.error();
  const ProfileVerdict& verdict = analysis->verdict;
  EXPECT_TRUE(verdict.ranks.empty()) << verdict.sentence;
  EXPECT_EQ(verdict.reason, Reason::kCommunication) << verdict.sentence;
  ASSERT_TRUE(verdict.hidden.has_value()) << verdict.sentence;
  EXPECT_EQ(verdict.hidden->rank, 2_rank);
  EXPECT_EQ(verdict.hidden->reason, Reason::kExtraCopies);
  EXPECT_NEAR(static_cast<double>(verdict.hidden->extra_ns), 400e3, 40e3);
  EXPECT_NE(verdict.sentence.find(
                "Hidden behind that: rank 2 computes 400 us a step more than the others, mostly in Memcpy DtoD"),
            std::string::npos)
      << verdict.sentence;
  EXPECT_NE(analysis_json(*analysis).find("\"hidden\":{\"rank\":2,\"reason\":\"extra_copies\""), std::string::npos);
  options.hidden_us = 100;  // within what ranks differ by
  const std::vector<std::string> less = job(options);
  EXPECT_FALSE(analyze_texts(less)->verdict.hidden.has_value());
}

TEST(ProfileRanks, FollowsTheCriticalPathToTheSlowRank) {
  JobOptions options;
  options.extra_us = 300;
  options.offset_us = 900;
  const std::vector<std::string> texts = job(options);
  const Result<ProfileAnalysis> analysis = analyze_texts(texts);
  ASSERT_TRUE(analysis.ok()) << analysis.error();
  const CriticalPath& path = analysis->path;
  // Six steps of 20 us of host, 1,300 of its gemm, 200 of the all-reduce, 50 of the optimizer; the first 10 us come before
  // the first launch.
  EXPECT_NEAR(static_cast<double>(path.total_ns), 6 * 1570e3, 40e3);
  EXPECT_NEAR(static_cast<double>(path.by_class_ns[static_cast<size_t>(PathClass::kCompute)]), 6 * 1350e3, 20e3);
  EXPECT_NEAR(static_cast<double>(path.by_class_ns[static_cast<size_t>(PathClass::kCommunication)]), 6 * 200e3, 20e3);
  EXPECT_GT(path.by_rank_ns[2], path.total_ns * 8 / 10);
  for (size_t i = 1; i < path.parts.size(); ++i) EXPECT_EQ(path.parts[i].start_ns, path.parts[i - 1].end_ns);
}

TEST(ProfileRanks, ComparesRunsPerStepAndRefusesWhatCannotBeCompared) {
  JobOptions slower;
  slower.extra_us = 300;
  slower.steps = 4;
  const std::vector<std::string> before_texts = job({}), after_texts = job(slower);
  const Result<ProfileAnalysis> before = analyze_texts(before_texts), after = analyze_texts(after_texts);
  ASSERT_TRUE(before.ok() && after.ok());
  const ProfileComparison comparison = compare(*before, *after);
  EXPECT_TRUE(comparison.is_comparable());
  EXPECT_NEAR(comparison.change(), 300.0 / 1270, 0.01);
  EXPECT_EQ(comparison.kernels[0].name, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL");  // where most ranks see it
  EXPECT_NEAR(compare(*before, *before).change(), 0, 1e-9);
  JobOptions larger;
  larger.ranks = 8;
  const std::vector<std::string> larger_texts = job(larger);
  const Result<ProfileAnalysis> other = analyze_texts(larger_texts);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(compare(*before, *other).not_comparable, std::vector<std::string>{"4 ranks, then 8"});
}

TEST(ProfileRanks, DrawsEveryRankOnOneAxisForPerfetto) {
  const std::vector<std::string> texts = job({});
  const Result<ProfileAnalysis> analysis = analyze_texts(texts);
  ASSERT_TRUE(analysis.ok());
  std::string file;
  const Result<PerfettoCounts> counts = write_perfetto(*analysis, [&](std::string_view piece) -> Result<void> {
    file += piece;
    return {};
  });
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(counts->bytes, file.size());
  EXPECT_EQ(counts->arrows, 6u);
  EXPECT_EQ(counts->slices, 4u * (6 + 6 * 3 + 6 * (3 + 1 + 1)));  // steps, kernels; calls, an operator, an annotation
  EXPECT_EQ(file[0], '\x0a');
  EXPECT_NE(file.find("GPU 0 stream 20"), std::string::npos);
  EXPECT_FALSE(write_perfetto(*analysis, [](std::string_view) { return Result<void>(Error{"disk full"}); }).ok());
}

TEST(ProfileRanks, LeavesOutWhatCannotBeReadAndSaysSo) {
  std::vector<std::string> texts = job({});
  texts[1] = "{\"nodes\": []}";
  texts[3].resize(texts[3].size() / 2);
  const Result<ProfileAnalysis> analysis = analyze_texts(texts);
  ASSERT_TRUE(analysis.ok()) << analysis.error();
  EXPECT_EQ(analysis->ranks.size(), 3u);
  ASSERT_EQ(analysis->notes.size(), 4u);
  EXPECT_EQ(analysis->notes[0], "rank-1.json: has no traceEvents: no kernel trace");
  EXPECT_EQ(analysis->notes[3], "traces of 3 of 4 ranks: a rank that is not here cannot be named");
  EXPECT_FALSE(analyze_texts({"{}"}).ok());
}

}  // namespace
}  // namespace lockstep::profile
