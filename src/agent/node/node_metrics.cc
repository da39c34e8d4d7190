#include "agent/node/node_metrics.h"

#include <algorithm>

#include "agent/metrics_page.h"
#include "base/text.h"
#include "model/agent_own_metrics.h"
#include "model/metric_aliases.h"
#include "sources/gpu/gpu_metrics.h"
#include "sources/gpu/gpu_own_metrics.h"
#include "sources/host/host_metrics.h"
#include "sources/kernel/kernel_metrics.h"
#include "sources/nic/nic_metrics.h"
#include "sources/ownership/gpu_ownership_metrics.h"

namespace lockstep {

const std::vector<NodeMetricTable>& node_metric_tables() {
  static const std::vector<NodeMetricTable> tables = {
      {"GPUs", kGpuMetrics},
      {"GPUs: what they are, and reading them", kGpuOwnMetrics},
      {"Who holds them", kWhoMetrics},
      {"Network adapters", kNicMetrics},
      {"Host", kHostMetrics},
      {"Kernel log and XIDs", kKernelMetrics},
      {"The agent itself", kOwnMetrics},
  };
  return tables;
}

std::string node_metrics_markdown() {
  std::string text;
  for (const NodeMetricTable& table : node_metric_tables()) {
    text += format(
        "## %s\n\n| name | on `/metrics` | kind | unit | labels | meaning | dcgm-exporter "
        "|\n|---|---|---|---|---|---|---|\n",
        table.title);
    for (size_t i = 0; i < table.rows.size(); ++i) {
      const MetricDescriptor& row = table.rows[i];
      const std::string_view name = row.name;
      // Rows of one name stand together, one for each value of a label: one line for people.
      if (i > 0 && name == table.rows[i - 1].name) continue;
      const std::string on_page = prometheus_name(row);
      std::string aliases;
      for (const MetricAlias* alias : aliases_of_ours(on_page)) {
        if (alias->tool == MetricTool::kDcgm) aliases += format("%s`%s`", aliases.empty() ? "" : ", ", alias->other);
      }
      text += format(
          "| `%s` | %s | %s | %s | %s | %s | %s |\n", row.name, on_page == name ? "" : ("`" + on_page + "`").c_str(),
          row.kind == MetricKind::kSum ? "counter" : "gauge", row.unit, row.labels, row.help, aliases.c_str());
    }
    text += "\n";
  }
  return text;
}

}  // namespace lockstep
