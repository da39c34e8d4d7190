#include "sources/gpu/gpu_readings.h"

#include <gtest/gtest.h>

#include "sources/gpu/gpu_metrics.h"
#include "sources/gpu/gpu_own_metrics.h"

namespace lockstep {
namespace {

GpuSnapshot one_gpu() {
  GpuState gpu;
  gpu.info.uuid = "GPU-7";
  gpu.info.vendor = "nvidia";
  gpu.info.model = "H200";
  gpu.info.pci = "0000:1b:00.0";
  gpu.info.index = 7;
  add_gpu_value(gpu, GpuMetric::kPower, 700);
  add_gpu_value(gpu, GpuMetric::kLinkUp, "3", 1);
  add_gpu_value(gpu, GpuMetric::kLinkReplay, "3", 12);
  GpuSnapshot snapshot;
  snapshot.gpus.push_back(gpu);
  snapshot.notes = {"GPM: no permission"};
  return snapshot;
}

TEST(GpuReadings, CarryTheGpuAndTheRowsOwnLabelAndNothingElse) {
  GpuReadings readings;
  NodeReadings out;
  readings.add(one_gpu(), out);
  ASSERT_EQ(out.readings.size(), 4u);
  EXPECT_EQ(out.readings[0].metric, &own_metric(GpuOwnMetric::kInfo));
  EXPECT_EQ(
      *out.readings[0].labels,
      (Labels{
          {"gpu_uuid", "GPU-7"}, {"vendor", "nvidia"}, {"model", "H200"}, {"pci", "0000:1b:00.0"}, {"index", "7"}}));
  EXPECT_EQ(out.readings[0].value, 1);
  EXPECT_EQ(*out.readings[1].labels, (Labels{{"gpu_uuid", "GPU-7"}}));
  EXPECT_EQ(out.readings[1].value, 700);
  EXPECT_EQ(*out.readings[2].labels, (Labels{{"gpu_uuid", "GPU-7"}, {"link", "3"}}));
  EXPECT_EQ(out.notes, std::vector<std::string>{"gpu: GPM: no permission"});
}

TEST(GpuReadings, MakeEachLabelSetOnce) {
  GpuReadings readings;
  NodeReadings first, second;
  readings.add(one_gpu(), first);
  readings.add(one_gpu(), second);
  for (size_t i = 0; i < first.readings.size(); ++i)
    EXPECT_EQ(first.readings[i].labels.get(), second.readings[i].labels.get()) << i;
}

TEST(GpuReadings, SayAnewWhatAGpuIsWhenThatChanges) {
  GpuReadings readings;
  NodeReadings before, after;
  GpuSnapshot snapshot = one_gpu();
  readings.add(snapshot, before);
  snapshot.gpus[0].info.driver = "570";
  readings.add(snapshot, after);
  EXPECT_EQ(after.readings[0].labels->back(), (std::pair<std::string, std::string>{"driver", "570"}));
  EXPECT_EQ(before.readings[1].labels.get(), after.readings[1].labels.get());
}

TEST(GpuReadings, EveryRowOfTheTableHasAtMostOneLabelOfItsOwn) {
  for (size_t i = 0; i < kGpuMetricCount; ++i) {
    const std::string_view label = second_label(kGpuMetrics[i].labels);
    EXPECT_EQ(label.empty(), kGpuLabelValues[i][0] == '\0') << kGpuMetrics[i].name;
    EXPECT_EQ(label.find(','), std::string_view::npos) << kGpuMetrics[i].name;
  }
}

}  // namespace
}  // namespace lockstep
