#include "sources/gpu/gpu_metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "model/metric_aliases.h"
#include "model/prometheus_name.h"

namespace lockstep {
namespace {

TEST(GpuMetrics, EveryAliasOfAGpuMetricNamesARowOfOurs) {
  for (const MetricAlias& alias : metric_aliases()) {
    if (alias.tool != MetricTool::kDcgm || std::string(alias.ours) == "lockstep_gpu_xid_last") continue;
    int rows = 0;
    for (size_t i = 0; i < kGpuMetricCount; ++i) {
      const MetricDescriptor& row = kGpuMetrics[i];
      const NameKind kind = row.kind == MetricKind::kSum ? NameKind::kCounter : NameKind::kGauge;
      const std::string labels = std::string("gpu_uuid") + (alias.label[0] == '\0' ? "" : ", ") + alias.label;
      if (prometheus_name(row.name, row.unit, kind) != alias.ours || kGpuLabelValues[i] != std::string(alias.value))
        continue;
      std::string named = row.labels;
      std::replace(named.begin(), named.end(), '.', '_');
      EXPECT_EQ(named, labels) << alias.other;
      ++rows;
    }
    EXPECT_EQ(rows, 1) << alias.other << ": " << alias.ours << " " << alias.value;
  }
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
