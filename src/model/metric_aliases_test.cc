#include "model/metric_aliases.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/files.h"
#include "base/text.h"

namespace lockstep {
namespace {

TEST(MetricAliases, EveryNameOfOthersStandsInOneRowAndIsFound) {
  std::set<std::string> names;
  for (const MetricAlias& row : metric_aliases()) {
    EXPECT_TRUE(names.insert(row.other).second) << row.other;
    EXPECT_TRUE(may_be_other_name(row.other)) << row.other;
    EXPECT_EQ(alias_of_other(row.other), &row);
    EXPECT_GT(row.scale, 0) << row.other;
    EXPECT_EQ(row.label[0] == '\0', row.value[0] == '\0') << row.other;
    bool found = false;
    for (const MetricAlias* one : aliases_of_ours(row.ours)) found |= one == &row;
    EXPECT_TRUE(found) << row.ours;
  }
  EXPECT_EQ(alias_of_other("DCGM_FI_DEV_NO_SUCH_FIELD"), nullptr);
  EXPECT_EQ(alias_of_other("up"), nullptr);
  EXPECT_TRUE(aliases_of_ours("up").empty());
}

TEST(MetricAliases, OneSeriesOfOursHasOneNameAtATool) {
  std::set<std::string> series;
  for (const MetricAlias& row : metric_aliases()) {
    const std::string key = std::string(to_text(row.tool)) + " " + row.ours + " " + row.label + "=" + row.value;
    EXPECT_TRUE(series.insert(key).second) << key;
  }
}

TEST(MetricAliases, ScalesToTheUnitsOfOthers) {
  const auto theirs = [](const char* name, double ours) { return ours * alias_of_other(name)->scale; };
  EXPECT_DOUBLE_EQ(theirs("DCGM_FI_DEV_GPU_UTIL", 0.97), 97);                   // percent
  EXPECT_DOUBLE_EQ(theirs("DCGM_FI_DEV_FB_USED", 512.0 * 1024 * 1024), 512);    // MiB
  EXPECT_DOUBLE_EQ(theirs("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 3.5), 3500);  // mJ
  EXPECT_DOUBLE_EQ(theirs("DCGM_FI_DEV_SM_CLOCK", 1.98e9), 1980);               // MHz
  EXPECT_DOUBLE_EQ(theirs("DCGM_FI_DEV_POWER_VIOLATION", 2), 2e9);              // ns
  EXPECT_DOUBLE_EQ(theirs("DCGM_FI_PROF_SM_ACTIVE", 0.5), 0.5);                 // ratio
  EXPECT_DOUBLE_EQ(theirs("DCGM_FI_PROF_PCIE_TX_BYTES", 7e6), 7e6);             // bytes/s
  EXPECT_DOUBLE_EQ(theirs("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", 9e9), 9000);    // MB/s
  EXPECT_DOUBLE_EQ(theirs("nccl_bus_bandwidth_gbs", 40e9), 40);                 // GB/s
}

TEST(MetricAliases, ThePageHasEveryRow) {
  const Result<std::string> page = read_file(LOCKSTEP_METRIC_NAMES_PAGE, 1 << 20);
  ASSERT_TRUE(page.ok()) << page.error();
  std::string table = "| tool | its name | ours | theirs is ours times |\n|---|---|---|---|\n";
  for (const MetricAlias& row : metric_aliases()) {
    const std::string label = row.label[0] == '\0' ? "" : format("{%s=\"%s\"}", row.label, row.value);
    table += format("| %s | `%s` | `%s%s` | %g |\n", to_text(row.tool), row.other, row.ours, label.c_str(), row.scale);
  }
  EXPECT_TRUE(page->ends_with(table)) << "the table of docs/guide/metric-names.md is to be:\n" << table;
}

// Of its 25 the one for XIDs comes from the kernel source, which fuses what the driver and the kernel say.
TEST(MetricAliases, KnowTheDefaultCountersOfDcgmExporter) {
  for (const char* name : {"SM_CLOCK",
                           "MEM_CLOCK",
                           "MEMORY_TEMP",
                           "GPU_TEMP",
                           "POWER_USAGE",
                           "TOTAL_ENERGY_CONSUMPTION",
                           "PCIE_REPLAY_COUNTER",
                           "GPU_UTIL",
                           "MEM_COPY_UTIL",
                           "ENC_UTIL",
                           "DEC_UTIL",
                           "XID_ERRORS",
                           "FB_FREE",
                           "FB_USED",
                           "FB_RESERVED",
                           "NVLINK_BANDWIDTH_TOTAL",
                           "VGPU_LICENSE_STATUS",
                           "UNCORRECTABLE_REMAPPED_ROWS",
                           "CORRECTABLE_REMAPPED_ROWS",
                           "ROW_REMAP_FAILURE"})
    EXPECT_NE(alias_of_other(std::string("DCGM_FI_DEV_") + name), nullptr) << name;
  for (const char* name : {"GR_ENGINE_ACTIVE", "PIPE_TENSOR_ACTIVE", "DRAM_ACTIVE", "PCIE_TX_BYTES", "PCIE_RX_BYTES"})
    EXPECT_NE(alias_of_other(std::string("DCGM_FI_PROF_") + name), nullptr) << name;
}

}  // namespace
}  // namespace lockstep
