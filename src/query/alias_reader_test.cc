#include "query/alias_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "store/testing/memory_metric_reader.h"

namespace lockstep {
namespace {

using LabelList = MemoryMetricReader::LabelList;
constexpr LabelMatcher::Op kEqual = LabelMatcher::Op::kEqual, kRegex = LabelMatcher::Op::kRegex;

class AliasReaderTest : public ::testing::Test {
 protected:
  // Two GPUs of an agent, and what they are.
  AliasReaderTest() {
    for (const char* index : {"0", "1"}) {
      const std::string gpu = std::string("GPU-") + index;
      store_.add({{"__name__", "lockstep_gpu_info"},
                  {"host", "node-1"},
                  {"gpu_uuid", gpu},
                  {"index", index},
                  {"model", "NVIDIA H100"},
                  {"pci", "0000:1b:00.0"},
                  {"driver", "580.1"}},
                 1000, 1);
      for (const char* task : {"general", "encoder"})
        store_.add(
            {{"__name__", "hw_gpu_utilization_ratio"}, {"host", "node-1"}, {"gpu_uuid", gpu}, {"hw_gpu_task", task}},
            1000, task[0] == 'g' ? 0.75 : 0.25);
    }
  }
  // Text of the labels -> values.
  std::map<std::string, std::vector<double>> ask(std::vector<LabelMatcher> matchers, SelectOptions options = {}) {
    options.to_ms = options.to_ms == 0 ? 10'000 : options.to_ms;
    Result<std::unique_ptr<MetricSelection>> found = reader_.select(matchers, options);
    EXPECT_TRUE(found.ok()) << found.error();
    std::map<std::string, std::vector<double>> all;
    if (!found.ok()) return all;
    SampleColumns columns;
    for (size_t i = 0; i < (*found)->size(); ++i) {
      std::string text, before;
      for (const LabelSymbols& label : (*found)->labels(i)) {
        const std::string name((*found)->text(label.name));
        EXPECT_LT(before, name) << "labels are sorted, each once";
        before = name;
        text += name + "=" + std::string((*found)->text(label.value)) + " ";
      }
      EXPECT_TRUE((*found)->samples(i, 0, options.to_ms, columns).ok());
      EXPECT_FALSE(all.contains(text)) << text;
      all[text] = columns.values;
    }
    return all;
  }
  static LabelMatcher name(const char* value, LabelMatcher::Op op = kEqual) { return {"__name__", op, value}; }

  MemoryMetricReader store_;
  AliasReader reader_{store_};
};

TEST_F(AliasReaderTest, AnswersDcgmExportersNameFromOurAgentInItsLabelsAndUnits) {
  const auto found = ask({name("DCGM_FI_DEV_GPU_UTIL"), {"gpu", kEqual, "1"}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found.begin()->first,
            "DCGM_FI_DRIVER_VERSION=580.1 Hostname=node-1 UUID=GPU-1 __name__=DCGM_FI_DEV_GPU_UTIL device=nvidia1 "
            "gpu=1 instance=node-1 modelName=NVIDIA H100 pci_bus_id=00000000:1B:00.0 ");
  EXPECT_EQ(found.begin()->second, std::vector<double>{75});
  EXPECT_EQ(ask({name("DCGM_FI_DEV_GPU_UTIL"), {"instance", kRegex, "node.*"}}).size(), 2u);
  EXPECT_TRUE(ask({name("DCGM_FI_DEV_GPU_UTIL"), {"UUID", kEqual, "GPU-7"}}).empty());
  EXPECT_TRUE(ask({name("DCGM_FI_DEV_GPU_TEMP")}).empty()) << "no series of ours";
}

TEST_F(AliasReaderTest, WhatWasScrapedUnderTheNameWinsForItsGpu) {
  store_.add({{"__name__", "DCGM_FI_DEV_GPU_UTIL"}, {"UUID", "GPU-1"}, {"Hostname", "node-1"}, {"gpu", "1"}}, 1000, 33);
  const auto found = ask({name("DCGM_FI_DEV_GPU_UTIL")});
  ASSERT_EQ(found.size(), 2u);
  std::vector<double> values;
  for (const auto& [labels, samples] : found) values.push_back(samples[0]);
  std::sort(values.begin(), values.end());
  EXPECT_EQ(values, (std::vector<double>{33, 75}));
}

TEST_F(AliasReaderTest, PortsOfSwitchesComeFromSnmpAndOpenConfigWhereTheyDoNotReportThemselves) {
  store_.add({{"__name__", "ifHCInOctets"}, {"instance", "leaf1"}, {"ifName", "Ethernet1"}}, 1000, 70);
  store_.add({{"__name__", "ifHighSpeed"}, {"instance", "leaf1"}, {"ifName", "Ethernet1"}}, 1000, 400'000);
  store_.add({{"__name__", "interfaces_interface_state_counters_out_octets"},
              {"source", "leaf2"},
              {"interface_name", "Ethernet2"}},
             1000, 80);
  store_.add({{"__name__", "ifHCInOctets"}, {"instance", "leaf3"}, {"ifName", "Ethernet3"}}, 1000, 90);
  store_.add(
      {{"__name__", "lockstep_port_bytes_total"}, {"switch", "leaf3"}, {"port", "Ethernet3"}, {"direction", "in"}},
      1000, 91);
  const std::map<std::string, std::vector<double>> bytes = {
      {"__name__=lockstep_port_bytes_total direction=in port=Ethernet1 switch=leaf1 ", {70}},
      {"__name__=lockstep_port_bytes_total direction=out port=Ethernet2 switch=leaf2 ", {80}},
      {"__name__=lockstep_port_bytes_total direction=in port=Ethernet3 switch=leaf3 ", {91}}};
  EXPECT_EQ(ask({name("lockstep_port_bytes_total")}), bytes);
  const auto speed = ask({name("lockstep_port_speed_bytes_per_second")});
  ASSERT_EQ(speed.size(), 1u);
  EXPECT_DOUBLE_EQ(speed.begin()->second.at(0), 50e9);
}

TEST_F(AliasReaderTest, AnswersOurNameFromAnExporterInOurLabelsAndUnits) {
  store_.add({{"__name__", "DCGM_FI_DEV_GPU_UTIL"}, {"UUID", "GPU-9"}, {"Hostname", "node-2"}, {"gpu", "3"}}, 1000, 50);
  store_.add({{"__name__", "DCGM_FI_DEV_GPU_UTIL"}, {"UUID", "GPU-1"}, {"Hostname", "node-1"}, {"gpu", "1"}}, 1000, 33);
  store_.add({{"__name__", "DCGM_FI_DEV_SM_CLOCK"}, {"UUID", "GPU-9"}, {"Hostname", "node-2"}}, 1000, 1980);
  const auto all = ask({name("hw_gpu_utilization_ratio"), {"hw_gpu_task", kEqual, "general"}});
  EXPECT_EQ(all.size(), 3u) << "GPU-1 once: the agent's own";
  const auto found = ask({name("hw_gpu_utilization_ratio"), {"host", kEqual, "node-2"}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found.begin()->first,
            "__name__=hw_gpu_utilization_ratio gpu=3 gpu_uuid=GPU-9 host=node-2 hw_gpu_task=general ");
  EXPECT_EQ(found.begin()->second, std::vector<double>{0.5});
  EXPECT_EQ(ask({name("lockstep_gpu_clock_hertz"), {"clock", kEqual, "sm"}}).begin()->second,
            std::vector<double>{1980e6});
}

TEST_F(AliasReaderTest, StaleMarkersAndCountsAreNotScaled) {
  const double stale = std::bit_cast<double>(kStaleBits);
  store_.add({{"__name__", "hw_power_watts"}, {"host", "node-1"}, {"gpu_uuid", "GPU-0"}}, 1000, 300);
  store_.add(
      {{"__name__", "hw_gpu_utilization_ratio"}, {"host", "node-1"}, {"gpu_uuid", "GPU-0"}, {"hw_gpu_task", "general"}},
      2000, stale);
  const auto found = ask({name("DCGM_FI_DEV_GPU_UTIL"), {"UUID", kEqual, "GPU-0"}});
  ASSERT_EQ(found.begin()->second.size(), 2u);
  EXPECT_TRUE(is_stale(found.begin()->second[1]));
  EXPECT_EQ(ask({name("DCGM_FI_DEV_GPU_UTIL"), {"gpu", kEqual, "1"}}, {.rollup = Rollup::kCount}).begin()->second[0],
            0.75)
      << "as the store answers";
}

TEST_F(AliasReaderTest, ListsANameOfOthersOnlyWhereASeriesOfOursIsThere) {
  const auto names = *reader_.label_values("__name__", {}, 0, 10'000);
  const auto has = [&](const char* one) { return std::find(names.begin(), names.end(), one) != names.end(); };
  EXPECT_TRUE(has("DCGM_FI_DEV_GPU_UTIL"));
  EXPECT_TRUE(has("DCGM_FI_DEV_ENC_UTIL"));
  EXPECT_FALSE(has("DCGM_FI_DEV_DEC_UTIL")) << "ours is there, but not for decoders";
  EXPECT_FALSE(has("DCGM_FI_DEV_GPU_TEMP"));
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  // As Grafana fills the variables of a dashboard.
  const std::vector<std::vector<LabelMatcher>> util = {{name("DCGM_FI_DEV_GPU_UTIL")}};
  EXPECT_EQ(*reader_.label_values("gpu", util, 0, 10'000), (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(*reader_.label_values("instance", util, 0, 10'000), std::vector<std::string>{"node-1"});
  const auto labels = *reader_.label_names(util, 0, 10'000);
  EXPECT_TRUE(std::find(labels.begin(), labels.end(), "modelName") != labels.end());
  EXPECT_EQ(ask({name("DCGM_FI_DEV_.*", kRegex)}).size(), 4u);
}

TEST_F(AliasReaderTest, OtherNamesAreTheStoresAlone) {
  EXPECT_EQ(ask({name("lockstep_gpu_info")}).size(), 2u);
  EXPECT_EQ(ask({name(".*", kRegex), {"host", kEqual, "node-1"}}).size(), 6u) << "nothing twice";
  EXPECT_EQ(*reader_.label_values("host", {}, 0, 10'000), *store_.label_values("host", {}, 0, 10'000));
}

TEST_F(AliasReaderTest, NamesOfNcclToolsAnswerFromOurCollectives) {
  store_.add({{"__name__", "lockstep_collective_bus_bandwidth"},
              {"host", "node-1"},
              {"gpu_uuid", "GPU-0"},
              {"job_id", "7"},
              {"rank", "0"},
              {"function", "AllReduce"},
              {"comm_size", "16"}},
             1000, 40e9);
  const auto found = ask({name("nccl_bus_bandwidth_gbs"), {"collective", kEqual, "AllReduce"}});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found.begin()->first,
            "__name__=nccl_bus_bandwidth_gbs collective=AllReduce gpu_uuid=GPU-0 instance=node-1 node=node-1 nranks=16 "
            "rank=0 slurm_job_id=7 ");
  EXPECT_DOUBLE_EQ(found.begin()->second[0], 40);
}

TEST_F(AliasReaderTest, HoldsTheLimitOnSeries) {
  const LabelMatcher wanted = name("DCGM_FI_DEV_GPU_UTIL");
  EXPECT_FALSE(reader_.select({&wanted, 1}, {.to_ms = 10'000, .series_max = 1}).ok());
  EXPECT_TRUE(reader_.select({&wanted, 1}, {.to_ms = 10'000, .series_max = 2}).ok());
}

}  // namespace
}  // namespace lockstep
