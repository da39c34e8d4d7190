#include "sources/gpu/gpu_metrics.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace lockstep {
namespace {

const MetricDescriptor* by_dcgm_name(const std::string& name) {
  for (const MetricDescriptor& row : kGpuMetrics) {
    if (row.dcgm != nullptr && row.dcgm == name) return &row;
  }
  return nullptr;
}

// Of its 25 the one for XIDs comes from the kernel source, which fuses what the driver and the kernel say.
TEST(GpuMetrics, KnowsTheDefaultCountersOfDcgmExporter) {
  for (const char* name : {"DCGM_FI_DEV_SM_CLOCK",
                           "DCGM_FI_DEV_MEM_CLOCK",
                           "DCGM_FI_DEV_MEMORY_TEMP",
                           "DCGM_FI_DEV_GPU_TEMP",
                           "DCGM_FI_DEV_POWER_USAGE",
                           "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
                           "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
                           "DCGM_FI_DEV_GPU_UTIL",
                           "DCGM_FI_DEV_MEM_COPY_UTIL",
                           "DCGM_FI_DEV_ENC_UTIL",
                           "DCGM_FI_DEV_DEC_UTIL",
                           "DCGM_FI_DEV_FB_FREE",
                           "DCGM_FI_DEV_FB_USED",
                           "DCGM_FI_DEV_FB_RESERVED",
                           "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
                           "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
                           "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
                           "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
                           "DCGM_FI_DEV_ROW_REMAP_FAILURE",
                           "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
                           "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
                           "DCGM_FI_PROF_DRAM_ACTIVE",
                           "DCGM_FI_PROF_PCIE_TX_BYTES",
                           "DCGM_FI_PROF_PCIE_RX_BYTES"}) {
    EXPECT_NE(by_dcgm_name(name), nullptr) << name;
  }
}

TEST(GpuMetrics, ScalesToTheUnitsOfDcgmExporter) {
  EXPECT_DOUBLE_EQ(0.97 * by_dcgm_name("DCGM_FI_DEV_GPU_UTIL")->dcgm_scale, 97);                   // percent
  EXPECT_DOUBLE_EQ(512.0 * 1024 * 1024 * by_dcgm_name("DCGM_FI_DEV_FB_USED")->dcgm_scale, 512);    // MiB
  EXPECT_DOUBLE_EQ(3.5 * by_dcgm_name("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")->dcgm_scale, 3500);  // mJ
  EXPECT_DOUBLE_EQ(1.98e9 * by_dcgm_name("DCGM_FI_DEV_SM_CLOCK")->dcgm_scale, 1980);               // MHz
  EXPECT_DOUBLE_EQ(2.0 * by_dcgm_name("DCGM_FI_DEV_POWER_VIOLATION")->dcgm_scale, 2e9);            // ns
  EXPECT_DOUBLE_EQ(0.5 * by_dcgm_name("DCGM_FI_PROF_SM_ACTIVE")->dcgm_scale, 0.5);                 // ratio
  EXPECT_DOUBLE_EQ(7e6 * by_dcgm_name("DCGM_FI_PROF_PCIE_TX_BYTES")->dcgm_scale, 7e6);             // bytes/s
  EXPECT_DOUBLE_EQ(9e9 * by_dcgm_name("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL")->dcgm_scale, 9000);    // MB/s
}

TEST(GpuMetrics, KeepsRowsOfOneNameTogetherAndAlike) {
  for (size_t i = 0; i < kGpuMetricCount; ++i) {
    for (size_t k = i + 1; k < kGpuMetricCount; ++k) {
      const MetricDescriptor& a = kGpuMetrics[i];
      const MetricDescriptor& b = kGpuMetrics[k];
      if (std::string(a.name) != b.name) continue;
      EXPECT_STREQ(kGpuMetrics[k - 1].name, b.name) << "not neighbours";
      EXPECT_STREQ(a.unit, b.unit) << a.name;
      EXPECT_STREQ(a.labels, b.labels) << a.name;
      EXPECT_STREQ(a.help, b.help) << a.name;
      EXPECT_EQ(a.kind, b.kind) << a.name;
      EXPECT_EQ(a.quantum, b.quantum) << a.name;
      EXPECT_STRNE(kGpuLabelValues[i], kGpuLabelValues[k]) << a.name;
    }
  }
}

TEST(GpuMetrics, GivesEveryDcgmNameOnce) {
  std::set<std::string> names;
  for (const MetricDescriptor& row : kGpuMetrics) {
    if (row.dcgm == nullptr) continue;
    EXPECT_TRUE(names.insert(row.dcgm).second) << row.dcgm;
  }
}

TEST(GpuMetrics, NamesSumsOfOursTotalAndNothingElse) {
  for (const MetricDescriptor& row : kGpuMetrics) {
    const std::string name = row.name;
    if (name.rfind("lockstep_gpu_", 0) != 0) continue;
    EXPECT_EQ(name.ends_with("_total"), row.kind == MetricKind::kSum) << name;
  }
}

TEST(GpuMetrics, FillsInTheLabelOfTheRow) {
  GpuState gpu;
  add_gpu_value(gpu, GpuMetric::kUtilDecoder, 0.25);
  add_gpu_value(gpu, GpuMetric::kLinkUp, "17", 1);
  EXPECT_EQ(gpu.values[0].label, "decoder");
  EXPECT_STREQ(gpu.values[0].metric->labels, "gpu_uuid, hw.gpu.task");
  EXPECT_EQ(gpu.values[1].label, "17");
}

}  // namespace
}  // namespace lockstep
