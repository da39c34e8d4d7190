#include "analysis/cost/gpu_peak.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(GpuPeak, KnowsGpusByTheNameThatTheDriverGives) {
  ASSERT_TRUE(gpu_peak("NVIDIA H100 80GB HBM3"));
  EXPECT_DOUBLE_EQ(gpu_peak("NVIDIA H100 80GB HBM3")->flops, 989.4e12);
  EXPECT_EQ(gpu_peak("NVIDIA H100 80GB HBM3")->source, "NVIDIA H100 data sheet (SXM)");
  EXPECT_DOUBLE_EQ(gpu_peak("NVIDIA H200")->flops, 989.4e12);
  EXPECT_DOUBLE_EQ(gpu_peak("NVIDIA A100-SXM4-80GB")->flops, 312e12);
  EXPECT_DOUBLE_EQ(gpu_peak("AMD Instinct MI300X OAM", "fp8")->flops, 2614.9e12);
}

TEST(GpuPeak, TheFirstRowThatFitsCountsSoThatVariantsAreNotMixedUp) {
  EXPECT_DOUBLE_EQ(gpu_peak("NVIDIA H100 PCIe")->flops, 756.5e12);
  EXPECT_DOUBLE_EQ(gpu_peak("NVIDIA H200 NVL")->flops, 836e12);
  EXPECT_DOUBLE_EQ(gpu_peak("NVIDIA H20")->flops, 148e12);
}

TEST(GpuPeak, GuessesNothingForAGpuThatItDoesNotKnow) {
  EXPECT_FALSE(gpu_peak("NVIDIA GB300"));
  EXPECT_FALSE(gpu_peak("NVIDIA GH200 480GB"));
  EXPECT_FALSE(gpu_peak("NVIDIA GeForce GT 710"));
  EXPECT_FALSE(gpu_peak("NVIDIA A100-SXM4-80GB", "fp4"));
  EXPECT_FALSE(gpu_peak(""));
}

}  // namespace
}  // namespace lockstep
