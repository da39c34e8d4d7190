// The pages docs/guide/agent-metrics.md and node-metrics.md and the tables in the code say the same.
#include "agent/metrics_page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "agent/counters_table.h"
#include "agent/node/node_metrics.h"
#include "agent/ranks/callback_cost.h"
#include "agent/ranks/metrics_table.h"
#include "base/files.h"
#include "base/text.h"
#include "model/metric_aliases.h"

namespace lockstep {
namespace {

const char* to_text(MetricKind kind) {
  return kind == MetricKind::kSum ? "counter" : kind == MetricKind::kHistogram ? "histogram" : "gauge";
}

TEST(AgentMetricsPage, HasEveryRowOfTheTablesWordForWord) {
  Result<std::string> page = read_file(LOCKSTEP_AGENT_METRICS_PAGE, 1 << 20);
  ASSERT_TRUE(page.ok()) << page.error();
  for (const MetricDescriptor& metric : kRankMetrics) {
    const std::string row = format("\n| `%s` | %s | %s | %s | %s |\n", metric.name, to_text(metric.kind), metric.unit,
                                   metric.labels, metric.help);
    EXPECT_NE(page->find(row), std::string::npos) << "missing:" << row;
  }
  for (const CounterDescriptor& counter : kAgentCounters) {
    const std::string row = format("\n| `%s` | %s | %s |\n", counter.name, counter.type, counter.help);
    EXPECT_NE(page->find(row), std::string::npos) << "missing:" << row;
  }
}

TEST(NodeMetricsPage, HasWhatTheAgentPrints) {
  Result<std::string> page = read_file(LOCKSTEP_NODE_METRICS_PAGE, 1 << 20);
  ASSERT_TRUE(page.ok()) << page.error();
  EXPECT_TRUE(page->ends_with(node_metrics_markdown())) << "replace the tables by what `lockstep-agent metrics` prints";
}

TEST(NodeMetrics, ANameIsOneFamilyOfOneTable) {
  std::map<std::string, std::string> table_of;
  for (const NodeMetricTable& table : node_metric_tables()) {
    for (const MetricDescriptor& row : table.rows) {
      EXPECT_EQ(table_of.emplace(prometheus_name(row), table.title).first->second, table.title) << row.name;
      const bool ours = std::string_view(row.name).starts_with("lockstep_");
      const bool named_as_sum = std::string_view(row.name).ends_with("_total");
      EXPECT_TRUE(!ours || named_as_sum == (row.kind == MetricKind::kSum)) << row.name;
      for (const char* never : {"pid", "step", "kernel", "seq"})
        EXPECT_EQ((", " + std::string(row.labels) + ",").find(std::string(", ") + never + ","), std::string::npos)
            << row.name;
    }
  }
}

TEST(NodeMetrics, EveryAliasIsOfAMetricThatTheAgentSendsOrOfAPortOfASwitch) {
  for (const MetricAlias& alias : metric_aliases()) {
    if (alias.tool == MetricTool::kOpenConfig || alias.tool == MetricTool::kSnmp) {
      EXPECT_TRUE(std::string_view(alias.ours).starts_with("lockstep_port_")) << alias.other;
      continue;
    }
    std::string sent;
    const auto look = [&](const MetricDescriptor& row) {
      if (prometheus_name(row) == alias.ours) sent = row.name;
    };
    for (const NodeMetricTable& table : node_metric_tables()) std::for_each(table.rows.begin(), table.rows.end(), look);
    std::for_each(std::begin(kRankMetrics), std::end(kRankMetrics), look);
    EXPECT_EQ(sent, alias.sent()) << alias.other;
  }
}

TEST(AgentMetricsPage, TheTableIsInTheOrderOfItsNames) {
  EXPECT_STREQ(descriptor_of(RankMetric::kGpuInfo).name, "lockstep_job_gpu_info");
  EXPECT_STREQ(descriptor_of(RankMetric::kNetworkWait).name, "lockstep_network_wait_seconds_total");
  EXPECT_STREQ(descriptor_of(RankMetric::kPluginCallback).name, "lockstep_plugin_callback_seconds");
  EXPECT_EQ(std::size(kRankMetrics), static_cast<size_t>(RankMetric::kPluginNcclVersion) + 1);
}

TEST(CallbackCost, IsAHistogramOverAllProcesses) {
  CallbackCost page;
  RecorderCost one, more;
  one.total_ns = 130;
  one.buckets[0] = 1;
  one.buckets[2] = 1;
  more = one;
  more.total_ns += 30'000;
  more.buckets.back() = 1;
  page.add({}, one);
  page.add(one, more);
  page.add({}, one);  // of another process
  const std::string text = page.prometheus_text();
  for (const char* line : {"# TYPE lockstep_plugin_callback_seconds histogram\n", "_bucket{le=\"2.5e-08\"} 2\n",
                           "_bucket{le=\"5e-08\"} 2\n", "_bucket{le=\"1e-07\"} 4\n", "_bucket{le=\"2e-05\"} 4\n",
                           "_bucket{le=\"+Inf\"} 5\n", "_sum 0.000030260\n", "_count 5\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

}  // namespace
}  // namespace lockstep
