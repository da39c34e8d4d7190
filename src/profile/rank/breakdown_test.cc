#include "profile/rank/breakdown.h"

#include <gtest/gtest.h>

#include "profile/rank/roofline.h"
#include "profile/testing/trace_text.h"

namespace lockstep::profile {
namespace {

using testing::read_text;
using testing::TraceText;

struct Broken {
  std::unique_ptr<TraceEvents> events;
  RankIndex index;
  Breakdown breakdown;
};

Broken broken_down(const TraceText& trace, const IndexOptions& options = {}) {
  Broken out;
  out.events = std::make_unique<TraceEvents>(std::move(read_text(trace.text())).value());
  out.index = index_rank(*out.events, options);
  out.breakdown = break_down(out.index);
  return out;
}

// 0    10   20   30   40   50   60
// A....A         B.........B         stream 7: computation
//      N.........N                   stream 20: communication, 5 of it with B
//                               M.M  stream 7: a copy
TraceText by_hand() {
  return TraceText()
      .launched("gemm_a", 7, -20, 0, 10)
      .launched("ncclDevKernel_AllReduce", 20, -10, 10, 20)
      .launched("gemm_b", 7, -5, 25, 20)
      .launched("Memcpy DtoH (Device -> Pinned)", 7, 55, 60, 5, "\"bytes\": 5000, \"memory bandwidth (GB/s)\": 1.0");
}

TEST(Breakdown, SplitsTimeAsByHand) {
  const Broken out = broken_down(by_hand());
  const TimeSplit& time = out.breakdown.time;
  EXPECT_EQ(time.total_ns, 65'000);
  EXPECT_EQ(time.idle_ns(), 15'000);
  EXPECT_EQ(time.of(KernelClass::kCompute), 30'000);
  EXPECT_EQ(time.of(KernelClass::kCommunication), 20'000);
  EXPECT_EQ(time.of(KernelClass::kMemory), 5'000);
  EXPECT_EQ(time.non_compute_ns(), 20'000);
  EXPECT_DOUBLE_EQ(time.overlap(), 0.25);
  EXPECT_EQ(time.exposed_communication_ns(), 15'000);
  EXPECT_EQ(time.alone(KernelClass::kMemory), 5'000);
}

TEST(Breakdown, SaysWhyAStreamWasIdle) {
  const Broken out = broken_down(by_hand());
  ASSERT_EQ(out.breakdown.idle.size(), 2u);
  const IdleRow& compute = out.breakdown.idle[0];
  EXPECT_EQ(compute.stream, 7);
  EXPECT_EQ(compute.kernel_wait_ns, 15'000);  // gemm_b was launched long before, and waited for less than 30 us
  EXPECT_EQ(compute.host_wait_ns, 15'000);    // the copy was launched after gemm_b had ended
  EXPECT_EQ(compute.other_ns, 0);
}

TEST(Breakdown, CountsOverlappingKernelsOfAStreamOnce) {
  const Broken out =
      broken_down(TraceText().launched("a", 7, -9, 0, 100).launched("b", 7, -8, 10, 20).launched("c", 7, -7, 110, 10));
  EXPECT_EQ(out.breakdown.idle[0].total_ns(), 10'000);  // from the end of a, not of b
  EXPECT_EQ(out.breakdown.time.idle_ns(), 10'000);
}

TEST(Breakdown, KeepsStatisticsPerCallHoweverManyNamesThereAre) {
  TraceText trace;
  for (int i = 0; i < 30; ++i) trace.launched(format("other_%d", i), 7, i * 10, i * 10 + 3, 1);
  trace.launched("gemm", 7, 400, 410, 10).launched("gemm", 7, 430, 440, 20).launched("gemm", 7, 470, 480, 30);
  const Broken out = broken_down(trace);
  const KernelRow& gemm = out.breakdown.kernels[0];
  EXPECT_EQ(out.events->texts[gemm.name], "gemm");
  EXPECT_EQ(gemm.count, 3u);
  EXPECT_EQ(gemm.sum_ns, 60'000);
  EXPECT_EQ(gemm.min_ns, 10'000);
  EXPECT_EQ(gemm.max_ns, 30'000);
  EXPECT_DOUBLE_EQ(gemm.mean_ns, 20'000);
  EXPECT_NEAR(gemm.deviation_ns, 10'000, 1e-6);
}

TEST(Breakdown, TakesAGraphLaunchForManyKernels) {
  TraceText trace;
  trace.event("cuda_runtime", "cudaGraphLaunch", 0, 5, "\"correlation\": 7");
  for (int i = 0; i < 4; ++i) trace.kernel("gemm", 7, 10 + i * 3, 2, 7, format("\"graph node id\": %d", i + 1));
  const Broken out = broken_down(trace);
  EXPECT_EQ(out.index.launches, 1u);
  EXPECT_EQ(out.index.graph_launches, 1u);
  EXPECT_EQ(out.index.graph_activities, 4u);
  EXPECT_EQ(out.breakdown.launches.work_ns.sum, 8'000);
  EXPECT_EQ(out.breakdown.launches.delay_ns.sum, 5'000);
  EXPECT_EQ(out.breakdown.queues.at(0).most, 4);
}

TEST(Breakdown, NeverDelaysALaunchByLessThanNothing) {
  const Broken out = broken_down(TraceText().launched("a", 7, 10, 9, 4));  // as CUPTI reports it now and then
  EXPECT_EQ(out.breakdown.launches.delay_ns.sum, 0);
  EXPECT_EQ(out.breakdown.queues.at(0).most, 1);
}

TEST(Breakdown, NamesWhatTheHostDidInAGap) {
  const Broken out = broken_down(TraceText()
                                     .launched("a", 7, 0, 5, 5)
                                     .event("user_annotation", "ProfilerStep#3", 0, 200, "")
                                     .event("user_annotation", "enumerate(DataLoader)#_Iter.__next__", 12, 80, "")
                                     .launched("b", 7, 95, 100, 5)
                                     .launched("c", 7, 111, 114, 5, "", "aten::mm"));
  ASSERT_EQ(out.breakdown.gaps.size(), 2u);
  EXPECT_EQ(out.breakdown.gaps[0].what, "enumerate(DataLoader)#_Iter.__next__");
  EXPECT_TRUE(out.breakdown.gaps[0].is_data_loading);
  EXPECT_EQ(out.breakdown.gaps[0].sum_ns, 90'000);
  EXPECT_EQ(out.index.step_marks, StepMarks::kProfiler);
}

TEST(Breakdown, TakesStepsFromTheOptimizerWhereNothingElseMarksThem) {
  const Broken out = broken_down(TraceText()
                                     .event("cpu_op", "aten::mm", 10, 5, "")
                                     .event("user_annotation", "Optimizer.step#AdamW.step", 100, 10, "")
                                     .event("user_annotation", "Optimizer.step#AdamW.step", 210, 10, ""));
  ASSERT_EQ(out.index.steps.size(), 2u);
  EXPECT_EQ(out.index.step_marks, StepMarks::kOptimizer);
  EXPECT_EQ(out.index.steps[0].start_ns, 10'000);
  EXPECT_EQ(out.index.steps[1].start_ns, 110'000);
  EXPECT_EQ(out.index.steps[1].end_ns, 220'000);
  EXPECT_FALSE(out.index.has_gpu);
  ASSERT_EQ(out.breakdown.kernels.size(), 1u);
  EXPECT_EQ(out.breakdown.kernels[0].sum_ns, 5'000);
}

TEST(Breakdown, AProfileThatBeginsInTheOptimizersCallHasThatManyWholeSteps) {
  const Broken out = broken_down(TraceText()
                                     .event("user_annotation", "Optimizer.step#AdamW.step", 10, 2, "")
                                     .event("user_annotation", "Optimizer.step#AdamW.step", 100, 12, "")
                                     .event("user_annotation", "Optimizer.step#AdamW.step", 200, 12, "")
                                     .event("cpu_op", "aten::mm", 300, 12, ""));
  ASSERT_EQ(out.index.steps.size(), 3u);
  EXPECT_EQ(out.index.steps[0].number, 0);
  EXPECT_EQ(out.index.steps[0].start_ns, 12'000);
  EXPECT_EQ(out.index.steps[0].end_ns, 112'000);
  EXPECT_EQ(out.index.steps[2].start_ns, 212'000);
  EXPECT_EQ(out.index.steps[2].end_ns, 312'000);
}

TEST(KernelTraits, KnowsPrecisionAlignmentAndClassByName) {
  const KernelTraits sgemm = kernel_traits("ampere_sgemm_128x64_tn", EventKind::kKernel);
  EXPECT_EQ(sgemm.precision, Precision::kFp32);
  EXPECT_EQ(sgemm.tensor_cores, TensorCores::kNo);
  const KernelTraits nvjet = kernel_traits("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNT", EventKind::kKernel);
  EXPECT_EQ(nvjet.precision, Precision::kBf16);
  EXPECT_EQ(nvjet.tensor_cores, TensorCores::kYes);
  EXPECT_EQ(nvjet.family, KernelFamily::kGemm);
  EXPECT_EQ(
      kernel_traits("cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x64_tn_align2>", EventKind::kKernel)
          .alignment,
      2);
  EXPECT_EQ(kernel_traits("ncclDevKernel_AllReduce_Sum_f32_RING_LL", EventKind::kKernel).kernel_class,
            KernelClass::kCommunication);
  EXPECT_EQ(kernel_traits("hipMemcpyDtoD", EventKind::kKernel).kernel_class, KernelClass::kMemory);
  EXPECT_EQ(
      kernel_traits("void at::native::reduce_kernel<512, 1, sum_functor::{lambda(float)}>", EventKind::kKernel).family,
      KernelFamily::kReduction);
  EXPECT_EQ(short_kernel_name("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(Params)"),
            "cutlass_80_simt_sgemm_128x32_8x5_nn_align1");
}

TEST(Roofline, CountsAnOperatorsWork) {
  EXPECT_EQ(parse_dims("[[2, 3], [], [[4, 5], [6]]]"), (std::vector<std::vector<int64_t>>{{2, 3}, {}, {26}}));
  const OpWork mm = work_of("aten::mm", "[[64, 32], [32, 16]]", "[\"float\", \"float\"]");
  EXPECT_DOUBLE_EQ(mm.flops, 2.0 * 64 * 32 * 16);
  EXPECT_DOUBLE_EQ(mm.bytes, 4.0 * (64 * 32 + 32 * 16 + 64 * 16));
  const OpWork gelu = work_of("aten::gelu", "[[1024, 8]]", "[\"c10::BFloat16\"]");
  EXPECT_DOUBLE_EQ(gelu.flops, 0);
  EXPECT_DOUBLE_EQ(gelu.bytes, 2.0 * 2 * 1024 * 8);
}

TEST(Roofline, TellsComputeMemoryAndLaunchBoundKernelsApart) {
  const char* kDevice = "\"deviceProperties\": [{\"id\": 0, \"name\": \"NVIDIA H200\"}],";
  // 2 x 8192^3 FLOPs at 989 TFLOP/s are 1,111 us; 2 x 2 x 8192^2 bytes at 4.8 TB/s are 56 us.
  const Broken out =
      broken_down(TraceText(kDevice)
                      .launched("nvjet_tst_big", 7, 10, 20, 1500, "", "aten::mm", "[[8192, 8192], [8192, 8192]]")
                      .launched("vectorized_elementwise_kernel", 7, 30, 1600, 70, "", "aten::gelu", "[[8192, 8192]]")
                      .launched("tiny", 7, 50, 1700, 1, "", "aten::add", "[[8]]")
                      .launched("secret", 7, 60, 1800, 100));
  const std::vector<Roofline> roofs = rooflines(out.index, out.breakdown);
  ASSERT_EQ(roofs.size(), 4u);
  EXPECT_EQ(roofs[0].bound, Bound::kCompute);
  EXPECT_NEAR(roofs[0].share, 1111.0 / 1500, 0.01);
  EXPECT_EQ(roofs[1].bound, Bound::kUnknown);
  EXPECT_STREQ(roofs[1].why, "no shapes in the trace (record_shapes)");
  EXPECT_EQ(roofs[2].bound, Bound::kMemory);
  EXPECT_NEAR(roofs[2].share, 55.9 / 70, 0.01);
  EXPECT_EQ(roofs[3].bound, Bound::kLaunch);
}

}  // namespace
}  // namespace lockstep::profile
